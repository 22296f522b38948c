//! Sets of fields in the form in which objects carry them: the `fieldsV1` tree of `metadata.managedFields`.
//!
//! A key is one step of a path: `f:name` a field, `k:{"name":"x"}` an element of a keyed list, `v:"x"` an element of a set,
//! `i:0` a position. A node without children is a member of the set; a node with children is one when it also has `.`.
//! Working on the tree itself keeps an update from decoding and encoding what it does not touch. Invariant: no node below the
//! root stands for nothing, so a set is empty exactly when its tree is.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::patch::{MAXIMUM_DEPTH, go_html_escaped};

/// A set of fields; the root of the tree.
pub(super) type Fields = Map<String, Value>;

const SELF: &str = ".";

/// Whether the node itself is in the set.
fn is_member(node: &Fields) -> bool {
    node.is_empty() || node.contains_key(SELF)
}

fn has_children(node: &Fields) -> bool {
    node.keys().any(|key| key != SELF)
}

/// A node for a field that is in the set, with what is below it.
pub(super) fn member(mut children: Fields) -> Value {
    if !children.is_empty() {
        children.insert(SELF.to_owned(), Value::Object(Fields::new()));
    }
    Value::Object(children)
}

/// The children of a node; empty for a leaf.
pub(super) fn children(node: &Value) -> impl Iterator<Item = (&String, &Value)> {
    node.as_object().into_iter().flatten().filter(|(key, _)| *key != SELF)
}

/// The node of `key`, if the set has anything there.
pub(super) fn below<'a>(set: &'a Fields, key: &str) -> Option<&'a Fields> {
    set.get(key).and_then(Value::as_object)
}

/// Whether `key` itself is in the set.
pub(super) fn contains(set: &Fields, key: &str) -> bool {
    below(set, key).is_some_and(is_member)
}

/// Puts `key` itself into the set.
pub(super) fn insert(set: &mut Fields, key: String) {
    match set.get_mut(&key) {
        Some(Value::Object(node)) if !is_member(node) => {
            node.insert(SELF.to_owned(), Value::Object(Fields::new()));
        }
        Some(Value::Object(_)) => {}
        _ => {
            set.insert(key, Value::Object(Fields::new()));
        }
    }
}

/// Adds all of `other`.
pub(super) fn unite(set: &mut Fields, other: &Fields) {
    for (key, node) in other.iter().filter(|(key, _)| *key != SELF) {
        match (set.get_mut(key), node) {
            (Some(Value::Object(mine)), Value::Object(theirs)) => {
                let member = is_member(mine) || is_member(theirs);
                unite(mine, theirs);
                settle(mine, member);
            }
            _ => {
                set.insert(key.clone(), node.clone());
            }
        }
    }
}

/// Takes out the members of `other`; fields below them stay.
pub(super) fn subtract(set: &mut Fields, other: &Fields) {
    for (key, node) in other.iter().filter(|(key, _)| *key != SELF) {
        let (Some(Value::Object(mine)), Value::Object(theirs)) = (set.get_mut(key), node) else { continue };
        let member = is_member(mine) && !is_member(theirs);
        mine.remove(SELF);
        subtract(mine, theirs);
        if mine.is_empty() && !member {
            set.remove(key);
        } else {
            settle(mine, member);
        }
    }
}

/// The members that both sets have.
pub(super) fn intersection(left: &Fields, right: &Fields) -> Fields {
    let mut both = Fields::new();
    for (key, node) in left.iter().filter(|(key, _)| *key != SELF) {
        let (Value::Object(mine), Some(theirs)) = (node, below(right, key)) else { continue };
        let mut inner = intersection(mine, theirs);
        let member = is_member(mine) && is_member(theirs);
        if member || !inner.is_empty() {
            settle(&mut inner, member);
            both.insert(key.clone(), Value::Object(inner));
        }
    }
    both
}

/// Takes out the field at `path` and everything below it.
pub(super) fn remove_path(set: &mut Fields, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else { return };
    let key = format!("f:{first}");
    if rest.is_empty() {
        set.remove(&key);
        return;
    }
    let Some(Value::Object(node)) = set.get_mut(&key) else { return };
    let member = is_member(node);
    node.remove(SELF);
    remove_path(node, rest);
    if node.is_empty() && !member {
        set.remove(&key);
    } else {
        settle(node, member);
    }
}

/// The part of the set at or below one of `paths`, in which `*` stands for any step.
pub(super) fn keep_paths(set: &Fields, paths: &[&[&str]]) -> Fields {
    let mut kept = Fields::new();
    for (key, node) in set.iter().filter(|(key, _)| *key != SELF) {
        let matches = |path: &&&[&str]| {
            path.first().is_some_and(|step| *step == "*" || key.strip_prefix("f:").is_some_and(|name| name == *step))
        };
        let rest: Vec<&[&str]> = paths.iter().filter(matches).filter_map(|path| path.get(1..)).collect();
        if rest.iter().any(|path| path.is_empty()) {
            kept.insert(key.clone(), node.clone());
        } else if let (false, Value::Object(node)) = (rest.is_empty(), node) {
            let inner = keep_paths(node, &rest);
            if !inner.is_empty() {
                kept.insert(key.clone(), Value::Object(inner));
            }
        }
    }
    kept
}

/// Makes the `.` of a node say whether it is a member, now that its children are final.
fn settle(node: &mut Fields, member: bool) {
    if member && has_children(node) {
        node.insert(SELF.to_owned(), Value::Object(Fields::new()));
    } else {
        node.remove(SELF);
    }
}

/// Checks a tree that a client sent and brings it into the one form that equal sets have; `false` when it is not readable.
pub(super) fn normalize(set: &mut Fields) -> bool {
    set.remove(SELF);
    normalize_children(set, 0)
}

fn normalize_children(node: &mut Fields, depth: usize) -> bool {
    if depth > MAXIMUM_DEPTH {
        return false;
    }
    for (key, mut child) in std::mem::take(node) {
        if key == SELF {
            node.insert(key, Value::Object(Fields::new()));
            continue;
        }
        let key = match normal_key(key) {
            Key::Readable(key) => key,
            // A later version may know what it is.
            Key::Unknown => continue,
            Key::Broken => return false,
        };
        match &mut child {
            Value::Null => child = Value::Object(Fields::new()),
            Value::Object(inner) => {
                if !normalize_children(inner, depth + 1) {
                    return false;
                }
                let member = is_member(inner);
                settle(inner, member);
            }
            _ => return false,
        }
        node.insert(key, child);
    }
    true
}

enum Key {
    Readable(String),
    Unknown,
    Broken,
}

fn normal_key(key: String) -> Key {
    let Some((kind, rest)) = key.split_at_checked(2) else { return Key::Broken };
    match kind {
        "f:" => Key::Readable(key),
        "i:" => match rest.parse::<i64>() {
            Ok(position) => Key::Readable(format!("i:{position}")),
            Err(_) => Key::Broken,
        },
        "v:" => match serde_json::from_str::<Value>(rest) {
            Ok(value) => Key::Readable(value_key(&value)),
            Err(_) => Key::Broken,
        },
        "k:" => match serde_json::from_str::<Fields>(rest) {
            Ok(fields) => Key::Readable(element_key(fields.iter().map(|(k, v)| (k.as_str(), v)))),
            Err(_) => Key::Broken,
        },
        _ if kind.ends_with(':') => Key::Unknown,
        _ => Key::Broken,
    }
}

/// The step to the field `name`.
pub(super) fn field_key(name: &str) -> String {
    let mut key = String::with_capacity(name.len() + 2);
    key.push_str("f:");
    key.push_str(name);
    key
}

/// The step to the element `value` of a set.
pub(super) fn value_key(value: &Value) -> String {
    let mut key = "v:".to_owned();
    push_value(&mut key, value);
    key
}

/// The step to the element of a keyed list; the keys must come in sorted order.
pub(super) fn element_key<'a>(keys: impl Iterator<Item = (&'a str, &'a Value)>) -> String {
    let mut key = "k:{".to_owned();
    for (index, (name, value)) in keys.enumerate() {
        if index > 0 {
            key.push(',');
        }
        push_text(&mut key, name);
        key.push(':');
        push_value(&mut key, value);
    }
    key.push('}');
    key
}

fn push_text(key: &mut String, text: &str) {
    let plain = |b: u8| (0x20..0x7f).contains(&b) && !matches!(b, b'"' | b'\\' | b'<' | b'>' | b'&');
    if text.bytes().all(plain) {
        key.push('"');
        key.push_str(text);
        key.push('"');
    } else {
        key.push_str(&go_html_escaped(Value::from(text).to_string()));
    }
}

fn push_value(key: &mut String, value: &Value) {
    match value {
        Value::String(text) => push_text(key, text),
        // 80.0 and 80 are the same element; 2^53 bounds the floats that are whole numbers beyond doubt.
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 => {
                // Writing to a string cannot fail.
                let _ = write!(key, "{float:.0}");
            }
            _ => key.push_str(&number.to_string()),
        },
        other => key.push_str(&go_html_escaped(other.to_string())),
    }
}
