//! What a structural schema does to an object: prune, default, validate.
//!
//! The questions are those of the real server, in its order: unknown fields are dropped (and reported to strict clients), nulls that
//! mean nothing are dropped, missing fields get their defaults, then values are checked, then list keys, then CEL rules. On update a
//! value that was already wrong and did not change is let through ("ratcheting").

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::cel;
use super::types;
use super::{ListType, Schema};
use crate::status::FieldError;

mod lists;
mod values;

/// Objects are not followed further down than this; no body that the server accepts is nested so far.
const MAXIMUM_DEPTH: usize = 256;
/// Fields that every object has, whatever its schema says.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Removes fields the schema does not know and returns their paths (`spec.foo`, `spec.containers[0].bar`), sorted.
///
/// `apiVersion`, `kind` and `metadata` of the object, and of objects embedded in it, are known.
pub fn prune(schema: &Schema, object: &mut Value) -> Vec<String> {
    let mut pruner = Pruner { path: String::new(), removed: Vec::new() };
    pruner.prune(schema, object, Whole::Yes, 0);
    pruner.removed.sort();
    pruner.removed
}

/// Fills in defaults, after dropping nulls where the schema allows none.
///
/// The defaults of built-in kinds are no business of their schema (see `builtin::defaults`): for those this does nothing.
pub fn set_defaults(schema: &Schema, object: &mut Value) {
    if schema.reference.is_none() {
        drop_nulls(schema, object, 0);
        fill(schema, object, 0);
    }
}

/// What is wrong with a custom object: types, limits, list keys, embedded objects, then CEL rules if nothing stands in their way.
///
/// `old` is the object before an update. Built-in kinds are validated by `builtin::validation`; for those this finds nothing.
pub fn validate(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if schema.reference.is_some() {
        return Vec::new();
    }
    let mut errors = values::check(schema, object, old);
    embedded_objects(schema, object, "", Whole::Yes, &mut errors, 0);
    if old.is_none_or(|old| lists::check(schema, old).is_empty()) {
        errors.extend(lists::check(schema, object));
    }
    if schema.has_rules {
        if errors.iter().any(stands_in_the_way) {
            errors.push(FieldError::invalid(
                "<nil>",
                &Value::Null,
                "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
            ));
        } else {
            errors.extend(cel::check(schema, object, old));
        }
    }
    errors
}

/// Values of a built-in kind that cannot be decoded into its Go type, in the words of Go's JSON decoder.
pub fn type_errors(schema: &Schema, object: &Value) -> Vec<String> {
    types::check(schema, object)
}

/// Errors that would make a CEL rule see a value of the wrong shape.
fn stands_in_the_way(error: &FieldError) -> bool {
    matches!(
        error.reason,
        "FieldValueNotSupported"
            | "FieldValueRequired"
            | "FieldValueTooLong"
            | "FieldValueTooMany"
            | "FieldValueTypeInvalid"
    )
}

/// Whether a value is a whole Kubernetes object, with type and metadata of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whole {
    Yes,
    No,
}

impl Whole {
    fn of(schema: &Schema) -> Self {
        if schema.embedded_resource { Self::Yes } else { Self::No }
    }
}

/// Appends `name` to a path, with a dot where one is needed.
fn child_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

struct Pruner {
    path: String,
    removed: Vec<String>,
}

impl Pruner {
    fn prune(&mut self, schema: &Schema, value: &mut Value, whole: Whole, depth: usize) {
        let schema = schema.resolved();
        self.value(schema, value, whole, schema.preserve_unknown_fields, depth);
    }

    fn value(&mut self, schema: &Schema, value: &mut Value, whole: Whole, keeps_unknown: bool, depth: usize) {
        if depth > MAXIMUM_DEPTH {
            return;
        }
        match value {
            Value::Object(fields) => self.prune_fields(schema, fields, whole, keeps_unknown, depth),
            Value::Array(elements) => {
                let nothing = Schema::default();
                let items = match &schema.items {
                    Some(items) => items.resolved(),
                    None if keeps_unknown => return,
                    // A list where none may be: its elements have no known fields.
                    None => &nothing,
                };
                let length = self.path.len();
                for (index, element) in elements.iter_mut().enumerate() {
                    // Writing to a string cannot fail.
                    let _ = write!(self.path, "[{index}]");
                    let keeps_unknown = keeps_unknown || items.preserve_unknown_fields;
                    self.value(items, element, Whole::of(items), keeps_unknown, depth + 1);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn prune_fields(
        &mut self,
        schema: &Schema,
        fields: &mut Map<String, Value>,
        whole: Whole,
        keeps_unknown: bool,
        depth: usize,
    ) {
        let length = self.path.len();
        fields.retain(|name, value| {
            if !self.path.is_empty() {
                self.path.push('.');
            }
            self.path.push_str(name);
            let known = self.keep(schema, name, value, whole, depth);
            if !known && !keeps_unknown {
                self.removed.push(self.path.clone());
            }
            self.path.truncate(length);
            known || keeps_unknown
        });
    }

    fn keep(&mut self, schema: &Schema, name: &str, value: &mut Value, whole: Whole, depth: usize) -> bool {
        if whole == Whole::Yes && OBJECT_FIELDS.contains(&name) {
            if name == "metadata" {
                self.prune(&Schema::reference_to(OBJECT_META), value, Whole::No, depth + 1);
            }
            return true;
        }
        let Some(child) = schema.properties.get(name).or(schema.additional.as_ref()) else { return false };
        self.prune(child, value, Whole::of(child.resolved()), depth + 1);
        true
    }
}

fn drop_nulls(schema: &Schema, value: &mut Value, depth: usize) {
    if depth > MAXIMUM_DEPTH {
        return;
    }
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let Some(child) = schema.field(name) else { return true };
            if value.is_null() && !child.nullable && child.default.is_none() {
                return false;
            }
            drop_nulls(child, value, depth + 1);
            true
        }),
        Value::Array(elements) => {
            if let Some(items) = &schema.items {
                for element in elements {
                    drop_nulls(items, element, depth + 1);
                }
            }
        }
        _ => {}
    }
}

fn fill(schema: &Schema, value: &mut Value, depth: usize) {
    if depth > MAXIMUM_DEPTH {
        return;
    }
    let replace = |child: &Schema, value: &mut Value| {
        if value.is_null() && !child.nullable {
            *value = child.default.clone().unwrap_or_default();
        }
        fill(child, value, depth + 1);
    };
    match value {
        Value::Object(fields) => {
            for (name, child) in &schema.properties {
                if let Some(default) = &child.default
                    && !fields.contains_key(name)
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(child) = schema.field(name) {
                    replace(child, value);
                }
            }
        }
        Value::Array(elements) => {
            if let Some(items) = &schema.items {
                for element in elements {
                    replace(items, element);
                }
            }
        }
        _ => {}
    }
}

/// Embedded objects must say what they are.
fn embedded_objects(
    schema: &Schema,
    value: &Value,
    path: &str,
    root: Whole,
    errors: &mut Vec<FieldError>,
    depth: usize,
) {
    if depth > MAXIMUM_DEPTH {
        return;
    }
    match value {
        Value::Object(fields) => {
            if schema.embedded_resource && root == Whole::No {
                for name in ["apiVersion", "kind"] {
                    if fields.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                        errors.push(FieldError::required(child_path(path, name), ""));
                    }
                }
            }
            for (name, value) in fields {
                if let Some(child) = schema.field(name) {
                    embedded_objects(child, value, &child_path(path, name), Whole::No, errors, depth + 1);
                }
            }
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                if let Some(items) = &schema.items {
                    embedded_objects(items, element, &format!("{path}[{index}]"), Whole::No, errors, depth + 1);
                }
            }
        }
        _ => {}
    }
}

/// The element of an old list that `element` continues, for lists whose elements have keys.
pub(super) fn counterpart<'a>(schema: &Schema, element: &Value, old: Option<&'a Value>) -> Option<&'a Value> {
    let ListType::Map(keys) = &schema.list_type else { return None };
    let key_of = |value: &Value, key: &String| {
        let default = || schema.items.as_deref().and_then(|i| i.field(key)).and_then(|f| f.default.clone());
        value.get(key).cloned().or_else(default)
    };
    let mut same = old?.as_array()?.iter().filter(|o| keys.iter().all(|key| key_of(o, key) == key_of(element, key)));
    let found = same.next();
    if same.next().is_some() { None } else { found }
}

/// The children of an object's field or all other fields, in the order of the schema's names.
pub(super) fn children<'a>(
    schema: &'a Schema,
    fields: &'a Map<String, Value>,
) -> impl Iterator<Item = (&'a String, &'a Arc<Schema>, &'a Value)> {
    fields.iter().filter_map(move |(name, value)| {
        let child = schema.properties.get(name).or(schema.additional.as_ref())?;
        Some((name, child, value))
    })
}

#[cfg(test)]
mod tests;
