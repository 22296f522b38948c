//! Defaults of the kinds that make pods, where they depend on other fields.

use serde_json::{Value, json};

use super::rules::{Constant, When, apply};
use crate::builtin::access::{Object, Read, Write};

/// Selector and labels come from the template.
pub(super) fn replication_controller(object: &mut Value) {
    let labels = object.map("spec.template.metadata.labels").clone();
    if labels.is_empty() {
        return;
    }
    if object.map("spec.selector").is_empty() {
        object.set("spec.selector", labels.clone());
    }
    labels_if_none(object, labels);
}

/// Rolling updates are bounded by a quarter.
pub(super) fn deployment(object: &mut Value) {
    if object.text("spec.strategy.type") == "RollingUpdate" {
        object.set_if_missing("spec.strategy.rollingUpdate.maxUnavailable", "25%");
        object.set_if_missing("spec.strategy.rollingUpdate.maxSurge", "25%");
    }
}

/// One pod at a time.
pub(super) fn daemon_set(object: &mut Value) {
    if object.text("spec.updateStrategy.type") == "RollingUpdate" {
        object.set_if_missing("spec.updateStrategy.rollingUpdate.maxUnavailable", 1);
        object.set_if_missing("spec.updateStrategy.rollingUpdate.maxSurge", 0);
    }
}

/// The update strategy, and the claim templates as whole objects.
pub(super) fn stateful_set(object: &mut Value) {
    if object.text("spec.updateStrategy.type").is_empty() {
        object.set("spec.updateStrategy.type", "RollingUpdate");
        object.set_if_missing("spec.updateStrategy.rollingUpdate", json!({}));
    }
    if object.text("spec.updateStrategy.type") == "RollingUpdate" && object.has("spec.updateStrategy.rollingUpdate") {
        object.set_if_missing("spec.updateStrategy.rollingUpdate.partition", 0);
    }
    for claim in object.elements("spec.volumeClaimTemplates") {
        if claim.is_object() {
            claim.set("apiVersion", "v1");
            claim.set("kind", "PersistentVolumeClaim");
            apply(
                &[
                    ("spec.volumeMode", When::Missing, Constant::Text("Filesystem")),
                    ("status.phase", When::Zero, Constant::Text("Pending")),
                ],
                claim,
            );
        }
    }
}

/// How often and how many, and labels from the template.
pub(super) fn job(object: &mut Value) {
    if !object.has("spec.completions") && !object.has("spec.parallelism") {
        object.set("spec.completions", 1);
    }
    object.set_if_missing("spec.parallelism", 1);
    let limit = if object.has("spec.backoffLimitPerIndex") { i32::MAX } else { 6 };
    object.set_if_missing("spec.backoffLimit", limit);
    let replace = if object.has("spec.podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    object.set_if_missing("spec.podReplacementPolicy", replace);
    let labels = object.map("spec.template.metadata.labels").clone();
    if !labels.is_empty() && object.map("metadata.labels").is_empty() {
        let is_new = !labels.contains_key(CONTROLLER);
        object.set("metadata.labels", labels);
        if is_new && let Some(labels) = object.object_at("metadata.labels") {
            labels.set(CONTROLLER, SHARED);
        }
    }
}

/// In Go a job without labels shares those of its template, so the labels generated for the template appear on the job too. The
/// uid they need is known only later: until then this value, which no label can have, keeps their place.
const CONTROLLER: &str = "batch.kubernetes.io/controller-uid";
const SHARED: &str = "<the uid of this job>";

/// Removes the mark of shared labels and says whether it was there.
pub(crate) fn take_shared_labels_mark(object: &mut Value) -> bool {
    let is_marked = object.map("metadata.labels").get(CONTROLLER).is_some_and(|value| value == SHARED);
    if is_marked && let Some(labels) = object.existing("metadata.labels") {
        labels.remove(CONTROLLER);
    }
    is_marked
}

/// The metric to scale by, and complete rules once any behaviour is given.
pub(super) fn autoscaler(object: &mut Value) {
    if object.list("spec.metrics").is_empty() {
        object.set(
            "spec.metrics",
            json!([{
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
            }]),
        );
    }
    if !object.has("spec.behavior") {
        return;
    }
    object.set_if_missing("spec.behavior.scaleUp.stabilizationWindowSeconds", 0);
    object.set_if_missing("spec.behavior.scaleUp.selectPolicy", "Max");
    object.set_if_missing(
        "spec.behavior.scaleUp.policies",
        json!([
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ]),
    );
    object.set_if_missing("spec.behavior.scaleDown.selectPolicy", "Max");
    object.set_if_missing(
        "spec.behavior.scaleDown.policies",
        json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]),
    );
}

fn labels_if_none(object: &mut Value, labels: Object) {
    if object.map("metadata.labels").is_empty() {
        object.set("metadata.labels", labels);
    }
}
