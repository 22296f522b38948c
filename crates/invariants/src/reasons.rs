//! Every group that still waits is told why, and "the same as another" leads to a cause.
//!
//! Source: kai-core.md §7.3, issue "every pending group has a reason".

use std::collections::BTreeMap;

use kai_core::{
    ids::GroupId,
    plan::{Cause, GroupRefusal},
    policy::Action,
};

use crate::{Cycle, Violation, facts::standing::Standing};

/// Groups that wait without a reason, and reasons that say nothing.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut complain = |group: &str, what: String| {
        let invariant = "every group that waits is told why";
        violations.push(Violation { invariant, object: group.to_owned(), what });
    };
    let by_group: BTreeMap<GroupId, &GroupRefusal> =
        cycle.plan.reasons.iter().map(|refusal| (refusal.group, refusal)).collect();
    if by_group.len() != cycle.plan.reasons.len() {
        complain("", "a group has two refusals".to_owned());
    }
    for refusal in &cycle.plan.reasons {
        let name = cycle.group(refusal.group).map_or("unknown", |group| group.key.as_str());
        if !says_something(refusal, &by_group) {
            complain(name, format!("its refusal has no cause: {:?}", refusal.causes));
        }
        let waits = cycle.gangs.get(name).is_some_and(|gang| {
            let waiting = gang.count(|pod| matches!(cycle.standing(pod), Standing::Pending | Standing::Gated));
            waiting.iter().any(|count| *count > 0) || !gang.is_valid()
        });
        if !waits {
            complain(name, "has a refusal, but nothing of it waits".to_owned());
        }
    }
    if !cycle.policy.actions.contains(&Action::Allocate) || !cycle.policy.queue_depth.is_empty() {
        return violations;
    }
    for (key, gang) in &cycle.gangs {
        let waiting = gang.count(|pod| cycle.standing(pod) == Standing::Pending && !cycle.has_place(pod));
        let waiting: usize = waiting.iter().sum();
        let refused = cycle.cluster.group(key).is_some_and(|id| by_group.contains_key(&id));
        let judged = cycle.plan.verdicts.iter().any(|verdict| verdict.kind == "pod group" && verdict.name == **key);
        if waiting > 0 && !refused && !judged {
            complain(key, format!("{waiting} pods wait without a reason"));
        }
    }
    violations
}

/// Follows "the same as" until there is a cause; a circle has none.
fn says_something(refusal: &GroupRefusal, by_group: &BTreeMap<GroupId, &GroupRefusal>) -> bool {
    let mut current = refusal;
    for _ in 0..=by_group.len() {
        match current.causes.as_slice() {
            [] => return false,
            [Cause::SameAs(other)] => match by_group.get(other) {
                Some(next) => current = next,
                None => return false,
            },
            _ => return true,
        }
    }
    false
}
