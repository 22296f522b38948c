//! The invariants about rules between pods see a plan that breaks them, and let one pass that does not.

use kai_core::{
    delta::{
        Constraints, Expression, Gpus, HostPort, Operator, PodTerm, Selector, SpreadConstraint, WhenUnsatisfiable,
    },
    policy::Action,
};
use kai_invariants::sample::{group, node, pod, queue, running};

use crate::broken_plans::{Stage, set};

/// Two nodes of two GPUs each in one zone, a pod of `app` = x that runs on the first, and one that waits with some constraints.
fn beside(constraints: Constraints) -> Stage {
    let mut nodes = vec![node("n0", 2), node("n1", 2)];
    for node in &mut nodes {
        node.labels.insert("host".to_owned(), node.name.clone());
        node.labels.insert("zone".to_owned(), "z".to_owned());
    }
    let mut old = running(pod("old", "a/old", Gpus::Whole(1)), "n0", &[]);
    old.constraints.host_ports = vec![port("")];
    let mut new = pod("new", "a/new", Gpus::Whole(1));
    new.constraints = constraints;
    for pod in [&mut old, &mut new] {
        pod.labels.insert("app".to_owned(), "x".to_owned());
    }
    let mut winner = group("a/new", "q");
    winner.priority = 75;
    Stage::new(nodes, vec![queue("q", None, 8)], vec![group("a/old", "q"), winner], vec![old, new])
}

fn port(address: &str) -> HostPort {
    HostPort { port: 80, protocol: String::new(), address: address.to_owned() }
}

fn selector() -> Selector {
    let values = vec!["x".to_owned()];
    Selector { expressions: vec![Expression { key: "app".to_owned(), operator: Operator::In, values }] }
}

fn away(topology_key: &str) -> Constraints {
    let term = PodTerm { selector: Some(selector()), namespaces: None, topology_key: topology_key.to_owned() };
    Constraints { pod_anti_affinity: vec![term], ..Constraints::default() }
}

#[test]
fn pods_that_must_be_apart_are_not_put_together() {
    let apart = set(&["pods are kept apart that must be"]);
    let bound = |stage: Stage, node: &str| stage.bind("new", node, &[]).started("a/new").broken();
    assert_eq!(bound(beside(away("host")), "n0"), apart);
    assert_eq!(bound(beside(away("host")), "n1"), set(&[]));
    assert_eq!(bound(beside(away("zone")), "n1"), apart, "the domain is what counts");
    assert_eq!(bound(beside(away("rack")), "n0"), set(&[]), "no node has the label");
}

#[test]
fn who_is_evicted_is_in_nobodys_way() {
    let stage = beside(away("zone")).evict(Action::Preempt, "old", Some("a/new"), false);
    assert_eq!(stage.pipeline("new", "n0", &[]).broken(), set(&[]));
}

#[test]
fn a_port_is_not_given_out_twice() {
    let asking = |address: &str| Constraints { host_ports: vec![port(address)], ..Constraints::default() };
    let taken = set(&["a port of a node has one owner"]);
    let bound = |stage: Stage, node: &str| stage.bind("new", node, &[]).started("a/new").broken();
    assert_eq!(bound(beside(asking("")), "n0"), taken);
    assert_eq!(bound(beside(asking("10.0.0.1")), "n0"), taken, "the other has every address");
    assert_eq!(bound(beside(asking("")), "n1"), set(&[]));
}

#[test]
fn the_spread_stays_even() {
    let rule = SpreadConstraint {
        max_skew: 1,
        topology_key: "host".to_owned(),
        when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule,
        selector: Some(selector()),
        min_domains: None,
        honor_node_affinity: true,
        honor_taints: false,
    };
    let spread = || Constraints { spread: vec![rule.clone()], ..Constraints::default() };
    let bound = |stage: Stage, node: &str| stage.bind("new", node, &[]).started("a/new").broken();
    assert_eq!(bound(beside(spread()), "n0"), set(&["the spread of pods stays even"]));
    assert_eq!(bound(beside(spread()), "n1"), set(&[]));
}
