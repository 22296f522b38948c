//! Taking from queues above their share: KAI's own three benchmarks, with nodes of `per_node` GPUs full of one-GPU jobs.

use std::collections::BTreeSet;

use kai_core::{
    Cluster,
    delta::{Expression, Gpus, Operator, PodTerm, Selector, TopologyConstraint},
    plan::{Decision, Plan},
    policy::Action,
};

use super::{Kai, Metric, Shape, Tally};
use crate::bench::core::{
    policy,
    world::{Job, RACK, Size, TOPOLOGY, World, quota, unlimited},
};

/// Pods of the gang that can never be satisfied.
const GANG: u32 = 10;

pub fn shapes() -> Vec<Shape> {
    let large = Shape {
        name: "reclaim-large",
        title: "ReclaimLargeJobs: a gang over half of the nodes evicts 4 N one-GPU jobs",
        nodes: &[100, 500, 1000, 5000],
        per_node: 8,
        pods_sweep: Some((1000, &[2, 4, 8])),
        smallest: 2,
        policy: || policy::only(Action::Reclaim),
        describe: large,
        check: half_is_taken,
        between: None,
        metric: Metric::Time,
        targets: &[(1000, 25.0), (5000, 150.0)],
        kai: Kai {
            rate: None,
            times: &[(100, 440.0), (500, 5930.0), (1000, 26_700.0)],
            exponent: Some(2.17),
            note: "",
        },
    };
    let many = Shape {
        name: "reclaim-many",
        title: "ReclaimManySingleGPU: 8 N jobs take the place of 8 N others, full cycle",
        nodes: &[50, 100, 200, 1000, 5000],
        policy: policy::standard,
        describe: many,
        check: all_is_taken,
        targets: &[(200, 12.0), (5000, 500.0)],
        kai: Kai { rate: None, times: &[(50, 730.0), (100, 2850.0), (200, 11_700.0)], exponent: Some(2.0), note: "" },
        ..large
    };
    let hopeless = Shape {
        name: "reclaim-hopeless",
        title: "ReclaimUnschedulableDistributed: a gang of 10 nodes, one GPU too few may be taken",
        nodes: &[100, 500, 1000, 5000],
        smallest: GANG,
        describe: |size, world| refused(size, Obstacle::Quota, world),
        check: |size, cluster, plan| nothing_is_taken(size, cluster, plan),
        targets: &[(100, 5.0), (1000, 60.0)],
        kai: Kai {
            rate: None,
            times: &[(10, 50.0), (50, 2280.0), (100, 13_100.0)],
            exponent: Some(2.5),
            note: "not practical at 1,000",
        },
        ..large
    };
    let apart = Shape {
        name: "reclaim-hopeless-apart",
        title: "the same with room enough, but 10 pods must be in 10 racks and there are 9",
        describe: |size, world| refused(size, Obstacle::AntiAffinity, world),
        kai: Kai { rate: None, times: &[], exponent: None, note: "not measured" },
        ..hopeless
    };
    let together = Shape {
        name: "reclaim-hopeless-together",
        title: "the same with room enough, but 10 nodes must be in one rack and racks have 8 or 9",
        describe: |size, world| refused(size, Obstacle::Topology, world),
        ..apart
    };
    vec![large, many, hopeless, apart, together]
}

/// Nodes full of one-GPU jobs of one queue: job `i` on node `i mod N`.
fn full(size: Size, world: &mut World<'_>) {
    for number in 0..size.nodes * size.per_node {
        world.job(&Job::new(&format!("running-{number:06}"), "queue-0").on(number % size.nodes));
    }
}

fn queues(world: &mut World<'_>, first: u32, second: u32) {
    world.queue("all", None, unlimited());
    world.queue("queue-0", Some("all"), quota(first, 0)).queue("queue-1", Some("all"), quota(second, 0));
}

fn large(size: Size, world: &mut World<'_>) {
    world.nodes(size.nodes, size.per_node, |_, _| {});
    queues(world, 0, size.nodes * size.per_node);
    full(size, world);
    world.job(&Job::new("large", "queue-1").gang(size.nodes / 2).asking(Gpus::Whole(size.per_node)));
}

fn many(size: Size, world: &mut World<'_>) {
    world.nodes(size.nodes, size.per_node, |_, _| {});
    queues(world, 0, size.nodes * size.per_node);
    full(size, world);
    for number in 0..size.nodes * size.per_node {
        world.job(&Job::new(&format!("pending-{number:06}"), "queue-1"));
    }
}

/// Why a gang can never be satisfied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// The victims' queue may lose one GPU less than the gang needs.
    Quota,
    /// Its pods keep away from each other, and there is one rack too few.
    AntiAffinity,
    /// It must be in one rack, and racks are too small.
    Topology,
}

fn refused(size: Size, obstacle: Obstacle, world: &mut World<'_>) {
    let racks = match obstacle {
        Obstacle::Quota => 1,
        Obstacle::AntiAffinity => GANG - 1,
        // KAI has 12 racks for 100 nodes; more nodes are more racks, so that none is large enough.
        Obstacle::Topology => (size.nodes * 12).div_ceil(100).max(2),
    };
    if obstacle == Obstacle::Topology {
        world.topology();
    }
    world.nodes(size.nodes, size.per_node, |number, node| {
        if racks > 1 {
            node.labels.insert(RACK.into(), format!("rack-{:04}", number % racks));
        }
    });
    let wanted = GANG * size.per_node;
    let kept = size.nodes * size.per_node - wanted + u32::from(obstacle == Obstacle::Quota);
    queues(world, kept, wanted);
    full(size, world);
    let mut job = Job::new("hopeless", "queue-1").gang(GANG).asking(Gpus::Whole(size.per_node));
    match obstacle {
        Obstacle::Quota => {}
        Obstacle::AntiAffinity => {
            job.pod.labels.insert("job".into(), "hopeless".into());
            job.pod.constraints.pod_anti_affinity = vec![PodTerm {
                selector: Some(Selector {
                    expressions: vec![Expression {
                        key: "job".into(),
                        operator: Operator::In,
                        values: vec!["hopeless".into()],
                    }],
                }),
                namespaces: Some(vec!["queue-1".into()]),
                topology_key: RACK.into(),
            }];
        }
        Obstacle::Topology => {
            let required = Some(RACK.into());
            job.group.topology = Some(TopologyConstraint { topology: TOPOLOGY.into(), required, preferred: None });
        }
    }
    world.job(&job);
}

fn half_is_taken(size: Size, _: &Cluster, plan: &Plan) -> Result<(), String> {
    let gang = size.nodes / 2;
    Tally { pipelines: gang, evictions: gang * size.per_node, ..Tally::default() }.expect(plan)?;
    let nodes: BTreeSet<_> = pipelined(plan).collect();
    let all_apart = nodes.len() == gang as usize;
    if all_apart { Ok(()) } else { Err(format!("{gang} pods that need a node each got {} nodes", nodes.len())) }
}

fn all_is_taken(size: Size, _: &Cluster, plan: &Plan) -> Result<(), String> {
    let jobs = size.nodes * size.per_node;
    Tally { pipelines: jobs, evictions: jobs, ..Tally::default() }.expect(plan)
}

fn nothing_is_taken(_: Size, cluster: &Cluster, plan: &Plan) -> Result<(), String> {
    Tally::default().expect(plan)?;
    let told = plan.reasons.iter().any(|refusal| cluster.group_key(refusal.group) == "queue-1/hopeless");
    if told { Ok(()) } else { Err("the plan has no reason for the gang that waits".into()) }
}

fn pipelined(plan: &Plan) -> impl Iterator<Item = kai_core::ids::NodeId> {
    plan.decisions.iter().filter_map(|decision| match decision {
        Decision::Pipeline(placed) => Some(placed.node),
        _ => None,
    })
}
