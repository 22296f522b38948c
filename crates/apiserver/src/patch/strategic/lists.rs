//! Merging and ordering of lists in a strategic merge patch.
//!
//! The order of a merged list: what the patch names comes in the order of the patch (or of `$setElementOrder`), what only the
//! server has keeps its order, and the two are interleaved by the positions they had on the server.

use serde_json::Value;

use super::{
    DIRECTIVE, Field, Object, SET_ELEMENT_ORDER, bad_type, directive_target, list_field, merge_objects,
    unknown_directive, without_directives,
};
use crate::patch::go_text::go_value;
use crate::patch::{unclassified, unprocessable};
use crate::schema::Schema;
use crate::status::ApiError;

const LIST: &str = "[]interface {}";
const OBJECT: &str = "map[string]interface {}";

/// What the elements of a list are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Elements {
    Objects,
    Scalars,
}

/// Carries out the `$setElementOrder` directives of `patch`, together with the lists they are about.
pub(super) fn order(
    original: &mut Object,
    patch: &mut Object,
    schema: Option<&Schema>,
    depth: usize,
) -> Result<(), ApiError> {
    let directives: Vec<String> = patch.keys().filter(|k| k.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let Some(wanted) = patch.remove(&directive) else { continue };
        let Value::Array(wanted) = wanted else { return Err(bad_type(LIST, &wanted)) };
        let Some(target) = directive_target(&directive, SET_ELEMENT_ORDER)? else { continue };
        let current = list(original.get(target))?;
        let change = list(patch.get(target))?;
        let field = list_field(schema, target)?;
        let key = field.strategy.merge_key.as_deref();
        check_order(change.unwrap_or_default(), &wanted, key)?;
        let elements = element_kind(&[current.unwrap_or_default(), change.unwrap_or_default()]);
        let server_order = current.map(<[Value]>::to_vec).unwrap_or_default();
        let merged = match (current, change) {
            (None, None) => continue,
            (Some(current), None) => current.to_vec(),
            (None, Some(change)) => change.iter().cloned().filter_map(without_directives).collect(),
            (Some(current), Some(change)) => merge(current.to_vec(), change.to_vec(), &field, false, depth)?,
        };
        let (named, server_only) = partition(merged, &wanted, key)?;
        let list = interleave(named, server_only, &wanted, &server_order, key, elements?)?;
        original.insert(target.to_owned(), Value::Array(list));
        patch.remove(target);
    }
    Ok(())
}

fn list(value: Option<&Value>) -> Result<Option<&[Value]>, ApiError> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(bad_type(LIST, other)),
    }
}

/// Merges a list of the patch into the list of the server, or replaces it when its strategy is not to merge.
pub(super) fn merge(
    original: Vec<Value>,
    patch: Vec<Value>,
    field: &Field<'_>,
    deletes: bool,
    depth: usize,
) -> Result<Vec<Value>, ApiError> {
    if !field.strategy.merge && !deletes {
        return Ok(patch);
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let elements = element_kind(&[&original, &patch])?;
    if elements == Elements::Scalars {
        if deletes {
            return Ok(original.into_iter().filter(|item| !patch.contains(item)).collect());
        }
        let mut merged: Vec<Value> = Vec::with_capacity(original.len() + patch.len());
        for item in original.iter().chain(&patch) {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        // Scalars have no merge key, even where the schema names one.
        let (named, server_only) = partition(merged, &patch, None)?;
        return interleave(named, server_only, &patch, &original, None, elements);
    }
    let Some(key) = field.strategy.merge_key.as_deref() else {
        return Err(unclassified("cannot merge lists without merge key for struct"));
    };
    let (original, patch) = special_elements(original, patch, key)?;
    let merged = merge_elements(original.clone(), &patch, key, field.schema, depth)?;
    let (named, server_only) = partition(merged, &patch, Some(key))?;
    interleave(named, server_only, &patch, &original, Some(key), elements)
}

/// Carries out the elements with `$patch` and takes them out of the patch.
fn special_elements(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), ApiError> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut replaces = false;
    for element in patch {
        let Some(fields) = element.as_object() else { return Err(bad_type(OBJECT, &element)) };
        let Some(directive) = fields.get(DIRECTIVE) else {
            plain.push(element);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let value = fields.get(key).ok_or_else(|| no_merge_key(&element, key))?;
                if let Some(position) = original.iter().position(|o| !o.is_object()) {
                    return Err(unclassified(format!("value for key {position} is not a map")));
                }
                original.retain(|o| o.get(key) != Some(value));
            }
            Some("replace") => replaces = true,
            Some("merge") => return Err(unclassified("merging lists cannot yet be specified in the patch")),
            _ => return Err(unknown_directive(directive, fields)),
        }
    }
    if replaces { Ok((plain, Vec::new())) } else { Ok((original, plain)) }
}

fn merge_elements(
    mut original: Vec<Value>,
    patch: &[Value],
    key: &str,
    schema: Option<&Schema>,
    depth: usize,
) -> Result<Vec<Value>, ApiError> {
    for element in patch {
        let value = element.get(key).ok_or_else(|| no_merge_key(element, key))?;
        let found = original.iter_mut().find(|o| o.get(key) == Some(value));
        match (found, element) {
            (Some(Value::Object(fields)), Value::Object(change)) => {
                *fields = merge_objects(std::mem::take(fields), change.clone(), schema, depth + 1)?;
            }
            _ => original.push(element.clone()),
        }
    }
    Ok(original)
}

/// Splits `items` into those that `by` names and the others.
fn partition(items: Vec<Value>, by: &[Value], key: Option<&str>) -> Result<(Vec<Value>, Vec<Value>), ApiError> {
    let Some(key) = key else { return Ok(items.into_iter().partition(|item| by.contains(item))) };
    for item in &items {
        if !item.is_object() {
            return Err(bad_type(OBJECT, item));
        }
        if item.get(key).is_none() {
            return Err(no_merge_key(item, key));
        }
    }
    if let Some(position) = by.iter().position(|b| !b.is_object()).filter(|_| !items.is_empty()) {
        return Err(unclassified(format!("value for key {position} is not a map")));
    }
    Ok(items.into_iter().partition(|item| by.iter().any(|b| b.get(key).is_some() && b.get(key) == item.get(key))))
}

fn interleave(
    named: Vec<Value>,
    server_only: Vec<Value>,
    wanted: &[Value],
    server_order: &[Value],
    key: Option<&str>,
    elements: Elements,
) -> Result<Vec<Value>, ApiError> {
    let position = |list: &[Value], item: &Value| match (elements, key) {
        (Elements::Objects, Some(key)) => list.iter().position(|l| l.get(key) == item.get(key)),
        _ => list.iter().position(|l| l == item),
    };
    let sorted = |mut items: Vec<Value>, by: &[Value]| -> Result<Vec<Value>, ApiError> {
        if let (Elements::Objects, Some(key)) = (elements, key) {
            for item in items.iter().chain(by) {
                if !item.is_object() {
                    return Err(bad_type(OBJECT, item));
                }
                if item.get(key).is_none() {
                    return Err(no_merge_key(item, key));
                }
            }
        }
        items.sort_by_key(|item| position(by, item));
        Ok(items)
    };
    let mut left = sorted(server_only, server_order)?.into_iter().peekable();
    let mut right = sorted(named, wanted)?.into_iter().peekable();
    let mut list = Vec::with_capacity(left.len() + right.len());
    loop {
        let next = match (left.peek(), right.peek()) {
            (Some(server), Some(wanted)) => match (position(server_order, server), position(server_order, wanted)) {
                (Some(l), Some(r)) if l < r => left.next(),
                _ => right.next(),
            },
            (Some(_), None) => left.next(),
            (None, _) => right.next(),
        };
        match next {
            Some(item) => list.push(item),
            None => return Ok(list),
        }
    }
}

/// Refuses a `$setElementOrder` that does not name all elements of the patch in their order.
fn check_order(patch: &[Value], wanted: &[Value], key: Option<&str>) -> Result<(), ApiError> {
    if patch.is_empty() || wanted.is_empty() {
        return Ok(());
    }
    if let Some(other) = patch.iter().find(|p| key.is_some() && !p.is_object()) {
        return Err(bad_type(OBJECT, other));
    }
    let mut rest = patch.iter().filter(|p| p.get(DIRECTIVE).is_none()).peekable();
    for item in wanted {
        let Some(next) = rest.peek() else { return Ok(()) };
        let same = match key {
            None => *next == item,
            Some(key) => {
                if !item.is_object() {
                    return Err(bad_type(OBJECT, item));
                }
                let left = next.get(key).ok_or_else(|| no_merge_key(next, key))?;
                let right = item.get(key).ok_or_else(|| no_merge_key(item, key))?;
                left == right
            }
        };
        if same {
            rest.next();
        }
    }
    if rest.peek().is_none() {
        return Ok(());
    }
    Err(unclassified(format!(
        "The order in patch list:\n{}\n doesn't match {SET_ELEMENT_ORDER} list:\n{}\n",
        go_value(&Value::Array(patch.to_vec())),
        go_value(&Value::Array(wanted.to_vec())),
    )))
}

/// All elements must be of one type, and lists of lists are not supported.
fn element_kind(lists: &[&[Value]]) -> Result<Elements, ApiError> {
    let mut elements = lists.iter().copied().flatten();
    let Some(first) = elements.next() else {
        return Err(unclassified("no elements in any of the given slices"));
    };
    if first.is_array() {
        return Err(unprocessable());
    }
    let kind = super::go_type(first);
    if elements.any(|e| super::go_type(e) != kind) {
        let lists: Vec<Value> = lists.iter().map(|l| Value::Array(l.to_vec())).collect();
        return Err(unclassified(format!("list element types are not identical: {}", go_value(&Value::Array(lists)))));
    }
    Ok(if first.is_object() { Elements::Objects } else { Elements::Scalars })
}

fn no_merge_key(element: &Value, key: &str) -> ApiError {
    unclassified(format!("map: {} does not contain declared merge key: {key}", go_value(element)))
}
