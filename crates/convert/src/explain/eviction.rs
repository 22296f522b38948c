//! Why a pod ends.

use kai_core::{plan::Eviction, policy::Action};

use super::Names;

/// An eviction as a sentence.
#[must_use]
pub fn eviction(eviction: &Eviction, names: &dyn Names) -> String {
    let pod = names.pod_key(eviction.pod);
    let beneficiary = eviction.beneficiary.map_or("another workload", |group| names.group_key(group));
    match eviction.action {
        Action::Preempt => format!("Pod {pod} was preempted by higher priority workload {beneficiary}"),
        Action::Reclaim => {
            let queues = eviction.queues.map_or_else(String::new, |(theirs, own)| {
                format!(": queue {} takes back from queue {}", names.queue_name(theirs), names.queue_name(own))
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
