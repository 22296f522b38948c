//! Who would be where after a plan, as the rules between pods count it.
//!
//! Source: kai-core.md §3.12: a pod counts where it runs, where it is promised a place, and while it is being deleted; a pod that the
//! plan evicts counts nowhere.

use kai_core::delta::{Node, Pod, PodTerm, Selector};

use crate::{Cycle, eligible::holds};

/// A pod and the node where it counts.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The node.
    pub node: &'a Node,
    /// Whether the plan put it there.
    pub new: bool,
}

/// All pods that count somewhere.
#[must_use]
pub fn neighbours<'a>(cycle: &Cycle<'a>) -> Vec<Neighbour<'a>> {
    let stays = |pod: &&Pod| cycle.standing(pod).is_physical() && !cycle.evictions.contains_key(pod.uid.as_str());
    let old = cycle.facts.pods.values().filter(stays).filter_map(|pod| {
        let node = cycle.facts.nodes.get(&pod.placement.as_ref()?.node)?;
        Some(Neighbour { pod, node, new: false })
    });
    let placed = cycle.placements.values().filter_map(|placing| {
        Some(Neighbour { pod: placing.pod, node: cycle.facts.nodes.get(placing.node)?, new: true })
    });
    // A pod that was moved has an entry of its own: its old place is evicted.
    old.chain(placed).collect()
}

/// Whether a term speaks of a pod.
#[must_use]
pub fn speaks_of(term: &PodTerm, pod: &Pod) -> bool {
    let there = term.namespaces.as_ref().is_none_or(|names| names.contains(&pod.namespace));
    there && term.selector.as_ref().is_some_and(|selector| selects(selector, pod))
}

/// Whether a selector selects a pod.
#[must_use]
pub fn selects(selector: &Selector, pod: &Pod) -> bool {
    selector.expressions.iter().all(|expression| holds(expression, pod.labels.get(&expression.key)))
}

/// Whether two nodes are in one domain of a label.
#[must_use]
pub fn share_a_domain(one: &Node, other: &Node, key: &str) -> bool {
    one.labels.get(key).is_some_and(|domain| other.labels.get(key) == Some(domain))
}
