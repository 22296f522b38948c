//! The live object with an applied configuration laid over it, and configurations taken out again.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::compare::step;
use super::fields::{Fields, below, contains, field_key};
use super::shape::{Kind, Shape, no_fields};
use crate::patch::MAXIMUM_DEPTH;

/// Lays `applied` over `live`: its leaves win, and lists take its order as far as it has one.
pub(super) fn merge(kind: Kind<'_>, live: &Value, applied: &Value) -> Value {
    let (live, applied) = (live.as_object().unwrap_or(no_fields()), applied.as_object().unwrap_or(no_fields()));
    let mut merged = live.clone();
    for (name, change) in applied {
        let field = if name == "metadata" { kind.metadata() } else { kind.field(name).0 };
        lay_over(&mut merged, name, field, change, 1);
    }
    Value::Object(merged)
}

fn lay_over(object: &mut Map<String, Value>, name: &str, kind: Kind<'_>, change: &Value, depth: usize) {
    let merged = match object.get(name) {
        Some(current) => merge_values(kind, current, change, depth),
        None => change.clone(),
    };
    object.insert(name.to_owned(), merged);
}

fn merge_values(kind: Kind<'_>, live: &Value, applied: &Value, depth: usize) -> Value {
    if depth > MAXIMUM_DEPTH {
        return applied.clone();
    }
    match (kind.shape(applied), live, applied) {
        (Shape::Fields(kind), Value::Object(current), Value::Object(changes)) if !changes.is_empty() => {
            let mut merged = current.clone();
            for (name, change) in changes {
                lay_over(&mut merged, name, kind.field(name).0, change, depth + 1);
            }
            Value::Object(merged)
        }
        // Nothing applied to a struct changes nothing in it.
        (Shape::Fields(_), Value::Object(current), Value::Object(_) | Value::Null) if !current.is_empty() => {
            live.clone()
        }
        (shape @ (Shape::Keyed { .. } | Shape::Set), Value::Array(current), Value::Array(_) | Value::Null)
            if !current.is_empty() =>
        {
            let changes = applied.as_array().map(Vec::as_slice).unwrap_or_default();
            Value::Array(merge_lists(shape, current, changes, depth + 1))
        }
        _ => applied.clone(),
    }
}

/// Merges the elements of two lists: those of `applied` in its order, those only `live` has where they were between them.
fn merge_lists(shape: Shape<'_>, live: &[Value], applied: &[Value], depth: usize) -> Vec<Value> {
    let steps = |items: &[Value]| -> Vec<Option<String>> { items.iter().map(|item| step(shape, item)).collect() };
    let (left, right) = (steps(live), steps(applied));
    // Elements that occur twice on the server are not merged: the applied one takes the place of both.
    let mut unique: BTreeMap<&str, Option<&Value>> = BTreeMap::new();
    for (key, item) in left.iter().zip(live) {
        if let Some(key) = key {
            unique.entry(key).and_modify(|item| *item = None).or_insert(Some(item));
        }
    }
    let named: BTreeMap<&str, &Value> =
        right.iter().zip(applied).filter_map(|(key, item)| Some((key.as_deref()?, item))).collect();
    let element = match shape {
        Shape::Keyed { element, .. } => element,
        _ => Kind::Untyped,
    };
    let merged = |key: &str, item: &Value| match unique.get(key) {
        Some(Some(current)) => merge_values(element, current, item, depth),
        _ => item.clone(),
    };
    let mut shared = right.iter().flatten().filter(|key| unique.contains_key(key.as_str())).peekable();
    let mut done: Vec<&str> = Vec::new();
    let mut list = Vec::with_capacity(live.len().max(applied.len()));
    let (mut l, mut r) = (0, 0);
    while l < live.len() || r < applied.len() {
        let mine = left.get(l).map(|key| key.as_deref().unwrap_or_default());
        let theirs = right.get(r).map(|key| key.as_deref().unwrap_or_default());
        if let (Some(key), Some(other)) = (mine, theirs) {
            if key == other {
                list.extend(applied.get(r).map(|item| merged(key, item)));
                done.push(key);
                (l, r) = (l + 1, r + 1);
                shared.next();
                continue;
            }
            if named.contains_key(key) && shared.peek().is_some_and(|next| *next != key) {
                // Shared, but another shared element comes first in the applied order.
                l += 1;
                continue;
            }
        }
        if let Some(key) = mine {
            if !named.contains_key(key) {
                list.extend(live.get(l).cloned());
                l += 1;
                continue;
            }
            if done.contains(&key) {
                l += 1;
            }
        }
        if let Some(key) = theirs {
            list.extend(applied.get(r).map(|item| merged(key, item)));
            done.push(key);
            r += 1;
            if shared.peek().is_some_and(|next| *next == key) {
                shared.next();
            }
        }
    }
    list
}

/// The object without the fields of `gone`. As in a real server, what loses all its content becomes `null`.
pub(super) fn remove(kind: Kind<'_>, object: &Value, gone: &Fields) -> Value {
    let mut kept = Map::new();
    for (name, value) in object.as_object().unwrap_or(no_fields()) {
        let field = if name == "metadata" { kind.metadata() } else { kind.field(name).0 };
        if let Some(value) = remove_field(field, name, value, gone, 1) {
            kept.insert(name.clone(), value);
        }
    }
    Value::Object(kept)
}

fn remove_field(kind: Kind<'_>, name: &str, value: &Value, gone: &Fields, depth: usize) -> Option<Value> {
    let key = field_key(name);
    if contains(gone, &key) {
        return None;
    }
    match below(gone, &key) {
        Some(gone) if depth <= MAXIMUM_DEPTH => Some(remove_below(kind, value, gone, depth + 1)),
        _ => Some(value.clone()),
    }
}

fn remove_below(kind: Kind<'_>, value: &Value, gone: &Fields, depth: usize) -> Value {
    match (kind.shape(value), value) {
        (Shape::Fields(kind), Value::Object(fields)) => {
            let kept: Map<String, Value> = fields
                .iter()
                .filter_map(|(name, value)| {
                    Some((name.clone(), remove_field(kind.field(name).0, name, value, gone, depth)?))
                })
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (shape @ (Shape::Keyed { .. } | Shape::Set), Value::Array(items)) => {
            let element = match shape {
                Shape::Keyed { element, .. } => element,
                _ => Kind::Untyped,
            };
            let kept: Vec<Value> = items
                .iter()
                .filter_map(|item| {
                    let Some(key) = step(shape, item) else { return Some(item.clone()) };
                    if contains(gone, &key) {
                        return None;
                    }
                    match below(gone, &key) {
                        Some(gone) if depth <= MAXIMUM_DEPTH => Some(remove_below(element, item, gone, depth + 1)),
                        _ => Some(item.clone()),
                    }
                })
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        // A part of a whole cannot be taken out: the whole goes.
        (_, Value::Object(_) | Value::Array(_)) => Value::Null,
        (_, scalar) => scalar.clone(),
    }
}
