//! Making room by moving: 64 GPUs are idle and a gang of 8 pods with 8 GPUs each wants them, but no node is empty.
//!
//! Eight nodes run five pods each, forty nodes have one idle GPU, all others are full: forty moves and no fewer make eight nodes empty.

use std::collections::BTreeSet;

use kai_core::{
    Cluster,
    delta::Gpus,
    plan::{Decision, Plan},
    policy::Policy,
};

use super::{Kai, Metric, Shape, Tally};
use crate::bench::core::{
    policy,
    world::{Job, Size, World, quota, unlimited},
};

const GPUS: u32 = 8;
const SPARSE: u32 = 8;
const LEFT: u32 = 5;
const HOLES: u32 = 40;

pub fn shapes() -> Vec<Shape> {
    let groups = Shape {
        name: "consolidation",
        title: "a gang of 8x8 GPUs needs 40 moves: 8 groups of 5 pods, KAI's limit of 16 groups",
        nodes: &[250, 1000, 4000],
        per_node: GPUS,
        pods_sweep: None,
        smallest: 50,
        policy: policy::standard,
        describe: |size, world| scattered(size, LEFT, world),
        check: forty_moves,
        between: None,
        metric: Metric::Time,
        targets: &[(1000, 100.0)],
        kai: Kai::UNKNOWN,
    };
    let singles = Shape {
        name: "consolidation-singles",
        title: "the same with 40 jobs of one pod and no limit of groups",
        policy: || Policy { max_consolidation_victims: None, ..policy::standard() },
        describe: |size, world| scattered(size, 1, world),
        ..groups
    };
    vec![groups, singles]
}

/// What a node runs: pods on it.
fn load(node: u32, nodes: u32) -> u32 {
    // Both kinds are spread over the cluster, so that neither names nor ages lead to them.
    let step = nodes / (SPARSE + HOLES);
    let place = (node % step == 0).then_some(node / step).filter(|place| *place < SPARSE + HOLES);
    match place {
        Some(place) if place % 6 == 3 => LEFT,
        Some(_) => GPUS - 1,
        None => GPUS,
    }
}

fn scattered(size: Size, together: u32, world: &mut World<'_>) {
    let nodes = size.nodes;
    world.nodes(nodes, GPUS, |_, _| {});
    world.queue("all", None, unlimited()).queue("team", Some("all"), quota(nodes * GPUS, 1));
    for node in 0..nodes {
        let load = load(node, nodes);
        if load == LEFT && together == LEFT {
            world.job(&Job::new(&format!("sparse-{node:05}"), "team").gang(LEFT).on(node));
        } else {
            for pod in 0..load {
                world.job(&Job::new(&format!("running-{node:05}-{pod}"), "team").on(node));
            }
        }
    }
    world.job(&Job::new("wide", "team").gang(SPARSE).asking(Gpus::Whole(GPUS)));
}

fn forty_moves(_: Size, cluster: &Cluster, plan: &Plan) -> Result<(), String> {
    Tally { pipelines: SPARSE + HOLES, evictions: HOLES, moved: HOLES, binds: 0 }.expect(plan)?;
    let wide = cluster.group("team/wide");
    let gang: BTreeSet<_> = plan
        .decisions
        .iter()
        .filter_map(|decision| match decision {
            Decision::Pipeline(placed) if cluster.pods[placed.pod.index()].group == wide => Some(placed.node),
            _ => None,
        })
        .collect();
    if gang.len() == SPARSE as usize { Ok(()) } else { Err(format!("the gang got {} nodes of {SPARSE}", gang.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_as_much_is_idle_as_the_gang_wants() {
        for nodes in [50, 250, 1000, 4000] {
            let count = |wanted| (0..nodes).filter(|node| load(*node, nodes) == wanted).count();
            assert_eq!((count(LEFT), count(GPUS - 1)), (SPARSE as usize, HOLES as usize), "{nodes} nodes");
            let idle: u32 = (0..nodes).map(|node| GPUS - load(node, nodes)).sum();
            assert_eq!(idle, SPARSE * GPUS, "{nodes} nodes");
        }
    }
}
