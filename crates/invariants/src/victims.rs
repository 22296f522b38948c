//! No victim that the rules protect: one file per rule.

pub mod consolidation;
pub mod delay;
pub mod min_runtime;
pub mod preempt;
pub mod preemptible;
pub mod reclaim;
pub mod stale;

use crate::{Cycle, Violation, cycle::Evicting};

/// Victims that the rules protect.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    [
        consolidation::check,
        delay::check,
        min_runtime::check,
        preempt::check,
        preemptible::check,
        reclaim::check,
        stale::check,
    ]
    .iter()
    .flat_map(|check| check(cycle))
    .collect()
}

/// One violation per eviction that has a trouble.
pub(crate) fn each<'a>(
    cycle: &Cycle<'a>,
    invariant: &'static str,
    trouble: impl Fn(&Evicting<'a>) -> Option<String>,
) -> Vec<Violation> {
    let troubled = cycle.evictions.values().filter_map(|evicting| Some((evicting.pod.uid.clone(), trouble(evicting)?)));
    troubled.map(|(object, what)| Violation { invariant, object, what }).collect()
}
