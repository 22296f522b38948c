//! Pods of a subgroup with a required topology level are placed in one domain of it.
//!
//! Source: kai-core.md §6.2 and §6.3: domains are label values from the top; nodes outside the topology are no candidates; a subgroup that
//! already has pods stays in their domain.

use std::collections::BTreeSet;

use kai_core::delta::{Node, Pod, Topology};

use crate::{
    Cycle, Violation,
    facts::gang::{Gang, Part},
};

/// Subgroups that are spread over domains though they must not be.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    if !cycle.policy.plugins.topology {
        return violations;
    }
    for gang in cycle.gangs.values() {
        let parts = gang.root.iter().flat_map(|root| root.all());
        for part in parts {
            if let Some(what) = trouble(cycle, gang, part) {
                let object = format!("{} {}", gang.group.key, part.name);
                violations.push(Violation { invariant: "required topology levels are kept", object, what });
            }
        }
    }
    violations
}

fn trouble(cycle: &Cycle<'_>, gang: &Gang<'_>, part: &Part<'_>) -> Option<String> {
    let constraint = part.topology?;
    let required = constraint.required.as_ref()?;
    let pods = || part.podsets().into_iter().flat_map(|place| gang.podsets[place].pods.iter().copied());
    let placed: Vec<&Pod> = pods().filter(|pod| cycle.placements.contains_key(pod.uid.as_str())).collect();
    if placed.is_empty() {
        return None;
    }
    let Some(topology) = cycle.facts.topologies.get(&constraint.topology) else {
        return Some(format!("is placed, but topology `{}` does not exist", constraint.topology));
    };
    let is_level = |label: &String, alias: &Option<String>| label == required || alias.as_ref() == Some(required);
    let Some(depth) = topology.levels.iter().position(|level| is_level(&level.label, &level.alias)) else {
        return Some(format!("is placed, but topology `{}` has no level `{required}`", constraint.topology));
    };
    let domain = |node: &str| cycle.facts.nodes.get(node).and_then(|node| domain_of(node, topology, depth));
    let new: BTreeSet<Option<Vec<&str>>> =
        placed.iter().filter_map(|pod| cycle.placements.get(pod.uid.as_str())).map(|p| domain(p.node)).collect();
    if new.len() > 1 || new.contains(&None) {
        return Some(format!("its new pods are in {new:?}"));
    }
    let stay = pods().filter(|pod| cycle.stays(pod)).filter_map(|pod| pod.placement.as_ref());
    let old: BTreeSet<Option<Vec<&str>>> = stay.map(|placement| domain(&placement.node)).collect();
    // Pods that are spread already prove nothing about new ones.
    (old.len() == 1 && old != new).then(|| format!("its pods are in {old:?}, new ones in {new:?}"))
}

/// The domain of a node at a level; `None`: it is outside the topology.
fn domain_of<'a>(node: &'a Node, topology: &Topology, depth: usize) -> Option<Vec<&'a str>> {
    let values: Option<Vec<&str>> =
        topology.levels.iter().map(|level| node.labels.get(&level.label).map(String::as_str)).collect();
    values.map(|values| values[..=depth].to_vec())
}
