//! Definitions of custom kinds: what is accepted, and what is served then.

use serde_json::{Value, json};

use super::{establish, prepare, resources, validate};
use crate::resource::{Gvk, Origin, Scope};
use crate::schema::structural;

const NOW: &str = "2026-01-01T00:00:00Z";

#[expect(clippy::needless_pass_by_value, reason = "callers write the value in place")]
fn definition(schema: Value) -> Value {
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "queues.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "queues", "kind": "Queue", "shortNames": ["q"], "categories": ["all"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "additionalPrinterColumns": [{"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}]}]}});
    prepare(&mut definition);
    definition
}

fn simple() -> Value {
    definition(
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}}),
    )
}

fn lines(definition: &Value, old: Option<&Value>) -> Vec<String> {
    validate(definition, old).into_iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "callers write the value in place")]
fn refuse_schema(properties: Value, expected: &[&str]) {
    let definition = definition(json!({"type": "object", "properties": {"spec": properties}}));
    let root = "spec.validation.openAPIV3Schema.properties[spec]";
    let found: Vec<String> = lines(&definition, None).iter().map(|l| l.replace(root, "~")).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_definition_is_served_with_its_names_once_established() {
    let mut definition = simple();
    assert_eq!(lines(&definition, None), Vec::<String>::new());
    assert!(resources(&definition).is_empty());
    establish(&mut definition, &[], NOW);
    assert_eq!(
        definition["status"]["acceptedNames"],
        json!({"plural": "queues", "singular": "queue", "kind": "Queue", "listKind": "QueueList", "shortNames": ["q"], "categories": ["all"]})
    );
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    let [resource] = resources(&definition).try_into().unwrap();
    assert_eq!((resource.gvk.clone(), resource.scope), (Gvk::new("example.com", "v1", "Queue"), Scope::Namespaced));
    assert!(resource.has_subresource("status") && resource.has_subresource("scale"));
    let Origin::Custom { scale, columns, .. } = &resource.origin else { panic!() };
    assert_eq!(scale.as_ref().unwrap().spec_replicas, ".spec.replicas");
    assert_eq!(columns[0].json_path, ".spec.replicas");
    let wrong = structural::validate(resource.schema.as_ref().unwrap(), &json!({"spec": {"replicas": "x"}}), None);
    assert_eq!(wrong.len(), 1);
}

#[test]
fn a_name_that_another_definition_has_is_not_accepted() {
    let mut first = simple();
    establish(&mut first, &[], NOW);
    let mut second = simple();
    second["metadata"]["name"] = json!("lines.example.com");
    second["spec"]["names"] =
        json!({"plural": "lines", "singular": "line", "kind": "Queue", "listKind": "LineList", "shortNames": ["q"]});
    establish(&mut second, &[&first], NOW);
    let conditions = second["status"]["conditions"].as_array().unwrap();
    assert_eq!(
        conditions[0],
        json!({"type": "NamesAccepted", "status": "False", "reason": "KindConflict", "message": "\"Queue\" is already in use", "lastTransitionTime": NOW})
    );
    assert_eq!(conditions[1]["status"], "False");
    assert!(resources(&second).is_empty());
    establish(&mut second, &[], "2026-01-02T00:00:00Z");
    assert_eq!(resources(&second).len(), 1);
}

#[test]
fn definitions_with_wrong_names_versions_or_scope_are_refused() {
    let check = |change: &dyn Fn(&mut Value), expected: &[&str]| {
        let mut definition = simple();
        change(&mut definition);
        let found: Vec<String> =
            lines(&definition, None).into_iter().map(|line| line.chars().take(110).collect()).collect();
        assert_eq!(found, expected);
    };
    check(
        &|d| d["metadata"]["name"] = json!("queue.example.com"),
        &[r#"metadata.name: Invalid value: "queue.example.com": must be spec.names.plural+"."+spec.group"#],
    );
    check(
        &|d| d["spec"]["scope"] = json!("Galaxy"),
        &[r#"spec.scope: Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced""#],
    );
    check(&|d| d["spec"]["scope"] = json!(null), &["spec.scope: Required value"]);
    check(
        &|d| d["spec"]["versions"][0]["schema"] = json!(null),
        &["spec.versions[0].schema.openAPIV3Schema: Required value"],
    );
    check(
        &|d| d["spec"]["versions"][0]["name"] = json!("1"),
        &[
            r#"spec.versions[0].name: Invalid value: "1": a DNS-1035 label must consist of lower case alphanumeric characters"#,
            r#"spec.version: Invalid value: "1": a DNS-1035 label must consist of lower case alphanumeric characters or '-', "#,
            r#"status.storedVersions: Invalid value: ["v1"]: must have the storage version 1"#,
            "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version",
        ],
    );
    check(
        &|d| d["spec"]["versions"][0]["additionalPrinterColumns"][0]["type"] = json!("int"),
        &[
            "spec.additionalPrinterColumns[0].type: Invalid value: \"int\": must be one of boolean,date,integer,number,string",
        ],
    );
    check(
        &|d| d["spec"]["versions"][0]["subresources"]["scale"]["specReplicasPath"] = json!(".status.x"),
        &["spec.subresources.scale.specReplicasPath: Invalid value: \".status.x\": should be a json path under .spec"],
    );
    check(
        &|d| d["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.missing"}]),
        &[
            "spec.selectableFields[0].jsonPath: Invalid value: \".spec.missing\": is an invalid path: does not refer to a val",
        ],
    );
    check(
        &|d| d["spec"]["conversion"] = json!({"strategy": "Webhook"}),
        &[
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            "spec.conversion.conversionReviewVersions: Required value",
        ],
    );
}

#[test]
fn two_storage_versions_are_refused() {
    let mut definition = simple();
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    definition["spec"]["versions"].as_array_mut().unwrap().push(second);
    assert!(lines(&definition, None)[0].ends_with("must have exactly one version marked as storage version"));
}

#[test]
fn schemas_that_are_not_structural_are_refused() {
    refuse_schema(json!({}), &["~.type: Required value: must not be empty for specified object fields"]);
    refuse_schema(
        json!({"type": "object", "properties": {"x": {}}}),
        &["~.properties[x].type: Required value: must not be empty for specified object fields"],
    );
    refuse_schema(json!({"type": "array"}), &["~.items: Required value: must be specified"]);
    refuse_schema(
        json!({"type": "object", "anyOf": [{"type": "string"}]}),
        &["~.anyOf[0].type: Forbidden: must be empty to be structural"],
    );
    refuse_schema(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}), &[]);
    refuse_schema(json!({"type": "object", "$ref": "#/x"}), &["~.$ref: Forbidden: $ref is not supported"]);
    let mut at_root = definition(
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "oneOf": [{"properties": {"b": {"minLength": 1}}}]}),
    );
    at_root["spec"]["versions"][0]["subresources"] = json!({});
    assert_eq!(
        lines(&at_root, None),
        [
            "spec.validation.openAPIV3Schema.properties[b]: Required value: because it is defined in spec.validation.openAPIV3Schema.oneOf[0].properties[b]"
        ]
    );
    refuse_schema(
        json!({"type": "string", "pattern": "("}),
        &["~.pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error: unclosed group"],
    );
    refuse_schema(
        json!({"type": "object", "properties": {"x": {"type": "integer", "default": "a"}}}),
        &["~.properties[x].default: Invalid value: \"string\":  in body must be of type integer: \"string\""],
    );
    refuse_schema(
        json!({"type": "object", "default": {"y": 1}, "properties": {"x": {"type": "integer"}}}),
        &["~.default: Invalid value: {\"y\":1}: must not have unknown fields"],
    );
    refuse_schema(
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "properties": {"name": {"type": "string"}}}}),
        &[
            "~.items.properties[name].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ],
    );
}

#[test]
fn rules_that_do_not_compile_are_refused_with_the_place_of_the_mistake() {
    refuse_schema(
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": "self.b > 0"}]}),
        &[
            "~.x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self.b \\u003e 0\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:5: undefined field 'b'\n | self.b > 0\n | ....^",
        ],
    );
    let broken = definition(
        json!({"type": "object", "properties": {"spec": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >"}]}}}),
    );
    let [line] = lines(&broken, None).try_into().unwrap();
    assert!(line.contains("compilation failed: ERROR: <input>:1:7: Syntax error"), "{line}");
    refuse_schema(
        json!({"type": "array", "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}),
        &[
            "~.items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within ~",
        ],
    );
    refuse_schema(
        json!({"type": "object", "properties": {"l": {"type": "array", "maxItems": 9, "items": {"type": "object", "properties": {"n": {"type": "string"}}}}},
        "x-kubernetes-validations": [{"rule": "self.l.all(e, e.n.size() > 0 && e.n != self.l[0].n)"}, {"rule": "has(self.l)", "fieldPath": ".l"}]}),
        &[],
    );
}

#[test]
fn the_kind_and_scope_of_an_established_definition_stay() {
    let mut old = simple();
    establish(&mut old, &[], NOW);
    let mut new = old.clone();
    new["spec"]["scope"] = json!("Cluster");
    assert_eq!(lines(&new, Some(&old)), ["spec.scope: Invalid value: \"Cluster\": field is immutable"]);
}

#[test]
fn groups_of_kubernetes_need_approval() {
    let mut definition = simple();
    definition["metadata"]["name"] = json!("queues.x.k8s.io");
    definition["spec"]["group"] = json!("x.k8s.io");
    assert!(
        lines(&definition, None)[0]
            .starts_with("metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups")
    );
}

/// What Kubernetes' own code says about definitions and objects (see `data/README.md`).
#[test]
fn definitions_and_objects_are_judged_as_by_kubernetes_itself() {
    use std::io::Read as _;
    fn lines(errors: Vec<crate::status::FieldError>) -> Value {
        let mut lines: Vec<String> =
            errors.into_iter().map(|e| format!("{} {}: {}", e.reason, e.field, e.message)).collect();
        lines.sort();
        lines.into()
    }
    let packed = include_bytes!("../../data/validation-fixtures.json.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    let mut objects = 0;
    for case in &cases {
        let mut definition = case["definition"].clone();
        prepare(&mut definition);
        assert_eq!(lines(validate(&definition, None)), case["errors"], "{definition}");
        establish(&mut definition, &[], NOW);
        let served = resources(&definition);
        for object in case["objects"].as_array().into_iter().flatten() {
            let schema = served[0].schema.as_ref().unwrap();
            let arrive = |value: &Value| {
                let mut value = value.clone();
                let pruned = structural::prune(schema, &mut value);
                structural::set_defaults(schema, &mut value);
                (value, Value::from(pruned))
            };
            let (new, pruned) = arrive(&object["new"]);
            let old = object.get("old").map(|old| arrive(old).0);
            assert_eq!(new, object["object"], "{object}");
            assert_eq!(pruned, object["pruned"], "{object}");
            assert_eq!(
                lines(structural::validate(schema, &new, old.as_ref())),
                object["errors"],
                "{definition} {object}"
            );
            objects += 1;
        }
    }
    assert!(cases.len() > 150 && objects > 3000, "{} {objects}", cases.len());
}
