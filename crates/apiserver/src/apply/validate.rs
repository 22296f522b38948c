//! Whether a configuration fits its schema well enough to be merged, in the words of structured-merge-diff.

use std::collections::BTreeSet;

use serde_json::Value;

use super::path::step_text;
use super::shape::{Kind, set_key};
use crate::patch::{MAXIMUM_DEPTH, go_pointer, go_syntax, go_type};
use crate::schema::{ListType, Type};

/// Everything wrong with `object`, as one message; `None` when nothing is.
pub(super) fn problems(kind: Kind<'_>, object: &Value) -> Option<String> {
    let mut found = Vec::new();
    let mut path = Vec::new();
    check_fields(kind, object, &mut path, &mut found);
    match found.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("errors:\n  {}", many.join("\n  "))),
    }
}

type Path = Vec<String>;

fn report(found: &mut Vec<String>, path: &Path, what: &str) {
    let path = path.concat();
    found.push(if path.is_empty() { what.to_owned() } else { format!("{path}: {what}") });
}

fn check(kind: Kind<'_>, value: &Value, path: &mut Path, found: &mut Vec<String>) {
    let Kind::Known { node, .. } = kind else { return };
    if path.len() > MAXIMUM_DEPTH || value.is_null() {
        return;
    }
    let schema = node.resolved();
    match (schema.kind, value) {
        (Type::Any, Value::Object(_)) | (Type::Object, _) => check_fields(kind, value, path, found),
        (Type::Any, Value::Array(_)) | (Type::Array, _) => check_elements(kind, value, path, found),
        (Type::String, _) if matches!(schema.format.as_deref(), None | Some("" | "byte")) => {
            if !value.is_string() {
                report(found, path, &format!("expected string, got {}", go_syntax(value)));
            }
        }
        (Type::Integer | Type::Number, _) => {
            if !value.is_number() {
                report(found, path, &format!("expected numeric (int or float), got {}", go_type(value)));
            }
        }
        (Type::Boolean, _) => {
            if !value.is_boolean() {
                report(found, path, &format!("expected boolean, got {}", go_pointer(value)));
            }
        }
        (Type::String | Type::IntOrString, Value::Object(_) | Value::Array(_)) => {
            report(found, path, &format!("expected any scalar, got {}", go_pointer(value)));
        }
        (Type::Any | Type::String | Type::IntOrString, _) => {}
    }
}

fn check_fields(kind: Kind<'_>, value: &Value, path: &mut Path, found: &mut Vec<String>) {
    let Value::Object(fields) = value else {
        return report(found, path, &format!("expected map, got {}", go_pointer(value)));
    };
    let root = path.is_empty();
    for (name, value) in fields {
        let (child, named) = kind.field(name);
        let child = if root && name == "metadata" { kind.metadata() } else { child };
        path.push(format!(".{name}"));
        if !named && is_closed(kind) && !(root && matches!(name.as_str(), "apiVersion" | "kind" | "metadata")) {
            report(found, path, "field not declared in schema");
            path.pop();
            return;
        }
        check(child, value, path, found);
        path.pop();
    }
}

/// Whether a field that the schema does not name is a mistake.
fn is_closed(kind: Kind<'_>) -> bool {
    let Kind::Known { node, open, .. } = kind else { return false };
    let schema = node.resolved();
    let free_form = schema.properties.is_empty() || schema.additional.is_some();
    !(open || schema.preserve_unknown_fields || schema.embedded_resource || free_form)
}

fn check_elements(kind: Kind<'_>, value: &Value, path: &mut Path, found: &mut Vec<String>) {
    let Value::Array(items) = value else {
        return report(found, path, &format!("expected list, got {}", go_pointer(value)));
    };
    let Kind::Known { node, .. } = kind else { return };
    let list_type = match &node.list_type {
        ListType::Atomic => &node.resolved().list_type,
        stated => stated,
    };
    let element = kind.element();
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let step = match list_type {
            ListType::Atomic => Ok(None),
            ListType::Set => set_key(item).map(Some),
            ListType::Map(keys) => element.element_key(keys, item).map(Some),
        };
        match step {
            Ok(None) => path.push(format!("[{index}]")),
            Ok(Some(key)) => {
                let text = step_text(&key);
                if !seen.insert(key) {
                    report(found, path, &format!("duplicate entries for key {text}"));
                }
                path.push(text);
            }
            Err(why) => return report(found, path, &format!("element {index}: {why}")),
        }
        check(element, item, path, found);
        path.pop();
    }
}
