//! Volumes that wait for their first pod.

use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::world::{Cluster, until};

async fn pod_with_claim(cluster: &Cluster, provisioner: &str) -> k8s_openapi::api::core::v1::Pod {
    let class =
        json!({"metadata": {"name": "local"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"});
    cluster.create("storage.k8s.io/v1", "StorageClass", class).await;
    let claim = json!({"metadata": {"name": "data", "namespace": "team"}, "spec": {"storageClassName": "local",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    cluster.create("v1", "PersistentVolumeClaim", claim).await;
    let pod = json!({"metadata": {"name": "p", "namespace": "team"}, "spec": {"schedulerName": "kai-scheduler",
        "containers": [{"name": "main", "image": "app:1"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}});
    cluster.pods("team").create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
}

async fn claim(cluster: &Cluster) -> Value {
    let api = cluster.dynamic("v1", "PersistentVolumeClaim", Some("team"));
    json!(api.get("data").await.unwrap())
}

/// What the volume controller does when a volume is there.
async fn finish(cluster: &Cluster, volume: &str) {
    let api = cluster.dynamic("v1", "PersistentVolumeClaim", Some("team"));
    let parameters = PatchParams::default();
    let spec = json!({"spec": {"volumeName": volume}});
    api.patch("data", &parameters, &Patch::Merge(&spec)).await.unwrap();
    api.patch_status("data", &parameters, &Patch::Merge(&json!({"status": {"phase": "Bound"}}))).await.unwrap();
}

const SELECTED: &str = "/metadata/annotations/volume.kubernetes.io~1selected-node";

#[tokio::test(start_paused = true)]
async fn a_provisioner_is_told_the_node_and_the_pod_waits_for_it() {
    let cluster = Cluster::start("cpu").await;
    let pod = pod_with_claim(&cluster, "made.example.com").await;
    cluster.request(&pod, "cpu-0", json!({})).await;
    until("the node is chosen", || async { claim(&cluster).await.pointer(SELECTED).map(drop) }).await;
    assert_eq!(claim(&cluster).await.pointer(SELECTED), Some(&json!("cpu-0")));
    assert_eq!(cluster.requests().get("p").await.unwrap().status.unwrap().step.as_deref(), Some("Preparing"));
    finish(&cluster, "made").await;
    cluster.phase("p", "Succeeded").await;
}

#[tokio::test(start_paused = true)]
async fn a_provisioner_that_gives_up_refuses_the_node() {
    let cluster = Cluster::start("cpu").await;
    let pod = pod_with_claim(&cluster, "made.example.com").await;
    cluster.request(&pod, "cpu-0", json!({})).await;
    until("the node is chosen", || async { claim(&cluster).await.pointer(SELECTED).map(drop) }).await;
    let api = cluster.dynamic("v1", "PersistentVolumeClaim", Some("team"));
    let gives_up = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": null}}});
    api.patch("data", &PatchParams::default(), &Patch::Merge(&gives_up)).await.unwrap();
    let status = cluster.phase("p", "Failed").await.status.unwrap();
    assert_eq!(status.error_class.as_deref(), Some("Refused"));
    assert!(status.reason.unwrap().contains("its provisioner gave up"));
    assert_eq!(claim(&cluster).await.pointer("/metadata/annotations/kai.scheduler~1placed-for"), None);
}

#[tokio::test(start_paused = true)]
async fn an_existing_volume_on_the_node_is_given_to_the_claim() {
    let cluster = Cluster::start("cpu").await;
    let pod = pod_with_claim(&cluster, "kubernetes.io/no-provisioner").await;
    for (name, size, node) in [("large", "5Gi", "cpu-0"), ("small", "2Gi", "cpu-0"), ("far", "1Gi", "elsewhere")] {
        let terms =
            json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]);
        let volume = json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local", "local": {"path": "/data"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
        cluster.create("v1", "PersistentVolume", volume).await;
        let free = json!({"status": {"phase": "Available"}});
        let volumes = cluster.dynamic("v1", "PersistentVolume", None);
        volumes.patch_status(name, &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
    }
    cluster.request(&pod, "cpu-0", json!({})).await;
    let volumes = cluster.dynamic("v1", "PersistentVolume", None);
    let given = until("a volume is given", || async {
        let volume = json!(volumes.get("small").await.unwrap());
        volume.pointer("/spec/claimRef/name").cloned()
    })
    .await;
    assert_eq!(given, "data");
    assert!(json!(volumes.get("large").await.unwrap()).pointer("/spec/claimRef").is_none());
    finish(&cluster, "small").await;
    cluster.phase("p", "Succeeded").await;
    assert_eq!(cluster.running("p").await.name_any(), "p");
}

#[tokio::test(start_paused = true)]
async fn volumes_that_do_not_come_in_time_refuse_the_node_and_are_taken_back() {
    let cluster = Cluster::start("cpu").await;
    let pod = pod_with_claim(&cluster, "made.example.com").await;
    cluster.request(&pod, "cpu-0", json!({})).await;
    let status = cluster.phase("p", "Failed").await.status.unwrap();
    let reason = status.reason.unwrap();
    assert!(reason.contains("not ready within 120 s: the volume of claim data is being made"), "{reason}");
    assert_eq!(claim(&cluster).await.pointer(SELECTED), None);
}
