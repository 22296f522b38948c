//! Defaults of all other kinds, where they depend on other fields.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::rules::{Constant, When, apply};
use crate::builtin::access::{Read, Write};

/// Traffic policies, target ports and session affinity.
pub(super) fn service(object: &mut Value) {
    if object.text("spec.sessionAffinity") == "ClientIP" {
        object.set_if_missing("spec.sessionAffinityConfig.clientIP.timeoutSeconds", 10800);
    } else if object.text("spec.sessionAffinity") == "None" {
        object.take_at("spec.sessionAffinityConfig");
    }
    for port in object.elements("spec.ports") {
        if let Some(number) = port.integer("port") {
            port.set_if_zero("targetPort", number);
        }
    }
    let kind = object.text("spec.type").to_owned();
    let has_external_addresses = kind == "ClusterIP" && !object.list("spec.externalIPs").is_empty();
    if kind == "LoadBalancer" || kind == "NodePort" || has_external_addresses {
        object.set_if_zero("spec.externalTrafficPolicy", "Cluster");
    }
    if kind != "ExternalName" {
        object.set_if_missing("spec.internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        object.set_if_missing("spec.allocateLoadBalancerNodePorts", true);
        for ingress in object.elements("status.loadBalancer.ingress") {
            if !ingress.text("ip").is_empty() {
                ingress.set_if_missing("ipMode", "VIP");
            }
        }
    }
}

/// Every namespace can be selected by its name.
pub(super) fn namespace(object: &mut Value) {
    let name = object.text("metadata.name").to_owned();
    if !name.is_empty()
        && let Some(labels) = object.object_at("metadata").and_then(|metadata| metadata.object_at("labels"))
    {
        labels.set("kubernetes.io/metadata.name", name);
    }
}

/// What can be allocated is everything, unless said otherwise; `podCIDR` is the first of `podCIDRs`.
pub(super) fn node(object: &mut Value) {
    if !object.has("status.allocatable") && object.has("status.capacity") {
        let capacity = object.at("status.capacity").clone();
        object.set("status.allocatable", capacity);
    }
    let range = object.text("spec.podCIDR").to_owned();
    match object.list("spec.podCIDRs").first().and_then(Value::as_str) {
        None if !range.is_empty() => object.set("spec.podCIDRs", json!([range])),
        Some(first) if first != range => {
            let first = first.to_owned();
            object.set("spec.podCIDR", first);
        }
        _ => {}
    }
}

/// `stringData` is for writing only: it becomes part of `data`.
pub(super) fn secret(object: &mut Value) {
    let Some(Value::Object(strings)) = object.take_at("stringData") else { return };
    let Some(data) = object.object_at("data") else { return };
    for (key, value) in strings {
        if let Some(text) = value.as_str() {
            data.set(&key, STANDARD.encode(text));
        }
    }
}

/// Defaults of containers fall back from the maximum, and requests from limits and the minimum.
pub(super) fn limit_range(object: &mut Value) {
    for limit in object.elements("spec.limits") {
        if limit.text("type") != "Container" {
            continue;
        }
        for (target, source) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
            let source = limit.map(source).clone();
            if source.is_empty() {
                continue;
            }
            if let Some(target) = limit.object_at(target) {
                for (name, quantity) in source {
                    target.entry(name).or_insert(quantity);
                }
            }
        }
    }
}

/// Users and groups belong to the RBAC group; service accounts do not.
pub(super) fn subjects(object: &mut Value) {
    for subject in object.elements("subjects") {
        if matches!(subject.text("kind"), "User" | "Group") {
            subject.set_if_zero("apiGroup", "rbac.authorization.k8s.io");
        }
    }
}

/// A policy is about ingress, and about egress if it has rules for it.
pub(super) fn network_policy(object: &mut Value) {
    if object.list("spec.policyTypes").is_empty() {
        let types =
            if object.list("spec.egress").is_empty() { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
        object.set("spec.policyTypes", types);
    }
}

/// Volumes are persistent unless said otherwise.
pub(super) fn csi_driver(object: &mut Value) {
    if object.list("spec.volumeLifecycleModes").is_empty() {
        object.set("spec.volumeLifecycleModes", json!(["Persistent"]));
    }
}

/// One device exactly, unless the request says otherwise.
pub(super) fn device_requests(object: &mut Value, path: &str) {
    for request in object.elements(path) {
        if let Some(exactly) = request.get_mut("exactly").filter(|exactly| exactly.is_object()) {
            allocation_mode(exactly);
        }
        for alternative in request.elements("firstAvailable") {
            allocation_mode(alternative);
        }
    }
}

fn allocation_mode(request: &mut Value) {
    apply(&[("allocationMode", When::Zero, Constant::Text("ExactCount"))], request);
    if request.text("allocationMode") == "ExactCount" {
        request.set_if_zero("count", 1);
    }
}
