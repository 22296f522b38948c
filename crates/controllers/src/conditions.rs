//! The conditions of a queue: whether it hangs in the air, and whether it holds more than it is guaranteed.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kai_api::{
    Queue, QueueCondition, QueueResource, defaults,
    names::conditions::{QUEUE_ORPHAN, QUEUE_OVER_QUOTA},
};

use crate::{
    amounts::{MILLI, NANO, shown},
    tree::{Orphan, View},
};

/// A queue's conditions as they ought to be. Those of other types stay; a time changes only with its status.
#[must_use]
pub fn conditions(queue: &Queue, view: &View, now: Timestamp) -> Vec<QueueCondition> {
    let known = queue.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ours = [(QUEUE_ORPHAN, orphan(queue, view)), (QUEUE_OVER_QUOTA, over_quota(queue, view))];
    let mut all: Vec<QueueCondition> =
        known.iter().filter(|one| ours.iter().all(|(name, _)| one.type_ != *name)).cloned().collect();
    for (name, found) in ours {
        let old = known.iter().find(|one| one.type_ == name);
        let status = if found.holds { "True" } else { "False" };
        let unchanged = old.filter(|old| old.status == status).and_then(|old| old.last_transition_time.clone());
        all.push(QueueCondition {
            type_: name.to_owned(),
            status: status.to_owned(),
            last_probe_time: None,
            last_transition_time: Some(unchanged.unwrap_or(Time(now))),
            reason: Some(found.reason.to_owned()),
            message: Some(found.message),
        });
    }
    all
}

struct Finding {
    holds: bool,
    reason: &'static str,
    message: String,
}

fn orphan(queue: &Queue, view: &View) -> Finding {
    let name = queue.metadata.name.as_deref().unwrap_or_default();
    let (reason, message) = match &view.orphan {
        None => {
            let message = match queue.spec.parent_queue.as_deref().filter(|parent| !parent.is_empty()) {
                Some(parent) => format!("queue `{name}` is below queue `{parent}`"),
                None => format!("queue `{name}` is at the top"),
            };
            return Finding { holds: false, reason: "InTree", message };
        }
        Some(Orphan::ParentMissing(parent)) => (
            "ParentMissing",
            format!(
                "queue `{name}` names parent `{parent}`, which does not exist, so its workloads wait; \
                 hint: create queue `{parent}` or change `spec.parentQueue`"
            ),
        ),
        Some(Orphan::Ring(ring)) => {
            let mut way: Vec<String> = ring.iter().map(|name| format!("`{name}`")).collect();
            way.push(format!("`{name}`"));
            let way = way.join(" -> ");
            let message = format!(
                "queue `{name}` is its own ancestor ({way}), so its workloads wait; \
                 hint: change `spec.parentQueue` of one of these queues"
            );
            ("Cycle", message)
        }
        Some(Orphan::Below(above)) => (
            "AncestorOrphan",
            format!(
                "queue `{name}` is below queue `{above}`, which has no way to the top, so its workloads wait; \
                 hint: see the condition `{QUEUE_ORPHAN}` of queue `{above}`"
            ),
        ),
    };
    Finding { holds: true, reason, message }
}

fn over_quota(queue: &Queue, view: &View) -> Finding {
    let name = queue.metadata.name.as_deref().unwrap_or_default();
    let resources = queue.spec.resources.unwrap_or_default();
    let held = &view.sums.allocated;
    // Name, unit of the quota in billionths, what is held, and how people count it.
    let rows = [
        ("GPUs", resources.gpu, NANO, held.gpus(), NANO),
        ("CPU cores", resources.cpu, MILLI, held.of("cpu"), NANO),
        (
            "GB of memory",
            resources.memory,
            i128::from(defaults::QUEUE_MEMORY_UNIT) * NANO,
            held.of("memory"),
            1_000_000_000 * NANO,
        ),
    ];
    let over = rows.into_iter().filter_map(|(what, given, unit, held, shown_in)| {
        let quota = quota(given, unit)?;
        let count = |nano: i128| shown(nano.saturating_mul(NANO) / shown_in);
        (held > quota).then(|| format!("{} {what} with a quota of {}", count(held), count(quota)))
    });
    let over: Vec<String> = over.collect();
    if over.is_empty() {
        let message = format!("queue `{name}` holds no more than its quota");
        return Finding { holds: false, reason: "WithinQuota", message };
    }
    let message = format!("queue `{name}` holds {}; others may take back what is above", over.join(", "));
    Finding { holds: true, reason: "AboveQuota", message }
}

/// A quota in billionths; none if it is unlimited.
fn quota(given: Option<QueueResource>, unit: i128) -> Option<i128> {
    let quota = given.unwrap_or_default().quota;
    if (quota - defaults::UNLIMITED).abs() < f64::EPSILON {
        return None;
    }
    // By the digits that a reader of the object sees; what JSON cannot write does not occur.
    let nano = format!("{quota}").parse::<kai_quantity::Quantity>().map_or(0, |digits| digits.nano_saturating());
    Some(nano.saturating_mul(unit / MILLI) / (NANO / MILLI))
}

#[cfg(test)]
mod tests {
    use kai_api::{QueueResources, QueueSpec, QueueStatus};

    use super::*;
    use crate::amounts::Amounts;

    fn queue(gpus: f64, cores: f64) -> Queue {
        let of = |quota: f64| Some(QueueResource { quota, ..QueueResource::default() });
        let memory = of(2000.0);
        let resources = QueueResources { gpu: of(gpus), cpu: of(cores), memory };
        Queue::new("team", QueueSpec { resources: Some(resources), ..QueueSpec::default() })
    }

    fn view(list: &[(&str, i128)]) -> View {
        let mut allocated = Amounts::default();
        for (name, nano) in list {
            allocated.add(name, *nano);
        }
        let mut view = View::default();
        view.sums.allocated = allocated;
        view
    }

    fn over(queue: &Queue, view: &View) -> QueueCondition {
        conditions(queue, view, Timestamp::UNIX_EPOCH).pop().expect("the last one")
    }

    #[test]
    fn what_is_above_quota_is_told_with_its_numbers() {
        let held = view(&[("nvidia.com/gpu", 3 * NANO / 2), ("cpu", 4 * NANO), ("memory", 3_500_000_000 * NANO)]);
        let found = over(&queue(1.0, 4000.0), &held);
        assert_eq!(found.status, "True");
        let message = found.message.expect("a message");
        assert!(message.contains("1.5 GPUs with a quota of 1, 3.5 GB of memory with a quota of 2;"), "{message}");
        assert!(!message.contains("CPU"), "{message}");
    }

    #[test]
    fn unlimited_is_never_exceeded_and_the_time_stays_while_nothing_changes() {
        let mut team = queue(-1.0, -1.0);
        let held = view(&[("nvidia.com/gpu", 1000 * NANO)]);
        let first = conditions(&team, &held, Timestamp::UNIX_EPOCH);
        assert_eq!(first.iter().map(|one| one.status.as_str()).collect::<Vec<_>>(), ["False", "False"]);
        let foreign = QueueCondition { type_: "Theirs".into(), status: "True".into(), ..QueueCondition::default() };
        let mut stored = first.clone();
        stored.insert(0, foreign);
        team.status = Some(QueueStatus { conditions: stored.clone(), ..QueueStatus::default() });
        assert_eq!(conditions(&team, &held, "2026-01-01T00:00:00Z".parse().unwrap()), stored);
    }
}
