//! An object being shown: how its fields become cells.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::human_duration;
use crate::resource::lookup;
use crate::select::LabelSelector;

/// One object at one time.
pub(super) struct Row<'a> {
    pub(super) object: &'a Value,
    pub(super) now: Timestamp,
}

impl<'a> Row<'a> {
    /// The field as it is; null when missing.
    pub(super) fn at(&self, path: &str) -> &'a Value {
        at(self.object, path)
    }

    /// The field as a cell; an empty string when missing.
    pub(super) fn cell(&self, path: &str) -> Value {
        json!(self.text(path))
    }

    /// The field as a cell; `default` when missing or empty.
    pub(super) fn cell_or(&self, path: &str, default: &str) -> Value {
        let text = self.text(path);
        json!(if text.is_empty() { default } else { text })
    }

    /// A string field; empty when missing.
    pub(super) fn text(&self, path: &str) -> &'a str {
        text(self.object, path)
    }

    /// An integer field; 0 when missing.
    pub(super) fn integer(&self, path: &str) -> i64 {
        self.at(path).as_i64().unwrap_or_default()
    }

    /// A boolean field; `default` when missing.
    pub(super) fn flag(&self, path: &str, default: bool) -> Value {
        json!(self.at(path).as_bool().unwrap_or(default))
    }

    /// A list field; empty when missing.
    pub(super) fn list(&self, path: &str) -> &'a [Value] {
        list(self.object, path)
    }

    /// How many entries a list or map has.
    pub(super) fn count(&self, path: &str) -> usize {
        match self.at(path) {
            Value::Array(list) => list.len(),
            Value::Object(map) => map.len(),
            _ => 0,
        }
    }

    pub(super) fn name(&self) -> Value {
        self.cell("metadata.name")
    }

    pub(super) fn age(&self) -> Value {
        json!(self.since("metadata.creationTimestamp"))
    }

    /// Time since the timestamp in a field, or `<unknown>`.
    pub(super) fn since(&self, path: &str) -> String {
        self.since_time(self.text(path))
    }

    /// Time since a timestamp, or `<unknown>`.
    pub(super) fn since_time(&self, time: &str) -> String {
        time.parse::<Timestamp>()
            .map_or_else(|_| "<unknown>".to_owned(), |time| human_duration(self.now.duration_since(time)))
    }

    pub(super) fn is_being_deleted(&self) -> bool {
        !self.at("metadata.deletionTimestamp").is_null()
    }

    /// Names and images of the containers at a path, each joined by commas.
    pub(super) fn containers(&self, path: &str) -> [Value; 2] {
        let join = |field| {
            let words: Vec<&str> = self.list(path).iter().map(|container| text(container, field)).collect();
            json!(words.join(","))
        };
        [join("name"), join("image")]
    }

    /// A map of labels as `a=b,c=d`, or `<none>`.
    pub(super) fn labels(&self, path: &str) -> Value {
        let pairs = self.at(path).as_object().into_iter().flatten();
        let pairs: Vec<String> =
            pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
        json!(if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") })
    }

    /// A `metav1.LabelSelector`, or `<none>`.
    pub(super) fn selector(&self, path: &str) -> Value {
        let shown = LabelSelector::from_value(self.at(path)).map_or_else(|_| "<error>".to_owned(), |s| s.to_string());
        json!(if shown.is_empty() { "<none>".to_owned() } else { shown })
    }

    /// The status of a condition; `None` when there is no such condition.
    pub(super) fn condition(&self, kind: &str) -> Option<&'a str> {
        let conditions = self.list("status.conditions");
        conditions.iter().find(|c| text(c, "type") == kind).map(|c| text(c, "status"))
    }
}

/// The field at a dotted path; null when missing.
pub(super) fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    static NULL: Value = Value::Null;
    lookup(value, path).unwrap_or(&NULL)
}

/// The string at a dotted path; empty when missing.
pub(super) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

/// The list at a dotted path; empty when missing.
pub(super) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A quantity or int-or-string as its text; `default` when missing.
pub(super) fn scalar(value: &Value, default: &str) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => default.to_owned(),
    }
}

/// The first `limit` words, and how many more there are.
pub(super) fn first_words(words: &[String], limit: usize, separator: &str, none: &str) -> String {
    let shown = words.iter().take(limit).cloned().collect::<Vec<_>>().join(separator);
    match words.len().checked_sub(limit) {
        Some(more) if more > 0 => format!("{shown} + {more} more..."),
        _ if shown.is_empty() => none.to_owned(),
        _ => shown,
    }
}
