//! The operations of a resource: which methods its addresses take, with which parameters and bodies.

use serde_json::{Map, Value, json};

use super::{META, PREFIX, component_name, namespaced};
use crate::resource::{Gvk, Resource};

/// A verb of discovery, the method and action it is here, and where it is asked for.
struct Operation {
    verb: &'static str,
    method: &'static str,
    action: &'static str,
    parameters: &'static [&'static str],
}

const fn operation(
    verb: &'static str,
    method: &'static str,
    action: &'static str,
    parameters: &'static [&'static str],
) -> Operation {
    Operation { verb, method, action, parameters }
}

const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
const DELETE: &[&str] = &["dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"];

const OF_COLLECTION: [Operation; 3] = [
    operation("list", "get", "list", LIST),
    operation("create", "post", "post", WRITE),
    operation("deletecollection", "delete", "deletecollection", DELETE),
];
const OF_OBJECT: [Operation; 4] = [
    operation("get", "get", "get", &[]),
    operation("update", "put", "put", WRITE),
    operation("patch", "patch", "patch", PATCH),
    operation("delete", "delete", "delete", DELETE),
];
const OF_SUBRESOURCE: [Operation; 5] = [
    operation("get", "get", "get", &[]),
    operation("create", "post", "post", WRITE),
    operation("update", "put", "put", WRITE),
    operation("patch", "patch", "patch", PATCH),
    operation("delete", "delete", "delete", DELETE),
];

/// Adds the addresses of a resource.
pub(super) fn add(resource: &Resource, paths: &mut Map<String, Value>) {
    let gvk = &resource.gvk;
    let prefix = format!("/{}", super::document_path(gvk));
    let collection = if namespaced(resource) {
        if resource.verbs.iter().any(|v| v == "list") {
            let all = json!({"parameters": parameters(LIST), "get": body(&OF_COLLECTION[0], resource, gvk)});
            paths.insert(format!("{prefix}/{}", resource.plural), all);
        }
        format!("{prefix}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        format!("{prefix}/{}", resource.plural)
    };
    insert(paths, collection.clone(), resource, gvk, &resource.verbs, &OF_COLLECTION, &[]);
    insert(paths, format!("{collection}/{{name}}"), resource, gvk, &resource.verbs, &OF_OBJECT, &["name"]);
    for subresource in &resource.subresources {
        let path = format!("{collection}/{{name}}/{}", subresource.name);
        insert(paths, path, resource, &subresource.kind, &subresource.verbs, &OF_SUBRESOURCE, &["name"]);
    }
}

fn insert(
    paths: &mut Map<String, Value>,
    path: String,
    resource: &Resource,
    kind: &Gvk,
    verbs: &[String],
    operations: &[Operation],
    in_path: &[&str],
) {
    let mut item = Map::new();
    for operation in operations.iter().filter(|o| verbs.iter().any(|v| v == o.verb)) {
        item.insert(operation.method.to_owned(), body(operation, resource, kind));
    }
    if item.is_empty() {
        return;
    }
    let namespace = namespaced(resource).then_some("namespace");
    let names = in_path.iter().copied().chain(namespace);
    let mut shared: Vec<Value> = names
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}}))
        .collect();
    shared.extend(parameters(&["pretty"]).as_array().cloned().unwrap_or_default());
    item.insert("parameters".to_owned(), Value::Array(shared));
    paths.insert(path, Value::Object(item));
}

/// One operation with its parameters, body and answer.
fn body(operation: &Operation, resource: &Resource, kind: &Gvk) -> Value {
    let list = Gvk { kind: resource.list_kind.clone(), ..resource.gvk.clone() };
    let answer = match operation.action {
        "list" => component_name(&list),
        "delete" | "deletecollection" => format!("{META}.Status"),
        _ => component_name(kind),
    };
    let content = |name: &str, types: &[&str]| -> Value {
        // Options of connections (exec, attach, proxy) are parameters; there is no schema for them.
        let connection = kind.kind.ends_with("Options") && name == component_name(kind);
        let schema = if connection { json!({}) } else { json!({"schema": {"$ref": format!("{PREFIX}{name}")}}) };
        types.iter().map(|each| ((*each).to_owned(), schema.clone())).collect::<Map<_, _>>().into()
    };
    let mut described = json!({
        "description": format!("{} {}", operation.verb, kind.kind),
        "operationId": operation_id(operation, resource, kind),
        "tags": [format!("{}_{}", if resource.gvk.group.is_empty() { "core" } else { &resource.gvk.group }, resource.gvk.version)],
        "parameters": parameters(operation.parameters),
        "responses": {
            "200": {"description": "OK", "content": content(&answer, &["application/json", "application/yaml"])},
            "401": {"description": "Unauthorized"},
        },
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    });
    let request = match operation.method {
        "post" | "put" => Some(content(&component_name(kind), &["*/*"])),
        "delete" => Some(content(&format!("{META}.DeleteOptions"), &["*/*"])),
        "patch" => Some(content(&format!("{META}.Patch"), patch_types(resource))),
        _ => None,
    };
    if let Some(content) = request {
        described["requestBody"] = json!({"content": content, "required": operation.method != "delete"});
    }
    described
}

fn patch_types(resource: &Resource) -> &'static [&'static str] {
    let all: &[&str] = &[
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    ];
    match resource.origin {
        crate::resource::Origin::BuiltIn => all,
        // Custom resources have no strategic merge patch.
        crate::resource::Origin::Custom { .. } => &all[..3],
    }
}

fn operation_id(operation: &Operation, resource: &Resource, kind: &Gvk) -> String {
    let Gvk { group, version, .. } = &resource.gvk;
    let group = group.split('.').next().filter(|g| !g.is_empty()).unwrap_or("core");
    let verb = match operation.action {
        "get" => "read",
        "post" => "create",
        "put" => "replace",
        other => other,
    };
    let scope = if namespaced(resource) { "Namespaced" } else { "" };
    let title = |word: &str| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    };
    let own = if *kind == resource.gvk { String::new() } else { title(&kind.kind) };
    format!("{verb}{}{}{scope}{}{own}", title(group), title(version), resource.gvk.kind)
}

fn parameters(names: &[&str]) -> Value {
    let described = names.iter().map(|name| {
        let (kind, description) = match *name {
            "allowWatchBookmarks" => ("boolean", "Ask for watch events that only tell the resource version."),
            "continue" => ("string", "Where the previous chunk of a list ended."),
            "dryRun" => ("string", "`All`: go through every stage of the request, but keep nothing."),
            "fieldManager" => ("string", "Name of the actor that makes these changes."),
            "fieldSelector" => ("string", "Restricts a list by the fields of its objects."),
            "fieldValidation" => {
                ("string", "What to do about unknown or duplicate fields: `Ignore`, `Warn` or `Strict`.")
            }
            "force" => ("boolean", "Take fields over from other managers (only for apply)."),
            "gracePeriodSeconds" => ("integer", "Seconds until the object is deleted; zero means at once."),
            "labelSelector" => ("string", "Restricts a list by the labels of its objects."),
            "limit" => ("integer", "Most objects in one chunk of a list."),
            "orphanDependents" => ("boolean", "Deprecated: use propagationPolicy."),
            "pretty" => ("string", "`true` asks for indented output."),
            "propagationPolicy" => ("string", "What happens to dependents: `Orphan`, `Background` or `Foreground`."),
            "resourceVersion" => ("string", "The version a list or watch is about."),
            "resourceVersionMatch" => ("string", "How resourceVersion is meant: `Exact` or `NotOlderThan`."),
            "sendInitialEvents" => ("boolean", "Begin a watch with events for the objects there are."),
            "timeoutSeconds" => ("integer", "How long a list or watch may take."),
            _ => ("boolean", "Watch for changes instead of listing."),
        };
        json!({"name": name, "in": "query", "description": description, "schema": {"type": kind, "uniqueItems": true}})
    });
    described.collect()
}
