//! JSON, merge and strategic-merge patch: what the new object is, given the current one and a patch.
//!
//! Each function answers as a kube-apiserver does, down to the corners where it departs from the RFCs (see the submodules).
//! Defaulting, pruning and validation of the result belong to the caller; strategic merge drops the `null`s that decoding into a
//! typed object would drop, the other two leave them in.

mod go_text;
mod json;
mod strategic;

use serde_json::{Map, Value};

pub(crate) use go_text::{go_html_escaped, go_pointer, go_quote, go_syntax, go_type};

use crate::schema::Schema;
use crate::status::ApiError;

/// Deepest nesting a patched object may have; decoders stop at 128, so only patches that build depth step by step reach it.
pub(crate) const MAXIMUM_DEPTH: usize = 200;

/// Applies an RFC 6902 patch given as the request body.
///
/// A body that is no list of operations answers 400, more than 10,000 operations 413, and an operation that does not apply 422.
pub fn json_patch(current: &Value, body: &[u8]) -> Result<Value, ApiError> {
    json::apply(current, json::decode(body)?)
}

/// Applies an RFC 7396 patch.
///
/// As in the library that kube-apiserver uses, `null`s inside a list that replaces another list are dropped from its objects.
pub fn merge_patch(current: &Value, patch: &Value) -> Value {
    let mut result = current.clone();
    merge_value(&mut result, patch, 0);
    result
}

/// Reads the body of a merge patch: 400 unless it is a JSON object.
pub fn merge_patch_document(body: &[u8]) -> Result<Value, ApiError> {
    let patch: Value =
        serde_json::from_slice(body).map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))?;
    match patch {
        Value::Object(_) => Ok(patch),
        Value::Null => Err(ApiError::bad_request("Invalid JSON Patch")),
        other => Err(ApiError::bad_request(format!("error decoding patch: {}", not_a_map(&other)))),
    }
}

/// Applies a strategic merge patch, driven by the merge keys and strategies of `schema`.
pub fn strategic_merge_patch(current: &Value, patch: &Value, schema: &Schema) -> Result<Value, ApiError> {
    match patch {
        Value::Object(patch) => strategic::apply(current, patch, schema),
        Value::Null => strategic::apply(current, &Map::new(), schema),
        other => Err(ApiError::bad_request(not_a_map(other))),
    }
}

fn not_a_map(value: &Value) -> String {
    let found = match value {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Null | Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")
}

/// The 422 of an operation that could not be applied; the real server keeps the reason to itself.
pub(crate) fn unprocessable() -> ApiError {
    ApiError {
        details: Some(Value::Object(Map::new())),
        ..ApiError::new(422, "Invalid", "the server rejected our request due to an error in our request")
    }
}

/// A failure that a real server does not wrap in a `Status` reason: code 500 and the bare message.
pub(crate) fn unclassified(message: impl Into<String>) -> ApiError {
    ApiError::new(500, "", message)
}

fn merge_value(current: &mut Value, patch: &Value, depth: usize) {
    match (current, patch) {
        (Value::Object(current), Value::Object(patch)) if depth < MAXIMUM_DEPTH => {
            for (key, change) in patch {
                if change.is_null() {
                    current.remove(key);
                    continue;
                }
                match current.get_mut(key) {
                    Some(value) if !value.is_null() => merge_value(value, change, depth + 1),
                    _ => {
                        current.insert(key.clone(), without_nulls(change));
                    }
                }
            }
        }
        // An object that gives way to a list or scalar takes it as it is; anything else takes it pruned.
        (current @ Value::Object(_), patch) => *current = patch.clone(),
        (current, patch) => *current = without_nulls(patch),
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v))).collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests;
