//! What a server does to an object on its way to storage besides defaults and checks: who may set which part, the first status,
//! generations, and the values that the server itself gives out.
//!
//! ```text
//!  create:  status of the server's own making, generation 1, selectors and addresses given out
//!  update:  through the object itself the status stays; through `status` everything but the status stays;
//!           the generation grows when what the user asks for changed
//! ```

mod fields;
mod pod;
mod service;

use serde_json::{Value, json};

use super::access::{Read, Write, same};
use super::defaults;
use crate::resource::{Origin, Resource};

pub use self::fields::{selectable_fields, supports_field};

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// What a change of generation is measured by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Generation {
    /// The kind has none.
    None,
    /// It is 1 for ever.
    One,
    /// It counts changes of one field.
    Field(&'static str),
    /// It counts changes of spec and annotations.
    SpecAndAnnotations,
    /// It counts changes of anything but metadata and status.
    Content,
    /// As above, and of labels.
    ContentAndLabels,
}

impl Generation {
    fn of(resource: &Resource) -> Self {
        if resource.origin != Origin::BuiltIn {
            return Self::Content;
        }
        match (resource.gvk.group.as_str(), resource.gvk.kind.as_str()) {
            ("", "Pod" | "ReplicationController")
            | ("apps", "ReplicaSet" | "StatefulSet" | "DaemonSet")
            | ("batch", "Job" | "CronJob")
            | ("policy", "PodDisruptionBudget")
            | ("networking.k8s.io", "NetworkPolicy" | "Ingress" | "IngressClass")
            | ("resource.k8s.io", "ResourceSlice" | "DeviceClass" | "DeviceTaintRule")
            | ("flowcontrol.apiserver.k8s.io", "FlowSchema" | "PriorityLevelConfiguration")
            | ("storage.k8s.io", "CSIDriver")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
            | (
                "admissionregistration.k8s.io",
                "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
                | "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding",
            ) => Self::Field("spec"),
            ("", "PodTemplate") => Self::Field("template"),
            ("apps", "Deployment") => Self::SpecAndAnnotations,
            ("scheduling.k8s.io", "PriorityClass") => Self::One,
            ("discovery.k8s.io", "EndpointSlice") => Self::ContentAndLabels,
            ("admissionregistration.k8s.io", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
                Self::Field("webhooks")
            }
            _ => Self::None,
        }
    }

    fn changed(self, resource: &Resource, object: &Value, old: &Value) -> bool {
        let differs = |path: &str| !same(object.at(path), old.at(path));
        match self {
            Self::None | Self::One => false,
            Self::Field(name) => differs(name),
            Self::SpecAndAnnotations => differs("spec") || differs("metadata.annotations"),
            Self::Content => content_changed(resource, object, old),
            Self::ContentAndLabels => content_changed(resource, object, old) || differs("metadata.labels"),
        }
    }
}

fn content_changed(resource: &Resource, object: &Value, old: &Value) -> bool {
    let has_status = resource.has_subresource("status");
    let (new, old) = (object.map(""), old.map(""));
    let counts = |name: &&String| {
        !matches!(name.as_str(), "metadata" | "apiVersion" | "kind") && (!has_status || *name != "status")
    };
    new.keys().chain(old.keys()).filter(counts).any(|name| new.at(name) != old.at(name))
}

/// Prepares a new object. Its `metadata.uid` and `metadata.name` must be set already (jobs select by the uid), and
/// `metadata.creationTimestamp` should be: it is the time of the first conditions.
pub fn prepare_for_create(resource: &Resource, object: &mut Value) {
    if let Some(metadata) = object.object_at("metadata") {
        metadata.remove("deletionTimestamp");
        metadata.remove("deletionGracePeriodSeconds");
        match (Generation::of(resource), resource.gvk.kind.as_str()) {
            // drivers count from the first change on
            (Generation::None, _) | (_, "CSIDriver") => {}
            _ => metadata.set("generation", 1),
        }
    }
    let (group, kind) = (resource.gvk.group.as_str(), resource.gvk.kind.as_str());
    if resource.has_subresource("status") && (group, kind) != ("", "Node") {
        object.take_at("status");
    }
    if resource.origin != Origin::BuiltIn {
        return;
    }
    match (group, kind) {
        ("", "Pod") => pod::prepare_for_create(object),
        ("", "Service") => service::allocate(object),
        ("", "Namespace") => namespace_for_create(object),
        ("", "Node") => {
            object.take_at("spec.configSource");
            object.take_at("status.config");
        }
        ("", "PersistentVolumeClaim") => object.set("status.phase", "Pending"),
        ("", "PersistentVolume") => {
            object.set("status.phase", "Pending");
            let now = object.at("metadata.creationTimestamp").clone();
            if !now.is_null() {
                object.set("status.lastPhaseTransitionTime", now);
            }
        }
        ("apps", "DaemonSet") => {
            let given = template_generation(object);
            set_template_generation(object, given.max(1));
        }
        ("batch", "Job") => generate_selector(object),
        _ => {}
    }
    defaults::complete(&resource.gvk, object);
}

/// Prepares an update: takes from the old object what this kind of request may not change, and counts the generation.
pub fn prepare_for_update(resource: &Resource, subresource: Option<&str>, object: &mut Value, old: &Value) {
    keep_system_metadata(object, old);
    let is_pod = (resource.gvk.group.as_str(), resource.gvk.kind.as_str()) == ("", "Pod");
    match subresource {
        Some("status") => keep_all_but_status(resource, object, old),
        Some("ephemeralcontainers") if is_pod => pod::keep_all_but_ephemeral_containers(object, old),
        Some("resize") if is_pod => pod::keep_all_but_resources(object, old),
        Some("finalize") => restore(object, old, "status"),
        _ => keep_status(resource, object, old),
    }
    if resource.origin == Origin::BuiltIn {
        defaults::complete(&resource.gvk, object);
    }
    if subresource != Some("status") && Generation::of(resource).changed(resource, object, old) {
        object.set("metadata.generation", old.count("metadata.generation").saturating_add(1));
    }
}

/// Fields of metadata that no update can change; those left alone are for validation to compare.
fn keep_system_metadata(object: &mut Value, old: &Value) {
    let before = old.map("metadata");
    let Some(metadata) = object.object_at("metadata") else { return };
    match before.get("generation") {
        Some(generation) => metadata.set("generation", generation.clone()),
        None => {
            metadata.remove("generation");
        }
    }
    if metadata.text("uid").is_empty() && before.has("uid") {
        metadata.set("uid", before.at("uid").clone());
    }
    for name in ["creationTimestamp", "deletionTimestamp"] {
        if before.has(name) {
            metadata.set(name, before.at(name).clone());
        }
    }
    if before.has("deletionGracePeriodSeconds") {
        metadata.set_if_missing("deletionGracePeriodSeconds", before.at("deletionGracePeriodSeconds").clone());
    }
}

fn keep_status(resource: &Resource, object: &mut Value, old: &Value) {
    if resource.has_subresource("status") {
        restore(object, old, "status");
    }
    if resource.origin != Origin::BuiltIn {
        return;
    }
    match (resource.gvk.group.as_str(), resource.gvk.kind.as_str()) {
        ("", "Namespace") => restore(object, old, "spec.finalizers"),
        ("", "Service") => service::keep_allocated(object, old),
        ("apps", "DaemonSet") => {
            let changed = !same(object.at("spec.template"), old.at("spec.template"));
            set_template_generation(object, template_generation(old).saturating_add(i64::from(changed)));
        }
        _ => {}
    }
}

fn keep_all_but_status(resource: &Resource, object: &mut Value, old: &Value) {
    let status = object.take_at("status");
    let metadata = object.take_at("metadata").unwrap_or_default();
    let mut result = old.clone();
    result.set("metadata", status_metadata(resource, metadata, old.at("metadata")));
    match status {
        Some(status) => result.set("status", status),
        None => {
            result.take_at("status");
        }
    }
    *object = result;
    if (resource.gvk.group.as_str(), resource.gvk.kind.as_str()) == ("", "Pod") && resource.origin == Origin::BuiltIn {
        pod::keep_observed(object, old);
    }
}

/// What of the metadata a status update may change: for old kinds labels, annotations and more, for new ones nothing but the
/// record of who manages which field.
fn status_metadata(resource: &Resource, metadata: Value, old: &Value) -> Value {
    let group = resource.gvk.group.as_str();
    let strict = resource.origin != Origin::BuiltIn
        || resource.gvk.kind == "VolumeAttachment"
        || matches!(
            group,
            "resource.k8s.io"
                | "apiextensions.k8s.io"
                | "flowcontrol.apiserver.k8s.io"
                | "admissionregistration.k8s.io"
        );
    if strict {
        let mut kept = old.clone();
        for name in ["managedFields", "resourceVersion"] {
            match metadata.get(name) {
                Some(value) => kept.set(name, value.clone()),
                None => {
                    kept.take_at(name);
                }
            }
        }
        return kept;
    }
    let mut metadata = metadata;
    let kept: &[&str] = match (group, resource.gvk.kind.as_str()) {
        ("", "Pod") => &["deletionTimestamp", "ownerReferences"],
        ("apps", "Deployment") => &["labels"],
        _ => &[],
    };
    for name in kept {
        restore(&mut metadata, old, name);
    }
    metadata
}

/// Puts the old value of a field back.
fn restore(object: &mut Value, old: &Value, path: &str) {
    if old.has(path) {
        object.set(path, old.at(path).clone());
    } else {
        object.take_at(path);
    }
}

fn namespace_for_create(object: &mut Value) {
    object.set("status.phase", "Active");
    let mut finalizers = object.list("spec.finalizers").to_vec();
    if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
        finalizers.push(json!("kubernetes"));
    }
    object.set("spec.finalizers", finalizers);
    defaults::set_defaults(&crate::resource::Gvk::new("", "v1", "Namespace"), object);
}

fn template_generation(object: &Value) -> i64 {
    let text = object.map("metadata.annotations").get(TEMPLATE_GENERATION).and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The template generation lives on as an annotation.
fn set_template_generation(object: &mut Value, generation: i64) {
    if let Some(annotations) = object.object_at("metadata.annotations") {
        annotations.set(TEMPLATE_GENERATION, generation.to_string());
    }
}

/// Jobs select their pods by the uid of the job, unless they bring a selector of their own.
fn generate_selector(object: &mut Value) {
    let shares_labels = defaults::take_shared_labels_mark(object);
    if object.flag("spec.manualSelector") {
        return;
    }
    let (name, uid) = (object.text("metadata.name").to_owned(), object.text("metadata.uid").to_owned());
    if let Some(labels) = object.object_at("spec.template.metadata.labels") {
        for key in ["job-name", "batch.kubernetes.io/job-name"] {
            labels.set_if_missing(key, name.as_str());
        }
        for key in ["controller-uid", "batch.kubernetes.io/controller-uid"] {
            labels.set_if_missing(key, uid.as_str());
        }
        if shares_labels {
            let labels = labels.clone();
            object.set("metadata.labels", labels);
        }
    }
    if let Some(labels) = object.object_at("spec.selector.matchLabels") {
        labels.set_if_missing("batch.kubernetes.io/controller-uid", uid);
    }
}

#[cfg(test)]
mod tests;
