//! Values of custom objects: defaults, pruning, validation, CEL rules.

use anyhow::{Result, ensure};
use kai_tests::harness::Case;
use kai_tests::request::PatchKind::Merge;
use serde_json::{Value, json};

use crate::conformance;
use crate::setting::Setting;
use crate::widget::{Kind, widgets};

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
];

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
