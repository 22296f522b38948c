//! Label and field selectors: which objects a request is about.
//!
//! Grammar, order of requirements and every message follow a real API server, because users read them and clients compare
//! them. A *requirement* is one comma-separated part; a selector matches when all its requirements do.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::status::ApiError;

mod field;
mod grammar;
mod names;

pub use field::{FieldOperator, FieldRequirement, FieldSelector};
pub use names::{go_quote, label_value_errors, qualified_name_errors};

/// How a label's value relates to the values of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelOperator {
    /// `key in (a,b)`.
    In,
    /// `key notin (a,b)`; objects without the label match.
    NotIn,
    /// `key=value`.
    Equals,
    /// `key==value`, kept apart from `=` so that printing gives back what was read.
    DoubleEquals,
    /// `key!=value`; objects without the label match.
    NotEquals,
    /// `key`.
    Exists,
    /// `!key`.
    DoesNotExist,
    /// `key>5`, for integer values.
    GreaterThan,
    /// `key<5`, for integer values.
    LessThan,
}

/// One part of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    key: String,
    operator: LabelOperator,
    values: Vec<String>,
}

/// A label selector: from a query parameter or from a `metav1.LabelSelector` object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
    /// A `metav1.LabelSelector` that is null selects no object at all.
    nothing: bool,
}

impl LabelRequirement {
    /// Checks key and values as a real server does; the error is the text of its field errors.
    pub fn new(key: &str, operator: LabelOperator, values: Vec<String>) -> Result<Self, String> {
        let mut errors = Vec::new();
        let key_errors = qualified_name_errors(key);
        if !key_errors.is_empty() {
            errors.push(format!("key: Invalid value: {}: {}", go_quote(key), key_errors.join("; ")));
        }
        let count_error = match operator {
            LabelOperator::In | LabelOperator::NotIn if values.is_empty() => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            LabelOperator::Equals | LabelOperator::DoubleEquals | LabelOperator::NotEquals if values.len() != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            LabelOperator::Exists | LabelOperator::DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            LabelOperator::GreaterThan | LabelOperator::LessThan if values.len() != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        };
        if let Some(why) = count_error {
            errors.push(format!("values: Invalid value: {}: {why}", Value::from(values.clone())));
        }
        if matches!(operator, LabelOperator::GreaterThan | LabelOperator::LessThan) {
            for (index, value) in values.iter().enumerate().filter(|(_, value)| parse_integer(value).is_none()) {
                errors.push(format!(
                    "values[{index}]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                    go_quote(value)
                ));
            }
        }
        for (index, value) in values.iter().enumerate() {
            let value_errors = label_value_errors(value);
            if !value_errors.is_empty() {
                let text = value_errors.join("; ");
                errors.push(format!("values[{index}][{key}]: Invalid value: {}: {text}", go_quote(value)));
            }
        }
        match errors.as_slice() {
            [] => Ok(Self { key: key.to_owned(), operator, values }),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }

    /// The label's name.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The relation asked for.
    pub fn operator(&self) -> LabelOperator {
        self.operator
    }

    /// The values compared with.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    fn matches_value(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|candidate| candidate == value);
        match self.operator {
            LabelOperator::In | LabelOperator::Equals | LabelOperator::DoubleEquals => value.is_some_and(listed),
            LabelOperator::NotIn | LabelOperator::NotEquals => !value.is_some_and(listed),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
            LabelOperator::GreaterThan | LabelOperator::LessThan => {
                let wanted = self.values.first().and_then(|value| parse_integer(value));
                match (value.and_then(parse_integer), wanted) {
                    (Some(found), Some(wanted)) if self.operator == LabelOperator::GreaterThan => found > wanted,
                    (Some(found), Some(wanted)) => found < wanted,
                    _ => false,
                }
            }
        }
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut values: Vec<&str> = self.values.iter().map(String::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        match self.operator {
            LabelOperator::In => write!(f, "{} in ({values})", self.key),
            LabelOperator::NotIn => write!(f, "{} notin ({values})", self.key),
            LabelOperator::Equals => write!(f, "{}={values}", self.key),
            LabelOperator::DoubleEquals => write!(f, "{}=={values}", self.key),
            LabelOperator::NotEquals => write!(f, "{}!={values}", self.key),
            LabelOperator::Exists => f.write_str(&self.key),
            LabelOperator::DoesNotExist => write!(f, "!{}", self.key),
            LabelOperator::GreaterThan => write!(f, "{}>{values}", self.key),
            LabelOperator::LessThan => write!(f, "{}<{values}", self.key),
        }
    }
}

impl LabelSelector {
    /// Selects every object.
    pub fn everything() -> Self {
        Self { requirements: Vec::new(), nothing: false }
    }

    /// Reads the form of the `labelSelector` query parameter; the error is a 400.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        grammar::parse(text).map(Self::from_requirements).map_err(ApiError::bad_request)
    }

    /// Reads a `metav1.LabelSelector`: null selects nothing, an empty object everything.
    pub fn from_value(selector: &Value) -> Result<Self, ApiError> {
        if selector.is_null() {
            return Ok(Self { requirements: Vec::new(), nothing: true });
        }
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let values = vec![value.as_str().unwrap_or_default().to_owned()];
            requirements
                .push(LabelRequirement::new(key, LabelOperator::Equals, values).map_err(ApiError::bad_request)?);
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
            let operator = match text("operator") {
                "In" => LabelOperator::In,
                "NotIn" => LabelOperator::NotIn,
                "Exists" => LabelOperator::Exists,
                "DoesNotExist" => LabelOperator::DoesNotExist,
                other => {
                    let message = format!("{} is not a valid label selector operator", go_quote(other));
                    return Err(ApiError::bad_request(message));
                }
            };
            let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
            let values = values.map(|value| value.as_str().unwrap_or_default().to_owned()).collect();
            requirements.push(LabelRequirement::new(text("key"), operator, values).map_err(ApiError::bad_request)?);
        }
        Ok(Self::from_requirements(requirements))
    }

    /// A selector of these requirements, sorted by key as a real server keeps them.
    pub fn from_requirements(mut requirements: Vec<LabelRequirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements, nothing: false }
    }

    /// The parts, sorted by key.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }

    /// Whether every object is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_with(|key| labels.get(key).map(String::as_str))
    }

    /// Whether an object is selected, reading its labels in place from `metadata.labels`.
    pub fn matches_object(&self, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        self.matches_with(|key| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
    }

    /// Whether an object is selected whose labels `value_of` knows.
    pub fn matches_with<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|part| part.matches_value(value_of(&part.key)))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

/// Integers as Go's `ParseInt(_, 10, 64)` reads them, which allows a plus sign as Rust does.
fn parse_integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

#[cfg(test)]
mod tests;
