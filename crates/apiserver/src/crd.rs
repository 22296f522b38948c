//! CustomResourceDefinitions: what a real server makes of one when it arrives, and the resources it then serves.
//!
//! ```text
//!  definition -> prepare (defaults) -> validate (refuse) -> establish (status: names, conditions) -> resources (served versions)
//! ```

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::discovery::VersionPriority;
use crate::resource::{Gvk, Origin, PrinterColumn, Resource, ScalePaths, Scope, Subresource};
use crate::schema::Schema;

mod names;
mod schema_rules;
mod structure;
mod validation;

pub use self::names::establish;
pub use self::validation::validate;

/// Fills in what a definition may leave out: singular and list kind, no conversion, the stored version.
pub fn prepare(definition: &mut Value) {
    let storage = versions(definition)
        .find(|version| flag(version, "storage"))
        .map(|version| version.get("name").cloned().unwrap_or_default());
    if let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) {
        if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
            let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
            let absent = |names: &Map<String, Value>, key: &str| {
                names.get(key).and_then(Value::as_str).is_none_or(str::is_empty) && !kind.is_empty()
            };
            if absent(names, "singular") {
                names.insert("singular".to_owned(), Value::String(kind.to_lowercase()));
            }
            if absent(names, "listKind") {
                names.insert("listKind".to_owned(), Value::String(format!("{kind}List")));
            }
        }
        if spec.get("conversion").is_none_or(Value::is_null) {
            spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
        }
    }
    let stored = definition.pointer("/status/storedVersions").and_then(Value::as_array);
    if let Some(storage) = storage
        && stored.is_none_or(Vec::is_empty)
        && let Some(object) = definition.as_object_mut()
    {
        let status = object.entry("status").or_insert_with(|| json!({}));
        if status.is_null() {
            *status = json!({});
        }
        if let Some(status) = status.as_object_mut() {
            status.insert("storedVersions".to_owned(), json!([storage]));
        }
    }
}

/// One resource per served version, or none while the names are not accepted.
///
/// The schema is that of the version with its CEL rules, which are compiled when the first object is validated.
pub fn resources(definition: &Value) -> Vec<Resource> {
    if condition(definition, "Established") != Some("True") {
        return Vec::new();
    }
    let name = definition.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let spec = definition.get("spec").unwrap_or(&Value::Null);
    let group = text(spec, "group");
    let accepted = definition.pointer("/status/acceptedNames").unwrap_or(&Value::Null);
    let scope = if text(spec, "scope") == "Namespaced" { Scope::Namespaced } else { Scope::Cluster };
    versions(definition)
        .filter(|version| flag(version, "served"))
        .map(|version| {
            let gvk = Gvk::new(&group, &text(version, "name"), &text(accepted, "kind"));
            Resource {
                plural: text(accepted, "plural"),
                singular: text(accepted, "singular"),
                list_kind: text(accepted, "listKind"),
                short_names: strings(accepted, "shortNames"),
                categories: strings(accepted, "categories"),
                scope,
                verbs: words(&["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]),
                subresources: subresources(version, &gvk),
                schema: version.pointer("/schema/openAPIV3Schema").map(|source| Arc::new(Schema::parse_root(source))),
                origin: Origin::Custom {
                    definition: name.to_owned(),
                    scale: version.pointer("/subresources/scale").filter(|s| s.is_object()).map(scale_paths),
                    columns: list(version, "additionalPrinterColumns").map(column).collect(),
                    selectable_fields: list(version, "selectableFields").map(|f| text(f, "jsonPath")).collect(),
                    deprecation: flag(version, "deprecated").then(|| deprecation(definition, version, &gvk)),
                },
                gvk,
            }
        })
        .collect()
}

/// The definition's own warning, else one that names the newest better version.
fn deprecation(definition: &Value, version: &Value, gvk: &Gvk) -> String {
    if let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) {
        return warning.to_owned();
    }
    let Gvk { group, version, kind } = gvk;
    let names: Vec<String> = versions(definition)
        .filter(|other| flag(other, "served") && !flag(other, "deprecated"))
        .map(|other| text(other, "name"))
        .collect();
    let newest =
        names.iter().map(|name| VersionPriority::of(name)).filter(|name| *name > VersionPriority::of(version)).max();
    match newest {
        Some(newest) => format!("{group}/{version} {kind} is deprecated; use {group}/{} {kind}", newest.name()),
        None => format!("{group}/{version} {kind} is deprecated"),
    }
}

fn subresources(version: &Value, gvk: &Gvk) -> Vec<Subresource> {
    let verbs = words(&["get", "patch", "update"]);
    let mut found = Vec::new();
    if version.pointer("/subresources/status").is_some_and(Value::is_object) {
        found.push(Subresource { name: "status".to_owned(), kind: gvk.clone(), verbs: verbs.clone() });
    }
    if version.pointer("/subresources/scale").is_some_and(Value::is_object) {
        let kind = Gvk::new("autoscaling", "v1", "Scale");
        found.push(Subresource { name: "scale".to_owned(), kind, verbs });
    }
    found
}

fn scale_paths(scale: &Value) -> ScalePaths {
    ScalePaths {
        spec_replicas: text(scale, "specReplicasPath"),
        status_replicas: text(scale, "statusReplicasPath"),
        label_selector: Some(text(scale, "labelSelectorPath")).filter(|path| !path.is_empty()),
    }
}

fn column(source: &Value) -> PrinterColumn {
    PrinterColumn {
        name: text(source, "name"),
        kind: text(source, "type"),
        format: text(source, "format"),
        description: text(source, "description"),
        priority: source.get("priority").and_then(Value::as_i64).unwrap_or_default(),
        json_path: text(source, "jsonPath"),
    }
}

/// The versions of a definition.
fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten()
}

/// The status of a condition.
fn condition<'a>(definition: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = definition.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|c| c.get("type").and_then(Value::as_str) == Some(kind))?.get("status")?.as_str()
}

fn flag(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or_default()
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn strings(value: &Value, key: &str) -> Vec<String> {
    list(value, key).filter_map(Value::as_str).map(str::to_owned).collect()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests;
