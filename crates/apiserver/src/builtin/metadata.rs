//! The metadata of any object, built in or custom: names, labels, annotations, owners, finalizers.

use serde_json::{Map, Value, json};

use super::access::{Object, Read, same};
use super::field_path::Path;
use super::format::{
    Complaints, dns_label, dns_subdomain, dns1035_label, masked_prefix, path_segment, path_segment_prefix,
    qualified_name,
};
use super::validation::report::Report;
use super::validation::selector::validate_labels;
use crate::resource::{Origin, Resource, Scope};
use crate::status::FieldError;

const METADATA: Path<'static> = Path::Name("metadata");
/// All keys and values of annotations together.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// The form a name must have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameRule {
    Subdomain,
    Label,
    ServiceLabel,
    PathSegment,
}

impl NameRule {
    fn of(resource: &Resource) -> Self {
        if resource.origin != Origin::BuiltIn {
            return Self::Subdomain;
        }
        match (resource.gvk.group.as_str(), resource.gvk.kind.as_str()) {
            ("", "Namespace") | ("apps", "StatefulSet") => Self::Label,
            ("", "Service") => Self::ServiceLabel,
            ("", "Event") | ("rbac.authorization.k8s.io", _) | ("policy", "PodDisruptionBudget") => Self::PathSegment,
            _ => Self::Subdomain,
        }
    }

    fn judge(self, name: &str) -> Complaints {
        match self {
            Self::Subdomain => dns_subdomain(name),
            Self::Label => dns_label(name),
            Self::ServiceLabel => dns1035_label(name),
            Self::PathSegment => path_segment(name),
        }
    }

    fn judge_prefix(self, prefix: &str) -> Complaints {
        match self {
            Self::PathSegment => path_segment_prefix(prefix),
            _ => self.judge(&masked_prefix(prefix)),
        }
    }
}

/// What is wrong with the metadata of a new object, after its name was generated.
pub fn validate_metadata(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut report = Report::default();
    let metadata = object.map("metadata");
    let rule = NameRule::of(resource);
    let prefix = metadata.text("generateName");
    if !prefix.is_empty() {
        report.complain(METADATA.child("generateName"), prefix, rule.judge_prefix(prefix));
    }
    validate_common(&mut report, resource, metadata, rule);
    if resource.origin == Origin::BuiltIn {
        validate_standard_finalizers(&mut report, metadata);
    }
    report.into_errors()
}

/// What is wrong with the metadata of an update.
pub fn validate_metadata_update(resource: &Resource, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut report = Report::default();
    let (metadata, before) = (object.map("metadata"), old.map("metadata"));
    // names cannot change, so only their safety in a path matters
    validate_common(&mut report, resource, metadata, NameRule::PathSegment);
    if before.has("deletionTimestamp") {
        validate_no_new_finalizers(&mut report, metadata, before);
    }
    if metadata.count("generation") < before.count("generation") {
        report.invalid(METADATA.child("generation"), metadata.count("generation"), "must not be decremented");
    }
    let fixed = ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];
    for name in fixed {
        if !same(metadata.at(name), before.at(name)) {
            report.invalid(METADATA.child(name), metadata.at(name).clone(), "field is immutable");
        }
    }
    if resource.origin == Origin::BuiltIn {
        validate_standard_finalizers(&mut report, metadata);
    }
    report.into_errors()
}

fn validate_common(report: &mut Report, resource: &Resource, metadata: &Map<String, Value>, rule: NameRule) {
    let name = metadata.text("name");
    if name.is_empty() {
        report.required(METADATA.child("name"), "name or generateName is required");
    } else {
        report.complain(METADATA.child("name"), name, rule.judge(name));
    }
    let namespace = metadata.text("namespace");
    match resource.scope {
        Scope::Namespaced if namespace.is_empty() => report.required(METADATA.child("namespace"), ""),
        Scope::Namespaced => report.complain(METADATA.child("namespace"), namespace, dns_label(namespace)),
        Scope::Cluster if !namespace.is_empty() => {
            report.forbidden(METADATA.child("namespace"), "not allowed on this type");
        }
        Scope::Cluster => {}
    }
    report.nonnegative(METADATA.child("generation"), metadata.integer("generation"));
    validate_labels(report, METADATA.child("labels"), metadata.map("labels"));
    validate_annotations(report, METADATA.child("annotations"), metadata.map("annotations"));
    validate_owners(report, metadata.at("ownerReferences"));
    validate_finalizers(report, metadata.at("finalizers"));
}

/// Annotation keys and the size of all annotations; also used for templates.
pub(crate) fn validate_annotations(report: &mut Report, path: Path<'_>, annotations: &Object) {
    let mut size = 0;
    for (key, value) in annotations {
        let complaints = if key.bytes().any(|byte| byte.is_ascii_uppercase()) {
            qualified_name(&key.to_lowercase())
        } else {
            qualified_name(key)
        };
        report.complain(path, key, complaints);
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_LIMIT {
        report.push(FieldError::too_long(path, ANNOTATIONS_LIMIT));
    }
}

fn validate_owners(report: &mut Report, owners: &Value) {
    let path = METADATA.child("ownerReferences");
    let mut controller: Option<String> = None;
    for owner in owners.list("") {
        let (version, kind) = (owner.text("apiVersion"), owner.text("kind"));
        let parsed = match version.split('/').collect::<Vec<_>>().as_slice() {
            [version] | [_, version] => !version.is_empty(),
            _ => false,
        };
        if !parsed {
            report.invalid(path.child("apiVersion"), version, "version must not be empty");
        }
        for name in ["kind", "name", "uid"] {
            if owner.text(name).is_empty() {
                report.invalid(path.child(name), "", "must not be empty");
            }
        }
        if version == "v1" && kind == "Event" {
            report.invalid(path, owner.clone(), "/v1, Kind=Event is disallowed from being an owner");
        }
        if owner.flag("controller") {
            let this = format!("{kind}/{}", owner.text("name"));
            match &controller {
                None => controller = Some(this),
                Some(first) => {
                    let why = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    );
                    report.invalid(path, owners.clone(), why);
                }
            }
        }
    }
}

fn validate_finalizers(report: &mut Report, finalizers: &Value) {
    let path = METADATA.child("finalizers");
    for finalizer in finalizers.list("").iter().filter_map(Value::as_str) {
        report.complain(path, finalizer, qualified_name(finalizer));
    }
    let has = |name: &str| finalizers.list("").iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        report.invalid(path, finalizers.clone(), "finalizer orphan and foregroundDeletion cannot be both set");
    }
}

/// Objects of built-in kinds may have finalizers without a domain only if Kubernetes knows them.
fn validate_standard_finalizers(report: &mut Report, metadata: &Object) {
    let path = METADATA.child("finalizers");
    for (index, finalizer) in metadata.list("finalizers").iter().enumerate() {
        let name = finalizer.as_str().unwrap_or("");
        if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion" | "customresourcecleanup.apiextensions.k8s.io") {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            report.invalid(path.index(index), name, why);
        }
    }
}

fn validate_no_new_finalizers(report: &mut Report, metadata: &Object, before: &Object) {
    let mut new: Vec<&str> = metadata
        .list("finalizers")
        .iter()
        .filter(|finalizer| !before.list("finalizers").contains(finalizer))
        .filter_map(Value::as_str)
        .collect();
    if new.is_empty() {
        return;
    }
    new.sort_unstable();
    new.dedup();
    let list = new.iter().map(|name| json!(name).to_string()).collect::<Vec<_>>().join(", ");
    report.forbidden(
        METADATA.child("finalizers"),
        format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"
        ),
    );
}

#[cfg(test)]
mod tests;
