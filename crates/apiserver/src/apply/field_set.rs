//! The set of fields that a configuration states, and what a set means under a schema.

use serde_json::Value;

use super::compare::step;
use super::fields::{Fields, children, field_key, insert};
use super::shape::{Kind, Shape, no_fields};
use crate::patch::MAXIMUM_DEPTH;

/// Every leaf of `object`, every list element, and every key of a map; fields of structs count only by what is in them.
pub(super) fn fields_of(kind: Kind<'_>, object: &Value) -> Fields {
    let mut set = Fields::new();
    for (name, value) in object.as_object().unwrap_or(no_fields()) {
        let named = kind.field(name).1;
        let field = if name == "metadata" { kind.metadata() } else { kind.field(name).0 };
        state_field(&mut set, field, name, value, named, 1);
    }
    set
}

fn state_field(set: &mut Fields, kind: Kind<'_>, name: &str, value: &Value, named: bool, depth: usize) {
    let key = field_key(name);
    let mut inner = Fields::new();
    let whole = state_below(&mut inner, kind, value, depth);
    if !inner.is_empty() {
        set.insert(key.clone(), Value::Object(inner));
    }
    let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    if whole || empty || !named {
        insert(set, key);
    }
}

/// Adds what is below a value; tells whether the value itself is a leaf.
fn state_below(set: &mut Fields, kind: Kind<'_>, value: &Value, depth: usize) -> bool {
    if depth > MAXIMUM_DEPTH {
        return true;
    }
    match (kind.shape(value), value) {
        (Shape::Fields(kind), Value::Object(fields)) => {
            for (name, value) in fields {
                let (field, named) = kind.field(name);
                state_field(set, field, name, value, named, depth + 1);
            }
        }
        (shape @ (Shape::Keyed { .. } | Shape::Set), Value::Array(items)) => {
            let element = match shape {
                Shape::Keyed { element, .. } => element,
                _ => Kind::Untyped,
            };
            let steps: Vec<Option<String>> = items.iter().map(|item| step(shape, item)).collect();
            for (key, item) in steps.iter().zip(items) {
                let Some(key) = key else { continue };
                let mut inner = Fields::new();
                if steps.iter().filter(|other| other.as_ref() == Some(key)).count() == 1 {
                    state_below(&mut inner, element, item, depth + 1);
                }
                if !inner.is_empty() {
                    set.insert(key.clone(), Value::Object(inner));
                }
                insert(set, key.clone());
            }
        }
        (Shape::Whole, _) => return true,
        _ => {}
    }
    false
}

/// The set with every struct field that it reaches into made a member.
pub(super) fn with_named_fields(kind: Kind<'_>, set: &Fields) -> Fields {
    named(kind, set, 0)
}

fn named(kind: Kind<'_>, set: &Fields, depth: usize) -> Fields {
    let mut result = set.clone();
    if depth > MAXIMUM_DEPTH {
        return result;
    }
    for (key, node) in set {
        if children(node).next().is_none() {
            continue;
        }
        let (child, is_named) = child_of(kind, key, depth);
        if let Value::Object(inner) = node {
            result.insert(key.clone(), Value::Object(named(child, inner, depth + 1)));
        }
        if is_named {
            insert(&mut result, key.clone());
        }
    }
    result
}

fn child_of<'a>(kind: Kind<'a>, key: &str, depth: usize) -> (Kind<'a>, bool) {
    match key.split_at_checked(2) {
        Some(("f:", "metadata")) if depth == 0 => (kind.metadata(), kind.field("metadata").1),
        Some(("f:", name)) => kind.field(name),
        Some(("k:", _)) => (kind.element(), false),
        _ => (Kind::Untyped, false),
    }
}

/// Collapses what the set has inside of values that are now one whole, after a change of the schema.
pub(super) fn reconcile(kind: Kind<'_>, set: &mut Fields) {
    reconcile_below(kind, set, 0);
}

fn reconcile_below(kind: Kind<'_>, set: &mut Fields, depth: usize) {
    if depth > MAXIMUM_DEPTH {
        return;
    }
    for (key, node) in set.iter_mut() {
        let Value::Object(inner) = node else { continue };
        let Some(first) = inner.keys().find(|key| *key != ".") else { continue };
        let example = if first.starts_with("f:") { Value::Object(Fields::new()) } else { Value::Array(Vec::new()) };
        let child = child_of(kind, key, depth).0;
        match child {
            Kind::Known { .. } if matches!(child.shape(&example), Shape::Whole) => inner.clear(),
            Kind::Known { .. } => reconcile_below(child, inner, depth + 1),
            _ => {}
        }
    }
}
