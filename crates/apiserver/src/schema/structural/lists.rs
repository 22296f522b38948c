//! Uniqueness in lists that are sets (`x-kubernetes-list-type: set`) or maps (`map`, by their keys).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::super::{ListType, Schema};
use super::{MAXIMUM_DEPTH, child_path};
use crate::status::FieldError;

/// Duplicates anywhere in the object.
pub(super) fn check(schema: &Schema, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, object, "", &mut errors, 0);
    errors
}

fn walk(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>, depth: usize) {
    if depth > MAXIMUM_DEPTH {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let (child, path) = match (schema.properties.get(name), &schema.additional) {
                    (Some(child), _) => (child, child_path(path, name)),
                    (None, Some(child)) => (child, format!("{path}[{name}]")),
                    (None, None) => continue,
                };
                walk(child, value, &path, errors, depth + 1);
            }
        }
        Value::Array(elements) => {
            match &schema.list_type {
                ListType::Atomic => {}
                ListType::Set => duplicates(elements.clone(), path, errors),
                ListType::Map(keys) => match elements.iter().position(|e| !e.is_object() && !e.is_null()) {
                    Some(index) => errors.push(FieldError::invalid(
                        format!("{path}[{index}]"),
                        &elements[index],
                        "must be an object for an array of list-type map",
                    )),
                    None => duplicates(elements.iter().map(|e| key_of(e, keys)).collect(), path, errors),
                },
            }
            if let Some(items) = &schema.items {
                for (index, element) in elements.iter().enumerate() {
                    walk(items, element, &format!("{path}[{index}]"), errors, depth + 1);
                }
            }
        }
        _ => {}
    }
}

fn key_of(element: &Value, keys: &[String]) -> Value {
    let present = keys.iter().filter_map(|key| Some((key.clone(), element.get(key)?.clone())));
    Value::Object(present.collect::<Map<_, _>>())
}

/// Reports the second appearance of each value; a third is not reported again.
fn duplicates(values: Vec<Value>, path: &str, errors: &mut Vec<FieldError>) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (index, value) in values.into_iter().enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), &value));
        }
    }
}
