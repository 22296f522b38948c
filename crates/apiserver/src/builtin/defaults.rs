//! What a server fills in: the object a client reads back after sending only what mattered to it.
//!
//! Three steps, in this order: the shape Go would give the object (no `null`, no empty optional fields, fields without
//! `omitempty` present), canonical quantities, then the defaults proper. Plain defaults are rows of a table; defaults that depend
//! on other fields are functions, one per kind. Only objects of built-in kinds come here.

mod cluster;
mod pod;
mod quantities;
mod rules;
mod shape;
mod workload;

use serde_json::Value;

use self::rules::apply;
use super::access::Read;
use crate::resource::Gvk;

pub use self::quantities::undecodable_quantity;
pub(crate) use self::workload::take_shared_labels_mark;

/// Sets every default a client of `kube-apiserver` 1.34 can see.
pub fn set_defaults(gvk: &Gvk, object: &mut Value) {
    if !object.is_object() {
        return;
    }
    let (group, kind) = (gvk.group.as_str(), gvk.kind.as_str());
    shape::normalize(group, kind, object);
    quantities::canonicalize(group, kind, object);
    for template in pod::templates(group, kind) {
        pod::template_defaults(object, template);
    }
    apply(rules::plain(group, kind, &gvk.version), object);
    match (group, kind) {
        ("", "Pod") => pod::pod_defaults(object),
        ("", "ReplicationController") => workload::replication_controller(object),
        ("", "Service") => cluster::service(object),
        ("", "Namespace") => cluster::namespace(object),
        ("", "Node") => cluster::node(object),
        ("", "Secret") => cluster::secret(object),
        ("", "LimitRange") => cluster::limit_range(object),
        ("apps", "Deployment") => workload::deployment(object),
        ("apps", "DaemonSet") => workload::daemon_set(object),
        ("apps", "StatefulSet") => workload::stateful_set(object),
        ("batch", "Job") => workload::job(object),
        ("autoscaling", "HorizontalPodAutoscaler") if gvk.version == "v2" => workload::autoscaler(object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => cluster::subjects(object),
        ("networking.k8s.io", "NetworkPolicy") => cluster::network_policy(object),
        ("storage.k8s.io", "CSIDriver") => cluster::csi_driver(object),
        ("resource.k8s.io", "ResourceClaim") => cluster::device_requests(object, "spec.devices.requests"),
        ("resource.k8s.io", "ResourceClaimTemplate") => cluster::device_requests(object, "spec.spec.devices.requests"),
        _ => {}
    }
    complete(gvk, object);
}

/// Adds the fields that an answer always has because Go encodes them even when they are zero (`status.replicas: 0`).
pub(crate) fn complete(gvk: &Gvk, object: &mut Value) {
    let lists = ["conditions", "containerStatuses", "initContainerStatuses"];
    let is_fresh_pod = gvk.kind == "Pod" && !lists.iter().any(|list| object.at("status").has(list));
    if !is_fresh_pod {
        apply(rules::present(&gvk.group, &gvk.kind, &gvk.version), object);
    }
}

#[cfg(test)]
pub(crate) mod tests;
