//! Pods are placed only on nodes that take pods and that satisfy what the pod demands of a node.
//!
//! Source: kai-core.md §3.12 (conditions, selector, affinity, taints), §5.3 (memory of devices must be known), §5.6 (MIG rules).

use kai_core::delta::{Constraints, Expression, Gpus, MigStrategy, Node, Operator, Pod, TaintEffect, Term, Toleration};

use crate::{
    Cycle, Violation,
    facts::{gpu_memory, is_sane_node},
};

/// Placements on nodes that do not do.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for placing in cycle.placements.values() {
        let trouble = match cycle.facts.nodes.get(placing.node) {
            None => Some("does not exist".to_owned()),
            Some(node) => trouble_with(placing.pod, node, cycle.policy.plugins.predicates),
        };
        if let Some(trouble) = trouble {
            violations.push(Violation {
                invariant: "pods are placed only where they may be",
                object: placing.pod.uid.clone(),
                what: format!("node `{}` {trouble}", placing.node),
            });
        }
    }
    violations
}

fn trouble_with(pod: &Pod, node: &Node, predicates: bool) -> Option<String> {
    if !is_sane_node(node) {
        return Some("is described with amounts that cannot be".to_owned());
    }
    if let Some(trouble) = mig_trouble(pod, node) {
        return Some(trouble.to_owned());
    }
    if matches!(pod.request.gpus, Gpus::Memory { .. }) && gpu_memory(node).is_none() {
        return Some("has devices of unknown memory".to_owned());
    }
    if !predicates {
        return None;
    }
    if let Some(why) = node.unavailable.first() {
        return Some(format!("takes no pods: {why:?}"));
    }
    if let Some(missing) = pod.constraints.missing.first() {
        return Some(format!("cannot help: {missing}"));
    }
    if !selects(&pod.constraints, node) {
        return Some("does not match its selector or affinity".to_owned());
    }
    repelling_taint(pod, node).map(|taint| format!("has taint `{}`", taint.key))
}

/// Whether a pod tolerates every taint of a node that keeps pods away.
pub(crate) fn is_tolerated(pod: &Pod, node: &Node) -> bool {
    repelling_taint(pod, node).is_none()
}

fn repelling_taint<'a>(pod: &Pod, node: &'a Node) -> Option<&'a kai_core::delta::Taint> {
    node.taints.iter().find(|taint| {
        taint.effect != TaintEffect::PreferNoSchedule
            && !pod.constraints.tolerations.iter().any(|toleration| tolerates(toleration, taint))
    })
}

fn mig_trouble(pod: &Pod, node: &Node) -> Option<&'static str> {
    let profiles = pod.request.extended.keys().any(|name| name.starts_with("nvidia.com/mig-"));
    let asks = profiles || pod.request.gpus != Gpus::None;
    match node.gpus.mig {
        _ if pod.request.legacy_mig => Some("cannot help: a legacy MIG pod is never placed"),
        _ if !asks => None,
        MigStrategy::Off if profiles => Some("is no MIG node"),
        MigStrategy::Single if !matches!(pod.request.gpus, Gpus::Whole(_)) || profiles => Some("takes only whole GPUs"),
        MigStrategy::Mixed if !profiles => Some("takes only MIG profiles"),
        _ => None,
    }
}

pub(crate) fn selects(constraints: &Constraints, node: &Node) -> bool {
    let selector = constraints.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    let affinity = match constraints.node_affinity.as_deref() {
        None | Some([]) => true,
        Some(terms) => terms.iter().any(|term| matches(term, node)),
    };
    selector && affinity
}

fn matches(term: &Term, node: &Node) -> bool {
    let labels = term.labels.iter().all(|expression| holds(expression, node.labels.get(&expression.key)));
    let names = term.names.iter().all(|expression| holds(expression, Some(&node.name)));
    !(term.labels.is_empty() && term.names.is_empty()) && labels && names
}

pub(crate) fn holds(expression: &Expression, value: Option<&String>) -> bool {
    let number = |text: &String| text.parse::<i64>().ok();
    let bound = expression.values.first().and_then(number);
    match expression.operator {
        Operator::In => value.is_some_and(|value| expression.values.contains(value)),
        Operator::NotIn => value.is_none_or(|value| !expression.values.contains(value)),
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => value.and_then(number).zip(bound).is_some_and(|(value, bound)| value > bound),
        Operator::Lt => value.and_then(number).zip(bound).is_some_and(|(value, bound)| value < bound),
    }
}

fn tolerates(toleration: &Toleration, taint: &kai_core::delta::Taint) -> bool {
    toleration.key.as_ref().is_none_or(|key| *key == taint.key)
        && toleration.value.as_ref().is_none_or(|value| *value == taint.value)
        && toleration.effect.is_none_or(|effect| effect == taint.effect)
}
