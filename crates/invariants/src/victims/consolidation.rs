//! Consolidation ends nobody: each of its victims has another place, it moves no more groups than allowed, and only for groups that could be
//! moved themselves.
//!
//! Source: kai-core.md §3.9 and §4.10 (the cap is meant as it is written, not one more).

use std::collections::{BTreeMap, BTreeSet};

use kai_core::policy::Action;

use crate::{Cycle, Violation, victims::each};

const INVARIANT: &str = "consolidation only moves";

/// Victims of consolidation that are lost, or too many.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for evicting in cycle.evictions.values().filter(|evicting| evicting.eviction.action == Action::Consolidation) {
        if let Some(beneficiary) = evicting.beneficiary {
            groups.entry(&beneficiary.key).or_default().insert(&evicting.group.key);
        }
    }
    let mut violations = each(cycle, INVARIANT, |evicting| {
        let beneficiary = evicting.beneficiary.filter(|_| evicting.eviction.action == Action::Consolidation)?;
        if !cycle.placements.contains_key(evicting.pod.uid.as_str()) {
            return Some("has no other place".to_owned());
        }
        (!beneficiary.preemptible).then(|| format!("moved for `{}`, which could not be moved", beneficiary.key))
    });
    let most = cycle.policy.max_consolidation_victims.map_or(usize::MAX, |most| most as usize);
    for (beneficiary, moved) in groups.into_iter().filter(|(_, moved)| moved.len() > most) {
        let what = format!("{} groups are moved for it, at most {most} may be", moved.len());
        violations.push(Violation { invariant: INVARIANT, object: beneficiary.to_owned(), what });
    }
    violations
}
