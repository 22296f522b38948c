//! Limits on values beyond their type: ranges, lengths, patterns, and the combinations `allOf`, `anyOf`, `oneOf`, `not`.

use regex::Regex;
use serde_json::{Map, Value};

use super::Schema;

/// What a node says about its values beyond their type.
#[derive(Debug, Default)]
pub struct Constraints {
    /// Smallest number.
    pub minimum: Option<f64>,
    /// The smallest number is itself not allowed.
    pub exclusive_minimum: bool,
    /// Largest number.
    pub maximum: Option<f64>,
    /// The largest number is itself not allowed.
    pub exclusive_maximum: bool,
    /// Numbers are multiples of this.
    pub multiple_of: Option<f64>,
    /// Fewest characters.
    pub min_length: Option<u64>,
    /// Most characters.
    pub max_length: Option<u64>,
    /// What a string must look like.
    pub pattern: Option<Pattern>,
    /// Fewest elements.
    pub min_items: Option<u64>,
    /// Most elements.
    pub max_items: Option<u64>,
    /// No two elements are equal.
    pub unique_items: bool,
    /// Fewest fields.
    pub min_properties: Option<u64>,
    /// Most fields.
    pub max_properties: Option<u64>,
    /// All of these hold.
    pub all_of: Vec<Schema>,
    /// At least one of these holds.
    pub any_of: Vec<Schema>,
    /// Exactly one of these holds.
    pub one_of: Vec<Schema>,
    /// This does not hold.
    pub not: Option<Box<Schema>>,
}

/// A regular expression and its source.
#[derive(Debug)]
pub struct Pattern {
    /// As written.
    pub source: String,
    /// Compiled, or why it cannot be.
    pub expression: Result<Regex, String>,
}

impl Constraints {
    /// Reads the limits of an OpenAPI node; `None` when it states none.
    pub(super) fn parse(node: &Map<String, Value>, child: &dyn Fn(&Value) -> Schema) -> Option<Self> {
        let number = |key: &str| node.get(key).and_then(Value::as_f64);
        let count = |key: &str| node.get(key).and_then(Value::as_u64);
        let flag = |key: &str| node.get(key).and_then(Value::as_bool).unwrap_or_default();
        let list = |key: &str| -> Vec<Schema> {
            node.get(key).and_then(Value::as_array).into_iter().flatten().map(child).collect()
        };
        let known = ["minimum", "maximum", "multipleOf", "minLength", "maxLength", "pattern", "minItems", "maxItems"];
        let more = ["uniqueItems", "minProperties", "maxProperties", "allOf", "anyOf", "oneOf", "not"];
        if !known.iter().chain(&more).any(|key| node.contains_key(*key)) {
            return None;
        }
        Some(Self {
            minimum: number("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            maximum: number("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern: node.get("pattern").and_then(Value::as_str).filter(|p| !p.is_empty()).map(Pattern::new),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            unique_items: flag("uniqueItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            all_of: list("allOf"),
            any_of: list("anyOf"),
            one_of: list("oneOf"),
            not: node.get("not").map(|value| Box::new(child(value))),
        })
    }
}

impl Pattern {
    /// Compiles a pattern.
    pub fn new(source: &str) -> Self {
        let expression =
            Regex::new(source).map_err(|error| error.to_string().lines().last().unwrap_or_default().to_owned());
        Self { source: source.to_owned(), expression }
    }
}
