//! What must change on a group and on a pod, as merge patches of only that.
//!
//! Of an existing group stay: `markUnschedulable`, `schedulingBackoff`, the node pool, status, and whatever labels,
//! annotations and owners others gave it. A queue stays if somebody set it on the group by hand, and follows the
//! workload otherwise; [`QUEUE_WRITTEN`] tells the two apart. A group that KAI wrote has no such note: its queue
//! stays, and is noted if it is the workload's.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kai_api::{
    PodGroup,
    names::{annotations, labels},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::wanted::Wanted;

/// Annotation on a group: the queue that its workload asked for when it was last written.
pub const QUEUE_WRITTEN: &str = "kai.scheduler/queue-of-workload";

/// What must change on a group, or nothing.
pub(crate) fn group_patch(live: &PodGroup, wanted: &Wanted, queue_label: &str, node_pool_label: &str) -> Option<Value> {
    let nothing = BTreeMap::new();
    let live_labels = live.metadata.labels.as_ref().unwrap_or(&nothing);
    let live_notes = live.metadata.annotations.as_ref().unwrap_or(&nothing);
    let mut labels = missing(live_labels, &wanted.labels);
    labels.retain(|key, _| key != queue_label && key != node_pool_label);
    let mut notes = missing(live_notes, &wanted.annotations);
    let same_top = |text: &str| live_notes.get(annotations::TOP_OWNER).is_some_and(|live| same_lines(live, text));
    if wanted.annotations.get(annotations::TOP_OWNER).is_some_and(|text| same_top(text)) {
        notes.remove(annotations::TOP_OWNER);
    }

    let mut spec = Map::new();
    set(&mut spec, "minMember", live.spec.min_member, wanted.min_member.filter(|_| wanted.min_sub_group.is_none()));
    set(&mut spec, "minSubGroup", live.spec.min_sub_group, wanted.min_sub_group);
    let live_class = live.spec.priority_class_name.as_deref();
    set(&mut spec, "priorityClassName", live_class, Some(wanted.priority_class.as_str()));
    set(&mut spec, "preemptibility", live.spec.preemptibility, wanted.preemptibility);
    set(&mut spec, "preemptionDelay", live.spec.preemption_delay, wanted.preemption_delay);
    set(&mut spec, "stalenessGracePeriod", live.spec.staleness_grace_period, wanted.staleness_grace_period);
    let some = |parts| Some(parts).filter(|parts: &&Vec<_>| !parts.is_empty());
    set(&mut spec, "subGroups", some(&live.spec.sub_groups), some(&wanted.sub_groups));
    if wanted.topology.is_some() && live.spec.topology_constraint != wanted.topology {
        // As a merge patch it must also take away the levels that are no longer named.
        let topology = wanted.topology.clone().unwrap_or_default();
        let value = json!({
            "topology": topology.topology,
            "requiredTopologyLevel": topology.required_topology_level,
            "preferredTopologyLevel": topology.preferred_topology_level,
        });
        spec.insert("topologyConstraint".to_owned(), value);
    }

    let live_queue = live.spec.queue.as_deref().filter(|queue| !queue.is_empty());
    let written = live_notes.get(QUEUE_WRITTEN).map(String::as_str);
    let follows = live_queue.is_none() || live_queue == written;
    if follows && live_queue != Some(&wanted.queue) {
        spec.insert("queue".to_owned(), json!(wanted.queue));
        if live_labels.contains_key(queue_label) {
            labels.insert(queue_label.to_owned(), json!(wanted.queue));
        }
    }
    if written != Some(&wanted.queue) && (follows || written.is_none() && live_queue == Some(&wanted.queue)) {
        notes.insert(QUEUE_WRITTEN.to_owned(), json!(wanted.queue));
    }

    let mut metadata = Map::new();
    put(&mut metadata, "labels", labels);
    put(&mut metadata, "annotations", notes);
    if let Some(owners) = with_owner(live.metadata.owner_references.as_deref().unwrap_or_default(), &wanted.owner) {
        metadata.insert("ownerReferences".to_owned(), json!(owners));
    }
    patch(metadata, spec, live.metadata.uid.as_deref())
}

/// What must change on a pod, or nothing.
pub(crate) fn pod_patch(pod: &Pod, wanted: &Wanted) -> Option<Value> {
    let text = |map: &Option<BTreeMap<String, String>>, key: &str| map.as_ref().and_then(|map| map.get(key).cloned());
    let mut notes = Map::new();
    let live = text(&pod.metadata.annotations, annotations::POD_GROUP);
    set(&mut notes, annotations::POD_GROUP, live.as_deref(), Some(wanted.name.as_str()));
    let mut tags = Map::new();
    let live = text(&pod.metadata.labels, labels::SUBGROUP);
    set(&mut tags, labels::SUBGROUP, live.as_deref(), wanted.pod_sub_group.as_deref());
    let mut metadata = Map::new();
    put(&mut metadata, "annotations", notes);
    put(&mut metadata, "labels", tags);
    patch(metadata, Map::new(), pod.metadata.uid.as_deref())
}

/// A patch that fits no other object of the same name.
fn patch(mut metadata: Map<String, Value>, spec: Map<String, Value>, uid: Option<&str>) -> Option<Value> {
    if metadata.is_empty() && spec.is_empty() {
        return None;
    }
    metadata.insert("uid".to_owned(), json!(uid));
    let mut whole = Map::from_iter([("metadata".to_owned(), Value::Object(metadata))]);
    put(&mut whole, "spec", spec);
    Some(Value::Object(whole))
}

fn put(into: &mut Map<String, Value>, key: &str, fields: Map<String, Value>) {
    if !fields.is_empty() {
        into.insert(key.to_owned(), Value::Object(fields));
    }
}

/// Sets a field if it is different; a wish for nothing removes it.
fn set<T: PartialEq + Serialize>(fields: &mut Map<String, Value>, key: &str, live: Option<T>, wanted: Option<T>) {
    if live != wanted {
        fields.insert(key.to_owned(), json!(wanted));
    }
}

/// The entries that are wanted and are not there or not the same.
fn missing(live: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> Map<String, Value> {
    let different = wanted.iter().filter(|(key, value)| live.get(*key) != Some(value));
    different.map(|(key, value)| (key.clone(), json!(value))).collect()
}

/// All owners with one more, or nothing if it is there.
fn with_owner(live: &[OwnerReference], wanted: &OwnerReference) -> Option<Vec<OwnerReference>> {
    let present = live.iter().any(|owner| owner.uid == wanted.uid);
    (!present).then(|| live.iter().chain([wanted]).cloned().collect())
}

/// The same YAML rows in whatever order.
fn same_lines(one: &str, other: &str) -> bool {
    let sorted = |text: &str| {
        let mut rows: Vec<String> = text.lines().map(|row| row.trim().replace('"', "")).collect();
        rows.retain(|row| !row.is_empty());
        rows.sort();
        rows
    };
    sorted(one) == sorted(other)
}

#[cfg(test)]
mod tests;
