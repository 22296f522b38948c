//! Volumes, claims and the classes they come from.

use serde_json::Value;

use super::report::Report;
use super::selector::validate_selector;
use crate::builtin::access::{Read, Write, same};
use crate::builtin::field_path::Path;
use crate::builtin::format::{dns_subdomain, qualified_name};
use crate::builtin::quantity::Quantity;
use crate::status::FieldError;

const SPEC: Path<'static> = Path::Name("spec");
const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
/// Fields of a volume's spec that are not the place where its bytes are.
const NOT_A_SOURCE: &[&str] = &[
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

fn validate_access_modes(report: &mut Report, path: Path<'_>, modes: &[Value]) {
    let (mut single, mut other) = (false, false);
    for mode in modes {
        let mode = mode.as_str().unwrap_or("");
        if !ACCESS_MODES.contains(&mode) {
            report.unsupported(path, mode, ACCESS_MODES);
        } else if mode == "ReadWriteOncePod" {
            single = true;
        } else {
            other = true;
        }
    }
    if single && other {
        report.forbidden(path, "may not use ReadWriteOncePod with other access modes");
    }
}

/// The spec of a claim, or of a template for claims.
pub(super) fn validate_claim_spec(report: &mut Report, path: Path<'_>, spec: &Value) {
    let modes = path.child("accessModes");
    if spec.list("accessModes").is_empty() {
        report.required(modes, "at least 1 access mode is required");
    }
    validate_selector(report, path.child("selector"), spec.at("selector"));
    validate_access_modes(report, modes, spec.list("accessModes"));
    let resources = path.child("resources");
    match spec.map("resources.requests").get("storage") {
        None => report.required(resources.key("storage"), ""),
        Some(value) => validate_size(report, resources.key("storage"), value),
    }
    let class = spec.text("storageClassName");
    if !class.is_empty() {
        report.complain(path.child("storageClassName"), class, dns_subdomain(class));
    }
    report.optional_one_of(path.child("volumeMode"), spec.at("volumeMode"), VOLUME_MODES);
}

fn validate_size(report: &mut Report, path: Path<'_>, value: &Value) {
    match Quantity::from_value(value) {
        Ok(size) if size.is_positive() => {}
        Ok(size) => report.invalid(path, size.canonical(), "must be greater than zero"),
        Err(why) => report.invalid(path, value.clone(), why),
    }
}

/// An update of a claim: only a bound one can grow.
pub(super) fn validate_claim_update(report: &mut Report, claim: &Value, old: &Value) {
    let mut expected = old.at("spec").clone();
    let new = claim.at("spec");
    if old.text("spec.volumeName").is_empty() && new.has("volumeName") {
        expected.set("volumeName", new.at("volumeName").clone());
    }
    if !old.has("spec.storageClassName") && new.has("storageClassName") {
        expected.set("storageClassName", new.at("storageClassName").clone());
    }
    if claim.text("status.phase") == "Bound" {
        for path in ["resources.requests.storage", "volumeAttributesClassName"] {
            if new.has(path) {
                expected.set(path, new.at(path).clone());
            } else {
                expected.take_at(path);
            }
        }
    }
    if !same(new, &expected) {
        let why =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        report.forbidden(SPEC, format!("{why}\n- \t{expected}\n+ \t{new}"));
    }
    let size = |object: &Value, path: &str| Quantity::from_value(object.at(path)).unwrap_or(Quantity::ZERO);
    let storage = "spec.resources.requests.storage";
    let new_size = size(claim, storage);
    if new_size < size(old, storage) && new_size <= size(old, "status.capacity.storage") {
        report.forbidden(Path::Name(storage), "field can not be less than status.capacity");
    }
    report.immutable(Path::Name("volumeMode"), new.at("volumeMode"), old.at("spec.volumeMode"));
}

/// A volume.
pub(super) fn validate_volume(report: &mut Report, volume: &Value) {
    let spec = volume.at("spec");
    if spec.list("accessModes").is_empty() {
        report.required(SPEC.child("accessModes"), "");
    }
    validate_access_modes(report, SPEC.child("accessModes"), spec.list("accessModes"));
    let (capacity, path) = (spec.map("capacity"), SPEC.child("capacity"));
    if capacity.is_empty() {
        report.required(path, "");
    }
    if capacity.len() != 1 || !capacity.contains_key("storage") {
        report.push(FieldError::not_supported(path, spec.at("capacity"), &["storage"]));
    }
    for (name, value) in capacity {
        validate_size(report, path.key(name), value);
    }
    let policies = &["Delete", "Recycle", "Retain"];
    let policy = spec.at("persistentVolumeReclaimPolicy");
    report.optional_one_of(SPEC.child("persistentVolumeReclaimPolicy"), policy, policies);
    let class = spec.text("storageClassName");
    if !class.is_empty() {
        report.complain(SPEC.child("storageClassName"), class, dns_subdomain(class));
    }
    report.optional_one_of(SPEC.child("volumeMode"), spec.at("volumeMode"), VOLUME_MODES);
    if !spec.map("").keys().any(|name| !NOT_A_SOURCE.contains(&name.as_str())) {
        report.required(SPEC, "must specify a volume type");
    }
}

/// An update of a volume: its source stays.
pub(super) fn validate_volume_update(report: &mut Report, volume: &Value, old: &Value) {
    let (new, before) = (volume.map("spec"), old.map("spec"));
    let is_source = |name: &&String| !NOT_A_SOURCE.contains(&name.as_str());
    if new.keys().chain(before.keys()).filter(is_source).any(|name| !same(new.at(name), before.at(name))) {
        let path = SPEC.child("persistentvolumesource");
        report.forbidden(path, "spec.persistentvolumesource is immutable after creation\n");
    }
    report.immutable(Path::Name("volumeMode"), new.at("volumeMode"), before.at("volumeMode"));
    if before.contains_key("nodeAffinity") && new.at("nodeAffinity") != before.at("nodeAffinity") {
        let why = "field is immutable, except for updating from beta label to GA";
        report.invalid(Path::Name("nodeAffinity"), new.at("nodeAffinity").clone(), why);
    }
}

/// A storage class.
pub(super) fn validate_class(report: &mut Report, class: &Value) {
    let provisioner = class.text("provisioner");
    if provisioner.is_empty() {
        report.required(Path::Name("provisioner"), "");
    } else {
        let complaints = qualified_name(&provisioner.to_lowercase());
        report.complain(Path::Name("provisioner"), provisioner, complaints);
    }
    report.optional_one_of(Path::Name("reclaimPolicy"), class.at("reclaimPolicy"), &["Delete", "Retain"]);
    let modes = &["Immediate", "WaitForFirstConsumer"];
    report.one_of(Path::Name("volumeBindingMode"), class.text("volumeBindingMode"), modes);
}

/// An update of a storage class.
pub(super) fn validate_class_update(report: &mut Report, class: &Value, old: &Value) {
    for name in ["parameters", "provisioner", "reclaimPolicy"] {
        if !same(class.at(name), old.at(name)) {
            report.forbidden(Path::Name(name), format!("updates to {name} are forbidden."));
        }
    }
    report.immutable(Path::Name("volumeBindingMode"), class.at("volumeBindingMode"), old.at("volumeBindingMode"));
}
