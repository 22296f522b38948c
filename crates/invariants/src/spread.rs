//! Pods with a hard spread constraint go where the spread stays even.
//!
//! Source: kai-core.md §3.12 (topology spread). The constraint binds the pod that comes, at the moment it comes: so placements are followed in
//! their order. Where the plan evicts, or a gang has subgroups, the order is not known and nothing is judged.

use std::collections::BTreeMap;

use kai_core::delta::{Node, Pod, SpreadConstraint, WhenUnsatisfiable};

use crate::{
    Cycle, Violation,
    cycle::Step,
    eligible::{is_tolerated, selects as selects_node},
    facts::standing::Standing,
    neighbours::selects,
};

/// Pods that were put where the spread becomes uneven.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let divided = |pod: &Pod| pod.subgroup.is_some();
    if !cycle.policy.plugins.predicates
        || !cycle.evictions.is_empty()
        || cycle.placements.values().any(|placing| divided(placing.pod))
    {
        return violations;
    }
    let stays = |pod: &&Pod| cycle.standing(pod) == Standing::Placed;
    let mut there: Vec<(&Pod, &str)> = cycle
        .facts
        .pods
        .values()
        .filter(stays)
        .filter_map(|pod| Some((pod, pod.placement.as_ref()?.node.as_str())))
        .collect();
    for step in &cycle.steps {
        let Step::Place(placing) = step else { continue };
        let hard = placing.pod.constraints.spread.iter();
        for constraint in hard.filter(|rule| rule.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule) {
            if let Some(what) = trouble(cycle, placing.pod, placing.node, constraint, &there) {
                let object = placing.pod.uid.clone();
                violations.push(Violation { invariant: "the spread of pods stays even", object, what });
            }
        }
        there.push((placing.pod, placing.node));
    }
    violations
}

fn trouble(
    cycle: &Cycle<'_>,
    pod: &Pod,
    node: &str,
    rule: &SpreadConstraint,
    there: &[(&Pod, &str)],
) -> Option<String> {
    let own = cycle.facts.nodes.get(node)?;
    let Some(domain) = own.labels.get(&rule.topology_key) else {
        return Some(format!("node `{node}` has no label `{}`", rule.topology_key));
    };
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    for node in cycle.facts.nodes.values().filter(|node| takes_part(pod, node, rule)) {
        counts.entry(node.labels.get(&rule.topology_key)?).or_default();
    }
    let counted = |other: &Pod| {
        let selector = rule.selector.as_ref().filter(|selector| !selector.expressions.is_empty());
        other.namespace == pod.namespace && selector.is_some_and(|selector| selects(selector, other))
    };
    for (_, node) in there.iter().filter(|(other, _)| counted(other)) {
        let node = cycle.facts.nodes.get(*node).filter(|node| takes_part(pod, node, rule));
        if let Some(count) = node.and_then(|node| counts.get_mut(node.labels.get(&rule.topology_key)?.as_str())) {
            *count += 1;
        }
    }
    let enough = counts.len() >= rule.min_domains.unwrap_or(1) as usize;
    let least = if enough { counts.values().copied().min().unwrap_or(0) } else { 0 };
    let with = counts.get(domain.as_str()).copied().unwrap_or(0) + i64::from(counted(pod));
    let skew = with - least;
    (skew > i64::from(rule.max_skew)).then(|| format!("{with} in `{domain}`, {least} elsewhere: {counts:?}"))
}

/// Whether a node's pods are counted for a rule of a pod.
fn takes_part(pod: &Pod, node: &Node, rule: &SpreadConstraint) -> bool {
    let hard = |other: &&SpreadConstraint| other.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule;
    pod.constraints.spread.iter().filter(hard).all(|other| node.labels.contains_key(&other.topology_key))
        && (!rule.honor_node_affinity || selects_node(&pod.constraints, node))
        && (!rule.honor_taints || is_tolerated(pod, node))
}
