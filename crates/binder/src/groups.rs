//! GPU groups as labels of pods: which a pod is in, and the change that puts it into others.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kai_api::names::{annotations, labels};
use serde_json::{Map, Value, json};

/// The groups that a pod's labels name. Either form counts; KAI overlooks the second one.
pub(crate) fn groups_of(pod: &Pod) -> BTreeSet<String> {
    let labels = pod.metadata.labels.iter().flatten();
    let groups = labels.filter_map(|(key, value)| {
        let group = if key == labels::GPU_GROUP { value } else { key.strip_prefix(labels::GPU_GROUP_PREFIX)? };
        Some(group.to_owned())
    });
    groups.filter(|group| !group.is_empty()).collect()
}

/// The labels of a pod in these groups: the plain one for a single device, one per group for several.
fn wanted(groups: &[String]) -> BTreeMap<String, String> {
    match groups {
        [group] => BTreeMap::from([(labels::GPU_GROUP.to_owned(), group.clone())]),
        several => {
            let label = |group: &String| (format!("{}{group}", labels::GPU_GROUP_PREFIX), group.clone());
            several.iter().map(label).collect()
        }
    }
}

/// The metadata patch that puts a pod into exactly these groups and says which devices they are; nothing if it is so already.
pub(crate) fn join(pod: &Pod, groups: &[String], devices: &[String]) -> Option<Value> {
    let by_group: BTreeMap<&String, &String> = groups.iter().zip(devices).collect();
    let told = json!(by_group).to_string();
    let labels = difference(pod, &wanted(groups));
    let known = pod.metadata.annotations.as_ref().and_then(|all| all.get(annotations::GPU_DEVICES));
    if labels.is_empty() && known == Some(&told) {
        return None;
    }
    let mut metadata = json!({"uid": pod.metadata.uid, "annotations": {annotations::GPU_DEVICES: told}});
    if !labels.is_empty() {
        metadata["labels"] = Value::Object(labels);
    }
    Some(json!({"metadata": metadata}))
}

/// The metadata patch that takes a pod out of all groups; nothing if it is in none.
pub(crate) fn leave(pod: &Pod) -> Option<Value> {
    let labels = difference(pod, &BTreeMap::new());
    let told = pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(annotations::GPU_DEVICES));
    if labels.is_empty() && !told {
        return None;
    }
    let annotations = json!({annotations::GPU_DEVICES: null});
    Some(json!({"metadata": {"uid": pod.metadata.uid, "labels": labels, "annotations": annotations}}))
}

fn difference(pod: &Pod, wanted: &BTreeMap<String, String>) -> Map<String, Value> {
    let known = pod.metadata.labels.clone().unwrap_or_default();
    let ours = |key: &str| key == labels::GPU_GROUP || key.starts_with(labels::GPU_GROUP_PREFIX);
    let gone = known.keys().filter(|key| ours(key) && !wanted.contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let new = wanted.iter().filter(|(key, value)| known.get(*key) != Some(value));
    gone.chain(new.map(|(key, value)| (key.clone(), json!(value)))).collect()
}

/// The UUID of the device of a group that a pod was told, as its annotation says.
pub(crate) fn told(pod: &Pod, group: &str) -> Option<String> {
    let text = pod.metadata.annotations.as_ref()?.get(annotations::GPU_DEVICES)?;
    serde_json::from_str::<BTreeMap<String, String>>(text).ok()?.remove(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(labels: Value, annotations: Value) -> Pod {
        let metadata = json!({"name": "p", "uid": "u", "labels": labels, "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata})).expect("a pod")
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn one_device_has_the_plain_label_and_several_have_one_each() {
        let plain = join(&pod(json!({"app": "x"}), json!({})), &names(&["g"]), &names(&["GPU-1"])).expect("a change");
        assert_eq!(plain["metadata"]["labels"], json!({"runai-gpu-group": "g"}));
        let old = pod(json!({"runai-gpu-group": "g"}), json!({}));
        let several = join(&old, &names(&["g", "h"]), &names(&["GPU-1", "GPU-2"])).expect("a change");
        let labels = json!({"runai-gpu-group": null, "runai-gpu-group/g": "g", "runai-gpu-group/h": "h"});
        assert_eq!(several["metadata"]["labels"], labels);
    }

    #[test]
    fn what_is_so_already_is_not_written_and_leaving_takes_all_away() {
        let told_text = json!({"kai.scheduler/gpu-devices": "{\"g\":\"GPU-1\"}"});
        let member = pod(json!({"runai-gpu-group": "g", "app": "x"}), told_text);
        assert_eq!(join(&member, &names(&["g"]), &names(&["GPU-1"])), None);
        assert_eq!(told(&member, "g").as_deref(), Some("GPU-1"));
        let left = leave(&member).expect("a change");
        assert_eq!(left["metadata"]["labels"], json!({"runai-gpu-group": null}));
        assert_eq!(leave(&pod(json!({"app": "x"}), json!({}))), None);
    }

    #[test]
    fn both_forms_of_labels_name_groups() {
        let labels = json!({"runai-gpu-group/a": "a", "runai-gpu-group/b": "b", "app": "x"});
        assert_eq!(groups_of(&pod(labels, json!({}))).into_iter().collect::<Vec<_>>(), ["a", "b"]);
    }
}
