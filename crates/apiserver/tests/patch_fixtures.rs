//! Patches and field ownership against results recorded from Kubernetes 1.34 itself.
//!
//! `fixtures/patch/strategic.json` holds (object, patch) pairs with what `strategicpatch` of apimachinery made of them, and
//! `fixtures/patch/ownership.json` sequences of writes with the `managedFields` that its field manager left behind, typed by
//! the published schemas. `definitions.json` is the part of them that the kinds of the fixtures need.

use std::collections::BTreeMap;
use std::sync::Arc;

use kai_apiserver::apply::{Force, ResetFields, Writer, apply_with, record_update_with};
use kai_apiserver::patch::strategic_merge_patch;
use kai_apiserver::resource::{Gvk, Origin, Resource, Scope, Subresource};
use kai_apiserver::schema::{ListType, MapType, PatchStrategy, Schema, Type};
use serde_json::{Map, Value};

fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/fixtures/patch/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Turns published definitions into schemas, with every reference written out.
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

fn custom_schema() -> Arc<Schema> {
    let source = fixture("widget.json");
    let mut definitions = source.as_object().expect("a map of definitions").clone();
    let widget = definitions.get_mut("com.example.v1.Widget").expect("the widget");
    widget["properties"]["metadata"] = serde_json::json!({"type": "object"});
    let widget = widget.clone();
    let mut loader = Loader { definitions: &definitions, done: BTreeMap::new() };
    Arc::new(Schema { source: Some(Arc::new(widget.clone())), ..loader.node(&widget) })
}

fn reset_fields(step: &Value, custom: bool) -> ResetFields {
    if step.get("reset").is_none() {
        return ResetFields::NONE;
    }
    let gvk = Gvk::new("", "v1", step["object"]["kind"].as_str().expect("a kind"));
    let status = Subresource { name: "status".to_owned(), kind: gvk.clone(), verbs: Vec::new() };
    let origin = if custom {
        Origin::Custom {
            definition: String::new(),
            scale: None,
            columns: Vec::new(),
            selectable_fields: Vec::new(),
            deprecation: None,
        }
    } else {
        Origin::BuiltIn
    };
    let resource = Resource {
        gvk,
        plural: String::new(),
        singular: String::new(),
        list_kind: String::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        scope: Scope::Namespaced,
        verbs: Vec::new(),
        subresources: vec![status],
        schema: None,
        origin,
    };
    ResetFields::of(&resource, step.get("subresource").and_then(Value::as_str))
}

/// Without the empty structs and strings and the `null`s that a typed object always writes.
fn without_empties(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(k, v)| (k.clone(), without_empties(v)))
                .filter(|(_, v)| !v.is_null() && v != "" && v.as_object().is_none_or(|o| !o.is_empty()))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_empties).collect()),
        other => other.clone(),
    }
}

fn sorted_lines(message: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = message.lines().collect();
    lines.sort_unstable();
    lines
}

/// Runs the steps of one case; returns the first difference.
fn run_ownership_case(
    case: &Value,
    schemas: &BTreeMap<String, Arc<Schema>>,
    widget: &Arc<Schema>,
) -> Result<(), String> {
    let deduced = case.get("deduced").is_some();
    let custom = deduced || case.get("custom").is_some();
    let mut live: Option<Value> = None;
    for (number, step) in case["steps"].as_array().expect("steps").iter().enumerate() {
        let word = |key: &str| step.get(key).and_then(Value::as_str);
        let mut object = step["object"].clone();
        let kind = object["kind"].as_str().expect("a kind").to_owned();
        let schema = match (deduced, custom) {
            (true, _) => None,
            (_, true) => Some(widget),
            _ => Some(&schemas[&kind]),
        };
        let schema = schema.map(Arc::as_ref);
        let api_version = object["apiVersion"].as_str().expect("a version").to_owned();
        let writer = Writer {
            manager: word("manager").expect("a manager"),
            api_version: &api_version,
            subresource: word("subresource"),
            time: word("time").expect("a time"),
        };
        let reset = reset_fields(step, custom);
        let complain = |what: &str, got: &Value, expected: &Value| {
            Err(format!("step {number}: {what}\n got      {got}\n expected {expected}"))
        };
        let result = if word("verb") == Some("update") {
            record_update_with(live.as_ref(), &mut object, schema, &writer, reset);
            Ok(object)
        } else {
            let force = if step.get("force") == Some(&Value::Bool(true)) { Force::Yes } else { Force::No };
            apply_with(live.as_ref(), &object, schema, &writer, force, reset)
        };
        let mut object = match (result, step.get("error")) {
            (Err(error), Some(expected)) => {
                if error.code != 500 || !error.reason.is_empty() {
                    let status = error.to_status();
                    for key in ["code", "reason"] {
                        if status[key] != expected[key] {
                            return complain(key, &status[key], &expected[key]);
                        }
                    }
                    if let Some(causes) = expected["details"].get("causes") {
                        let sorted = |causes: &Value| {
                            let mut texts: Vec<String> =
                                causes.as_array().into_iter().flatten().map(Value::to_string).collect();
                            texts.sort_unstable();
                            texts
                        };
                        if sorted(&status["details"]["causes"]) != sorted(causes) {
                            return complain("causes", &status["details"]["causes"], causes);
                        }
                    }
                }
                let expected = &expected["message"];
                if sorted_lines(&error.message) != sorted_lines(expected.as_str().expect("a message")) {
                    return complain("message", &Value::String(error.message), expected);
                }
                continue;
            }
            (Ok(object), None) => object,
            (result, expected) => return Err(format!("step {number}: got {result:?}, expected {expected:?}")),
        };
        let managed = object["metadata"].get("managedFields").cloned().unwrap_or(Value::Null);
        if managed != step["managedFields"] {
            return complain("managedFields", &managed, &step["managedFields"]);
        }
        if let Some(expected) = step.get("result") {
            let mut got = object.clone();
            for name in ["managedFields", "uid"] {
                got["metadata"].as_object_mut().expect("metadata").remove(name);
            }
            let mut expected = expected.clone();
            expected["metadata"].as_object_mut().expect("metadata").remove("uid");
            let equal = if custom { got == expected } else { without_empties(&got) == without_empties(&expected) };
            if !equal {
                return complain("object", &got, &expected);
            }
        }
        object["metadata"]["uid"] = Value::from("00000000-0000-0000-0000-000000000001");
        live = Some(object);
    }
    Ok(())
}

#[test]
fn owners_after_updates_and_applies_are_those_of_kubernetes() {
    let (schemas, widget) = (builtin_schemas(), custom_schema());
    let cases = fixture("ownership.json");
    let cases = cases.as_array().expect("a list of cases");
    assert!(cases.len() >= 60);
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            run_ownership_case(case, &schemas, &widget).err().map(|why| format!("{}: {why}", case["name"]))
        })
        .collect();
    assert!(failures.is_empty(), "{} of {} cases differ:\n{}", failures.len(), cases.len(), failures.join("\n"));
}
