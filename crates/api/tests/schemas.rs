//! The published schemas: structural as Kubernetes demands, the same fields as the types, and rules that do what they say.

use std::collections::BTreeMap;

use kai_api::{BindRequest, Config, PodGroup, Queue, SchedulingShard, Topology};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// The schema of each kind.
fn schemas() -> BTreeMap<String, Value> {
    let crds = kai_api::crds();
    let schema = |crd: &Value| crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
    crds.iter()
        .map(|crd| (crd.spec.names.kind.clone(), schema(&serde_json::to_value(crd).expect("a CRD is JSON"))))
        .collect()
}

/// Calls `visit` with every node of a schema and its path.
fn walk(path: &str, node: &Value, visit: &mut impl FnMut(&str, &Map<String, Value>)) {
    let fields = node.as_object().unwrap_or_else(|| panic!("{path}: a schema is an object, not {node}"));
    visit(path, fields);
    for (name, property) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
        walk(&format!("{path}.{name}"), property, visit);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner_node) = fields.get(inner) {
            walk(&format!("{path}[]"), inner_node, visit);
        }
    }
}

#[test]
fn every_node_is_structural() {
    for (kind, schema) in schemas() {
        walk(&kind, &schema, &mut |path, node| {
            let quantity = node.get("x-kubernetes-int-or-string") == Some(&json!(true));
            assert!(quantity != node.contains_key("type"), "{path} has either a type or is a quantity");
            for forbidden in [
                "$ref",
                "definitions",
                "dependencies",
                "deprecated",
                "id",
                "patternProperties",
                "readOnly",
                "writeOnly",
                "xml",
                "oneOf",
                "allOf",
                "not",
                "title",
            ] {
                assert!(!node.contains_key(forbidden), "{path} has {forbidden}");
            }
            assert_eq!(node.contains_key("anyOf"), quantity, "{path}");
            assert_ne!(node.get("uniqueItems"), Some(&json!(true)), "{path}");
            assert!(
                !(node.contains_key("properties") && node.contains_key("additionalProperties")),
                "{path} has both kinds of properties"
            );
            match node.get("type").and_then(Value::as_str) {
                Some("array") => assert!(node["items"].is_object(), "{path} says what is in the list"),
                Some("object") => assert!(
                    node.contains_key("properties")
                        || node.contains_key("additionalProperties")
                        || node.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(true)),
                    "{path} says what is in the object"
                ),
                _ => {}
            }
        });
    }
}

#[test]
fn nothing_is_defaulted_but_a_missing_spec() {
    for (kind, schema) in schemas() {
        walk(&kind, &schema, &mut |path, node| {
            let empty_spec = kind != "Topology" && path == format!("{kind}.spec");
            assert_eq!(node.get("default"), empty_spec.then(|| json!({})).as_ref(), "{path}");
            let nullable = path.ends_with(".minMember");
            assert_eq!(node.contains_key("nullable"), nullable, "{path}");
        });
        assert_eq!(schema.get("required"), (kind == "Topology").then(|| json!(["spec"])).as_ref(), "{kind}");
    }
}

#[test]
fn a_crd_fits_the_annotation_of_kubectl_apply() {
    for crd in kai_api::crds() {
        let size = serde_json::to_vec(&crd).map_or(usize::MAX, |bytes| bytes.len());
        assert!(size < 200_000, "{:?} has {size} bytes", crd.metadata.name);
    }
}

#[test]
fn names_and_columns_are_those_of_kai() {
    let facts: Vec<Value> = kai_api::crds()
        .iter()
        .map(|crd| {
            let version = &crd.spec.versions[0];
            let columns: Vec<_> = version
                .additional_printer_columns
                .iter()
                .flatten()
                .map(|column| (&column.name, &column.json_path, &column.type_))
                .collect();
            let status = version.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some());
            assert!(version.served && version.storage && crd.spec.versions.len() == 1);
            json!([
                crd.metadata.name,
                version.name,
                crd.spec.scope,
                crd.spec.names.short_names,
                crd.spec.names.categories,
                status,
                columns
            ])
        })
        .collect();
    assert_eq!(
        Value::from(facts),
        json!([
            [
                "queues.scheduling.run.ai",
                "v2",
                "Cluster",
                null,
                null,
                true,
                [
                    ["Priority", ".spec.priority", "string"],
                    ["Parent", ".spec.parentQueue", "string"],
                    ["Children", ".status.childQueues", "string"],
                    ["DisplayName", ".spec.displayName", "string"]
                ]
            ],
            ["podgroups.scheduling.run.ai", "v2alpha2", "Namespaced", ["pg"], null, true, []],
            ["bindrequests.scheduling.run.ai", "v1alpha2", "Namespaced", null, null, true, []],
            ["topologies.kai.scheduler", "v1alpha1", "Cluster", null, null, false, []],
            ["schedulingshards.kai.scheduler", "v1", "Cluster", null, null, true, []],
            ["configs.kai.scheduler", "v1", "Cluster", null, null, true, []]
        ])
    );
}

/// An object with every field of a schema.
fn sample(node: &Value) -> Value {
    if node["x-kubernetes-int-or-string"] == json!(true) {
        return json!("1500m");
    }
    if let Some(value) = node["enum"].as_array().and_then(|values| values.first()) {
        return value.clone();
    }
    match node["type"].as_str() {
        Some("object") => {
            let properties = node["properties"].as_object();
            let mut object: Map<String, Value> =
                properties.into_iter().flatten().map(|(name, node)| (name.clone(), sample(node))).collect();
            if !node["additionalProperties"].is_null() {
                object.insert("key".to_owned(), sample(&node["additionalProperties"]));
            }
            if object.is_empty() {
                object.insert("anything".to_owned(), json!(["goes"]));
            }
            Value::Object(object)
        }
        Some("array") => json!([sample(&node["items"])]),
        Some("boolean") => json!(true),
        Some("integer") => json!(7),
        Some("number") => json!(0.5),
        Some("string") => {
            let pattern =
                regex::Regex::new(node["pattern"].as_str().unwrap_or(".")).expect("patterns are regular expressions");
            let texts =
                if node["format"] == json!("date-time") { ["2026-08-01T10:00:00Z"; 3] } else { ["1m0s", "a", "1w"] };
            json!(
                texts
                    .into_iter()
                    .find(|text| pattern.is_match(text))
                    .unwrap_or_else(|| panic!("no text for {pattern}"))
            )
        }
        other => panic!("unexpected type {other:?}"),
    }
}

fn keeps_every_field<T: Serialize + DeserializeOwned>(kind: &str) {
    let mut object = sample(&schemas()[kind]);
    for (name, value) in
        [("apiVersion", json!("any/v1")), ("kind", json!(kind)), ("metadata", json!({ "name": "sample" }))]
    {
        object[name] = value;
    }
    let mut typed: T = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{kind}: {error}"));
    let mut back = serde_json::to_value(&mut typed).expect("kinds are JSON");
    back["apiVersion"] = json!("any/v1");
    assert_eq!(back, object);
}

#[test]
fn types_keep_every_field_of_their_schema() {
    keeps_every_field::<Queue>("Queue");
    keeps_every_field::<PodGroup>("PodGroup");
    keeps_every_field::<BindRequest>("BindRequest");
    keeps_every_field::<Topology>("Topology");
    keeps_every_field::<SchedulingShard>("SchedulingShard");
    keeps_every_field::<Config>("Config");
}

/// What the topology rules say to a change of levels, each written as `label` or `label=alias`.
fn complaints(old: Option<&[&str]>, new: &[&str]) -> Vec<String> {
    let object = |levels: &[&str]| {
        let levels: Vec<Value> = levels
            .iter()
            .map(|level| match level.split_once('=') {
                Some((label, alias)) => json!({ "nodeLabel": label, "alias": alias }),
                None => json!({ "nodeLabel": level }),
            })
            .collect();
        json!({ "spec": { "levels": levels } })
    };
    let verdict = kube_cel::Validator::new().validate(&schemas()["Topology"], &object(new), old.map(object).as_ref());
    verdict.err().map(|errors| errors.into_vec().into_iter().map(|error| error.message).collect()).unwrap_or_default()
}

#[test]
fn levels_of_a_topology_are_unique_and_end_with_the_host() {
    assert_eq!(complaints(None, &["zone", "rack", "kubernetes.io/hostname"]), Vec::<String>::new());
    assert_eq!(complaints(None, &["kubernetes.io/hostname"]), Vec::<String>::new());
    assert_eq!(complaints(None, &["zone", "rack", "zone"]), ["each level needs a node label of its own"]);
    assert_eq!(complaints(None, &["zone=a", "zone=b"]), ["each level needs a node label of its own"]);
    assert_eq!(
        complaints(None, &["kubernetes.io/hostname", "rack"]),
        ["only the last level can be kubernetes.io/hostname"]
    );
}

#[test]
fn levels_of_a_topology_cannot_be_changed_but_their_aliases_can() {
    let frozen = ["the node labels of levels cannot be changed, only their aliases"];
    assert_eq!(complaints(Some(&["zone", "rack=r"]), &["zone=z", "rack"]), Vec::<String>::new());
    assert_eq!(complaints(Some(&["zone", "rack"]), &["rack", "zone"]), frozen);
    assert_eq!(complaints(Some(&["zone", "rack"]), &["zone"]), frozen);
    assert_eq!(complaints(Some(&["zone"]), &["zone", "rack"]), frozen);
}

#[test]
fn every_rule_compiles() {
    let mut rules = 0;
    for (kind, schema) in schemas() {
        let compiled = kube_cel::compile_schema(&schema);
        assert!(!compiled.has_errors(), "{kind}: {:?}", compiled.compilation_errors());
        walk(&kind, &schema, &mut |_, node| {
            rules += node.get("x-kubernetes-validations").and_then(Value::as_array).map_or(0, Vec::len);
        });
    }
    assert_eq!(rules, 3);
}
