//! Security contexts of pods and containers.

use serde_json::Value;

use super::report::Report;
use super::volume::validate_descending_path;
use crate::builtin::access::Read;
use crate::builtin::field_path::Path;
use crate::builtin::format::account_id;

const PROFILE_TYPES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];

/// The security context of a pod.
pub(super) fn validate_pod(report: &mut Report, path: Path<'_>, spec: &Value) {
    let context = spec.at("securityContext");
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        validate_id(report, path.child(name), context.at(name));
    }
    let groups = path.child("supplementalGroups");
    for (index, group) in context.list("supplementalGroups").iter().enumerate() {
        validate_id(report, groups.index(index), group);
    }
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        report.invalid(path.child("shareProcessNamespace"), true, why);
    }
    let sysctls = path.child("sysctls");
    let mut names: Vec<&str> = Vec::new();
    for (index, sysctl) in context.list("sysctls").iter().enumerate() {
        let (name, indexed) = (sysctl.text("name"), sysctls.index(index));
        if name.is_empty() {
            report.required(indexed.child("name"), "");
        } else if names.contains(&name) {
            report.duplicate(indexed.child("name"), name);
        }
        names.push(name);
    }
    let policies = &["Always", "OnRootMismatch"];
    report.optional_one_of(path.child("fsGroupChangePolicy"), context.at("fsGroupChangePolicy"), policies);
    report.optional_one_of(
        path.child("supplementalGroupsPolicy"),
        context.at("supplementalGroupsPolicy"),
        &["Merge", "Strict"],
    );
    validate_seccomp(report, path.child("seccompProfile"), context.at("seccompProfile"));
    validate_app_armor(report, path.child("appArmorProfile"), context.at("appArmorProfile"));
}

/// The security context of a container, if it has one.
pub(super) fn validate_container(report: &mut Report, path: Path<'_>, context: &Value, spec: &Value) {
    if !context.is_object() {
        return;
    }
    for name in ["runAsUser", "runAsGroup"] {
        validate_id(report, path.child(name), context.at(name));
    }
    let proc_mount = context.at("procMount");
    report.optional_one_of(path.child("procMount"), proc_mount, &["Default", "Unmasked"]);
    if proc_mount == "Unmasked" && spec.at("hostUsers").as_bool() != Some(false) {
        report.invalid(path.child("procMount"), "Unmasked", "`hostUsers` must be false to use `Unmasked`");
    }
    validate_seccomp(report, path.child("seccompProfile"), context.at("seccompProfile"));
    if context.at("allowPrivilegeEscalation").as_bool() == Some(false) {
        if context.flag("privileged") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            report.invalid(path, context.clone(), why);
        }
        if context.list("capabilities.add").iter().any(|capability| capability == "CAP_SYS_ADMIN") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            report.invalid(path, context.clone(), why);
        }
    }
    validate_app_armor(report, path.child("appArmorProfile"), context.at("appArmorProfile"));
}

fn validate_id(report: &mut Report, path: Path<'_>, id: &Value) {
    if let Some(id) = id.as_i64() {
        report.complain_number(path, id, account_id(id));
    }
}

fn validate_seccomp(report: &mut Report, path: Path<'_>, profile: &Value) {
    if !profile.is_object() {
        return;
    }
    let (kind, local) = (profile.text("type"), profile.at("localhostProfile"));
    if kind.is_empty() {
        report.required(path.child("type"), "type is required when seccompProfile is set");
    } else if !PROFILE_TYPES.contains(&kind) {
        report.unsupported(path.child("type"), kind, PROFILE_TYPES);
    }
    match (kind, local.as_str()) {
        ("Localhost", None) => {
            report.required(path.child("localhostProfile"), "must be set when seccomp type is Localhost");
        }
        ("Localhost", Some(file)) => validate_descending_path(report, path.child("localhostProfile"), file),
        (_, Some(_)) => {
            let why = "can only be set when seccomp type is Localhost";
            report.invalid(path.child("localhostProfile"), profile.clone(), why);
        }
        (_, None) => {}
    }
}

fn validate_app_armor(report: &mut Report, path: Path<'_>, profile: &Value) {
    if !profile.is_object() {
        return;
    }
    let local = profile.at("localhostProfile");
    match profile.text("type") {
        "Localhost" => match local.as_str() {
            Some(name) if name.trim() != name => {
                report.invalid(path.child("localhostProfile"), name, "must not be padded with whitespace");
            }
            None | Some("") => {
                report.required(path.child("localhostProfile"), "must be set when AppArmor type is Localhost");
            }
            Some(_) => {}
        },
        "RuntimeDefault" | "Unconfined" => {
            if !local.is_null() {
                let why = "can only be set when AppArmor type is Localhost";
                report.invalid(path.child("localhostProfile"), local.clone(), why);
            }
        }
        "" => report.required(path.child("type"), "type is required when appArmorProfile is set"),
        kind => report.unsupported(path.child("type"), kind, PROFILE_TYPES),
    }
}
