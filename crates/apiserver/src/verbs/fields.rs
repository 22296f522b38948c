//! Selectable fields: which there are, and their values in an object.

use std::borrow::Cow;

use serde_json::Value;

use crate::builtin::strategy;
use crate::registry::{Entry, Storage};
use crate::resource::{Origin, lookup};

/// The selectable fields of a stored object besides name and namespace.
pub(crate) fn selectable(storage: &Storage, entry: &Entry, stored: &Value) -> Vec<(Cow<'static, str>, String)> {
    match &entry.resource.origin {
        Origin::BuiltIn => {
            let fields = strategy::selectable_fields(&storage.gvk, stored);
            fields.into_iter().map(|(name, value)| (Cow::Borrowed(name), value)).collect()
        }
        Origin::Custom { selectable_fields, .. } => selectable_fields
            .iter()
            .map(|path| {
                let value = match lookup(stored, path) {
                    Some(Value::String(text)) => text.clone(),
                    Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
                    _ => String::new(),
                };
                (Cow::Owned(path.trim_start_matches('.').to_owned()), value)
            })
            .collect(),
    }
}

/// Whether a field selector may name this field.
pub(crate) fn is_supported(entry: &Entry, field: &str) -> bool {
    if matches!(field, "metadata.name" | "metadata.namespace") {
        return true;
    }
    match &entry.resource.origin {
        Origin::BuiltIn => {
            strategy::supports_field(&entry.resource.gvk, field) || strategy::supports_field(&entry.storage.gvk, field)
        }
        Origin::Custom { selectable_fields, .. } => {
            selectable_fields.iter().any(|path| path.trim_start_matches('.') == field)
        }
    }
}
