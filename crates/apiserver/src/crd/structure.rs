//! Whether a schema is structural: every field has a type of its own, and `allOf`, `anyOf`, `oneOf`, `not` only restrict values.

use serde_json::{Value, json};

use super::{flag, list, text};
use crate::schema::constraints::Pattern;
use crate::status::FieldError;

const MAXIMUM_DEPTH: usize = 128;

/// Where a node stands below its parent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// What keeps a schema from being structural, sorted.
pub(super) fn check(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    invariants(schema, Level::Root, path, &mut errors, 0);
    completeness(schema, Some(schema), path, path, &mut errors, 0);
    errors.sort_by(|a, b| (&a.field, &a.message).cmp(&(&b.field, &b.message)));
    errors
}

fn invariants(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>, depth: usize) {
    if depth > MAXIMUM_DEPTH {
        errors.push(FieldError::invalid(path, &Value::from(""), "schema is nested too deeply"));
        return;
    }
    let at = |key: &str| format!("{path}.{key}");
    let kind = text(schema, "type");
    let (embedded, preserve, int_or_string) = (
        flag(schema, "x-kubernetes-embedded-resource"),
        flag(schema, "x-kubernetes-preserve-unknown-fields"),
        flag(schema, "x-kubernetes-int-or-string"),
    );
    match schema.get("items") {
        Some(items) => invariants(items, Level::Item, &at("items"), errors, depth + 1),
        None if kind == "array" => errors.push(FieldError::required(at("items"), "must be specified")),
        None => {}
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, child) in properties.into_iter().flatten() {
        invariants(child, Level::Field, &at(&format!("properties[{name}]")), errors, depth + 1);
    }
    let additional = schema.get("additionalProperties").filter(|a| !a.is_null());
    if let Some(additional) = additional {
        if level == Level::Root {
            errors.push(FieldError::forbidden(at("additionalProperties"), "must not be used at the root"));
        }
        if additional.is_object() {
            invariants(additional, Level::Field, &at("additionalProperties"), errors, depth + 1);
        }
    }
    if int_or_string && preserve {
        let why = "must be false if x-kubernetes-int-or-string is true";
        errors.push(FieldError::invalid(at("x-kubernetes-preserve-unknown-fields"), &json!(true), why));
    }
    if int_or_string && embedded {
        let why = "must be false if x-kubernetes-int-or-string is true";
        errors.push(FieldError::invalid(at("x-kubernetes-embedded-resource"), &json!(true), why));
    }
    let int_or_string_types = json!([{"type": "integer"}, {"type": "string"}]);
    let plain_any_of = schema.get("anyOf") == Some(&int_or_string_types);
    let plain_all_of = schema.pointer("/allOf/0/anyOf") == Some(&int_or_string_types);
    restrictions(schema, plain_any_of, plain_all_of, path, errors, depth);
    if embedded && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        if kind.is_empty() {
            errors.push(FieldError::required(at("type"), why));
        } else {
            errors.push(FieldError::invalid(at("type"), &json!(kind), why));
        }
    } else if kind.is_empty() && !int_or_string && !preserve {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(at("type"), why));
    }
    if embedded && additional.is_some() {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(at("additionalProperties"), why));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(at("type"), &json!(kind), "must be object at the root"));
    }
    if level == Level::Root || embedded {
        object_fields(schema, level, path, errors);
    }
    if embedded && !preserve && properties.is_none_or(serde_json::Map::is_empty) {
        let why =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(at("properties"), why));
    }
}

/// Type and metadata of a whole object are given; a schema may restrict only the name.
fn object_fields(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    for name in ["kind", "apiVersion"] {
        if let Some(field) = schema.pointer(&format!("/properties/{name}"))
            && text(field, "type") != "string"
        {
            let place = format!("{path}.properties[{name}].type");
            errors.push(FieldError::invalid(place, &json!(text(field, "type")), "must be string"));
        }
    }
    let Some(metadata) = schema.pointer("/properties/metadata") else { return };
    let place = format!("{path}.properties[metadata]");
    if text(metadata, "type") != "object" {
        errors.push(FieldError::invalid(format!("{place}.type"), &json!(text(metadata, "type")), "must be object"));
    }
    let allowed = metadata.as_object().into_iter().flatten().all(|(key, value)| match key.as_str() {
        "type" | "default" => true,
        "properties" => {
            value.as_object().into_iter().flatten().all(|(name, _)| name == "name" || name == "generateName")
        }
        _ => false,
    });
    if level == Level::Root && !allowed {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(place, why));
    }
}

fn restrictions(
    schema: &Value,
    skip_any_of: bool,
    skip_first_all_of: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
    depth: usize,
) {
    if !skip_any_of {
        for (index, child) in list(schema, "anyOf").enumerate() {
            nested(child, false, &format!("{path}.anyOf[{index}]"), errors, depth + 1);
        }
    }
    for (index, child) in list(schema, "allOf").enumerate() {
        nested(child, skip_first_all_of && index == 0, &format!("{path}.allOf[{index}]"), errors, depth + 1);
    }
    for (index, child) in list(schema, "oneOf").enumerate() {
        nested(child, false, &format!("{path}.oneOf[{index}]"), errors, depth + 1);
    }
    if let Some(not) = schema.get("not").filter(|n| n.is_object()) {
        nested(not, false, &format!("{path}.not"), errors, depth + 1);
    }
    if let Some(Err(why)) = schema.get("pattern").and_then(Value::as_str).map(|p| Pattern::new(p).expression) {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), &schema["pattern"], why));
    }
}

fn nested(schema: &Value, skip_any_of: bool, path: &str, errors: &mut Vec<FieldError>, depth: usize) {
    if depth > MAXIMUM_DEPTH {
        return;
    }
    restrictions(schema, skip_any_of, false, path, errors, depth);
    if let Some(items) = schema.get("items") {
        nested(items, false, &format!("{path}.items"), errors, depth + 1);
    }
    for (name, child) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        nested(child, false, &format!("{path}.properties[{name}]"), errors, depth + 1);
    }
    for (key, why) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        let stated = match schema.get(key) {
            None | Some(Value::Null | Value::Bool(false)) => {
                key == "additionalProperties" && schema.get(key) == Some(&json!(false))
            }
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(list)) => !list.is_empty(),
            Some(_) => true,
        };
        if stated {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), why));
        }
    }
    if schema.pointer("/properties/metadata").is_some() {
        let why = "must not be specified in a nested context";
        errors.push(FieldError::forbidden(format!("{path}.properties[metadata]"), why));
    }
}

/// Fields that a restriction speaks of must exist outside of it.
fn completeness(
    restriction: &Value,
    structure: Option<&Value>,
    structure_path: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
    depth: usize,
) {
    if depth > MAXIMUM_DEPTH {
        return;
    }
    let mut branches: Vec<(&Value, String)> = Vec::new();
    branches.extend(restriction.get("not").map(|not| (not, format!("{path}.not"))));
    for key in ["allOf", "anyOf", "oneOf"] {
        branches.extend(list(restriction, key).enumerate().map(|(index, b)| (b, format!("{path}.{key}[{index}]"))));
    }
    for (branch, path) in branches {
        completeness(branch, structure, structure_path, &path, errors, depth + 1);
        for (name, child) in branch.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let target = structure.and_then(|s| s.get("properties")).and_then(|p| p.get(name));
            let (target_path, path) =
                (format!("{structure_path}.properties[{name}]"), format!("{path}.properties[{name}]"));
            inner(child, target, &target_path, &path, errors, depth + 1);
        }
        if let Some(items) = branch.get("items") {
            let target = structure.and_then(|s| s.get("items"));
            inner(items, target, &format!("{structure_path}.items"), &format!("{path}.items"), errors, depth + 1);
        }
    }
}

fn inner(
    restriction: &Value,
    structure: Option<&Value>,
    structure_path: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
    depth: usize,
) {
    if structure.is_none() {
        errors.push(FieldError::required(structure_path, &format!("because it is defined in {path}")));
        return;
    }
    // The fields of a nested restriction are themselves a restriction: look at it as the only member of an `allOf`.
    completeness(&json!({ "allOf": [restriction] }), structure, structure_path, path, errors, depth + 1);
}
