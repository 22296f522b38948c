//! Pods: the first status, the quality of service, and what their subresources may change.

use serde_json::{Value, json};

use crate::builtin::access::{Object, Read, Write};
use crate::builtin::quantity::Quantity;

use super::restore;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Phase `Pending`, the quality of service, the condition of a gated pod, and selectors made from label keys.
pub(super) fn prepare_for_create(object: &mut Value) {
    let mut status = json!({"phase": "Pending", "qosClass": quality_of_service(object.at("spec"))});
    if !object.list("spec.schedulingGates").is_empty() {
        status.set(
            "conditions",
            json!([{
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": null,
                "lastTransitionTime": object.at("metadata.creationTimestamp"),
            }]),
        );
    }
    object.set("status", status);
    merge_label_keys(object);
}

/// `Guaranteed` when every container has equal requests and limits of cpu and memory, `BestEffort` when none has any,
/// `Burstable` otherwise. Resources of the pod as a whole decide alone when they are given.
fn quality_of_service(spec: &Value) -> &'static str {
    let positive = |list: &Object, name: &str| {
        list.get(name).and_then(|value| Quantity::from_value(value).ok()).filter(|quantity| quantity.is_positive())
    };
    let whole = spec.at("resources");
    let containers: Vec<&Value> = if whole.is_object() {
        vec![whole]
    } else {
        let all = spec.list("containers").iter().chain(spec.list("initContainers"));
        all.map(|container| container.at("resources")).collect()
    };
    let mut requests: [Option<Quantity>; 2] = [None; 2];
    let mut limits: [Option<Quantity>; 2] = [None; 2];
    let mut guaranteed = true;
    for resources in &containers {
        for (index, name) in ["cpu", "memory"].iter().enumerate() {
            for (list, sums) in [("requests", &mut requests), ("limits", &mut limits)] {
                let amount = positive(resources.map(list), name);
                if let (Some(amount), Some(sum)) = (amount, sums.get_mut(index)) {
                    *sum = Some(sum.map_or(amount, |sum| sum.plus(amount)));
                }
                guaranteed &= list == "requests" || amount.is_some();
            }
        }
    }
    if requests.iter().chain(&limits).all(Option::is_none) {
        return "BestEffort";
    }
    let equal = requests.iter().zip(&limits).all(|(request, limit)| request.is_none() || request == limit);
    let complete = requests.iter().flatten().count() == limits.iter().flatten().count();
    if guaranteed && equal && complete { "Guaranteed" } else { "Burstable" }
}

/// Affinity and spreading may name label keys; the pod's own values of them become part of the selector.
fn merge_label_keys(object: &mut Value) {
    if object.list("spec.topologySpreadConstraints").is_empty() && !object.has("spec.affinity") {
        return;
    }
    let labels = object.map("metadata.labels").clone();
    for constraint in object.elements("spec.topologySpreadConstraints") {
        merge_into_selector(constraint, &labels);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        for term in object.elements(&format!("spec.affinity.{kind}.{REQUIRED}")) {
            merge_into_selector(term, &labels);
        }
        for weighted in object.elements(&format!("spec.affinity.{kind}.{PREFERRED}")) {
            if let Some(term) = weighted.get_mut("podAffinityTerm") {
                merge_into_selector(term, &labels);
            }
        }
    }
}

fn merge_into_selector(term: &mut Value, labels: &Object) {
    if !term.has("labelSelector") {
        return;
    }
    let mut expressions = Vec::new();
    for (list, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term.list(list).iter().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                expressions.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if !expressions.is_empty() {
        let mut all = term.list("labelSelector.matchExpressions").to_vec();
        all.append(&mut expressions);
        term.set("labelSelector.matchExpressions", all);
    }
}

/// What a status update may leave out without clearing it.
pub(super) fn keep_observed(object: &mut Value, old: &Value) {
    let quality = old.at("status.qosClass");
    if !quality.is_null() {
        object.set_if_zero("status.qosClass", quality.clone());
    }
    let generation = old.count("status.observedGeneration");
    if generation != 0 {
        object.set_if_zero("status.observedGeneration", generation);
    }
    for condition in object.elements("status.conditions") {
        let kind = condition.text("type");
        let before = old.list("status.conditions").iter().find(|old| old.text("type") == kind);
        let generation = before.map_or(0, |before| before.count("observedGeneration"));
        if generation != 0 {
            condition.set_if_zero("observedGeneration", generation);
        }
    }
}

/// Through `ephemeralcontainers` only these change.
pub(super) fn keep_all_but_ephemeral_containers(object: &mut Value, old: &Value) {
    let containers = object.take_at("spec.ephemeralContainers");
    keep_spec_and_status(object, old);
    match containers {
        Some(containers) => object.set("spec.ephemeralContainers", containers),
        None => {
            object.take_at("spec.ephemeralContainers");
        }
    }
}

/// Through `resize` only resources of containers change; other lists of containers are left for validation to refuse.
pub(super) fn keep_all_but_resources(object: &mut Value, old: &Value) {
    let lists = ["spec.containers", "spec.initContainers"];
    let names = |object: &Value, list: &str| -> Vec<String> {
        object.list(list).iter().map(|container| container.text("name").to_owned()).collect()
    };
    if lists.iter().any(|list| names(object, list) != names(old, list)) {
        return;
    }
    let new = object.clone();
    keep_spec_and_status(object, old);
    for list in lists {
        for (container, new) in object.elements(list).iter_mut().zip(new.list(list)) {
            restore(container, new, "resources");
            restore(container, new, "resizePolicy");
        }
    }
}

fn keep_spec_and_status(object: &mut Value, old: &Value) {
    restore(object, old, "spec");
    restore(object, old, "status");
    let kept = ["labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp"];
    for name in kept {
        restore(object, old, &format!("metadata.{name}"));
    }
}
