//! Answers of a real kube-apiserver 1.34.4, replayed: each row of `recorded.json` is a create, or a merge patch of an object
//! (`created`), with the object or the error that the real server answered. Admission plug-ins were off, except the life cycle of
//! namespaces.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::access::{Read, Write};
use super::{defaults, metadata, strategy, validation};
use crate::resource::{Gvk, Origin, Resource, Scope, Subresource};
use crate::status::FieldError;

const WITH_STATUS: &[&str] = &[
    "Pod",
    "Service",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ResourceQuota",
    "ReplicationController",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "CronJob",
    "PodDisruptionBudget",
    "HorizontalPodAutoscaler",
    "Ingress",
    "ResourceClaim",
    "ValidatingAdmissionPolicy",
    "VolumeAttachment",
    "Widget",
];

/// A built-in resource with the facts that these modules read.
pub(super) fn resource(api_version: &str, kind: &str, scope: Scope) -> Resource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let gvk = Gvk::new(group, version, kind);
    let status = Subresource { name: "status".to_owned(), kind: gvk.clone(), verbs: Vec::new() };
    Resource {
        plural: format!("{}s", kind.to_lowercase()),
        singular: kind.to_lowercase(),
        list_kind: format!("{kind}List"),
        short_names: Vec::new(),
        categories: Vec::new(),
        scope,
        verbs: Vec::new(),
        subresources: if WITH_STATUS.contains(&kind) { vec![status] } else { Vec::new() },
        schema: None,
        origin: match group {
            "example.com" => Origin::Custom {
                definition: "widgets.example.com".to_owned(),
                scale: None,
                columns: Vec::new(),
                selectable_fields: Vec::new(),
                deprecation: None,
            },
            _ => Origin::BuiltIn,
        },
        gvk,
    }
}

fn resource_of(object: &Value) -> Resource {
    let scope = if object.has("metadata.namespace") { Scope::Namespaced } else { Scope::Cluster };
    resource(object.text("apiVersion"), object.text("kind"), scope)
}

/// Creates an object as the engine does, or gives what is wrong with it.
pub(super) fn create(resource: &Resource, given: &Value, system: &Value) -> Result<Value, Vec<FieldError>> {
    let mut object = given.clone();
    for name in ["uid", "creationTimestamp"] {
        let path = format!("metadata.{name}");
        if system.has(&path) {
            object.set(&path, system.at(&path).clone());
        } else {
            object.set(&path, "2b0c3c1c-0000-4000-8000-000000000000");
        }
    }
    let is_built_in = resource.origin == Origin::BuiltIn;
    if is_built_in {
        defaults::set_defaults(&resource.gvk, &mut object);
    }
    strategy::prepare_for_create(resource, &mut object);
    let mut errors = metadata::validate_metadata(resource, &object);
    if is_built_in {
        errors.extend(validation::validate_create(&resource.gvk, &object));
    }
    if errors.is_empty() { Ok(object) } else { Err(errors) }
}

/// Patches an object as the engine does, or gives what is wrong with it.
fn update(
    resource: &Resource,
    subresource: Option<&str>,
    old: &Value,
    patch: &Value,
) -> Result<Value, Vec<FieldError>> {
    let mut object = old.clone();
    json_patch::merge(&mut object, patch);
    let is_built_in = resource.origin == Origin::BuiltIn;
    if is_built_in {
        defaults::set_defaults(&resource.gvk, &mut object);
    }
    strategy::prepare_for_update(resource, subresource, &mut object, old);
    let mut errors = metadata::validate_metadata_update(resource, &object, old);
    if is_built_in {
        errors.extend(validation::validate_update(&resource.gvk, subresource, &object, old));
    }
    if errors.is_empty() { Ok(object) } else { Err(errors) }
}

/// Causes as comparable lines. Values that a JSON object cannot show as Go prints them, and differences, are cut off.
fn lines(causes: impl Iterator<Item = (String, String, String)>) -> BTreeSet<String> {
    causes
        .map(|(reason, field, message)| {
            let message = message.split('\n').next().unwrap_or("").to_owned();
            // Go keeps the order of its structs in values, JSON here is sorted
            let message = match (
                message.split_once("value: {").or_else(|| message.split_once("value: [{")),
                message.rfind('}'),
            ) {
                (Some((before, _)), Some(end)) => format!("{before}value: …{}", message.get(end + 1..).unwrap_or("")),
                _ => message,
            };
            format!("{reason} {field}: {message}")
        })
        .collect()
}

fn differences(path: &str, ours: &Value, real: &Value, found: &mut Vec<String>) {
    match (ours, real) {
        (Value::Object(ours), Value::Object(real)) => {
            let names: BTreeSet<&String> = ours.keys().chain(real.keys()).collect();
            for name in names {
                let path = format!("{path}.{name}");
                match (ours.get(name), real.get(name)) {
                    (Some(ours), Some(real)) => differences(&path, ours, real, found),
                    (Some(ours), None) => found.push(format!("{path}: only ours: {ours}")),
                    (None, Some(real)) => found.push(format!("{path}: only real: {real}")),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(ours), Value::Array(real)) if ours.len() == real.len() => {
            for (index, (ours, real)) in ours.iter().zip(real).enumerate() {
                differences(&format!("{path}[{index}]"), ours, real, found);
            }
        }
        _ if ours != real => found.push(format!("{path}: ours {ours}, real {real}")),
        _ => {}
    }
}

/// Values that differ from run to run, and addresses that each server gives out its own way.
fn without_chance(mut object: Value) -> Value {
    if object.text("kind") == "Service" {
        for name in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
            let path = format!("spec.{name}");
            if object.has(&path) && object.text("spec.clusterIP") != "None" {
                object.set(&path, "given out");
            }
        }
    }
    for condition in object.elements("status.conditions") {
        if condition.text("reason") == "SchedulingGated" {
            condition.set("lastTransitionTime", "now");
        }
    }
    if object.has("status.lastPhaseTransitionTime") {
        object.set("status.lastPhaseTransitionTime", "now");
    }
    object
}

fn compare(case: &Value) -> Vec<String> {
    let given = case.at("create");
    let resource = resource_of(given);
    let outcome = if case.has("update") {
        let subresource = case.at("subresource").as_str();
        update(&resource, subresource, case.at("created"), case.at("update"))
    } else {
        create(&resource, given, case.at("answer"))
    };
    let mut found = Vec::new();
    match (outcome, case.at("error")) {
        (Ok(ours), Value::Null) => {
            differences("", &without_chance(ours), &without_chance(case.at("answer").clone()), &mut found);
        }
        (Ok(_), error) if error.count("code") == 400 => {
            let complaint = defaults::undecodable_quantity(&resource.gvk, &mut given.clone()).unwrap_or_default();
            if complaint.is_empty() || !error.text("message").ends_with(&complaint) {
                found.push(format!("ours {complaint:?}, real {}", error.text("message")));
            }
        }
        (Ok(_), error) => found.push(format!("accepted, but the real server says {}", error.text("message"))),
        (Err(errors), Value::Null) => found.push(format!("refused: {errors:?}")),
        (Err(_), error) if error.count("code") == 400 => {
            let complaint = defaults::undecodable_quantity(&resource.gvk, &mut given.clone()).unwrap_or_default();
            if complaint.is_empty() || !error.text("message").ends_with(&complaint) {
                found.push(format!("ours {complaint:?}, real {}", error.text("message")));
            }
        }
        (Err(errors), error) => {
            let ours = lines(errors.into_iter().map(|e| (e.reason.to_owned(), e.field, e.message)));
            let real = lines(error.list("causes").iter().map(|cause| {
                let text = |name: &str| cause.text(name).to_owned();
                (text("reason"), text("field"), text("message"))
            }));
            found.extend(ours.difference(&real).map(|line| format!("only ours: {line}")));
            found.extend(real.difference(&ours).map(|line| format!("only real: {line}")));
        }
    }
    found
}

#[test]
fn every_recorded_answer_of_the_real_server_is_ours_too() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("recorded.json")).expect("the file is JSON");
    let mut report = Vec::new();
    for case in &cases {
        for difference in compare(case) {
            report.push(format!("{} ({}): {difference}", case.text("name"), case.text("kind")));
        }
    }
    assert!(report.is_empty(), "{} differences in {} cases:\n{}", report.len(), cases.len(), report.join("\n"));
}

#[test]
fn the_comparison_finds_a_wrong_default() {
    let mut found = Vec::new();
    differences("", &json!({"spec": {"replicas": 1}}), &json!({"spec": {"replicas": 2}}), &mut found);
    assert_eq!(found, [".spec.replicas: ours 1, real 2"]);
}
