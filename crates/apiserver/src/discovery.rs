//! Discovery: which groups, versions and resources the server has, in the form of each client generation.
//!
//! New clients ask once for the aggregated documents (`APIGroupDiscoveryList`), old ones walk `/api`, `/apis`, each group and
//! each version. All are computed from the list of served resources. The order of groups decides which group a bare name such
//! as `events` means to kubectl, so it is the order of a real server: built-in groups by fixed priority, custom ones after
//! them by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::resource::{Gvk, Resource, Scope, Subresource};

mod version;

pub use version::VersionPriority;

/// Which of the two aggregated documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// `/api`: the core group.
    Api,
    /// `/apis`: all named groups.
    Apis,
}

/// The `APIGroupDiscoveryList` (apidiscovery.k8s.io/v2) of `/api` or `/apis`.
pub fn aggregated(resources: &[Arc<Resource>], which: Root) -> Value {
    let groups = groups(resources).into_iter().filter(|group| group.name.is_empty() == (which == Root::Api));
    let items: Vec<Value> = groups
        .map(|group| {
            let versions = group.versions.iter().map(|version| {
                let resources: Vec<Value> = version.resources.iter().map(|r| aggregated_resource(r)).collect();
                json!({"version": version.name, "resources": resources, "freshness": "Current"})
            });
            // The core group has an empty object for metadata, not an empty name.
            let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
            json!({"metadata": metadata, "versions": versions.collect::<Vec<_>>()})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

/// The `APIVersions` of `/api`.
pub fn api_versions(resources: &[Arc<Resource>]) -> Value {
    let core = groups(resources).into_iter().find(|group| group.name.is_empty());
    let versions: Vec<&str> = core.iter().flat_map(|group| group.versions.iter().map(|version| version.name)).collect();
    json!({"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": []})
}

/// The `APIGroupList` of `/apis`.
pub fn api_group_list(resources: &[Arc<Resource>]) -> Value {
    let groups = groups(resources);
    let named = groups.iter().filter(|group| !group.name.is_empty());
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": named.map(legacy_group).collect::<Vec<_>>()})
}

/// The `APIGroup` of `/apis/GROUP`; without versions when there is no such group.
pub fn api_group(group: &str, resources: &[Arc<Resource>]) -> Value {
    let found = groups(resources).into_iter().find(|candidate| candidate.name == group);
    let found = found.unwrap_or(Group { name: group, versions: Vec::new() });
    let mut document = legacy_group(&found);
    document["kind"] = json!("APIGroup");
    document["apiVersion"] = json!("v1");
    document
}

/// The `APIResourceList` of `/api/VERSION` (with an empty group) or `/apis/GROUP/VERSION`.
pub fn api_resource_list(group: &str, version: &str, resources: &[Arc<Resource>]) -> Value {
    let mut entries = BTreeMap::new();
    for resource in resources.iter().filter(|r| r.gvk.group == group && r.gvk.version == version) {
        entries.insert(resource.plural.clone(), legacy_resource(resource));
        for subresource in &resource.subresources {
            let name = format!("{}/{}", resource.plural, subresource.name);
            entries.insert(name.clone(), legacy_subresource(&name, resource, subresource));
        }
    }
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": Gvk::new(group, version, "").api_version(),
        "resources": entries.into_values().collect::<Vec<_>>(),
    })
}

struct Group<'a> {
    name: &'a str,
    /// Preferred first.
    versions: Vec<Version<'a>>,
}

struct Version<'a> {
    name: &'a str,
    /// By plural.
    resources: Vec<&'a Resource>,
}

fn groups(resources: &[Arc<Resource>]) -> Vec<Group<'_>> {
    let mut by_group: BTreeMap<&str, BTreeMap<&str, BTreeMap<&str, &Resource>>> = BTreeMap::new();
    for resource in resources {
        let group = by_group.entry(&resource.gvk.group).or_default();
        group.entry(&resource.gvk.version).or_default().insert(&resource.plural, resource);
    }
    let mut groups: Vec<Group<'_>> = by_group
        .into_iter()
        .map(|(name, versions)| {
            let mut versions: Vec<Version<'_>> = versions
                .into_iter()
                .map(|(name, resources)| Version { name, resources: resources.into_values().collect() })
                .collect();
            versions.sort_by_key(|version| std::cmp::Reverse(VersionPriority::of(version.name)));
            Group { name, versions }
        })
        .collect();
    groups.sort_by_key(|group| (std::cmp::Reverse(group_priority(group.name)), group.name));
    groups
}

/// The priority a real server gives its groups; custom groups come last.
fn group_priority(group: &str) -> u32 {
    match group {
        "" => 18_000,
        "apiregistration.k8s.io" => 17_900,
        "apps" => 17_800,
        "events.k8s.io" => 17_750,
        "authentication.k8s.io" => 17_700,
        "authorization.k8s.io" => 17_600,
        "autoscaling" => 17_500,
        "batch" => 17_400,
        "certificates.k8s.io" => 17_300,
        "networking.k8s.io" => 17_200,
        "policy" => 17_100,
        "rbac.authorization.k8s.io" => 17_000,
        "storage.k8s.io" => 16_800,
        "admissionregistration.k8s.io" | "apiextensions.k8s.io" => 16_700,
        "scheduling.k8s.io" => 16_600,
        "coordination.k8s.io" => 16_500,
        "node.k8s.io" => 16_300,
        "discovery.k8s.io" | "resource.k8s.io" => 16_200,
        "flowcontrol.apiserver.k8s.io" => 16_100,
        "internal.apiserver.k8s.io" => 16_000,
        "storagemigration.k8s.io" => 15_800,
        _ => 1_000,
    }
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": {"group": "", "version": "", "kind": resource.gvk.kind},
        "scope": if resource.scope == Scope::Namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let mut subresources: Vec<&Subresource> = resource.subresources.iter().collect();
    subresources.sort_by(|a, b| a.name.cmp(&b.name));
    if !subresources.is_empty() {
        let entries = subresources.iter().map(|subresource| {
            let (group, version) = foreign_version(resource, subresource).unwrap_or(("", ""));
            json!({
                "subresource": subresource.name,
                "responseKind": {"group": group, "version": version, "kind": subresource.kind.kind},
                "verbs": subresource.verbs,
            })
        });
        entry["subresources"] = entries.collect();
    }
    entry
}

/// Group and version of a subresource's kind where they differ from the resource's; an empty pair means "the same".
fn foreign_version<'a>(resource: &Resource, subresource: &'a Subresource) -> Option<(&'a str, &'a str)> {
    let kind = &subresource.kind;
    let differs = kind.group != resource.gvk.group || kind.version != resource.gvk.version;
    differs.then_some((kind.group.as_str(), kind.version.as_str()))
}

fn legacy_group(group: &Group<'_>) -> Value {
    let entry = |version: &Version<'_>| json!({"groupVersion": Gvk::new(group.name, version.name, "").api_version(), "version": version.name});
    let mut document = json!({"name": group.name, "versions": group.versions.iter().map(entry).collect::<Vec<_>>()});
    if let Some(preferred) = group.versions.first() {
        document["preferredVersion"] = entry(preferred);
    }
    document
}

fn legacy_resource(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.scope == Scope::Namespaced,
        "kind": resource.gvk.kind,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    entry
}

fn legacy_subresource(name: &str, resource: &Resource, subresource: &Subresource) -> Value {
    let mut entry = json!({
        "name": name,
        "singularName": "",
        "namespaced": resource.scope == Scope::Namespaced,
        "kind": subresource.kind.kind,
        "verbs": subresource.verbs,
    });
    if let Some((group, version)) = foreign_version(resource, subresource) {
        entry["group"] = json!(group);
        entry["version"] = json!(version);
    }
    entry
}

#[cfg(test)]
mod tests;
