//! Admission webhooks: who is asked, what it is told, what its answer does, and what happens when there is none.

use anyhow::{Context as _, Result, ensure};
use kai_tests::harness::Case;
use kai_tests::request::{Answer, PatchKind::Merge};
use kai_tests::{cluster::PATIENCE, wait};
use serde_json::{Value, json};

use crate::conformance;
use crate::setting::{Setting, config_map, deployment, pod};
use crate::webhook_server::{
    Phase::{Mutating, Validating},
    WebhookServer, closed_port, configuration, configurations, patch,
};

pub const CASES: &[Case] = conformance![
    a_webhook_refuses_with_its_message,
    a_webhook_refuses_with_its_own_code_and_reason,
    a_webhook_refuses_without_a_word,
    a_webhook_changes_the_object,
    a_changed_object_is_checked_like_any_other,
    a_validating_webhook_sees_what_a_mutating_one_made,
    a_patch_that_does_not_fit_is_an_error,
    warnings_of_a_webhook_reach_the_client,
    a_review_tells_about_a_creation,
    a_review_tells_about_an_update,
    a_review_tells_about_a_deletion,
    a_review_tells_about_a_dry_run,
    a_webhook_that_cannot_be_reached_fails_the_request,
    a_webhook_that_cannot_be_reached_may_be_ignored,
    an_answer_to_another_review_is_an_error,
    match_conditions_choose_the_requests,
    a_broken_match_condition_fails_the_request,
    object_selectors_choose_the_objects,
    namespace_selectors_choose_the_namespaces,
    rules_choose_operations_and_resources,
    a_rule_for_a_subresource_sees_only_that,
    a_webhook_is_asked_about_patches_and_applies,
    a_webhook_configuration_gets_its_defaults,
    a_webhook_needs_an_address_over_https,
    a_webhook_must_have_no_side_effects,
    a_webhook_must_speak_a_known_version,
    match_conditions_must_compile,
];

async fn refusing(response: Value) -> Result<WebhookServer> {
    WebhookServer::start(move |_| response.clone()).await
}

async fn a_webhook_refuses_with_its_message(s: &Setting) -> Result<()> {
    let server = refusing(json!({ "allowed": false, "status": { "code": 403, "message": "not today" } })).await?;
    server.install(s, Validating, server.webhook(s)).await?;
    let answer = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(403)?;
    answer.expect_value("/message", "admission webhook \"case.example.com\" denied the request: not today")?;
    s.server.get(&s.core("configmaps/a")).await?.expect(404)?;
    Ok(())
}

async fn a_webhook_refuses_with_its_own_code_and_reason(s: &Setting) -> Result<()> {
    let status = json!({ "code": 409, "reason": "Conflict", "message": "busy", "details": { "name": "x" } });
    let server = refusing(json!({ "allowed": false, "status": status })).await?;
    server.install(s, Mutating, server.webhook(s)).await?;
    let answer = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect_failure(409, "Conflict")?;
    answer
        .expect_value("/message", "admission webhook \"case.example.com\" denied the request: busy")?
        .expect_value("/details/name", "x")?;
    Ok(())
}

async fn a_webhook_refuses_without_a_word(s: &Setting) -> Result<()> {
    let server = refusing(json!({ "allowed": false })).await?;
    server.install(s, Validating, server.webhook(s)).await?;
    let answer = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(400)?;
    answer
        .expect_value("/message", "admission webhook \"case.example.com\" denied the request without explanation")?
        .expect_value("/code", 400)?;
    Ok(())
}

async fn a_webhook_changes_the_object(s: &Setting) -> Result<()> {
    let server = WebhookServer::start(|_| {
        patch(&json!([
            { "op": "add", "path": "/data/added", "value": "yes" },
            { "op": "replace", "path": "/data/key", "value": "changed" },
        ]))
    })
    .await?;
    server.install(s, Mutating, server.webhook(s)).await?;
    let wanted = json!({ "key": "changed", "added": "yes" });
    let created = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    created.expect_value("/data", wanted.clone())?;
    s.server.get(&s.core("configmaps/a")).await?.expect_value("/data", wanted)?;
    Ok(())
}

async fn a_changed_object_is_checked_like_any_other(s: &Setting) -> Result<()> {
    let server = WebhookServer::start(|_| {
        patch(&json!([{ "op": "add", "path": "/metadata/labels", "value": { "x": "not valid!" } }]))
    })
    .await?;
    server.install(s, Mutating, server.webhook(s)).await?;
    let answer = s.server.post(&s.core("configmaps"), &config_map("a")).await?;
    answer.expect_failure(422, "Invalid")?.expect_cause("FieldValueInvalid", "metadata.labels")?;
    Ok(())
}

async fn a_validating_webhook_sees_what_a_mutating_one_made(s: &Setting) -> Result<()> {
    let mutating =
        WebhookServer::start(|_| patch(&json!([{ "op": "replace", "path": "/data/key", "value": "made" }]))).await?;
    mutating.install(s, Mutating, mutating.webhook(s)).await?;
    let validating = WebhookServer::allowing().await?;
    validating.install(s, Validating, validating.webhook(s)).await?;
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let seen = validating.requests().pop().context("the validating webhook was not asked")?;
    ensure!(seen["object"]["data"]["key"] == "made", "{seen}");
    Ok(())
}

async fn a_patch_that_does_not_fit_is_an_error(s: &Setting) -> Result<()> {
    let server = WebhookServer::start(|_| patch(&json!([{ "op": "remove", "path": "/data/nothing" }]))).await?;
    server.install(s, Mutating, server.webhook(s)).await?;
    let answer = s.server.post(&s.core("configmaps"), &config_map("a")).await?;
    answer.expect_failure(500, "InternalError")?;
    s.server.get(&s.core("configmaps/a")).await?.expect(404)?;
    Ok(())
}

async fn warnings_of_a_webhook_reach_the_client(s: &Setting) -> Result<()> {
    let server = refusing(json!({ "allowed": true, "warnings": ["mind the gap", "second"] })).await?;
    server.install(s, Validating, server.webhook(s)).await?;
    let answer = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    ensure!(answer.warnings() == ["299 - \"mind the gap\"", "299 - \"second\""], "{:?}", answer.warnings());
    Ok(())
}

async fn a_review_tells_about_a_creation(s: &Setting) -> Result<()> {
    let server = WebhookServer::allowing().await?;
    server.install(s, Validating, server.webhook(s)).await?;
    s.server.post(&s.core("configmaps?fieldManager=me"), &config_map("a")).await?.expect(201)?;
    let [request] = <[Value; 1]>::try_from(server.requests()).ok().context("asked once")?;
    let kind = json!({ "group": "", "version": "v1", "kind": "ConfigMap" });
    let resource = json!({ "group": "", "version": "v1", "resource": "configmaps" });
    ensure!(request["kind"] == kind && request["requestKind"] == kind, "{request}");
    ensure!(request["resource"] == resource && request["requestResource"] == resource, "{request}");
    ensure!(request["name"] == "a" && request["namespace"] == s.namespace, "{request}");
    ensure!(request["operation"] == "CREATE" && request["dryRun"] == false, "{request}");
    ensure!(request["uid"].is_string() && request["userInfo"]["username"].is_string(), "{request}");
    ensure!(request["oldObject"].is_null() && request["object"]["data"]["key"] == "value", "{request}");
    ensure!(request["object"]["kind"] == "ConfigMap" && request["object"]["apiVersion"] == "v1", "{request}");
    let options = json!({ "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me" });
    ensure!(request["options"] == options, "{request}");
    Ok(())
}

fn on(server: &WebhookServer, s: &Setting, operations: &Value) -> Value {
    let mut webhook = server.webhook(s);
    webhook["rules"][0]["operations"] = operations.clone();
    webhook
}

async fn a_review_tells_about_an_update(s: &Setting) -> Result<()> {
    let server = WebhookServer::allowing().await?;
    server.install(s, Validating, on(&server, s, &json!(["UPDATE"]))).await?;
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    s.server.patch(Merge, &s.core("configmaps/a"), &json!({ "data": { "key": "new" } })).await?.expect(200)?;
    let [request] = <[Value; 1]>::try_from(server.requests()).ok().context("asked once")?;
    ensure!(request["operation"] == "UPDATE", "{request}");
    ensure!(request["object"]["data"]["key"] == "new", "{request}");
    ensure!(request["oldObject"]["data"]["key"] == "value", "{request}");
    // Also for a patch: admission knows no other kind of change.
    ensure!(request["options"]["kind"] == "UpdateOptions", "{request}");
    Ok(())
}

async fn a_review_tells_about_a_deletion(s: &Setting) -> Result<()> {
    let server = WebhookServer::allowing().await?;
    server.install(s, Validating, on(&server, s, &json!(["DELETE"]))).await?;
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    s.server.delete(&s.core("configmaps/a"), &Value::Null).await?.expect(200)?;
    let [request] = <[Value; 1]>::try_from(server.requests()).ok().context("asked once")?;
    ensure!(request["operation"] == "DELETE" && request["name"] == "a", "{request}");
    ensure!(request["object"].is_null() && request["oldObject"]["data"]["key"] == "value", "{request}");
    ensure!(request["options"]["kind"] == "DeleteOptions", "{request}");
    Ok(())
}

async fn a_review_tells_about_a_dry_run(s: &Setting) -> Result<()> {
    let server = WebhookServer::allowing().await?;
    server.install(s, Validating, server.webhook(s)).await?;
    s.server.post(&s.core("configmaps?dryRun=All"), &config_map("a")).await?.expect(201)?;
    let [request] = <[Value; 1]>::try_from(server.requests()).ok().context("asked once")?;
    ensure!(request["dryRun"] == true && request["options"]["dryRun"] == json!(["All"]), "{request}");
    Ok(())
}

async fn unreachable(s: &Setting, policy: &str) -> Result<WebhookServer> {
    let server = WebhookServer::allowing().await?;
    let mut webhook = server.webhook(s);
    webhook["clientConfig"]["url"] = json!(format!("https://{}/case", closed_port().await?));
    webhook["failurePolicy"] = json!(policy);
    // The probe is asked by name: only the request for `a` meets the closed port.
    webhook["matchConditions"] = json!([{ "name": "not-the-probe", "expression": "object.metadata.name != 'probe'" }]);
    server.install(s, Validating, webhook).await?;
    Ok(server)
}

async fn a_webhook_that_cannot_be_reached_fails_the_request(s: &Setting) -> Result<()> {
    let _server = unreachable(s, "Fail").await?;
    let answer = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect_failure(500, "InternalError")?;
    answer.expect_message(
        "Internal error occurred: failed calling webhook \"case.example.com\": failed to call webhook: Post \"https://",
    )?;
    Ok(())
}

async fn a_webhook_that_cannot_be_reached_may_be_ignored(s: &Setting) -> Result<()> {
    let _server = unreachable(s, "Ignore").await?;
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    Ok(())
}

async fn an_answer_to_another_review_is_an_error(s: &Setting) -> Result<()> {
    let server = refusing(json!({ "allowed": true, "uid": "another" })).await?;
    server.install(s, Validating, server.webhook(s)).await?;
    let answer = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect_failure(500, "InternalError")?;
    answer.expect_message("failed calling webhook \"case.example.com\"")?;
    Ok(())
}

async fn names(s: &Setting, server: &WebhookServer) -> Result<Vec<String>> {
    for name in ["a", "b"] {
        let mut body = config_map(name);
        body["metadata"]["labels"] = json!({ "name": name });
        s.server.post(&s.core("configmaps"), &body).await?.expect(201)?;
    }
    Ok(server.requests().iter().filter_map(|request| request["name"].as_str().map(str::to_owned)).collect())
}

async fn match_conditions_choose_the_requests(s: &Setting) -> Result<()> {
    let server = WebhookServer::allowing().await?;
    let mut webhook = server.webhook(s);
    webhook["matchConditions"] = json!([
        { "name": "name", "expression": "object.metadata.name == 'b' && request.operation == 'CREATE'" },
        { "name": "data", "expression": "has(object.data.key) && object.data.key.startsWith('val')" },
    ]);
    server.install(s, Validating, webhook).await?;
    let asked = names(s, &server).await?;
    ensure!(asked == ["b"], "{asked:?}");
    Ok(())
}

async fn a_broken_match_condition_fails_the_request(s: &Setting) -> Result<()> {
    let server = WebhookServer::allowing().await?;
    let mut webhook = server.webhook(s);
    webhook["matchConditions"] = json!([{
        "name": "broken", "expression": "object.metadata.name == 'probe' || object.nothing.here == 1",
    }]);
    server.install(s, Validating, webhook).await?;
    let answer = s.server.post(&s.core("configmaps"), &config_map("a")).await?;
    answer.expect_failure(403, "Forbidden")?.expect_message("no such key: nothing")?;
    ensure!(server.requests().is_empty());
    Ok(())
}

async fn object_selectors_choose_the_objects(s: &Setting) -> Result<()> {
    let server = WebhookServer::allowing().await?;
    let mut webhook = server.webhook(s);
    webhook["objectSelector"] = json!({ "matchExpressions": [{ "key": "name", "operator": "In", "values": ["b"] }] });
    server.install(s, Validating, webhook).await?;
    let asked = names(s, &server).await?;
    ensure!(asked == ["b"], "{asked:?}");
    Ok(())
}

async fn namespace_selectors_choose_the_namespaces(s: &Setting) -> Result<()> {
    let server = WebhookServer::allowing().await?;
    let mut webhook = server.webhook(s);
    webhook["namespaceSelector"]["matchLabels"]["example.com/asked"] = json!("yes");
    server.install(s, Validating, webhook).await?;
    let asked = names(s, &server).await?;
    ensure!(asked.is_empty(), "{asked:?}");
    let patch = json!({ "metadata": { "labels": { "example.com/asked": "yes" } } });
    s.server.patch(Merge, &format!("/api/v1/namespaces/{}", s.namespace), &patch).await?.expect(200)?;
    wait::until("the label to count", PATIENCE, async || {
        s.server.post(&s.core("configmaps?dryRun=All"), &config_map("c")).await?.expect(201)?;
        Ok((!server.requests().is_empty()).then_some(()))
    })
    .await
}

async fn rules_choose_operations_and_resources(s: &Setting) -> Result<()> {
    let server = WebhookServer::allowing().await?;
    let mut webhook = server.webhook(s);
    webhook["rules"] = json!([
        { "apiGroups": ["apps"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"] },
        { "apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"], "scope": "Namespaced" },
        { "apiGroups": [""], "apiVersions": ["v2"], "operations": ["*"], "resources": ["configmaps"] },
        { "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"], "scope": "Cluster" },
    ]);
    server.install(s, Validating, webhook).await?;
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    ensure!(server.requests().is_empty(), "{:?}", server.requests());
    s.server.delete(&s.core("configmaps/a"), &Value::Null).await?.expect(200)?;
    ensure!(server.requests().len() == 1, "{:?}", server.requests());
    let mut replica_set = deployment("a");
    replica_set["kind"] = json!("ReplicaSet");
    s.server.post(&s.group("apps/v1", "replicasets?dryRun=All"), &replica_set).await?.expect(201)?;
    let asked = server.requests();
    ensure!(asked.len() == 2 && asked[1]["resource"]["resource"] == "replicasets", "{asked:?}");
    Ok(())
}

async fn a_rule_for_a_subresource_sees_only_that(s: &Setting) -> Result<()> {
    let server = WebhookServer::allowing().await?;
    let mut webhook = server.webhook(s);
    webhook["rules"][0]["resources"] = json!(["pods/binding"]);
    server.install(s, Validating, webhook).await?;
    s.server.post(&s.core("pods"), &pod("a")).await?.expect(201)?;
    ensure!(server.requests().is_empty(), "{:?}", server.requests());
    let target = json!({ "kind": "Node", "name": "no-such-node" });
    let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "a" }, "target": target });
    s.server.post(&s.core("pods/a/binding"), &binding).await?.expect(201)?;
    let [request] = <[Value; 1]>::try_from(server.requests()).ok().context("asked once")?;
    ensure!(request["subResource"] == "binding" && request["kind"]["kind"] == "Binding", "{request}");
    ensure!(request["resource"]["resource"] == "pods" && request["operation"] == "CREATE", "{request}");
    ensure!(request["object"]["target"]["name"] == "no-such-node" && request["name"] == "a", "{request}");
    Ok(())
}

async fn a_webhook_is_asked_about_patches_and_applies(s: &Setting) -> Result<()> {
    let server =
        WebhookServer::start(|_| patch(&json!([{ "op": "add", "path": "/data/touched", "value": "by the webhook" }])))
            .await?;
    server.install(s, Mutating, on(&server, s, &json!(["CREATE", "UPDATE"]))).await?;
    let path = s.core("configmaps/a");
    let created = s.apply(&path, "one", &config_map("a")).await?.expect(201)?;
    created.expect_value("/data/touched", "by the webhook")?;
    let applied = s.apply(&path, "one", &config_map("a")).await?.expect(200)?;
    applied.expect_value("/data", json!({ "key": "value", "touched": "by the webhook" }))?;
    let operations: Vec<Value> = server.requests().iter().map(|request| request["operation"].clone()).collect();
    ensure!(operations == ["CREATE", "UPDATE"], "{operations:?}");
    Ok(())
}

async fn a_webhook_configuration_gets_its_defaults(s: &Setting) -> Result<()> {
    let server = WebhookServer::allowing().await?;
    let mut webhook = server.webhook(s);
    webhook["namespaceSelector"] = json!({ "matchLabels": { "example.com/never": "x" } });
    for phase in [Mutating, Validating] {
        let path = format!("{}?dryRun=All", configurations(phase));
        let answer = s.server.post(&path, &configuration(s, phase, json!([webhook]))).await?.expect(201)?;
        let answer = answer
            .expect_value("/webhooks/0/failurePolicy", "Fail")?
            .expect_value("/webhooks/0/matchPolicy", "Equivalent")?
            .expect_value("/webhooks/0/timeoutSeconds", 10)?
            .expect_value("/webhooks/0/objectSelector", json!({}))?
            .expect_value("/webhooks/0/rules/0/scope", "*")?
            .expect_value("/metadata/generation", 1)?;
        let reinvocation = match phase {
            Mutating => json!("Never"),
            Validating => Value::Null,
        };
        answer.expect_value("/webhooks/0/reinvocationPolicy", reinvocation)?;
    }
    Ok(())
}

/// POST of a configuration with one webhook, changed by `change`.
async fn try_configuration(s: &Setting, change: impl FnOnce(&mut Value)) -> Result<Answer> {
    let server = WebhookServer::allowing().await?;
    let mut webhook = server.webhook(s);
    change(&mut webhook);
    s.server.post(configurations(Validating), &configuration(s, Validating, json!([webhook]))).await
}

async fn a_webhook_needs_an_address_over_https(s: &Setting) -> Result<()> {
    let answer =
        try_configuration(s, |webhook| webhook["clientConfig"] = json!({ "url": "http://127.0.0.1/x" })).await?;
    answer.expect_invalid(
        "FieldValueInvalid",
        "webhooks[0].clientConfig.url",
        "'https' is the only allowed URL scheme",
    )?;
    let answer = try_configuration(s, |webhook| webhook["clientConfig"] = json!({})).await?;
    answer.expect_invalid(
        "FieldValueRequired",
        "webhooks[0].clientConfig",
        "exactly one of url or service is required",
    )?;
    Ok(())
}

async fn a_webhook_must_have_no_side_effects(s: &Setting) -> Result<()> {
    let answer = try_configuration(s, |webhook| webhook["sideEffects"] = json!("Some")).await?;
    answer.expect_invalid(
        "FieldValueNotSupported",
        "webhooks[0].sideEffects",
        "Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
    )?;
    Ok(())
}

async fn a_webhook_must_speak_a_known_version(s: &Setting) -> Result<()> {
    let answer = try_configuration(s, |webhook| webhook["admissionReviewVersions"] = json!(["v7"])).await?;
    answer.expect_invalid(
        "FieldValueInvalid",
        "webhooks[0].admissionReviewVersions",
        "must include at least one of v1, v1beta1",
    )?;
    let answer = try_configuration(s, |webhook| webhook["name"] = json!("short")).await?;
    answer.expect_invalid(
        "FieldValueInvalid",
        "webhooks[0].name",
        "should be a domain with at least three segments separated by dots",
    )?;
    Ok(())
}

async fn match_conditions_must_compile(s: &Setting) -> Result<()> {
    let answer = try_configuration(s, |webhook| {
        webhook["matchConditions"] = json!([{ "name": "x", "expression": "object.metadata.name ==" }]);
    })
    .await?;
    answer.expect_invalid("FieldValueInvalid", "webhooks[0].matchConditions[0].expression", "compilation failed")?;
    Ok(())
}
