//! Pods with parts of GPUs: what they are told, and which reservation pods there are.

use kube::ResourceExt;
use serde_json::json;

use crate::world::{Cluster, until, uuid};

#[tokio::test(start_paused = true)]
async fn a_fraction_gets_a_device_and_the_container_is_told_exactly_that() {
    let cluster = Cluster::start("dgx-h100").await;
    let pod = cluster.fraction("p").await;
    cluster.share(&pod, "dgx-h100-0", &["group-1"]).await;
    let bound = cluster.running("p").await;
    assert_eq!(bound.labels()["runai-gpu-group"], "group-1");
    assert_eq!(bound.annotations()["received-resource-type"], "Fraction");
    let [holder] = &cluster.held(1).await[..] else { panic!("not one reservation") };
    assert_eq!(holder.name_any(), kai_binder::reservation_name("dgx-h100-0", "group-1"));
    let device = uuid(holder);
    assert!(device.starts_with("GPU-"), "{device}");
    assert_eq!(bound.annotations()["kai.scheduler/gpu-devices"], json!({"group-1": device}).to_string());
    let told = json!({"NVIDIA_VISIBLE_DEVICES": device, "GPU_PORTION": "0.333", "RUNAI_NUM_OF_GPUS": "0.333"});
    assert_eq!(cluster.config_map("p-abc-shared-gpu-0").await, told);
    let environment = cluster.lab.environment_of("team", "p", "main").unwrap();
    assert_eq!((&environment["NVIDIA_VISIBLE_DEVICES"], environment["GPU_PORTION"].as_str()), (&device, "0.333"));
    assert_eq!(cluster.config_map("p-abc-shared-gpu-0-evar").await, json!({}));
    let status = cluster.phase("p", "Succeeded").await.status.unwrap();
    assert_eq!((status.reason, status.error_class), (None, None));
    cluster.delete_pod("team", "p").await;
    until("nothing is left", || async {
        (cluster.reservations().await.is_empty() && cluster.config_maps().await.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn sharers_have_one_reservation_which_goes_with_the_last() {
    let cluster = Cluster::start("dgx-h100").await;
    for name in ["a", "b"] {
        let pod = cluster.fraction(name).await;
        cluster.share(&pod, "dgx-h100-0", &["g"]).await;
    }
    cluster.running("a").await;
    cluster.running("b").await;
    let device = uuid(&cluster.held(1).await[0]);
    for name in ["a", "b"] {
        let told = cluster.config_map(&format!("{name}-abc-shared-gpu-0")).await;
        assert_eq!(told["NVIDIA_VISIBLE_DEVICES"], json!(device));
    }
    cluster.delete_pod("team", "a").await;
    crate::world::sleep(200).await;
    assert_eq!(cluster.held(1).await.len(), 1);
    cluster.delete_pod("team", "b").await;
    until("no reservation", || async { cluster.reservations().await.is_empty().then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn several_devices_are_told_in_order_and_freed_when_the_pod_ends() {
    let cluster = Cluster::start("dgx-h100").await;
    let pod = cluster.fraction("p").await;
    cluster.share(&pod, "dgx-h100-0", &["z", "a"]).await;
    let bound = cluster.running("p").await;
    let groups: Vec<&String> = bound.labels().keys().filter(|key| key.starts_with("runai-gpu-group")).collect();
    assert_eq!(groups, ["runai-gpu-group/a", "runai-gpu-group/z"]);
    let holders = cluster.held(2).await;
    let of = |group: &str| uuid(holders.iter().find(|holder| holder.labels()["runai-gpu-group"] == group).unwrap());
    let told = cluster.config_map("p-abc-shared-gpu-0").await;
    assert_ne!(of("z"), of("a"));
    assert_eq!(told["NVIDIA_VISIBLE_DEVICES"], json!(format!("{},{}", of("z"), of("a"))));
    cluster.delete_pod("team", "p").await;
    until("no reservation", || async { cluster.reservations().await.is_empty().then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn thirty_two_binds_at_once_share_one_reservation() {
    let cluster = Cluster::start("dgx-h100").await;
    for number in 0..32 {
        let pod = cluster.fraction(&format!("p{number}")).await;
        cluster.share(&pod, "dgx-h100-0", &["g"]).await;
    }
    for number in 0..32 {
        cluster.running(&format!("p{number}")).await;
    }
    cluster.held(1).await;
    assert_eq!(cluster.wire.count("POST /api/v1/namespaces/kai-resource-reservation/pods"), 1);
    assert_eq!(cluster.wire.count("DELETE"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_references_is_told_through_its_variables() {
    let cluster = Cluster::start("dgx-h100").await;
    let pod = cluster.pod("p", json!({}), json!({"gpu-fraction": "0.5"})).await;
    cluster.share(&pod, "dgx-h100-0", &["g"]).await;
    cluster.running("p").await;
    let device = uuid(&cluster.held(1).await[0]);
    let variables = cluster.config_map("p-shared-gpu-0-evar").await;
    assert_eq!(variables["NVIDIA_VISIBLE_DEVICES"], json!(device));
    assert_eq!(variables["GPU_PORTION"], "0.333");
}

#[tokio::test(start_paused = true)]
async fn with_cdi_the_device_has_its_cdi_name() {
    let cluster = Cluster::without_binder("dgx-h100").await;
    cluster.configure(json!({"cdiEnabled": true})).await;
    cluster.start_binder();
    let pod = cluster.fraction("p").await;
    cluster.share(&pod, "dgx-h100-0", &["g"]).await;
    cluster.running("p").await;
    let device = uuid(&cluster.held(1).await[0]);
    let told = cluster.config_map("p-abc-shared-gpu-0").await;
    assert_eq!(told["NVIDIA_VISIBLE_DEVICES"], json!(format!("k8s.device-plugin.nvidia.com/gpu={device}")));
}

#[tokio::test(start_paused = true)]
async fn a_jetson_is_told_zero_and_its_reservation_has_what_nvml_needs() {
    let cluster = Cluster::start("thor,dgx-h100").await;
    let (board, server) = (cluster.fraction("board").await, cluster.fraction("server").await);
    cluster.share(&board, "thor-0", &["g"]).await;
    cluster.share(&server, "dgx-h100-0", &["h"]).await;
    cluster.running("board").await;
    cluster.running("server").await;
    let holders = cluster.held(2).await;
    let on = |node: &str| {
        let holder = holders.iter().find(|pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some(node)).unwrap();
        (holder.clone(), json!(holder.spec))
    };
    let (holder, spec) = on("thor-0");
    assert_eq!(cluster.lab.environment_of("team", "board", "main").unwrap()["NVIDIA_VISIBLE_DEVICES"], "0");
    assert_eq!(uuid(&holder), "tegra");
    assert_eq!(spec["containers"][0]["securityContext"], json!({"privileged": true}));
    let paths: Vec<&str> =
        spec["volumes"].as_array().unwrap().iter().filter_map(|volume| volume["hostPath"]["path"].as_str()).collect();
    assert_eq!(paths, ["/usr/lib/aarch64-linux-gnu/nvidia", "/dev"]);
    let (_, spec) = on("dgx-h100-0");
    assert_eq!(spec["runtimeClassName"], "nvidia");
    assert!(spec["volumes"].is_null() && spec["containers"][0]["securityContext"]["privileged"].is_null());
}

#[tokio::test(start_paused = true)]
async fn the_gpu_operators_policy_turns_cdi_on() {
    let cluster = Cluster::without_binder("dgx-h100").await;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "clusterpolicies", "singular": "clusterpolicy", "kind": "ClusterPolicy"});
    let spec = json!({"group": "nvidia.com", "scope": "Cluster", "names": names, "versions": [version]});
    let definition = json!({"metadata": {"name": "clusterpolicies.nvidia.com"}, "spec": spec});
    cluster.create("apiextensions.k8s.io/v1", "CustomResourceDefinition", definition).await;
    let policy = json!({"metadata": {"name": "cluster-policy"}, "spec": {"cdi": {"enabled": true, "default": true}}});
    cluster.create("nvidia.com/v1", "ClusterPolicy", policy).await;
    cluster.start_binder();
    let pod = cluster.fraction("p").await;
    cluster.share(&pod, "dgx-h100-0", &["g"]).await;
    cluster.running("p").await;
    let told = cluster.config_map("p-abc-shared-gpu-0").await;
    let device = uuid(&cluster.held(1).await[0]);
    assert_eq!(told["NVIDIA_VISIBLE_DEVICES"], json!(format!("k8s.device-plugin.nvidia.com/gpu={device}")));
}
