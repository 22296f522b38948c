//! Every invariant sees a plan that breaks it, and lets one pass that does not.

use std::collections::BTreeSet;

use kai_core::{
    Cluster,
    amounts::GPU,
    delta::{Delta, Gpus, Level, Node, Pod, PodGroup, Queue, Topology, TopologyConstraint, Unavailable},
    plan::{Cause, Decision, Eviction, GroupRefusal, Placed, Plan},
    policy::Action,
    time::{Span, Time},
};
use kai_invariants::{
    Facts, check_all, determinism, ledgers, loops,
    sample::{NOW, group, node, pod, policy, queue, running, subgroup},
};

const ONE: Gpus = Gpus::Whole(1);
const MOST: Gpus = Gpus::Portion { devices: 1, millionths: 600_000 };

/// A cluster for which plans are written by hand.
#[derive(Default)]
pub struct Stage {
    facts: Facts,
    cluster: Cluster,
    decisions: Vec<Decision>,
}

impl Stage {
    pub fn new(nodes: Vec<Node>, queues: Vec<Queue>, groups: Vec<PodGroup>, pods: Vec<Pod>) -> Self {
        let mut stage = Self::default();
        for node in nodes {
            stage.apply(Delta::Node(Box::new(node)));
        }
        for queue in queues {
            stage.apply(Delta::Queue(Box::new(queue)));
        }
        for group in groups {
            stage.apply(Delta::PodGroup(Box::new(group)));
        }
        for pod in pods {
            stage.apply(Delta::Pod(Box::new(pod)));
        }
        // Fair shares are divided by a cycle; what it decided is taken back.
        kai_core::plan(&mut stage.cluster, NOW, &policy());
        stage.cluster.settle();
        stage
    }

    fn apply(&mut self, delta: Delta) {
        self.facts.apply(&delta);
        self.cluster.apply(delta);
    }

    fn placed(&self, pod: &str, node: &str, devices: &[&str]) -> Placed {
        let portion = match self.facts.pods[pod].request.gpus {
            Gpus::Portion { millionths, .. } => millionths,
            _ => 0,
        };
        Placed {
            pod: self.cluster.pod(pod).expect("a pod"),
            node: self.cluster.node(node).expect("a node"),
            devices: devices.iter().map(|device| (*device).to_owned()).collect(),
            portion,
            claims: Vec::new(),
            extended: Vec::new(),
            numa: Vec::new(),
        }
    }

    pub fn bind(mut self, pod: &str, node: &str, devices: &[&str]) -> Self {
        self.decisions.push(Decision::Bind(self.placed(pod, node, devices)));
        self
    }

    pub fn pipeline(mut self, pod: &str, node: &str, devices: &[&str]) -> Self {
        self.decisions.push(Decision::Pipeline(self.placed(pod, node, devices)));
        self
    }

    pub fn started(mut self, group: &str) -> Self {
        let group = self.cluster.group(group).expect("a group");
        self.decisions.push(Decision::Started { group, at: NOW });
        self
    }

    pub fn evict(mut self, action: Action, pod: &str, beneficiary: Option<&str>, moved: bool) -> Self {
        let group = self.facts.pods[pod].group.clone().expect("a group");
        self.decisions.push(Decision::Evict(Eviction {
            pod: self.cluster.pod(pod).expect("a pod"),
            group: self.cluster.group(&group).expect("a group"),
            action,
            heir: None,
            beneficiary: beneficiary.map(|key| self.cluster.group(key).expect("a group")),
            queues: None,
            moved,
        }));
        self
    }

    /// The invariants that the decisions break. Every group is given a reason to wait, unless that is what is tried.
    pub fn broken(self) -> BTreeSet<&'static str> {
        let pending = |key: &&String| {
            let mut pods = self.facts.pods.values();
            pods.any(|pod| pod.group.as_ref() == Some(key) && pod.placement.is_none())
        };
        let reasons = self.facts.groups.keys().filter(pending).filter_map(|key| {
            let causes = vec![Cause::Invalid("for the test".to_owned())];
            Some(GroupRefusal { group: self.cluster.group(key)?, causes })
        });
        let plan = Plan { reasons: reasons.collect(), decisions: self.decisions.clone(), ..Plan::default() };
        let violations = check_all(&self.facts, &self.cluster, &plan, &policy(), NOW);
        violations.into_iter().map(|violation| violation.invariant).collect()
    }
}

pub fn set(invariants: &[&'static str]) -> BTreeSet<&'static str> {
    invariants.iter().copied().collect()
}

/// One node, one queue, some pods that wait in a group of their own each.
fn singles(gpus: u32, pods: &[(&str, Gpus)]) -> Stage {
    let groups = pods.iter().map(|(name, _)| group(&format!("a/{name}"), "q")).collect();
    let pods = pods.iter().map(|(name, gpus)| pod(name, &format!("a/{name}"), *gpus)).collect();
    Stage::new(vec![node("n", gpus)], vec![queue("q", None, 8)], groups, pods)
}

/// Two pods of one group that wait on two nodes, after some change to the group.
pub fn pair(change: impl FnOnce(&mut PodGroup)) -> Stage {
    let mut gang = group("a/gang", "q");
    change(&mut gang);
    let subgroup = |place: usize| gang.subgroups.get(place).map(|subgroup| subgroup.name.clone());
    let first = Pod { subgroup: subgroup(0), ..pod("p0", "a/gang", ONE) };
    let second = Pod { subgroup: subgroup(1), ..pod("p1", "a/gang", ONE) };
    let mut nodes = vec![node("n0", 1), node("n1", 1)];
    nodes[0].labels.insert("zone".to_owned(), "left".to_owned());
    nodes[1].labels.insert("zone".to_owned(), "right".to_owned());
    Stage::new(nodes, vec![queue("q", None, 8)], vec![gang], vec![first, second])
}

/// A victim that runs on the only GPU and a group that wants it, after some change to them.
fn contest(change: impl FnOnce(&mut PodGroup, &mut PodGroup)) -> Stage {
    let (mut victim, mut winner) = (group("a/victim", "q"), group("a/winner", "q"));
    winner.priority = 75;
    change(&mut victim, &mut winner);
    let queues = vec![queue("q", None, 1), queue("other", None, 0)];
    let pods = vec![running(pod("old", "a/victim", ONE), "n", &[]), pod("new", "a/winner", ONE)];
    Stage::new(vec![node("n", 1), node("spare", 1)], queues, vec![victim, winner], pods)
}

fn take(stage: Stage, action: Action) -> BTreeSet<&'static str> {
    stage.evict(action, "old", Some("a/winner"), false).pipeline("new", "n", &[]).broken()
}

#[test]
fn a_node_is_not_overfilled() {
    let stage = || singles(1, &[("x", ONE), ("y", ONE)]).bind("x", "n", &[]).started("a/x");
    assert_eq!(stage().broken(), set(&[]));
    assert_eq!(stage().bind("y", "n", &[]).started("a/y").broken(), set(&["no node holds more than it has"]));
}

#[test]
fn what_is_leaving_can_be_promised_but_not_bound() {
    let stage = || {
        let mut stage = contest(|_, _| {});
        let leaving = Pod { deleted: Some(Time(NOW.0 - 1000)), ..stage.facts.pods["old"].clone() };
        stage.apply(Delta::Pod(Box::new(leaving)));
        stage
    };
    assert_eq!(stage().pipeline("new", "n", &[]).broken(), set(&[]));
    assert_eq!(stage().bind("new", "n", &[]).started("a/winner").broken(), set(&["no node holds more than it has"]));
}

#[test]
fn a_device_is_not_given_out_twice() {
    let stage = || singles(2, &[("x", MOST), ("y", MOST)]).bind("x", "n", &["d0"]).started("a/x");
    assert_eq!(stage().bind("y", "n", &["d1"]).started("a/y").broken(), set(&[]));
    let invariant = "no device is given out beyond its memory";
    assert_eq!(stage().bind("y", "n", &["d0"]).started("a/y").broken(), set(&[invariant]));
    assert_eq!(stage().bind("y", "n", &[]).started("a/y").broken(), set(&[invariant]));
}

#[test]
fn a_slot_is_kept_for_the_reservation_of_a_device() {
    let stage = |slots: i64| {
        let mut stage = singles(2, &[("x", MOST)]);
        let small = Node { pods: slots, ..node("n", 2) };
        stage.apply(Delta::Node(Box::new(small)));
        stage.bind("x", "n", &["fresh"]).started("a/x")
    };
    assert_eq!(stage(2).broken(), set(&[]));
    assert_eq!(stage(1).broken(), set(&["no node holds more than it has"]));
}

#[test]
fn a_cordoned_node_is_left_alone() {
    let mut stage = singles(1, &[("x", ONE)]);
    let cordoned = Node { unavailable: vec![Unavailable::Unschedulable], ..node("n", 1) };
    stage.apply(Delta::Node(Box::new(cordoned)));
    assert_eq!(stage.bind("x", "n", &[]).started("a/x").broken(), set(&["pods are placed only where they may be"]));
}

#[test]
fn a_gang_is_not_started_in_part() {
    let invariant = "a gang runs as a whole or not at all";
    let gang = || pair(|gang| gang.min_member = Some(2)).started("a/gang").bind("p0", "n0", &[]);
    assert_eq!(gang().bind("p1", "n1", &[]).broken(), set(&[]));
    assert_eq!(gang().broken(), set(&[invariant]));
    assert_eq!(gang().pipeline("p1", "n1", &[]).broken(), set(&[invariant]));
}

#[test]
fn as_many_subgroups_start_as_are_needed() {
    let gang = |needed: Option<u32>| {
        let stage = pair(|gang| {
            gang.subgroups = vec![subgroup("left", 1), subgroup("right", 1)];
            gang.min_sub_group = needed;
        });
        stage.bind("p0", "n0", &[]).started("a/gang").broken()
    };
    assert_eq!(gang(Some(1)), set(&[]));
    assert_eq!(gang(None), set(&["a gang runs as a whole or not at all"]));
}

#[test]
fn a_gang_is_not_evicted_in_part() {
    let stage = contest(|victim, _| victim.min_member = Some(2));
    let mut other = stage;
    other.apply(Delta::Pod(Box::new(running(pod("old-2", "a/victim", ONE), "spare", &[]))));
    assert_eq!(take(other, Action::Preempt), set(&["a gang runs as a whole or not at all"]));
}

#[test]
fn limits_hold_at_every_level() {
    let stage = |limit: i64| {
        let mut stage = pair(|_| {});
        let mut top = queue("top", None, 8);
        top.gpu.limit = Some(limit * GPU);
        stage.apply(Delta::Queue(Box::new(top)));
        stage.apply(Delta::Queue(Box::new(queue("q", Some("top"), 8))));
        stage.bind("p0", "n0", &[]).bind("p1", "n1", &[]).started("a/gang").broken()
    };
    assert_eq!(stage(2), set(&[]));
    assert_eq!(stage(1), set(&["no queue exceeds its limit"]));
}

#[test]
fn what_cannot_be_evicted_stays_within_quota() {
    let stage = |quota: i64, preemptible: bool| {
        let mut stage = pair(|gang| gang.preemptible = preemptible);
        stage.apply(Delta::Queue(Box::new(queue("q", None, quota))));
        stage.bind("p0", "n0", &[]).bind("p1", "n1", &[]).started("a/gang").broken()
    };
    assert_eq!(stage(2, false), set(&[]));
    assert_eq!(stage(1, true), set(&[]));
    assert_eq!(stage(1, false), set(&["unevictable pods stay within quota"]));
}

#[test]
fn decisions_are_about_pods_that_can_be_decided_about() {
    let invariant = "decisions are about pods that they can be about";
    let stage = contest(|_, _| {}).pipeline("old", "spare", &[]);
    assert!(stage.broken().contains(invariant));
    let mut stage = contest(|_, _| {});
    stage.apply(Delta::QueueGone("q".to_owned()));
    assert!(stage.bind("new", "spare", &[]).started("a/winner").broken().contains(invariant));
}

#[test]
fn who_waits_is_told_why() {
    let stage = singles(0, &[("x", ONE)]);
    let broken = |reasons: Vec<GroupRefusal>| {
        let plan = Plan { reasons, ..Plan::default() };
        check_all(&stage.facts, &stage.cluster, &plan, &policy(), NOW).len()
    };
    let group = stage.cluster.group("a/x").expect("a group");
    assert_eq!(broken(vec![]), 1);
    assert_eq!(broken(vec![GroupRefusal { group, causes: vec![] }]), 1);
    assert_eq!(broken(vec![GroupRefusal { group, causes: vec![Cause::SameAs(group)] }]), 1);
    assert_eq!(broken(vec![GroupRefusal { group, causes: vec![Cause::QueueMissing("q".to_owned())] }]), 0);
}

#[test]
fn a_start_is_recorded() {
    let stage = || singles(1, &[("x", ONE)]);
    let invariant = set(&["what is recorded of groups is true"]);
    assert_eq!(stage().bind("x", "n", &[]).broken(), invariant);
    assert_eq!(stage().started("a/x").broken(), invariant);
}

#[test]
fn a_required_level_is_kept() {
    let stage = |second: &str| {
        let mut stage = pair(|gang| {
            let required = Some("zone".to_owned());
            gang.topology = Some(TopologyConstraint { topology: "hall".to_owned(), required, preferred: None });
        });
        let levels = vec![Level { label: "zone".to_owned(), alias: None }];
        stage.apply(Delta::Topology(Topology { name: "hall".to_owned(), levels }));
        let wide = Node { labels: stage.facts.nodes["n0"].labels.clone(), ..node("n0", 2) };
        stage.apply(Delta::Node(Box::new(wide)));
        stage.bind("p0", "n0", &[]).bind("p1", second, &[]).started("a/gang").broken()
    };
    assert_eq!(stage("n0"), set(&[]));
    assert_eq!(stage("n1"), set(&["required topology levels are kept"]));
}

#[test]
fn nobody_is_evicted_for_nothing() {
    let stage = contest(|_, _| {}).evict(Action::Preempt, "old", Some("a/winner"), false);
    assert_eq!(stage.broken(), set(&["nobody is evicted for nothing"]));
    let stage = contest(|_, _| {}).evict(Action::Preempt, "old", None, false);
    assert_eq!(stage.broken(), set(&["nobody is evicted for nothing"]));
}

#[test]
fn preempt_takes_from_below_in_the_same_queue() {
    let invariant = set(&["preempt takes from lower priorities of the same queue"]);
    assert_eq!(take(contest(|_, _| {}), Action::Preempt), set(&[]));
    assert_eq!(take(contest(|victim, _| victim.priority = 75), Action::Preempt), invariant);
    assert_eq!(take(contest(|victim, _| victim.queue = "other".to_owned()), Action::Preempt), invariant);
}

#[test]
fn who_cannot_be_evicted_is_not() {
    let stage = contest(|victim, _| victim.preemptible = false);
    assert_eq!(take(stage, Action::Preempt), set(&["groups that cannot be evicted are not"]));
}

#[test]
fn a_preemption_delay_is_waited_for() {
    let stage = |seconds: i64| {
        take(
            contest(|_, winner| {
                winner.preemption_delay = Some(Span::seconds(seconds));
                winner.last_eviction = Some(Time(NOW.0 - 10_000));
            }),
            Action::Preempt,
        )
    };
    assert_eq!(stage(10), set(&[]));
    assert_eq!(stage(11), set(&["nobody is evicted for a group within its preemption delay"]));
}

#[test]
fn a_minimum_runtime_protects_the_core() {
    let stage = |minimum: i64, pods: usize| {
        let mut stage = contest(|victim, _| {
            victim.min_member = Some(1);
            victim.last_start = Some(Time(NOW.0 - 10_000));
        });
        let minimum = Some(Span::seconds(minimum));
        stage.apply(Delta::Queue(Box::new(Queue { preempt_min_runtime: minimum, ..queue("q", None, 1) })));
        if pods > 1 {
            stage.apply(Delta::Pod(Box::new(running(pod("old-2", "a/victim", ONE), "spare", &[]))));
        }
        take(stage, Action::Preempt)
    };
    assert_eq!(stage(10, 1), set(&[]));
    assert_eq!(stage(11, 2), set(&[]));
    assert_eq!(stage(11, 1), set(&["a group runs for its minimum time"]));
}

#[test]
fn consolidation_loses_nobody() {
    let moved = contest(|_, _| {}).evict(Action::Consolidation, "old", Some("a/winner"), true);
    assert_eq!(moved.pipeline("new", "n", &[]).pipeline("old", "spare", &[]).broken(), set(&[]));
    assert_eq!(take(contest(|_, _| {}), Action::Consolidation), set(&["consolidation only moves"]));
    let lasting = contest(|_, winner| winner.preemptible = false);
    let lasting = lasting.evict(Action::Consolidation, "old", Some("a/winner"), true);
    assert_eq!(
        lasting.pipeline("new", "n", &[]).pipeline("old", "spare", &[]).broken(),
        set(&["consolidation only moves"])
    );
}

#[test]
fn reclaim_takes_from_queues_above_their_share() {
    let stage = |quota: i64| {
        let mut stage = contest(|victim, _| victim.queue = "other".to_owned());
        let spare = Node { unavailable: vec![Unavailable::NotReady], ..node("spare", 1) };
        stage.apply(Delta::Node(Box::new(spare)));
        stage.apply(Delta::Queue(Box::new(queue("other", None, quota))));
        kai_core::plan(&mut stage.cluster, NOW, &policy());
        stage.cluster.settle();
        take(stage, Action::Reclaim)
    };
    assert_eq!(stage(0), set(&[]));
    assert_eq!(stage(1), set(&["reclaim is fair"]));
}

#[test]
fn reclaim_keeps_the_winner_within_its_share() {
    let mut stage = contest(|victim, winner| (victim.queue, winner.queue) = ("q".to_owned(), "other".to_owned()));
    let mut poor = queue("other", None, 0);
    poor.gpu.over_quota_weight = 0;
    stage.apply(Delta::Queue(Box::new(poor)));
    kai_core::plan(&mut stage.cluster, NOW, &policy());
    stage.cluster.settle();
    assert_eq!(take(stage, Action::Reclaim), set(&["reclaim is fair"]));
}

#[test]
fn only_stale_gangs_are_ended_as_stale() {
    let stage = |min: u32, seconds: i64| {
        let stage = contest(|victim, _| {
            victim.min_member = Some(min);
            victim.stale_since = Some(Time(NOW.0 - 1000 * seconds));
        });
        stage.evict(Action::StaleGangEviction, "old", None, false).broken()
    };
    assert_eq!(stage(2, 60), set(&[]));
    assert_eq!(stage(2, 59), set(&["only stale gangs are ended as stale"]));
    assert_eq!(stage(1, 60), set(&["only stale gangs are ended as stale"]));
}

/// A plan that only records something about one group.
fn about(cluster: &Cluster, group: usize) -> Plan {
    let group = kai_core::ids::GroupId::of(group);
    let reasons = vec![GroupRefusal { group, causes: vec![Cause::Invalid(cluster.group_key(group).to_owned())] }];
    Plan { reasons, ..Plan::default() }
}

#[test]
fn a_decision_by_order_of_arrival_is_seen() {
    let stage = singles(0, &[("x", ONE), ("y", ONE), ("z", ONE)]);
    let by_name =
        |cluster: &mut Cluster, _: Time, _: &_| about(cluster, cluster.group("a/x").expect("a group").index());
    let by_id = |cluster: &mut Cluster, _: Time, _: &_| about(cluster, 0);
    let check = |planner: kai_invariants::Planner<'_>| {
        determinism::check(&stage.facts, &policy(), NOW, planner, &[1, 2, 3, 4, 5, 6])
    };
    assert_eq!(check(&by_name), vec![]);
    assert!(!check(&by_id).is_empty());
}

#[test]
fn a_loop_is_seen() {
    let stage = contest(|_, _| {});
    // Whoever runs is evicted for whoever waits, for ever.
    let restless = |cluster: &mut Cluster, _: Time, _: &_| {
        let (old, new) = (cluster.pod("old").expect("a pod"), cluster.pod("new").expect("a pod"));
        let place = cluster.pods[old.index()].place.node.map(|_| old);
        let (out, into) = if place.is_some() { (old, new) } else { (new, old) };
        let group = |pod: kai_core::ids::PodId| cluster.pods[pod.index()].group.expect("a group");
        let placed = |pod| Placed {
            pod,
            node: cluster.node("n").expect("a node"),
            devices: vec![],
            portion: 0,
            claims: vec![],
            extended: vec![],
            numa: vec![],
        };
        let eviction = Eviction {
            pod: out,
            group: group(out),
            action: Action::Preempt,
            beneficiary: Some(group(into)),
            queues: None,
            heir: None,
            moved: false,
        };
        Plan { decisions: vec![Decision::Evict(eviction), Decision::Bind(placed(into))], ..Plan::default() }
    };
    let idle = |_: &mut Cluster, _: Time, _: &_| Plan::default();
    assert_eq!(loops::check(&stage.facts, &policy(), NOW, &idle), vec![]);
    assert_eq!(loops::check(&stage.facts, &policy(), NOW, &restless).len(), 1);
}

#[test]
fn a_wrong_ledger_is_seen() {
    let mut stage = contest(|_, _| {});
    assert_eq!(ledgers::check(&stage.facts, &mut stage.cluster, &policy(), NOW), vec![]);
    let node = stage.cluster.node("n").expect("a node");
    stage.cluster.nodes[node.index()].idle.fixed[0] += 1;
    assert_eq!(ledgers::check(&stage.facts, &mut stage.cluster, &policy(), NOW).len(), 1);
}
