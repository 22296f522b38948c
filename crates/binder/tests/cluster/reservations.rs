//! Reservation pods that vanish, are too many or were there before us.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::world::{Cluster, RESERVATIONS, sleep, until, uuid};

fn holder(name: &str, node: &str, group: &str) -> Value {
    let container =
        json!({"name": "resource-reservation", "image": "old", "resources": {"limits": {"nvidia.com/gpu": "1"}}});
    json!({"metadata": {"name": name, "namespace": RESERVATIONS, "labels": {"app": RESERVATIONS, "runai-gpu-group": group}},
        "spec": {"nodeName": node, "containers": [container]}})
}

/// Pod `p`, which runs and shares the device of group `g`, and the reservation of that.
async fn sharing() -> (Cluster, Pod, Pod) {
    let cluster = Cluster::start("dgx-h100").await;
    let pod = cluster.fraction("p").await;
    cluster.share(&pod, "dgx-h100-0", &["g"]).await;
    cluster.running("p").await;
    let reservation = cluster.held(1).await.remove(0);
    (cluster, pod, reservation)
}

#[tokio::test(start_paused = true)]
async fn a_reservation_deleted_by_hand_comes_back_with_the_same_device_and_no_pod_is_touched() {
    let (cluster, pod, before) = sharing().await;
    cluster.delete_pod(RESERVATIONS, &before.name_any()).await;
    let after = until("a new reservation", || async {
        let mut now = cluster.reservations().await;
        let new = now.pop()?;
        (new.uid() != before.uid() && !uuid(&new).is_empty()).then_some(new)
    })
    .await;
    assert_eq!(uuid(&after), uuid(&before));
    assert_eq!(cluster.running("p").await.uid(), pod.uid());
    let told = cluster.events("default", "dgx-h100-0", "ReservationLost").await;
    assert_eq!(told.len(), 1, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_reservation_that_cannot_have_the_device_is_said_and_nobody_joins() {
    let (cluster, pod, before) = sharing().await;
    // Somebody takes the device in the moment it is free.
    let taken = json!({"metadata": {"annotations": {"kai.scheduler/gpu-devices": "{\"g\":\"GPU-elsewhere\"}"}}});
    cluster.pods("team").patch("p", &PatchParams::default(), &Patch::Merge(&taken)).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "team");
    for map in ["p-abc-shared-gpu-0", "p-abc-shared-gpu-0-evar"] {
        let told = json!({"data": {"NVIDIA_VISIBLE_DEVICES": "GPU-elsewhere"}});
        maps.patch(map, &PatchParams::default(), &Patch::Merge(&told)).await.unwrap();
    }
    cluster.delete_pod(RESERVATIONS, &before.name_any()).await;
    sleep(900).await;
    let told = cluster.events("team", "p", "ReservationConflict").await;
    assert!(told.len() == 1 && told[0].contains("while running pods of the group use GPU-elsewhere"), "{told:?}");
    let made = cluster.wire.count("POST /api/v1/namespaces/kai-resource-reservation/pods");
    // The lost one; one for each of the eight devices, as none of them is it; and three that the kubelet refused. One stays.
    assert_eq!(made, 1 + 8 + 3);
    cluster.held(1).await;
    let other = cluster.fraction("q").await;
    cluster.share(&other, "dgx-h100-0", &["g"]).await;
    let status = cluster.phase("q", "Failed").await.status.unwrap();
    assert_eq!(status.error_class.as_deref(), Some("Refused"));
    assert_eq!(cluster.running("p").await.uid(), pod.uid());
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_annotation_is_behind_what_its_container_was_told_keeps_nobody_out_of_its_group() {
    let (cluster, _, before) = sharing().await;
    // As after a reboot, when a binder died between the ConfigMap and the annotation.
    let behind = json!({"metadata": {"annotations": {"kai.scheduler/gpu-devices": "{\"g\":\"GPU-of-before\"}"}}});
    cluster.pods("team").patch("p", &PatchParams::default(), &Patch::Merge(&behind)).await.unwrap();
    cluster.delete_pod(RESERVATIONS, &before.name_any()).await;
    let other = cluster.fraction("q").await;
    cluster.share(&other, "dgx-h100-0", &["g"]).await;
    cluster.running("q").await;
    let held = uuid(&cluster.held(1).await[0]);
    let says = cluster.running("p").await.annotations()["kai.scheduler/gpu-devices"].clone();
    assert_eq!((says, held.as_str()), (format!("{{\"g\":\"{held}\"}}"), uuid(&before).as_str()));
    assert!(cluster.events("team", "p", "ReservationConflict").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_kai_left_is_taken_over_without_touching_a_pod() {
    let cluster = Cluster::without_binder("dgx-h100").await;
    cluster.create("v1", "Pod", holder("gpu-reservation-dgx-h100-0-x7k2p", "dgx-h100-0", "g")).await;
    let mut sharer = json!({"metadata": {"name": "old", "namespace": "team", "labels": {"runai-gpu-group": "g"},
        "annotations": {"gpu-fraction": "0.5", "received-resource-type": "Fraction"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "app:1"}]}});
    sharer["spec"]["nodeName"] = json!("dgx-h100-0");
    let old = cluster.create("v1", "Pod", sharer).await;
    let before = cluster.held(1).await.remove(0);
    cluster.start_binder();
    let pod = cluster.fraction("p").await;
    cluster.share(&pod, "dgx-h100-0", &["g"]).await;
    cluster.running("p").await;
    let told = cluster.config_map("p-abc-shared-gpu-0").await;
    assert_eq!(told["NVIDIA_VISIBLE_DEVICES"], json!(uuid(&before)));
    sleep(300).await;
    assert_eq!(cluster.held(1).await[0].uid(), before.uid());
    assert_eq!(cluster.running("old").await.uid(), old.uid());
    assert_eq!(cluster.wire.count(RESERVATIONS), 0, "{:?}", cluster.wire.writes());
}

#[tokio::test(start_paused = true)]
async fn orphans_and_duplicates_go() {
    let cluster = Cluster::without_binder("dgx-h100").await;
    cluster.create("v1", "Pod", holder("orphan", "dgx-h100-0", "nobody")).await;
    cluster.create("v1", "Pod", holder("second", "dgx-h100-0", "g")).await;
    cluster.held(2).await;
    sleep(5).await;
    cluster.create("v1", "Pod", holder("third", "dgx-h100-0", "g")).await;
    cluster.held(3).await;
    let pod = cluster.fraction("p").await;
    cluster.share(&pod, "dgx-h100-0", &["g"]).await;
    cluster.start_binder();
    cluster.running("p").await;
    let left = cluster.held(1).await;
    assert_eq!(left[0].name_any(), "second");
}

#[tokio::test(start_paused = true)]
async fn reservations_of_a_node_that_is_gone_go_too() {
    let cluster = Cluster::start("dgx-h100,cpu").await;
    let pod = cluster.fraction("p").await;
    cluster.share(&pod, "dgx-h100-0", &["g"]).await;
    cluster.running("p").await;
    cluster.lab.inject("dgx-h100-0", kai_lab::faults::NodeAction::Vanish);
    let force = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    sleep(5).await;
    let _ = cluster.pods("team").delete("p", &force).await;
    until("no reservation", || async { cluster.reservations().await.is_empty().then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_started_again_is_asked_again_and_its_pods_are_told() {
    let cluster = Cluster::start("dgx-h100").await;
    let pod = cluster.fraction("p").await;
    cluster.share(&pod, "dgx-h100-0", &["g"]).await;
    cluster.running("p").await;
    let holder = cluster.held(1).await.remove(0);
    // As if the node had come back with another device than the pod was told.
    let parameters = PatchParams::default();
    let told = json!({"metadata": {"annotations": {"kai.scheduler/gpu-devices": "{\"g\":\"GPU-before\"}"}}});
    cluster.pods("team").patch("p", &parameters, &Patch::Merge(&told)).await.unwrap();
    let maps = cluster.dynamic("v1", "ConfigMap", Some("team"));
    let data = json!({"data": {"NVIDIA_VISIBLE_DEVICES": "GPU-before"}});
    maps.patch("p-abc-shared-gpu-0", &parameters, &Patch::Merge(&data)).await.unwrap();
    sleep(300).await;
    assert_eq!(cluster.config_map("p-abc-shared-gpu-0").await["NVIDIA_VISIBLE_DEVICES"], "GPU-before");
    let mut statuses = json!(holder.status.clone().unwrap().container_statuses.unwrap());
    statuses[0]["restartCount"] = json!(1);
    let restarted = json!({"status": {"containerStatuses": statuses}});
    cluster.pods(RESERVATIONS).patch_status(&holder.name_any(), &parameters, &Patch::Merge(&restarted)).await.unwrap();
    until("the pod is told", || async {
        let told = cluster.config_map("p-abc-shared-gpu-0").await;
        (told["NVIDIA_VISIBLE_DEVICES"] == json!(uuid(&holder))).then_some(())
    })
    .await;
    let told = cluster.events("team", "p", "GpuChanged").await;
    assert!(told.len() == 1 && told[0].contains("was GPU-before and is"), "{told:?}");
    assert_eq!(cluster.held(1).await[0].uid(), holder.uid());
    assert_eq!(cluster.running("p").await.uid(), pod.uid());
}
