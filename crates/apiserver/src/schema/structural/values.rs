//! Types and limits of single values, in the words of the real server's OpenAPI validator.

use serde_json::{Map, Value};

use super::super::constraints::Constraints;
use super::super::format;
use super::super::{Schema, Type};
use super::{MAXIMUM_DEPTH, counterpart};
use crate::status::FieldError;

/// What is wrong with the values of an object. Values equal to those of `old` are let through.
pub(super) fn check(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let outcome = node(schema, object, old, "", 0);
    outcome.errors
}

/// Errors below a node, and how many nodes were looked at: among failed alternatives the one that went furthest explains itself.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    visited: usize,
}

impl Outcome {
    fn add(&mut self, error: FieldError) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Self) {
        other.errors.into_iter().for_each(|error| self.add(error));
        self.visited += other.visited;
    }
}

fn node(schema: &Schema, value: &Value, old: Option<&Value>, path: &str, depth: usize) -> Outcome {
    let mut outcome = Outcome { visited: 1, ..Outcome::default() };
    if depth > MAXIMUM_DEPTH {
        return outcome;
    }
    if let Some(error) = wrong_type(schema, value, path) {
        outcome.add(error);
    }
    if !value.is_null() {
        if let Some(constraints) = &schema.constraints {
            combinations(constraints, value, old, path, &mut outcome, depth);
            limits(constraints, value, path, &mut outcome);
        }
        if let (Value::String(text), Some(name)) = (value, &schema.format)
            && matches!(schema.kind, Type::String | Type::Any)
            && !format::matches(name, text)
        {
            outcome.add(type_error(path, name, value));
        }
    }
    if let Value::Array(elements) = value
        && let Some(items) = &schema.items
    {
        for (index, element) in elements.iter().enumerate() {
            let old = counterpart(schema, element, old);
            outcome.merge(node(items, element, old, &format!("{path}[{index}]"), depth + 1));
        }
    }
    enumeration(schema, value, path, &mut outcome);
    if let Value::Object(fields) = value {
        fields_of(schema, fields, old, path, &mut outcome, depth);
    }
    if !outcome.errors.is_empty() && old == Some(value) {
        outcome.errors.clear();
    }
    outcome
}

fn fields_of(
    schema: &Schema,
    fields: &Map<String, Value>,
    old: Option<&Value>,
    path: &str,
    outcome: &mut Outcome,
    depth: usize,
) {
    for (name, value) in fields {
        // As in the real server, the path of a field that is not named in the schema begins with a dot at the root.
        let (child, path) = match (schema.properties.get(name), &schema.additional) {
            (Some(child), _) => (child, super::child_path(path, name)),
            (None, Some(child)) => (child, format!("{path}.{name}")),
            (None, None) => continue,
        };
        outcome.merge(node(child, value, old.and_then(|o| o.get(name)), &path, depth + 1));
    }
    for name in &schema.required {
        if !fields.contains_key(name) {
            outcome.add(FieldError::required(super::child_path(path, name), ""));
        }
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn wrong_type(schema: &Schema, value: &Value, path: &str) -> Option<FieldError> {
    let whole = |value: &Value| value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let expected = match schema.kind {
        Type::Any => return None,
        _ if value.is_null() && schema.nullable => return None,
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::IntOrString => "integer,string",
    };
    if schema.kind == Type::String
        && let Some(name) = schema.format.as_deref().filter(|name| format::is_known(name))
    {
        // Quirks of the real validator: with a format, a list passes for a string, and other values are called by their formats.
        return match value {
            Value::String(_) | Value::Array(_) => None,
            Value::Null => Some(type_error(path, expected, &Value::from("null"))),
            Value::Number(number) if number.is_f64() => Some(type_error(path, name, &Value::from("float64"))),
            Value::Number(_) => Some(type_error(path, name, &Value::from("int64"))),
            Value::Bool(_) | Value::Object(_) => Some(type_error(path, name, &Value::from(""))),
        };
    }
    let fits = match schema.kind {
        Type::Integer => whole(value),
        Type::Number => value.is_number(),
        Type::IntOrString => whole(value) || value.is_string(),
        _ => type_name(value) == expected,
    };
    (!fits).then(|| type_error(path, expected, &Value::from(type_name(value))))
}

fn type_error(path: &str, expected: &str, value: &Value) -> FieldError {
    let why = format!("{path} in body must be of type {expected}: {value}");
    FieldError { reason: "FieldValueTypeInvalid", ..FieldError::invalid(name_of(path), value, why) }
}

/// The field an error is reported for; the root has no name.
fn name_of(path: &str) -> String {
    match path.trim_start_matches('.') {
        "" => "<nil>".to_owned(),
        path => path.to_owned(),
    }
}

fn enumeration(schema: &Schema, value: &Value, path: &str, outcome: &mut Outcome) {
    // As in the real server, null is never a member, not even when it is listed.
    let equal = |allowed: &Value| {
        allowed == value && !value.is_null()
            || allowed.as_f64().is_some_and(|a| value.as_f64().is_some_and(|v| a.total_cmp(&v).is_eq()))
    };
    if schema.enumeration.is_empty() || schema.enumeration.iter().any(equal) {
        return;
    }
    let words: Vec<String> = schema
        .enumeration
        .iter()
        .map(|allowed| allowed.as_str().map_or_else(|| allowed.to_string(), str::to_owned))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    outcome.add(FieldError::not_supported(name_of(path), &shown(value), &words));
}

fn limits(constraints: &Constraints, value: &Value, path: &str, outcome: &mut Outcome) {
    match value {
        Value::String(text) => {
            if let Some(error) = text_limits(constraints, text, path) {
                outcome.add(error);
            }
        }
        Value::Number(number) => {
            for why in number_limits(constraints, number.as_f64().unwrap_or_default(), !number.is_f64()) {
                outcome.add(invalid(path, &shown(value), &why));
            }
        }
        Value::Array(elements) => {
            let count = elements.len() as u64;
            if let Some(least) = constraints.min_items.filter(|least| count < *least) {
                outcome.add(invalid(path, &Value::from(count), &format!("should have at least {least} items")));
            }
            if let Some(most) = constraints.max_items.filter(|most| count > *most) {
                outcome.add(too_many(path, count, most));
            }
            if constraints.unique_items && (1..elements.len()).any(|i| elements[..i].contains(&elements[i])) {
                outcome.add(invalid(path, &Value::from(""), "shouldn't contain duplicates"));
            }
        }
        Value::Object(fields) => {
            let count = fields.len() as u64;
            if let Some(least) = constraints.min_properties.filter(|least| count < *least) {
                outcome.add(invalid(path, &Value::from(count), &format!("should have at least {least} properties")));
            }
            if let Some(most) = constraints.max_properties.filter(|most| count > *most) {
                outcome.add(too_many(path, count, most));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn text_limits(constraints: &Constraints, text: &str, path: &str) -> Option<FieldError> {
    let value = Value::from(text);
    let length = text.chars().count() as u64;
    if let Some(most) = constraints.max_length.filter(|most| length > *most) {
        let unit = if most == 1 { "byte" } else { "bytes" };
        return Some(FieldError {
            field: name_of(path),
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {most} {unit}"),
        });
    }
    if let Some(least) = constraints.min_length.filter(|least| length < *least) {
        return Some(invalid(path, &value, &format!("should be at least {least} chars long")));
    }
    let pattern = constraints.pattern.as_ref()?;
    match &pattern.expression {
        Ok(expression) if expression.is_match(text) => None,
        Ok(_) => Some(invalid(path, &value, &format!("should match '{}'", pattern.source))),
        Err(why) => {
            Some(invalid(path, &value, &format!("should match '{}, but pattern is invalid: {why}'", pattern.source)))
        }
    }
}

fn number_limits(constraints: &Constraints, number: f64, whole: bool) -> Vec<String> {
    let mut errors = Vec::new();
    // The factor for whole numbers is itself taken as a whole number.
    let factor =
        constraints.multiple_of.map(|factor| if number.fract() == 0.0 && whole { factor.trunc() } else { factor });
    if let Some(factor) = factor.filter(|factor| *factor > 0.0) {
        let quotient = number / factor;
        if (quotient - quotient.round()).abs() > 1e-9 {
            errors.push(format!("should be a multiple of {}", plain(factor)));
        }
    }
    if let Some(least) = constraints.minimum {
        if constraints.exclusive_minimum && number <= least {
            errors.push(format!("should be greater than {}", plain(least)));
        } else if number < least {
            errors.push(format!("should be greater than or equal to {}", plain(least)));
        }
    }
    if let Some(most) = constraints.maximum {
        if constraints.exclusive_maximum && number >= most {
            errors.push(format!("should be less than {}", plain(most)));
        } else if number > most {
            errors.push(format!("should be less than or equal to {}", plain(most)));
        }
    }
    errors
}

/// A value as errors show it: whole numbers without a fraction.
fn shown(value: &Value) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "checked to be a whole number that fits")]
    match value.as_f64() {
        Some(number) if number.fract() == 0.0 && number.abs() < 1e15 => Value::from(number as i64),
        _ => value.clone(),
    }
}

/// A number as Go prints it: whole numbers without a fraction.
fn plain(number: f64) -> String {
    format!("{number}")
}

fn invalid(path: &str, value: &Value, why: &str) -> FieldError {
    FieldError::invalid(name_of(path), value, format!("{path} in body {why}"))
}

fn too_many(path: &str, count: u64, most: u64) -> FieldError {
    let unit = if most == 1 { "item" } else { "items" };
    FieldError {
        field: name_of(path),
        reason: "FieldValueTooMany",
        message: format!("Too many: {count}: must have at most {most} {unit}"),
    }
}

fn combinations(
    constraints: &Constraints,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    outcome: &mut Outcome,
    depth: usize,
) {
    let try_all = |branches: &[Schema]| -> Vec<Outcome> {
        branches.iter().map(|branch| node(branch, value, old, path, depth + 1)).collect()
    };
    let refuse = |outcome: &mut Outcome, why: String| {
        outcome.add(FieldError::invalid("<nil>", &Value::from(""), format!("{path:?} {why}")));
    };
    if !constraints.any_of.is_empty() {
        let results = try_all(&constraints.any_of);
        if results.iter().all(|r| !r.errors.is_empty()) {
            refuse(outcome, "must validate at least one schema (anyOf)".to_owned());
            outcome.merge(furthest(results));
        }
    }
    if !constraints.one_of.is_empty() {
        let results = try_all(&constraints.one_of);
        match results.iter().filter(|r| r.errors.is_empty()).count() {
            1 => {}
            0 => {
                refuse(outcome, "must validate one and only one schema (oneOf). Found none valid".to_owned());
                outcome.merge(furthest(results));
            }
            many => refuse(
                outcome,
                format!("must validate one and only one schema (oneOf). Found {many} valid alternatives"),
            ),
        }
    }
    if !constraints.all_of.is_empty() {
        let results = try_all(&constraints.all_of);
        let valid = results.iter().filter(|r| r.errors.is_empty()).count();
        let count = results.len();
        for result in results {
            outcome.merge(result);
        }
        if valid != count {
            let none = if valid == 0 { ". None validated" } else { "" };
            refuse(outcome, format!("must validate all the schemas (allOf){none}"));
        }
    }
    if let Some(not) = &constraints.not
        && node(not, value, None, path, depth + 1).errors.is_empty()
    {
        refuse(outcome, "must not validate the schema (not)".to_owned());
    }
}

/// The first of the alternatives that looked at most nodes.
fn furthest(results: Vec<Outcome>) -> Outcome {
    let mut best: Option<Outcome> = None;
    for result in results {
        if best.as_ref().is_none_or(|b| result.visited > b.visited) {
            best = Some(result);
        }
    }
    best.unwrap_or_default()
}
