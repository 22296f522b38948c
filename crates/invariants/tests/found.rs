//! What random clusters found, each as small as it gets.

use kai_core::{
    Cluster,
    amounts::GPU,
    delta::{Delta, Gpus, Node, Pod, PodGroup, Queue},
    time::Time,
};
use kai_invariants::{
    Facts, check_all,
    sample::{NOW, group, node, pod, policy, queue, running},
};

/// Plans once and expects nothing wrong.
fn expect_sound(nodes: Vec<Node>, queues: Vec<Queue>, groups: Vec<PodGroup>, pods: Vec<Pod>) {
    let mut deltas: Vec<Delta> = nodes.into_iter().map(|node| Delta::Node(Box::new(node))).collect();
    deltas.extend(queues.into_iter().map(|queue| Delta::Queue(Box::new(queue))));
    deltas.extend(groups.into_iter().map(|group| Delta::PodGroup(Box::new(group))));
    deltas.extend(pods.into_iter().map(|pod| Delta::Pod(Box::new(pod))));
    let (mut facts, mut cluster) = (Facts::default(), Cluster::new());
    for delta in deltas {
        facts.apply(&delta);
        cluster.apply(delta);
    }
    let plan = kai_core::plan(&mut cluster, NOW, &policy());
    let violations = check_all(&facts, &cluster, &plan, &policy(), NOW);
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

const HALF: Gpus = Gpus::Portion { devices: 1, millionths: 500_000 };

#[test]
fn a_pod_is_not_bound_to_a_device_that_is_only_promised() {
    // The only GPU is being released: both halves of it can be promised, neither can be bound.
    let leaving = Pod { deleted: Some(Time(NOW.0 - 5_000)), ..running(pod("old", "a/old", Gpus::Whole(1)), "n", &[]) };
    expect_sound(
        vec![node("n", 1)],
        vec![queue("q", None, 1)],
        vec![group("a/old", "q"), group("a/new", "q")],
        vec![leaving, pod("new-0", "a/new", HALF), pod("new-1", "a/new", HALF)],
    );
}

#[test]
fn a_group_that_never_had_its_turn_is_not_placed() {
    // Groups of an inner queue run on both nodes. Nothing of it can be placed anew, so nothing can be moved.
    let waiting = Pod { uid: "wide".to_owned(), ..pod("wide", "a/wide", Gpus::Whole(2)) };
    expect_sound(
        vec![node("n0", 2), node("n1", 2)],
        vec![queue("inner", None, 4), queue("leaf", Some("inner"), 2)],
        vec![group("a/one", "inner"), group("a/two", "inner"), group("a/wide", "leaf")],
        vec![
            running(pod("one", "a/one", Gpus::Whole(1)), "n0", &[]),
            running(pod("two", "a/two", Gpus::Whole(1)), "n1", &[]),
            waiting,
        ],
    );
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
    expect_sound(
        vec![node("n0", 2), node("n1", 0)],
        vec![limited("inner", None), limited("leaf", Some("inner"))],
        vec![group("a/runs", "inner"), group("a/waiting", "leaf")],
        vec![running(pod("runs", "a/runs", Gpus::None), "n0", &[]), waiting],
    );
}
