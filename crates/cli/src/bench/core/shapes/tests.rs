//! The shapes are what their titles say.

use std::collections::{BTreeMap, BTreeSet};

use kai_core::delta::{Delta, Gpus, Phase};

use super::*;

/// What a shape's deltas amount to.
#[derive(Default)]
struct Census {
    nodes: u32,
    queues: BTreeSet<String>,
    groups: BTreeMap<String, u32>,
    uids: BTreeSet<String>,
    running: BTreeMap<String, u32>,
    pending: u32,
    pods: u32,
}

fn census(shape: &Shape, size: Size) -> Census {
    let mut census = Census::default();
    let mut members: BTreeMap<String, u32> = BTreeMap::new();
    (shape.describe)(
        size,
        &mut World::new(&mut |delta| match delta {
            Delta::Node(_) => census.nodes += 1,
            Delta::Queue(queue) => assert!(census.queues.insert(queue.name.clone()), "queue `{}` twice", queue.name),
            Delta::PodGroup(group) => {
                assert!(members.insert(group.key.clone(), 0).is_none(), "group `{}` twice", group.key);
                census.groups.insert(group.key, group.min_member.unwrap_or(1));
            }
            Delta::Pod(pod) => {
                assert!(census.uids.insert(pod.uid.clone()), "pod `{}` twice", pod.uid);
                census.pods += 1;
                if let Some(group) = &pod.group {
                    *members.get_mut(group).expect("a group comes before its pods") += 1;
                }
                match (pod.phase, &pod.placement) {
                    (Phase::Running, Some(placement)) => {
                        let gpus = if let Gpus::Whole(gpus) = pod.request.gpus { gpus } else { 0 };
                        *census.running.entry(placement.node.clone()).or_default() += gpus;
                    }
                    (Phase::Pending, None) => census.pending += 1,
                    other => panic!("a pod that neither runs nor waits: {other:?}"),
                }
            }
            _ => {}
        }),
    );
    census
}

fn shape(name: &str) -> Shape {
    all().into_iter().find(|shape| shape.name == name).unwrap_or_else(|| panic!("no shape `{name}`"))
}

fn size(shape: &Shape, nodes: u32) -> Size {
    Size { nodes, per_node: shape.per_node }
}

#[test]
fn names_of_shapes_differ_and_every_target_is_measured() {
    let shapes = all();
    let names: BTreeSet<_> = shapes.iter().map(|shape| shape.name).collect();
    assert_eq!(names.len(), shapes.len());
    for shape in shapes {
        let sizes = shape.sizes(None, false);
        for (nodes, _) in shape.targets {
            assert!(sizes.contains(&size(&shape, *nodes)), "{} at {nodes}", shape.name);
        }
        let grown = sizes.iter().filter(|size| size.per_node == shape.per_node).count();
        assert!(grown >= 3, "{}: growth needs three sizes", shape.name);
    }
}

#[test]
fn asked_sizes_replace_the_usual_ones_and_targets_stay_unless_told_otherwise() {
    let shape = shape("reclaim-large");
    let nodes = |sizes: Vec<Size>| -> BTreeSet<u32> { sizes.into_iter().map(|size| size.nodes).collect() };
    assert_eq!(nodes(shape.sizes(Some(&[50]), true)), [50].into());
    assert_eq!(nodes(shape.sizes(Some(&[50]), false)), [50, 1000, 5000].into());
    assert_eq!(nodes(shape.sizes(Some(&[1]), true)), [].into(), "too small for the shape");
}

#[test]
fn no_node_runs_more_than_it_has() {
    for shape in all() {
        let nodes = shape.smallest.max(120);
        let census = census(&shape, size(&shape, nodes));
        assert_eq!(census.nodes, nodes, "{}", shape.name);
        let most = census.running.values().max().copied().unwrap_or(0);
        assert!(most <= 8, "{}: {most} GPUs in use on a node", shape.name);
    }
}

#[test]
fn jobs_to_place_fill_the_cluster() {
    let single = census(&shape("allocate"), Size { nodes: 100, per_node: 8 });
    assert_eq!((single.pending, single.groups.len(), single.queues.len()), (800, 800, 7));
    let gangs = census(&shape("gangs"), Size { nodes: 104, per_node: 8 });
    assert_eq!((gangs.pending, gangs.groups.len()), (832, 13));
    assert!(gangs.groups.values().all(|min| *min == 64));
    // Six racks of 16 nodes hold two gangs each, the last 8 nodes one.
    let racks = census(&shape("gangs-in-racks"), Size { nodes: 104, per_node: 8 });
    assert_eq!(racks.groups.len(), 13);
    // The last 4 nodes hold none.
    let racks = census(&shape("gangs-in-racks"), Size { nodes: 100, per_node: 8 });
    assert_eq!(racks.groups.len(), 12);
    let halves = census(&shape("fractions"), Size { nodes: 100, per_node: 16 });
    assert_eq!(halves.pending, 1600);
}

#[test]
fn reclaim_shapes_are_kais() {
    let large = census(&shape("reclaim-large"), Size { nodes: 100, per_node: 8 });
    assert_eq!((large.pods, large.pending), (850, 50));
    assert_eq!(large.groups["queue-1/large"], 50);
    assert!(large.running.values().all(|gpus| *gpus == 8) && large.running.len() == 100);
    let many = census(&shape("reclaim-many"), Size { nodes: 50, per_node: 8 });
    assert_eq!((many.pods, many.pending), (800, 400));
    for name in ["reclaim-hopeless", "reclaim-hopeless-apart", "reclaim-hopeless-together"] {
        let hopeless = census(&shape(name), Size { nodes: 100, per_node: 8 });
        assert_eq!((hopeless.pods, hopeless.pending), (810, 10), "{name}");
    }
}

#[test]
fn racks_are_too_few_or_too_small_for_the_hopeless_gang() {
    for (name, nodes) in
        [("reclaim-hopeless-apart", 1000), ("reclaim-hopeless-together", 100), ("reclaim-hopeless-together", 1000)]
    {
        let mut racks: BTreeMap<String, u32> = BTreeMap::new();
        let shape = shape(name);
        (shape.describe)(
            size(&shape, nodes),
            &mut World::new(&mut |delta| {
                if let Delta::Node(node) = delta {
                    *racks.entry(node.labels[crate::bench::core::world::RACK].clone()).or_default() += 1;
                }
            }),
        );
        let largest = racks.values().max().copied().unwrap_or(0);
        let hopeless = if name.ends_with("apart") { racks.len() == 9 } else { largest < 10 };
        assert!(hopeless, "{name}: {} racks, the largest of {largest} nodes", racks.len());
    }
    let twelve = |nodes: u32| (nodes * 12).div_ceil(100);
    assert_eq!(twelve(100), 12, "KAI's own size has KAI's own number of racks");
}

#[test]
fn the_quiet_cluster_is_full_and_twenty_groups_wait() {
    let quiet = census(&shape("quiet"), Size { nodes: 5000, per_node: 28 });
    assert_eq!(quiet.pods - quiet.pending, 140_000);
    let running: u32 = quiet.running.values().sum();
    assert_eq!(running, 8 * 4996, "four nodes are tainted");
    let waiting: u32 = 1 + 64 + 1 + 1 + 1 + 1 + 2 + 2 + 1 + 4 + 1 + 1 + 2 + 2 + 1 + 1 + 1 + 1 + 1 + 10;
    assert_eq!(quiet.pending, waiting);
}

#[test]
fn pods_pass_through_the_quiet_cluster_without_piling_up() {
    let shape = shape("quiet");
    let between = shape.between.expect("it is planned again and again");
    let mut present: BTreeSet<String> = BTreeSet::new();
    for round in 0..5 {
        between(
            size(&shape, 200),
            round,
            &mut World::new(&mut |delta| match delta {
                Delta::Pod(pod) => assert!(present.insert(pod.uid)),
                Delta::PodGone(uid) => assert!(present.remove(&uid), "`{uid}` goes but never came"),
                _ => {}
            }),
        );
        assert_eq!(present.len(), 10);
    }
}

#[test]
fn a_wrong_plan_is_told_from_a_right_one() {
    for shape in all() {
        let size = size(&shape, shape.smallest.max(120));
        let (cluster, _) = crate::bench::core::measure::build(&shape, size);
        let told = (shape.check)(size, &cluster, &Plan::default());
        assert!(told.is_err(), "{}: an empty plan passes", shape.name);
    }
}
