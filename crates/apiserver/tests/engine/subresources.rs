//! Binding, eviction, scale, logs, reviews.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::routing::get;
use http::Method;
use serde_json::{Value, json};

use crate::support::{DEFINITIONS, PODS, Server, WIDGETS, pod, widget, widgets};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn binding(pod: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod, "annotations": {"a": "1"}},
        "target": {"kind": "Node", "name": node}})
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let server = Server::start();
    server.post(PODS, &pod("a")).await.expect(201);
    let path = format!("{PODS}/a/binding");
    server.post(&path, &binding("b", "node")).await.expect(400);
    let done = server.post(&path, &binding("a", "node")).await.expect(201);
    assert_eq!((&done["kind"], &done["status"]), (&json!("Status"), &json!("Success")));
    let bound = server.get(&format!("{PODS}/a")).await.expect(200);
    assert_eq!((&bound["spec"]["nodeName"], &bound["metadata"]["annotations"]["a"]), (&json!("node"), &json!("1")));
    let conditions = bound["status"]["conditions"].as_array().expect("conditions");
    assert!(conditions.iter().any(|c| c["type"] == "PodScheduled" && c["status"] == "True"));
    let error = server.post(&path, &binding("a", "other")).await.expect(409);
    let message = "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"node\"";
    assert_eq!(error["message"], message);
    server.post(&format!("{PODS}/none/binding"), &binding("none", "node")).await.expect(404);
    server.post(PODS, &pod("c")).await.expect(201);
    server.post("/api/v1/namespaces/default/bindings", &binding("c", "node")).await.expect(201);
}

#[tokio::test]
async fn a_budget_refuses_evictions_until_disruptions_are_allowed() {
    let server = Server::start();
    let mut body = pod("a");
    body["metadata"]["labels"] = json!({"app": "a"});
    body["spec"]["nodeName"] = json!("node");
    server.post(PODS, &body).await.expect(201);
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    server.merge(&format!("{PODS}/a/status"), &status).await.expect(200);
    let budget =
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    server.post(BUDGETS, &budget).await.expect(201);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}});
    let path = format!("{PODS}/a/eviction");
    let error = server.post(&path, &eviction).await.expect(429);
    assert_eq!(error["details"]["retryAfterSeconds"], 10);
    let counted = |allowed: i64| {
        json!({"status": {"observedGeneration": 1, "disruptionsAllowed": allowed,
        "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}})
    };
    server.merge(&format!("{BUDGETS}/b/status"), &counted(0)).await.expect(200);
    let error = server.post(&path, &eviction).await.expect(429);
    assert_eq!(error["reason"], "TooManyRequests");
    assert_eq!(error["details"]["causes"][0]["reason"], "DisruptionBudget");
    assert_eq!(
        error["details"]["causes"][0]["message"],
        "The disruption budget b needs 1 healthy pods and has 1 currently"
    );
    server.merge(&format!("{BUDGETS}/b/status"), &counted(1)).await.expect(200);
    server.post(&path, &eviction).await.expect(201);
    let budget = server.get(&format!("{BUDGETS}/b")).await.expect(200);
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"]["a"].is_string());
    let pod = server.get(&format!("{PODS}/a")).await.expect(200);
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test]
async fn pending_pods_are_evicted_whatever_the_budget() {
    let server = Server::start();
    server.post(PODS, &pod("a")).await.expect(201);
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {}}});
    server.post(BUDGETS, &budget).await.expect(201);
    server.post(&format!("{PODS}/a/eviction"), &json!({"metadata": {"name": "a"}})).await.expect(201);
    server.get(&format!("{PODS}/a")).await.expect(404);
}

#[tokio::test]
async fn a_deployment_is_scaled() {
    let server = Server::start();
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": pod("x")["spec"]});
    let body = json!({"metadata": {"name": "d"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "a"}},
        "template": template}});
    server.post(DEPLOYMENTS, &body).await.expect(201);
    let path = format!("{DEPLOYMENTS}/d/scale");
    let mut scale = server.get(&path).await.expect(200);
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(2)));
    assert_eq!(scale["status"]["selector"], "app=a");
    scale["spec"]["replicas"] = json!(5);
    let scaled = server.put(&path, &scale).await.expect(200);
    assert_eq!(scaled["spec"]["replicas"], 5);
    server.put(&path, &scale).await.expect(409);
    let scaled = server.merge(&path, &json!({"spec": {"replicas": 3}})).await.expect(200);
    assert_eq!(scaled["spec"]["replicas"], 3);
    let deployment = server.get(&format!("{DEPLOYMENTS}/d")).await.expect(200);
    assert_eq!((&deployment["spec"]["replicas"], &deployment["metadata"]["generation"]), (&json!(3), &json!(3)));
    server.merge(&path, &json!({"spec": {"replicas": -1}})).await.expect(422);
}

#[tokio::test]
async fn a_custom_resource_is_scaled_where_it_says() {
    let server = Server::start();
    server.post(DEFINITIONS, &widgets()).await.expect(201);
    let mut body = widget("a");
    body["spec"]["replicas"] = json!(1);
    server.post(WIDGETS, &body).await.expect(201);
    server
        .merge(&format!("{WIDGETS}/a/status"), &json!({"status": {"replicas": 1, "selector": "w=a"}}))
        .await
        .expect(200);
    let scale = server.merge(&format!("{WIDGETS}/a/scale"), &json!({"spec": {"replicas": 4}})).await.expect(200);
    assert_eq!(scale["status"], json!({"replicas": 1, "selector": "w=a"}));
    assert_eq!(server.get(&format!("{WIDGETS}/a")).await.expect(200)["spec"]["replicas"], 4);
}

#[tokio::test]
async fn logs_come_from_the_node() {
    let server = Server::start();
    let path = format!("{PODS}/a/log");
    let mut body = pod("a");
    body["spec"]["nodeName"] = json!("node");
    server.post(PODS, &body).await.expect(201);
    let error = server.get(&path).await.expect(400);
    assert_eq!(error["message"], "container \"main\" in pod \"a\" is waiting to start: ContainerCreating");
    let status = json!({"status": {"phase": "Running", "containerStatuses": [{"name": "main", "ready": true, "restartCount": 0,
        "image": "busybox", "imageID": "", "state": {"running": {"startedAt": "2024-01-01T00:00:00Z"}}}]}});
    server.merge(&format!("{PODS}/a/status"), &status).await.expect(200);
    server.get(&path).await.expect(500);
    server.api.set_node_proxy(Arc::new(|node| {
        let node = node.to_owned();
        let answer = move |Path((_, pod, container)): Path<(String, String, String)>, RawQuery(query): RawQuery| async move {
            format!("{node} {pod} {container} {}", query.unwrap_or_default())
        };
        Some(Router::new().route("/containerLogs/{namespace}/{pod}/{container}", get(answer)))
    }));
    let text = server.get(&format!("{path}?tailLines=5")).await.expect(200);
    assert_eq!(text, "node a main tailLines=5");
    let error = server.get(&format!("{path}?container=other")).await.expect(400);
    assert_eq!(error["message"], "container other is not valid for pod a");
}

#[tokio::test]
async fn everybody_may_do_everything() {
    let server = Server::start();
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let answer = server.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await.expect(201);
    assert_eq!(answer["status"]["allowed"], true);
    let answer = server.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await.expect(201);
    assert_eq!(answer["status"]["userInfo"]["username"], "kubernetes-admin");
}

#[tokio::test]
async fn a_namespace_is_finalized_by_hand() {
    let server = Server::start();
    let path = "/api/v1/namespaces/work";
    let mut namespace = server.post("/api/v1/namespaces", &json!({"metadata": {"name": "work"}})).await.expect(201);
    namespace["spec"]["finalizers"] = json!([]);
    server.send(Method::PUT, &format!("{path}/finalize"), &namespace).await.expect(200);
    server.delete(path).await.expect(200);
    server.until(path, 404).await;
}
