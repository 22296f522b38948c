//! Volumes of a pod.

use serde_json::Value;

use super::container::{validate_field_ref, validate_resource_field};
use super::device::validate_driver;
use super::report::Report;
use super::storage::validate_claim_spec;
use crate::builtin::access::Read;
use crate::builtin::field_path::Path;
use crate::builtin::format::dns_label;
use crate::builtin::quantity::Quantity;

/// Every source, in the order the real server looks at them, with the name it uses when there is one too many.
const SOURCES: &[(&str, &str)] = &[
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];

const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
const DOWNWARD_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// Validates all volumes and gives those that containers may mount.
pub(super) fn validate_volumes<'a>(
    report: &mut Report,
    path: Path<'_>,
    volumes: &'a [Value],
) -> Vec<(&'a str, &'a Value)> {
    let mut valid: Vec<(&str, &Value)> = Vec::with_capacity(volumes.len());
    for (index, volume) in volumes.iter().enumerate() {
        let path = path.index(index);
        let before = report.len();
        validate_source(report, path, volume);
        let name = volume.text("name");
        if name.is_empty() {
            report.required(path.child("name"), "");
        } else {
            report.complain(path.child("name"), name, dns_label(name));
        }
        if valid.iter().any(|(other, _)| *other == name) {
            report.duplicate(path.child("name"), name);
        }
        if report.len() == before {
            valid.push((name, volume));
        }
    }
    valid
}

fn validate_source(report: &mut Report, path: Path<'_>, volume: &Value) {
    let mut given = SOURCES.iter().filter(|(name, _)| volume.has(name));
    let Some((first, _)) = given.next() else {
        report.required(path, "must specify a volume type");
        return;
    };
    let (source, source_path) = (volume.at(first), path.child(first));
    match *first {
        "emptyDir" if Quantity::from_value(source.at("sizeLimit")).is_ok_and(Quantity::is_negative) => {
            report.forbidden(source_path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
        }
        "hostPath" => {
            let host_path = source.text("path");
            if host_path.is_empty() {
                report.required(source_path.child("path"), "");
            } else {
                validate_no_backstep(report, source_path.child("path"), host_path);
                report.optional_one_of(source_path.child("type"), source.at("type"), HOST_PATH_TYPES);
            }
        }
        "secret" => validate_items(report, source_path, source, "secretName"),
        "configMap" => validate_items(report, source_path, source, "name"),
        "nfs" => {
            for name in ["server", "path"] {
                if source.text(name).is_empty() {
                    report.required(source_path.child(name), "");
                }
            }
            if !source.text("path").starts_with('/') {
                report.invalid(source_path.child("path"), source.text("path"), "must be an absolute path");
            }
        }
        "persistentVolumeClaim" if source.text("claimName").is_empty() => {
            report.required(source_path.child("claimName"), "");
        }
        "downwardAPI" => {
            validate_mode(report, source_path.child("defaultMode"), source.integer("defaultMode"));
            for file in source.list("items") {
                validate_downward_file(report, source_path, file);
            }
        }
        "projected" => validate_projected(report, source_path, source),
        "csi" => validate_driver(report, source_path.child("driver"), source.text("driver")),
        "ephemeral" => {
            let template = source_path.child("volumeClaimTemplate");
            if source.has("volumeClaimTemplate") {
                validate_claim_spec(report, template.child("spec"), source.at("volumeClaimTemplate.spec"));
            } else {
                report.required(template, "");
            }
        }
        _ => {}
    }
    for (_, name) in given {
        report.forbidden(path.child(name), "may not specify more than 1 volume type");
    }
}

fn validate_items(report: &mut Report, path: Path<'_>, source: &Value, name: &str) {
    if source.text(name).is_empty() {
        report.required(path.child(name), "");
    }
    validate_mode(report, path.child("defaultMode"), source.integer("defaultMode"));
    let items = path.child("items");
    for (index, item) in source.list("items").iter().enumerate() {
        validate_key_to_path(report, items.index(index), item);
    }
}

fn validate_key_to_path(report: &mut Report, path: Path<'_>, item: &Value) {
    for name in ["key", "path"] {
        if item.text(name).is_empty() {
            report.required(path.child(name), "");
        }
    }
    validate_local_path(report, path.child("path"), item.text("path"));
    validate_mode(report, path.child("mode"), item.integer("mode"));
}

fn validate_downward_file(report: &mut Report, path: Path<'_>, file: &Value) {
    if file.text("path").is_empty() {
        report.required(path.child("path"), "");
    }
    validate_local_path(report, path.child("path"), file.text("path"));
    if file.has("fieldRef") {
        validate_field_ref(report, path.child("fieldRef"), file.at("fieldRef"), DOWNWARD_FIELDS);
        if file.has("resourceFieldRef") {
            report.invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
        }
    } else if file.has("resourceFieldRef") {
        let path = path.child("resourceFieldRef");
        if file.text("resourceFieldRef.containerName").is_empty() {
            report.required(path.child("containerName"), "");
        } else {
            validate_resource_field(report, path, file.text("resourceFieldRef.resource"));
        }
    } else {
        report.required(path, "one of fieldRef and resourceFieldRef is required");
    }
    validate_mode(report, path.child("mode"), file.integer("mode"));
}

fn validate_projected(report: &mut Report, path: Path<'_>, projected: &Value) {
    validate_mode(report, path.child("defaultMode"), projected.integer("defaultMode"));
    let sources = path.child("sources");
    let mut paths: Vec<&str> = Vec::new();
    for (index, source) in projected.list("sources").iter().enumerate() {
        let source_path = sources.index(index);
        let kinds =
            ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];
        for kind in ["secret", "configMap", "downwardAPI"] {
            let (part, part_path) = (source.at(kind), source_path.child(kind));
            if !part.is_object() {
                continue;
            }
            if kind != "downwardAPI" && part.text("name").is_empty() {
                report.required(part_path.child("name"), "");
            }
            let items = part_path.child("items");
            for (index, item) in part.list("items").iter().enumerate() {
                if kind == "downwardAPI" {
                    validate_downward_file(report, part_path, item);
                } else {
                    validate_key_to_path(report, items.index(index), item);
                }
                let file = item.text("path");
                if !file.is_empty() && paths.contains(&file) {
                    let value = if kind == "downwardAPI" { file } else { part.text("name") };
                    report.invalid(path, value, "conflicting duplicate paths");
                }
                paths.push(file);
            }
        }
        if source.has("serviceAccountToken") {
            let (token, token_path) = (source.at("serviceAccountToken"), source_path.child("serviceAccountToken"));
            let seconds = token.count("expirationSeconds");
            if seconds < 600 {
                let why = "may not specify a duration less than 10 minutes";
                report.invalid(token_path.child("expirationSeconds"), seconds, why);
            } else if seconds > 1 << 32 {
                let why = "may not specify a duration larger than 2^32 seconds";
                report.invalid(token_path.child("expirationSeconds"), seconds, why);
            }
            if token.text("path").is_empty() {
                report.required(path.child("path"), "");
            } else {
                validate_local_path(report, path.child("path"), token.text("path"));
            }
        }
        if kinds.iter().filter(|kind| source.has(kind)).count() > 1 {
            report.forbidden(source_path, "may not specify more than 1 volume type per source");
        }
    }
}

fn validate_mode(report: &mut Report, path: Path<'_>, mode: Option<i64>) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        report.invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

/// Whether a path has a `..` in it.
pub(super) fn contains_backstep(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

fn validate_no_backstep(report: &mut Report, path: Path<'_>, text: &str) {
    if contains_backstep(text) {
        report.invalid(path, text, "must not contain '..'");
    }
}

/// A path that leads down only; the empty one is fine.
pub(super) fn validate_descending_path(report: &mut Report, path: Path<'_>, text: &str) {
    if text.starts_with('/') {
        report.invalid(path, text, "must be a relative path");
    }
    validate_no_backstep(report, path, text);
}

fn validate_local_path(report: &mut Report, path: Path<'_>, text: &str) {
    validate_descending_path(report, path, text);
    if text.starts_with("..") && !text.starts_with("../") {
        report.invalid(path, text, "must not start with '..'");
    }
}
