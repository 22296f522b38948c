//! Which labels and annotations of a workload its group gets.
//!
//! All of them, as users of KAI expect, but not what others write on the same object while it lives: a group would be
//! patched each time, or would bring back what its own writers removed.

use std::collections::BTreeMap;

use kai_api::names::{annotations, labels};

/// What `kubectl apply` keeps on every object; it can be as large as the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Longer values are documents, not settings.
const LONGEST_VALUE: usize = 1024;

/// Labels of single pods and revisions, those of the binder, and those by which a Job finds its pods.
const NOT_LABELS: &[&str] = &[
    labels::GPU_GROUP,
    labels::SUBGROUP,
    "pod-template-hash",
    "controller-revision-hash",
    "pod-template-generation",
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
];

/// Beginning of what the Deployment controller writes at each rollout.
const ROLLOUT: &str = "deployment.kubernetes.io/";

/// Annotations with a writer of their own.
const NOT_ANNOTATIONS: &[&str] = &[
    LAST_APPLIED,
    annotations::POD_GROUP,
    annotations::STALE_SINCE,
    annotations::LAST_START,
    annotations::LAST_EVICTION,
    annotations::TOP_OWNER,
    annotations::RECEIVED_RESOURCE_TYPE,
    annotations::SHARED_GPU_CONFIG_MAP,
    annotations::NUMA_PREDICTED,
    annotations::NUMA_OBSERVED,
    crate::apply::QUEUE_WRITTEN,
];

/// The labels to copy.
pub(super) fn labels(all: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let wanted =
        all.iter().filter(|(key, _)| !NOT_LABELS.contains(&key.as_str()) && !key.starts_with(labels::GPU_GROUP_PREFIX));
    wanted.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The annotations to copy.
pub(super) fn annotations(all: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let wanted = all.iter().filter(|(key, value)| {
        is_setting(key, value) && !key.starts_with(ROLLOUT) && !NOT_ANNOTATIONS.contains(&key.as_str())
    });
    wanted.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Whether an annotation is worth remembering at all.
pub(crate) fn is_setting(key: &str, value: &str) -> bool {
    key != LAST_APPLIED && value.len() <= LONGEST_VALUE
}
