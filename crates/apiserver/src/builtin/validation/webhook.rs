//! Webhook configurations.

use serde_json::Value;

use super::report::Report;
use super::selector::validate_selector;
use crate::builtin::access::Read;
use crate::builtin::field_path::Path;
use crate::builtin::format::{dns_subdomain, dns1035_label};

/// A mutating or validating webhook configuration.
pub(super) fn validate_configuration(report: &mut Report, configuration: &Value) {
    let hooks = Path::Name("webhooks");
    let mut names: Vec<&str> = Vec::new();
    for (index, hook) in configuration.list("webhooks").iter().enumerate() {
        let path = hooks.index(index);
        validate_hook(report, path, hook);
        validate_review_versions(report, path.child("admissionReviewVersions"), hook);
        let name = hook.text("name");
        if !name.is_empty() && names.contains(&name) {
            report.duplicate(path.child("name"), name);
        }
        names.push(name);
    }
}

fn validate_hook(report: &mut Report, path: Path<'_>, hook: &Value) {
    let name = hook.text("name");
    let complaints = dns_subdomain(name);
    if name.is_empty() {
        report.required(path.child("name"), "");
    } else if !complaints.is_empty() {
        report.invalid(path.child("name"), name, complaints.join(","));
    } else if name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        report.invalid(path.child("name"), name, why);
    }
    let rules = path.child("rules");
    for (index, rule) in hook.list("rules").iter().enumerate() {
        validate_rule(report, rules.index(index), rule);
    }
    report.optional_one_of(path.child("failurePolicy"), hook.at("failurePolicy"), &["Fail", "Ignore"]);
    report.optional_one_of(path.child("matchPolicy"), hook.at("matchPolicy"), &["Equivalent", "Exact"]);
    let effects = hook.at("sideEffects");
    if effects.is_null() {
        report.required(path.child("sideEffects"), "must specify one of None, NoneOnDryRun");
    }
    report.optional_one_of(path.child("sideEffects"), effects, &["None", "NoneOnDryRun"]);
    if let Some(seconds) = hook.integer("timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        report.invalid(path.child("timeoutSeconds"), seconds, "the timeout value must be between 1 and 30 seconds");
    }
    for name in ["namespaceSelector", "objectSelector"] {
        validate_selector(report, path.child(name), hook.at(name));
    }
    report.optional_one_of(path.child("reinvocationPolicy"), hook.at("reinvocationPolicy"), &["IfNeeded", "Never"]);
    validate_client(report, path.child("clientConfig"), hook.at("clientConfig"));
    validate_conditions(report, path.child("matchConditions"), hook.list("matchConditions"));
}

fn validate_rule(report: &mut Report, path: Path<'_>, rule: &Value) {
    const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    if rule.list("operations").is_empty() {
        report.required(path.child("operations"), "");
    }
    let operations = path.child("operations");
    for (index, operation) in rule.list("operations").iter().enumerate() {
        report.optional_one_of(operations.index(index), operation, OPERATIONS);
    }
    let lists = [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")];
    for (list, words) in lists {
        let values = rule.list(list);
        if values.is_empty() && list != "operations" {
            report.required(path.child(list), "");
        }
        if values.len() > 1 && values.iter().any(|value| value == "*") {
            let why = format!("if '*' is present, must not specify other {words}");
            report.invalid(path.child(list), values.to_vec(), why);
        }
    }
    let resources = path.child("resources");
    if rule.list("resources").is_empty() {
        report.required(resources, "");
    }
    if rule.list("resources").len() > 1 && rule.list("resources").iter().any(|resource| resource == "*/*") {
        let why = "if '*/*' is present, must not specify other resources";
        report.invalid(resources, rule.at("resources").clone(), why);
    }
    for (index, resource) in rule.list("resources").iter().enumerate() {
        if resource == "" {
            report.required(resources.index(index), "");
        }
    }
    report.optional_one_of(path.child("scope"), rule.at("scope"), &["*", "Cluster", "Namespaced"]);
}

fn validate_client(report: &mut Report, path: Path<'_>, client: &Value) {
    match (client.at("url").as_str(), client.at("service")) {
        (Some(url), Value::Null) => {
            if !url.starts_with("https://") {
                let why = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
                report.invalid(path.child("url"), url, why);
            }
        }
        (None, service) if service.is_object() => {
            let path = path.child("service");
            if service.text("name").is_empty() {
                report.required(path.child("name"), "service name is required");
            }
            if service.text("namespace").is_empty() {
                report.required(path.child("namespace"), "service namespace is required");
            }
            let port = service.count("port");
            if !(1..=65535).contains(&port) {
                report.invalid(path.child("port"), port, "port is not valid: must be between 1 and 65535, inclusive");
            }
        }
        _ => report.required(path, "exactly one of url or service is required"),
    }
}

fn validate_conditions(report: &mut Report, path: Path<'_>, conditions: &[Value]) {
    let mut names: Vec<&str> = Vec::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let (name, expression) = (condition.text("name"), condition.text("expression"));
        if expression.trim().is_empty() {
            report.required(path.child("expression"), "");
        } else if let Err(problem) = cel::Program::compile(expression) {
            report.invalid(path.child("expression"), expression, format!("compilation failed: {problem}"));
        }
        if name.is_empty() {
            report.required(path.child("name"), "");
        } else if names.contains(&name) {
            report.duplicate(path.child("name"), name);
        }
        names.push(name);
    }
}

fn validate_review_versions(report: &mut Report, path: Path<'_>, hook: &Value) {
    let versions = hook.list("admissionReviewVersions");
    if versions.is_empty() {
        report.required(path, "must specify one of v1, v1beta1");
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        if versions.iter().take(index).any(|earlier| earlier == version) {
            report.invalid(path.index(index), version.clone(), "duplicate version");
            continue;
        }
        let version = version.as_str().unwrap_or("");
        report.complain(path.index(index), version, dns1035_label(version));
    }
    if !versions.iter().any(|version| version == "v1" || version == "v1beta1") {
        report.invalid(path, versions.to_vec(), "must include at least one of v1, v1beta1");
    }
}
