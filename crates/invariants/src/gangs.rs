//! A gang runs as a whole or not at all: nothing a plan does leaves a part of one.
//!
//! Source: kai-core.md §3.8 (a gang that must wait for a part waits as a whole), §3.10 (eviction takes surplus first, then whole members),
//! §6.1 (when a tree of subgroups is satisfied). Gangs that were broken before may stay so.

use crate::{Cycle, Violation, facts::gang::Gang, facts::standing::Standing};

const INVARIANT: &str = "a gang runs as a whole or not at all";

/// Gangs that the plan breaks.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    cycle.gangs.values().flat_map(|gang| check_gang(cycle, gang)).collect()
}

fn check_gang(cycle: &Cycle<'_>, gang: &Gang<'_>) -> Vec<Violation> {
    let was_placed = |pod: &kai_core::delta::Pod| cycle.placements.get(pod.uid.as_str());
    let before = gang.count(|pod| cycle.standing(pod) == Standing::Placed);
    let after = gang.count(|pod| cycle.has_place(pod));
    let bound = gang.count(|pod| cycle.stays(pod) || was_placed(pod).is_some_and(|placing| placing.bound));
    let gained = gang.count(|pod| cycle.standing(pod) == Standing::Pending && was_placed(pod).is_some());
    let bound_now = gang.count(|pod| was_placed(pod).is_some_and(|placing| placing.bound));
    let complain = |what: String| Violation { invariant: INVARIANT, object: gang.group.key.clone(), what };
    let mut violations = Vec::new();

    for (place, podset) in gang.podsets.iter().enumerate() {
        let (name, min) = (podset.name, podset.min);
        if after[place] != before[place] && after[place] != 0 && after[place] < min {
            let (from, to) = (before[place], after[place]);
            violations.push(complain(format!("subgroup `{name}` went from {from} pods to {to}, it needs {min}")));
        }
        if bound_now[place] > 0 && bound[place] < min {
            let count = bound[place];
            violations.push(complain(format!("subgroup `{name}` has {count} pods bound now, it needs {min}")));
        }
    }
    let any = |counts: &[usize]| counts.iter().any(|count| *count > 0);
    if any(&gained) && !gang.is_satisfied(&after) {
        violations.push(complain(format!("pods were placed, but {after:?} pods are not the whole")));
    }
    if any(&bound_now) && !gang.is_satisfied(&bound) {
        violations.push(complain(format!("pods were bound, but {bound:?} bound pods are not the whole")));
    }
    if gang.is_satisfied(&before) && any(&before) && any(&after) && !gang.is_satisfied(&after) {
        violations.push(complain(format!("it was whole with {before:?} pods, and keeps {after:?}")));
    }
    violations
}
