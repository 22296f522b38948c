//! Bodies and paths: unknown fields, dry runs, malformed and oversized input, content types, what is not there.

use anyhow::{Result, ensure};
use http::Method;
use kai_tests::harness::Case;
use serde_json::{Value, json};

use crate::conformance;
use crate::setting::{Setting, config_map, pod};

pub const CASES: &[Case] = conformance![
    an_unknown_field_is_dropped,
    an_unknown_field_is_400_when_validation_is_strict,
    an_unknown_field_is_a_warning_when_asked_for,
    dry_run_create_stores_nothing,
    dry_run_update_changes_nothing,
    malformed_json_is_400,
    a_number_where_text_belongs_is_400,
    an_unknown_content_type_is_415,
    a_body_over_three_mebibytes_is_413,
    yaml_bodies_are_taken,
    an_unknown_resource_is_404,
    an_unknown_group_is_404,
    a_verb_the_resource_lacks_is_405,
];

fn with_unknown_field() -> Value {
    let mut body = pod("a");
    body["spec"]["nodeNaem"] = json!("x");
    body
}

async fn an_unknown_field_is_dropped(s: &Setting) -> Result<()> {
    let answer = s
        .server
        .post(&format!("{}?fieldValidation=Ignore", s.core("pods")), &with_unknown_field())
        .await?
        .expect(201)?;
    ensure!(answer.warnings().is_empty(), "{:?}", answer.warnings());
    answer.expect_value("/spec/nodeNaem", Value::Null)?;
    Ok(())
}

async fn an_unknown_field_is_400_when_validation_is_strict(s: &Setting) -> Result<()> {
    let answer = s.server.post(&format!("{}?fieldValidation=Strict", s.core("pods")), &with_unknown_field()).await?;
    answer
        .expect_failure(400, "BadRequest")?
        .expect_message("strict decoding error: unknown field \"spec.nodeNaem\"")?;
    Ok(())
}

async fn an_unknown_field_is_a_warning_when_asked_for(s: &Setting) -> Result<()> {
    let answer =
        s.server.post(&format!("{}?fieldValidation=Warn", s.core("pods")), &with_unknown_field()).await?.expect(201)?;
    let warnings = answer.warnings();
    ensure!(
        warnings.iter().any(|warning| warning.contains(r#"299 - "unknown field \"spec.nodeNaem\"""#)),
        "{warnings:?}"
    );
    Ok(())
}

async fn dry_run_create_stores_nothing(s: &Setting) -> Result<()> {
    let answer = s.server.post(&format!("{}?dryRun=All", s.core("configmaps")), &config_map("a")).await?.expect(201)?;
    ensure!(!answer.string("/metadata/uid")?.is_empty());
    s.server.get(&s.core("configmaps/a")).await?.expect(404)?;
    s.server
        .post(&format!("{}?dryRun=Some", s.core("configmaps")), &config_map("a"))
        .await?
        .expect_failure(422, "Invalid")?;
    Ok(())
}

async fn dry_run_update_changes_nothing(s: &Setting) -> Result<()> {
    let created = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let mut body = created.json.clone();
    body["data"]["key"] = json!("other");
    s.server
        .put(&format!("{}?dryRun=All", s.core("configmaps/a")), &body)
        .await?
        .expect(200)?
        .expect_value("/data/key", "other")?;
    let read = s.server.get(&s.core("configmaps/a")).await?;
    ensure!(read.json == created.json, "{}", read.json);
    Ok(())
}

async fn malformed_json_is_400(s: &Setting) -> Result<()> {
    let headers = [("content-type", "application/json")];
    s.server
        .send(Method::POST, &s.core("configmaps"), &headers, b"{\"kind\": \"ConfigMap\",".to_vec())
        .await?
        .expect_failure(400, "BadRequest")?;
    s.server
        .send(Method::POST, &s.core("configmaps"), &headers, b"[]".to_vec())
        .await?
        .expect_failure(400, "BadRequest")?;
    s.server
        .send(Method::POST, &s.core("configmaps"), &headers, Vec::new())
        .await?
        .expect_failure(400, "BadRequest")?;
    Ok(())
}

async fn a_number_where_text_belongs_is_400(s: &Setting) -> Result<()> {
    let mut body = config_map("a");
    body["data"]["key"] = json!(5);
    s.server.post(&s.core("configmaps"), &body).await?.expect_failure(400, "BadRequest")?;
    Ok(())
}

async fn an_unknown_content_type_is_415(s: &Setting) -> Result<()> {
    let body = config_map("a").to_string().into_bytes();
    let answer = s.server.send(Method::POST, &s.core("configmaps"), &[("content-type", "text/csv")], body).await?;
    answer
        .expect_failure(415, "UnsupportedMediaType")?
        .expect_message("the body of the request was in an unknown format - accepted media types include:")?;
    Ok(())
}

async fn a_body_over_three_mebibytes_is_413(s: &Setting) -> Result<()> {
    let mut body = config_map("a");
    body["data"]["key"] = json!("x".repeat(3 * 1024 * 1024 + 10));
    let answer = s.server.post(&s.core("configmaps"), &body).await?.expect_failure(413, "RequestEntityTooLarge")?;
    answer.expect_message("limit is 3145728")?;
    Ok(())
}

async fn yaml_bodies_are_taken(s: &Setting) -> Result<()> {
    let body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: from-yaml\ndata:\n  key: \"on\"\n".to_vec();
    let answer = s
        .server
        .send(Method::POST, &s.core("configmaps"), &[("content-type", "application/yaml")], body)
        .await?
        .expect(201)?;
    answer.expect_value("/data/key", "on")?;
    Ok(())
}

async fn an_unknown_resource_is_404(s: &Setting) -> Result<()> {
    s.server
        .get(&s.core("gadgets"))
        .await?
        .expect_failure(404, "NotFound")?
        .expect_message("the server could not find the requested resource")?;
    Ok(())
}

async fn an_unknown_group_is_404(s: &Setting) -> Result<()> {
    let answer = s.server.get(&s.group("gadgets.example.com/v1", "gadgets")).await?;
    ensure!(answer.status == 404 && answer.text.contains("404 page not found"), "{} {}", answer.status, answer.text);
    Ok(())
}

async fn a_verb_the_resource_lacks_is_405(s: &Setting) -> Result<()> {
    s.server.get(&s.core("bindings")).await?.expect_failure(405, "MethodNotAllowed")?;
    s.server.put(&s.core("configmaps"), &config_map("a")).await?.expect_failure(405, "MethodNotAllowed")?;
    Ok(())
}
