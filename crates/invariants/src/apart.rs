//! Pods that keep others away, and pods that keep away from others, are not placed in one domain.
//!
//! Source: kai-core.md §3.12 (inter-pod anti-affinity, both ways). What was together before the plan may stay together.

use crate::{
    Cycle, Violation,
    neighbours::{Neighbour, neighbours, share_a_domain, speaks_of},
};

/// Pairs that the plan brings together though one of them must be away from the other.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    if !cycle.policy.plugins.predicates {
        return violations;
    }
    let all = neighbours(cycle);
    for one in &all {
        for other in all.iter().filter(|other| other.pod.uid != one.pod.uid && (one.new || other.new)) {
            if let Some(key) = broken_term(one, other) {
                violations.push(Violation {
                    invariant: "pods are kept apart that must be",
                    object: one.pod.uid.clone(),
                    what: format!(
                        "must be away from `{}` by `{key}`, but is on node `{}` and that on `{}`",
                        other.pod.uid, one.node.name, other.node.name
                    ),
                });
            }
        }
    }
    violations
}

/// The label of the term by which the one must not be where the other is.
fn broken_term<'a>(one: &Neighbour<'a>, other: &Neighbour<'_>) -> Option<&'a str> {
    let terms = one.pod.constraints.pod_anti_affinity.iter();
    let mut broken =
        terms.filter(|term| speaks_of(term, other.pod) && share_a_domain(one.node, other.node, &term.topology_key));
    broken.next().map(|term| term.topology_key.as_str())
}
