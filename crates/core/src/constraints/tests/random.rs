//! Random clusters through random changes: the census and the oracle must agree about every waiting pod and every node.

use std::fmt::Debug;

use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::{Just, ProptestConfig, Strategy, any, prop_oneof},
    sample::select,
    test_runner::TestRunner,
};

use super::{
    World, node,
    oracle::{Resident, Scene, check_node},
    placement, pod,
};
use crate::{
    cluster::{pod::Place, status::Status},
    delta::{
        Constraints, Delta, Expression, HostPort, Node, Operator, Phase, Pod, PodTerm, Selector, SpreadConstraint,
        Taint, TaintEffect, Term, Toleration, VolumeNeed, Weighted, WhenUnsatisfiable,
    },
    ids::{NodeId, PodId},
    plan::NodeRefusal,
    time::Time,
};

const NODES: usize = 5;
const PODS: usize = 10;

/// One change.
#[derive(Clone, Debug)]
enum Step {
    Node(usize, Box<Node>),
    NodeGone(usize),
    Pod(usize, Box<Pod>),
    PodGone(usize),
    Place(usize, usize, bool),
    Evict(usize),
    /// An eviction becomes a fact.
    Confirm(usize),
    /// To a node, or within its own.
    Relocate(usize, Option<usize>),
    Rollback(usize),
}

fn word() -> impl Strategy<Value = String> {
    select(vec!["a", "a", "a", "b", "1", "7", ""]).prop_map(str::to_owned)
}

fn key() -> impl Strategy<Value = String> {
    select(vec!["zone", "zone", "rack", "size"]).prop_map(str::to_owned)
}

fn expression() -> impl Strategy<Value = Expression> {
    let operators = [
        Operator::In,
        Operator::In,
        Operator::NotIn,
        Operator::Exists,
        Operator::DoesNotExist,
        Operator::Gt,
        Operator::Lt,
    ];
    let any = (key(), select(operators.to_vec()), vec(word(), 0..3)).prop_map(|(key, operator, mut values)| {
        // Mostly well formed, so that something matches.
        match operator {
            Operator::Exists | Operator::DoesNotExist if values.len() < 2 => values.clear(),
            Operator::Gt | Operator::Lt if values.len() == 2 => values.truncate(1),
            _ => {}
        }
        Expression { key, operator, values }
    });
    let broad = select(vec![Operator::Exists, Operator::DoesNotExist]);
    let broad = (key(), broad).prop_map(|(key, operator)| Expression { key, operator, values: Vec::new() });
    prop_oneof![any, broad]
}

fn term() -> impl Strategy<Value = Term> {
    let name = (select(vec![Operator::In, Operator::NotIn, Operator::Exists]), vec(0..NODES, 0..3)).prop_map(
        |(operator, nodes)| Expression {
            key: "metadata.name".to_owned(),
            operator,
            values: nodes.into_iter().map(node_name).collect(),
        },
    );
    (vec(expression(), 0..3), seldom(0.25, vec(name, 1..2))).prop_map(|(labels, names)| Term { labels, names })
}

fn selector() -> impl Strategy<Value = Option<Selector>> {
    option::weighted(0.9, vec(expression(), 0..2).prop_map(|expressions| Selector { expressions }))
}

fn pod_term() -> impl Strategy<Value = PodTerm> {
    let namespaces = option::weighted(0.8, vec(select(vec!["team", "other"]).prop_map(str::to_owned), 0..3));
    (selector(), namespaces, key()).prop_map(|(selector, namespaces, topology_key)| PodTerm {
        selector,
        namespaces,
        topology_key,
    })
}

fn effect() -> impl Strategy<Value = TaintEffect> {
    select(vec![TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule, TaintEffect::NoExecute])
}

fn spread() -> impl Strategy<Value = SpreadConstraint> {
    let when = select(vec![WhenUnsatisfiable::DoNotSchedule, WhenUnsatisfiable::ScheduleAnyway]);
    (1..3_u32, key(), when, selector(), option::of(0..5_u32), any::<bool>(), any::<bool>()).prop_map(
        |(max_skew, topology_key, when_unsatisfiable, selector, min_domains, honor_node_affinity, honor_taints)| {
            SpreadConstraint {
                max_skew,
                topology_key,
                when_unsatisfiable,
                selector,
                min_domains,
                honor_node_affinity,
                honor_taints,
            }
        },
    )
}

fn volume() -> impl Strategy<Value = VolumeNeed> {
    let nodes = option::weighted(0.3, vec(term(), 0..3));
    (select(vec!["team/x", "team/y"]), nodes, any::<bool>(), any::<bool>()).prop_map(
        |(claim, nodes, bound, exclusive)| {
            let claim = claim.to_owned();
            if bound { VolumeNeed::Bound { claim, nodes, exclusive } } else { VolumeNeed::Unbound { claim, nodes } }
        },
    )
}

/// Nothing, or with a probability something.
fn seldom<T: Default + Debug>(probability: f64, some: impl Strategy<Value = T>) -> impl Strategy<Value = T> {
    option::weighted(probability, some).prop_map(Option::unwrap_or_default)
}

/// Constraints with few parts each: with many nothing would ever fit.
fn constraints() -> impl Strategy<Value = Constraints> {
    let node_parts =
        (
            seldom(0.2, btree_map(key(), word(), 1..2)),
            option::weighted(0.3, vec(term(), 0..3)),
            vec((-9..9_i32, term()).prop_map(|(weight, item)| Weighted { weight, item }), 0..2),
            vec(
                (option::of(key()), option::of(word()), option::of(effect()))
                    .prop_map(|(key, value, effect)| Toleration { key, value, effect }),
                0..2,
            ),
        );
    let port = (80..82_u16, select(vec!["TCP", "UDP"]), select(vec!["", "0.0.0.0", "10.0.0.1", "10.0.0.2"]));
    let port = port.prop_map(|(port, protocol, address)| HostPort {
        port,
        protocol: protocol.to_owned(),
        address: address.to_owned(),
    });
    let pod_parts = (
        seldom(0.3, vec(pod_term(), 1..3)),
        seldom(0.3, vec(pod_term(), 1..3)),
        vec((-9..9_i32, pod_term()).prop_map(|(weight, item)| Weighted { weight, item }), 0..2),
        seldom(0.5, vec(spread(), 1..3)),
        seldom(0.25, vec(port, 1..3)),
        seldom(0.25, vec(volume(), 1..2)),
    );
    (node_parts, pod_parts).prop_map(|(nodes, pods)| Constraints {
        node_selector: nodes.0,
        node_affinity: nodes.1,
        preferred_node_affinity: nodes.2,
        tolerations: nodes.3,
        pod_affinity: pods.0,
        pod_anti_affinity: pods.1,
        preferred_pod_affinity: pods.2,
        spread: pods.3,
        host_ports: pods.4,
        volumes: pods.5,
        missing: Vec::new(),
        vetoed: Vec::new(),
    })
}

fn node_name(index: usize) -> String {
    format!("node-{index}")
}

fn a_node() -> impl Strategy<Value = Node> {
    let taint = (key(), word(), effect()).prop_map(|(key, value, effect)| Taint { key, value, effect });
    let taints = seldom(0.3, vec(taint, 1..3));
    (btree_map(key(), word(), 0..4), taints).prop_map(|(labels, taints)| Node { labels, taints, ..node("", &[]) })
}

fn a_pod() -> impl Strategy<Value = Pod> {
    let parts = (btree_map(key(), word(), 0..4), select(vec!["team", "team", "other"]), constraints());
    let placed = option::weighted(0.6, (0..NODES, any::<bool>(), option::weighted(0.35, Just(Time(0)))));
    (parts, placed).prop_map(|((labels, namespace, constraints), placed)| {
        let waiting = Pod { labels, namespace: namespace.to_owned(), ..pod("", &[], constraints) };
        let Some((node, runs, deleted)) = placed else { return waiting };
        let phase = if runs { Phase::Running } else { Phase::Pending };
        Pod { phase, deleted, placement: Some(placement(&node_name(node))), ..waiting }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..NODES, a_node()).prop_map(|(index, node)| Step::Node(index, Box::new(node))),
        1 => (0..NODES).prop_map(Step::NodeGone),
        2 => (0..PODS, a_pod()).prop_map(|(index, pod)| Step::Pod(index, Box::new(pod))),
        1 => (0..PODS).prop_map(Step::PodGone),
        6 => (0..PODS, 0..NODES, any::<bool>()).prop_map(|(pod, node, now)| Step::Place(pod, node, now)),
        6 => (0..PODS).prop_map(Step::Evict),
        3 => (0..PODS).prop_map(Step::Confirm),
        4 => (0..PODS, option::of(0..NODES)).prop_map(|(pod, node)| Step::Relocate(pod, node)),
        2 => (0..4_usize).prop_map(Step::Rollback),
    ]
}

/// A world, and the same as described.
struct Twins {
    world: World,
    nodes: Vec<Option<Node>>,
    pods: Vec<Option<Pod>>,
}

impl Twins {
    fn new(nodes: Vec<Node>, pods: Vec<Pod>) -> Self {
        let mut twins = Self { world: World::default(), nodes: vec![None; NODES], pods: vec![None; PODS] };
        nodes.into_iter().enumerate().for_each(|(index, node)| twins.take(Step::Node(index, Box::new(node))));
        pods.into_iter().enumerate().for_each(|(index, pod)| twins.take(Step::Pod(index, Box::new(pod))));
        twins
    }

    fn node(&self, index: usize) -> Option<NodeId> {
        self.nodes[index].as_ref().and_then(|node| self.world.cluster.node(&node.name))
    }

    fn pod(&self, index: usize) -> Option<PodId> {
        self.pods[index].as_ref().and_then(|pod| self.world.cluster.pod(&pod.uid))
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Node(index, node) => {
                let node = Node { name: node_name(index), ..*node };
                self.nodes[index] = Some(node.clone());
                self.world.cluster.apply(Delta::Node(Box::new(node)));
            }
            Step::NodeGone(index) => {
                self.nodes[index] = None;
                self.world.cluster.apply(Delta::NodeGone(node_name(index)));
            }
            Step::Pod(index, pod) => {
                let pod = Pod { uid: format!("pod-{index}"), ..*pod };
                self.pods[index] = Some(pod.clone());
                self.world.cluster.apply(Delta::Pod(Box::new(pod)));
            }
            Step::PodGone(index) => {
                self.pods[index] = None;
                self.world.cluster.apply(Delta::PodGone(format!("pod-{index}")));
            }
            Step::Place(index, node, now) => {
                let (Some(pod), Some(node)) = (self.pod(index), self.node(node)) else { return };
                if self.world.cluster.pods[pod.index()].place.status == Status::Pending {
                    let status = if now { Status::Allocated } else { Status::Pipelined };
                    self.world.cluster.assign(pod, Place { node: Some(node), ..Place::nowhere(status) });
                }
            }
            Step::Evict(index) => {
                let Some(pod) = self.pod(index) else { return };
                if matches!(self.world.cluster.pods[pod.index()].place.status, Status::Running | Status::Bound) {
                    self.world.cluster.evict(pod);
                }
            }
            Step::Confirm(index) => {
                let Some(pod) = self.pod(index) else { return };
                if self.world.cluster.pods[pod.index()].is_evicted() {
                    self.world.cluster.confirm_eviction(pod);
                }
            }
            Step::Relocate(index, node) => {
                let Some(pod) = self.pod(index) else { return };
                let own = self.world.cluster.pods[pod.index()].place.node;
                let Some(node) = node.map_or(own, |node| self.node(node)) else { return };
                if self.world.cluster.pods[pod.index()].is_evicted() {
                    self.world.cluster.relocate(pod, Place { node: Some(node), ..Place::nowhere(Status::Pipelined) });
                }
            }
            Step::Rollback(back) => {
                let end = self.world.cluster.checkpoint();
                self.world.cluster.rollback(end.saturating_sub(back));
            }
        }
    }

    /// Who counts where, as the cluster has it.
    fn residents(&self) -> Vec<Resident> {
        let known = self.pods.iter().flatten().filter_map(|pod| {
            let known = &self.world.cluster.pods[self.world.cluster.pod(&pod.uid)?.index()];
            let status = known.place.status;
            let evicted = status == Status::Releasing && known.fact != Status::Releasing;
            let waits = matches!(status, Status::Pending | Status::Gated | Status::Succeeded | Status::Ended);
            let node = known.place.node.filter(|_| !evicted && !waits)?;
            Some(Resident {
                pod: pod.clone(),
                node: self.world.cluster.node_name(node).to_owned(),
                leaves: matches!(status, Status::Releasing | Status::Stuck),
            })
        });
        known.collect()
    }

    fn compare(&mut self) -> Tally {
        let mut tally = Tally::default();
        let nodes: Vec<Node> = self.nodes.iter().flatten().cloned().collect();
        let residents = self.residents();
        let scene = Scene { nodes: &nodes, residents: &residents };
        let pods: Vec<Pod> = self.pods.iter().flatten().cloned().collect();
        for pod in &pods {
            let id = self.world.pod(&pod.uid);
            if !self.world.cluster.is_waiting(id) {
                continue;
            }
            for node in &nodes {
                let own = self.world.check_node(&pod.uid, &node.name).err().map(|why| match why {
                    NodeRefusal::Taint(key) => format!("taint {}", self.world.cluster.word(key)),
                    other => name(&other).to_owned(),
                });
                assert_eq!(own, check_node(pod, node), "check_node: {pod:?} on {node:?}");
                let others = self.world.check_pods(&pod.uid, &node.name).err().map(|why| name(&why));
                assert_eq!(others, scene.check_pods(pod, node), "check_pods: {pod:?} on {}", node.name);
                let score = self.world.preference(&pod.uid, &node.name);
                assert_eq!(score, scene.preference(pod, node), "preference: {pod:?} on {}", node.name);
                tally.asked += 1;
                tally.refused += u32::from(others.is_some());
            }
        }
        tally
    }
}

/// How often the oracle was asked and refused: a test that never meets a refusal shows nothing.
#[derive(Default)]
struct Tally {
    asked: u32,
    refused: u32,
}

fn name(refusal: &NodeRefusal) -> &'static str {
    match refusal {
        NodeRefusal::NodeAffinity => "node affinity",
        NodeRefusal::PodAffinity => "affinity",
        NodeRefusal::PodAntiAffinity => "anti-affinity",
        NodeRefusal::ExistingAntiAffinity => "existing anti-affinity",
        NodeRefusal::Spread => "spread",
        NodeRefusal::HostPort => "port",
        NodeRefusal::Volume(_) => "volume",
        other => panic!("{other:?} is no constraint"),
    }
}

#[test]
fn the_census_agrees_with_the_oracle_after_every_change() {
    #[expect(clippy::disallowed_methods, reason = "the number of cases is the tester's choice")]
    let cases = std::env::var("KAI_PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(300);
    let config = ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Default::default() };
    let world = (vec(a_node(), 1..=NODES), vec(a_pod(), 1..=PODS), vec(step(), 0..12));
    let (asked, refused) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let result = TestRunner::new(config).run(&world, |(nodes, pods, steps)| {
        let mut twins = Twins::new(nodes, pods);
        for step in std::iter::once(None).chain(steps.into_iter().map(Some)) {
            if let Some(step) = step {
                twins.take(step);
            }
            let tally = twins.compare();
            asked.set(asked.get() + tally.asked);
            refused.set(refused.get() + tally.refused);
        }
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(refused.get() * 10 > asked.get(), "pods refuse: {} of {}", refused.get(), asked.get());
    assert!(refused.get() * 10 < asked.get() * 9, "and allow: {} of {}", refused.get(), asked.get());
}
