//! What random clusters found, each as small as it gets.

use kai_core::{
    Cluster,
    amounts::GPU,
    delta::{Delta, Gpus, Node, Pod, PodGroup, Queue},
    policy::Strategy,
    time::Time,
};
use kai_invariants::{
    Facts, check_all, loops,
    sample::{NOW, group, node, pod, policy, queue, running},
};

fn facts(nodes: Vec<Node>, queues: Vec<Queue>, groups: Vec<PodGroup>, pods: Vec<Pod>) -> Facts {
    let mut facts = Facts::default();
    nodes.into_iter().for_each(|node| facts.apply(&Delta::Node(Box::new(node))));
    queues.into_iter().for_each(|queue| facts.apply(&Delta::Queue(Box::new(queue))));
    groups.into_iter().for_each(|group| facts.apply(&Delta::PodGroup(Box::new(group))));
    pods.into_iter().for_each(|pod| facts.apply(&Delta::Pod(Box::new(pod))));
    facts
}

/// Plans once and expects nothing wrong.
fn expect_sound(facts: &Facts) {
    let mut cluster = Cluster::new();
    facts.deltas().into_iter().for_each(|delta| cluster.apply(delta));
    let plan = kai_core::plan(&mut cluster, NOW, &policy());
    let violations = check_all(facts, &cluster, &plan, &policy(), NOW);
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

const HALF: Gpus = Gpus::Portion { devices: 1, millionths: 500_000 };

#[test]
fn a_pod_is_not_bound_to_a_device_that_is_only_promised() {
    // The only GPU is being released: both halves of it can be promised, neither can be bound.
    let leaving = Pod { deleted: Some(Time(NOW.0 - 5_000)), ..running(pod("old", "a/old", Gpus::Whole(1)), "n", &[]) };
    expect_sound(&facts(
        vec![node("n", 1)],
        vec![queue("q", None, 1)],
        vec![group("a/old", "q"), group("a/new", "q")],
        vec![leaving, pod("new-0", "a/new", HALF), pod("new-1", "a/new", HALF)],
    ));
}

#[test]
fn a_group_that_never_had_its_turn_is_not_placed() {
    // Groups of an inner queue run on both nodes. Nothing of it can be placed anew, so nothing can be moved.
    let waiting = Pod { uid: "wide".to_owned(), ..pod("wide", "a/wide", Gpus::Whole(2)) };
    expect_sound(&facts(
        vec![node("n0", 2), node("n1", 2)],
        vec![queue("inner", None, 4), queue("leaf", Some("inner"), 2)],
        vec![group("a/one", "inner"), group("a/two", "inner"), group("a/wide", "leaf")],
        vec![
            running(pod("one", "a/one", Gpus::Whole(1)), "n0", &[]),
            running(pod("two", "a/two", Gpus::Whole(1)), "n1", &[]),
            waiting,
        ],
    ));
}

#[test]
fn nobody_is_placed_where_a_missing_object_keeps_it_waiting() {
    // A victim in an inner queue must not make consolidation place a group that can be nowhere.
    let mut waiting = pod("needs-settings", "a/waiting", Gpus::Whole(1));
    waiting.constraints.missing.push("config map `settings` does not exist".to_owned());
    let limited = |name: &str, parent: Option<&str>| {
        let mut queue = queue(name, parent, 0);
        queue.gpu.limit = Some(GPU);
        queue
    };
    expect_sound(&facts(
        vec![node("n0", 2), node("n1", 0)],
        vec![limited("inner", None), limited("leaf", Some("inner"))],
        vec![group("a/runs", "inner"), group("a/waiting", "leaf")],
        vec![running(pod("runs", "a/runs", Gpus::None), "n0", &[]), waiting],
    ));
}

#[test]
fn what_preempt_makes_room_for_is_placed_once_the_room_is_there() {
    // While `low` leaves, the small pod of `high` goes where it fits now and the large one to where `low` was. Once `low` is gone the small
    // one prefers the emptier node and the large one finds no place: `low` comes back, and so on for ever.
    let mut spread = policy();
    spread.gpu_strategy = Strategy::Spread;
    (spread.plugins.gpu_pack, spread.plugins.gpu_spread) = (false, true);
    let lasting = PodGroup { preemptible: false, ..group("a/lasting", "q") };
    let high = PodGroup { priority: 75, min_member: Some(2), ..group("a/high", "q") };
    let facts = facts(
        vec![node("n0", 2), node("n1", 2)],
        vec![queue("q", None, 4)],
        vec![lasting, group("a/low", "q"), high],
        vec![
            running(pod("lasting", "a/lasting", Gpus::Whole(1)), "n1", &[]),
            running(pod("low", "a/low", Gpus::Whole(2)), "n0", &[]),
            pod("high-0", "a/high", Gpus::Whole(1)),
            pod("high-1", "a/high", Gpus::Whole(2)),
        ],
    );
    let violations = loops::check(&facts, &spread, NOW, &kai_core::plan);
    assert_eq!(violations, vec![]);
}

#[test]
fn a_pod_whose_queue_cannot_be_used_is_not_moved() {
    // The queue of `lost` has no parent any more: what replaces its pod would wait for ever.
    let lasting = PodGroup { preemptible: false, ..group("a/lasting", "q") };
    expect_sound(&facts(
        vec![node("n0", 2), node("n1", 2)],
        vec![queue("q", None, 4), queue("lost", Some("nowhere"), 4)],
        vec![group("a/lost", "lost"), lasting, group("a/wide", "q")],
        vec![
            running(pod("lost", "a/lost", Gpus::Whole(1)), "n0", &[]),
            running(pod("lasting", "a/lasting", Gpus::Whole(1)), "n1", &[]),
            pod("wide", "a/wide", Gpus::Whole(2)),
        ],
    ));
}

#[test]
fn a_waiting_pod_of_a_victim_is_told_why_it_waits() {
    // `give` has one pod running and one waiting. When the running one is taken, the waiting one may not vanish from the plan.
    let limited = |name: &str, limit: i64| {
        let mut queue = queue(name, None, 1);
        queue.gpu.limit = Some(limit * GPU);
        queue
    };
    let mut give = group("a/give", "left");
    give.min_member = Some(0);
    let big = PodGroup { min_member: Some(2), ..group("a/big", "right") };
    expect_sound(&facts(
        vec![node("n0", 1), node("n1", 2), node("n2", 2)],
        vec![limited("left", 2), limited("right", 1)],
        vec![big, give, group("a/second", "left"), group("a/third", "right")],
        vec![
            running(pod("big-0", "a/big", Gpus::Whole(2)), "n1", &[]),
            running(pod("big-1", "a/big", Gpus::Whole(2)), "n2", &[]),
            pod("give-0", "a/give", Gpus::Whole(1)),
            running(pod("give-1", "a/give", Gpus::Whole(1)), "n0", &[]),
            pod("second", "a/second", Gpus::Whole(1)),
            pod("third", "a/third", HALF),
        ],
    ));
}

#[test]
fn two_queues_do_not_take_turns_for_ever() {
    // `gang` is reclaimed for `many`, comes back first in the next cycle, and is reclaimed again.
    let mut spread = policy();
    spread.gpu_strategy = Strategy::Spread;
    (spread.plugins.gpu_pack, spread.plugins.gpu_spread) = (false, true);
    let limited = |name: &str, parent: Option<&str>, quota: i64, limit: i64| {
        let mut queue = queue(name, parent, quota);
        queue.gpu.limit = Some(limit * GPU);
        queue
    };
    let gang = PodGroup { min_member: Some(2), ..group("a/gang", "right") };
    let wide = PodGroup { priority: 75, ..group("a/wide", "leaf") };
    let many = PodGroup { priority: 75, ..group("b/many", "leaf") };
    let middle = Queue { priority: 101, ..limited("middle", Some("left"), 0, 2) };
    let leaf = Queue { priority: 101, ..limited("leaf", Some("middle"), 0, 2) };
    let third = Queue { priority: 101, ..limited("third", None, 2, 3) };
    let facts = facts(
        vec![node("n0", 1), node("n1", 1), node("n2", 2), node("n3", 3)],
        vec![limited("left", None, 2, 2), limited("right", None, 1, 3), middle, leaf, third],
        vec![gang, wide, many, group("a/others", "third")],
        vec![
            running(pod("gang-0", "a/gang", Gpus::Whole(1)), "n0", &[]),
            running(pod("gang-1", "a/gang", Gpus::Whole(2)), "n2", &[]),
            pod("gang-2", "a/gang", Gpus::Whole(1)),
            pod("gang-3", "a/gang", Gpus::Whole(2)),
            pod("wide", "a/wide", Gpus::Whole(2)),
            running(pod("many-0", "b/many", Gpus::Whole(1)), "n3", &[]),
            pod("many-1", "b/many", Gpus::Whole(1)),
            pod("many-2", "b/many", Gpus::Whole(1)),
            pod("many-3", "b/many", Gpus::Whole(1)),
            running(pod("others-0", "a/others", Gpus::Whole(1)), "n1", &[]),
            running(pod("others-1", "a/others", Gpus::Whole(2)), "n3", &[]),
        ],
    );
    assert_eq!(loops::check(&facts, &spread, NOW, &kai_core::plan), vec![]);
}
