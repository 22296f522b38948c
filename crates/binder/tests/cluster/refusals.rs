//! Binds that are refused: said once, vetoed, taken back.

use axum::{Router, body::Bytes, routing::post};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::world::{Cluster, sleep, until};

/// Puts a webhook before all bindings that refuses them.
async fn refuse_bindings(cluster: &Cluster) {
    let deny = post(|body: Bytes| async move {
        let review: Value = serde_json::from_slice(&body).unwrap();
        let response =
            json!({"uid": review["request"]["uid"], "allowed": false, "status": {"message": "not on Fridays"}});
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).to_string()
    });
    cluster.lab.server().admission().register_service("policy", "guard", Router::new().route("/", deny));
    let webhook = json!({
        "name": "guard.example.com",
        "clientConfig": {"service": {"namespace": "policy", "name": "guard", "path": "/"}},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/binding"]}],
        "admissionReviewVersions": ["v1"], "sideEffects": "None",
    });
    let object = json!({"metadata": {"name": "guard"}, "webhooks": [webhook]});
    cluster.create("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", object).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_bind_is_a_veto_that_leaves_nothing_and_no_hot_loop() {
    let cluster = Cluster::without_binder("dgx-h100").await;
    refuse_bindings(&cluster).await;
    cluster.start_binder();
    let pod = cluster.fraction("p").await;
    cluster.share(&pod, "dgx-h100-0", &["g"]).await;
    let status = cluster.phase("p", "Failed").await.status.unwrap();
    assert_eq!(status.error_class.as_deref(), Some("Refused"));
    assert_eq!(status.failed_attempts, Some(1));
    let reason = status.reason.unwrap();
    assert!(reason.contains("bind to node dgx-h100-0") && reason.contains("not on Fridays"), "{reason}");
    let pause = status.next_retry.unwrap().0.duration_since(cluster.lab.clock().now());
    assert!((1..=11).contains(&pause.as_secs()), "{pause}");
    until("no reservation", || async { cluster.reservations().await.is_empty().then_some(()) }).await;
    let left = cluster.pods("team").get("p").await.unwrap();
    assert!(left.labels().keys().all(|key| !key.starts_with("runai-gpu-group")), "{:?}", left.labels());
    assert!(!left.annotations().contains_key("kai.scheduler/gpu-devices"));
    assert_eq!(cluster.config_maps().await, Vec::<String>::new());
    let conditions = left.status.unwrap().conditions.unwrap();
    let bound = conditions.iter().find(|condition| condition.type_ == "PodBound").unwrap();
    assert_eq!((bound.status.as_str(), bound.reason.as_deref()), ("False", Some("BindingError")));
    let writes = cluster.wire.writes().len();
    sleep(1200).await;
    assert_eq!(cluster.wire.writes().len(), writes, "{:?}", cluster.wire.writes());
    let told = cluster.events("team", "p", "BindingError").await;
    assert!(told.len() == 1 && told[0].contains("is avoided until"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn refusals_that_earlier_requests_met_make_the_veto_longer() {
    let cluster = Cluster::without_binder("cpu").await;
    refuse_bindings(&cluster).await;
    let pod = cluster.pod("p", json!({}), json!({})).await;
    let request = cluster.request(&pod, "cpu-0", json!({})).await;
    let patch = json!({"metadata": {"annotations": {"kai.scheduler/bind-attempts": "{\"cpu-0\":3}"}}});
    let parameters = kube::api::PatchParams::default();
    cluster.requests().patch(&request.name_any(), &parameters, &kube::api::Patch::Merge(&patch)).await.unwrap();
    cluster.start_binder();
    let status = cluster.phase("p", "Failed").await.status.unwrap();
    assert_eq!(status.failed_attempts, Some(4));
    let pause = status.next_retry.unwrap().0.duration_since(cluster.lab.clock().now());
    assert!((70..=81).contains(&pause.as_secs()), "{pause}");
}

#[tokio::test(start_paused = true)]
async fn a_backoff_limit_is_honoured() {
    let cluster = Cluster::without_binder("cpu").await;
    refuse_bindings(&cluster).await;
    cluster.start_binder();
    let pod = cluster.pod("p", json!({}), json!({})).await;
    cluster.request(&pod, "cpu-0", json!({"backoffLimit": 3})).await;
    sleep(600).await;
    let status = cluster.phase("p", "Failed").await.status.unwrap();
    assert_eq!(status.failed_attempts, Some(3));
    assert_eq!(cluster.wire.count("/binding"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_config_map_of_somebody_else_is_not_taken_over() {
    let cluster = Cluster::start("dgx-h100").await;
    let own = json!({"metadata": {"name": "p-abc-shared-gpu-0", "namespace": "team"}, "data": {"mine": "yes"}});
    cluster.create("v1", "ConfigMap", own).await;
    let pod = cluster.fraction("p").await;
    cluster.share(&pod, "dgx-h100-0", &["g"]).await;
    let status = cluster.phase("p", "Failed").await.status.unwrap();
    let reason = status.reason.unwrap();
    assert!(reason.contains("ConfigMap team/p-abc-shared-gpu-0 exists and does not belong to pod p"), "{reason}");
    assert_eq!(cluster.config_map("p-abc-shared-gpu-0").await, json!({"mine": "yes"}));
    assert_eq!(cluster.config_maps().await, ["p-abc-shared-gpu-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_has_no_gpu_for_the_reservation_refuses_the_node() {
    let cluster = Cluster::start("thor").await;
    let mut taker = json!({"metadata": {"name": "taker", "namespace": "team"}, "spec": {"nodeName": "thor-0",
        "containers": [{"name": "main", "image": "app:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}});
    taker["spec"]["schedulerName"] = json!("kai-scheduler");
    cluster.create("v1", "Pod", taker).await;
    cluster.running("taker").await;
    let pod = cluster.fraction("p").await;
    cluster.share(&pod, "thor-0", &["g"]).await;
    let status = cluster.phase("p", "Failed").await.status.unwrap();
    assert_eq!(status.error_class.as_deref(), Some("Refused"));
    let reason = status.reason.unwrap();
    assert!(
        reason.contains("no shared GPU on node thor-0") && reason.contains("the kubelet of node thor-0 ended"),
        "{reason}"
    );
    assert_eq!(cluster.wire.count("POST /api/v1/namespaces/kai-resource-reservation/pods"), 3);
    until("no reservation", || async { cluster.reservations().await.is_empty().then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_never_answers_is_given_up() {
    let cluster = Cluster::start("dgx-h100").await;
    cluster.stop_reporting();
    let pod = cluster.fraction("p").await;
    cluster.share(&pod, "dgx-h100-0", &["g"]).await;
    let status = cluster.phase("p", "Failed").await.status.unwrap();
    let reason = status.reason.unwrap();
    assert!(reason.contains("did not report its GPU: its container has run for"), "{reason}");
    until("no reservation", || async { cluster.reservations().await.is_empty().then_some(()) }).await;
}
