//! Strategic merge patch: a merge patch that knows which lists are keyed.
//!
//! Terms: the *merge key* names the field that identifies an element of a list (`name` of a container); a *directive* is a key
//! that starts with `$`: `$patch` deletes or replaces, `$retainKeys` drops all fields not named, `$setElementOrder/x` orders the
//! list `x`, `$deleteFromPrimitiveList/x` takes scalars out of it. Keys of a patch are visited in sorted order.

mod lists;

use serde_json::{Map, Value};

use super::go_text::{go_type, go_value};
use super::{MAXIMUM_DEPTH, unclassified, unprocessable};
use crate::schema::{PatchStrategy, Schema, Type};
use crate::status::ApiError;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";

type Object = Map<String, Value>;

/// Applies `patch` to `current` and drops the `null`s that the result of a typed decode would not have.
pub(super) fn apply(current: &Value, patch: &Object, schema: &Schema) -> Result<Value, ApiError> {
    let original = current.as_object().cloned().unwrap_or_default();
    let mut merged = merge_objects(original, patch.clone(), Some(schema), 0)?;
    drop_nulls(&mut merged, schema, 0);
    Ok(Value::Object(merged))
}

/// What is known of a field that both sides have: the schema below it and how it merges.
struct Field<'a> {
    schema: Option<&'a Schema>,
    strategy: PatchStrategy,
}

fn merge_objects(
    mut original: Object,
    mut patch: Object,
    schema: Option<&Schema>,
    depth: usize,
) -> Result<Object, ApiError> {
    if depth > MAXIMUM_DEPTH {
        return Err(unprocessable());
    }
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(unknown_directive(directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    lists::order(&mut original, &mut patch, schema, depth)?;
    for (key, change) in patch {
        let (key, deletes) = match directive_target(&key, DELETE_FROM_PRIMITIVE_LIST)? {
            Some(target) => (target.to_owned(), true),
            None => (key, false),
        };
        if change.is_null() {
            original.remove(&key);
            continue;
        }
        match (original.remove(&key), change) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let field = field(schema, &key)?;
                original.insert(key, Value::Object(merge_objects(old, new, field.schema, depth + 1)?));
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                let field = list_field(schema, &key)?;
                original.insert(key, Value::Array(lists::merge(old, new, &field, deletes, depth)?));
            }
            (Some(old), _) if deletes => {
                original.insert(key, old);
            }
            (None, _) if deletes => {}
            (_, change) => {
                if let Some(value) = without_directives(change) {
                    original.insert(key, value);
                }
            }
        }
    }
    Ok(original)
}

fn unknown_directive(directive: &Value, patch: &Object) -> ApiError {
    unclassified(format!(
        "unknown patch type: {} in map: {}",
        go_value(directive),
        go_value(&Value::Object(patch.clone()))
    ))
}

/// The field that a directive such as `$setElementOrder/finalizers` is about; `None` for other keys.
fn directive_target<'a>(key: &'a str, prefix: &str) -> Result<Option<&'a str>, ApiError> {
    let Some(rest) = key.strip_prefix(prefix) else { return Ok(None) };
    match rest.strip_prefix('/') {
        Some(target) => Ok(Some(target)),
        None if prefix == DELETE_FROM_PRIMITIVE_LIST => {
            Err(ApiError::bad_request("invalid patch format of primitive list"))
        }
        None => Err(ApiError::bad_request("invalid patch format of setElementOrder list")),
    }
}

fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), ApiError> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let malformed = || ApiError::bad_request("invalid patch format of retainKeys");
    let kept = directive.as_array().ok_or_else(malformed)?;
    let is_kept = |key: &str| kept.iter().any(|k| k.as_str() == Some(key));
    let named = |key: &str| key.starts_with(DELETE_FROM_PRIMITIVE_LIST) || key.starts_with(SET_ELEMENT_ORDER);
    if patch.iter().any(|(key, value)| !value.is_null() && !named(key) && !is_kept(key)) {
        return Err(malformed());
    }
    original.retain(|key, _| is_kept(key));
    Ok(())
}

/// Facts about a field whose two sides are objects.
fn field<'a>(schema: Option<&'a Schema>, key: &str) -> Result<Field<'a>, ApiError> {
    let Some(node) = schema else { return Ok(Field { schema: None, strategy: PatchStrategy::default() }) };
    let parent = node.resolved();
    if let Some(child) = parent.properties.get(key) {
        return Ok(Field { schema: Some(child), strategy: child.patch.clone() });
    }
    if parent.additional.is_some() {
        return Err(unclassified("merging an object in json but data type is not struct, instead is: map"));
    }
    let name = node.reference.as_deref().and_then(|r| r.rsplit('.').next()).unwrap_or_default();
    Err(unclassified(format!("unable to find api field in struct {name} for the json field {key:?}")))
}

/// Facts about a field whose two sides are lists; the schema is that of an element.
fn list_field<'a>(schema: Option<&'a Schema>, key: &str) -> Result<Field<'a>, ApiError> {
    let field = field(schema, key)?;
    let Some(list) = field.schema else { return Ok(field) };
    if list.resolved().kind != Type::Array {
        return Err(unclassified("expected slice or array type, but got: struct"));
    }
    Ok(Field { schema: list.element(), strategy: field.strategy })
}

/// The value without the objects that carry `$patch`; `None` when it is one itself.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(
            fields
                .into_iter()
                .filter(|(_, v)| !v.is_null())
                .filter_map(|(k, v)| Some((k, without_directives(v)?)))
                .collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}

/// Drops `null` fields wherever the schema knows the shape; free-form values keep theirs.
fn drop_nulls(object: &mut Object, schema: &Schema, depth: usize) {
    if depth > MAXIMUM_DEPTH {
        return;
    }
    let known = schema.resolved();
    if known.properties.is_empty() && known.additional.is_none() {
        return;
    }
    object.retain(|_, value| !value.is_null());
    for (key, value) in object.iter_mut() {
        let Some(child) = schema.field(key) else { continue };
        match value {
            Value::Object(fields) => drop_nulls(fields, child, depth + 1),
            Value::Array(items) => {
                let Some(element) = child.element() else { continue };
                for fields in items.iter_mut().filter_map(Value::as_object_mut) {
                    drop_nulls(fields, element, depth + 1);
                }
            }
            _ => {}
        }
    }
}

fn bad_type(expected: &str, found: &Value) -> ApiError {
    unclassified(format!("expected a {expected}, but received a {}", go_type(found)))
}
