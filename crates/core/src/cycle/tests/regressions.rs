//! What the slow twins have found: each case as small as it could be made, under the name of what users would have seen.

use super::{NOW, cluster, group, node, pod, policy, queue, running, told};
use crate::{
    amounts::GPU,
    cycle::plan,
    delta::{self, Delta, Gpus, MigStrategy},
    policy::{Action, Policy, Strategy},
    time::Time,
};

fn nodes(nodes: impl IntoIterator<Item = delta::Node>) -> Vec<Delta> {
    nodes.into_iter().map(|node| Delta::Node(Box::new(node))).collect()
}

/// A group of queue `q` with its pods.
fn workload(key: &str, min: u32, pods: impl IntoIterator<Item = delta::Pod>) -> Vec<Delta> {
    let mut deltas = vec![Delta::PodGroup(Box::new(group(key, "q", min)))];
    deltas.extend(pods.into_iter().map(|pod| Delta::Pod(Box::new(pod))));
    deltas
}

/// The decisions about a cluster with an unlimited queue `q`.
fn decide(policy: &Policy, deltas: impl IntoIterator<Item = Vec<Delta>>) -> Vec<String> {
    decide_among(policy, [queue("q", None)], deltas)
}

/// The decisions about a cluster with these queues.
fn decide_among(
    policy: &Policy,
    queues: impl IntoIterator<Item = delta::Queue>,
    deltas: impl IntoIterator<Item = Vec<Delta>>,
) -> Vec<String> {
    let queues = queues.into_iter().map(|queue| Delta::Queue(Box::new(queue)));
    let mut cluster = cluster(deltas.into_iter().flatten().chain(queues));
    let plan = plan(&mut cluster, NOW, policy);
    let mut decided = told(&cluster, &plan);
    decided.retain(|told| !told.starts_with("started"));
    decided
}

fn half() -> Gpus {
    Gpus::Portion { devices: 1, millionths: 500_000 }
}

fn leaving(pod: delta::Pod) -> delta::Pod {
    delta::Pod { deleted: Some(NOW), ..pod }
}

#[test]
fn a_shared_gpu_is_opened_only_when_its_reservation_has_a_pod_slot_too() {
    let full = delta::Node { pods: 2, ..node("n", 1) };
    let decided = decide(
        &policy(&[Action::Allocate]),
        [
            nodes([full]),
            workload("old", 1, [leaving(running(pod("old", "old", Gpus::None), "n", &[]))]),
            workload("new", 1, [pod("new", "new", half())]),
        ],
    );
    assert_eq!(decided, ["promise new on n [\"new-0\"]"]);
}

#[test]
fn a_shared_gpu_is_not_named_like_one_that_others_share_on_another_node() {
    // `p` was to open a device on `full`, where `guest` joined it; then `p` had to go elsewhere, and `guest` stayed.
    let most = Gpus::Portion { devices: 1, millionths: 900_000 };
    let guest = running(pod("guest", "guest", most), "full", &["p-0".to_owned()]);
    let decided = decide(
        &policy(&[Action::Allocate]),
        [
            nodes([node("full", 1), node("free", 1)]),
            workload("guest", 1, [guest]),
            workload("p", 1, [pod("p", "p", half())]),
        ],
    );
    assert_eq!(decided, ["bind p on free [\"p-1\"]"]);
}

#[test]
fn spreading_over_gpus_opens_none_whose_reservation_has_no_pod_slot() {
    let mut spread = policy(&[Action::Allocate]);
    (spread.plugins.gpu_pack, spread.plugins.gpu_spread) = (false, true);
    let decided = decide(
        &spread,
        [
            nodes([delta::Node { pods: 2, ..node("n", 2) }]),
            workload("old", 1, [running(pod("old", "old", half()), "n", &["shared".to_owned()])]),
            workload("new", 1, [pod("new", "new", half())]),
        ],
    );
    assert_eq!(decided, ["bind new on n [\"shared\"]"]);
}

#[test]
fn nobody_is_bound_to_a_shared_gpu_that_is_only_promised_and_still_held_by_others() {
    let first = delta::Pod { created: Time(1), ..pod("a", "a", half()) };
    let decided = decide(
        &policy(&[Action::Allocate]),
        [
            nodes([node("n", 1)]),
            workload("old", 1, [leaving(running(pod("old", "old", Gpus::Whole(1)), "n", &[]))]),
            workload("a", 1, [first]),
            workload("b", 1, [pod("b", "b", half())]),
        ],
    );
    assert_eq!(decided, ["promise a on n [\"a-0\"]", "promise b on n [\"a-0\"]"]);
}

#[test]
fn mig_pods_are_packed_where_whole_gpus_are_before_nodes_that_have_none() {
    let mut mixed = node("a", 0);
    mixed.gpus.mig = MigStrategy::Mixed;
    let mut any = node("b", 1);
    any.gpus.mig = MigStrategy::Any;
    for node in [&mut mixed, &mut any] {
        node.extended.insert("nvidia.com/mig-1g.5gb".to_owned(), 1);
    }
    let mut asks = pod("p", "p", Gpus::None);
    asks.request.extended.insert("nvidia.com/mig-1g.5gb".to_owned(), 1);
    let decided = decide(&policy(&[Action::Allocate]), [nodes([mixed, any]), workload("p", 1, [asks])]);
    assert_eq!(decided, ["bind p on b"]);
}

#[test]
fn memory_that_takes_less_of_a_larger_gpu_makes_room_by_moving() {
    let large = |name| {
        let mut built = node(name, 1);
        built.gpus.memory = Some(32);
        built
    };
    let memory = || Gpus::Memory { devices: 1, mib: 12 };
    let at = |uid: &str, node: &str, device: &str| running(pod(uid, uid, memory()), node, &[device.to_owned()]);
    let decided = decide(
        &policy(&[Action::Consolidation]),
        [
            nodes([node("small", 1), large("large")]),
            workload("a", 1, [at("a", "small", "s")]),
            workload("b", 1, [at("b", "large", "l")]),
            workload("new", 1, [pod("new", "new", Gpus::Whole(1))]),
        ],
    );
    assert_eq!(
        decided,
        ["move a by Consolidation for Some(\"new\")", "promise new on small", "promise a on large [\"l\"]",]
    );
}

#[test]
fn a_gang_that_asks_for_thirds_of_a_gpu_by_memory_is_not_refused_for_rounding() {
    let third = || Gpus::Memory { devices: 1, mib: 4 };
    let of_twelve = |name| {
        let mut built = node(name, 1);
        built.gpus.memory = Some(12);
        built
    };
    let gang = ["x", "y", "z"].map(|uid| pod(uid, "gang", third()));
    let at = |uid: &str, node: &str| running(pod(uid, uid, half()), node, &[format!("{node}-d")]);
    let decided = decide(
        &policy(&[Action::Consolidation]),
        [
            nodes([of_twelve("a"), of_twelve("b")]),
            workload("one", 1, [at("one", "a")]),
            workload("two", 1, [at("two", "b")]),
            workload("gang", 3, gang),
        ],
    );
    assert!(decided.iter().any(|told| told.starts_with("promise x")), "{decided:?}");
}

#[test]
fn one_pod_is_taken_where_one_opens_the_second_shared_gpu() {
    let share = |uid: &str, group: &str, device: &str| running(pod(uid, group, half()), "n", &[device.to_owned()]);
    let high = delta::PodGroup { priority: 100, ..group("new", "q", 1) };
    let two = Gpus::Portion { devices: 2, millionths: 600_000 };
    let decided = decide(
        &policy(&[Action::Preempt]),
        [
            nodes([node("n", 3)]),
            workload("old", 0, [share("old-0", "old", "d0"), share("old-1", "old", "d0"), share("old-2", "old", "d1")]),
            workload("gone", 1, [leaving(share("gone-0", "gone", "d1")), leaving(share("gone-1", "gone", "d2"))]),
            vec![Delta::PodGroup(Box::new(high)), Delta::Pod(Box::new(pod("new", "new", two)))],
        ],
    );
    assert_eq!(decided, ["evict old-2 by Preempt for Some(\"new\")", "promise new on n [\"new-0\", \"new-1\"]",]);
}

#[test]
fn one_move_is_found_where_only_one_is_allowed_and_many_pods_could_move() {
    let mut one_move = policy(&[Action::Consolidation]);
    one_move.max_consolidation_victims = Some(1);
    let zone = |node: delta::Node| delta::Node { labels: [("zone".to_owned(), "a".to_owned())].into(), ..node };
    let mut new = pod("new", "new", Gpus::Whole(1));
    new.constraints.node_selector.insert("zone".to_owned(), "a".to_owned());
    let crowd = (0..10).map(|number| running(pod(&format!("crowd-{number}"), "crowd", Gpus::Whole(1)), "c", &[]));
    let decided = decide(
        &one_move,
        [
            nodes([zone(node("a", 3)), node("b", 1), node("c", 10)]),
            workload("wide", 1, [running(pod("wide", "wide", Gpus::Whole(2)), "a", &[])]),
            workload("mover", 1, [running(pod("mover", "mover", Gpus::Whole(1)), "a", &[])]),
            workload("crowd", 0, crowd),
            workload("new", 1, [new]),
        ],
    );
    let expected = ["move mover by Consolidation for Some(\"new\")", "promise new on a", "promise mover on b"];
    assert_eq!(decided, expected);
}

#[test]
fn a_limit_that_does_not_count_keeps_nobody_from_making_room() {
    let mut no_limits = policy(&[Action::Consolidation]);
    no_limits.plugins.proportion = false;
    let mut limited = queue("q", None);
    limited.gpu.limit = Some(GPU);
    let old = |uid: &str, node: &str| running(pod(uid, uid, Gpus::Whole(1)), node, &[]);
    let decided = decide_among(
        &no_limits,
        [limited],
        [
            nodes([node("a", 2), node("b", 2)]),
            workload("left", 1, [old("left", "a")]),
            workload("right", 1, [old("right", "b")]),
            workload("new", 1, [pod("new", "new", Gpus::Whole(2))]),
        ],
    );
    assert_eq!(decided.len(), 3, "one moves, and both have their place: {decided:?}");
}

#[test]
fn a_pod_that_was_moved_for_a_gang_that_keeps_it_away_does_not_stay_beside_it() {
    let rack = |name: &str, gpus: u32, rack: &str| {
        let mut built = node(name, gpus);
        built.labels.insert("rack".to_owned(), rack.to_owned());
        built
    };
    let mut old = running(pod("old-0", "old", Gpus::Whole(1)), "left", &[]);
    old.labels.insert("app".to_owned(), "old".to_owned());
    let values = vec!["old".to_owned()];
    let expressions = vec![delta::Expression { key: "app".to_owned(), operator: delta::Operator::In, values }];
    let away = delta::PodTerm {
        selector: Some(delta::Selector { expressions }),
        namespaces: None,
        topology_key: "rack".to_owned(),
    };
    let gang = ["new-0", "new-1", "new-2"].map(|uid| {
        let mut built = pod(uid, "new", Gpus::Whole(1));
        built.constraints.pod_anti_affinity.push(away.clone());
        built
    });
    let served_first = delta::PodGroup { priority: 75, ..group("old", "q", 1) };
    let decided = decide(
        &policy(&[Action::Allocate, Action::Consolidation]),
        [
            nodes([rack("left", 4, "l"), rack("right", 2, "r")]),
            vec![Delta::PodGroup(Box::new(served_first)), Delta::Pod(Box::new(old))],
            workload("new", 3, gang),
        ],
    );
    // The fourth GPU of its node is free, but the gang would not have it there.
    assert_eq!(
        decided,
        [
            "move old-0 by Consolidation for Some(\"new\")",
            "promise new-0 on left",
            "promise new-1 on left",
            "promise new-2 on left",
            "promise old-0 on right",
        ]
    );
}

#[test]
fn who_takes_back_what_the_same_cycle_gave_to_another_is_bound_at_once_and_does_not_wait_for_ever() {
    let one = |name: &str, queue: &str, pod: delta::Pod| {
        [Delta::PodGroup(Box::new(group(name, queue, 1))), Delta::Pod(Box::new(pod))]
    };
    let queues = [queue("loose", Some(0)), queue("owner", Some(2))].map(|queue| Delta::Queue(Box::new(queue)));
    let old = leaving(running(pod("old-0", "old", Gpus::Whole(2)), "n", &[]));
    let deltas = nodes([node("n", 2)]).into_iter().chain(queues).chain(one("old", "loose", old));
    let mut cluster = cluster(deltas.chain(one("early", "loose", pod("early-0", "early", Gpus::Whole(2)))));
    let policy = policy(&[Action::Allocate, Action::Reclaim]);
    let promised = plan(&mut cluster, NOW, &policy);
    assert_eq!(told(&cluster, &promised), ["promise early-0 on n"]);
    cluster.apply(Delta::PodGone("old-0".to_owned()));
    for delta in one("rightful", "owner", pod("rightful-0", "rightful", Gpus::Whole(2))) {
        cluster.apply(delta);
    }
    // The promise is kept first, then the owner of the GPUs takes them back: nobody has to leave for that.
    let plan = plan(&mut cluster, NOW, &policy);
    assert_eq!(told(&cluster, &plan), ["bind rightful-0 on n", "started rightful"]);
}

#[test]
fn no_more_pods_move_than_would_if_others_were_asked_too() {
    let one = |name: &str, queue: &str, pods: Vec<delta::Pod>| {
        let mut deltas = vec![Delta::PodGroup(Box::new(group(name, queue, 0)))];
        deltas.extend(pods.into_iter().map(|pod| Delta::Pod(Box::new(pod))));
        deltas
    };
    let below = |name: &str, parent: &str| delta::Queue { parent: Some(parent.to_owned()), ..queue(name, None) };
    let part = |uid: &str, group: &str, node: &str, device: &str| {
        running(pod(uid, group, half()), node, &[format!("{node}-{device}")])
    };
    let mut spread = policy(&[Action::Allocate, Action::Consolidation]);
    spread.gpu_strategy = Strategy::Spread;
    let decided = decide_among(
        &spread,
        [queue("poor", Some(0)), queue("rich", None), below("p", "poor"), below("r", "rich"), below("w", "poor")],
        [
            nodes([node("left", 3), node("right", 3)]),
            one("first", "p", vec![part("first", "first", "left", "a")]),
            one("second", "p", vec![running(pod("second", "second", Gpus::Whole(1)), "right", &[])]),
            one("third", "r", vec![part("third-0", "third", "left", "a"), part("third-1", "third", "left", "b")]),
            vec![
                Delta::PodGroup(Box::new(delta::PodGroup { preemptible: false, ..group("fixed", "r", 0) })),
                Delta::Pod(Box::new(part("fixed", "fixed", "right", "a"))),
            ],
            one("new", "w", vec![pod("new", "new", Gpus::Whole(2))]),
        ],
    );
    // If only pods on the left were asked, `first` and `third-1` would have to go.
    let expected = ["move second by Consolidation for Some(\"new\")", "promise new on right", "promise second on left"];
    assert_eq!(decided, expected);
}

#[test]
fn a_gang_is_not_evicted_where_one_pod_less_and_a_move_do() {
    let young = delta::PodGroup { created: Time(1), ..group("young", "loose", 1) };
    let gang = ["gang-0", "gang-1", "gang-2"].map(|uid| running(pod(uid, "gang", Gpus::Whole(1)), "large", &[]));
    let gang = gang.map(|pod| Delta::Pod(Box::new(pod)));
    let decided = decide_among(
        &policy(&[Action::Allocate, Action::Reclaim]),
        [queue("loose", Some(0)), queue("q", None)],
        [
            nodes([node("small", 1), node("large", 4)]),
            vec![
                Delta::PodGroup(Box::new(young)),
                Delta::Pod(Box::new(running(pod("young", "young", Gpus::Whole(1)), "small", &[]))),
                Delta::PodGroup(Box::new(group("gang", "loose", 3))),
            ],
            gang.into(),
            workload("new", 1, [pod("new", "new", Gpus::Whole(2))]),
        ],
    );
    assert_eq!(
        decided,
        [
            "evict young by Reclaim for Some(\"new\")",
            "move gang-2 by Reclaim for Some(\"new\")",
            "promise new on large",
            "promise gang-2 on small",
        ]
    );
}

#[test]
fn a_pod_by_memory_moves_to_a_larger_gpu_where_its_queue_is_at_its_limit_and_does_not_stay_beyond_it() {
    let mut limited = queue("q", None);
    limited.gpu.limit = Some(3 * GPU / 2);
    let mut small = node("small", 1);
    small.gpus.memory = Some(12);
    let old = running(pod("old", "old", Gpus::Memory { devices: 1, mib: 10 }), "small", &["small-0".to_owned()]);
    let most = Gpus::Portion { devices: 1, millionths: 800_000 };
    let decided = decide_among(
        &policy(&[Action::Allocate, Action::Consolidation]),
        [limited],
        [nodes([small, node("large", 2)]), workload("old", 1, [old]), workload("new", 1, [pod("new", "new", most)])],
    );
    // 10 of 12 MiB and 0.8 GPUs are more than 1.5 GPUs, 10 of 16 MiB and 0.8 are not.
    assert_eq!(
        decided,
        [
            "move old by Consolidation for Some(\"new\")",
            "promise new on large [\"new-0\"]",
            "promise old on large [\"old-0\"]",
        ]
    );
}
