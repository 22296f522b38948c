//! Roles and their bindings.

use serde_json::Value;

use super::report::Report;
use super::selector::validate_selector;
use crate::builtin::access::{Read, same};
use crate::builtin::field_path::Path;
use crate::builtin::format::{dns_subdomain, path_segment};

const GROUP: &str = "rbac.authorization.k8s.io";

/// A role or cluster role.
pub(super) fn validate_role(report: &mut Report, role: &Value, kind: &str) {
    let rules = Path::Name("rules");
    for (index, rule) in role.list("rules").iter().enumerate() {
        let path = rules.index(index);
        if rule.list("verbs").is_empty() {
            report.required(path.child("verbs"), "verbs must contain at least one value");
        }
        let urls = rule.list("nonResourceURLs");
        if urls.is_empty() {
            if rule.list("apiGroups").is_empty() {
                report.required(path.child("apiGroups"), "resource rules must supply at least one api group");
            }
            if rule.list("resources").is_empty() {
                report.required(path.child("resources"), "resource rules must supply at least one resource");
            }
            continue;
        }
        let path = path.child("nonResourceURLs");
        if kind == "Role" {
            report.invalid(path, urls.to_vec(), "namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|list| !rule.list(list).is_empty()) {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            report.invalid(path, urls.to_vec(), why);
        }
    }
    if kind == "ClusterRole" && role.has("aggregationRule") {
        let path = Path::Name("aggregationRule.clusterRoleSelectors");
        let selectors = role.list("aggregationRule.clusterRoleSelectors");
        if selectors.is_empty() {
            report.required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil");
        }
        for (index, selector) in selectors.iter().enumerate() {
            validate_selector(report, path.index(index), selector);
        }
    }
}

/// A role binding or cluster role binding.
pub(super) fn validate_binding(report: &mut Report, binding: &Value, kind: &str) {
    let role = binding.at("roleRef");
    let path = Path::Name("roleRef");
    if role.text("apiGroup") != GROUP {
        report.unsupported(path.child("apiGroup"), role.text("apiGroup"), &[GROUP]);
    }
    let kinds: &[&str] = if kind == "RoleBinding" { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&role.text("kind")) {
        report.unsupported(path.child("kind"), role.text("kind"), kinds);
    }
    if role.text("name").is_empty() {
        report.required(path.child("name"), "");
    } else {
        report.complain(path.child("name"), role.text("name"), path_segment(role.text("name")));
    }
    let subjects = Path::Name("subjects");
    for (index, subject) in binding.list("subjects").iter().enumerate() {
        validate_subject(report, subjects.index(index), subject, kind);
    }
}

fn validate_subject(report: &mut Report, path: Path<'_>, subject: &Value, kind: &str) {
    let (name, group) = (subject.text("name"), subject.text("apiGroup"));
    if name.is_empty() {
        report.required(path.child("name"), "");
    }
    match subject.text("kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                report.complain(path.child("name"), name, dns_subdomain(name));
            }
            if !group.is_empty() {
                report.unsupported(path.child("apiGroup"), group, &[""]);
            }
            if kind == "ClusterRoleBinding" && subject.text("namespace").is_empty() {
                report.required(path.child("namespace"), "");
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                report.unsupported(path.child("apiGroup"), group, &[GROUP]);
            }
        }
        other => report.unsupported(path.child("kind"), other, &["ServiceAccount", "User", "Group"]),
    }
}

/// An update of a binding: whom it binds may change, to what may not.
pub(super) fn validate_binding_update(report: &mut Report, binding: &Value, old: &Value) {
    if !same(binding.at("roleRef"), old.at("roleRef")) {
        report.invalid(Path::Name("roleRef"), binding.at("roleRef").clone(), "cannot change roleRef");
    }
}
