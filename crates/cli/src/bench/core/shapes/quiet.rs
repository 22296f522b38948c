//! A cycle with nothing to do: a full cluster, and twenty groups that cannot be placed, each for another reason.
//!
//! One cluster is planned again and again. Between two cycles ten pods of other schedulers come and ten go, and ten nodes report what
//! they reported before: about what a cluster of this size does in a second.

use std::collections::BTreeSet;

use kai_core::{
    Cluster,
    delta::{Delta, Expression, Gpus, Operator, PodTerm, QueueResource, Request, Selector, TopologyConstraint},
    plan::Plan,
    time::Span,
};

use super::{Kai, Metric, Shape, Tally};
use crate::bench::core::{
    policy,
    world::{Job, NOW, RACK, Size, TOPOLOGY, World, quota, taint, unlimited},
};

const GPUS: u32 = 8;
const TEAMS: u32 = 10;
/// Nodes at the end that are empty and tainted: idle GPUs that nobody may use.
const TAINTED: u32 = 4;
/// The gang that may take one GPU too few.
const CLAIMED: u32 = 80;
const ZONE: &str = "topology.kubernetes.io/zone";
/// Pods that come and go between two cycles.
const PASSING: u32 = 10;

pub fn shapes() -> Vec<Shape> {
    vec![Shape {
        name: "quiet",
        title: "a cycle with nothing to do: 28 pods per node, 20 unschedulable groups of different kinds",
        nodes: &[1000, 5000, 20_000],
        per_node: 28,
        pods_sweep: Some((5000, &[14, 28, 56])),
        smallest: 120,
        policy: policy::standard,
        describe,
        check: nothing_but_reasons,
        between: Some(a_second_passes),
        metric: Metric::Time,
        targets: &[(5000, 5.0)],
        kai: Kai { rate: None, times: &[(5000, 2350.0)], exponent: None, note: "KAI at 4,000 nodes, 140,000 pods" },
    }]
}

fn describe(size: Size, world: &mut World<'_>) {
    world.topology();
    world.nodes(size.nodes, GPUS, |number, node| dress(size, number, node));
    running(size, world);
    for job in pending() {
        world.job(&job);
    }
}

fn dress(size: Size, number: u32, node: &mut kai_core::delta::Node) {
    node.labels.insert(RACK.into(), format!("rack-{:04}", number / 16));
    node.labels.insert(ZONE.into(), "zone-a".into());
    if number >= size.nodes - TAINTED {
        node.taints.push(taint());
    }
}

/// Queues that have exactly what they are guaranteed, but for the last team: it has 79 GPUs more, one too few for the claimant.
fn running(size: Size, world: &mut World<'_>) {
    let used = size.nodes - TAINTED;
    let jobs = (used - 1) * GPUS;
    world.queue("all", None, unlimited());
    for team in 0..TEAMS {
        let holds = (jobs + TEAMS - 1 - team) / TEAMS;
        let guaranteed = if team == TEAMS - 1 { holds + 1 - CLAIMED } else { holds };
        world.queue(&format!("team-{team}"), Some("all"), quota(guaranteed, 0));
    }
    world.queue("services", Some("all"), quota(0, 0));
    world.queue("claimant", Some("all"), quota(CLAIMED, 0));
    world.queue("small", Some("all"), quota(1, 0));
    world.queue("limited", Some("all"), QueueResource { limit: Some(1_000_000), ..quota(0, 0) });
    world.queue_with("protected", Some("all"), quota(GPUS, 0), |queue| {
        queue.preempt_min_runtime = Some(Span::seconds(86_400));
    });
    for number in 0..GPUS {
        let mut job = Job::new(&format!("young-{number}"), "protected").on(0);
        job.group.last_start = Some(NOW.after(Span::seconds(-60)));
        world.job(&job);
    }
    for number in 0..jobs {
        let (team, node) = (number % TEAMS, 1 + number % (used - 1));
        world.job(&Job::new(&format!("train-{number:06}"), &format!("team-{team}")).on(node));
    }
    // The rest of the pods asks for no GPU: half are ours, half belong to others. Tainted nodes have their daemons too.
    let rest = size.per_node.saturating_sub(GPUS);
    for node in 0..size.nodes {
        let tainted = node >= used;
        let daemons = if tainted { size.per_node } else { rest / 2 };
        if !tainted && rest > daemons {
            let mut job = Job::new(&format!("service-{node:05}"), "services").gang(rest - daemons).on(node);
            job.pod.request = Request { cpu: 200, memory: 64_000_000, ..Request::default() };
            world.job(&job);
        }
        for _ in 0..daemons {
            world.foreign(node);
        }
    }
}

/// Twenty groups, none of which can be placed.
fn pending() -> Vec<Job> {
    let in_rack = |topology: &str| {
        Some(TopologyConstraint { topology: topology.into(), required: Some(RACK.into()), preferred: None })
    };
    let other_pods = |value: &str, topology_key: &str| PodTerm {
        selector: Some(Selector {
            expressions: vec![Expression { key: "app".into(), operator: Operator::In, values: vec![value.into()] }],
        }),
        namespaces: None,
        topology_key: topology_key.into(),
    };
    let without_gpu = |name, queue| Job::new(name, queue).asking(Gpus::None);
    vec![
        Job::new("no-gpu-is-free", "team-0"),
        Job::new("no-64-gpus-are-free", "team-1").gang(64),
        Job::new("larger-than-any-node", "team-2").asking(Gpus::Whole(16)),
        Job::new("no-such-node", "team-3").with(|job| {
            job.pod.constraints.node_selector.insert("pool".into(), "absent".into());
        }),
        Job::new("no-half-is-free", "team-4").asking(Gpus::Portion { devices: 1, millionths: 500_000 }),
        Job::new("more-memory-than-any-device", "team-5").asking(Gpus::Memory { devices: 1, mib: 100_000 }),
        Job::new("over-limit", "limited").gang(2),
        Job::new("over-quota", "small").gang(2).with(|job| {
            job.group.priority = 100;
            job.group.preemptible = false;
        }),
        Job::new("missing-claim", "team-6").with(|job| {
            job.pod.constraints.missing.push("persistentvolumeclaim \"data\" not found".into());
        }),
        Job::new("no-rack-is-free", "team-7")
            .gang(4)
            .asking(Gpus::Whole(GPUS))
            .with(|job| job.group.topology = in_rack(TOPOLOGY)),
        Job::new("unknown-topology", "team-8").with(|job| job.group.topology = in_rack("absent")),
        Job::new("no-such-queue", "absent"),
        Job::new("too-few-pods", "team-0").gang(2).with(|job| job.group.min_member = Some(4)),
        without_gpu("two-zones-wanted", "team-1").gang(2).with(|job| {
            job.pod.labels.insert("app".into(), "apart".into());
            job.pod.constraints.pod_anti_affinity.push(other_pods("apart", ZONE));
        }),
        without_gpu("no-such-neighbour", "team-2")
            .with(|job| job.pod.constraints.pod_affinity.push(other_pods("absent", ZONE))),
        without_gpu("no-mig", "team-3").with(|job| {
            job.pod.request.extended.insert("nvidia.com/mig-1g.10gb".into(), 1);
            job.pod.request.mig_share = 1_000_000;
        }),
        without_gpu("no-such-resource", "team-4").with(|job| {
            job.pod.request.extended.insert("example.com/nic".into(), 1);
        }),
        Job::new("too-early", "team-5").with(|job| {
            job.group.priority = 75;
            job.group.preemption_delay = Some(Span::seconds(3600));
            job.group.last_eviction = Some(NOW.after(Span::seconds(-60)));
        }),
        Job::new("victims-are-protected", "protected").with(|job| job.group.priority = 75),
        Job::new("one-gpu-too-few", "claimant").gang(CLAIMED / GPUS).asking(Gpus::Whole(GPUS)),
    ]
}

/// What happens between two cycles.
fn a_second_passes(size: Size, round: u32, world: &mut World<'_>) {
    let passing = |round: u32, number: u32| {
        let node = (round * PASSING + number).wrapping_mul(97) % (size.nodes - TAINTED);
        (node, u64::from(u32::MAX) + u64::from(round * PASSING + number))
    };
    for number in 0..PASSING {
        if let Some(last) = round.checked_sub(1) {
            let (node, name) = passing(last, number);
            world.delta(Delta::PodGone(World::foreign_uid(node, name)));
        }
        let (node, name) = passing(round, number);
        world.foreign_named(node, name);
        world.node(node, GPUS, |number, node| dress(size, number, node));
    }
}

fn nothing_but_reasons(_: Size, cluster: &Cluster, plan: &Plan) -> Result<(), String> {
    Tally::default().expect(plan)?;
    let told: BTreeSet<&str> = plan.reasons.iter().map(|refusal| cluster.group_key(refusal.group)).collect();
    let untold: Vec<String> =
        pending().into_iter().map(|job| job.group.key).filter(|key| !told.contains(key.as_str())).collect();
    if untold.is_empty() { Ok(()) } else { Err(format!("no reason was given for {}", untold.join(", "))) }
}
