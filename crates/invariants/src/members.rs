//! Only pods that wait are placed, each once; only pods that have a place are evicted, each once; a pod counts as moved iff it got another place.
//!
//! Source: kai-core.md §3.3 (standings), §3.7 (which groups are considered), §1.1 (only leaves run groups).

use std::collections::BTreeSet;

use crate::{Cycle, Violation, cycle::Step, facts::standing::Standing};

/// Decisions about pods that they cannot be about.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut complain = |pod: &str, what: String| {
        let invariant = "decisions are about pods that they can be about";
        violations.push(Violation { invariant, object: pod.to_owned(), what });
    };
    let (mut placed, mut evicted) = (BTreeSet::new(), BTreeSet::new());
    for step in &cycle.steps {
        match step {
            Step::Place(placing) => {
                let (pod, uid) = (placing.pod, placing.pod.uid.as_str());
                if !placed.insert(uid) {
                    complain(uid, "is placed twice".to_owned());
                }
                if cycle.standing(pod) != Standing::Pending && !evicted.contains(uid) {
                    complain(uid, format!("is placed, but stands as {:?}", cycle.standing(pod)));
                }
                if placing.bound && evicted.contains(uid) {
                    complain(uid, "is evicted and bound at once: it must be gone first".to_owned());
                }
                match cycle.gang_of(pod) {
                    None => complain(uid, "is placed, but is no member of a group".to_owned()),
                    Some(gang) if !gang.is_valid() => complain(uid, "is placed, but its group is invalid".to_owned()),
                    Some(gang) if !cycle.facts.is_usable_leaf(&gang.group.queue) => {
                        complain(uid, format!("is placed from queue `{}`, which cannot be used", gang.group.queue));
                    }
                    Some(_) => {}
                }
            }
            Step::Evict(evicting) => {
                let (pod, uid) = (evicting.pod, evicting.pod.uid.as_str());
                if !evicted.insert(uid) {
                    complain(uid, "is evicted twice".to_owned());
                }
                if cycle.standing(pod) != Standing::Placed {
                    complain(uid, format!("is evicted, but stands as {:?}", cycle.standing(pod)));
                }
                if pod.group.as_deref() != Some(&evicting.group.key) || cycle.gang_of(pod).is_none() {
                    complain(uid, format!("is evicted as of group `{}`", evicting.group.key));
                }
                let moved = cycle.placements.contains_key(uid);
                if moved != evicting.eviction.moved {
                    complain(uid, format!("moved is {}, but placed again is {moved}", evicting.eviction.moved));
                }
            }
            Step::Started(..) | Step::Stale(..) => {}
        }
    }
    violations
}
