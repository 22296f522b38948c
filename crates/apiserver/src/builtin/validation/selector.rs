//! Labels and selectors: their form, and whether a selector matches labels.

use serde_json::Value;

use super::report::Report;
use crate::builtin::access::{Object, Read};
use crate::builtin::field_path::Path;
use crate::builtin::format::{label_value, qualified_name};

/// Label keys and values.
pub(crate) fn validate_labels(report: &mut Report, path: Path<'_>, labels: &Object) {
    for (key, value) in labels {
        report.complain(path, key, qualified_name(key));
        let value = value.as_str().unwrap_or("");
        report.complain(path, value, label_value(value));
    }
}

/// A label selector, if there is one.
pub(super) fn validate_selector(report: &mut Report, path: Path<'_>, selector: &Value) {
    validate_labels(report, path.child("matchLabels"), selector.map("matchLabels"));
    let expressions = path.child("matchExpressions");
    for (index, expression) in selector.list("matchExpressions").iter().enumerate() {
        let path = expressions.index(index);
        let values = expression.list("values");
        let values_path = path.child("values");
        match expression.text("operator") {
            "In" | "NotIn" => {
                if values.is_empty() {
                    report.required(values_path, "must be specified when `operator` is 'In' or 'NotIn'");
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    report.forbidden(values_path, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
                }
            }
            operator => report.invalid(path.child("operator"), operator, "not a valid selector operator"),
        }
        let key = expression.text("key");
        report.complain(path.child("key"), key, qualified_name(key));
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or("");
            report.complain(values_path.index(index), value, label_value(value));
        }
    }
}

/// Whether a selector has no requirement at all.
pub(super) fn is_empty_selector(selector: &Value) -> bool {
    selector.map("matchLabels").is_empty() && selector.list("matchExpressions").is_empty()
}

/// Whether a selector matches labels; a missing selector matches nothing, one with a bad operator nothing either.
pub(super) fn selects(selector: &Value, labels: &Object) -> bool {
    selector.is_object()
        && selector.map("matchLabels").iter().all(|(key, value)| labels.get(key) == Some(value))
        && selector.list("matchExpressions").iter().all(|expression| {
            let value = labels.get(expression.text("key"));
            let listed = value.is_some_and(|value| expression.list("values").contains(value));
            match expression.text("operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// The complaint of every workload kind whose selector does not find its own pods.
pub(super) fn validate_template_matches(report: &mut Report, path: Path<'_>, selector: &Value, template: &Value) {
    if selector.is_object() && is_empty_selector(selector) {
        return;
    }
    if !selects(selector, template.map("metadata.labels")) {
        let labels = template.at("metadata.labels").clone();
        report.invalid(path.child("metadata.labels"), labels, "`selector` does not match template `labels`");
    }
}
