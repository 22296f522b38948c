//! Tables of pods and what is said about them.

mod changes;
mod refusals;

use serde_json::{Value, json};

use crate::{
    review::{Consent, Refusal, Request},
    rules::Settings,
};

/// A pod of our scheduler with these annotations and one container `main`.
fn pod(notes: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team", "annotations": notes},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "cuda"}]},
    })
}

fn request(operation: &str, user: &str, old: &Value, object: &Value) -> Request {
    let request = json!({
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "namespace": "team", "operation": operation,
        "userInfo": {"username": user}, "object": object, "oldObject": old,
    });
    serde_json::from_value(request).unwrap()
}

fn validate(settings: &Settings, object: &Value) -> Result<Vec<String>, String> {
    said(super::validate(settings, &request("CREATE", "alice", &Value::Null, object)))
}

fn update(user: &str, old: &Value, object: &Value) -> Result<Vec<String>, String> {
    said(super::validate(&Settings::default(), &request("UPDATE", user, old, object)))
}

fn said(verdict: Result<Consent, Refusal>) -> Result<Vec<String>, String> {
    verdict.map(|consent| consent.warnings).map_err(|refusal| refusal.message)
}

/// The pod as it is after the change.
fn mutate(settings: &Settings, object: &Value) -> Result<Value, String> {
    let consent = super::mutate(settings, &request("CREATE", "alice", &Value::Null, object));
    let mut changed = object.clone();
    if let Some(patch) = consent.map_err(|refusal| refusal.message)?.patch {
        json_patch::patch(&mut changed, &patch).unwrap();
    }
    Ok(changed)
}
