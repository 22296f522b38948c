//! What the node itself must be.

use super::{World, expression, labels, node, pod, taint};
use crate::{
    delta::{Constraints, Operator, TaintEffect, Term, Toleration, VolumeNeed},
    plan::NodeRefusal,
};

fn terms(terms: &[&[(&str, Operator, &[&str])]]) -> Vec<Term> {
    let labels = |term: &[(&str, Operator, &[&str])]| term.iter().map(|(k, o, v)| expression(k, *o, v)).collect();
    terms.iter().map(|term| Term { labels: labels(term), names: Vec::new() }).collect()
}

fn named(operator: Operator, names: &[&str]) -> Term {
    Term { labels: Vec::new(), names: vec![expression("metadata.name", operator, names)] }
}

fn affinity(node_affinity: Option<Vec<Term>>) -> Constraints {
    Constraints { node_affinity, ..Constraints::default() }
}

/// The nodes of a small cluster that do.
fn fitting(constraints: Constraints) -> Vec<&'static str> {
    let nodes = [
        node("a", &[("zone", "east"), ("cores", "8")]),
        node("b", &[("zone", "west"), ("cores", "64")]),
        node("c", &[("cores", "many")]),
    ];
    let world = World::new(nodes, [pod("p", &[], constraints)]);
    let fits = |name: &&str| match world.check_node("p", name) {
        Ok(()) => true,
        Err(refusal) => {
            assert_eq!(refusal, NodeRefusal::NodeAffinity);
            false
        }
    };
    ["a", "b", "c"].into_iter().filter(fits).collect()
}

#[test]
fn without_constraints_every_node_does() {
    assert_eq!(fitting(Constraints::default()), ["a", "b", "c"]);
}

#[test]
fn a_node_selector_wants_all_its_labels() {
    let selector = |pairs| Constraints { node_selector: labels(pairs), ..Constraints::default() };
    assert_eq!(fitting(selector(&[("zone", "east")])), ["a"]);
    assert_eq!(fitting(selector(&[("zone", "east"), ("cores", "64")])), [""; 0]);
}

#[test]
fn terms_of_node_affinity_are_alternatives_and_their_expressions_are_not() {
    let east: &[(&str, Operator, &[&str])] = &[("zone", Operator::In, &["east"])];
    let west_and_small: &[(&str, Operator, &[&str])] =
        &[("zone", Operator::In, &["west"]), ("cores", Operator::In, &["8"])];
    assert_eq!(fitting(affinity(Some(terms(&[east, west_and_small])))), ["a"]);
    assert_eq!(fitting(affinity(Some(terms(&[east, &[("cores", Operator::In, &["many"])]])))), ["a", "c"]);
}

#[test]
fn each_operator_compares_as_in_kubernetes() {
    let one =
        |operator, values: &'static [&'static str]| fitting(affinity(Some(terms(&[&[("zone", operator, values)]]))));
    assert_eq!(one(Operator::In, &["east", "north"]), ["a"]);
    assert_eq!(one(Operator::NotIn, &["east"]), ["b", "c"], "a node without the label is not in the zone");
    assert_eq!(one(Operator::Exists, &[]), ["a", "b"]);
    assert_eq!(one(Operator::DoesNotExist, &[]), ["c"]);
    let cores = |operator, value: &'static str| fitting(affinity(Some(terms(&[&[("cores", operator, &[value])]]))));
    assert_eq!(cores(Operator::Gt, "8"), ["b"], "as numbers, and `many` is none");
    assert_eq!(cores(Operator::Lt, "64"), ["a"]);
}

#[test]
fn an_expression_that_cannot_be_read_matches_nothing() {
    for (operator, values) in [
        (Operator::In, &[][..]),
        (Operator::NotIn, &[]),
        (Operator::Exists, &["east"]),
        (Operator::Gt, &["1", "2"]),
        (Operator::Lt, &["ninety"]),
    ] {
        assert_eq!(
            fitting(affinity(Some(terms(&[&[("cores", operator, values)]])))),
            [""; 0],
            "{operator:?} {values:?}"
        );
    }
}

#[test]
fn an_empty_term_matches_no_node() {
    assert_eq!(fitting(affinity(Some(vec![Term::default()]))), [""; 0]);
    assert_eq!(fitting(affinity(Some(vec![Term::default(), named(Operator::In, &["b"])]))), ["b"]);
}

#[test]
fn a_term_can_name_nodes() {
    assert_eq!(fitting(affinity(Some(vec![named(Operator::In, &["b"])]))), ["b"]);
    assert_eq!(fitting(affinity(Some(vec![named(Operator::NotIn, &["b"])]))), ["a", "c"]);
    let both = Term { labels: vec![expression("zone", Operator::Exists, &[])], ..named(Operator::NotIn, &["b"]) };
    assert_eq!(fitting(affinity(Some(vec![both]))), ["a"]);
}

#[test]
fn a_taint_refuses_by_its_key_unless_tolerated() {
    let taints = vec![
        taint("soft", "", TaintEffect::PreferNoSchedule),
        taint("gpu", "yes", TaintEffect::NoSchedule),
        taint("draining", "", TaintEffect::NoExecute),
    ];
    let tainted = crate::delta::Node { taints, ..node("a", &[]) };
    let refusal = |tolerations: &[(Option<&str>, Option<&str>, Option<TaintEffect>)]| {
        let tolerations = tolerations.iter().map(|(key, value, effect)| Toleration {
            key: key.map(str::to_owned),
            value: value.map(str::to_owned),
            effect: *effect,
        });
        let constraints = Constraints { tolerations: tolerations.collect(), ..Constraints::default() };
        let world = World::new([tainted.clone()], [pod("p", &[], constraints)]);
        match world.check_node("p", "a") {
            Ok(()) => None,
            Err(NodeRefusal::Taint(key)) => Some(world.cluster.word(key).to_owned()),
            Err(other) => panic!("{other:?}"),
        }
    };
    assert_eq!(refusal(&[]).as_deref(), Some("gpu"));
    assert_eq!(refusal(&[(Some("gpu"), Some("yes"), None)]).as_deref(), Some("draining"));
    assert_eq!(refusal(&[(Some("gpu"), Some("no"), None)]).as_deref(), Some("gpu"), "the value differs");
    assert_eq!(
        refusal(&[(Some("gpu"), None, Some(TaintEffect::NoExecute))]).as_deref(),
        Some("gpu"),
        "the effect does"
    );
    assert_eq!(refusal(&[(Some("gpu"), None, None), (Some("draining"), Some(""), None)]), None);
    assert_eq!(refusal(&[(None, None, None)]), None, "a toleration without a key tolerates everything");
}

#[test]
fn a_volume_ties_the_pod_to_nodes_that_reach_it() {
    let east = Some(terms(&[&[("zone", Operator::In, &["east"])]]));
    let needs = [
        VolumeNeed::Bound { claim: "team/data".to_owned(), nodes: east.clone(), exclusive: false },
        VolumeNeed::Unbound { claim: "team/scratch".to_owned(), nodes: east },
    ];
    for (need, sentence) in needs.into_iter().zip([
        "the volume of claim `team/data` cannot be reached from the node",
        "no volume for claim `team/scratch` can be on the node",
    ]) {
        let constraints = Constraints { volumes: vec![need], ..Constraints::default() };
        let nodes = [node("a", &[("zone", "east")]), node("b", &[("zone", "west")])];
        let world = World::new(nodes, [pod("p", &[], constraints)]);
        assert_eq!(world.check_node("p", "a"), Ok(()));
        assert_eq!(world.check_node("p", "b"), Err(NodeRefusal::Volume(sentence.to_owned())));
    }
}

#[test]
fn a_volume_that_no_node_can_have_refuses_all_and_one_without_terms_none() {
    let check = |nodes| {
        let need = VolumeNeed::Unbound { claim: "team/data".to_owned(), nodes };
        let constraints = Constraints { volumes: vec![need], ..Constraints::default() };
        World::new([node("a", &[])], [pod("p", &[], constraints)]).check_node("p", "a").is_ok()
    };
    assert!(check(None));
    assert!(!check(Some(Vec::new())));
}

#[test]
fn a_missing_object_keeps_the_pod_off_every_node() {
    let missing = vec!["ConfigMap `team/a` does not exist".to_owned(), "ConfigMap `team/b` does not exist".to_owned()];
    let world = World::new(
        [],
        [pod("p", &[], Constraints { missing, ..Constraints::default() }), pod("q", &[], Constraints::default())],
    );
    assert_eq!(world.constraints("p").everywhere(), Some("ConfigMap `team/a` does not exist"));
    assert_eq!(world.constraints("q").everywhere(), None);
}
