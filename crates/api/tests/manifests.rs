//! Manifests of KAI's users go through the types without loss, and the schemas know all their fields.

use kai_api::{BindRequest, Config, PodGroup, Queue, SchedulingShard, Topology};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn documents(yaml: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(yaml).unwrap_or_else(|error| panic!("{error}"))
}

/// Numbers as floats, so that 8 and 8.0 are the same.
fn normal(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(normal).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), normal(value))).collect(),
        other => other.clone(),
    }
}

/// Paths of fields that a server would prune.
fn unknown(path: &str, value: &Value, schema: &Value, found: &mut Vec<String>) {
    if schema["x-kubernetes-preserve-unknown-fields"] == json!(true) {
        return;
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match (schema["properties"].get(name), &schema["additionalProperties"]) {
            (Some(property), _) => unknown(&path, value, property, found),
            (None, Value::Null) => found.push(path),
            (None, values) => unknown(&path, value, values, found),
        }
    }
    for item in value.as_array().into_iter().flatten() {
        unknown(path, item, &schema["items"], found);
    }
}

fn check<T: Serialize + DeserializeOwned>(kind: &str, yaml: &str) {
    let crd = kai_api::crds().into_iter().find(|crd| crd.spec.names.kind == kind).expect("the kind has a CRD");
    let crd = serde_json::to_value(&crd).expect("a CRD is JSON");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    for document in documents(yaml) {
        assert_eq!(document["kind"], kind);
        let mut found = Vec::new();
        for part in ["spec", "status"] {
            unknown(part, &document[part], &schema["properties"][part], &mut found);
        }
        assert_eq!(found, Vec::<String>::new());
        let typed: T = serde_json::from_value(document.clone()).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(normal(&serde_json::to_value(&typed).expect("kinds are JSON")), normal(&document));
    }
}

#[test]
fn manifests_go_through_the_types_without_loss() {
    check::<Queue>("Queue", include_str!("manifests/queues.yaml"));
    check::<PodGroup>("PodGroup", include_str!("manifests/podgroups.yaml"));
    check::<BindRequest>("BindRequest", include_str!("manifests/bindrequests.yaml"));
    check::<Topology>("Topology", include_str!("manifests/topologies.yaml"));
    check::<SchedulingShard>("SchedulingShard", include_str!("manifests/schedulingshards.yaml"));
    check::<Config>("Config", include_str!("manifests/configs.yaml"));
}

#[test]
fn what_go_writes_differently_means_the_same() {
    let queue: Queue = serde_json::from_value(json!({
        "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": { "name": "q" },
        "spec": { "preemptMinRuntime": "300s", "resources": { "gpu": { "limit": -1 } } },
        "status": { "allocated": { "cpu": 2 } }
    }))
    .expect("a queue");
    assert_eq!(queue.spec.preempt_min_runtime.map(|duration| duration.to_string()).as_deref(), Some("5m0s"));
    let gpu = queue.spec.resources.and_then(|resources| resources.gpu).expect("amounts of GPU");
    assert_eq!((gpu.quota, gpu.over_quota_weight, gpu.limit), (0.0, 0.0, kai_api::defaults::UNLIMITED));
    assert_eq!(queue.status.expect("a status").allocated["cpu"].0, "2");

    let group: PodGroup = serde_json::from_value(json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": { "name": "g" },
        "spec": { "minMember": null, "topologyConstraint": {} }
    }))
    .expect("a group");
    assert_eq!(group.spec.min_member, None);
}

#[test]
fn an_empty_map_of_arguments_is_not_the_same_as_none() {
    let shard: SchedulingShard = serde_json::from_value(json!({
        "apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": { "name": "s" },
        "spec": { "plugins": { "cleared": { "arguments": {} }, "untouched": {} } }
    }))
    .expect("a shard");
    assert!(shard.spec.plugins["cleared"].arguments.as_ref().is_some_and(std::collections::BTreeMap::is_empty));
    assert_eq!(shard.spec.plugins["untouched"].arguments, None);
}
