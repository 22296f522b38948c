//! Many pods at once while writes fail, answers are lost and the binder is killed: afterwards everything is as it should be.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde_json::json;

use crate::world::{Cluster, sleep, until, uuid};

async fn weather(seed: u64) {
    let cluster = Cluster::without_binder("dgx-h100").await;
    cluster.wire.storm(Some(seed));
    cluster.start_binder();
    let names: Vec<String> = (0..9).map(|number| format!("p{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let pod = cluster.fraction(name).await;
        cluster.share(&pod, "dgx-h100-0", &[["a", "b", "c"][number % 3]]).await;
        if number % 4 == usize::try_from(seed % 4).unwrap() {
            sleep(1 + seed % 3).await;
            cluster.kill_binder().await;
            cluster.start_binder();
        }
    }
    sleep(20).await;
    cluster.wire.storm(None);
    for name in &names {
        cluster.running(name).await;
        cluster.phase(name, "Succeeded").await;
    }
    let holders = cluster.held(3).await;
    let devices: BTreeSet<String> = holders.iter().map(uuid).collect();
    assert_eq!(devices.len(), 3, "seed {seed}");
    for (number, name) in names.iter().enumerate() {
        let group = ["a", "b", "c"][number % 3];
        let device = uuid(holders.iter().find(|holder| holder.labels()["runai-gpu-group"] == group).unwrap());
        let told = cluster.config_map(&format!("{name}-abc-shared-gpu-0")).await;
        assert_eq!(told["NVIDIA_VISIBLE_DEVICES"], json!(device), "seed {seed}");
    }
    for name in &names {
        cluster.delete_pod("team", name).await;
    }
    until(&format!("nothing is left of seed {seed}"), || async {
        (cluster.reservations().await.is_empty() && cluster.config_maps().await.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_pod_runs_with_its_device_after_any_storm() {
    for seed in 0..8 {
        weather(seed).await;
    }
}
