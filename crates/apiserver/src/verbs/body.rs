//! From a request body to an object of the resource: type, unknown fields, defaults.

use serde_json::{Map, Value};

use crate::builtin::defaults;
use crate::crd;
use crate::http::call::Call;
use crate::http::decode::Decoded;
use crate::http::query::FieldValidation;
use crate::registry::Entry;
use crate::schema::{Schema, structural};
use crate::status::{ApiError, FieldError};
use crate::store::DEFINITIONS;

/// Nesting below which nulls are looked for; no schema of Kubernetes is deeper.
const DEPTH_LIMIT: usize = 64;

/// Turns a decoded body into an object: checks its type, drops what the schema does not know, fills in defaults.
pub(crate) fn object(call: &mut Call, decoded: Decoded, validation: FieldValidation) -> Result<Value, ApiError> {
    let Decoded { mut value, duplicates } = decoded;
    check_type(call, &mut value)?;
    let mut complaints: Vec<String> = duplicates.iter().map(|path| format!("duplicate field \"{path}\"")).collect();
    complaints.extend(shape(&call.entry, &mut value)?);
    complain(call, complaints, validation)?;
    set_defaults(&call.entry, &mut value);
    Ok(value)
}

/// Refuses, warns or ignores.
pub(crate) fn complain(call: &mut Call, complaints: Vec<String>, validation: FieldValidation) -> Result<(), ApiError> {
    match validation {
        FieldValidation::Strict if !complaints.is_empty() => {
            Err(undecodable(&call.entry, &format!("strict decoding error: {}", complaints.join(", "))))
        }
        FieldValidation::Warn => {
            call.warnings.extend(complaints);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// 400 for an object that does not decode into its kind.
pub(crate) fn undecodable(entry: &Entry, why: &str) -> ApiError {
    let gvk = &entry.resource.gvk;
    ApiError::bad_request(format!(
        "{} in version \"{}\" cannot be handled as a {}: {why}",
        gvk.kind, gvk.version, gvk.kind
    ))
}

/// Gives an object the shape of its schema and says what was dropped.
pub(crate) fn shape(entry: &Entry, value: &mut Value) -> Result<Vec<String>, ApiError> {
    if let Some(metadata) = value.get("metadata")
        && !metadata.is_object()
        && !metadata.is_null()
    {
        return Err(undecodable(entry, "json: cannot unmarshal metadata into Go struct field of type v1.ObjectMeta"));
    }
    let schema = entry.resource.schema.as_deref();
    if entry.is_builtin() {
        drop_nulls(value, schema, 0);
        if let Some(schema) = schema
            && let Some(first) = structural::type_errors(schema, value).first()
        {
            return Err(undecodable(entry, first));
        }
        if let Some(why) = defaults::undecodable_quantity(&entry.resource.gvk, value) {
            return Err(undecodable(entry, &why));
        }
    }
    if let Some(map) = value.as_object_mut() {
        map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    }
    let unknown = schema.map(|schema| structural::prune(schema, value)).unwrap_or_default();
    Ok(unknown.into_iter().map(|path| format!("unknown field \"{path}\"")).collect())
}

/// Fills in what is not said.
pub(crate) fn set_defaults(entry: &Entry, value: &mut Value) {
    if entry.is_builtin() {
        defaults::set_defaults(&entry.resource.gvk, value);
        if &*entry.storage.key == DEFINITIONS {
            crd::prepare(value);
        }
    } else if let Some(schema) = &entry.resource.schema {
        structural::set_defaults(schema, value);
    }
}

/// Checks `apiVersion` and `kind` against the resource; the kinds of Kubernetes may leave them out.
pub(crate) fn check_type(call: &Call, value: &mut Value) -> Result<(), ApiError> {
    let entry = &call.entry;
    let gvk = &entry.resource.gvk;
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if !entry.is_builtin() && (kind.is_empty() || api_version.is_empty()) {
        let missing = if kind.is_empty() { "Kind" } else { "apiVersion" };
        let message = format!(
            "the object provided is unrecognized (must be of type {}): Object '{missing}' is missing in '{value}'",
            gvk.kind
        );
        return Err(ApiError::bad_request(message));
    }
    if !api_version.is_empty() && api_version != entry.api_version {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            entry.api_version
        )));
    }
    if !kind.is_empty() && kind != gvk.kind {
        if entry.is_builtin() {
            let message = format!(
                "{kind} in version \"{}\" cannot be handled as a {}: no kind \"{kind}\" is registered for version \"{}\"",
                gvk.version, gvk.kind, entry.api_version
            );
            return Err(ApiError::bad_request(message));
        }
        let error = FieldError::invalid("kind", &Value::from(kind), format!("must be {}", gvk.kind));
        return Err(ApiError::invalid(entry.resource.subject(name_of(value)), &[error]));
    }
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".to_owned(), Value::from(entry.api_version.as_str()));
        map.insert("kind".to_owned(), Value::from(gvk.kind.as_str()));
    }
    Ok(())
}

/// `metadata.name`, or nothing.
pub(crate) fn name_of(value: &Value) -> &str {
    value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// Removes fields that are null: the typed decoding of the real server does not tell them from absent ones. Free-form parts keep them.
fn drop_nulls(value: &mut Value, schema: Option<&Schema>, depth: usize) {
    let schema = schema.map(Schema::resolved);
    if depth > DEPTH_LIMIT || schema.is_some_and(|schema| schema.preserve_unknown_fields) {
        return;
    }
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            for (name, value) in map.iter_mut().filter(|(_, value)| value.is_object() || value.is_array()) {
                drop_nulls(value, schema.and_then(|schema| schema.field(name)), depth + 1);
            }
        }
        Value::Array(list) => {
            for value in list {
                drop_nulls(value, schema.and_then(Schema::element), depth + 1);
            }
        }
        _ => {}
    }
}
