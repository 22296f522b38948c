//! Even spread over domains.

use super::{World, expression, node, pod, running, selector, taint};
use crate::{
    cluster::status::Status,
    delta::{Constraints, Delta, Node, Operator, Pod, SpreadConstraint, TaintEffect, Term, WhenUnsatisfiable},
    plan::NodeRefusal,
    time::Time,
};

fn over(topology_key: &str, max_skew: u32) -> SpreadConstraint {
    SpreadConstraint {
        max_skew,
        topology_key: topology_key.to_owned(),
        when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule,
        selector: Some(selector("app", "web")),
        min_domains: None,
        honor_node_affinity: true,
        honor_taints: false,
    }
}

fn spread(constraints: Vec<SpreadConstraint>) -> Constraints {
    Constraints { spread: constraints, ..Constraints::default() }
}

fn web(uid: &str, constraints: Constraints) -> Pod {
    pod(uid, &[("app", "web")], constraints)
}

fn zones() -> Vec<Node> {
    let zone = |name: &str, zone: &str| node(name, &[("zone", zone), ("host", name)]);
    vec![zone("a1", "a"), zone("a2", "a"), zone("b1", "b"), zone("c1", "c"), node("x", &[("host", "x")])]
}

/// Whether `a1`, `a2`, `b1`, `c1` and `x` keep the spread even.
fn even(world: &mut World, uid: &str) -> [bool; 5] {
    ["a1", "a2", "b1", "c1", "x"].map(|node| match world.check_pods(uid, node) {
        Ok(()) => true,
        Err(refusal) => {
            assert_eq!(refusal, NodeRefusal::Spread);
            false
        }
    })
}

fn placed(counts: &[(&str, usize)]) -> Vec<Pod> {
    let pods = counts.iter().flat_map(|(node, count)| (0..*count).map(move |index| (node, index)));
    pods.map(|(node, index)| running(web(&format!("{node}-{index}"), Constraints::default()), node)).collect()
}

#[test]
fn a_domain_may_be_ahead_by_the_skew_only() {
    let mut world = World::new(zones(), placed(&[("a1", 1), ("a2", 1), ("b1", 1)]));
    world.add(web("p", spread(vec![over("zone", 1)])));
    assert_eq!(even(&mut world, "p"), [false, false, false, true, false], "a node without the key never does");
    world.add(web("q", spread(vec![over("zone", 2)])));
    assert_eq!(even(&mut world, "q"), [false, false, true, true, false]);
    world.add(pod("stranger", &[], spread(vec![over("zone", 1)])));
    assert_eq!(even(&mut world, "stranger"), [false, false, true, true, false], "it does not count itself");
}

#[test]
fn too_few_domains_make_the_emptiest_count_as_empty() {
    let mut world = World::new(zones(), placed(&[("a1", 1), ("b1", 1), ("c1", 1)]));
    world.add(web("p", spread(vec![over("zone", 1)])));
    assert_eq!(even(&mut world, "p"), [true, true, true, true, false]);
    world.add(web("q", spread(vec![SpreadConstraint { min_domains: Some(4), ..over("zone", 1) }])));
    assert_eq!(even(&mut world, "q"), [false; 5]);
}

#[test]
fn nodes_outside_the_node_affinity_are_left_out_unless_told_otherwise() {
    let term = Term { labels: vec![expression("zone", Operator::NotIn, &["c"])], names: Vec::new() };
    let mut world = World::new(zones(), placed(&[("a1", 1), ("b1", 1)]));
    let with = |honor_node_affinity| Constraints {
        node_affinity: Some(vec![term.clone()]),
        ..spread(vec![SpreadConstraint { honor_node_affinity, ..over("zone", 1) }])
    };
    world.add(web("honors", with(true)));
    world.add(web("ignores", with(false)));
    assert_eq!(even(&mut world, "honors"), [true, true, true, true, false], "zone c is not counted as empty");
    assert_eq!(even(&mut world, "ignores"), [false, false, false, true, false]);
}

#[test]
fn tainted_nodes_are_left_out_if_told_so() {
    let mut nodes = zones();
    nodes[3].taints.push(taint("down", "", TaintEffect::NoSchedule));
    let mut world = World::new(nodes, placed(&[("a1", 1), ("b1", 1)]));
    let with = |honor_taints| spread(vec![SpreadConstraint { honor_taints, ..over("zone", 1) }]);
    world.add(web("honors", with(true)));
    world.add(web("ignores", with(false)));
    assert_eq!(even(&mut world, "honors")[..3], [true, true, true]);
    assert_eq!(even(&mut world, "ignores")[..3], [false, false, false]);
}

#[test]
fn all_constraints_hold_at_once_and_only_nodes_with_all_keys_count() {
    let mut nodes = zones();
    nodes.push(node("d1", &[("zone", "d")]));
    let mut world = World::new(nodes, placed(&[("a1", 1), ("b1", 1), ("c1", 1)]));
    world.add(web("p", spread(vec![over("zone", 1), over("host", 1)])));
    assert_eq!(even(&mut world, "p"), [false, true, false, false, false], "zone d has no host and is no empty domain");
}

#[test]
fn pods_that_leave_and_pods_of_other_namespaces_do_not_count() {
    let mut pods = placed(&[("a1", 2), ("b1", 1)]);
    pods[0].deleted = Some(Time(0));
    pods[1].namespace = "other".to_owned();
    let mut world = World::new(zones(), pods);
    world.add(web("p", spread(vec![over("zone", 1)])));
    assert_eq!(even(&mut world, "p"), [true, true, false, true, false]);
}

#[test]
fn placed_and_evicted_pods_of_this_cycle_are_seen() {
    let mut world = World::new(zones(), placed(&[("a1", 1), ("b1", 1)]));
    for uid in ["p", "q"] {
        world.add(web(uid, spread(vec![over("zone", 1)])));
    }
    assert_eq!(even(&mut world, "q"), [false, false, false, true, false]);
    let before = world.cluster.checkpoint();
    world.place("p", "c1", Status::Pipelined);
    assert_eq!(even(&mut world, "q"), [true, true, true, true, false]);
    let victim = world.pod("b1-0");
    world.cluster.evict(victim);
    assert_eq!(even(&mut world, "q"), [false, false, true, false, false]);
    world.cluster.rollback(before);
    assert_eq!(even(&mut world, "q"), [false, false, false, true, false]);
}

#[test]
fn a_new_zone_is_an_empty_domain() {
    let mut world = World::new(zones(), placed(&[("a1", 1), ("b1", 1), ("c1", 1)]));
    world.add(web("p", spread(vec![over("zone", 1)])));
    assert_eq!(even(&mut world, "p"), [true, true, true, true, false]);
    world.cluster.apply(Delta::Node(Box::new(node("d1", &[("zone", "d"), ("host", "d1")]))));
    assert_eq!(even(&mut world, "p"), [false; 5]);
    assert_eq!(world.check_pods("p", "d1"), Ok(()));
}

#[test]
fn an_empty_selector_counts_nobody() {
    let mut world = World::new(zones(), placed(&[("a1", 5)]));
    let empty = SpreadConstraint { selector: Some(crate::delta::Selector::default()), ..over("zone", 1) };
    world.add(web("p", spread(vec![empty])));
    assert_eq!(even(&mut world, "p"), [true, true, true, true, false]);
}

#[test]
fn a_spread_that_is_only_wished_refuses_nothing() {
    let mut world = World::new(zones(), placed(&[("a1", 5)]));
    let wish = SpreadConstraint { when_unsatisfiable: WhenUnsatisfiable::ScheduleAnyway, ..over("zone", 1) };
    world.add(web("p", spread(vec![wish])));
    assert_eq!(even(&mut world, "p"), [true; 5]);
    assert!(!world.constraints("p").is_dynamic());
    assert!(world.constraints("p").has_preferences());
}
