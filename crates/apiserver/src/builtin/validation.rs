//! What a server refuses: objects of built-in kinds that break a rule of their kind.
//!
//! Errors have the field path, the cause and the words of the real server, because users search for them. Metadata is judged
//! in [`metadata`](super::metadata), JSON types by the schema before anything comes here.

mod cluster;
mod container;
mod cron;
mod device;
mod job;
mod pod;
mod pod_update;
mod rbac;
pub(crate) mod report;
pub(crate) mod resources;
mod scheduling;
mod security;
pub(crate) mod selector;
mod service;
mod storage;
mod volume;
mod webhook;
mod workload;

use serde_json::Value;

use self::report::Report;
use super::access::Read;
use super::field_path::Path;
use crate::resource::Gvk;
use crate::status::FieldError;

const RBAC: &str = "rbac.authorization.k8s.io";
const DEVICES: &str = "resource.k8s.io";

/// What is wrong with a new object, after defaults.
pub fn validate_create(gvk: &Gvk, object: &Value) -> Vec<FieldError> {
    let mut report = Report::default();
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod::validate_create(&mut report, object),
        ("", "Binding") => pod_update::validate_binding(&mut report, object),
        _ => validate(&mut report, gvk, object, &Value::Null),
    }
    report.into_errors()
}

/// What is wrong with an update of an object or of one of its subresources.
pub fn validate_update(gvk: &Gvk, subresource: Option<&str>, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut report = Report::default();
    match subresource {
        None | Some("scale") => {
            // these are judged by what changes alone
            let only_changes = matches!(
                (gvk.group.as_str(), gvk.kind.as_str()),
                ("", "Pod")
                    | ("scheduling.k8s.io", "PriorityClass")
                    | ("storage.k8s.io", "StorageClass")
                    | ("node.k8s.io", "RuntimeClass")
            );
            if !only_changes {
                validate(&mut report, gvk, object, old);
            }
            validate_change(&mut report, gvk, object, old);
        }
        Some("status") => validate_status(&mut report, gvk, object, old),
        Some("ephemeralcontainers") if gvk.kind == "Pod" => {
            pod_update::validate_ephemeral_update(&mut report, object, old);
        }
        Some("resize") if gvk.kind == "Pod" => pod::validate_pod(&mut report, object),
        Some("finalize") if gvk.kind == "Namespace" => cluster::validate_namespace(&mut report, object),
        Some(_) => {}
    }
    report.into_errors()
}

/// Rules that hold at all times; `old` is `null` on create.
fn validate(report: &mut Report, gvk: &Gvk, object: &Value, old: &Value) {
    let kind = gvk.kind.as_str();
    let spec = Path::Name("spec");
    match (gvk.group.as_str(), kind) {
        ("", "PodTemplate") => pod::validate_template(report, Path::Name("template"), object.at("template")),
        ("", "ReplicationController") => workload::validate_replication_controller(report, object),
        ("", "Service") => service::validate_service(report, object),
        ("", "Node") => cluster::validate_node(report, object),
        ("", "Namespace") => cluster::validate_namespace(report, object),
        ("", "ConfigMap") => cluster::validate_config_map(report, object),
        ("", "Secret") => cluster::validate_secret(report, object),
        ("", "ResourceQuota") => cluster::validate_quota(report, object),
        ("", "LimitRange") => cluster::validate_limit_range(report, object),
        ("", "PersistentVolume") => storage::validate_volume(report, object),
        ("", "PersistentVolumeClaim") => storage::validate_claim_spec(report, spec, object.at("spec")),
        (group @ ("" | "events.k8s.io"), "Event") => cluster::validate_event(report, object, group),
        ("apps", "Deployment" | "ReplicaSet") => workload::validate_replicated(report, object, kind),
        ("apps", "StatefulSet") => workload::validate_stateful_set(report, object),
        ("apps", "DaemonSet") => workload::validate_daemon_set(report, object),
        ("apps", "ControllerRevision") => report.nonnegative(Path::Name("revision"), object.integer("revision")),
        ("batch", "Job") => job::validate_job(report, object),
        ("batch", "CronJob") => job::validate_cron_job(report, object, old),
        ("scheduling.k8s.io", "PriorityClass") => cluster::validate_priority_class(report, object),
        ("node.k8s.io", "RuntimeClass") => cluster::validate_runtime_class(report, object),
        ("coordination.k8s.io", "Lease") => cluster::validate_lease(report, object),
        ("policy", "PodDisruptionBudget") => cluster::validate_disruption_budget(report, object),
        ("autoscaling", "HorizontalPodAutoscaler") => cluster::validate_autoscaler(report, object),
        ("storage.k8s.io", "StorageClass") => storage::validate_class(report, object),
        ("discovery.k8s.io", "EndpointSlice") => service::validate_endpoint_slice(report, object),
        (RBAC, "Role" | "ClusterRole") => rbac::validate_role(report, object, kind),
        (RBAC, "RoleBinding" | "ClusterRoleBinding") => rbac::validate_binding(report, object, kind),
        (DEVICES, "ResourceClaim") => device::validate_claim_spec(report, spec, object.at("spec")),
        (DEVICES, "ResourceClaimTemplate") => {
            device::validate_claim_spec(report, spec.child("spec"), object.at("spec.spec"));
        }
        (DEVICES, "DeviceClass") => device::validate_class(report, object),
        (DEVICES, "ResourceSlice") => device::validate_slice(report, object, old),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            webhook::validate_configuration(report, object);
        }
        _ => {}
    }
}

/// Rules about what an update changes.
fn validate_change(report: &mut Report, gvk: &Gvk, object: &Value, old: &Value) {
    let immutable = |report: &mut Report, name: &str| report.immutable(Path::Name(name), object.at(name), old.at(name));
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod_update::validate_update(report, object, old),
        ("", "Service") => service::validate_service_update(report, object, old),
        ("", "Node") => cluster::validate_node_update(report, object, old),
        ("", "ConfigMap") => cluster::validate_immutable_data(report, object, old),
        ("", "Secret") => {
            immutable(report, "type");
            cluster::validate_immutable_data(report, object, old);
        }
        ("", "ResourceQuota") => immutable(report, "spec.scopes"),
        ("", "PersistentVolume") => storage::validate_volume_update(report, object, old),
        ("", "PersistentVolumeClaim") => storage::validate_claim_update(report, object, old),
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => workload::validate_selector_update(report, object, old),
        ("apps", "StatefulSet") => workload::validate_stateful_set_update(report, object, old),
        ("apps", "ControllerRevision") => immutable(report, "data"),
        ("batch", "Job") => job::validate_update(report, object, old),
        ("scheduling.k8s.io", "PriorityClass") => cluster::validate_priority_class_update(report, object, old),
        ("node.k8s.io", "RuntimeClass") => immutable(report, "handler"),
        ("storage.k8s.io", "StorageClass") => storage::validate_class_update(report, object, old),
        ("storage.k8s.io", "VolumeAttachment") => immutable(report, "spec"),
        ("discovery.k8s.io", "EndpointSlice") => immutable(report, "addressType"),
        ("events.k8s.io", "Event") => {
            for name in ["regarding", "reason", "note", "type", "eventTime", "action", "related", "reportingController"]
            {
                immutable(report, name);
            }
        }
        (RBAC, "RoleBinding" | "ClusterRoleBinding") => rbac::validate_binding_update(report, object, old),
        (DEVICES, "ResourceClaim" | "ResourceClaimTemplate") => device::validate_spec_update(report, object, old),
        _ => {}
    }
}

fn validate_status(report: &mut Report, gvk: &Gvk, object: &Value, old: &Value) {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod_update::validate_status_update(report, object, old),
        ("", "Node") => {
            cluster::validate_node(report, object);
            cluster::validate_node_update(report, object, old);
        }
        ("", "Namespace") => cluster::validate_namespace_status(report, object),
        ("", "ResourceQuota") => cluster::validate_quota(report, object),
        ("", "ReplicationController") | ("apps", _) => workload::validate_status(report, object, old, &gvk.kind),
        ("autoscaling", "HorizontalPodAutoscaler") => cluster::validate_autoscaler_status(report, object),
        ("batch", "Job") => job::validate_status_update(report, object, old),
        ("policy", "PodDisruptionBudget") => cluster::validate_disruption_budget_status(report, object),
        (DEVICES, "ResourceClaim") => device::validate_claim_status(report, object, old),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
