//! What a plan has recorded about groups is true: starts of groups that had nothing running, staleness of gangs that are below their minimum.
//!
//! Source: kai-core.md §3.8 (last start is set iff it was a fresh start of bound pods), §4.8 (when a gang is stale).

use std::collections::BTreeSet;

use crate::{Cycle, Violation, cycle::Step, facts::gang::Gang, facts::standing::Standing};

const INVARIANT: &str = "what is recorded of groups is true";

/// Records that are wrong, and starts that were not recorded.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut complain = |group: &str, what: &str| {
        violations.push(Violation { invariant: INVARIANT, object: group.to_owned(), what: what.to_owned() });
    };
    let mut started = BTreeSet::new();
    for step in &cycle.steps {
        match step {
            Step::Started(group, at) => {
                started.insert(group.key.as_str());
                if *at != cycle.now {
                    complain(&group.key, "its start is recorded for another time than now");
                }
            }
            Step::Stale(group, None) if group.stale_since.is_none() => {
                complain(&group.key, "is recorded as no longer stale, but was not");
            }
            Step::Stale(group, Some(_)) => {
                let healthy = |gang: &Gang<'_>| !is_below(gang, &in_use(cycle, gang));
                if cycle.gangs.get(group.key.as_str()).is_some_and(healthy) {
                    complain(&group.key, "is recorded as stale, but is whole");
                }
            }
            _ => {}
        }
    }
    for gang in cycle.gangs.values() {
        let running = gang.count(|pod| cycle.standing(pod) == Standing::Placed).iter().any(|count| *count > 0);
        let is_bound =
            |pod: &kai_core::delta::Pod| cycle.placements.get(pod.uid.as_str()).is_some_and(|placing| placing.bound);
        let bound = gang.count(is_bound).iter().any(|count| *count > 0);
        match (bound && !running, started.contains(gang.group.key.as_str())) {
            (true, false) => complain(&gang.group.key, "starts, but that is not recorded"),
            (false, true) => complain(&gang.group.key, "is recorded as started, but does not start"),
            _ => {}
        }
    }
    violations
}

/// How many pods of each podset hold something before the plan, leaving ones too.
pub(crate) fn in_use(cycle: &Cycle<'_>, gang: &Gang<'_>) -> Vec<usize> {
    gang.count(|pod| cycle.standing(pod).is_physical())
}

/// Whether something of a gang is there, but not enough.
pub(crate) fn is_below(gang: &Gang<'_>, counts: &[usize]) -> bool {
    let broken = gang.podsets.iter().zip(counts).any(|(podset, count)| *count > 0 && *count < podset.min);
    counts.iter().any(|count| *count > 0) && (broken || !gang.is_satisfied(counts))
}
