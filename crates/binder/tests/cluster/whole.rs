//! Pods with whole GPUs.

use k8s_openapi::api::core::v1::Binding;
use kube::{ResourceExt, api::PostParams, core::Status};
use serde_json::json;

use crate::world::{Cluster, sleep, until};

fn gpu() -> serde_json::Value {
    json!({"resources": {"limits": {"nvidia.com/gpu": "1"}}})
}

#[tokio::test(start_paused = true)]
async fn a_whole_gpu_costs_one_binding_and_one_status() {
    let cluster = Cluster::start("dgx-h100").await;
    let pod = cluster.pod("p", gpu(), json!({})).await;
    let zones = json!([{"zone": "node-0", "amount": {"cpu": "2"}}]);
    cluster.request(&pod, "dgx-h100-0", json!({"predictedNUMAZones": zones})).await;
    let bound = cluster.running("p").await;
    assert_eq!(bound.annotations()["received-resource-type"], "Regular");
    assert_eq!(bound.annotations()["kai.scheduler/numa-placement-predicted"], zones.to_string());
    let request = cluster.phase("p", "Succeeded").await;
    assert_eq!(request.status.unwrap().step.as_deref(), Some("Bound"));
    sleep(300).await;
    assert_eq!(
        cluster.wire.writes(),
        [
            "POST /api/v1/namespaces/team/pods/p/binding",
            "PATCH /apis/scheduling.run.ai/v1alpha2/namespaces/team/bindrequests/p/status",
        ]
    );
    assert_eq!(cluster.events("team", "p", "Bound").await, ["bound to node dgx-h100-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_somebody_bound_elsewhere_is_not_called_bound() {
    let cluster = Cluster::without_binder("dgx-h100,cpu").await;
    let pod = cluster.pod("p", json!({}), json!({})).await;
    cluster.request(&pod, "dgx-h100-0", json!({})).await;
    let target = json!({"kind": "Node", "name": "cpu-0"});
    let binding = json!({"metadata": {"name": "p", "namespace": "team"}, "target": target});
    let binding: Binding = serde_json::from_value(binding).unwrap();
    let parameters = PostParams::default();
    let api = cluster.pods("team");
    api.create_subresource::<Binding, Status>("binding", "p", &parameters, &binding).await.unwrap();
    cluster.start_binder();
    let failed = cluster.phase("p", "Failed").await.status.unwrap();
    assert_eq!(failed.error_class.as_deref(), Some("Gone"));
    let reason = "pod team/p is already on node cpu-0, not on node dgx-h100-0 which was chosen for it";
    assert_eq!(failed.reason.as_deref(), Some(reason));
    assert!(cluster.events("team", "p", "Bound").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_request_for_a_pod_that_was_replaced_goes() {
    let cluster = Cluster::without_binder("cpu").await;
    let pod = cluster.pod("p", json!({}), json!({})).await;
    let mut former = pod.clone();
    former.metadata.uid = Some("00000000-0000-0000-0000-000000000001".into());
    cluster.request(&former, "cpu-0", json!({})).await;
    cluster.start_binder();
    until("the request is gone", || async { cluster.requests().get_opt("p").await.unwrap().is_none().then_some(()) })
        .await;
    assert_eq!(cluster.pods("team").get("p").await.unwrap().spec.unwrap().node_name, None);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_is_said_and_not_tried_again() {
    let cluster = Cluster::start("cpu").await;
    let pod = cluster.pod("p", json!({}), json!({})).await;
    cluster.request(&pod, "nowhere", json!({})).await;
    let failed = cluster.phase("p", "Failed").await.status.unwrap();
    assert_eq!((failed.error_class.as_deref(), failed.reason.as_deref()), (Some("Gone"), Some("node nowhere is gone")));
    let writes = cluster.wire.writes().len();
    sleep(600).await;
    assert_eq!(cluster.wire.writes().len(), writes);
}

#[tokio::test(start_paused = true)]
async fn of_two_binders_one_works_and_the_other_takes_over() {
    let cluster = Cluster::without_binder("dgx-h100").await;
    let options = || kai_binder::Options { leader_elect: true, ..kai_binder::Options::default() };
    let (first, task) = cluster.binder_with(options());
    sleep(5).await;
    let _second = cluster.binder_with(options());
    let pod = cluster.pod("a", gpu(), json!({})).await;
    cluster.request(&pod, "dgx-h100-0", json!({})).await;
    cluster.phase("a", "Succeeded").await;
    assert_eq!(cluster.wire.writes().len(), 2);
    task.abort();
    first.cancel();
    let pod = cluster.pod("b", gpu(), json!({})).await;
    cluster.request(&pod, "dgx-h100-0", json!({})).await;
    cluster.phase("b", "Succeeded").await;
    assert_eq!(cluster.wire.writes().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_passes_is_said_and_then_corrected() {
    let cluster = Cluster::without_binder("dgx-h100").await;
    cluster.wire.break_at(1, crate::world::Breakage::Refuse);
    cluster.start_binder();
    let pod = cluster.pod("p", gpu(), json!({})).await;
    cluster.request(&pod, "dgx-h100-0", json!({})).await;
    let status = cluster.phase("p", "Succeeded").await.status.unwrap();
    assert_eq!((status.failed_attempts, status.reason, status.next_retry), (Some(1), None, None));
    let bound = cluster.running("p").await;
    let conditions = bound.status.unwrap().conditions.unwrap();
    let condition = conditions.iter().find(|condition| condition.type_ == "PodBound").unwrap();
    assert_eq!((condition.status.as_str(), condition.reason.as_deref()), ("True", Some("Bound")));
    assert_eq!(cluster.wire.count("/binding"), 2);
}
