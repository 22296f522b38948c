//! Pods that cannot be evicted stay within the quota of their queue and of all above it.
//!
//! Source: kai-core.md §4.2, "Quota for non-preemptible".

use crate::{Cycle, Violation, limits::overdrawn};

/// Queues whose unevictable pods exceed the quota and to which the plan added such pods.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    let after = cycle.accounts_after();
    overdrawn(cycle, |group| !group.preemptible, |queue| after.fixed(queue), |resource| resource.quota)
        .into_iter()
        .map(|(queue, what)| Violation { invariant: "unevictable pods stay within quota", object: queue, what })
        .collect()
}
