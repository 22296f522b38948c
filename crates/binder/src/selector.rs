//! Whether labels and nodes are what a selector asks for, as Kubernetes judges it.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::ResourceExt;

/// Whether labels satisfy a selector; an empty one takes all.
pub(crate) fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let mut expressions = selector.match_expressions.iter().flatten();
    equal
        && expressions.all(|one| holds(&one.operator, labels.get(&one.key), one.values.as_deref().unwrap_or_default()))
}

/// Whether a node satisfies one of the terms.
pub(crate) fn allows(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| term_allows(term, node))
}

/// A term without requirements takes nothing.
fn term_allows(term: &NodeSelectorTerm, node: &Node) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let name = node.name_any();
    let requirement = |one: &NodeSelectorRequirement, value: Option<&String>| {
        holds(&one.operator, value, one.values.as_deref().unwrap_or_default())
    };
    (!labels.is_empty() || !fields.is_empty())
        && labels.iter().all(|one| requirement(one, node.labels().get(&one.key)))
        && fields.iter().all(|one| requirement(one, (one.key == "metadata.name").then_some(&name)))
}

fn holds(operator: &str, value: Option<&String>, values: &[String]) -> bool {
    let number = |text: &String| text.parse::<i64>().ok();
    let bound = || Some((value.and_then(number)?, values.first().and_then(number)?));
    match operator {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => bound().is_some_and(|(value, bound)| value > bound),
        "Lt" => bound().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}
