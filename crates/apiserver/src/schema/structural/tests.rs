//! What a structural schema is and is not.

use serde_json::{Value, json};

use super::{prune, set_defaults, type_errors, validate};
use crate::builtin;
use crate::schema::Schema;

fn spec(properties: &Value) -> Schema {
    Schema::parse_root(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}))
}

fn lines(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<String> {
    validate(schema, object, old).into_iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "callers write the value in place")]
fn refuse(property: Value, value: Value, expected: &[&str]) {
    let schema = spec(&json!({ "x": property }));
    assert_eq!(lines(&schema, &json!({"spec": {"x": value}}), None), expected);
}

#[test]
fn wrong_values_are_refused_in_the_words_of_the_real_server() {
    refuse(
        json!({"type": "integer"}),
        json!("three"),
        &[r#"spec.x: Invalid value: "string": spec.x in body must be of type integer: "string""#],
    );
    refuse(
        json!({"type": "integer"}),
        json!(1.5),
        &[r#"spec.x: Invalid value: "number": spec.x in body must be of type integer: "number""#],
    );
    refuse(json!({"type": "number"}), json!(1), &[]);
    refuse(
        json!({"type": "string"}),
        json!(null),
        &[r#"spec.x: Invalid value: "null": spec.x in body must be of type string: "null""#],
    );
    refuse(json!({"type": "string", "nullable": true}), json!(null), &[]);
    refuse(json!({"x-kubernetes-int-or-string": true}), json!("1"), &[]);
    refuse(
        json!({"x-kubernetes-int-or-string": true}),
        json!(true),
        &[r#"spec.x: Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean""#],
    );
    refuse(
        json!({"type": "integer", "minimum": 0}),
        json!(-1),
        &["spec.x: Invalid value: -1: spec.x in body should be greater than or equal to 0"],
    );
    refuse(
        json!({"type": "number", "maximum": 2.5, "exclusiveMaximum": true}),
        json!(2.5),
        &["spec.x: Invalid value: 2.5: spec.x in body should be less than 2.5"],
    );
    refuse(
        json!({"type": "integer", "multipleOf": 5}),
        json!(7),
        &["spec.x: Invalid value: 7: spec.x in body should be a multiple of 5"],
    );
    refuse(
        json!({"type": "string", "pattern": "^[a-z]+$"}),
        json!("A"),
        &[r#"spec.x: Invalid value: "A": spec.x in body should match '^[a-z]+$'"#],
    );
    refuse(
        json!({"type": "string", "maxLength": 3}),
        json!("four"),
        &["spec.x: Too long: may not be more than 3 bytes"],
    );
    refuse(
        json!({"type": "string", "minLength": 1}),
        json!(""),
        &[r#"spec.x: Invalid value: "": spec.x in body should be at least 1 chars long"#],
    );
    refuse(
        json!({"type": "string", "enum": ["a", "b"]}),
        json!("x"),
        &[r#"spec.x: Unsupported value: "x": supported values: "a", "b""#],
    );
    refuse(
        json!({"type": "array", "maxItems": 1, "items": {"type": "string"}}),
        json!(["a", 2]),
        &[
            "spec.x: Too many: 2: must have at most 1 item",
            r#"spec.x[1]: Invalid value: "integer": spec.x[1] in body must be of type string: "integer""#,
        ],
    );
    refuse(
        json!({"type": "array", "minItems": 1, "items": {"type": "string"}}),
        json!([]),
        &["spec.x: Invalid value: 0: spec.x in body should have at least 1 items"],
    );
    refuse(
        json!({"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}),
        json!({"a": "1"}),
        &["spec.x.b: Required value"],
    );
    refuse(
        json!({"type": "string", "format": "date-time"}),
        json!("noon"),
        &[r#"spec.x: Invalid value: "noon": spec.x in body must be of type date-time: "noon""#],
    );
}

#[test]
fn combinations_of_schemas_are_refused_at_no_field() {
    refuse(
        json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        json!({"a": "1", "b": "2"}),
        &[
            r#"<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ],
    );
    refuse(
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        json!({}),
        &[
            r#"<nil>: Invalid value: "": "spec.x" must validate at least one schema (anyOf)"#,
            "spec.x.a: Required value",
        ],
    );
    refuse(
        json!({"type": "string", "not": {"enum": ["root"]}}),
        json!("root"),
        &[r#"<nil>: Invalid value: "": "spec.x" must not validate the schema (not)"#],
    );
    refuse(json!({"type": "integer", "allOf": [{"minimum": 1}, {"maximum": 3}]}), json!(2), &[]);
}

#[test]
fn keys_of_list_maps_and_members_of_sets_are_unique() {
    refuse(
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
        json!(["a", "b", "a", "a"]),
        &[r#"spec.x[2]: Duplicate value: "a""#],
    );
    refuse(
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
               "items": {"type": "object", "properties": {"name": {"type": "string"}}}}),
        json!([{"name": "a"}, {"name": "a"}]),
        &[r#"spec.x[1]: Duplicate value: {"name":"a"}"#],
    );
}

#[test]
fn a_wrong_value_that_was_there_before_is_let_through_until_it_changes() {
    let schema = spec(&json!({"x": {"type": "integer", "minimum": 10}, "y": {"type": "string"}}));
    let old = json!({"spec": {"x": 1, "y": "a"}});
    assert!(lines(&schema, &json!({"spec": {"x": 1, "y": "b"}}), Some(&old)).is_empty());
    assert_eq!(lines(&schema, &json!({"spec": {"x": 2, "y": "b"}}), Some(&old)).len(), 1);
}

fn rules(kind: Value, rules: Value) -> Schema {
    let mut node = kind;
    node["x-kubernetes-validations"] = rules;
    spec(&json!({ "x": node }))
}

#[test]
fn failed_rules_show_their_message_or_themselves() {
    let object = json!({"type": "object", "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}}});
    let value = json!({"spec": {"x": {"min": 5, "max": 1}}});
    let schema = rules(object.clone(), json!([{"rule": "self.min <= self.max"}]));
    assert_eq!(lines(&schema, &value, None), [r#"spec.x: Invalid value: "object": failed rule: self.min <= self.max"#]);
    let schema = rules(
        object.clone(),
        json!([{"rule": "self.min <= self.max", "message": "min is above max", "fieldPath": ".min", "reason": "FieldValueForbidden"}]),
    );
    assert_eq!(lines(&schema, &value, None), ["spec.x.min: Forbidden: min is above max"]);
    let schema = rules(
        object.clone(),
        json!([{"rule": "self.min <= self.max", "messageExpression": "'%d is above %d'.format([self.min, self.max])"}]),
    );
    assert_eq!(lines(&schema, &value, None), [r#"spec.x: Invalid value: "object": 5 is above 1"#]);
    let schema = rules(object, json!([{"rule": "self.min <= self.max"}]));
    assert_eq!(
        lines(&schema, &json!({"spec": {"x": {"min": 5}}}), None),
        [r#"spec.x: Invalid value: "object": no such key: max evaluating rule: self.min <= self.max"#]
    );
}

#[test]
fn transition_rules_run_only_when_there_is_an_old_value() {
    let schema = rules(json!({"type": "string"}), json!([{"rule": "self == oldSelf", "message": "is immutable"}]));
    let (old, new) = (json!({"spec": {"x": "a"}}), json!({"spec": {"x": "b"}}));
    assert!(lines(&schema, &new, None).is_empty());
    assert!(lines(&schema, &new, Some(&json!({"spec": {}}))).is_empty());
    assert_eq!(lines(&schema, &new, Some(&old)), [r#"spec.x: Invalid value: "string": is immutable"#]);
}

#[test]
fn an_optional_old_value_can_be_asked_for() {
    let schema = rules(
        json!({"type": "integer"}),
        json!([{"rule": "oldSelf.hasValue() || self == 0", "optionalOldSelf": true, "message": "starts at zero"},
               {"rule": "self >= oldSelf.orValue(0)", "optionalOldSelf": true, "message": "never falls"}]),
    );
    let object = |x: i64| json!({"spec": {"x": x}});
    assert_eq!(lines(&schema, &object(3), None), [r#"spec.x: Invalid value: "integer": starts at zero"#]);
    assert!(lines(&schema, &object(3), Some(&object(2))).is_empty());
    assert_eq!(lines(&schema, &object(1), Some(&object(2))), [r#"spec.x: Invalid value: "integer": never falls"#]);
}

#[test]
fn elements_of_list_maps_are_compared_with_their_old_selves() {
    let schema =
        spec(&json!({"x": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer",
            "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}}}}}));
    let old = json!({"spec": {"x": [{"name": "a", "size": 5}, {"name": "b", "size": 1}]}});
    let new = json!({"spec": {"x": [{"name": "b", "size": 2}, {"name": "a", "size": 4}]}});
    assert_eq!(
        lines(&schema, &new, Some(&old)),
        [r#"spec.x[1].size: Invalid value: "integer": failed rule: self >= oldSelf"#]
    );
}

#[test]
fn rules_know_the_functions_of_kubernetes() {
    for (kind, rule, good, bad) in [
        (json!({"type": "string"}), "quantity(self).isLessThan(quantity('2Gi'))", json!("1Gi"), json!("3Gi")),
        (json!({"type": "string", "format": "duration"}), "self < duration('1h')", json!("5m"), json!("2h")),
        (
            json!({"type": "string", "format": "date-time"}),
            "self > timestamp('2020-01-01T00:00:00Z')",
            json!("2026-01-01T00:00:00Z"),
            json!("2019-01-01T00:00:00Z"),
        ),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            "self.all(e, e.startsWith('a')) && self.exists_one(e, e == 'a')",
            json!(["a", "ab"]),
            json!(["a", "b"]),
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            "self.all(k, self[k] > 0) && !('x' in self)",
            json!({"a": 1}),
            json!({"x": 1}),
        ),
        (
            json!({"type": "object", "properties": {"a-b": {"type": "string"}, "namespace": {"type": "string"}}}),
            "has(self.a__dash__b) == has(self.__namespace__)",
            json!({"a-b": "", "namespace": ""}),
            json!({"a-b": ""}),
        ),
        (
            json!({"type": "string"}),
            "self.matches('^[a-z]+$') && size(self) < 4 && self.lowerAscii() == self",
            json!("abc"),
            json!("abcd"),
        ),
        (json!({"type": "number"}), "self <= 1.0", json!(1), json!(2)),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}}),
            "self.?a.orValue('none') != 'bad'",
            json!({}),
            json!({"a": "bad"}),
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            "type(self) == int ? self > 0 : self.endsWith('%')",
            json!("5%"),
            json!(0),
        ),
    ] {
        let schema = rules(kind, json!([{"rule": rule}]));
        assert_eq!(lines(&schema, &json!({"spec": {"x": good}}), None), Vec::<String>::new(), "{rule}");
        assert_eq!(lines(&schema, &json!({"spec": {"x": bad}}), None).len(), 1, "{rule}");
    }
}

#[test]
fn rules_of_the_whole_object_see_its_name() {
    let schema = Schema::parse_root(&json!({"type": "object", "properties": {"spec": {"type": "object"}},
        "x-kubernetes-validations": [{"rule": "self.metadata.name == 'default'", "message": "the name is default"}]}));
    let named = |name: &str| json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"name": name}});
    assert!(lines(&schema, &named("default"), None).is_empty());
    assert_eq!(lines(&schema, &named("other"), None), [r#"<nil>: Invalid value: "object": the name is default"#]);
}

#[test]
fn rules_wait_until_values_have_their_types() {
    let schema = rules(json!({"type": "integer"}), json!([{"rule": "self > 0"}]));
    let errors = lines(&schema, &json!({"spec": {"x": "a"}}), None);
    assert_eq!(errors.len(), 2);
    assert!(errors[1].starts_with("<nil>: Invalid value: null: some validation rules were not checked"), "{errors:?}");
}

#[test]
fn the_largest_rule_that_compiles_also_runs() {
    let errors = |rule: String| {
        lines(&rules(json!({"type": "integer"}), json!([{ "rule": rule }])), &json!({"spec": {"x": 1}}), None)
    };
    assert_eq!(errors(format!("self {} >= 0", "+ 1 ".repeat(200))), Vec::<String>::new());
    assert!(errors(format!("self {} >= 0", "+ 1 ".repeat(4000)))[0].contains("recursion limit"));
    for (open, close) in
        [("(", ")"), ("[", "]"), ("{1:", "}"), ("!", ""), ("-", ""), ("true ? true : ", ""), ("self.a", "")]
    {
        assert_eq!(errors(format!("{}self{}", open.repeat(1000), close.repeat(1000))).len(), 1, "{open}");
    }
}

#[test]
fn unknown_fields_go_and_are_reported() {
    let schema = spec(&json!({
        "known": {"type": "string"},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"typed": {"type": "object", "properties": {}}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {}},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
    }));
    let mut object = json!({
        "apiVersion": "a/v1", "kind": "A", "metadata": {"name": "n", "nonsense": 1, "labels": {"any": "thing"}}, "status": {},
        "spec": {"known": "1", "unknown": 2, "open": {"anything": {"goes": 1}, "typed": {"gone": 1}}, "list": [{"a": "1", "b": 2}],
                 "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {}}, "map": {"k": {"a": "1", "z": 1}}}
    });
    let removed = prune(&schema, &mut object);
    assert_eq!(
        removed,
        [
            "metadata.nonsense",
            "spec.list[0].b",
            "spec.map.k.z",
            "spec.open.typed.gone",
            "spec.template.spec",
            "spec.unknown",
            "status"
        ]
    );
    assert_eq!(object["spec"]["open"], json!({"anything": {"goes": 1}, "typed": {}}));
}

#[test]
fn unknown_fields_of_built_in_kinds_are_found_too() {
    let pods = builtin::resources().iter().find(|r| r.plural == "pods").unwrap();
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "managedFields": [{"fieldsV1": {"f:x": {}}}]},
        "spec": {"containers": [{"name": "a", "imagee": "b", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}});
    assert_eq!(prune(pods.schema.as_ref().unwrap(), &mut pod), ["spec.containers[0].imagee"]);
    assert_eq!(pod["metadata"]["managedFields"][0]["fieldsV1"], json!({"f:x": {}}));
}

#[test]
fn values_that_do_not_decode_are_named_as_go_names_them() {
    let deployments = builtin::resources().iter().find(|r| r.plural == "deployments").unwrap();
    let check = |object: Value| type_errors(deployments.schema.as_ref().unwrap(), &object);
    assert_eq!(
        check(json!({"spec": {"replicas": "3"}})),
        ["json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"]
    );
    assert_eq!(
        check(json!({"spec": {"template": {"spec": {"containers": {"name": "a"}}}}})),
        [
            "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container"
        ]
    );
    assert_eq!(
        check(json!({"metadata": {"labels": {"a": 1}}})),
        ["json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"]
    );
    assert!(
        check(
            json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": "25%"}}, "template": {"spec": {"containers": [
        {"name": "a", "resources": {"limits": {"cpu": 0.5, "memory": "1Gi"}}, "ports": [{"containerPort": 80}]}]}}}})
        )
        .is_empty()
    );
}

#[test]
fn defaults_fill_missing_fields_and_replace_nulls() {
    let schema = spec(&json!({
        "replicas": {"type": "integer", "default": 1},
        "strategy": {"type": "object", "default": {}, "properties": {"kind": {"type": "string", "default": "Rolling"}}},
        "nothing": {"type": "string"},
        "maybe": {"type": "string", "nullable": true, "default": "x"},
        "list": {"type": "array", "items": {"type": "object", "properties": {"port": {"type": "integer", "default": 80}}}},
    }));
    let mut object = json!({"spec": {"nothing": null, "maybe": null, "replicas": null, "list": [{}]}});
    set_defaults(&schema, &mut object);
    assert_eq!(
        object,
        json!({"spec": {"replicas": 1, "strategy": {"kind": "Rolling"}, "maybe": null, "list": [{"port": 80}]}})
    );
}

#[test]
fn embedded_objects_say_what_they_are() {
    let schema = spec(
        &json!({"x": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}),
    );
    assert_eq!(lines(&schema, &json!({"spec": {"x": {"kind": "Pod"}}}), None), ["spec.x.apiVersion: Required value"]);
}
