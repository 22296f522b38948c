//! The admission plugins of a default API server: limits, priorities, service accounts, tolerations, name spaces.

use anyhow::Result;
use kai_tests::harness::Case;
use kai_tests::request::{Answer, PatchKind::Merge};
use kai_tests::{cluster::PATIENCE, wait};
use serde_json::{Value, json};

use crate::conformance;
use crate::setting::{Setting, pod};

pub const CASES: &[Case] = conformance![
    limit_ranges_give_defaults,
    limit_ranges_refuse_too_much,
    limit_ranges_refuse_too_little,
    limit_ranges_limit_whole_pods,
    a_limit_range_gets_its_own_defaults,
    a_limit_range_must_make_sense,
    a_priority_that_differs_from_its_class_is_403,
    a_preemption_policy_that_differs_from_its_class_is_403,
    system_priorities_can_be_used,
    a_pod_keeps_its_priority_when_the_class_goes,
    service_account_tokens_can_be_declined,
    tolerations_of_its_own_are_kept,
    the_default_namespace_cannot_be_deleted,
];

async fn limit(s: &Setting, item: Value) -> Result<Answer> {
    let body = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "limits" }, "spec": { "limits": [item] },
    });
    s.server.post(&s.core("limitranges"), &body).await
}

fn pod_with(resources: &Value) -> Value {
    let mut body = pod("a");
    body["spec"]["containers"][0]["resources"] = resources.clone();
    body
}

async fn limit_ranges_give_defaults(s: &Setting) -> Result<()> {
    let item = json!({
        "type": "Container", "default": { "cpu": "2", "memory": "2Gi" }, "defaultRequest": { "cpu": "500m" },
    });
    limit(s, item).await?.expect(201)?;
    let answer =
        s.server.post(&s.core("pods"), &pod_with(&json!({ "limits": { "memory": "1Gi" } }))).await?.expect(201)?;
    answer
        .expect_value("/spec/containers/0/resources/limits", json!({ "cpu": "2", "memory": "1Gi" }))?
        .expect_value("/spec/containers/0/resources/requests", json!({ "cpu": "500m", "memory": "1Gi" }))?
        .expect_value(
            "/metadata/annotations/kubernetes.io~1limit-ranger",
            "LimitRanger plugin set: cpu request for container main; cpu limit for container main",
        )?;
    Ok(())
}

async fn limit_ranges_refuse_too_much(s: &Setting) -> Result<()> {
    limit(s, json!({ "type": "Container", "max": { "cpu": "1" } })).await?.expect(201)?;
    let answer = s.server.post(&s.core("pods"), &pod_with(&json!({ "limits": { "cpu": "2" } }))).await?;
    answer
        .expect_failure(403, "Forbidden")?
        .expect_value("/message", "pods \"a\" is forbidden: maximum cpu usage per Container is 1, but limit is 2")?;
    Ok(())
}

async fn limit_ranges_refuse_too_little(s: &Setting) -> Result<()> {
    limit(s, json!({ "type": "Container", "min": { "memory": "1Gi" } })).await?.expect(201)?;
    let answer = s.server.post(&s.core("pods"), &pod_with(&json!({ "requests": { "memory": "1Mi" } }))).await?;
    answer.expect_failure(403, "Forbidden")?.expect_value(
        "/message",
        "pods \"a\" is forbidden: minimum memory usage per Container is 1Gi, but request is 1Mi",
    )?;
    Ok(())
}

async fn limit_ranges_limit_whole_pods(s: &Setting) -> Result<()> {
    limit(s, json!({ "type": "Pod", "max": { "cpu": "3" } })).await?.expect(201)?;
    let mut body = pod_with(&json!({ "limits": { "cpu": "2" } }));
    let mut second = body["spec"]["containers"][0].clone();
    second["name"] = json!("second");
    body["spec"]["containers"] = json!([body["spec"]["containers"][0], second]);
    let answer = s.server.post(&s.core("pods"), &body).await?.expect_failure(403, "Forbidden")?;
    answer.expect_message("maximum cpu usage per Pod is 3, but limit is 4")?;
    Ok(())
}

async fn a_limit_range_gets_its_own_defaults(s: &Setting) -> Result<()> {
    let answer = limit(s, json!({ "type": "Container", "max": { "cpu": "2" }, "min": { "memory": "1Gi" } })).await?;
    answer
        .expect(201)?
        .expect_value("/spec/limits/0/default", json!({ "cpu": "2" }))?
        .expect_value("/spec/limits/0/defaultRequest", json!({ "cpu": "2", "memory": "1Gi" }))?;
    Ok(())
}

async fn a_limit_range_must_make_sense(s: &Setting) -> Result<()> {
    let answer = limit(s, json!({ "type": "Container", "max": { "cpu": "1" }, "default": { "cpu": "2" } })).await?;
    answer
        .expect_failure(422, "Invalid")?
        .expect_cause("FieldValueInvalid", "spec.limits[0].default[cpu]")?
        .expect_message("default value 2 is greater than max value 1")?;
    Ok(())
}

const PRIORITIES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

async fn priority_class(s: &Setting) -> Result<()> {
    let body = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": s.namespace }, "value": 7,
    });
    s.server.post(PRIORITIES, &body).await?.expect(201)?;
    Ok(())
}

async fn a_priority_that_differs_from_its_class_is_403(s: &Setting) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["priority"] = json!(3);
    let answer = s.server.post(&s.core("pods"), &body).await?.expect_failure(403, "Forbidden")?;
    answer.expect_value(
        "/message",
        "pods \"a\" is forbidden: the integer value of priority (3) must not be provided in pod spec; \
         priority admission controller computed 0 from the given PriorityClass name",
    )?;
    Ok(())
}

async fn a_preemption_policy_that_differs_from_its_class_is_403(s: &Setting) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["preemptionPolicy"] = json!("Never");
    let answer = s.server.post(&s.core("pods"), &body).await?.expect_failure(403, "Forbidden")?;
    answer.expect_message(
        "the string value of PreemptionPolicy (Never) must not be provided in pod spec; \
         priority admission controller computed PreemptLowerPriority from the given PriorityClass name",
    )?;
    Ok(())
}

async fn system_priorities_can_be_used(s: &Setting) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["priorityClassName"] = json!("system-node-critical");
    let answer = s.server.post(&s.core("pods"), &body).await?.expect(201)?;
    answer.expect_value("/spec/priority", 2_000_001_000)?;
    Ok(())
}

async fn a_pod_keeps_its_priority_when_the_class_goes(s: &Setting) -> Result<()> {
    priority_class(s).await?;
    let mut body = pod("a");
    body["spec"]["priorityClassName"] = json!(s.namespace);
    wait::until("the class to be known", PATIENCE, async || {
        Ok((s.server.post(&s.core("pods"), &body).await?.status == 201).then_some(()))
    })
    .await?;
    s.server.delete(&format!("{PRIORITIES}/{}", s.namespace), &Value::Null).await?.expect(200)?;
    let patch = json!({ "metadata": { "labels": { "x": "y" } } });
    let answer = s.server.patch(Merge, &s.core("pods/a"), &patch).await?.expect(200)?;
    answer.expect_value("/spec/priority", 7)?;
    Ok(())
}

async fn service_account_tokens_can_be_declined(s: &Setting) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["automountServiceAccountToken"] = json!(false);
    let answer = s.server.post(&s.core("pods"), &body).await?.expect(201)?;
    answer
        .expect_value("/spec/volumes", Value::Null)?
        .expect_value("/spec/containers/0/volumeMounts", Value::Null)?
        .expect_value("/spec/serviceAccountName", "default")?;
    Ok(())
}

async fn tolerations_of_its_own_are_kept(s: &Setting) -> Result<()> {
    let own = json!({
        "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5,
    });
    let mut body = pod("a");
    body["spec"]["tolerations"] = json!([own]);
    let answer = s.server.post(&s.core("pods"), &body).await?.expect(201)?;
    let added = json!({
        "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
    });
    answer.expect_value("/spec/tolerations", json!([own, added]))?;
    Ok(())
}

async fn the_default_namespace_cannot_be_deleted(s: &Setting) -> Result<()> {
    for name in ["default", "kube-system", "kube-public"] {
        let answer = s.server.delete(&format!("/api/v1/namespaces/{name}"), &Value::Null).await?;
        answer.expect_failure(403, "Forbidden")?.expect_value(
            "/message",
            format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted"),
        )?;
    }
    Ok(())
}
