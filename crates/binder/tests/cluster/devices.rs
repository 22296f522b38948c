//! Resource claims: devices are written into them, and taken out of them when the bind fails.

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::world::{Cluster, sleep};

fn allocation(device: &str) -> Value {
    json!({"devices": {"results": [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": "dgx-h100-0", "device": device}]}})
}

async fn claim(cluster: &Cluster) -> Value {
    json!(cluster.dynamic("resource.k8s.io/v1", "ResourceClaim", Some("team")).get("mine").await.unwrap())
}

async fn pod_with_claim(cluster: &Cluster) -> Pod {
    let requests = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]);
    let object =
        json!({"metadata": {"name": "mine", "namespace": "team"}, "spec": {"devices": {"requests": requests}}});
    cluster.create("resource.k8s.io/v1", "ResourceClaim", object).await;
    let pod = json!({"metadata": {"name": "p", "namespace": "team"}, "spec": {"schedulerName": "kai-scheduler",
        "containers": [{"name": "main", "image": "app:1", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}});
    cluster.pods("team").create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_its_devices_and_its_user() {
    let cluster = Cluster::start("dgx-h100").await;
    let pod = pod_with_claim(&cluster).await;
    let chosen = json!([{"name": "gpu", "allocation": allocation("gpu-3")}]);
    cluster.request(&pod, "dgx-h100-0", json!({"resourceClaimAllocations": chosen})).await;
    cluster.phase("p", "Succeeded").await;
    let status = claim(&cluster).await["status"].clone();
    assert_eq!(status["allocation"]["devices"], allocation("gpu-3")["devices"]);
    assert_eq!(status["reservedFor"], json!([{"name": "p", "resource": "pods", "uid": pod.metadata.uid}]));
}

#[tokio::test(start_paused = true)]
async fn a_bind_that_fails_after_the_claim_frees_it() {
    let cluster = Cluster::start("dgx-h100").await;
    let taken = json!({"metadata": {"name": "p-shared-gpu-0", "namespace": "team"}});
    cluster.create("v1", "ConfigMap", taken).await;
    let pod = pod_with_claim(&cluster).await;
    let more = json!({"resourceClaimAllocations": [{"name": "gpu", "allocation": allocation("gpu-3")}],
        "receivedResourceType": "Fraction", "selectedGPUGroups": ["g"]});
    cluster.request(&pod, "dgx-h100-0", more).await;
    cluster.phase("p", "Failed").await;
    let after = claim(&cluster).await;
    assert!(after.pointer("/status/allocation").is_none(), "{after}");
    assert!(after.pointer("/status/reservedFor").is_none_or(|users| users == &json!([])), "{after}");
    assert!(after.pointer("/metadata/finalizers").is_none_or(|all| all == &json!([])), "{after}");
}

#[tokio::test(start_paused = true)]
async fn devices_of_an_attempt_on_another_node_are_replaced() {
    let cluster = Cluster::without_binder("dgx-h100").await;
    let pod = pod_with_claim(&cluster).await;
    let user = json!([{"name": "p", "resource": "pods", "uid": pod.metadata.uid}]);
    let status = json!({"status": {"allocation": allocation("gpu-7"), "reservedFor": user}});
    let api = cluster.dynamic("resource.k8s.io/v1", "ResourceClaim", Some("team"));
    let parameters = kube::api::PatchParams::default();
    api.patch_status("mine", &parameters, &kube::api::Patch::Merge(&status)).await.unwrap();
    let chosen = json!([{"name": "gpu", "allocation": allocation("gpu-3")}]);
    cluster.request(&pod, "dgx-h100-0", json!({"resourceClaimAllocations": chosen})).await;
    cluster.start_binder();
    cluster.phase("p", "Succeeded").await;
    assert_eq!(claim(&cluster).await["status"]["allocation"]["devices"], allocation("gpu-3")["devices"]);
}

#[tokio::test(start_paused = true)]
async fn extended_resources_get_a_claim_that_the_pod_names() {
    let cluster = Cluster::start("dgx-h100").await;
    let container = json!({"resources": {"limits": {"example.com/gpu": "1"}}});
    let pod = cluster.pod("p", container, json!({})).await;
    let wanted = json!({
        "allocation": allocation("gpu-3"),
        "deviceRequests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}],
        "containerMappings": [{"containerName": "main", "resourceName": "example.com/gpu", "requestName": "gpu"}],
    });
    cluster.request(&pod, "dgx-h100-0", json!({"extendedResourceClaimAllocation": wanted})).await;
    cluster.phase("p", "Succeeded").await;
    sleep(1).await;
    let bound = json!(cluster.pods("team").get("p").await.unwrap());
    let name =
        bound.pointer("/status/extendedResourceClaimStatus/resourceClaimName").unwrap().as_str().unwrap().to_owned();
    let claim = cluster.dynamic("resource.k8s.io/v1", "ResourceClaim", Some("team")).get(&name).await.unwrap();
    assert_eq!(json!(claim)["status"]["allocation"]["devices"], allocation("gpu-3")["devices"]);
}
