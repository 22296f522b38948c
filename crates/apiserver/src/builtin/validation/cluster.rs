//! Nodes, namespaces, configuration, quotas, priorities and other kinds with few rules.

use serde_json::Value;

use super::report::Report;
use super::resources::{NameRule, validate_amount, validate_list, validate_name};
use super::scheduling::{validate_taints, validate_tolerations};
use super::selector::{validate_labels, validate_selector};
use super::workload::{validate_at_most_all, validate_bound};
use crate::builtin::access::{Read, same};
use crate::builtin::field_path::Path;
use crate::builtin::format::{cidr, config_key, dns_label, dns_subdomain, path_segment, qualified_name};
use crate::builtin::quantity::Quantity;
use crate::status::FieldError;

const SPEC: Path<'static> = Path::Name("spec");
const STATUS: Path<'static> = Path::Name("status");
const MEBIBYTE: usize = 1024 * 1024;

/// A node.
pub(super) fn validate_node(report: &mut Report, node: &Value) {
    validate_taints(report, Path::Name("metadata.taints"), node.list("spec.taints"));
    validate_node_resources(report, node);
    let ranges = SPEC.child("podCIDRs");
    for (index, range) in node.list("spec.podCIDRs").iter().enumerate() {
        let range = range.as_str().unwrap_or("");
        report.complain(ranges.index(index), range, cidr(range));
    }
}

fn validate_node_resources(report: &mut Report, node: &Value) {
    for list in ["capacity", "allocatable"] {
        let path = STATUS.child(list);
        for (name, value) in node.at("status").map(list) {
            validate_amount(report, path.child(name), name, value);
        }
    }
}

/// An update of a node or its status.
pub(super) fn validate_node_update(report: &mut Report, node: &Value, old: &Value) {
    let addresses = node.list("status.addresses");
    let path = STATUS.child("addresses");
    for (index, address) in addresses.iter().enumerate() {
        if addresses.iter().take(index).any(|other| other == address) {
            report.duplicate(path.index(index), address.clone());
        }
    }
    let ranges = old.list("spec.podCIDRs");
    if !ranges.is_empty() && ranges != node.list("spec.podCIDRs") {
        report.forbidden(SPEC.child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid");
    }
    let provider = old.text("spec.providerID");
    if !provider.is_empty() && provider != node.text("spec.providerID") {
        report.forbidden(SPEC.child("providerID"), "node updates may not change providerID except from \"\" to valid");
    }
}

/// A namespace.
pub(super) fn validate_namespace(report: &mut Report, namespace: &Value) {
    let path = SPEC.child("finalizers");
    for finalizer in namespace.list("spec.finalizers").iter().filter_map(Value::as_str) {
        report.complain(path, finalizer, qualified_name(finalizer));
        if !finalizer.contains('/') && !matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion") {
            report.invalid(path, finalizer, "name is neither a standard finalizer name nor is it fully qualified");
        }
    }
}

/// An update of the status of a namespace.
pub(super) fn validate_namespace_status(report: &mut Report, namespace: &Value) {
    let phase = namespace.text("status.phase");
    let path = STATUS.child("Phase");
    if !namespace.has("metadata.deletionTimestamp") {
        if phase != "Active" {
            report.invalid(path, phase, "may only be 'Active' if `deletionTimestamp` is empty");
        }
    } else if phase != "Terminating" {
        report.invalid(path, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty");
    }
}

/// A config map.
pub(super) fn validate_config_map(report: &mut Report, object: &Value) {
    let mut size = 0;
    for list in ["data", "binaryData"] {
        let path = Path::Name(list);
        for (key, value) in object.map(list) {
            report.complain(path.key(key), key, config_key(key));
            if list == "data" && object.map("binaryData").contains_key(key) {
                report.invalid(path.key(key), key.as_str(), "duplicate of key present in binaryData");
            }
            size += stored_size(list, value);
        }
    }
    if size > MEBIBYTE {
        report.push(FieldError::too_long("", MEBIBYTE));
    }
}

/// Binary data is base64 in JSON.
fn stored_size(list: &str, value: &Value) -> usize {
    let text = value.as_str().unwrap_or("");
    if list == "binaryData" { text.trim_end_matches('=').len() * 3 / 4 } else { text.len() }
}

/// A secret.
pub(super) fn validate_secret(report: &mut Report, secret: &Value) {
    let path = Path::Name("data");
    let data = secret.map("data");
    let mut size = 0;
    for (key, value) in data {
        report.complain(path.key(key), key, config_key(key));
        size += stored_size("binaryData", value);
    }
    if size > MEBIBYTE {
        report.push(FieldError::too_long(path, MEBIBYTE));
    }
    let required: &[&str] = match secret.text("type") {
        "kubernetes.io/service-account-token" => {
            const NAME: &str = "kubernetes.io/service-account.name";
            if secret.map("metadata.annotations").text_of(NAME).is_empty() {
                report.required(Path::Name("metadata.annotations").key(NAME), "");
            }
            &[]
        }
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/basic-auth" if !data.contains_key("username") && !data.contains_key("password") => {
            &["username", "password"]
        }
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        _ => &[],
    };
    for key in required {
        if !data.contains_key(*key) {
            report.required(path.key(key), "");
        }
    }
}

/// Entries whose names have dots in them.
trait TextOf {
    fn text_of(&self, key: &str) -> &str;
}

impl TextOf for crate::builtin::access::Object {
    fn text_of(&self, key: &str) -> &str {
        self.get(key).and_then(Value::as_str).unwrap_or("")
    }
}

/// What may not change in configuration once it is marked immutable.
pub(super) fn validate_immutable_data(report: &mut Report, object: &Value, old: &Value) {
    if !old.flag("immutable") {
        return;
    }
    let why = "field is immutable when `immutable` is set";
    if !object.flag("immutable") {
        report.forbidden(Path::Name("immutable"), why);
    }
    for name in ["data", "binaryData"] {
        if !same(object.at(name), old.at(name)) {
            report.forbidden(Path::Name(name), why);
        }
    }
}

/// A resource quota.
pub(super) fn validate_quota(report: &mut Report, quota: &Value) {
    const SCOPES: &[&str] = &[
        "Terminating",
        "NotTerminating",
        "BestEffort",
        "NotBestEffort",
        "PriorityClass",
        "VolumeAttributesClass",
        "CrossNamespacePodAffinity",
    ];
    validate_list(report, SPEC.child("hard"), quota.map("spec.hard"), NameRule::Quota);
    for list in ["hard", "used"] {
        validate_list(report, STATUS.child(list), quota.at("status").map(list), NameRule::Quota);
    }
    for scope in quota.list("spec.scopes").iter().filter_map(Value::as_str) {
        if !SCOPES.contains(&scope) {
            report.invalid(SPEC.child("scopes"), quota.at("spec.scopes").clone(), "unsupported scope");
        }
    }
}

/// A limit range.
pub(super) fn validate_limit_range(report: &mut Report, object: &Value) {
    let limits = SPEC.child("limits");
    let mut kinds: Vec<&str> = Vec::new();
    for (index, limit) in object.list("spec.limits").iter().enumerate() {
        let path = limits.index(index);
        let kind = limit.text("type");
        let complaints = qualified_name(kind);
        if complaints.is_empty()
            && !kind.contains('/')
            && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim")
        {
            report.invalid(path.child("type"), kind, "must be a standard limit type or fully qualified");
        }
        report.complain(path.child("type"), kind, complaints);
        if kinds.contains(&kind) {
            report.duplicate(path.child("type"), kind);
        }
        kinds.push(kind);
        let rule = if matches!(kind, "Pod" | "Container") { NameRule::Container } else { NameRule::Any };
        for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            let list_path = path.child(list);
            for name in limit.map(list).keys() {
                validate_name(report, list_path.key(name), name, rule);
            }
        }
        if kind == "Pod" {
            for list in ["default", "defaultRequest"] {
                if !limit.map(list).is_empty() {
                    report.forbidden(path.child(list), "may not be specified when `type` is 'Pod'");
                }
            }
        }
        if kind == "PersistentVolumeClaim" && !limit.has("min.storage") && !limit.has("max.storage") {
            let why = "either minimum or maximum storage value is required, but neither was provided";
            report.required(path.child("limits"), why);
        }
        validate_limit_order(report, path, limit);
    }
}

fn validate_limit_order(report: &mut Report, path: Path<'_>, limit: &Value) {
    // lower list, upper list, list in the path, and the words for both
    let orders = [
        ("min", "max", "min", "min value", "max value"),
        ("min", "defaultRequest", "defaultRequest", "min value", "default request value"),
        ("defaultRequest", "max", "defaultRequest", "default request value", "max value"),
        ("defaultRequest", "default", "defaultRequest", "default request value", "default limit value"),
        ("min", "default", "default", "min value", "default value"),
        ("default", "max", "default", "default value", "max value"),
    ];
    for (lower, upper, shown, lower_word, upper_word) in orders {
        if limit.text("type") == "Pod" && shown != "min" {
            continue;
        }
        for (name, low) in limit.map(lower) {
            let high = limit.map(upper).get(name).map(Quantity::from_value);
            if let (Ok(low), Some(Ok(high))) = (Quantity::from_value(low), high)
                && low > high
            {
                let (low, high) = (low.canonical(), high.canonical());
                let value = limit.map(shown).get(name).cloned().unwrap_or_default();
                let list = path.child(shown);
                report.invalid(
                    list.key(name),
                    value,
                    format!("{lower_word} {low} is greater than {upper_word} {high}"),
                );
            }
        }
    }
}

/// A priority class.
pub(super) fn validate_priority_class(report: &mut Report, class: &Value) {
    const HIGHEST: i64 = 1_000_000_000;
    let (name, value) = (class.text("metadata.name"), class.count("value"));
    if name.starts_with("system-") {
        let expected = match name {
            "system-node-critical" => Some(2_000_001_000),
            "system-cluster-critical" => Some(2_000_000_000),
            _ => None,
        };
        let problem = match expected {
            None => Some(format!("{name} is not a known system priority class")),
            Some(expected) if expected != value => Some(format!("value of {name} PriorityClass must be {expected}")),
            Some(_) if class.flag("globalDefault") => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(problem) = problem {
            let why = "priority class names with 'system-' prefix are reserved for system use only. error: ";
            report.forbidden(Path::Name("metadata.name"), format!("{why}{problem}"));
        }
    } else if value > HIGHEST {
        let why = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        report.forbidden(Path::Name("value"), why);
    }
    let policies = &["PreemptLowerPriority", "Never"];
    report.optional_one_of(Path::Name("preemptionPolicy"), class.at("preemptionPolicy"), policies);
}

/// An update of a priority class.
pub(super) fn validate_priority_class_update(report: &mut Report, class: &Value, old: &Value) {
    if class.count("value") != old.count("value") {
        report.forbidden(Path::Name("value"), "may not be changed in an update.");
    }
    report.immutable(Path::Name("preemptionPolicy"), class.at("preemptionPolicy"), old.at("preemptionPolicy"));
}

/// A runtime class.
pub(super) fn validate_runtime_class(report: &mut Report, class: &Value) {
    let handler = class.text("handler");
    report.complain(Path::Name("handler"), handler, dns_label(handler));
    validate_list(report, Path::Name("overhead.limits"), class.map("overhead.podFixed"), NameRule::Container);
    let path = Path::Name("scheduling");
    validate_labels(report, path.child("nodeSelector"), class.map("scheduling.nodeSelector"));
    validate_tolerations(report, path.child("tolerations.tolerations"), class.list("scheduling.tolerations"));
}

/// A lease.
pub(super) fn validate_lease(report: &mut Report, lease: &Value) {
    if let Some(seconds) = lease.integer("spec.leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        report.invalid(SPEC.child("leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    report.nonnegative(SPEC.child("leaseTransitions"), lease.integer("spec.leaseTransitions"));
    if !lease.text("spec.preferredHolder").is_empty() && lease.text("spec.strategy").is_empty() {
        report.forbidden(SPEC.child("preferredHolder"), "may only be specified if `strategy` is defined");
    }
}

/// A disruption budget.
pub(super) fn validate_disruption_budget(report: &mut Report, budget: &Value) {
    let spec = budget.at("spec");
    if spec.has("minAvailable") && spec.has("maxUnavailable") {
        report.invalid(SPEC, spec.clone(), "minAvailable and maxUnavailable cannot be both set");
    }
    for name in ["minAvailable", "maxUnavailable"] {
        validate_bound(report, SPEC.child(name), spec.at(name));
        validate_at_most_all(report, SPEC.child(name), spec.at(name));
    }
    validate_selector(report, SPEC.child("selector"), spec.at("selector"));
    let policies = &["AlwaysAllow", "IfHealthyBudget"];
    report.optional_one_of(SPEC.child("unhealthyPodEvictionPolicy"), spec.at("unhealthyPodEvictionPolicy"), policies);
}

/// The status of a disruption budget.
pub(super) fn validate_disruption_budget_status(report: &mut Report, budget: &Value) {
    for name in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        report.nonnegative(STATUS.child(name), budget.at("status").integer(name));
    }
}

/// An autoscaler.
pub(super) fn validate_autoscaler(report: &mut Report, object: &Value) {
    let spec = object.at("spec");
    let (least, most) = (spec.integer("minReplicas"), spec.count("maxReplicas"));
    if let Some(least) = least.filter(|least| *least < 1) {
        report.invalid(SPEC.child("minReplicas"), least, "must be greater than or equal to 1");
    }
    if most < 1 {
        report.invalid(SPEC.child("maxReplicas"), most, "must be greater than 0");
    }
    if least.is_some_and(|least| most < least) {
        report.invalid(SPEC.child("maxReplicas"), most, "must be greater than or equal to `minReplicas`");
    }
    let path = SPEC.child("scaleTargetRef");
    for name in ["kind", "name"] {
        let text = spec.at("scaleTargetRef").text(name);
        if text.is_empty() {
            report.required(path.child(name), "");
        } else {
            report.complain(path.child(name), text, path_segment(text));
        }
    }
}

/// The status of an autoscaler.
pub(super) fn validate_autoscaler_status(report: &mut Report, object: &Value) {
    for name in ["currentReplicas", "desiredReplicas"] {
        report.nonnegative(STATUS.child(name), object.at("status").integer(name));
    }
}

/// An event, in either API group.
pub(super) fn validate_event(report: &mut Report, event: &Value, group: &str) {
    let (object, reporter) =
        if group.is_empty() { ("involvedObject", "reportingComponent") } else { ("regarding", "reportingController") };
    let (namespace, about) = (event.text("metadata.namespace"), event.at(object).text("namespace"));
    let path = Path::Name("involvedObject.namespace");
    let mismatch = "does not match event.namespace";
    if event.has("eventTime") {
        if about.is_empty() && !matches!(namespace, "default" | "kube-system") {
            report.invalid(path, about, mismatch);
        }
        let name = event.text(reporter);
        if name.is_empty() {
            report.required(Path::Name(reporter), "");
        }
        report.complain(Path::Name(reporter), name, qualified_name(name));
        for field in ["reportingInstance", "action", "reason"] {
            let text = event.text(field);
            if text.is_empty() {
                report.required(Path::Name(field), "");
            } else if text.len() > 128 {
                report.invalid(Path::Name(field), "", "can have at most 128 characters");
            }
        }
        let note = if group.is_empty() { "message" } else { "note" };
        if event.text(note).len() > 1024 {
            report.invalid(Path::Name("message"), "", "can have at most 1024 characters");
        }
    } else {
        let fits = if about.is_empty() { matches!(namespace, "" | "default") } else { about == namespace };
        if !fits {
            report.invalid(path, about, mismatch);
        }
    }
    if group.is_empty() {
        report.complain(Path::Name("namespace"), namespace, dns_subdomain(namespace));
        return;
    }
    if !event.has("eventTime") {
        report.required(Path::Name("eventTime"), "");
    }
    if !matches!(event.text("type"), "Normal" | "Warning") {
        report.invalid(Path::Name("type"), "", format!("has invalid value: {}", event.text("type")));
    }
    if event.has("series") && event.count("series.count") < 2 {
        report.invalid(Path::Name("series.count"), "", "should be at least 2");
    }
}
