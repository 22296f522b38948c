//! What happens in the middle of things: kubelets that restart, pods that go while they are being bound, components that die.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kai_cli::control_plane::Part;
use kai_lab::faults::NodeAction;
use kai_tests::{
    case,
    cluster::{Cluster, PATIENCE},
    harness::{Case, SIMULATED_NODES},
    wait,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};

use crate::stage::{STILL, Stage, reserved};

pub const CASES: &[Case] = &[
    case!(a_kubelet_that_restarts_finds_its_pods_and_their_gpu_as_they_were, SIMULATED_NODES),
    case!(a_pod_deleted_while_it_is_bound_leaves_nothing, SIMULATED_NODES),
    case!(components_that_die_are_missed_only_until_they_are_back, SIMULATED_NODES),
];

async fn a_kubelet_that_restarts_finds_its_pods_and_their_gpu_as_they_were(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "restart").await?;
    stage.create_fraction("before", "0.5").await?;
    let before = stage.running("before").await?;
    let reservation = stage.reservation_of(&before).await?;
    cluster.inject("restart-0", NodeAction::Stop)?;
    stage.create_fraction("during", "0.5").await?;
    tokio::time::sleep(STILL).await;
    cluster.inject("restart-0", NodeAction::Resume)?;
    let during = stage.running("during").await?;
    let still = stage.running("before").await?;
    ensure!(still.uid() == before.uid(), "the pod is another one");
    let now = stage.reservation_of(&during).await?;
    ensure!(now.uid() == reservation.uid() && reserved(&now) == reserved(&reservation), "the reservation changed");
    ensure!(stage.told("during")?.get("NVIDIA_VISIBLE_DEVICES") == reserved(&now), "it was told another GPU");
    stage.clear().await
}

async fn a_pod_deleted_while_it_is_bound_leaves_nothing(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "deleted").await?;
    let requests = stage.bind_requests();
    for round in 0..3 {
        let name = format!("brief-{round}");
        stage.create_fraction(&name, "0.5").await?;
        wait::for_object(&requests, &name, "there", PATIENCE, |request: Option<&kai_api::BindRequest>| {
            request.is_some()
        })
        .await?;
        stage.pods.delete(&name, &DeleteParams::default().grace_period(0)).await?;
    }
    wait::until("bind requests and reservations to go", PATIENCE, async || {
        let requests = requests.list(&ListParams::default()).await?.items.len();
        Ok((requests == 0 && stage.reservations().await?.is_empty()).then_some(()))
    })
    .await?;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &stage.namespace);
    wait::until("the ConfigMaps to go", PATIENCE, async || {
        let names: Vec<String> =
            maps.list(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect();
        Ok(names.iter().all(|name| name == "kube-root-ca.crt").then_some(()))
    })
    .await?;
    stage.create_fraction("steady", "0.5").await?;
    stage.running("steady").await?;
    stage.clear().await
}

async fn components_that_die_are_missed_only_until_they_are_back(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "mourned").await?;
    let kai = cluster.kai()?;
    for part in [Part::PodGrouper, Part::Scheduler, Part::Binder, Part::Controllers] {
        let name = format!("after-{part}");
        stage.create_fraction(&name, "0.1").await?;
        kai.restart(part).await;
        let pod = stage.running(&name).await.with_context(|| format!("after the {part} died"))?;
        ensure!(
            stage.told(&name)?.get("NVIDIA_VISIBLE_DEVICES") == reserved(&stage.reservation_of(&pod).await?),
            "{name}"
        );
    }
    stage.clear().await
}
