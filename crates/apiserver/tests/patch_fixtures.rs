//! Patches and field ownership against results recorded from Kubernetes 1.34 itself.
//!
//! `fixtures/patch/strategic.json` holds (object, patch) pairs with what `strategicpatch` of apimachinery made of them, and
//! `fixtures/patch/ownership.json` sequences of writes with the `managedFields` that its field manager left behind, typed by
//! the OpenAPI document. `definitions.json` is the part of that document that the kinds of the fixtures need.

use std::collections::BTreeMap;
use std::sync::Arc;

use kai_apiserver::patch::strategic_merge_patch;
use kai_apiserver::schema::{ListType, MapType, PatchStrategy, Schema, Type};
use serde_json::{Map, Value};

fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/fixtures/patch/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Turns OpenAPI definitions into schemas, with every reference written out.
struct Loader<'a> {
    definitions: &'a Map<String, Value>,
    done: BTreeMap<String, Arc<Schema>>,
}

impl Loader<'_> {
    fn definition(&mut self, name: &str) -> Arc<Schema> {
        if let Some(schema) = self.done.get(name) {
            return schema.clone();
        }
        let definition = self.definitions.get(name).unwrap_or_else(|| panic!("no definition {name}"));
        let mut schema = self.node(definition);
        if name.ends_with("api.resource.Quantity") {
            schema.kind = Type::IntOrString;
        }
        schema.reference = Some(name.to_owned());
        let schema = Arc::new(schema);
        self.done.insert(name.to_owned(), schema.clone());
        schema
    }

    fn node(&mut self, source: &Value) -> Schema {
        let word = |key: &str| source.get(key).and_then(Value::as_str);
        let mut schema = match word("$ref") {
            Some(name) => Schema::clone(&self.definition(name)),
            None => Schema {
                kind: match (word("type"), word("format")) {
                    (_, Some("int-or-string")) => Type::IntOrString,
                    (Some("object"), _) => Type::Object,
                    (Some("array"), _) => Type::Array,
                    (Some("string"), _) => Type::String,
                    (Some("integer"), _) => Type::Integer,
                    (Some("number"), _) => Type::Number,
                    (Some("boolean"), _) => Type::Boolean,
                    _ => Type::Any,
                },
                ..Schema::default()
            },
        };
        if let Some(format) = word("format") {
            schema.format = Some(format.to_owned());
        }
        for (name, property) in source.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let property = Arc::new(self.node(property));
            schema.properties.insert(name.clone(), property);
        }
        if let Some(items) = source.get("items") {
            schema.items = Some(Arc::new(self.node(items)));
        }
        if let Some(additional) = source.get("additionalProperties") {
            schema.additional = Some(Arc::new(self.node(additional)));
        }
        let words = |key: &str| -> Vec<String> {
            source
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|w| w.as_str())
                .map(str::to_owned)
                .collect()
        };
        schema.required.extend(words("required"));
        schema.default = source.get("default").cloned();
        schema.preserve_unknown_fields |=
            source.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
        schema.list_type = match word("x-kubernetes-list-type") {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map(words("x-kubernetes-list-map-keys")),
            _ => ListType::Atomic,
        };
        if word("x-kubernetes-map-type") == Some("atomic") {
            schema.map_type = MapType::Atomic;
        }
        let strategies: Vec<&str> =
            word("x-kubernetes-patch-strategy").into_iter().flat_map(|s| s.split(',')).collect();
        schema.patch = PatchStrategy {
            merge: strategies.contains(&"merge"),
            retain_keys: strategies.contains(&"retainKeys"),
            merge_key: word("x-kubernetes-patch-merge-key").map(str::to_owned),
        };
        schema
    }
}

fn builtin_schemas() -> BTreeMap<String, Arc<Schema>> {
    let definitions = fixture("definitions.json");
    let definitions = definitions.as_object().expect("a map of definitions");
    let mut loader = Loader { definitions, done: BTreeMap::new() };
    definitions
        .keys()
        .filter(|name| name.starts_with("io.k8s.api."))
        .map(|name| (name.rsplit('.').next().unwrap_or_default().to_owned(), loader.definition(name)))
        .collect()
}

#[test]
fn strategic_merge_patches_give_what_kubernetes_gives() {
    let schemas = builtin_schemas();
    let cases = fixture("strategic.json");
    let cases = cases.as_array().expect("a list of cases");
    assert!(cases.len() >= 40);
    for case in cases {
        let name = case["name"].as_str().expect("a name");
        let schema = &schemas[case["current"]["kind"].as_str().expect("a kind")];
        let result = strategic_merge_patch(&case["current"], &case["patch"], schema);
        match (result, case.get("error")) {
            (Ok(result), None) => assert_eq!(result, case["expected"], "{name}"),
            (Err(error), Some(expected)) => {
                assert_eq!(Value::String(error.message.clone()), *expected, "{name}");
                let malformed = error.message.starts_with("invalid patch format");
                assert_eq!(error.code, if malformed { 400 } else { 500 }, "{name}");
            }
            (result, expected) => panic!("{name}: got {result:?}, expected {expected:?}"),
        }
    }
}
