//! Preempt takes only from strictly lower priorities of the same queue.
//!
//! Source: kai-core.md §4.5.

use kai_core::policy::Action;

use crate::{Cycle, Violation, victims::each};

/// Victims of preempt that it may not take.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    each(cycle, "preempt takes from lower priorities of the same queue", |evicting| {
        let beneficiary = evicting.beneficiary.filter(|_| evicting.eviction.action == Action::Preempt)?;
        let (victim, key) = (evicting.group, &beneficiary.key);
        if victim.queue != beneficiary.queue {
            return Some(format!("of queue `{}`, evicted for `{key}` of `{}`", victim.queue, beneficiary.queue));
        }
        let (lower, higher) = (victim.priority, beneficiary.priority);
        (lower >= higher).then(|| format!("has priority {lower}, evicted for `{key}` with {higher}"))
    })
}
