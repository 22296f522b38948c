//! Which node is better.

use super::{World, app, expression, node, pod, running, selector, taint};
use crate::{
    delta::{
        Constraints, Delta, Node, Operator, PodTerm, SpreadConstraint, TaintEffect, Term, Toleration, Weighted,
        WhenUnsatisfiable,
    },
    plan::NodeRefusal,
};

fn racks() -> Vec<Node> {
    ["a", "b", "c"].map(|rack| node(rack, &[("rack", rack)])).into()
}

fn wish(weight: i32, value: &str) -> Weighted<PodTerm> {
    Weighted { weight, item: app(value, "rack") }
}

fn wishes(preferred_pod_affinity: Vec<Weighted<PodTerm>>) -> Constraints {
    Constraints { preferred_pod_affinity, ..Constraints::default() }
}

fn scores(world: &mut World, uid: &str) -> [i64; 3] {
    ["a", "b", "c"].map(|node| world.preference(uid, node))
}

#[test]
fn without_wishes_all_nodes_are_alike() {
    let mut world = World::new(racks(), [pod("p", &[], Constraints::default())]);
    assert_eq!(scores(&mut world, "p"), [0; 3]);
    assert!(!world.census.minds_nodes(&world.cluster, world.pod("p")));
}

#[test]
fn each_neighbour_counts_with_its_weight_in_millions() {
    let web = |uid| pod(uid, &[("app", "web")], Constraints::default());
    let db = pod("db", &[("app", "db")], Constraints::default());
    let mut world = World::new(
        racks(),
        [
            running(web("one"), "a"),
            running(web("two"), "a"),
            running(db, "b"),
            pod("p", &[], wishes(vec![wish(5, "web"), wish(-3, "db")])),
        ],
    );
    assert_eq!(scores(&mut world, "p"), [10_000_000, -3_000_000, 0]);
}

#[test]
fn wishes_of_pods_that_are_there_count_too() {
    let fan = running(pod("fan", &[], wishes(vec![wish(7, "web"), wish(-1, "web")])), "c");
    let mut world = World::new(
        racks(),
        [
            fan,
            pod("web", &[("app", "web")], Constraints::default()),
            pod("db", &[("app", "db")], Constraints::default()),
        ],
    );
    assert_eq!(scores(&mut world, "web"), [0, 0, 6_000_000]);
    assert_eq!(scores(&mut world, "db"), [0; 3]);
    world.cluster.apply(Delta::PodGone("fan".to_owned()));
    assert_eq!(scores(&mut world, "web"), [0; 3]);
}

#[test]
fn required_affinity_of_pods_that_are_there_weighs_nothing() {
    let constraints = Constraints { pod_affinity: vec![app("web", "rack")], ..Constraints::default() };
    let fan = running(pod("fan", &[], constraints), "c");
    let mut world = World::new(racks(), [fan, pod("web", &[("app", "web")], Constraints::default())]);
    assert_eq!(scores(&mut world, "web"), [0; 3]);
}

#[test]
fn preferred_node_affinity_adds_its_weights() {
    let rack = |weight, rack| Weighted {
        weight,
        item: Term { labels: vec![expression("rack", Operator::In, &[rack])], names: Vec::new() },
    };
    let preferred_node_affinity =
        vec![rack(100, "a"), rack(1, "a"), rack(1, "b"), Weighted { weight: 50, item: Term::default() }];
    let constraints = Constraints { preferred_node_affinity, ..Constraints::default() };
    let mut world = World::new(racks(), [pod("p", &[], constraints)]);
    assert_eq!(scores(&mut world, "p"), [2_020, 20, 0], "an empty term prefers nothing");
}

#[test]
fn a_taint_that_discourages_costs_unless_tolerated() {
    let mut nodes = racks();
    nodes[1].taints.push(taint("old", "", TaintEffect::PreferNoSchedule));
    let toleration = Toleration { key: Some("old".to_owned()), value: None, effect: None };
    let tolerant = Constraints { tolerations: vec![toleration], ..Constraints::default() };
    let mut world = World::new(nodes, [pod("p", &[], Constraints::default()), pod("q", &[], tolerant)]);
    assert_eq!(scores(&mut world, "p"), [0, -2_000, 0]);
    assert_eq!(scores(&mut world, "q"), [0; 3]);
    assert_eq!(world.check_node("p", "b"), Ok::<(), NodeRefusal>(()));
    world.cluster.apply(Delta::Node(Box::new(node("b", &[("rack", "b")]))));
    assert_eq!(scores(&mut world, "p"), [0; 3]);
}

#[test]
fn a_wished_spread_prefers_domains_with_fewer_pods() {
    let constraint = SpreadConstraint {
        max_skew: 1,
        topology_key: "rack".to_owned(),
        when_unsatisfiable: WhenUnsatisfiable::ScheduleAnyway,
        selector: Some(selector("app", "web")),
        min_domains: None,
        honor_node_affinity: true,
        honor_taints: false,
    };
    let web = |uid, constraints| pod(uid, &[("app", "web")], constraints);
    let mut nodes = racks();
    nodes.push(node("x", &[]));
    let mut world = World::new(
        nodes,
        [
            running(web("one", Constraints::default()), "a"),
            running(web("two", Constraints::default()), "a"),
            running(web("three", Constraints::default()), "b"),
            web("p", Constraints { spread: vec![constraint], ..Constraints::default() }),
        ],
    );
    assert_eq!(scores(&mut world, "p"), [-400, -200, 0]);
    assert_eq!(world.preference("p", "x"), -600, "a node outside all domains is worse than the fullest");
}

#[test]
fn small_wishes_never_outweigh_one_point_between_pods() {
    let everything = Term { labels: vec![expression("rack", Operator::In, &["b"])], names: Vec::new() };
    let constraints = Constraints {
        preferred_node_affinity: vec![Weighted { weight: i32::MAX, item: everything }; 3],
        ..wishes(vec![wish(1, "web")])
    };
    let web = pod("web", &[("app", "web")], Constraints::default());
    let mut world = World::new(racks(), [running(web, "a"), pod("p", &[], constraints)]);
    let [near, wished, _] = scores(&mut world, "p");
    assert!(near > wished, "{near} {wished}");
}

#[test]
fn hostile_weights_do_not_overflow() {
    let many = (0..40).map(|index| {
        running(pod(&format!("web-{index}"), &[("app", "web")], wishes(vec![wish(i32::MIN, "web"); 40])), "a")
    });
    let mut world = World::new(racks(), many);
    world.add(pod("p", &[("app", "web")], wishes(vec![wish(i32::MIN, "web"); 40])));
    let [worst, _, best] = scores(&mut world, "p");
    assert!(worst < best && worst >= -(1 << 61));
}
