//! Making room by moving: 64 GPUs are idle and a gang of 8 pods with 8 GPUs each wants them, but no node is empty.
//!
//! Eight nodes run five one-GPU pods each and forty nodes have one idle GPU. Whoever else runs is either too large to go anywhere else, so
//! that forty moves are the only way, or as small as the rest, so that there are many ways and forty moves are the shortest.

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
    let one_way = Shape {
        name: "consolidation",
        title: "a gang of 8x8 GPUs needs 40 moves: only the pods of 8 nodes can move, no limit of groups",
        nodes: &[250, 1000, 4000],
        per_node: GPUS,
        pods_sweep: None,
        smallest: 50,
        policy: || Policy { max_consolidation_victims: None, ..policy::standard() },
        describe: |size, world| scattered(size, true, world),
        check: |_, cluster, plan| {
            Tally { pipelines: SPARSE + HOLES, evictions: HOLES, moved: HOLES, binds: 0 }.expect(plan)?;
            gang_has_nodes(cluster, plan)
        },
        between: None,
        metric: Metric::Time,
        targets: &[(1000, 100.0)],
        kai: Kai::UNKNOWN,
    };
    let many_ways = Shape {
        name: "consolidation-choice",
        title: "the same where every pod could move: 40 moves do, 64 are the most that help",
        describe: |size, world| scattered(size, false, world),
        check: |_, cluster, plan| {
            let found = Tally::of(plan);
            let all_moved = found.moved == found.evictions && found.pipelines == SPARSE + found.moved;
            if !all_moved || found.binds > 0 || !(HOLES..=SPARSE * GPUS).contains(&found.moved) {
                return Err(format!("expected the gang and 40 to 64 moves, got {found}"));
            }
            gang_has_nodes(cluster, plan)
        },
        targets: &[],
        ..one_way
    };
    vec![one_way, many_ways]
}

/// What a node runs: GPUs in use.
fn load(node: u32, nodes: u32) -> u32 {
    // Both kinds are spread over the cluster, so that neither names nor ages lead to them.
    let step = nodes / (SPARSE + HOLES);
    let place = node.is_multiple_of(step).then_some(node / step).filter(|place| *place < SPARSE + HOLES);
    match place {
        Some(place) if place % 6 == 3 => LEFT,
        Some(_) => GPUS - 1,
        None => GPUS,
    }
}

fn scattered(size: Size, one_way: bool, world: &mut World<'_>) {
    let nodes = size.nodes;
    world.nodes(nodes, GPUS, |_, _| {});
    world.queue("all", None, unlimited()).queue("team", Some("all"), quota(nodes * GPUS, 1));
    for node in 0..nodes {
        let load = load(node, nodes);
        if one_way && load > LEFT {
            world.job(&Job::new(&format!("large-{node:05}"), "team").asking(Gpus::Whole(load)).on(node));
        } else {
            for pod in 0..load {
                world.job(&Job::new(&format!("running-{node:05}-{pod}"), "team").on(node));
            }
        }
    }
    world.job(&Job::new("wide", "team").gang(SPARSE).asking(Gpus::Whole(GPUS)));
}

fn gang_has_nodes(cluster: &Cluster, plan: &Plan) -> Result<(), String> {
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
