//! Deployments, replica sets, stateful sets, daemon sets and replication controllers.

use serde_json::{Value, json};

use super::pod::validate_template;
use super::report::Report;
use super::selector::{is_empty_selector, validate_selector, validate_template_matches};
use super::storage::validate_claim_spec;
use crate::builtin::access::{Read, Write, same};
use crate::builtin::field_path::Path;
use crate::builtin::format::{dns_label, percent, percent_value};

const SPEC: Path<'static> = Path::Name("spec");
const STATUS: Path<'static> = Path::Name("status");

/// A deployment or replica set.
pub(super) fn validate_replicated(report: &mut Report, object: &Value, kind: &str) {
    let spec = object.at("spec");
    report.nonnegative(SPEC.child("replicas"), spec.integer("replicas"));
    report.nonnegative(SPEC.child("minReadySeconds"), spec.integer("minReadySeconds"));
    // the real server speaks of deployments for replica sets too
    validate_own_selector(report, spec, "deployment");
    validate_pod_template(report, spec, spec.at("template"), "ReplicaSet");
    if kind == "Deployment" {
        validate_deployment_strategy(report, SPEC.child("strategy"), spec.at("strategy"));
        report.nonnegative(SPEC.child("revisionHistoryLimit"), spec.integer("revisionHistoryLimit"));
        if let Some(seconds) = spec.integer("progressDeadlineSeconds") {
            let path = SPEC.child("progressDeadlineSeconds");
            report.nonnegative(path, Some(seconds));
            if seconds <= spec.count("minReadySeconds") {
                report.invalid(path, seconds, "must be greater than minReadySeconds");
            }
        }
    }
}

/// An update of a kind whose selector never changes.
pub(super) fn validate_selector_update(report: &mut Report, object: &Value, old: &Value) {
    report.immutable(SPEC.child("selector"), object.at("spec.selector"), old.at("spec.selector"));
}

fn validate_own_selector(report: &mut Report, spec: &Value, kind: &str) {
    let (path, selector) = (SPEC.child("selector"), spec.at("selector"));
    if !selector.is_object() {
        report.required(path, "");
        return;
    }
    validate_selector(report, path, selector);
    if is_empty_selector(selector) {
        report.invalid(path, selector.clone(), format!("empty selector is invalid for {kind}"));
    }
}

fn validate_pod_template(report: &mut Report, spec: &Value, template: &Value, kind: &str) {
    let path = SPEC.child("template");
    validate_template_matches(report, path, spec.at("selector"), template);
    validate_template(report, path, template);
    validate_always_restarted(report, path, template, kind);
}

fn validate_always_restarted(report: &mut Report, path: Path<'_>, template: &Value, kind: &str) {
    let policy = template.text("spec.restartPolicy");
    if policy != "Always" {
        report.unsupported(path.child("spec.restartPolicy"), policy, &["Always"]);
    }
    if template.has("spec.activeDeadlineSeconds") {
        let why = format!("activeDeadlineSeconds in {kind} is not Supported");
        report.forbidden(path.child("spec.activeDeadlineSeconds"), why);
    }
}

fn validate_deployment_strategy(report: &mut Report, path: Path<'_>, strategy: &Value) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.text("type") {
        "Recreate" => {
            if rolling.is_object() {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                report.forbidden(path.child("rollingUpdate"), why);
            }
        }
        "RollingUpdate" => {
            let path = path.child("rollingUpdate");
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            validate_bound(report, path.child("maxUnavailable"), unavailable);
            validate_bound(report, path.child("maxSurge"), surge);
            if bound_value(unavailable) == 0 && bound_value(surge) == 0 {
                let why = "may not be 0 when `maxSurge` is 0";
                report.invalid(path.child("maxUnavailable"), unavailable.clone(), why);
            }
            validate_at_most_all(report, path.child("maxUnavailable"), unavailable);
        }
        _ => report.push(crate::status::FieldError::not_supported(path, strategy, &["Recreate", "RollingUpdate"])),
    }
}

/// A number that is not negative, or a percentage.
pub(super) fn validate_bound(report: &mut Report, path: Path<'_>, bound: &Value) {
    match bound {
        Value::String(text) => report.complain(path, text, percent(text)),
        _ => report.nonnegative(path, bound.as_i64()),
    }
}

/// A percentage of at most one hundred.
pub(super) fn validate_at_most_all(report: &mut Report, path: Path<'_>, bound: &Value) {
    if bound.as_str().and_then(percent_value).is_some_and(|value| value > 100) {
        report.invalid(path, bound.clone(), "must not be greater than 100%");
    }
}

fn bound_value(bound: &Value) -> i64 {
    bound.as_str().map_or_else(|| bound.as_i64().unwrap_or(0), |text| percent_value(text).unwrap_or(0))
}

/// A daemon set.
pub(super) fn validate_daemon_set(report: &mut Report, object: &Value) {
    let spec = object.at("spec");
    let selector = spec.at("selector");
    validate_selector(report, SPEC.child("selector"), selector);
    validate_template_matches(report, SPEC.child("template"), selector, spec.at("template"));
    if selector.is_object() && is_empty_selector(selector) {
        report.invalid(SPEC.child("selector"), selector.clone(), "empty selector is invalid for daemonset");
    }
    let template = SPEC.child("template");
    validate_template(report, template, spec.at("template"));
    validate_always_restarted(report, template, spec.at("template"), "DaemonSet");
    report.nonnegative(SPEC.child("minReadySeconds"), spec.integer("minReadySeconds"));
    let (strategy, path) = (spec.at("updateStrategy"), SPEC.child("updateStrategy"));
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let (rolling, path) = (strategy.at("rollingUpdate"), path.child("rollingUpdate"));
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            for (name, bound) in [("maxUnavailable", unavailable), ("maxSurge", surge)] {
                validate_bound(report, path.child(name), bound);
                validate_at_most_all(report, path.child(name), bound);
            }
            match (bound_value(unavailable) != 0, bound_value(surge) != 0) {
                (true, true) => {
                    let why = "may not be set when maxUnavailable is non-zero";
                    report.invalid(path.child("maxSurge"), surge.clone(), why);
                }
                (false, false) => report.required(path.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => report.push(crate::status::FieldError::not_supported(path, strategy, &["RollingUpdate", "OnDelete"])),
    }
    report.nonnegative(SPEC.child("revisionHistoryLimit"), spec.integer("revisionHistoryLimit"));
}

/// A stateful set.
pub(super) fn validate_stateful_set(report: &mut Report, object: &Value) {
    let spec = object.at("spec");
    match spec.text("podManagementPolicy") {
        "" => report.required(SPEC.child("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        policy => report.invalid(SPEC.child("podManagementPolicy"), policy, "must be 'OrderedReady' or 'Parallel'"),
    }
    let (strategy, path) = (spec.at("updateStrategy"), SPEC.child("updateStrategy"));
    let rolling = strategy.at("rollingUpdate");
    match strategy.text("type") {
        "OnDelete" => {
            if rolling.is_object() {
                let why = "only allowed for updateStrategy 'RollingUpdate'";
                report.invalid(path.child("rollingUpdate"), rolling.clone(), why);
            }
        }
        "RollingUpdate" => {
            report.nonnegative(path.child("rollingUpdate.partition"), rolling.integer("partition"));
        }
        "" => report.required(path, ""),
        _ => report.invalid(path, strategy.clone(), "must be 'RollingUpdate' or 'OnDelete'"),
    }
    let retention = SPEC.child("persistentVolumeClaimRetentionPolicy");
    for when in ["whenDeleted", "whenScaled"] {
        let policy = spec.at("persistentVolumeClaimRetentionPolicy").at(when);
        report.optional_one_of(retention.child(when), policy, &["Retain", "Delete"]);
    }
    let claims = SPEC.child("volumeClaimTemplates");
    for (index, claim) in spec.list("volumeClaimTemplates").iter().enumerate() {
        validate_claim_spec(report, claims.index(index).child("spec"), claim.at("spec"));
    }
    report.nonnegative(SPEC.child("replicas"), spec.integer("replicas"));
    report.nonnegative(SPEC.child("minReadySeconds"), spec.integer("minReadySeconds"));
    report.nonnegative(SPEC.child("ordinals.start"), spec.integer("ordinals.start"));
    let service = spec.text("serviceName");
    if !service.is_empty() {
        report.complain(SPEC.child("serviceName"), service, dns_label(service));
    }
    validate_own_selector(report, spec, "statefulset");
    if spec.list("volumeClaimTemplates").is_empty() {
        validate_pod_template(report, spec, spec.at("template"), "StatefulSet");
    } else {
        let template = template_with_claims(spec);
        validate_pod_template(report, spec, &template, "StatefulSet");
    }
}

/// The template as its pods will be: every claim template is a volume of the same name.
fn template_with_claims(spec: &Value) -> Value {
    let mut template = spec.at("template").clone();
    let claims: Vec<&str> = spec.list("volumeClaimTemplates").iter().map(|claim| claim.text("metadata.name")).collect();
    let own = template.list("spec.volumes").iter().filter(|volume| !claims.contains(&volume.text("name")));
    let made = claims.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
    let volumes: Vec<Value> = made.chain(own.cloned()).collect();
    template.set("spec.volumes", volumes);
    template
}

/// An update of a stateful set.
pub(super) fn validate_stateful_set_update(report: &mut Report, object: &Value, old: &Value) {
    const CHANGEABLE: &[&str] = &[
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ];
    let (new, old) = (object.map("spec"), old.map("spec"));
    let changed = |name: &String| !CHANGEABLE.contains(&name.as_str()) && !same(new.at(name), old.at(name));
    if new.keys().chain(old.keys()).any(changed) {
        report.forbidden(
            SPEC,
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
             'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
}

/// A replication controller.
pub(super) fn validate_replication_controller(report: &mut Report, object: &Value) {
    let spec = object.at("spec");
    report.nonnegative(SPEC.child("minReadySeconds"), spec.integer("minReadySeconds"));
    report.nonnegative(SPEC.child("replicas"), spec.integer("replicas"));
    let selector = spec.map("selector");
    if selector.is_empty() {
        report.required(SPEC.child("selector"), "");
    }
    let (template, path) = (spec.at("template"), SPEC.child("template"));
    let labels = template.map("metadata.labels");
    if selector.iter().any(|(key, value)| labels.get(key) != Some(value)) {
        let labels = template.at("metadata.labels").clone();
        report.invalid(path.child("metadata.labels"), labels, "`selector` does not match template `labels`");
    }
    validate_template(report, path, template);
    validate_always_restarted(report, path, template, "ReplicationController");
}

/// Counts in the status of anything that has replicas.
pub(super) fn validate_status(report: &mut Report, object: &Value, old: &Value, kind: &str) {
    const COUNTS: &[&str] = &[
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "fullyLabeledReplicas",
        "currentReplicas",
        "terminatingReplicas",
        "collisionCount",
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
    ];
    let status = object.at("status");
    for name in COUNTS {
        report.nonnegative(STATUS.child(name), status.integer(name));
    }
    for name in ["fullyLabeledReplicas", "updatedReplicas", "currentReplicas", "readyReplicas", "availableReplicas"] {
        let count = status.count(name);
        if count > status.count("replicas") {
            report.invalid(STATUS.child(name), count, "cannot be greater than status.replicas");
        }
    }
    let available = status.count("availableReplicas");
    if available > status.count("readyReplicas") {
        let ready = if kind == "StatefulSet" { "status.readyReplicas" } else { "readyReplicas" };
        report.invalid(STATUS.child("availableReplicas"), available, format!("cannot be greater than {ready}"));
    }
    if status.count("collisionCount") < old.count("status.collisionCount") {
        report.invalid(STATUS.child("collisionCount"), status.count("collisionCount"), "cannot be decremented");
    }
}
