//! The embedded facts about Kubernetes' own kinds, and how they are read.
//!
//! The file has one line per fact, `<section> <name> <json>`. Starting means unpacking it and noting where each line is; the JSON
//! of a line is parsed when it is asked for. Sections: `resource` (by `group/version/plural`), `kind` (`group/version/kind` to the
//! OpenAPI name), `schema` and `message` (by OpenAPI name).

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::{Arc, LazyLock};

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::resource::{Gvk, Origin, Resource, Scope, Subresource};
use crate::schema::{Definitions, Schema, Type};

static PACKED: &[u8] = include_bytes!("../../data/kubernetes.txt.gz");

/// Definitions of any content whatsoever; OpenAPI calls them objects without properties.
const OPAQUE: [&str; 3] = [
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
];
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";

/// The unpacked file, by section and name.
struct Facts {
    kinds: BTreeMap<&'static str, &'static str>,
    messages: BTreeMap<&'static str, &'static str>,
    resources: BTreeMap<&'static str, &'static str>,
    schemas: BTreeMap<&'static str, &'static str>,
}

static FACTS: LazyLock<Facts> = LazyLock::new(|| {
    let mut text = String::new();
    // The file is compiled in and a test reads all of it: unpacking cannot fail in a built server.
    let _ = GzDecoder::new(PACKED).read_to_string(&mut text);
    let text: &'static str = text.leak();
    let mut facts = Facts {
        kinds: BTreeMap::new(),
        messages: BTreeMap::new(),
        resources: BTreeMap::new(),
        schemas: BTreeMap::new(),
    };
    for line in text.lines() {
        let mut parts = line.splitn(3, ' ');
        if let (Some(section), Some(name), Some(json)) = (parts.next(), parts.next(), parts.next()) {
            match section {
                "kind" => facts.kinds.insert(name, json.trim_matches('"')),
                "message" => facts.messages.insert(name, json),
                "resource" => facts.resources.insert(name, json),
                "schema" => facts.schemas.insert(name, json),
                _ => None,
            };
        }
    }
    facts
});

/// OpenAPI name of a built-in kind, such as `io.k8s.api.core.v1.Pod`.
pub fn definition_name(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    FACTS.kinds.get(format!("{group}/{version}/{kind}").as_str()).copied()
}

/// All built-in kinds of a group version with their OpenAPI names.
pub fn kinds(group: &str, version: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let prefix = format!("{group}/{version}/");
    FACTS.kinds.iter().filter_map(move |(key, name)| Some((key.strip_prefix(prefix.as_str())?, *name)))
}

/// OpenAPI source of a definition.
pub fn definition_source(name: &str) -> Option<Value> {
    FACTS.schemas.get(name).and_then(|json| serde_json::from_str(json).ok())
}

/// The table of a protobuf message: `[number, name, type, cardinality, presence]` per field.
pub fn message_source(name: &str) -> Option<Value> {
    FACTS.messages.get(name).and_then(|json| serde_json::from_str(json).ok())
}

/// Names of all messages.
pub fn message_names() -> impl Iterator<Item = &'static str> {
    FACTS.messages.keys().copied()
}

/// The shared definitions, each parsed at its first use.
pub fn definitions() -> Definitions {
    Definitions::lazy(FACTS.schemas.keys().map(|name| (*name).to_owned()), parse_definition)
}

fn parse_definition(name: &str) -> Schema {
    let mut schema = definition_source(name).map(|source| Schema::parse(&source)).unwrap_or_default();
    if name == QUANTITY {
        schema.kind = Type::IntOrString;
        schema.format = Some("quantity".to_owned());
    }
    if OPAQUE.contains(&name) || schema.kind == Type::Any {
        schema.preserve_unknown_fields = true;
    }
    schema
}

/// All built-in resources.
pub fn resources() -> Vec<Arc<Resource>> {
    FACTS.resources.iter().filter_map(|(key, json)| parse_resource(key, json)).map(Arc::new).collect()
}

fn parse_resource(key: &str, json: &str) -> Option<Resource> {
    let fact: Value = serde_json::from_str(json).ok()?;
    let mut words = key.splitn(3, '/');
    let (group, version, plural) = (words.next()?, words.next()?, words.next()?);
    let kind = fact.get("kind")?.as_str()?;
    let subresources = fact.get("subresources").and_then(Value::as_array).into_iter().flatten();
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(Resource {
        gvk: Gvk::new(group, version, kind),
        plural: plural.to_owned(),
        singular: text(&fact, "singular"),
        list_kind: format!("{kind}List"),
        short_names: strings(&fact, "shortNames"),
        categories: strings(&fact, "categories"),
        scope: match fact.get("namespaced").and_then(Value::as_bool) {
            Some(true) => Scope::Namespaced,
            _ => Scope::Cluster,
        },
        verbs: strings(&fact, "verbs"),
        subresources: subresources
            .map(|sub| Subresource {
                name: text(sub, "name"),
                kind: Gvk { group: text(sub, "group"), version: text(sub, "version"), kind: text(sub, "kind") },
                verbs: strings(sub, "verbs"),
            })
            .collect(),
        schema: definition_name(group, version, kind).map(|name| Arc::new(Schema::reference_to(name))),
        origin: Origin::BuiltIn,
    })
}

fn strings(value: &Value, key: &str) -> Vec<String> {
    let list = value.get(key).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;
    use crate::schema::ListType;

    #[test]
    fn every_reference_of_every_definition_leads_somewhere() {
        fn check(owner: &str, schema: &Schema) {
            if let Some(name) = &schema.reference {
                assert!(builtin::definitions().by_name.get(name).is_some(), "{owner} refers to {name}");
            }
            for (name, child) in &schema.properties {
                check(&format!("{owner}.{name}"), child);
            }
            for child in schema.items.iter().chain(&schema.additional) {
                check(owner, child);
            }
        }
        let names: Vec<&str> = builtin::definitions().by_name.names().collect();
        assert!(names.len() > 500, "{}", names.len());
        for name in names {
            check(name, builtin::definitions().by_name.get(name).unwrap());
        }
    }

    #[test]
    fn pods_have_their_names_subresources_and_schema() {
        let pods = builtin::resources().iter().find(|r| r.plural == "pods").unwrap();
        assert_eq!(
            (pods.singular.as_str(), pods.list_kind.as_str(), pods.scope),
            ("pod", "PodList", Scope::Namespaced)
        );
        assert_eq!(
            (pods.short_names.as_slice(), pods.categories.as_slice()),
            (["po".to_owned()].as_slice(), ["all".to_owned()].as_slice())
        );
        let eviction = pods.subresources.iter().find(|s| s.name == "eviction").unwrap();
        assert_eq!(eviction.kind, Gvk::new("policy", "v1", "Eviction"));
        let containers = pods.schema.as_ref().unwrap().field("spec").unwrap().field("containers").unwrap();
        assert_eq!(containers.list_type, ListType::Map(vec!["name".to_owned()]));
        assert_eq!((containers.patch.merge, containers.patch.merge_key.as_deref()), (true, Some("name")));
        let limits = containers.element().unwrap().field("resources").unwrap().field("limits").unwrap();
        assert_eq!(limits.field("nvidia.com/gpu").unwrap().resolved().kind, Type::IntOrString);
    }

    #[test]
    fn every_resource_that_can_be_listed_has_a_schema() {
        assert!(builtin::resources().len() > 60);
        for resource in builtin::resources().iter().filter(|r| r.verbs.iter().any(|v| v == "list")) {
            assert!(resource.schema.is_some(), "{}", resource.plural);
            let Gvk { group, version, .. } = &resource.gvk;
            assert!(definition_name(group, version, &resource.list_kind).is_some(), "{}", resource.list_kind);
        }
    }
}
