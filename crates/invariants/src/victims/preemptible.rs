//! Groups that cannot be evicted are not, unless they are stale.
//!
//! Source: kai-core.md §3.9, victims; §4.8 applies to preemptible and non-preemptible alike.

use kai_core::policy::Action;

use crate::{Cycle, Violation, victims::each};

/// Victims that cannot be evicted.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    each(cycle, "groups that cannot be evicted are not", |evicting| {
        let spared = !evicting.group.preemptible && evicting.eviction.action != Action::StaleGangEviction;
        spared.then(|| format!("group `{}` is not preemptible", evicting.group.key))
    })
}
