//! Values of built-in kinds whose JSON type their Go type cannot take: a real server fails to decode such a body and answers 400.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Number, Value};

use super::{Schema, Type};

const MAXIMUM_DEPTH: usize = 256;

/// One sentence per value, in the words of Go's JSON decoder.
pub(super) fn check(schema: &Schema, object: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    let place = Place { structure: structure_of(schema), path: String::new() };
    walk(schema, object, &place, &mut errors, 0);
    errors
}

/// Where the decoder is: the innermost Go structure, and the names of fields from the root (list positions do not count).
#[derive(Clone)]
struct Place {
    structure: String,
    path: String,
}

impl Place {
    fn field(&self, structure: &str, name: &str) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Self { structure: structure.to_owned(), path }
    }

    fn refuse(&self, value: &str, expected: &str) -> String {
        if self.path.is_empty() {
            return format!("json: cannot unmarshal {value} into Go value of type {expected}");
        }
        format!(
            "json: cannot unmarshal {value} into Go struct field {}.{} of type {expected}",
            self.structure, self.path
        )
    }
}

fn walk(node: &Schema, value: &Value, place: &Place, errors: &mut Vec<String>, depth: usize) {
    let schema = node.resolved();
    if value.is_null() || depth > MAXIMUM_DEPTH {
        return;
    }
    match (schema.kind, value) {
        // Whatever may be in there, it is not for this to say.
        _ if schema.kind == Type::Any || schema.preserve_unknown_fields => {}
        (Type::Object, Value::Object(fields)) => {
            let structure = structure_of(node);
            for (name, value) in fields {
                if let Some(child) = schema.properties.get(name) {
                    walk(child, value, &place.field(&structure, name), errors, depth + 1);
                } else if let Some(child) = &schema.additional {
                    // Keys of maps are no fields.
                    walk(child, value, place, errors, depth + 1);
                }
            }
        }
        (Type::Array, Value::Array(elements)) => {
            for element in elements {
                if let Some(items) = &schema.items {
                    walk(items, element, place, errors, depth + 1);
                }
            }
        }
        (Type::String, Value::String(text)) if structure_of(node) == "MicroTime" => {
            if !text.is_empty() && !has_microseconds(text) {
                errors.push(format!(
                    "parsing time {value} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse {value} as \".000000\""
                ));
            }
        }
        (Type::String, Value::String(text)) if schema.format.as_deref() == Some("byte") => {
            if let Some(position) = first_not_base64(text) {
                errors.push(format!("illegal base64 data at input byte {position}"));
            }
        }
        (Type::String, Value::String(text)) => {
            if schema.format.as_deref() == Some("date-time")
                && !text.is_empty()
                && text.parse::<jiff::Timestamp>().is_err()
            {
                errors.push(format!(
                    "parsing time {value} as \"2006-01-02T15:04:05Z07:00\": cannot parse {value} as \"2006\""
                ));
            }
        }
        (Type::Boolean, Value::Bool(_)) | (Type::Number, Value::Number(_)) | (Type::IntOrString, Value::String(_)) => {}
        (Type::Integer, Value::Number(number)) => {
            if !fits(number, schema.format.as_deref()) {
                errors.push(place.refuse(&format!("number {number}"), &type_of(node)));
            }
        }
        (Type::IntOrString, Value::Number(number)) => {
            if schema.format.as_deref() != Some("quantity") && !fits(number, Some("int32")) {
                errors.push(format!("json: cannot unmarshal number {number} into Go value of type int32"));
            }
        }
        _ => errors.push(place.refuse(kind_of(value), &type_of(node))),
    }
}

/// A time with exactly six digits behind the second.
fn has_microseconds(text: &str) -> bool {
    let fraction = text.split_once('.').map(|(_, rest)| rest.trim_end_matches(|c: char| !c.is_ascii_digit()));
    let digits = fraction.map(|rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    digits == Some(6) && text.parse::<jiff::Timestamp>().is_ok()
}

/// Where text stops being base64 with padding, if it does. Line breaks do not count.
fn first_not_base64(text: &str) -> Option<usize> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'\r' | b'\n');
    if let Some(position) = text.bytes().position(|byte| !known(byte)) {
        return Some(position);
    }
    let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    STANDARD.decode(&plain).is_err().then_some(text.len())
}

fn fits(number: &Number, format: Option<&str>) -> bool {
    match format {
        Some("int32") => number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
        _ => number.is_i64(),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// `Pod` of `io.k8s.api.core.v1.Pod`.
fn structure_of(schema: &Schema) -> String {
    schema.reference.as_deref().and_then(|name| name.rsplit('.').next()).unwrap_or_default().to_owned()
}

/// The Go type a node stands for.
fn type_of(node: &Schema) -> String {
    if let Some(name) = &node.reference {
        let mut words = name.rsplit('.');
        let (kind, package) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        return format!("{package}.{kind}");
    }
    let inner =
        |child: &Option<std::sync::Arc<Schema>>| child.as_deref().map_or_else(|| "interface {}".to_owned(), type_of);
    match node.kind {
        Type::Any => "interface {}".to_owned(),
        Type::Object => format!("map[string]{}", inner(&node.additional)),
        Type::Array => format!("[]{}", inner(&node.items)),
        Type::String if node.format.as_deref() == Some("byte") => "[]uint8".to_owned(),
        Type::String => "string".to_owned(),
        Type::Integer => node.format.clone().unwrap_or_else(|| "int64".to_owned()),
        Type::Number => "float64".to_owned(),
        Type::Boolean => "bool".to_owned(),
        Type::IntOrString => "intstr.IntOrString".to_owned(),
    }
}
