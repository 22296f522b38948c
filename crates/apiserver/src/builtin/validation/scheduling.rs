//! Where pods may go: taints, tolerations, affinity and spreading.

use serde_json::Value;

use super::report::Report;
use super::selector::validate_selector;
use crate::builtin::access::Read;
use crate::builtin::field_path::Path;
use crate::builtin::format::{dns_label, dns_subdomain, label_value, qualified_name};
use crate::status::FieldError;

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Taints of a node.
pub(super) fn validate_taints(report: &mut Report, path: Path<'_>, taints: &[Value]) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (index, taint) in taints.iter().enumerate() {
        let path = path.index(index);
        let (key, value, effect) = (taint.text("key"), taint.text("value"), taint.text("effect"));
        report.complain(path.child("key"), key, qualified_name(key));
        let complaints = label_value(value);
        if !complaints.is_empty() {
            report.invalid(path.child("value"), value, complaints.join(";"));
        }
        report.one_of(path.child("effect"), effect, EFFECTS);
        if seen.contains(&(key, effect)) {
            let mut error = FieldError::duplicate(path, taint);
            error.message.push_str(": taints must be unique by key and effect pair");
            report.push(error);
        } else {
            seen.push((key, effect));
        }
    }
}

/// Tolerations of a pod.
pub(super) fn validate_tolerations(report: &mut Report, path: Path<'_>, tolerations: &[Value]) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        let (key, operator) = (toleration.text("key"), toleration.text("operator"));
        let (value, effect) = (toleration.text("value"), toleration.text("effect"));
        if !key.is_empty() {
            report.complain(path.child("key"), key, qualified_name(key));
        } else if operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            report.invalid(path.child("operator"), operator, why);
        }
        if toleration.has("tolerationSeconds") && effect != "NoExecute" {
            report.invalid(path.child("effect"), effect, "effect must be 'NoExecute' when `tolerationSeconds` is set");
        }
        match operator {
            "" | "Equal" => {
                let complaints = label_value(value);
                if !complaints.is_empty() {
                    report.invalid(path.child("operator"), value, complaints.join(";"));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    report.invalid(path.child("operator"), value, "value must be empty when `operator` is 'Exists'");
                }
            }
            _ => report.unsupported(path.child("operator"), operator, &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            report.unsupported(path.child("effect"), effect, EFFECTS);
        }
    }
}

/// Affinity of a pod, if it has any.
pub(super) fn validate_affinity(report: &mut Report, path: Path<'_>, affinity: &Value) {
    let node = path.child("nodeAffinity");
    let required = affinity.at("nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution");
    if required.is_object() {
        validate_node_selector(report, node.child("requiredDuringSchedulingIgnoredDuringExecution"), required);
    }
    let preferred = node.child("preferredDuringSchedulingIgnoredDuringExecution");
    let terms = affinity.list("nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in terms.iter().enumerate() {
        let path = preferred.index(index);
        validate_weight(report, path, term);
        validate_node_selector_term(report, path.child("preference"), term.at("preference"), Values::Any);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        if affinity.has(kind) {
            validate_pod_affinity(report, path.child(kind), affinity.at(kind));
        }
    }
}

fn validate_weight(report: &mut Report, path: Path<'_>, term: &Value) {
    let weight = term.count("weight");
    if !(1..=100).contains(&weight) {
        report.invalid(path.child("weight"), weight, "must be in the range 1-100");
    }
}

/// Whether the values of a requirement must be label values.
#[derive(Clone, Copy)]
enum Values {
    Labels,
    Any,
}

/// Terms that a node must fulfil, at least one.
pub(super) fn validate_node_selector(report: &mut Report, path: Path<'_>, selector: &Value) {
    let terms = path.child("nodeSelectorTerms");
    if selector.list("nodeSelectorTerms").is_empty() {
        report.required(terms, "must have at least one node selector term");
    }
    for (index, term) in selector.list("nodeSelectorTerms").iter().enumerate() {
        validate_node_selector_term(report, terms.index(index), term, Values::Labels);
    }
}

fn validate_node_selector_term(report: &mut Report, path: Path<'_>, term: &Value, rule: Values) {
    let expressions = path.child("matchExpressions");
    for (index, requirement) in term.list("matchExpressions").iter().enumerate() {
        validate_node_requirement(report, expressions.index(index), requirement, rule);
    }
    let fields = path.child("matchFields");
    for (index, requirement) in term.list("matchFields").iter().enumerate() {
        let path = fields.index(index);
        let values = requirement.list("values");
        match requirement.text("operator") {
            "In" | "NotIn" if values.len() == 1 => {}
            "In" | "NotIn" => {
                let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                report.required(path.child("values"), why);
            }
            operator => report.invalid(path.child("operator"), operator, "not a valid selector operator"),
        }
        if requirement.text("key") != "metadata.name" {
            report.invalid(path.child("key"), requirement.text("key"), "not a valid field selector key");
            continue;
        }
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or("");
            report.complain(path.child("values").index(index), value, dns_subdomain(value));
        }
    }
}

fn validate_node_requirement(report: &mut Report, path: Path<'_>, requirement: &Value, rule: Values) {
    let values = requirement.list("values");
    let values_path = path.child("values");
    match requirement.text("operator") {
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
        "Gt" | "Lt" => {
            if values.len() != 1 {
                report.required(values_path, "must be specified single value when `operator` is 'Lt' or 'Gt'");
            }
        }
        operator => report.invalid(path.child("operator"), operator, "not a valid selector operator"),
    }
    let key = requirement.text("key");
    report.complain(path.child("key"), key, qualified_name(key));
    if matches!(rule, Values::Labels) {
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or("");
            report.complain(values_path.index(index), value, label_value(value));
        }
    }
}

fn validate_pod_affinity(report: &mut Report, path: Path<'_>, affinity: &Value) {
    let required = path.child("requiredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in affinity.list("requiredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
        validate_pod_affinity_term(report, required.index(index), term);
    }
    let preferred = path.child("preferredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in affinity.list("preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
        let path = preferred.index(index);
        validate_weight(report, path, term);
        validate_pod_affinity_term(report, path.child("podAffinityTerm"), term.at("podAffinityTerm"));
    }
}

fn validate_pod_affinity_term(report: &mut Report, path: Path<'_>, term: &Value) {
    validate_selector(report, path.child("labelSelector"), term.at("labelSelector"));
    validate_selector(report, path.child("namespaceSelector"), term.at("namespaceSelector"));
    for name in term.list("namespaces").iter().filter_map(Value::as_str) {
        report.complain(path.child("namespace"), name, dns_label(name));
    }
    for name in ["matchLabelKeys", "mismatchLabelKeys"] {
        validate_label_keys(report, path.child(name), term.list(name), term.at("labelSelector"));
    }
    let key = term.text("topologyKey");
    if key.is_empty() {
        report.required(path.child("topologyKey"), "can not be empty");
    }
    report.complain(path.child("topologyKey"), key, qualified_name(key));
}

fn validate_label_keys(report: &mut Report, path: Path<'_>, keys: &[Value], selector: &Value) {
    if keys.is_empty() {
        return;
    }
    if !selector.is_object() {
        report.forbidden(path, "must not be specified when labelSelector is not set");
        return;
    }
    for (index, key) in keys.iter().enumerate() {
        let key = key.as_str().unwrap_or("");
        report.complain(path.index(index), key, qualified_name(key));
    }
}

/// Topology spread constraints of a pod.
pub(super) fn validate_spread(report: &mut Report, path: Path<'_>, constraints: &[Value]) {
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        report.positive(path.child("maxSkew"), constraint.count("maxSkew"));
        let (key, action) = (constraint.text("topologyKey"), constraint.text("whenUnsatisfiable"));
        if key.is_empty() {
            report.required(path.child("topologyKey"), "can not be empty");
        }
        if !matches!(action, "DoNotSchedule" | "ScheduleAnyway") {
            report.unsupported(path.child("whenUnsatisfiable"), action, &["DoNotSchedule", "ScheduleAnyway"]);
        }
        let repeats = constraints
            .iter()
            .skip(index + 1)
            .any(|other| other.text("topologyKey") == key && other.text("whenUnsatisfiable") == action);
        if repeats {
            report.duplicate(path.child("{topologyKey, whenUnsatisfiable}"), format!("{{{key}, {action}}}"));
        }
        if let Some(domains) = constraint.integer("minDomains") {
            report.positive(path.child("minDomains"), domains);
            if action != "DoNotSchedule" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                report.invalid(path.child("minDomains"), domains, why);
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            report.optional_one_of(path.child(policy), constraint.at(policy), &["Honor", "Ignore"]);
        }
        let selector = constraint.at("labelSelector");
        validate_label_keys(report, path.child("matchLabelKeys"), constraint.list("matchLabelKeys"), selector);
        validate_selector(report, path.child("labelSelector"), selector);
    }
}
