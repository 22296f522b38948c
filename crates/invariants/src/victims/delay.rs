//! Nobody is evicted for a group within its preemption delay.
//!
//! Source: kai-core.md §4.7: the delay runs from the later of creation and last eviction.

use crate::{Cycle, Violation, victims::each};

/// Victims of groups that had to wait.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    each(cycle, "nobody is evicted for a group within its preemption delay", |evicting| {
        let beneficiary = evicting.beneficiary?;
        let delay = beneficiary.preemption_delay?;
        let anchor = beneficiary.created.max(beneficiary.last_eviction.unwrap_or(beneficiary.created));
        let until = anchor.after(delay);
        (cycle.now < until).then(|| format!("evicted for `{}` before {}", beneficiary.key, until.0))
    })
}
