//! Which fields differ between two versions of an object.
//!
//! `apiVersion`, `kind` and the metadata that the server itself keeps are never compared, because no one ever owns them.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fields::{Fields, field_key, member};
use super::shape::{Kind, Shape, no_fields, same, set_key};
use crate::patch::MAXIMUM_DEPTH;

/// Top-level fields without owners.
pub(super) const UNOWNED: [&str; 2] = ["apiVersion", "kind"];

/// Fields of `metadata` without owners.
pub(super) const UNOWNED_METADATA: [&str; 9] = [
    "clusterName",
    "creationTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// The difference between two objects, as three sets of fields.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) added: Fields,
    pub(super) modified: Fields,
    pub(super) removed: Fields,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    pub(super) fn each(&mut self, change: impl Fn(&mut Fields)) {
        change(&mut self.added);
        change(&mut self.modified);
        change(&mut self.removed);
    }

    fn absorb(&mut self, key: &str, below: Difference) {
        for (set, node) in
            [(&mut self.added, below.added), (&mut self.modified, below.modified), (&mut self.removed, below.removed)]
        {
            if let Some(node) = node {
                set.insert(key.to_owned(), node);
            }
        }
    }
}

/// What differs at one field and below; nodes of the three sets.
#[derive(Debug, Default)]
struct Difference {
    added: Option<Value>,
    modified: Option<Value>,
    removed: Option<Value>,
}

impl Difference {
    fn modified() -> Self {
        Self { modified: Some(Value::Object(Fields::new())), ..Self::default() }
    }

    fn below(changes: Changes) -> Self {
        let node = |set: Fields| if set.is_empty() { None } else { Some(Value::Object(set)) };
        Self { added: node(changes.added), modified: node(changes.modified), removed: node(changes.removed) }
    }
}

/// Compares two objects; `old` may be an empty object, which has the structs that every typed object has.
pub(super) fn compare(kind: Kind<'_>, old: &Value, new: &Value) -> Changes {
    let mut changes = Changes::default();
    let (old, new) = (old.as_object().unwrap_or(no_fields()), new.as_object().unwrap_or(no_fields()));
    zip(old, new, |name, left, right| {
        if UNOWNED.contains(&name) {
            return;
        }
        if name == "metadata" {
            let left = left.and_then(Value::as_object).unwrap_or(no_fields());
            let right = right.and_then(Value::as_object).unwrap_or(no_fields());
            let metadata = compare_metadata(kind.metadata(), left, right);
            changes.absorb("f:metadata", Difference::below(metadata));
        } else {
            changes.absorb(&field_key(name), compare_field(kind, name, left, right, 1));
        }
    });
    changes
}

fn compare_metadata(kind: Kind<'_>, old: &Map<String, Value>, new: &Map<String, Value>) -> Changes {
    let mut changes = Changes::default();
    zip(old, new, |name, left, right| {
        if !UNOWNED_METADATA.contains(&name) {
            changes.absorb(&field_key(name), compare_field(kind, name, left, right, 2));
        }
    });
    changes
}

fn compare_field(
    parent: Kind<'_>,
    name: &str,
    left: Option<&Value>,
    right: Option<&Value>,
    depth: usize,
) -> Difference {
    let kind = parent.field(name).0;
    match (left, right) {
        (Some(left), Some(right)) => compare_values(kind, left, right, depth),
        (None, Some(right)) => match parent.zero(name) {
            Some(zero) => compare_values(kind, zero, right, depth),
            None => Difference { added: Some(all_of(kind, right, depth)), ..Difference::default() },
        },
        (Some(left), None) => match parent.zero(name) {
            Some(zero) => compare_values(kind, left, zero, depth),
            None => Difference { removed: Some(all_of(kind, left, depth)), ..Difference::default() },
        },
        (None, None) => Difference::default(),
    }
}

fn compare_values(kind: Kind<'_>, left: &Value, right: &Value, depth: usize) -> Difference {
    if depth > MAXIMUM_DEPTH {
        return if same(left, right) { Difference::default() } else { Difference::modified() };
    }
    let (of_left, of_right) = (kind.shape(left), kind.shape(right));
    if left.is_null() || of_left.is_like(&of_right) {
        return compare_shaped(of_right, left, right, depth);
    }
    if right.is_null() {
        return compare_shaped(of_left, left, right, depth);
    }
    // The type changed: what was is gone, what is came, and the field itself was modified if either is a whole.
    let was = compare_shaped(of_left, left, right, depth);
    let is = compare_shaped(of_right, left, right, depth);
    Difference {
        added: is.added.or(was.added),
        modified: is.modified.or(was.modified),
        removed: was.removed.or(is.removed),
    }
}

fn compare_shaped(shape: Shape<'_>, left: &Value, right: &Value, depth: usize) -> Difference {
    match shape {
        Shape::Fields(kind) => {
            let old = left.as_object().unwrap_or(no_fields());
            let new = right.as_object().unwrap_or(no_fields());
            if !old.is_empty() || !new.is_empty() {
                let mut changes = Changes::default();
                zip(old, new, |name, left, right| {
                    // Most fields are equal: no key is made for them.
                    let difference = compare_field(kind, name, left, right, depth + 1);
                    if difference.added.is_some() || difference.modified.is_some() || difference.removed.is_some() {
                        changes.absorb(&field_key(name), difference);
                    }
                });
                return Difference::below(changes);
            }
        }
        Shape::Set | Shape::Keyed { .. } => {
            let old = left.as_array().map(Vec::as_slice).unwrap_or_default();
            let new = right.as_array().map(Vec::as_slice).unwrap_or_default();
            if !old.is_empty() || !new.is_empty() {
                if old == new {
                    return Difference::default();
                }
                return Difference::below(compare_lists(shape, old, new, depth + 1));
            }
        }
        Shape::Whole => {}
    }
    if same(left, right) { Difference::default() } else { Difference::modified() }
}

fn compare_lists(shape: Shape<'_>, old: &[Value], new: &[Value], depth: usize) -> Changes {
    let mut changes = Changes::default();
    let (old, new) = (index(shape, old), index(shape, new));
    let element = match shape {
        Shape::Keyed { element, .. } => element,
        _ => Kind::Untyped,
    };
    let leaf = || Some(Value::Object(Fields::new()));
    zip_sorted(old.iter(), new.iter(), |key, left, right| {
        let left = left.map(Vec::as_slice).unwrap_or_default();
        let right = right.map(Vec::as_slice).unwrap_or_default();
        let difference = match (left, right) {
            ([left], [right]) => compare_values(element, left, right, depth),
            ([], [right]) => Difference { added: Some(all_of(element, right, depth)), ..Difference::default() },
            ([left], []) => Difference { removed: Some(all_of(element, left, depth)), ..Difference::default() },
            // Elements that occur twice are one whole: they have no fields of their own that could be told apart.
            ([_, _, ..], [_, _, ..]) => {
                let equal = left.len() == right.len() && left.iter().zip(right).all(|(l, r)| same(l, r));
                if equal { Difference::default() } else { Difference::modified() }
            }
            ([_, _, ..], rest) => Difference {
                added: rest.first().map(|right| all_of(element, right, depth)),
                removed: leaf(),
                ..Difference::default()
            },
            (rest, [_, _, ..]) => Difference {
                added: leaf(),
                removed: rest.first().map(|left| all_of(element, left, depth)),
                ..Difference::default()
            },
            ([], []) => Difference::default(),
        };
        changes.absorb(key, difference);
    });
    changes
}

/// List elements by their step; elements that have none are left out, as they cannot be owned.
fn index<'a>(shape: Shape<'_>, items: &'a [Value]) -> BTreeMap<String, Vec<&'a Value>> {
    let mut by_key: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Some(key) = step(shape, item) {
            by_key.entry(key).or_default().push(item);
        }
    }
    by_key
}

/// The step to a list element, if it has one.
pub(super) fn step(shape: Shape<'_>, item: &Value) -> Option<String> {
    match shape {
        Shape::Keyed { keys, element } => element.element_key(keys, item).ok(),
        Shape::Set => set_key(item).ok(),
        Shape::Whole | Shape::Fields(_) => None,
    }
}

/// The node of a value that is new (or gone) with everything in it.
fn all_of(kind: Kind<'_>, value: &Value, depth: usize) -> Value {
    let mut below = Fields::new();
    if depth > MAXIMUM_DEPTH {
        return Value::Object(below);
    }
    match (kind.shape(value), value) {
        (Shape::Fields(kind), Value::Object(fields)) => {
            for (name, value) in fields {
                below.insert(field_key(name), all_of(kind.field(name).0, value, depth + 1));
            }
            for (name, empty) in kind.struct_fields() {
                if !fields.contains_key(name) {
                    below.insert(field_key(name), all_of(kind.field(name).0, empty, depth + 1));
                }
            }
        }
        (shape @ (Shape::Keyed { .. } | Shape::Set), Value::Array(items)) => {
            let element = match shape {
                Shape::Keyed { element, .. } => element,
                _ => Kind::Untyped,
            };
            for item in items {
                let Some(key) = step(shape, item) else { continue };
                let twice = below.contains_key(&key);
                below.insert(key, if twice { Value::Object(Fields::new()) } else { all_of(element, item, depth + 1) });
            }
        }
        _ => {}
    }
    member(below)
}

fn zip<'a>(
    left: &'a Map<String, Value>,
    right: &'a Map<String, Value>,
    visit: impl FnMut(&str, Option<&'a Value>, Option<&'a Value>),
) {
    zip_sorted(left.iter(), right.iter(), visit);
}

/// Visits the keys of two sorted sequences in order, each once.
fn zip_sorted<'a, V: 'a>(
    left: impl Iterator<Item = (&'a String, &'a V)>,
    right: impl Iterator<Item = (&'a String, &'a V)>,
    mut visit: impl FnMut(&str, Option<&'a V>, Option<&'a V>),
) {
    let (mut left, mut right) = (left.peekable(), right.peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (Some((l, _)), Some((r, _))) => l.cmp(r),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return,
        };
        let l = if order.is_le() { left.next() } else { None };
        let r = if order.is_ge() { right.next() } else { None };
        if let Some((key, _)) = l.or(r) {
            visit(key, l.map(|(_, v)| v), r.map(|(_, v)| v));
        }
    }
}
