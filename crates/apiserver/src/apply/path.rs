//! Steps of a path as people read them: `.spec.containers[name="a"].image`.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::fields::{Fields, children, contains};
use crate::patch::go_quote;

/// One step of a path, ordered as structured-merge-diff orders them.
#[derive(Debug)]
enum Step {
    Field(String),
    Key(Map<String, Value>),
    Value(Value),
    Index(i64),
}

impl Step {
    fn of(key: &str) -> Self {
        let (kind, rest) = key.split_at_checked(2).unwrap_or(("f:", key));
        match kind {
            "k:" => serde_json::from_str(rest).map_or_else(|_| Self::Field(key.to_owned()), Self::Key),
            "v:" => serde_json::from_str(rest).map_or_else(|_| Self::Field(key.to_owned()), Self::Value),
            "i:" => rest.parse().map_or_else(|_| Self::Field(key.to_owned()), Self::Index),
            _ => Self::Field(rest.to_owned()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => a
                .iter()
                .zip(b)
                .map(|((k, v), (l, w))| k.cmp(l).then_with(|| compare_values(v, w)))
                .find(|order| order.is_ne())
                .unwrap_or_else(|| a.len().cmp(&b.len())),
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Field(name) => format!(".{name}"),
            Self::Key(fields) => {
                let parts: Vec<String> = fields.iter().map(|(k, v)| format!("{k}={}", value_text(v))).collect();
                format!("[{}]", parts.join(","))
            }
            Self::Value(value) => format!("[={}]", value_text(value)),
            Self::Index(index) => format!("[{index}]"),
        }
    }
}

/// The text of one step of a `fieldsV1` tree.
pub(super) fn step_text(key: &str) -> String {
    Step::of(key).text()
}

/// The paths of all members of a set, members of a level before what is below them.
pub(super) fn paths(set: &Fields) -> Vec<String> {
    let mut found = Vec::new();
    collect(set, "", &mut found);
    found
}

fn collect(set: &Fields, prefix: &str, found: &mut Vec<String>) {
    let mut steps: Vec<(Step, &String, &Value)> =
        set.iter().filter(|(key, _)| *key != ".").map(|(key, node)| (Step::of(key), key, node)).collect();
    steps.sort_by(|(a, ..), (b, ..)| a.compare(b));
    for (step, key, _) in &steps {
        if contains(set, key) {
            found.push(format!("{prefix}{}", step.text()));
        }
    }
    for (step, _, node) in &steps {
        if let (Some(_), Value::Object(node)) = (children(node).next(), node) {
            collect(node, &format!("{prefix}{}", step.text()), found);
        }
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => go_quote(text),
        other => other.to_string(),
    }
}

/// Numbers before strings before booleans before the rest.
fn compare_values(left: &Value, right: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        _ => rank(left).cmp(&rank(right)),
    }
}
