//! Nobody is evicted for nothing: each eviction has a beneficiary that the plan places, or ends a stale gang.
//!
//! Source: kai-core.md §3.9 and §3.10: an eviction is committed only together with the placement it was made for.

use kai_core::policy::Action;

use crate::{
    Cycle, Violation,
    cycle::{Evicting, Step},
};

/// Evictions that help nobody.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for evicting in cycle.evictions.values() {
        if let Some(what) = trouble(cycle, evicting) {
            let object = evicting.pod.uid.clone();
            violations.push(Violation { invariant: "nobody is evicted for nothing", object, what });
        }
    }
    violations
}

fn trouble(cycle: &Cycle<'_>, evicting: &Evicting<'_>) -> Option<String> {
    let stale = evicting.eviction.action == Action::StaleGangEviction;
    let Some(beneficiary) = evicting.beneficiary else {
        return (!stale).then(|| "is evicted for nobody".to_owned());
    };
    if stale {
        return Some(format!("a stale gang is evicted for `{}`", beneficiary.key));
    }
    if beneficiary.key == evicting.group.key {
        return Some("is evicted for its own group".to_owned());
    }
    let placed = evicting.heir.unwrap_or(beneficiary);
    let gains = |step: &Step<'_>| match step {
        Step::Place(placing) => placing.pod.group.as_deref() == Some(&placed.key),
        _ => false,
    };
    (!cycle.steps.iter().any(gains)).then(|| format!("is evicted for `{}`, which is not placed", placed.key))
}
