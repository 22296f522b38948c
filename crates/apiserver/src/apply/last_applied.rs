//! The bridge from client-side apply: `kubectl apply` keeps its last configuration in an annotation.
//!
//! When kubectl turns to server-side apply, fields that the annotation states and that still have the stated value are kubectl's
//! own, so taking them is no conflict; and the annotation is kept up to date so that one can turn back.

use serde_json::Value;

use super::compare::compare;
use super::field_set::fields_of;
use super::fields::{Fields, subtract};
use super::shape::Kind;
use super::validate;
use crate::patch::go_html_escaped;

/// The only manager for which the annotation counts.
pub(super) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Most bytes that all annotations of an object may have.
const MAXIMUM_ANNOTATIONS: usize = 256 * 1024;

fn annotation(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// The fields that the annotation states and that `live` has with the stated value.
pub(super) fn stated_and_unchanged(kind: Kind<'_>, live: &Value, api_version: &str) -> Fields {
    let Some(last) = annotation(live).and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
        return Fields::new();
    };
    let is_same_version = last.get("apiVersion").and_then(Value::as_str) == Some(api_version);
    if !is_same_version || validate::problems(kind, &last).is_some() {
        return Fields::new();
    }
    let mut stated = fields_of(kind, &last);
    let changes = compare(kind, &last, live);
    for set in [&changes.modified, &changes.added, &changes.removed] {
        subtract(&mut stated, set);
    }
    stated
}

/// Writes the applied configuration into the annotation if the object has it, or drops it when it would become too large.
pub(super) fn update(object: &mut Value, applied: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut stated = applied.clone();
    if let Some(Value::Object(annotations)) = stated.pointer_mut("/metadata/annotations") {
        annotations.remove(ANNOTATION);
    }
    let text = format!("{}\n", go_html_escaped(stated.to_string()));
    let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") else { return };
    annotations.insert(ANNOTATION.to_owned(), Value::String(text));
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
    if size > MAXIMUM_ANNOTATIONS {
        annotations.remove(ANNOTATION);
    }
}
