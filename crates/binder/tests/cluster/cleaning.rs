//! Requests and pods that go away in the middle.

use kube::{ResourceExt, api::DeleteParams};

use crate::world::{Cluster, until};

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_during_its_bind_leaves_nothing() {
    let cluster = Cluster::start("dgx-h100").await;
    cluster.stop_reporting();
    let pod = cluster.fraction("p").await;
    cluster.share(&pod, "dgx-h100-0", &["g"]).await;
    until("a reservation", || async { (!cluster.reservations().await.is_empty()).then_some(()) }).await;
    cluster.delete_pod("team", "p").await;
    until("nothing is left", || async {
        let request = cluster.requests().get_opt("p").await.unwrap();
        (request.is_none() && cluster.reservations().await.is_empty() && cluster.config_maps().await.is_empty())
            .then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_withdrawn_during_its_bind_leaves_nothing_on_the_pod() {
    let cluster = Cluster::without_binder("dgx-h100").await;
    let path = "pods/p/binding";
    let pod = cluster.fraction("p").await;
    cluster.share(&pod, "dgx-h100-0", &["g"]).await;
    // The binding is the write after labels and both ConfigMaps: refused for lack of time, it will be tried again.
    cluster.wire.break_at(6, crate::world::Breakage::Refuse);
    cluster.start_binder();
    until("an attempt", || async { (cluster.wire.count(path) > 0).then_some(()) }).await;
    cluster.requests().delete("p", &DeleteParams::default()).await.unwrap();
    until("nothing is left", || async {
        let left = cluster.pods("team").get("p").await.unwrap();
        let labelled = left.labels().contains_key("runai-gpu-group");
        (!labelled && cluster.reservations().await.is_empty() && cluster.config_maps().await.is_empty()).then_some(())
    })
    .await;
}
