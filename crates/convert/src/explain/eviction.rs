//! Why a pod ends.

use kai_core::{ids::QueueId, plan::Eviction, policy::Action};

use super::{Names, phrase::gpus};

/// An eviction as a sentence: who took the place, under which rule, with the numbers where they are known.
#[must_use]
pub fn eviction(eviction: &Eviction, names: &dyn Names) -> String {
    let pod = names.pod_key(eviction.pod);
    let beneficiary = eviction.heir.or(eviction.beneficiary).map_or("another workload", |group| names.group_key(group));
    match eviction.action {
        Action::Preempt => format!("Pod {pod} was preempted by higher priority workload {beneficiary}"),
        Action::Reclaim => {
            let queues = eviction.queues.map_or_else(String::new, |(theirs, own)| {
                let (theirs, own) = (of_queue(theirs, names), of_queue(own, names));
                format!(": queue {theirs} takes back from queue {own}")
            });
            let moved = if eviction.moved { "; it has another place" } else { "" };
            format!("Pod {pod} was reclaimed by workload {beneficiary}{queues}{moved}")
        }
        Action::Consolidation => format!("Pod {pod} was moved to make room for workload {beneficiary}"),
        Action::StaleGangEviction => {
            format!("Pod {pod} was evicted: workload {} has fewer pods than it needs", names.group_key(eviction.group))
        }
        Action::Allocate => format!("Pod {pod} was evicted for workload {beneficiary}"),
    }
}

/// A queue with its numbers.
fn of_queue(queue: QueueId, names: &dyn Names) -> String {
    let name = names.queue_title(queue);
    names.queue_use(queue).map_or_else(
        || name.to_owned(),
        |known| {
            let quota = known.quota.map_or_else(|| "unlimited".to_owned(), |quota| gpus(quota.into()));
            let (allocated, share) = (gpus(known.allocated), gpus(known.fair_share));
            format!("{name} (uses {allocated} GPUs, quota {quota}, fair share {share})")
        },
    )
}
