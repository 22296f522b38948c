//! What an update may change in a pod: little.

use serde_json::Value;

use super::pod::validate_pod;
use super::report::Report;
use super::scheduling::validate_tolerations;
use crate::builtin::access::{Read, Write, same};
use crate::builtin::field_path::Path;
use crate::builtin::format::{dns_subdomain, in_range, ip_address, qualified_name};

const SPEC: Path<'static> = Path::Name("spec");
const STATUS: Path<'static> = Path::Name("status");
const MIRROR: &str = "kubernetes.io/config.mirror";
const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 \
    if it was previously negative)";

/// An update of the pod itself.
pub(super) fn validate_update(report: &mut Report, pod: &Value, old: &Value) {
    validate_pod(report, pod);
    validate_mirror(report, pod, old);
    if same(pod.at("spec"), old.at("spec")) {
        return;
    }
    for list in ["containers", "initContainers"] {
        if pod.at("spec").list(list).len() != old.at("spec").list(list).len() {
            report.forbidden(SPEC.child(list), "pod updates may not add or remove containers");
            return;
        }
    }
    if !validate_deadline(report, pod, old) {
        return;
    }
    validate_added_tolerations(report, pod, old);
    validate_removed_gates(report, pod, old);
    let mut allowed = pod.at("spec").clone();
    let gated = !old.list("spec.schedulingGates").is_empty();
    if gated {
        validate_gated_changes(report, pod, old);
    }
    undo_allowed_changes(&mut allowed, old.at("spec"), gated);
    if !same(&allowed, old.at("spec")) {
        let difference = difference(old.at("spec"), &allowed);
        report.forbidden(SPEC, format!("pod updates may not change fields other than {CHANGEABLE}\n{difference}"));
    }
}

fn validate_mirror(report: &mut Report, pod: &Value, old: &Value) {
    let (new, old) = (pod.map("metadata.annotations").get(MIRROR), old.map("metadata.annotations").get(MIRROR));
    let path = Path::Name("metadata.annotations");
    match (new, old) {
        (new, Some(_)) if new != old => {
            report.forbidden(path.key(MIRROR), "may not remove or update mirror pod annotation");
        }
        (Some(_), None) => report.forbidden(path.key(MIRROR), "may not add mirror pod annotation"),
        _ => {}
    }
}

/// Gives whether validation goes on.
fn validate_deadline(report: &mut Report, pod: &Value, old: &Value) -> bool {
    let path = SPEC.child("activeDeadlineSeconds");
    match (pod.integer("spec.activeDeadlineSeconds"), old.integer("spec.activeDeadlineSeconds")) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            report.complain_number(path, new, in_range(new, 0, i64::from(i32::MAX)));
            false
        }
        (Some(new), Some(old)) if old < new => {
            report.invalid(path, new, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            report.invalid(path, Value::Null, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

fn validate_added_tolerations(report: &mut Report, pod: &Value, old: &Value) {
    let path = SPEC.child("tolerations");
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration.take_at("tolerationSeconds");
        toleration
    };
    let new: Vec<Value> = pod.list("spec.tolerations").iter().map(without_seconds).collect();
    if old.list("spec.tolerations").iter().any(|old| !new.contains(&without_seconds(old))) {
        report.forbidden(path, "existing toleration can not be modified except its tolerationSeconds");
        return;
    }
    validate_tolerations(report, path, pod.list("spec.tolerations"));
}

fn validate_removed_gates(report: &mut Report, pod: &Value, old: &Value) {
    let path = SPEC.child("schedulingGates");
    for (index, gate) in pod.list("spec.schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        if !old.list("spec.schedulingGates").iter().any(|old| old.text("name") == name) {
            let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            report.forbidden(path.index(index).child("name"), why);
        }
    }
}

/// A gated pod may be steered to fewer nodes, never to others.
fn validate_gated_changes(report: &mut Report, pod: &Value, old: &Value) {
    let new_selector = pod.map("spec.nodeSelector");
    if old.map("spec.nodeSelector").iter().any(|(key, value)| new_selector.get(key) != Some(value)) {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        report.invalid(SPEC.child("nodeSelector"), new_selector.clone(), why);
    }
    let terms = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let (new_terms, old_terms) = (pod.list(terms), old.list(terms));
    let path = Path::Name(terms);
    if !old_terms.is_empty() && old_terms.len() != new_terms.len() {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        report.invalid(path, new_terms.to_vec(), why);
        return;
    }
    for (index, (old, new)) in old_terms.iter().zip(new_terms).enumerate() {
        let empty = |term: &Value| term.list("matchExpressions").is_empty() && term.list("matchFields").is_empty();
        let only_added = |list: &str| {
            let (old, new) = (old.list(list), new.list(list));
            new.len() >= old.len() && old.iter().zip(new).all(|(old, new)| old == new)
        };
        if (empty(old) && !empty(new)) || !only_added("matchExpressions") || !only_added("matchFields") {
            report.invalid(path.index(index), new.clone(), "only additions are allowed (no mutations or deletions)");
        }
    }
}

/// Puts back the old value of every field an update may change, so that what still differs is forbidden.
fn undo_allowed_changes(spec: &mut Value, old: &Value, gated: bool) {
    for list in ["containers", "initContainers"] {
        for (container, old) in spec.elements(list).iter_mut().zip(old.list(list)) {
            restore(container, old, "image");
        }
    }
    for name in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        restore(spec, old, name);
    }
    let name = "terminationGracePeriodSeconds";
    if old.integer(name).is_some_and(|old| old < 0) && spec.integer(name) == Some(1) {
        restore(spec, old, name);
    }
    if !gated {
        return;
    }
    restore(spec, old, "nodeSelector");
    let others = |spec: &Value| spec.has("affinity.podAffinity") || spec.has("affinity.podAntiAffinity");
    if !others(spec) && !old.has("affinity") {
        spec.take_at("affinity");
    } else {
        restore(spec, old, "affinity.nodeAffinity");
    }
}

fn restore(into: &mut Value, old: &Value, path: &str) {
    if old.has(path) {
        into.set(path, old.at(path).clone());
    } else {
        into.take_at(path);
    }
}

/// The fields that differ, one `-` and one `+` line each, in the manner of the real server's diff.
fn difference(old: &Value, new: &Value) -> String {
    let mut lines = Vec::new();
    let (old, new) = (old.map(""), new.map(""));
    let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        let (before, after) = (old.at(name), new.at(name));
        if !same(before, after) {
            lines.push(format!("- \t{name}: {before},\n+ \t{name}: {after},"));
        }
    }
    lines.join("\n")
}

/// An update through `pods/ephemeralcontainers`.
pub(super) fn validate_ephemeral_update(report: &mut Report, pod: &Value, old: &Value) {
    validate_pod(report, pod);
    let path = SPEC.child("ephemeralContainers");
    for container in old.list("spec.ephemeralContainers") {
        let name = container.text("name");
        match pod.list("spec.ephemeralContainers").iter().find(|new| new.text("name") == name) {
            None => report.forbidden(path, format!("existing ephemeral containers \"{name}\" may not be removed\n")),
            Some(new) if new != container => {
                let difference = difference(container, new);
                report.forbidden(
                    path,
                    format!("existing ephemeral containers \"{name}\" may not be changed\n{difference}"),
                );
            }
            Some(_) => {}
        }
    }
}

/// An update through `pods/status`.
pub(super) fn validate_status_update(report: &mut Report, pod: &Value, old: &Value) {
    validate_mirror(report, pod, old);
    let conditions = STATUS.child("conditions");
    for (index, condition) in pod.list("status.conditions").iter().enumerate() {
        let kind = condition.text("type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            report.complain(conditions.index(index).child("Type"), kind, qualified_name(kind));
        }
    }
    if pod.text("spec.nodeName") != old.text("spec.nodeName") {
        report.forbidden(STATUS.child("nodeName"), "may not be changed directly");
    }
    let nominated = pod.text("status.nominatedNodeName");
    if !nominated.is_empty() && nominated != old.text("status.nominatedNodeName") {
        report.complain(STATUS.child("nominatedNodeName"), nominated, dns_subdomain(nominated));
    }
    report.immutable(STATUS.child("qosClass"), pod.at("status.qosClass"), old.at("status.qosClass"));
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        validate_transitions(report, STATUS.child(list), list, pod, old);
    }
    let addresses = STATUS.child("podIPs");
    for (index, address) in pod.list("status.podIPs").iter().enumerate() {
        let address = address.text("ip");
        report.complain(addresses.index(index), address, ip_address(address));
    }
    let hosts = pod.list("status.hostIPs");
    if let Some(first) = hosts.first()
        && first.text("ip") != pod.text("status.hostIP")
    {
        report.invalid(STATUS.child("hostIPs").index(0).child("ip"), first.text("ip"), "must be equal to `hostIP`");
    }
}

/// A container that ended stays ended, unless its policy restarts it.
fn validate_transitions(report: &mut Report, path: Path<'_>, list: &str, pod: &Value, old: &Value) {
    let policy = old.text("spec.restartPolicy");
    let restarts_always = policy == "Always" && list != "ephemeralContainerStatuses";
    if restarts_always {
        return;
    }
    for (index, status) in old.at("status").list(list).iter().enumerate() {
        let ended = status.at("state.terminated");
        if !ended.is_object() || (ended.count("exitCode") != 0 && policy == "OnFailure") {
            continue;
        }
        let name = status.text("name");
        let is_side_car = old
            .list("spec.initContainers")
            .iter()
            .any(|container| container.text("name") == name && container.text("restartPolicy") == "Always");
        let runs_again =
            pod.at("status").list(list).iter().any(|new| new.text("name") == name && !new.has("state.terminated"));
        if runs_again && !is_side_car {
            report.forbidden(path.index(index).child("state"), "may not be transitioned to non-terminated state");
        }
    }
}

/// A binding, also as the body of `pods/binding`.
pub(super) fn validate_binding(report: &mut Report, binding: &Value) {
    let path = Path::Name("target");
    let kind = binding.text("target.kind");
    if !kind.is_empty() && kind != "Node" {
        report.unsupported(path.child("kind"), kind, &["Node", "<empty>"]);
    }
    if binding.text("target.name").is_empty() {
        report.required(path.child("name"), "");
    }
}
