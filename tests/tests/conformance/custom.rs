//! Objects of CustomResourceDefinitions: defaults, pruning, validation, CEL rules, subresources, columns, versions, apply.
//!
//! Each case defines a kind of its own, in a group that is named after its namespace.

use anyhow::{Context as _, Result, ensure};
use kai_tests::harness::Case;
use kai_tests::request::{
    Answer,
    PatchKind::{Merge, Strategic},
};
use kai_tests::{cluster::PATIENCE, wait};
use serde_json::{Value, json};

use crate::conformance;
use crate::setting::Setting;

pub const CASES: &[Case] = conformance![
    a_custom_object_keeps_what_its_schema_knows,
    fields_get_the_defaults_of_the_schema,
    an_object_without_the_parent_gets_no_default_inside,
    null_is_replaced_by_the_default_unless_nullable,
    unknown_custom_fields_are_400_when_strict,
    unknown_custom_fields_are_a_warning,
    unknown_fields_are_kept_where_the_schema_says_so,
    a_missing_required_field_is_422,
    a_number_out_of_range_is_422,
    a_value_outside_the_enumeration_is_422,
    a_text_that_misses_the_pattern_is_422,
    a_text_that_is_too_long_is_422,
    a_custom_value_of_the_wrong_type_is_422,
    a_fraction_is_no_integer,
    several_errors_are_reported_together,
    an_integer_or_a_text_is_taken_where_both_are_allowed,
    additional_properties_are_checked,
    a_date_that_is_none_is_422,
    two_list_elements_with_one_key_are_422,
    two_equal_members_of_a_set_are_422,
    too_many_list_elements_are_422,
    an_embedded_object_needs_kind_and_version,
    a_rule_refuses_with_its_message,
    a_rule_refuses_with_an_expression_for_message_path_and_reason,
    a_rule_without_message_shows_itself,
    a_rule_of_list_elements_names_the_element,
    a_transition_rule_binds_updates_only,
    status_of_a_custom_object_is_its_own_resource,
    without_the_subresource_status_is_a_plain_field,
    generation_of_a_custom_object_follows_everything_but_metadata_and_status,
    the_scale_of_a_custom_object_reads_and_writes_its_paths,
    a_scale_without_replicas_is_an_error,
    a_negative_scale_is_422,
    a_table_has_the_columns_of_the_definition,
    without_columns_a_table_has_the_age,
    every_served_version_shows_the_object,
    a_version_that_is_not_served_is_404,
    a_deprecated_version_warns,
    selectable_fields_select,
    a_custom_list_has_its_list_kind,
    strategic_patch_of_a_custom_object_is_415,
    another_kind_at_a_custom_path_is_422,
    apply_merges_custom_lists_by_their_keys,
    apply_of_an_unknown_custom_field_is_refused,
    a_cluster_scoped_kind_has_no_namespace,
];

/// Properties of a `spec` that has something of everything.
fn properties() -> Value {
    json!({
        "size": { "type": "integer", "minimum": 1, "maximum": 10 },
        "mode": { "type": "string", "enum": ["a", "b"], "default": "a" },
        "name": { "type": "string", "pattern": "^[a-z]+$", "maxLength": 5 },
        "port": { "x-kubernetes-int-or-string": true },
        "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        "maybe": { "type": "string", "nullable": true },
        "sure": { "type": "string", "default": "yes" },
        "tags": { "type": "object", "additionalProperties": { "type": "integer" } },
        "items": {
            "type": "array", "maxItems": 3, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
            "items": {
                "type": "object", "required": ["id"],
                "properties": { "id": { "type": "string" }, "value": { "type": "integer" } },
            },
        },
        "set": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
        "template": {
            "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
        },
        "when": { "type": "string", "format": "date-time" },
        "replicas": { "type": "integer" },
    })
}

/// A schema whose `spec` has these properties, of which `size` is required.
fn sized(properties: &Value) -> Value {
    json!({ "type": "object", "properties": {
        "spec": { "type": "object", "required": ["size"], "properties": properties },
        "status": { "type": "object", "properties": {
            "phase": { "type": "string" }, "replicas": { "type": "integer" }, "selector": { "type": "string" },
        } },
    } })
}

/// A kind `Widget` in a group of the case's own.
pub struct Kind {
    /// The group, such as `conformance-7.example.com`.
    pub group: String,
    /// The definition, to be changed before it is served.
    pub definition: Value,
}

impl Kind {
    /// A namespaced kind with one version, `v1`.
    pub fn new(s: &Setting, schema: &Value) -> Self {
        let group = format!("{}.example.com", s.namespace);
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("widgets.{group}") },
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": { "plural": "widgets", "kind": "Widget" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
            },
        });
        Self { group, definition }
    }

    /// Sets a field of the first version.
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.definition["spec"]["versions"][0][field] = value;
        self
    }

    /// Creates the definition and waits until its objects are served.
    pub async fn serve(self, s: &Setting) -> Result<Self> {
        s.server.post(DEFINITIONS, &self.definition).await?.expect(201)?;
        wait::until("the definition to be established", PATIENCE, async || {
            let definition = s.server.get(&self.definition_path()).await?.expect(200)?;
            Ok(condition(&definition, "Established").is_some_and(|found| found["status"] == "True").then_some(()))
        })
        .await?;
        wait::until("its objects to be served", PATIENCE, async || {
            let list = s.server.get(&format!("/apis/{}/v1/widgets", self.group)).await?;
            Ok((list.status == 200).then_some(()))
        })
        .await?;
        Ok(self)
    }

    /// Path of the definition.
    pub fn definition_path(&self) -> String {
        format!("{DEFINITIONS}/widgets.{}", self.group)
    }

    /// Path of the objects in the case's namespace.
    pub fn path(&self, s: &Setting) -> String {
        s.group(&format!("{}/v1", self.group), "widgets")
    }

    /// A widget with this `spec`.
    pub fn object(&self, name: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": format!("{}/v1", self.group), "kind": "Widget", "metadata": { "name": name }, "spec": spec,
        })
    }

    /// POST of a widget named `a` with this `spec`.
    pub async fn create(&self, s: &Setting, spec: Value) -> Result<Answer> {
        s.server.post(&self.path(s), &self.object("a", &spec)).await
    }
}

/// Where definitions live.
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The condition of this type.
pub fn condition<'answer>(answer: &'answer Answer, kind: &str) -> Option<&'answer Value> {
    answer.json["status"]["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == kind)
}

async fn widgets(s: &Setting) -> Result<Kind> {
    Kind::new(s, &sized(&properties())).with("subresources", json!({ "status": {} })).serve(s).await
}

async fn a_custom_object_keeps_what_its_schema_knows(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let mut body = kind.object("a", &json!({ "size": 1, "junk": 2, "items": [{ "id": "x", "junk": 3 }] }));
    body["top"] = json!(1);
    let answer = s.server.post(&kind.path(s), &body).await?.expect(201)?;
    let answer = answer
        .expect_value("/spec", json!({ "size": 1, "items": [{ "id": "x" }], "mode": "a", "sure": "yes" }))?
        .expect_value("/top", Value::Null)?
        .expect_value("/metadata/generation", 1)?
        .expect_value("/metadata/namespace", s.namespace.as_str())?;
    let read = s.server.get(&format!("{}/a", kind.path(s))).await?.expect(200)?;
    ensure!(answer.json == read.json, "{}\n{}", answer.text, read.text);
    Ok(())
}

async fn fields_get_the_defaults_of_the_schema(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": 1 })).await?.expect(201)?.expect_value("/spec/mode", "a")?;
    let patched = s.server.patch(Merge, &format!("{}/a", kind.path(s)), &json!({ "spec": { "mode": null } })).await?;
    patched.expect(200)?.expect_value("/spec/mode", "a")?.expect_value("/metadata/generation", 1)?;
    Ok(())
}

async fn an_object_without_the_parent_gets_no_default_inside(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let body = json!({ "apiVersion": format!("{}/v1", kind.group), "kind": "Widget", "metadata": { "name": "a" } });
    s.server.post(&kind.path(s), &body).await?.expect(201)?.expect_value("/spec", Value::Null)?;
    Ok(())
}

async fn null_is_replaced_by_the_default_unless_nullable(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let answer = kind.create(s, json!({ "size": 1, "sure": null, "maybe": null, "name": null })).await?.expect(201)?;
    ensure!(answer.json["spec"].get("maybe") == Some(&Value::Null), "{}", answer.text);
    ensure!(answer.json["spec"].get("name").is_none(), "{}", answer.text);
    answer.expect_value("/spec/sure", "yes")?;
    Ok(())
}

async fn unknown_custom_fields_are_400_when_strict(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let body = kind.object("a", &json!({ "size": 1, "junk": 2 }));
    let answer = s.server.post(&format!("{}?fieldValidation=Strict", kind.path(s)), &body).await?;
    answer.expect_failure(400, "BadRequest")?.expect_value(
        "/message",
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.junk\"",
    )?;
    Ok(())
}

async fn unknown_custom_fields_are_a_warning(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let body = kind.object("a", &json!({ "size": 1, "junk": 2 }));
    let answer = s.server.post(&format!("{}?fieldValidation=Warn", kind.path(s)), &body).await?.expect(201)?;
    ensure!(answer.warnings() == ["299 - \"unknown field \\\"spec.junk\\\"\""], "{:?}", answer.warnings());
    Ok(())
}

async fn unknown_fields_are_kept_where_the_schema_says_so(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let free = json!({ "x": { "y": [1, { "z": null }] } });
    let answer = kind.create(s, json!({ "size": 1, "free": free.clone() })).await?.expect(201)?;
    answer.expect_value("/spec/free", free)?;
    Ok(())
}

async fn a_missing_required_field_is_422(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let answer = kind.create(s, json!({})).await?.expect_invalid(
        "FieldValueRequired",
        "spec.size",
        &format!("Widget.{} \"a\" is invalid: spec.size: Required value", kind.group),
    )?;
    answer
        .expect_value("/details/name", "a")?
        .expect_value("/details/group", kind.group.as_str())?
        .expect_value("/details/kind", "Widget")?;
    Ok(())
}

async fn a_number_out_of_range_is_422(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": 0 })).await?.expect_invalid(
        "FieldValueInvalid",
        "spec.size",
        "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
    )?;
    kind.create(s, json!({ "size": 11 })).await?.expect_invalid(
        "FieldValueInvalid",
        "spec.size",
        "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10",
    )?;
    Ok(())
}

async fn a_value_outside_the_enumeration_is_422(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": 1, "mode": "c" })).await?.expect_invalid(
        "FieldValueNotSupported",
        "spec.mode",
        "spec.mode: Unsupported value: \"c\": supported values: \"a\", \"b\"",
    )?;
    Ok(())
}

async fn a_text_that_misses_the_pattern_is_422(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": 1, "name": "ABC" })).await?.expect_invalid(
        "FieldValueInvalid",
        "spec.name",
        "spec.name: Invalid value: \"ABC\": spec.name in body should match '^[a-z]+$'",
    )?;
    Ok(())
}

async fn a_text_that_is_too_long_is_422(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": 1, "name": "abcdef" })).await?.expect_invalid(
        "FieldValueTooLong",
        "spec.name",
        "spec.name: Too long: may not be more than 5 bytes",
    )?;
    Ok(())
}

async fn a_custom_value_of_the_wrong_type_is_422(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": "x" })).await?.expect_invalid(
        "FieldValueTypeInvalid",
        "spec.size",
        "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
    )?;
    Ok(())
}

async fn a_fraction_is_no_integer(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": 1.5 })).await?.expect_invalid(
        "FieldValueTypeInvalid",
        "spec.size",
        "spec.size in body must be of type integer: \"number\"",
    )?;
    Ok(())
}

async fn several_errors_are_reported_together(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let answer = kind.create(s, json!({ "size": 0, "mode": "c", "name": "ABC" })).await?;
    let answer = answer
        .expect_failure(422, "Invalid")?
        .expect_cause("FieldValueInvalid", "spec.size")?
        .expect_cause("FieldValueNotSupported", "spec.mode")?
        .expect_cause("FieldValueInvalid", "spec.name")?
        .expect_message("is invalid: [")?;
    ensure!(answer.json["details"]["causes"].as_array().is_some_and(|causes| causes.len() == 3), "{}", answer.text);
    Ok(())
}

async fn an_integer_or_a_text_is_taken_where_both_are_allowed(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": 1, "port": true })).await?.expect_invalid(
        "FieldValueTypeInvalid",
        "spec.port",
        "spec.port in body must be of type integer,string: \"boolean\"",
    )?;
    kind.create(s, json!({ "size": 1, "port": "http" })).await?.expect(201)?.expect_value("/spec/port", "http")?;
    let patch = json!({ "spec": { "port": 80 } });
    let patched = s.server.patch(Merge, &format!("{}/a", kind.path(s)), &patch).await?.expect(200)?;
    patched.expect_value("/spec/port", 80)?;
    Ok(())
}

async fn additional_properties_are_checked(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": 1, "tags": { "a": "x" } })).await?.expect_invalid(
        "FieldValueTypeInvalid",
        "spec.tags.a",
        "spec.tags.a in body must be of type integer: \"string\"",
    )?;
    kind.create(s, json!({ "size": 1, "tags": { "a": 1 } })).await?.expect(201)?.expect_value("/spec/tags/a", 1)?;
    Ok(())
}

async fn a_date_that_is_none_is_422(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": 1, "when": "yesterday" })).await?.expect_invalid(
        "FieldValueTypeInvalid",
        "spec.when",
        "spec.when: Invalid value: \"yesterday\": spec.when in body must be of type date-time: \"yesterday\"",
    )?;
    kind.create(s, json!({ "size": 1, "when": "2026-01-02T03:04:05Z" })).await?.expect(201)?;
    Ok(())
}

async fn two_list_elements_with_one_key_are_422(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let items = json!([{ "id": "a", "value": 1 }, { "id": "a", "value": 2 }]);
    kind.create(s, json!({ "size": 1, "items": items })).await?.expect_invalid(
        "FieldValueDuplicate",
        "spec.items[1]",
        "spec.items[1]: Duplicate value: {\"id\":\"a\"}",
    )?;
    Ok(())
}

async fn two_equal_members_of_a_set_are_422(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": 1, "set": ["a", "b", "a"] })).await?.expect_invalid(
        "FieldValueDuplicate",
        "spec.set[2]",
        "spec.set[2]: Duplicate value: \"a\"",
    )?;
    Ok(())
}

async fn too_many_list_elements_are_422(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let items = json!([{ "id": "a" }, { "id": "b" }, { "id": "c" }, { "id": "d" }]);
    kind.create(s, json!({ "size": 1, "items": items })).await?.expect_invalid(
        "FieldValueTooMany",
        "spec.items",
        "spec.items: Too many: 4: must have at most 3 items",
    )?;
    Ok(())
}

async fn an_embedded_object_needs_kind_and_version(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": 1, "template": { "x": 1 } }))
        .await?
        .expect_failure(422, "Invalid")?
        .expect_cause("FieldValueRequired", "spec.template.apiVersion")?
        .expect_cause("FieldValueRequired", "spec.template.kind")?;
    let template = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "q", "junk": 1 }, "x": 1 });
    let answer = kind.create(s, json!({ "size": 1, "template": template })).await?.expect(201)?;
    answer.expect_value("/spec/template/metadata", json!({ "name": "q" }))?.expect_value("/spec/template/x", 1)?;
    Ok(())
}

async fn gauges(s: &Setting) -> Result<Kind> {
    let spec = json!({
        "type": "object",
        "x-kubernetes-validations": [
            { "rule": "self.min <= self.max", "message": "min must not exceed max" },
            {
                "rule": "self.min != 7", "messageExpression": "'seven is a bad ' + self.word",
                "fieldPath": ".min", "reason": "FieldValueForbidden",
            },
        ],
        "properties": {
            "min": { "type": "integer" },
            "max": { "type": "integer" },
            "fixed": {
                "type": "string",
                "x-kubernetes-validations": [{ "rule": "self == oldSelf", "message": "fixed for ever" }],
            },
            "word": {
                "type": "string", "maxLength": 10, "x-kubernetes-validations": [{ "rule": "self.size() > 2" }],
            },
            "list": {
                "type": "array", "maxItems": 5,
                "items": { "type": "integer", "x-kubernetes-validations": [{ "rule": "self > 0" }] },
            },
        },
    });
    Kind::new(s, &json!({ "type": "object", "properties": { "spec": spec } })).serve(s).await
}

async fn a_rule_refuses_with_its_message(s: &Setting) -> Result<()> {
    let kind = gauges(s).await?;
    kind.create(s, json!({ "min": 2, "max": 1 })).await?.expect_invalid(
        "FieldValueInvalid",
        "spec",
        "spec: Invalid value: \"object\": min must not exceed max",
    )?;
    kind.create(s, json!({ "min": 1, "max": 1 })).await?.expect(201)?;
    Ok(())
}

async fn a_rule_refuses_with_an_expression_for_message_path_and_reason(s: &Setting) -> Result<()> {
    let kind = gauges(s).await?;
    kind.create(s, json!({ "min": 7, "max": 9, "word": "omen" })).await?.expect_invalid(
        "FieldValueForbidden",
        "spec.min",
        "spec.min: Forbidden: seven is a bad omen",
    )?;
    Ok(())
}

async fn a_rule_without_message_shows_itself(s: &Setting) -> Result<()> {
    let kind = gauges(s).await?;
    kind.create(s, json!({ "min": 1, "max": 9, "word": "x" })).await?.expect_invalid(
        "FieldValueInvalid",
        "spec.word",
        "spec.word: Invalid value: \"string\": failed rule: self.size() > 2",
    )?;
    Ok(())
}

async fn a_rule_of_list_elements_names_the_element(s: &Setting) -> Result<()> {
    let kind = gauges(s).await?;
    kind.create(s, json!({ "min": 1, "max": 9, "list": [1, 0] })).await?.expect_invalid(
        "FieldValueInvalid",
        "spec.list[1]",
        "spec.list[1]: Invalid value: \"integer\": failed rule: self > 0",
    )?;
    Ok(())
}

async fn a_transition_rule_binds_updates_only(s: &Setting) -> Result<()> {
    let kind = gauges(s).await?;
    kind.create(s, json!({ "min": 1, "max": 9, "fixed": "f" })).await?.expect(201)?;
    let path = format!("{}/a", kind.path(s));
    s.server.patch(Merge, &path, &json!({ "spec": { "fixed": "g" } })).await?.expect_invalid(
        "FieldValueInvalid",
        "spec.fixed",
        "spec.fixed: Invalid value: \"string\": fixed for ever",
    )?;
    s.server.patch(Merge, &path, &json!({ "spec": { "max": 10 } })).await?.expect(200)?;
    Ok(())
}

async fn status_of_a_custom_object_is_its_own_resource(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let mut body = kind.object("a", &json!({ "size": 1 }));
    body["status"] = json!({ "phase": "Early" });
    s.server.post(&kind.path(s), &body).await?.expect(201)?.expect_value("/status", Value::Null)?;
    let path = format!("{}/a", kind.path(s));
    let both = json!({
        "spec": { "size": 5 }, "status": { "phase": "Done" }, "metadata": { "labels": { "x": "y" } },
    });
    s.server
        .patch(Merge, &format!("{path}/status"), &both)
        .await?
        .expect(200)?
        .expect_value("/spec/size", 1)?
        .expect_value("/status/phase", "Done")?
        .expect_value("/metadata/labels", Value::Null)?
        .expect_value("/metadata/generation", 1)?;
    let other = json!({ "spec": { "size": 6 }, "status": { "phase": "Ignored" } });
    s.server
        .patch(Merge, &path, &other)
        .await?
        .expect(200)?
        .expect_value("/spec/size", 6)?
        .expect_value("/status/phase", "Done")?
        .expect_value("/metadata/generation", 2)?;
    Ok(())
}

async fn without_the_subresource_status_is_a_plain_field(s: &Setting) -> Result<()> {
    let kind = Kind::new(s, &sized(&properties())).serve(s).await?;
    let mut body = kind.object("a", &json!({ "size": 1 }));
    body["status"] = json!({ "phase": "Early" });
    s.server.post(&kind.path(s), &body).await?.expect(201)?.expect_value("/status/phase", "Early")?;
    s.server.get(&format!("{}/a/status", kind.path(s))).await?.expect(404)?;
    let patch = json!({ "status": { "phase": "Late" } });
    let patched = s.server.patch(Merge, &format!("{}/a", kind.path(s)), &patch).await?.expect(200)?;
    patched.expect_value("/status/phase", "Late")?.expect_value("/metadata/generation", 2)?;
    Ok(())
}

async fn generation_of_a_custom_object_follows_everything_but_metadata_and_status(s: &Setting) -> Result<()> {
    let schema =
        json!({ "type": "object", "properties": { "other": { "type": "string" }, "spec": { "type": "object" } } });
    let kind = Kind::new(s, &schema).with("subresources", json!({ "status": {} })).serve(s).await?;
    kind.create(s, json!({})).await?.expect(201)?.expect_value("/metadata/generation", 1)?;
    let path = format!("{}/a", kind.path(s));
    let labels = json!({ "metadata": { "labels": { "x": "y" } } });
    s.server.patch(Merge, &path, &labels).await?.expect(200)?.expect_value("/metadata/generation", 1)?;
    let other = json!({ "other": "changed" });
    s.server.patch(Merge, &path, &other).await?.expect(200)?.expect_value("/metadata/generation", 2)?;
    Ok(())
}

async fn scaled(s: &Setting) -> Result<Kind> {
    let subresources = json!({
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    });
    Kind::new(s, &sized(&properties())).with("subresources", subresources).serve(s).await
}

async fn the_scale_of_a_custom_object_reads_and_writes_its_paths(s: &Setting) -> Result<()> {
    let kind = scaled(s).await?;
    kind.create(s, json!({ "size": 1, "replicas": 2 })).await?.expect(201)?;
    let path = format!("{}/a", kind.path(s));
    let status = json!({ "status": { "replicas": 1, "selector": "a=b" } });
    let object = s.server.patch(Merge, &format!("{path}/status"), &status).await?.expect(200)?;
    let scale = s.server.get(&format!("{path}/scale")).await?.expect(200)?;
    let mut body = scale
        .expect_value("/kind", "Scale")?
        .expect_value("/apiVersion", "autoscaling/v1")?
        .expect_value("/metadata/name", "a")?
        .expect_value("/metadata/uid", object.string("/metadata/uid")?)?
        .expect_value("/spec", json!({ "replicas": 2 }))?
        .expect_value("/status", json!({ "replicas": 1, "selector": "a=b" }))?
        .json;
    body["spec"]["replicas"] = json!(4);
    let written = s.server.put(&format!("{path}/scale"), &body).await?.expect(200)?;
    written.expect_value("/spec/replicas", 4)?;
    let patch = json!({ "spec": { "replicas": 5 } });
    s.server.patch(Merge, &format!("{path}/scale"), &patch).await?.expect(200)?.expect_value("/spec/replicas", 5)?;
    let read = s.server.get(&path).await?;
    read.expect_value("/spec/replicas", 5)?.expect_value("/metadata/generation", 3)?;
    Ok(())
}

async fn a_scale_without_replicas_is_an_error(s: &Setting) -> Result<()> {
    let kind = scaled(s).await?;
    kind.create(s, json!({ "size": 1 })).await?.expect(201)?;
    let answer = s.server.get(&format!("{}/a/scale", kind.path(s))).await?.expect_failure(500, "InternalError")?;
    answer.expect_message("the spec replicas field \".spec.replicas\" does not exist")?;
    Ok(())
}

async fn a_negative_scale_is_422(s: &Setting) -> Result<()> {
    let kind = scaled(s).await?;
    kind.create(s, json!({ "size": 1, "replicas": 1 })).await?.expect(201)?;
    let patch = json!({ "spec": { "replicas": -1 } });
    let answer = s.server.patch(Merge, &format!("{}/a/scale", kind.path(s)), &patch).await?;
    answer.expect_invalid(
        "FieldValueInvalid",
        ".spec.replicas",
        "Invalid value: -1: should be a non-negative integer",
    )?;
    Ok(())
}

async fn table(s: &Setting, kind: &Kind) -> Result<Answer> {
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    s.server.send(http::Method::GET, &kind.path(s), &accept, Vec::new()).await?.expect(200)
}

fn column_names(table: &Answer) -> Vec<&str> {
    let columns = table.json["columnDefinitions"].as_array().into_iter().flatten();
    columns.filter_map(|column| column["name"].as_str()).collect()
}

async fn a_table_has_the_columns_of_the_definition(s: &Setting) -> Result<()> {
    let columns = json!([
        { "name": "Size", "type": "integer", "jsonPath": ".spec.size" },
        { "name": "Tag", "type": "string", "jsonPath": ".spec.tags.a", "priority": 1, "description": "the tag" },
        { "name": "Phase", "type": "string", "jsonPath": ".status.phase" },
    ]);
    let kind = Kind::new(s, &sized(&properties())).with("additionalPrinterColumns", columns).serve(s).await?;
    kind.create(s, json!({ "size": 3, "tags": { "a": 5 } })).await?.expect(201)?;
    let table = table(s, &kind).await?;
    ensure!(column_names(&table) == ["Name", "Size", "Tag", "Phase"], "{:?}", column_names(&table));
    table
        .expect_value("/columnDefinitions/0/format", "name")?
        .expect_value("/columnDefinitions/1/type", "integer")?
        .expect_value("/columnDefinitions/1/priority", 0)?
        .expect_value("/columnDefinitions/2/priority", 1)?
        .expect_value("/columnDefinitions/2/description", "the tag")?
        .expect_value("/rows/0/cells/0", "a")?
        .expect_value("/rows/0/cells/1", 3)?
        .expect_value("/rows/0/cells/2", "5")?
        .expect_value("/rows/0/cells/3", Value::Null)?
        .expect_value("/rows/0/object/kind", "PartialObjectMetadata")?;
    Ok(())
}

async fn without_columns_a_table_has_the_age(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": 3 })).await?.expect(201)?;
    let table = table(s, &kind).await?;
    ensure!(column_names(&table) == ["Name", "Age"], "{:?}", column_names(&table));
    Ok(())
}

async fn versions(s: &Setting) -> Result<Kind> {
    let mut kind = Kind::new(s, &sized(&properties()));
    let first = kind.definition["spec"]["versions"][0].clone();
    let mut add = |name: &str, served: bool, deprecated: bool| {
        let mut version = first.clone();
        version["name"] = json!(name);
        version["served"] = json!(served);
        version["storage"] = json!(false);
        version["deprecated"] = json!(deprecated);
        if let Some(versions) = kind.definition["spec"]["versions"].as_array_mut() {
            versions.push(version);
        }
    };
    add("v2", true, false);
    add("v1beta1", false, false);
    add("v1alpha1", true, true);
    kind.serve(s).await
}

async fn every_served_version_shows_the_object(s: &Setting) -> Result<()> {
    let kind = versions(s).await?;
    kind.create(s, json!({ "size": 1 })).await?.expect(201)?;
    let path = s.group(&format!("{}/v2", kind.group), "widgets/a");
    s.server
        .get(&path)
        .await?
        .expect(200)?
        .expect_value("/apiVersion", format!("{}/v2", kind.group))?
        .expect_value("/spec/size", 1)?;
    let patch = json!({ "spec": { "size": 2 } });
    s.server.patch(Merge, &format!("{path}?fieldManager=second"), &patch).await?.expect(200)?;
    let read = s.server.get(&format!("{}/a", kind.path(s))).await?.expect_value("/spec/size", 2)?;
    let managers = read.json["metadata"]["managedFields"].as_array().context("managed fields")?;
    let second = managers.iter().find(|entry| entry["manager"] == "second").context("the second manager")?;
    ensure!(second["apiVersion"] == format!("{}/v2", kind.group), "{second}");
    let group = s.server.get(&format!("/apis/{}", kind.group)).await?.expect(200)?;
    let names: Vec<&str> =
        group.json["versions"].as_array().into_iter().flatten().filter_map(|v| v["version"].as_str()).collect();
    ensure!(names == ["v2", "v1", "v1alpha1"], "{names:?}");
    group.expect_value("/preferredVersion/version", "v2")?;
    Ok(())
}

async fn a_version_that_is_not_served_is_404(s: &Setting) -> Result<()> {
    let kind = versions(s).await?;
    kind.create(s, json!({ "size": 1 })).await?.expect(201)?;
    s.server.get(&s.group(&format!("{}/v1beta1", kind.group), "widgets/a")).await?.expect(404)?;
    Ok(())
}

async fn a_deprecated_version_warns(s: &Setting) -> Result<()> {
    let kind = versions(s).await?;
    kind.create(s, json!({ "size": 1 })).await?.expect(201)?;
    let answer = s.server.get(&s.group(&format!("{}/v1alpha1", kind.group), "widgets/a")).await?.expect(200)?;
    let group = &kind.group;
    let wanted = format!("299 - \"{group}/v1alpha1 Widget is deprecated; use {group}/v2 Widget\"");
    ensure!(answer.warnings() == [wanted], "{:?}", answer.warnings());
    Ok(())
}

async fn selectable_fields_select(s: &Setting) -> Result<()> {
    let fields = json!([{ "jsonPath": ".spec.mode" }, { "jsonPath": ".spec.size" }]);
    let kind = Kind::new(s, &sized(&properties())).with("selectableFields", fields).serve(s).await?;
    for (name, size) in [("a", 1), ("b", 2), ("c", 2)] {
        s.server.post(&kind.path(s), &kind.object(name, &json!({ "size": size }))).await?.expect(201)?;
    }
    let count = |answer: &Answer| answer.json["items"].as_array().map_or(0, Vec::len);
    let two = s.server.get(&format!("{}?fieldSelector=spec.size%3D2", kind.path(s))).await?.expect(200)?;
    ensure!(count(&two) == 2, "{}", two.text);
    let one = s.server.get(&format!("{}?fieldSelector=spec.size%3D2,metadata.name%3Db", kind.path(s))).await?;
    ensure!(count(&one) == 1, "{}", one.text);
    let all = s.server.get(&format!("{}?fieldSelector=spec.mode%3Da", kind.path(s))).await?;
    ensure!(count(&all) == 3, "{}", all.text);
    let bad = s.server.get(&format!("{}?fieldSelector=spec.name%3Da", kind.path(s))).await?;
    bad.expect_failure(400, "BadRequest")?.expect_message("field label not supported: spec.name")?;
    Ok(())
}

async fn a_custom_list_has_its_list_kind(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": 1 })).await?.expect(201)?;
    let list = s.server.get(&kind.path(s)).await?.expect(200)?;
    list.expect_value("/kind", "WidgetList")?
        .expect_value("/apiVersion", format!("{}/v1", kind.group))?
        .expect_value("/items/0/kind", "Widget")?
        .expect_value("/items/0/metadata/name", "a")?;
    Ok(())
}

async fn strategic_patch_of_a_custom_object_is_415(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": 1 })).await?.expect(201)?;
    let answer = s.server.patch(Strategic, &format!("{}/a", kind.path(s)), &json!({ "spec": { "size": 2 } })).await?;
    answer.expect_failure(415, "UnsupportedMediaType")?.expect_message(
        "accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
    )?;
    Ok(())
}

async fn another_kind_at_a_custom_path_is_422(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let mut body = kind.object("a", &json!({ "size": 1 }));
    body["kind"] = json!("Gadget");
    let answer = s.server.post(&kind.path(s), &body).await?;
    answer.expect_invalid("FieldValueInvalid", "kind", "kind: Invalid value: \"Gadget\": must be Widget")?;
    body["kind"] = json!("Widget");
    body["apiVersion"] = json!(format!("{}/v9", kind.group));
    let answer = s.server.post(&kind.path(s), &body).await?.expect_failure(400, "BadRequest")?;
    answer.expect_message("does not match the expected API version")?;
    Ok(())
}

async fn apply_merges_custom_lists_by_their_keys(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let path = format!("{}/a", kind.path(s));
    let body = |id: &str, member: &str| {
        kind.object("a", &json!({ "size": 1, "items": [{ "id": id, "value": 1 }], "set": [member] }))
    };
    let created = s.apply(&path, "one", &body("a", "x")).await?.expect(201)?;
    created.expect_value(
        "/metadata/managedFields/0/fieldsV1/f:spec",
        json!({
            "f:size": {},
            "f:items": { "k:{\"id\":\"a\"}": { ".": {}, "f:id": {}, "f:value": {} } },
            "f:set": { "v:\"x\"": {} },
        }),
    )?;
    let merged = s.apply(&path, "two", &body("b", "y")).await?.expect(200)?;
    merged
        .expect_value("/spec/items", json!([{ "id": "a", "value": 1 }, { "id": "b", "value": 1 }]))?
        .expect_value("/spec/set", json!(["x", "y"]))?;
    let answer = s.apply(&path, "two", &kind.object("a", &json!({ "size": 2 }))).await?;
    answer
        .expect_failure(409, "Conflict")?
        .expect_value("/message", "Apply failed with 1 conflict: conflict with \"one\": .spec.size")?;
    Ok(())
}

async fn apply_of_an_unknown_custom_field_is_refused(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let body = kind.object("a", &json!({ "size": 1, "junk": 1 }));
    let answer = s.apply(&format!("{}/a", kind.path(s)), "one", &body).await?.expect(500)?;
    answer.expect_message(".spec.junk: field not declared in schema")?;
    Ok(())
}

async fn a_cluster_scoped_kind_has_no_namespace(s: &Setting) -> Result<()> {
    let mut kind = Kind::new(s, &sized(&properties()));
    kind.definition["spec"]["scope"] = json!("Cluster");
    let kind = kind.serve(s).await?;
    let path = format!("/apis/{}/v1/widgets", kind.group);
    let answer = s.server.post(&path, &kind.object("a", &json!({ "size": 1 }))).await?.expect(201)?;
    answer.expect_value("/metadata/namespace", Value::Null)?;
    s.server.get(&format!("{path}/a")).await?.expect(200)?;
    s.server.get(&kind.path(s)).await?.expect(404)?;
    Ok(())
}
