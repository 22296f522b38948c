//! Replica counts through `autoscaling/v1` Scale, for workloads and for custom resources that say where theirs are.

use std::sync::Arc;

use axum::response::Response;
use serde_json::{Value, json};

use crate::apply::{self, Force};
use crate::http::answer;
use crate::http::call::Call;
use crate::http::query::OptionsKind;
use crate::patch as patches;
use crate::registry::Entry;
use crate::resource::{Origin, lookup};
use crate::select::LabelSelector;
use crate::status::{ApiError, FieldError, Subject};
use crate::verbs::write::{Intent, Ownership, Written, metadata_of, store_over, text};

const APPLY: &str = "application/apply-patch+yaml";

/// Reads, replaces or patches the scale of the object in the path.
pub(crate) async fn scale(call: &mut Call, verb: &str) -> Result<Response, ApiError> {
    let object = call.stored()?;
    let mut current = call.entry.served(&object);
    if verb == "get" {
        return Ok(answer::json(200, &of(&call.entry, &current)?));
    }
    let kind = if verb == "update" { OptionsKind::Update } else { OptionsKind::Patch };
    let intent = Intent::of(call, kind, Some("scale"))?;
    let mut object = object;
    loop {
        let before = of(&call.entry, &current)?;
        let wanted = wanted(call, verb, &before)?;
        let insists = verb == "update" && !matches!(text(&wanted, "resourceVersion"), "" | "0");
        let mut new = current.clone();
        set_replicas(call, &mut new, &wanted)?;
        let mut ownership = Ownership::Record;
        if call.media_type() == APPLY && verb != "update" {
            new = applied(call, &intent, &current, &wanted)?;
            ownership = Ownership::Recorded;
        }
        let version = text(&wanted, "resourceVersion");
        metadata_of(&mut new).insert("resourceVersion".to_owned(), json!(version));
        let uid = text(&wanted, "uid");
        if !uid.is_empty() {
            metadata_of(&mut new).insert("uid".to_owned(), json!(uid));
        }
        match store_over(call, &intent, &object, &current, new, ownership).await? {
            Written::Overtaken if !insists => {
                object = call.stored()?;
                current = call.entry.served(&object);
            }
            Written::Stored(stored) => return Ok(answer::json(200, &of(&call.entry, &call.entry.served(&stored))?)),
            Written::Rehearsed(value) | Written::Removed(value) => {
                return Ok(answer::json(200, &of(&call.entry, &value)?));
            }
            Written::Overtaken => return Err(crate::verbs::write::modified(call)),
        }
    }
}

/// The object after a scale was applied to it: the applier owns the count, and nothing else.
fn applied(call: &Call, intent: &Intent, live: &Value, wanted: &Value) -> Result<Value, ApiError> {
    let gvk = &call.entry.resource.gvk;
    let mut configuration =
        json!({"apiVersion": call.entry.api_version, "kind": gvk.kind, "metadata": {"name": call.name()}});
    if let Some(replicas) = wanted.pointer("/spec/replicas").and_then(Value::as_i64).filter(|count| *count != 0) {
        put_replicas(&call.entry, &mut configuration, replicas);
    }
    let force = if call.query.flag("force") { Force::Yes } else { Force::No };
    let now = call.core.now_text();
    let schema = call.entry.resource.schema.as_deref();
    apply::apply(Some(live), &configuration, schema, &intent.writer(call, &now), force)
}

/// The scale that the body asks for.
fn wanted(call: &Call, verb: &str, before: &Value) -> Result<Value, ApiError> {
    if verb == "update" {
        let scale = call.decode("Scale")?.value;
        let name = text(&scale, "name");
        if !name.is_empty() && name != call.name() {
            let why = format!("the name of the object ({name}) does not match the name on the URL ({})", call.name());
            return Err(ApiError::bad_request(why));
        }
        return Ok(scale);
    }
    let parse = || -> Result<Value, ApiError> {
        serde_json::from_slice(&call.body)
            .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))
    };
    match call.media_type() {
        "application/json-patch+json" => patches::json_patch(before, &call.body),
        "application/merge-patch+json" => Ok(patches::merge_patch(before, &parse()?)),
        "application/strategic-merge-patch+json" if call.entry.is_builtin() => {
            // A scale has no lists: merging it strategically is merging it.
            Ok(patches::merge_patch(before, &parse()?))
        }
        APPLY => {
            if call.query.text("fieldManager").is_none() {
                let error = FieldError::required("fieldManager", "is required for apply patch");
                return Err(OptionsKind::Patch.invalid(&[error]));
            }
            let applied = crate::http::decode::yaml(&call.body).map_err(ApiError::bad_request)?;
            Ok(patches::merge_patch(before, &applied))
        }
        _ => Err(ApiError::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            APPLY,
        ])),
    }
}

/// The paths of the desired and the current count.
fn paths(entry: &Entry) -> (&str, &str) {
    match &entry.resource.origin {
        Origin::Custom { scale: Some(scale), .. } => (&scale.spec_replicas, &scale.status_replicas),
        _ => ("spec.replicas", "status.replicas"),
    }
}

/// The scale of an object.
fn of(entry: &Arc<Entry>, object: &Value) -> Result<Value, ApiError> {
    let (spec, status) = paths(entry);
    let replicas = match lookup(object, spec).and_then(Value::as_i64) {
        Some(replicas) => replicas,
        None if entry.is_builtin() => 0,
        None => return Err(ApiError::internal(format!("the spec replicas field \"{spec}\" does not exist"))),
    };
    let mut metadata = json!({});
    for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.get("metadata").and_then(|metadata| metadata.get(name)) {
            metadata[name] = value.clone();
        }
    }
    let current = lookup(object, status).and_then(Value::as_i64).unwrap_or(0);
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {}, "status": {"replicas": current},
    });
    // The real server leaves a zero out.
    if replicas != 0 {
        scale["spec"]["replicas"] = json!(replicas);
    }
    let selector = selector(entry, object)?;
    if !selector.is_empty() {
        scale["status"]["selector"] = json!(selector);
    }
    Ok(scale)
}

fn selector(entry: &Entry, object: &Value) -> Result<String, ApiError> {
    if let Origin::Custom { scale, .. } = &entry.resource.origin {
        let path = scale.as_ref().and_then(|scale| scale.label_selector.as_deref());
        return Ok(path.and_then(|path| lookup(object, path)).and_then(Value::as_str).unwrap_or_default().to_owned());
    }
    let Some(selector) = lookup(object, "spec.selector").filter(|selector| selector.is_object()) else {
        return Ok(String::new());
    };
    // A ReplicationController has plain labels where the others have a LabelSelector.
    let selector = if entry.resource.plural == "replicationcontrollers" {
        json!({"matchLabels": selector})
    } else {
        selector.clone()
    };
    Ok(LabelSelector::from_value(&selector)?.to_string())
}

fn set_replicas(call: &Call, object: &mut Value, scale: &Value) -> Result<(), ApiError> {
    let wanted = scale.pointer("/spec/replicas").filter(|value| !value.is_null()).cloned().unwrap_or(json!(0));
    let Some(replicas) = wanted.as_i64() else {
        return Err(ApiError::bad_request(
            "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal spec.replicas into Go struct field ScaleSpec.spec.replicas of type int32",
        ));
    };
    if replicas < 0 {
        if let Origin::Custom { scale: Some(scale), .. } = &call.entry.resource.origin {
            let error = FieldError::invalid(&*scale.spec_replicas, &wanted, "should be a non-negative integer");
            return Err(ApiError::invalid(call.subject(), &[error]));
        }
        let subject = Subject { group: "autoscaling", resource: "scales", kind: "Scale", name: call.name() };
        let error = FieldError::invalid("spec.replicas", &wanted, "must be greater than or equal to 0");
        return Err(ApiError::invalid(subject, &[error]));
    }
    put_replicas(&call.entry, object, replicas);
    Ok(())
}

fn put_replicas(entry: &Entry, object: &mut Value, replicas: i64) {
    let (path, _) = paths(entry);
    let mut at = object;
    for segment in path.trim_start_matches('.').split('.') {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[segment];
    }
    *at = json!(replicas);
}
