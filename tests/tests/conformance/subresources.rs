//! Binding, eviction, scale, log, finalize, ephemeral containers and tokens.

use anyhow::{Result, ensure};
use kai_tests::harness::Case;
use kai_tests::request::{
    Answer,
    PatchKind::{Merge, Strategic},
};
use kai_tests::{cluster::PATIENCE, wait};
use serde_json::{Value, json};

use crate::conformance;
use crate::setting::{Setting, deployment, pod};

pub const CASES: &[Case] = conformance![
    binding_places_the_pod,
    binding_copies_annotations_but_no_labels,
    binding_twice_is_409,
    binding_of_a_missing_pod_is_404,
    binding_without_a_node_is_refused,
    binding_to_something_else_than_a_node_is_refused,
    binding_of_another_name_is_400,
    binding_of_another_uid_is_409,
    binding_of_a_gated_pod_is_409,
    binding_of_a_dying_pod_is_409,
    a_dry_run_binding_places_nothing,
    binding_through_the_collection_places_the_pod,
    a_gated_pod_says_so,
    eviction_deletes_the_pod,
    eviction_of_a_missing_pod_is_404,
    eviction_of_another_name_is_400,
    eviction_of_another_uid_is_409,
    a_dry_run_eviction_deletes_nothing,
    eviction_against_the_budget_is_429,
    eviction_within_the_budget_deletes_the_pod,
    eviction_of_a_pending_pod_ignores_the_budget,
    eviction_under_two_budgets_is_refused,
    the_scale_of_a_deployment_shows_its_selector,
    writing_the_scale_changes_the_replicas,
    a_patch_of_the_scale_changes_the_replicas,
    a_negative_scale_of_a_workload_is_422,
    a_scale_with_an_old_version_is_409,
    the_scale_of_a_missing_workload_is_404,
    the_log_of_a_missing_pod_is_404,
    the_log_of_an_unknown_container_is_400,
    the_log_of_several_containers_needs_a_choice,
    log_options_are_checked,
    finalizers_of_a_namespace_change_by_finalize_only,
    ephemeral_containers_have_their_own_door,
    a_service_account_gives_tokens,
    a_short_token_is_422,
];

fn binding(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node },
    })
}

async fn create_pod(s: &Setting, body: &Value) -> Result<Answer> {
    s.server.post(&s.core("pods"), body).await?.expect(201)
}

async fn binding_places_the_pod(s: &Setting) -> Result<()> {
    create_pod(s, &pod("a")).await?;
    s.server
        .post(&s.core("pods/a/binding"), &binding("a", "no-such-node"))
        .await?
        .expect(201)?
        .expect_value("/kind", "Status")?
        .expect_value("/status", "Success")?;
    let placed = s.server.get(&s.core("pods/a")).await?.expect_value("/spec/nodeName", "no-such-node")?;
    let placed = placed
        .expect_value("/status/phase", "Pending")?
        .expect_value("/status/conditions/0/type", "PodScheduled")?
        .expect_value("/status/conditions/0/status", "True")?;
    placed.string("/status/conditions/0/lastTransitionTime")?;
    Ok(())
}

async fn binding_copies_annotations_but_no_labels(s: &Setting) -> Result<()> {
    create_pod(s, &pod("a")).await?;
    let mut body = binding("a", "no-such-node");
    body["metadata"]["annotations"] = json!({ "example.com/device": "3" });
    body["metadata"]["labels"] = json!({ "example.com/label": "x" });
    s.server.post(&s.core("pods/a/binding"), &body).await?.expect(201)?;
    s.server
        .get(&s.core("pods/a"))
        .await?
        .expect_value("/metadata/annotations", json!({ "example.com/device": "3" }))?
        .expect_value("/metadata/labels", json!({ "app": "a" }))?;
    Ok(())
}

async fn binding_twice_is_409(s: &Setting) -> Result<()> {
    create_pod(s, &pod("a")).await?;
    s.server.post(&s.core("pods/a/binding"), &binding("a", "no-such-node")).await?.expect(201)?;
    let answer = s.server.post(&s.core("pods/a/binding"), &binding("a", "another-node")).await?;
    answer.expect_failure(409, "Conflict")?.expect_value(
        "/message",
        "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"no-such-node\"",
    )?;
    s.server.get(&s.core("pods/a")).await?.expect_value("/spec/nodeName", "no-such-node")?;
    Ok(())
}

async fn binding_of_a_missing_pod_is_404(s: &Setting) -> Result<()> {
    let answer = s.server.post(&s.core("pods/none/binding"), &binding("none", "no-such-node")).await?;
    answer.expect_failure(404, "NotFound")?.expect_message("pods \"none\" not found")?;
    Ok(())
}

async fn binding_without_a_node_is_refused(s: &Setting) -> Result<()> {
    create_pod(s, &pod("a")).await?;
    let answer = s.server.post(&s.core("pods/a/binding"), &binding("a", "")).await?.expect(500)?;
    answer.expect_message("target.name: Required value")?;
    Ok(())
}

async fn binding_to_something_else_than_a_node_is_refused(s: &Setting) -> Result<()> {
    create_pod(s, &pod("a")).await?;
    let mut body = binding("a", "x");
    body["target"]["kind"] = json!("Pod");
    let answer = s.server.post(&s.core("pods/a/binding"), &body).await?.expect(500)?;
    answer.expect_message("target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\"")?;
    Ok(())
}

async fn binding_of_another_name_is_400(s: &Setting) -> Result<()> {
    create_pod(s, &pod("a")).await?;
    let answer = s.server.post(&s.core("pods/a/binding"), &binding("b", "no-such-node")).await?;
    answer.expect_failure(400, "BadRequest")?.expect_message("name in URL does not match name in Binding object")?;
    Ok(())
}

async fn binding_of_another_uid_is_409(s: &Setting) -> Result<()> {
    let created = create_pod(s, &pod("a")).await?;
    let mut body = binding("a", "no-such-node");
    body["metadata"]["uid"] = json!("11111111-1111-1111-1111-111111111111");
    let answer = s.server.post(&s.core("pods/a/binding"), &body).await?.expect_failure(409, "Conflict")?;
    answer.expect_message("Precondition failed: UID in precondition: 11111111-1111-1111-1111-111111111111")?;
    body["metadata"]["uid"] = created.json["metadata"]["uid"].clone();
    s.server.post(&s.core("pods/a/binding"), &body).await?.expect(201)?;
    Ok(())
}

fn gated() -> Value {
    let mut body = pod("a");
    body["spec"]["schedulingGates"] = json!([{ "name": "example.com/wait" }]);
    body
}

async fn binding_of_a_gated_pod_is_409(s: &Setting) -> Result<()> {
    create_pod(s, &gated()).await?;
    let answer = s.server.post(&s.core("pods/a/binding"), &binding("a", "no-such-node")).await?;
    answer.expect_failure(409, "Conflict")?.expect_message("pod a has non-empty .spec.schedulingGates")?;
    Ok(())
}

async fn binding_of_a_dying_pod_is_409(s: &Setting) -> Result<()> {
    let mut body = pod("a");
    body["metadata"]["finalizers"] = json!(["example.com/wait"]);
    create_pod(s, &body).await?;
    s.server.delete(&s.core("pods/a"), &Value::Null).await?.expect(200)?;
    let answer = s.server.post(&s.core("pods/a/binding"), &binding("a", "no-such-node")).await?;
    answer.expect_failure(409, "Conflict")?.expect_message("pod a is being deleted, cannot be assigned to a host")?;
    Ok(())
}

async fn a_dry_run_binding_places_nothing(s: &Setting) -> Result<()> {
    let created = create_pod(s, &pod("a")).await?;
    s.server.post(&s.core("pods/a/binding?dryRun=All"), &binding("a", "no-such-node")).await?.expect(201)?;
    ensure!(s.server.get(&s.core("pods/a")).await?.json == created.json);
    Ok(())
}

async fn binding_through_the_collection_places_the_pod(s: &Setting) -> Result<()> {
    create_pod(s, &pod("a")).await?;
    s.server.post(&s.core("bindings"), &binding("a", "no-such-node")).await?.expect(201)?;
    s.server.get(&s.core("pods/a")).await?.expect_value("/spec/nodeName", "no-such-node")?;
    Ok(())
}

async fn a_gated_pod_says_so(s: &Setting) -> Result<()> {
    let created = create_pod(s, &gated()).await?;
    created
        .expect_value("/status/conditions/0/type", "PodScheduled")?
        .expect_value("/status/conditions/0/status", "False")?
        .expect_value("/status/conditions/0/reason", "SchedulingGated")?
        .expect_value("/status/conditions/0/message", "Scheduling is blocked due to non-empty scheduling gates")?;
    let patch = json!({ "spec": { "schedulingGates": null } });
    let opened = s.server.patch(Merge, &s.core("pods/a"), &patch).await?.expect(200)?;
    opened.expect_value("/spec/schedulingGates", Value::Null)?;
    let mut placed = gated();
    placed["metadata"]["name"] = json!("b");
    placed["spec"]["nodeName"] = json!("no-such-node");
    let answer = s.server.post(&s.core("pods"), &placed).await?;
    answer.expect_invalid(
        "FieldValueForbidden",
        "spec.nodeName",
        "cannot be set until all schedulingGates have been cleared",
    )?;
    Ok(())
}

fn eviction(name: &str) -> Value {
    json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } })
}

/// A pod that counts as healthy, though no node runs it.
async fn ready_pod(s: &Setting, name: &str, app: &str) -> Result<()> {
    let mut body = pod(name);
    body["metadata"]["labels"]["app"] = json!(app);
    create_pod(s, &body).await?;
    let status = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    s.server.patch(Strategic, &s.core(&format!("pods/{name}/status")), &status).await?.expect(200)?;
    Ok(())
}

async fn budget(s: &Setting, name: &str, app: &str, min_available: u32) -> Result<()> {
    let body = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": name },
        "spec": { "minAvailable": min_available, "selector": { "matchLabels": { "app": app } } },
    });
    s.server.post(&s.group("policy/v1", "poddisruptionbudgets"), &body).await?.expect(201)?;
    Ok(())
}

async fn eviction_deletes_the_pod(s: &Setting) -> Result<()> {
    create_pod(s, &pod("a")).await?;
    let answer = s.server.post(&s.core("pods/a/eviction"), &eviction("a")).await?.expect(201)?;
    answer.expect_value("/kind", "Status")?.expect_value("/status", "Success")?;
    s.server.get(&s.core("pods/a")).await?.expect(404)?;
    Ok(())
}

async fn eviction_of_a_missing_pod_is_404(s: &Setting) -> Result<()> {
    let answer = s.server.post(&s.core("pods/none/eviction"), &eviction("none")).await?;
    answer.expect_failure(404, "NotFound")?.expect_message("pods \"none\" not found")?;
    Ok(())
}

async fn eviction_of_another_name_is_400(s: &Setting) -> Result<()> {
    create_pod(s, &pod("a")).await?;
    let answer = s.server.post(&s.core("pods/a/eviction"), &eviction("b")).await?;
    answer.expect_failure(400, "BadRequest")?.expect_message("name in URL does not match name in Eviction object")?;
    Ok(())
}

async fn eviction_of_another_uid_is_409(s: &Setting) -> Result<()> {
    create_pod(s, &pod("a")).await?;
    let mut body = eviction("a");
    body["deleteOptions"] = json!({ "preconditions": { "uid": "11111111-1111-1111-1111-111111111111" } });
    s.server.post(&s.core("pods/a/eviction"), &body).await?.expect_failure(409, "Conflict")?;
    s.server.get(&s.core("pods/a")).await?.expect(200)?;
    Ok(())
}

async fn a_dry_run_eviction_deletes_nothing(s: &Setting) -> Result<()> {
    let created = create_pod(s, &pod("a")).await?;
    s.server.post(&s.core("pods/a/eviction?dryRun=All"), &eviction("a")).await?.expect(201)?;
    ensure!(s.server.get(&s.core("pods/a")).await?.json == created.json);
    Ok(())
}

async fn eviction_against_the_budget_is_429(s: &Setting) -> Result<()> {
    ready_pod(s, "a", "a").await?;
    budget(s, "strict", "a", 1).await?;
    for path in ["pods/a/eviction", "pods/a/eviction?dryRun=All"] {
        let answer = s.server.post(&s.core(path), &eviction("a")).await?;
        answer
            .expect_failure(429, "TooManyRequests")?
            .expect_value("/message", "Cannot evict pod as it would violate the pod's disruption budget.")?
            .expect_value("/details/causes/0/reason", "DisruptionBudget")?
            .expect_value("/metadata", json!({}))?;
    }
    s.server.get(&s.core("pods/a")).await?.expect(200)?.expect_value("/metadata/deletionTimestamp", Value::Null)?;
    Ok(())
}

async fn eviction_within_the_budget_deletes_the_pod(s: &Setting) -> Result<()> {
    ready_pod(s, "a", "app").await?;
    ready_pod(s, "b", "app").await?;
    budget(s, "one", "app", 1).await?;
    // As `kubectl drain` does: a budget that has not been counted yet is asked again.
    wait::until("the budget to allow one eviction", PATIENCE, async || {
        let answer = s.server.post(&s.core("pods/a/eviction"), &eviction("a")).await?;
        Ok((answer.status != 429).then_some(answer))
    })
    .await?
    .expect(201)?;
    s.server.get(&s.core("pods/a")).await?.expect(404)?;
    s.server.post(&s.core("pods/b/eviction"), &eviction("b")).await?.expect_failure(429, "TooManyRequests")?;
    Ok(())
}

async fn eviction_of_a_pending_pod_ignores_the_budget(s: &Setting) -> Result<()> {
    create_pod(s, &pod("a")).await?;
    budget(s, "strict", "a", 1).await?;
    s.server.post(&s.core("pods/a/eviction"), &eviction("a")).await?.expect(201)?;
    s.server.get(&s.core("pods/a")).await?.expect(404)?;
    Ok(())
}

async fn eviction_under_two_budgets_is_refused(s: &Setting) -> Result<()> {
    ready_pod(s, "a", "a").await?;
    budget(s, "one", "a", 0).await?;
    budget(s, "two", "a", 0).await?;
    let answer = s.server.post(&s.core("pods/a/eviction"), &eviction("a")).await?.expect(500)?;
    answer.expect_message(
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    )?;
    Ok(())
}

fn replica_set(name: &str) -> Value {
    let mut body = deployment(name);
    body["kind"] = json!("ReplicaSet");
    body
}

fn scale(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": name }, "spec": { "replicas": replicas },
    })
}

async fn the_scale_of_a_deployment_shows_its_selector(s: &Setting) -> Result<()> {
    let path = s.group("apps/v1", "deployments");
    let created = s.server.post(&path, &deployment("a")).await?.expect(201)?;
    let answer = s.server.get(&format!("{path}/a/scale")).await?.expect(200)?;
    answer
        .expect_value("/kind", "Scale")?
        .expect_value("/apiVersion", "autoscaling/v1")?
        .expect_value("/metadata/uid", created.string("/metadata/uid")?)?
        .expect_value("/spec", json!({}))?
        .expect_value("/status", json!({ "replicas": 0, "selector": "app=a" }))?;
    Ok(())
}

async fn writing_the_scale_changes_the_replicas(s: &Setting) -> Result<()> {
    let path = s.group("apps/v1", "replicasets");
    s.server.post(&path, &replica_set("a")).await?.expect(201)?;
    let written = s.server.put(&format!("{path}/a/scale"), &scale("a", 1)).await?.expect(200)?;
    written.expect_value("/kind", "Scale")?.expect_value("/spec/replicas", 1)?;
    let read = s.server.get(&format!("{path}/a")).await?;
    read.expect_value("/spec/replicas", 1)?.expect_value("/metadata/generation", 2)?;
    Ok(())
}

async fn a_patch_of_the_scale_changes_the_replicas(s: &Setting) -> Result<()> {
    let path = s.group("apps/v1", "statefulsets");
    let mut body = deployment("a");
    body["kind"] = json!("StatefulSet");
    body["spec"]["serviceName"] = json!("a");
    s.server.post(&path, &body).await?.expect(201)?;
    for (kind, replicas) in [(Merge, 1), (Strategic, 2)] {
        let patch = json!({ "spec": { "replicas": replicas } });
        let answer = s.server.patch(kind, &format!("{path}/a/scale?fieldManager=scaler"), &patch).await?.expect(200)?;
        answer.expect_value("/spec/replicas", replicas)?;
    }
    s.server.get(&format!("{path}/a")).await?.expect_value("/spec/replicas", 2)?;
    Ok(())
}

async fn a_negative_scale_of_a_workload_is_422(s: &Setting) -> Result<()> {
    let path = s.group("apps/v1", "replicasets");
    s.server.post(&path, &replica_set("a")).await?.expect(201)?;
    let answer = s.server.put(&format!("{path}/a/scale"), &scale("a", -1)).await?;
    answer.expect_invalid(
        "FieldValueInvalid",
        "spec.replicas",
        "Scale.autoscaling \"a\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0",
    )?;
    Ok(())
}

async fn a_scale_with_an_old_version_is_409(s: &Setting) -> Result<()> {
    let path = s.group("apps/v1", "replicasets");
    s.server.post(&path, &replica_set("a")).await?.expect(201)?;
    let mut body = scale("a", 1);
    body["metadata"]["resourceVersion"] = json!("1");
    let answer = s.server.put(&format!("{path}/a/scale"), &body).await?.expect_failure(409, "Conflict")?;
    answer.expect_message("Operation cannot be fulfilled on replicasets.apps \"a\": the object has been modified")?;
    Ok(())
}

async fn the_scale_of_a_missing_workload_is_404(s: &Setting) -> Result<()> {
    let answer = s.server.get(&s.group("apps/v1", "deployments/none/scale")).await?;
    answer.expect_failure(404, "NotFound")?.expect_message("deployments.apps \"none\" not found")?;
    Ok(())
}

async fn the_log_of_a_missing_pod_is_404(s: &Setting) -> Result<()> {
    let answer = s.server.get(&s.core("pods/none/log")).await?;
    answer.expect_failure(404, "NotFound")?.expect_message("pods \"none\" not found")?;
    Ok(())
}

async fn the_log_of_an_unknown_container_is_400(s: &Setting) -> Result<()> {
    create_pod(s, &pod("a")).await?;
    let answer = s.server.get(&s.core("pods/a/log?container=other")).await?;
    answer.expect_failure(400, "BadRequest")?.expect_message("container other is not valid for pod a")?;
    Ok(())
}

async fn the_log_of_several_containers_needs_a_choice(s: &Setting) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["containers"] = json!([{ "name": "x", "image": "i:1" }, { "name": "y", "image": "i:1" }]);
    create_pod(s, &body).await?;
    let answer = s.server.get(&s.core("pods/a/log")).await?.expect_failure(400, "BadRequest")?;
    answer.expect_message("a container name must be specified for pod a, choose one of: [x y]")?;
    Ok(())
}

async fn log_options_are_checked(s: &Setting) -> Result<()> {
    create_pod(s, &pod("a")).await?;
    let answer = s.server.get(&s.core("pods/a/log?tailLines=-1")).await?;
    answer
        .expect_invalid("FieldValueInvalid", "tailLines", "must be greater than or equal to 0")?
        .expect_value("/details/kind", "PodLogOptions")?;
    Ok(())
}

async fn finalizers_of_a_namespace_change_by_finalize_only(s: &Setting) -> Result<()> {
    let path = format!("/api/v1/namespaces/{}", s.namespace);
    let namespace = |finalizers: Value| {
        json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": s.namespace },
            "spec": { "finalizers": finalizers },
        })
    };
    let plain = json!(["kubernetes"]);
    let patch = json!({ "spec": { "finalizers": ["example.com/a"] } });
    s.server.patch(Merge, &path, &patch).await?.expect(200)?.expect_value("/spec/finalizers", plain.clone())?;
    let more = json!(["kubernetes", "example.com/a"]);
    let added = s.server.put(&format!("{path}/finalize"), &namespace(more.clone())).await?.expect(200)?;
    added.expect_value("/spec/finalizers", more)?;
    let answer = s.server.put(&format!("{path}/finalize"), &namespace(json!(["bad"]))).await?;
    answer.expect_failure(422, "Invalid")?.expect_message(
        "Invalid value: \"bad\": name is neither a standard finalizer name nor is it fully qualified",
    )?;
    let back = s.server.put(&format!("{path}/finalize"), &namespace(plain.clone())).await?.expect(200)?;
    back.expect_value("/spec/finalizers", plain)?;
    Ok(())
}

async fn ephemeral_containers_have_their_own_door(s: &Setting) -> Result<()> {
    create_pod(s, &pod("a")).await?;
    let patch = json!({ "spec": { "ephemeralContainers": [{ "name": "debug", "image": "i:1" }] } });
    s.server.patch(Strategic, &s.core("pods/a"), &patch).await?.expect_failure(422, "Invalid")?;
    let answer = s.server.patch(Strategic, &s.core("pods/a/ephemeralcontainers"), &patch).await?.expect(200)?;
    answer
        .expect_value("/kind", "Pod")?
        .expect_value("/spec/ephemeralContainers/0/name", "debug")?
        .expect_value("/spec/ephemeralContainers/0/imagePullPolicy", "IfNotPresent")?
        .expect_value("/spec/ephemeralContainers/0/terminationMessagePolicy", "File")?;
    Ok(())
}

fn token_request(seconds: u32) -> Value {
    json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": seconds },
    })
}

async fn a_service_account_gives_tokens(s: &Setting) -> Result<()> {
    let answer = s.server.post(&s.core("serviceaccounts/default/token"), &token_request(600)).await?.expect(201)?;
    ensure!(answer.string("/status/token")?.split('.').count() == 3, "{}", answer.text);
    ensure!(answer.string("/status/expirationTimestamp")?.ends_with('Z'));
    answer.expect_value("/kind", "TokenRequest")?.expect_value("/spec/expirationSeconds", 600)?;
    let answer = s.server.post(&s.core("serviceaccounts/none/token"), &token_request(600)).await?;
    answer.expect_failure(404, "NotFound")?;
    Ok(())
}

async fn a_short_token_is_422(s: &Setting) -> Result<()> {
    let answer = s.server.post(&s.core("serviceaccounts/default/token"), &token_request(60)).await?;
    answer.expect_invalid(
        "FieldValueInvalid",
        "spec.expirationSeconds",
        "may not specify a duration less than 10 minutes",
    )?;
    Ok(())
}
