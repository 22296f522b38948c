//! OpenAPI version 3, as kubectl reads it: an index, and one document per group version.
//!
//! `kubectl explain` reads schemas and their descriptions, `kubectl apply` looks for the merge keys of lists, and `--validate` looks
//! for the query parameter `fieldValidation` of the patch operation of a kind. Documents are built from the table of resources when
//! they are asked for; whoever serves them keeps them, as long as the hash in the index stays the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::builtin::data;
use crate::resource::{Gvk, Origin, Resource, Scope};

mod paths;

const PREFIX: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const MAXIMUM_DEPTH: usize = 256;
/// Definitions every document has.
const COMMON: [&str; 4] = ["APIResourceList", "DeleteOptions", "Patch", "Status"];

/// The index, `/openapi/v3`: the address of each document, with a hash of its content.
pub fn index(resources: &[Arc<Resource>]) -> Value {
    let mut groups: BTreeMap<String, Vec<&Arc<Resource>>> = BTreeMap::new();
    for resource in resources {
        groups.entry(document_path(&resource.gvk)).or_default().push(resource);
    }
    let paths: Map<String, Value> = groups
        .into_iter()
        .map(|(path, resources)| {
            let url = format!("/openapi/v3/{path}?hash={}", hash(&resources));
            (path, json!({ "serverRelativeURL": url }))
        })
        .collect();
    json!({ "paths": paths })
}

/// One document; `path` is `api/v1` or `apis/<group>/<version>`. `None` when no resource is served there.
pub fn document(path: &str, resources: &[Arc<Resource>]) -> Option<Value> {
    let path = path.trim_matches('/');
    let mine: Vec<&Arc<Resource>> = resources.iter().filter(|r| document_path(&r.gvk) == path).collect();
    if mine.is_empty() {
        return None;
    }
    let mut schemas = Schemas::default();
    for name in COMMON {
        schemas.require(&format!("{META}.{name}"));
    }
    for (_, name) in mine.first().into_iter().flat_map(|r| data::kinds(&r.gvk.group, &r.gvk.version)) {
        schemas.require(name);
    }
    let mut all_paths = Map::new();
    for resource in &mine {
        if let Origin::Custom { .. } = resource.origin {
            schemas.custom(resource);
        }
        for subresource in &resource.subresources {
            schemas.require(&component_name(&subresource.kind));
        }
        paths::add(resource, &mut all_paths);
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": all_paths,
        "components": {
            "schemas": schemas.close(),
            "securitySchemes": {"BearerToken": {
                "description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey",
            }},
        },
    }))
}

fn document_path(gvk: &Gvk) -> String {
    if gvk.group.is_empty() { format!("api/{}", gvk.version) } else { format!("apis/{}/{}", gvk.group, gvk.version) }
}

/// The name of a kind among the components: that of the built-in definition, or the group backwards, version and kind.
fn component_name(gvk: &Gvk) -> String {
    if let Some(name) = data::definition_name(&gvk.group, &gvk.version, &gvk.kind) {
        return name.to_owned();
    }
    let backwards: Vec<&str> = gvk.group.rsplit('.').collect();
    format!("{}.{}.{}", backwards.join("."), gvk.version, gvk.kind)
}

/// A hash over everything a document is made of.
fn hash(resources: &[&Arc<Resource>]) -> String {
    let mut hasher = Sha256::new();
    for resource in resources {
        hasher.update(format!("{:?} {} {:?} {:?}", resource.gvk, resource.plural, resource.scope, resource.verbs));
        hasher.update(format!("{:?}", resource.subresources));
        if let Some(source) = resource.schema.as_ref().and_then(|s| s.source.as_ref()) {
            hasher.update(source.to_string());
        }
    }
    hasher.finalize().iter().fold(String::new(), |text, byte| text + &format!("{byte:02X}"))
}

/// Component schemas, and those they refer to.
#[derive(Default)]
struct Schemas {
    done: BTreeMap<String, Value>,
    wanted: BTreeSet<String>,
}

impl Schemas {
    fn require(&mut self, name: &str) {
        if !self.done.contains_key(name) {
            self.wanted.insert(name.to_owned());
        }
    }

    fn insert(&mut self, name: String, schema: Value) {
        self.find_references(&schema, 0);
        self.wanted.remove(&name);
        self.done.insert(name, schema);
    }

    fn find_references(&mut self, value: &Value, depth: usize) {
        match value {
            _ if depth > MAXIMUM_DEPTH => {}
            Value::Object(fields) => {
                for (key, value) in fields {
                    match value.as_str().and_then(|text| text.strip_prefix(PREFIX)) {
                        Some(name) if key == "$ref" => self.require(name),
                        _ => self.find_references(value, depth + 1),
                    }
                }
            }
            Value::Array(list) => list.iter().for_each(|value| self.find_references(value, depth + 1)),
            _ => {}
        }
    }

    /// The schema of a custom kind as its definition states it, with type and metadata as every object has them, and its list.
    fn custom(&mut self, resource: &Resource) {
        let name = component_name(&resource.gvk);
        let mut schema = resource
            .schema
            .as_ref()
            .and_then(|schema| schema.source.as_deref().cloned())
            .unwrap_or_else(|| json!({"type": "object"}));
        if schema.get("properties").is_some() {
            add_object_fields(&mut schema);
            add_embedded_fields(&mut schema, 0);
        }
        let Gvk { group, version, kind } = &resource.gvk;
        let kind_of = |kind: &str| json!([{"group": group, "version": version, "kind": kind}]);
        if let Some(node) = schema.as_object_mut() {
            node.insert("x-kubernetes-group-version-kind".to_owned(), kind_of(kind));
        }
        let list = json!({
            "description": format!("{} is a list of {kind}", resource.list_kind),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": type_field("apiVersion"),
                "kind": type_field("kind"),
                "metadata": reference(&format!("{META}.ListMeta"), "Standard list metadata."),
                "items": {
                    "description": format!("List of {}.", resource.plural),
                    "type": "array",
                    "items": {"$ref": format!("{PREFIX}{name}")},
                },
            },
            "x-kubernetes-group-version-kind": kind_of(&resource.list_kind),
        });
        self.insert(component_name(&Gvk { kind: resource.list_kind.clone(), ..resource.gvk.clone() }), list);
        self.insert(name, schema);
    }

    /// All components, once every reference among them leads somewhere.
    fn close(mut self) -> Value {
        while let Some(name) = self.wanted.pop_first() {
            // A name that no document knows cannot come from the embedded data (a test checks that) nor from a structural schema.
            if let Some(schema) = data::definition_source(&name) {
                self.insert(name, schema);
            }
        }
        Value::Object(self.done.into_iter().collect())
    }
}

fn reference(name: &str, description: &str) -> Value {
    json!({"allOf": [{"$ref": format!("{PREFIX}{name}")}], "description": description})
}

/// `apiVersion` or `kind`, with the description that built-in kinds have.
fn type_field(name: &str) -> Value {
    let namespace = data::definition_source("io.k8s.api.core.v1.Namespace").unwrap_or_default();
    namespace.pointer(&format!("/properties/{name}")).cloned().unwrap_or_else(|| json!({"type": "string"}))
}

fn add_object_fields(schema: &mut Value) {
    let Some(node) = schema.as_object_mut() else { return };
    let properties = node.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert("apiVersion".to_owned(), type_field("apiVersion"));
        properties.insert("kind".to_owned(), type_field("kind"));
        properties
            .insert("metadata".to_owned(), reference(&format!("{META}.ObjectMeta"), "Standard object's metadata."));
    }
}

/// Embedded objects have type and metadata too.
fn add_embedded_fields(schema: &mut Value, depth: usize) {
    if depth > MAXIMUM_DEPTH {
        return;
    }
    if schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
        add_object_fields(schema);
    }
    let Some(node) = schema.as_object_mut() else { return };
    if let Some(properties) = node.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|child| add_embedded_fields(child, depth + 1));
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child) = node.get_mut(key) {
            add_embedded_fields(child, depth + 1);
        }
    }
}

/// Whether objects are addressed below a namespace.
fn namespaced(resource: &Resource) -> bool {
    resource.scope == Scope::Namespaced
}

#[cfg(test)]
mod tests;
