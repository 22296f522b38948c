//! No queue exceeds its limit, at any level, by what a plan places.
//!
//! Source: kai-core.md §4.2, "Limit": applies to everyone, whole hierarchy, only for resources that are requested.

use std::collections::BTreeSet;

use crate::{
    Cycle, Violation,
    facts::queue::{Cost, RESOURCES, resources},
};

/// Queues above their limit to which the plan added.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    let after = cycle.accounts_after();
    overdrawn(cycle, |_| true, |queue| after.allocated(queue), |resource| resource.limit)
        .into_iter()
        .map(|(queue, what)| Violation { invariant: "no queue exceeds its limit", object: queue, what })
        .collect()
}

/// Queues to which the plan added for one of the groups in question, and that then hold more than they may.
pub(crate) fn overdrawn(
    cycle: &Cycle<'_>,
    of: impl Fn(&kai_core::delta::PodGroup) -> bool,
    held: impl Fn(&str) -> Cost,
    allowed: impl Fn(kai_core::delta::QueueResource) -> Option<i64>,
) -> Vec<(String, String)> {
    if !cycle.policy.plugins.proportion {
        return Vec::new();
    }
    let mut touched = BTreeSet::new();
    for placing in cycle.placements.values() {
        let Some(gang) = cycle.gang_of(placing.pod).filter(|gang| of(gang.group)) else { continue };
        let cost = cycle.cost_of(placing);
        for queue in cycle.facts.chain(&gang.group.queue) {
            touched.extend((0..3).filter(|place| cost[*place] > 0).map(|place| (queue, place)));
        }
    }
    let mut overdrawn = Vec::new();
    for (name, place) in touched {
        let Some(queue) = cycle.facts.queues.get(name) else { continue };
        let Some(allowed) = allowed(resources(queue)[place]) else { continue };
        let held = held(name)[place];
        if held > i128::from(allowed) {
            let what = format!("holds {held} of {} after the plan, may have {allowed}", RESOURCES[place]);
            overdrawn.push((name.to_owned(), what));
        }
    }
    overdrawn
}
