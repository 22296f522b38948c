//! What random clusters found, each as small as it gets.

use kai_core::{
    Cluster,
    amounts::GPU,
    delta::{Delta, Gpus, Node, Pod, PodGroup, Queue},
    policy::{Policy, Strategy},
    time::Time,
};
use kai_invariants::{
    Facts, check_all, loops,
    sample::{NOW, group, node, pod, policy, queue, running, subgroup},
};

fn facts(nodes: Vec<Node>, queues: Vec<Queue>, groups: Vec<PodGroup>, pods: Vec<Pod>) -> Facts {
    let mut facts = Facts::default();
    for node in nodes {
        facts.apply(&Delta::Node(Box::new(node)));
    }
    for queue in queues {
        facts.apply(&Delta::Queue(Box::new(queue)));
    }
    for group in groups {
        facts.apply(&Delta::PodGroup(Box::new(group)));
    }
    for pod in pods {
        facts.apply(&Delta::Pod(Box::new(pod)));
    }
    facts
}

/// Plans once and expects nothing wrong.
fn expect_sound(facts: &Facts) {
    expect_sound_with(facts, &policy());
}

fn expect_sound_with(facts: &Facts, policy: &Policy) {
    let mut cluster = Cluster::new();
    for delta in facts.deltas() {
        cluster.apply(delta);
    }
    let plan = kai_core::plan(&mut cluster, NOW, policy);
    let violations = check_all(facts, &cluster, &plan, policy, NOW);
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

/// Pods and devices far apart.
fn spread() -> Policy {
    let mut spread = policy();
    spread.gpu_strategy = Strategy::Spread;
    (spread.plugins.gpu_pack, spread.plugins.gpu_spread) = (false, true);
    spread
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
    let violations = loops::check(&facts, &spread(), NOW, &kai_core::plan);
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
fn a_pod_that_was_just_bound_is_not_promised_another_place() {
    // `small` is bound beside `old-0`. When preempt then takes `old`, `small` must keep the place it was given or lose it in the plan.
    let high = PodGroup { priority: 75, ..group("a/high", "q") };
    let mut old = group("a/old", "q");
    old.min_member = Some(2);
    let mut limited = queue("q", None, 0);
    limited.gpu.limit = Some(3 * GPU);
    expect_sound(&facts(
        vec![node("n", 3)],
        vec![limited],
        vec![high, group("a/small", "q"), old],
        vec![
            pod("high", "a/high", Gpus::Whole(1)),
            pod("small", "a/small", HALF),
            running(pod("old-0", "a/old", HALF), "n", &["d0"]),
            running(pod("old-1", "a/old", Gpus::Whole(2)), "n", &[]),
        ],
    ));
}

#[test]
fn a_device_is_opened_only_if_its_reservation_has_a_slot() {
    // Three slots: one for the reservation of the first device, two for the pods. There is none to open a second device.
    let small = Node { pods: 3, ..node("n", 2) };
    let facts = facts(
        vec![small],
        vec![queue("q", None, 2)],
        vec![group("a/halves", "q")],
        vec![pod("half-0", "a/halves", HALF), pod("half-1", "a/halves", HALF)],
    );
    expect_sound_with(&facts, &spread());
}

#[test]
fn a_broken_gang_that_is_taken_is_not_placed_again_in_part() {
    // Of `gang` too few pods exist to be whole. When its running ones are taken, its waiting one alone must not get a place.
    let high = PodGroup { priority: 75, ..group("a/high", "q") };
    let mut gang = group("a/gang", "q");
    gang.subgroups = vec![subgroup("a", 2), subgroup("b", 2), subgroup("c", 1)];
    let member = |uid: &str, subgroup: &str, gpus: Gpus| {
        let subgroup = Some(subgroup.to_owned());
        Pod { subgroup, ..pod(uid, "a/gang", gpus) }
    };
    expect_sound(&facts(
        vec![node("n0", 1), node("n1", 1)],
        vec![queue("q", None, 1)],
        vec![high, gang],
        vec![
            pod("high", "a/high", Gpus::Whole(1)),
            running(member("gang-0", "a", HALF), "n0", &["d0"]),
            running(member("gang-1", "b", Gpus::Whole(1)), "n1", &[]),
            member("gang-2", "c", Gpus::Whole(1)),
        ],
    ));
}

#[test]
fn a_pod_whose_group_is_invalid_is_not_moved() {
    // What replaces a pod of an invalid group would wait for ever.
    let lasting = PodGroup { preemptible: false, ..group("a/lasting", "q") };
    let invalid = PodGroup { invalid: Some("spec: cannot be".to_owned()), ..group("a/invalid", "q") };
    expect_sound(&facts(
        vec![node("n0", 2), node("n1", 2)],
        vec![queue("q", None, 4)],
        vec![invalid, lasting, group("a/wide", "q")],
        vec![
            running(pod("invalid", "a/invalid", Gpus::Whole(1)), "n0", &[]),
            running(pod("lasting", "a/lasting", Gpus::Whole(1)), "n1", &[]),
            pod("wide", "a/wide", Gpus::Whole(2)),
        ],
    ));
}
