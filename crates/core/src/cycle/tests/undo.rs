//! Whatever a cycle did virtually is undone without a trace, and what is decided does not depend on what was decided before or on the order in
//! which objects arrived.

use proptest::prelude::*;

use super::{
    NOW, cases, cluster, told,
    world::{Size, World, any_world},
};
use crate::{
    cluster::{Cluster, pod::Place},
    cycle::{Cycle, plan},
    policy::{Action, Policy},
};

const SIZE: Size = Size { running: 6, waiting: (0, 3), choices: u32::MAX, growing: true };

const ACTIONS: [Action; 5] =
    [Action::Allocate, Action::Consolidation, Action::Reclaim, Action::Preempt, Action::StaleGangEviction];

/// Every ledger of a cluster, by name; lists without an order are sorted.
fn ledgers(cluster: &Cluster) -> Vec<String> {
    let place = |place: &Place| {
        let node = place.node.map(|node| cluster.node_name(node));
        let devices: Vec<&str> = place.devices.iter().map(|device| cluster.word(*device)).collect();
        format!("{:?} {node:?} {devices:?} {:?}", place.status, place.detail)
    };
    let sorted = |mut names: Vec<&str>| {
        names.sort_unstable();
        names.join(" ")
    };
    let mut lines = vec![format!("{} undone, {} leaving", cluster.checkpoint(), cluster.leaving.len())];
    for node in &cluster.nodes {
        let pods = sorted(node.pods.iter().map(|pod| cluster.pod_uid(*pod)).collect());
        let mut shared: Vec<String> = node
            .shared
            .iter()
            .map(|device| {
                let (name, counts) = (cluster.word(device.name), (device.used, device.leaving, device.promised));
                format!("{name} {counts:?} fresh {}", device.fresh)
            })
            .collect();
        shared.sort();
        let free = (&node.idle, &node.future, node.evictable_gpus, &node.foreign);
        lines.push(format!("node {}: {free:?} {} {shared:?} {pods}", node.name, node.legacy_mig));
    }
    for queue in &cluster.queues {
        let lists = [&queue.waiting_groups, &queue.running_groups]
            .map(|groups| sorted(groups.iter().map(|group| cluster.group_key(*group)).collect()));
        lines.push(format!("queue {}: {:?} {:?} {lists:?} {:?}", queue.name, queue.own, queue.sum, queue.fair_share));
    }
    for group in &cluster.groups {
        for podset in &group.podsets {
            let pods = sorted(podset.pods.iter().map(|pod| cluster.pod_uid(*pod)).collect());
            lines.push(format!("group {}: {:?} {pods}", group.key, podset.counts));
        }
    }
    for pod in &cluster.pods {
        lines.push(format!("pod {}: {} was {:?}", pod.uid, place(&pod.place), pod.fact));
    }
    lines.sort();
    lines
}

/// A cluster that was prepared for a cycle, and nothing else.
fn untouched(world: &World, policy: &Policy) -> Cluster {
    let mut fresh = cluster(world.deltas());
    Cycle::prepare(&mut fresh, NOW, policy);
    fresh
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn a_settled_cluster_is_as_if_nothing_had_been_planned(world in any_world(SIZE)) {
        let policy = world.policy(&ACTIONS);
        let mut planned = cluster(world.deltas());
        plan(&mut planned, NOW, &policy);
        planned.settle();
        prop_assert_eq!(ledgers(&planned), ledgers(&untouched(&world, &policy)));
    }

    #[test]
    fn the_same_story_is_decided_the_same(world in any_world(SIZE)) {
        let policy = world.policy(&ACTIONS);
        let (mut one, mut other) = (cluster(world.deltas()), cluster(world.deltas()));
        for _ in 0..2 {
            prop_assert_eq!(plan(&mut one, NOW, &policy), plan(&mut other, NOW, &policy));
        }
    }

    #[test]
    fn the_order_in_which_objects_arrive_does_not_matter(
        (world, deltas) in any_world(SIZE).prop_flat_map(|world| {
            let deltas = Just(world.deltas()).prop_shuffle();
            (Just(world), deltas)
        }),
    ) {
        let policy = world.policy(&ACTIONS);
        let mut one = cluster(world.deltas());
        let mut other = cluster(deltas);
        let (first, second) = (plan(&mut one, NOW, &policy), plan(&mut other, NOW, &policy));
        prop_assert_eq!(told(&one, &first), told(&other, &second));
        let waiting = |cluster: &Cluster, plan: &crate::plan::Plan| -> Vec<String> {
            plan.reasons.iter().map(|reason| cluster.group_key(reason.group).to_owned()).collect()
        };
        prop_assert_eq!(waiting(&one, &first), waiting(&other, &second));
    }
}

#[test]
fn random_clusters_see_every_action() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..200 {
        let Ok(tree) = any_world(SIZE).new_tree(&mut runner) else { continue };
        let world = tree.current();
        let mut cluster = cluster(world.deltas());
        let plan = plan(&mut cluster, NOW, &world.policy(&ACTIONS));
        for told in told(&cluster, &plan) {
            let verb = told.split(' ').next().unwrap_or_default().to_owned();
            let action = ACTIONS.into_iter().find(|action| told.contains(&format!("by {action:?}")));
            *seen.entry((verb, action)).or_insert(0) += 1;
        }
    }
    let count = |verb: &str, action| seen.get(&(verb.to_owned(), action)).copied().unwrap_or(0);
    let enough = count("bind", None) > 10
        && count("promise", None) > 10
        && count("evict", Some(Action::Reclaim)) > 10
        && count("evict", Some(Action::Preempt)) > 10
        && count("move", Some(Action::Consolidation)) > 2;
    assert!(enough, "{seen:?}");
}
