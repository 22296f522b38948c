//! The group that a pod is in, or will be in.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use crate::{
    PodGroup, PodGroupSpec,
    names::{annotations, labels, objects},
};

/// The longest name of an object.
const LONGEST_NAME: usize = 253;

/// The name of the group that is made for a workload: `pg-<name>-<uid>`, with a long name cut so that the whole is one.
#[must_use]
pub fn group_name(name: &str, uid: &str) -> String {
    let room = LONGEST_NAME.saturating_sub("pg--".len() + uid.len());
    let cut: String = name.chars().take(room).collect();
    let cut = if cut.len() < name.len() { cut.trim_end_matches(['-', '.']) } else { &cut };
    format!("pg-{cut}-{uid}")
}

/// Whether a pod belongs to nothing else.
#[must_use]
pub fn is_alone(pod: &Pod) -> bool {
    pod.metadata.owner_references.as_ref().is_none_or(Vec::is_empty)
}

/// The group that a pod says it is in.
#[must_use]
pub fn named_group(pod: &Pod) -> Option<&str> {
    let notes = pod.metadata.annotations.as_ref()?;
    notes.get(annotations::POD_GROUP).map(String::as_str).filter(|name| !name.is_empty())
}

/// The group of a pod: the one it says it is in; before it says so, the one that is made for it if it belongs to nothing else. So
/// a pod without an owner can be scheduled from the moment at which its group is there.
#[must_use]
pub fn group_of(pod: &Pod) -> Option<String> {
    let own = || Some(group_name(pod.metadata.name.as_deref()?, pod.metadata.uid.as_deref()?));
    named_group(pod).map(str::to_owned).or_else(|| if is_alone(pod) { own() } else { None })
}

/// What a label of a pod says, if it says anything.
fn tag<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// What a lone pod can say that its group follows; whoever says such a thing is judged by the pod-grouper alone.
const WISHES: &[&str] = &[
    annotations::SKIP_POD_GROUPER,
    annotations::TOPOLOGY,
    annotations::TOPOLOGY_REQUIRED,
    annotations::TOPOLOGY_PREFERRED,
    annotations::PREEMPTION_DELAY,
    annotations::STALENESS_GRACE_PERIOD,
    labels::PREEMPTIBILITY,
    labels::PRIORITY_CLASS,
    labels::SUBGROUP,
    labels::SPARK_SELECTOR,
];

/// Whether it is known without thought which group the pod-grouper is about to make for a pod: the pod belongs to nothing else and says
/// nothing but its queue, its node pool and its priority class.
#[must_use]
pub fn implies_group(pod: &Pod, queue_label: &str) -> bool {
    let metadata = &pod.metadata;
    let (Some(name), Some(uid)) = (&metadata.name, &metadata.uid) else { return false };
    let is_own = is_alone(pod) && named_group(pod).is_none_or(|group| group == group_name(name, uid));
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let wishes =
        |map: Option<&BTreeMap<String, String>>| WISHES.iter().any(|key| map.is_some_and(|map| map.contains_key(*key)));
    let of_a_project = tag(pod, queue_label).is_none() && tag(pod, labels::PROJECT).is_some();
    is_own
        && !of_a_project
        && !matches!(phase, Some("Succeeded" | "Failed"))
        && !wishes(metadata.labels.as_ref())
        && !wishes(metadata.annotations.as_ref())
}

/// The group that [a pod implies](implies_group). So such a pod can be placed before its group is there.
#[must_use]
pub fn implied_group(pod: &Pod, queue_label: &str, node_pool_label: Option<&str>) -> Option<PodGroup> {
    if !implies_group(pod, queue_label) {
        return None;
    }
    let metadata = &pod.metadata;
    let name = group_of(pod)?;
    let queue = tag(pod, queue_label).unwrap_or(objects::DEFAULT_QUEUE).to_owned();
    let class = pod.spec.as_ref().and_then(|spec| spec.priority_class_name.clone()).filter(|class| !class.is_empty());
    let pool = node_pool_label.and_then(|label| Some((label.to_owned(), tag(pod, label)?.to_owned())));
    Some(PodGroup {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: metadata.namespace.clone(),
            labels: pool.map(|pool| BTreeMap::from([pool])),
            creation_timestamp: metadata.creation_timestamp.clone(),
            ..ObjectMeta::default()
        },
        spec: PodGroupSpec {
            min_member: Some(1),
            queue: Some(queue),
            priority_class_name: Some(class.unwrap_or_else(|| objects::PRIORITY_TRAIN.to_owned())),
            ..PodGroupSpec::default()
        },
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const UID: &str = "6fd8e7a0-0000-4000-8000-000000000001";

    #[test]
    fn the_name_of_a_group_is_never_too_long() {
        assert_eq!(group_name("train", UID), format!("pg-train-{UID}"));
        let long = group_name(&format!("{}.{}", "a".repeat(212), "b".repeat(40)), UID);
        assert_eq!(long, format!("pg-{}-{UID}", "a".repeat(212)));
    }

    #[test]
    fn only_a_pod_without_an_owner_has_a_group_before_it_names_one() {
        let group = |metadata| group_of(&serde_json::from_value(json!({"metadata": metadata})).expect("a pod"));
        assert_eq!(group(json!({"name": "p", "uid": UID})), Some(format!("pg-p-{UID}")));
        let notes = json!({"pod-group-name": "mine"});
        assert_eq!(group(json!({"name": "p", "uid": UID, "annotations": notes})).as_deref(), Some("mine"));
        let owners = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}]);
        assert_eq!(group(json!({"name": "p", "uid": UID, "ownerReferences": owners})), None);
    }
}
