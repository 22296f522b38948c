//! What `--field-selector` can ask for: a few fields per kind, and an error for all others.

use serde_json::Value;

use crate::builtin::access::Read;
use crate::resource::Gvk;

/// A field as a client names it, and where it is in the object.
type Field = (&'static str, &'static str);

const POD: &[Field] = &[
    ("spec.nodeName", "spec.nodeName"),
    ("spec.host", "spec.nodeName"),
    ("spec.restartPolicy", "spec.restartPolicy"),
    ("spec.schedulerName", "spec.schedulerName"),
    ("spec.serviceAccountName", "spec.serviceAccountName"),
    ("spec.hostNetwork", "spec.hostNetwork"),
    ("status.phase", "status.phase"),
    ("status.podIP", "status.podIP"),
    ("status.podIPs", ""),
    ("status.nominatedNodeName", "status.nominatedNodeName"),
];

const EVENT: &[Field] = &[
    ("involvedObject.kind", "involvedObject.kind"),
    ("involvedObject.namespace", "involvedObject.namespace"),
    ("involvedObject.name", "involvedObject.name"),
    ("involvedObject.uid", "involvedObject.uid"),
    ("involvedObject.apiVersion", "involvedObject.apiVersion"),
    ("involvedObject.resourceVersion", "involvedObject.resourceVersion"),
    ("involvedObject.fieldPath", "involvedObject.fieldPath"),
    ("reason", "reason"),
    ("reportingComponent", "reportingComponent"),
    ("source", "source.component"),
    ("type", "type"),
];

const NEW_EVENT: &[Field] = &[
    ("regarding.kind", "regarding.kind"),
    ("regarding.namespace", "regarding.namespace"),
    ("regarding.name", "regarding.name"),
    ("regarding.uid", "regarding.uid"),
    ("regarding.apiVersion", "regarding.apiVersion"),
    ("regarding.resourceVersion", "regarding.resourceVersion"),
    ("regarding.fieldPath", "regarding.fieldPath"),
    ("reason", "reason"),
    ("reportingController", "reportingController"),
    ("type", "type"),
];

fn fields(gvk: &Gvk) -> &'static [Field] {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => POD,
        ("", "Event") => EVENT,
        ("events.k8s.io", "Event") => NEW_EVENT,
        ("", "Node") => &[("spec.unschedulable", "spec.unschedulable")],
        ("", "Namespace") => &[("status.phase", "status.phase")],
        ("", "Secret") => &[("type", "type")],
        ("", "Service") => &[("spec.clusterIP", "spec.clusterIP"), ("spec.type", "spec.type")],
        ("", "ReplicationController") => &[("status.replicas", "status.replicas")],
        ("batch", "Job") => &[("status.successful", "status.succeeded")],
        ("certificates.k8s.io", "CertificateSigningRequest") => &[("spec.signerName", "spec.signerName")],
        ("resource.k8s.io", "ResourceSlice") => &[("spec.nodeName", "spec.nodeName"), ("spec.driver", "spec.driver")],
        _ => &[],
    }
}

/// Whether a field selector may name a field of a kind. Names and namespaces may always be asked for, except the namespace of a
/// few kinds that have none and say so.
pub fn supports_field(gvk: &Gvk, field: &str) -> bool {
    let has_no_namespace = matches!(
        (gvk.group.as_str(), gvk.kind.as_str()),
        ("", "Node" | "Namespace")
            | ("resource.k8s.io", "ResourceSlice")
            | ("certificates.k8s.io", "CertificateSigningRequest")
    );
    match field {
        "metadata.name" => true,
        "metadata.namespace" => !has_no_namespace,
        _ => fields(gvk).iter().any(|(name, _)| *name == field),
    }
}

/// The values of the fields that a selector may name, besides name and namespace.
pub fn selectable_fields(gvk: &Gvk, object: &Value) -> Vec<(&'static str, String)> {
    fields(gvk).iter().map(|(name, path)| (*name, value(name, path, object))).collect()
}

fn value(name: &str, path: &str, object: &Value) -> String {
    let found = if path.is_empty() { &Value::Null } else { object.at(path) };
    match (name, found) {
        ("spec.hostNetwork" | "spec.unschedulable", found) => found.as_bool().unwrap_or(false).to_string(),
        ("status.successful" | "status.replicas", found) => found.as_i64().unwrap_or(0).to_string(),
        ("source", found) if found.as_str().unwrap_or("").is_empty() => object.text("reportingComponent").to_owned(),
        (_, Value::String(text)) => text.clone(),
        _ => String::new(),
    }
}
