//! The binder dies, or loses an answer, at every single write of a fractional bind; it always ends the same.

use std::time::Duration;

use kube::ResourceExt;
use serde_json::json;

use crate::world::{Breakage, Cluster, uuid};

/// Binds one pod to parts of two GPUs with the n-th write broken. False if there is no n-th write.
async fn bind_with(number: usize, breakage: Breakage) -> bool {
    let cluster = Cluster::without_binder("dgx-h100").await;
    cluster.wire.break_at(number, breakage);
    cluster.start_binder();
    let pod = cluster.fraction("p").await;
    cluster.share(&pod, "dgx-h100-0", &["g", "h"]).await;
    if matches!(breakage, Breakage::DieBefore | Breakage::DieAfter) {
        if !cluster.death(Duration::from_mins(1)).await {
            assert!(cluster.wire.writes().len() < number, "{number} {breakage:?}");
            return false;
        }
        cluster.start_binder();
    }
    let bound = cluster.running("p").await;
    cluster.phase("p", "Succeeded").await;
    let holders = cluster.held(2).await;
    let of = |group: &str| uuid(holders.iter().find(|holder| holder.labels()["runai-gpu-group"] == group).unwrap());
    let told = cluster.config_map("p-abc-shared-gpu-0").await;
    assert_eq!(told["NVIDIA_VISIBLE_DEVICES"], json!(format!("{},{}", of("g"), of("h"))), "{number} {breakage:?}");
    assert_eq!(cluster.config_maps().await.len(), 2);
    assert_eq!(bound.uid(), pod.uid());
    assert_eq!(cluster.events("team", "p", "Bound").await.len(), 1, "{number} {breakage:?}");
    cluster.wire.writes().len() >= number
}

async fn every_write(breakage: Breakage) {
    let mut number = 1;
    while bind_with(number, breakage).await {
        number += 1;
    }
    // Two reservations, a status, labels, two ConfigMaps, the binding, the last status.
    assert!(number > 8, "{number}");
}

#[tokio::test(start_paused = true)]
async fn a_death_before_any_write_changes_nothing() {
    every_write(Breakage::DieBefore).await;
}

#[tokio::test(start_paused = true)]
async fn a_death_after_any_write_changes_nothing() {
    every_write(Breakage::DieAfter).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_any_write_changes_nothing() {
    every_write(Breakage::LoseAnswer).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_any_write_for_lack_of_time_changes_nothing() {
    every_write(Breakage::Refuse).await;
}
