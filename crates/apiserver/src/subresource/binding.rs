//! Binding a pod to a node: what a scheduler does, once per pod.

use std::sync::Arc;

use axum::response::Response;
use serde_json::{Map, Value, json};

use super::admit;
use crate::http::answer;
use crate::http::call::Call;
use crate::http::query::{DryRun, OptionsKind};
use crate::status::{ApiError, Subject};
use crate::store::Refusal;
use crate::verbs::write::{metadata_of, text};

/// Sets the node of the pod that the body names.
pub(crate) async fn bind(call: &mut Call) -> Result<Response, ApiError> {
    let dry_run = call.query.dry_run(OptionsKind::Create)?;
    let mut binding = call.decode("Binding")?.value;
    let posted_to_pod = call.path.subresource.is_some();
    if posted_to_pod && text(&binding, "name") != call.name() {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
    }
    let namespace = call.namespace().unwrap_or_default().to_owned();
    if !matches!(text(&binding, "namespace"), "") && text(&binding, "namespace") != namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(message));
    }
    let node = check_target(&binding)?.to_owned();
    metadata_of(&mut binding).insert("namespace".to_owned(), json!(namespace));
    admit(call, if posted_to_pod { "binding" } else { "" }, &mut binding, dry_run).await?;
    assign(call, &binding, &node, dry_run)?;
    Ok(answer::success(201))
}

fn check_target(binding: &Value) -> Result<&str, ApiError> {
    // The real server does not wrap these in a reason either.
    let refuse = |message: String| Err(ApiError::new(500, "", message));
    let kind = binding.pointer("/target/kind").and_then(Value::as_str).unwrap_or_default();
    if !matches!(kind, "" | "Node") {
        let kind = Value::from(kind);
        return refuse(format!("target.kind: Unsupported value: {kind}: supported values: \"Node\", \"<empty>\""));
    }
    match binding.pointer("/target/name").and_then(Value::as_str) {
        Some(name) if !name.is_empty() => Ok(name),
        _ => refuse("target.name: Required value".to_owned()),
    }
}

fn assign(call: &Call, binding: &Value, node: &str, dry_run: DryRun) -> Result<(), ApiError> {
    let registry = call.core.registry();
    let name = text(binding, "name");
    let Some(pods) = registry.find("", "v1", "pods").map(Arc::clone) else { return Err(ApiError::no_such_resource()) };
    let refuse = |why: String| {
        Err(ApiError::conflict(Subject { group: "", resource: "pods/binding", kind: "Binding", name }, why))
    };
    loop {
        let missing = || ApiError::not_found(pods.resource.subject(name));
        let object = call.core.store.get(&pods.storage.key, &call.pod_key(name)).ok_or_else(missing)?;
        let mut pod = object.value();
        for (field, label) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            let (wanted, found) = (text(binding, field), text(&pod, field));
            if !wanted.is_empty() && wanted != found {
                let why =
                    format!("Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {found}");
                return Err(ApiError::conflict(pods.resource.subject(name), why));
            }
        }
        if object.facts.deleting {
            return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        if let Some(other) = pod.pointer("/spec/nodeName").and_then(Value::as_str).filter(|node| !node.is_empty()) {
            return refuse(format!("pod {name} is already assigned to node \"{other}\""));
        }
        if pod.pointer("/spec/schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty()) {
            return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        if dry_run == DryRun::Yes {
            return Ok(());
        }
        pod["spec"]["nodeName"] = json!(node);
        // Labels of the binding do not reach the pod: that is for a later version of Kubernetes.
        copy(binding, &mut pod, "annotations");
        set_condition(&mut pod, json!({"type": "PodScheduled", "status": "True"}), &call.core.now_text());
        match call.core.replace(&pods, &object.key, object.revision, &pod) {
            Ok(_) => return Ok(()),
            Err(Refusal::Changed) => {}
            Err(_) => return Err(missing()),
        }
    }
}

fn copy(binding: &Value, pod: &mut Value, name: &str) {
    let Some(from) = binding.pointer(&format!("/metadata/{name}")).and_then(Value::as_object) else { return };
    let to = metadata_of(pod).entry(name).or_insert_with(|| Value::Object(Map::new()));
    if let Some(to) = to.as_object_mut() {
        to.extend(from.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
}

/// Sets a condition; the time of its transition moves only when its status changes.
pub(super) fn set_condition(object: &mut Value, mut condition: Value, now: &str) {
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) else { return };
    let found = conditions.iter_mut().find(|other| other["type"] == condition["type"]);
    condition["lastTransitionTime"] = match &found {
        Some(old) if old["status"] == condition["status"] => old["lastTransitionTime"].clone(),
        _ => json!(now),
    };
    match found {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}
