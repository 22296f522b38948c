//! A pod on two devices of which only one can be had: the reservation pod of the other is refused by the kubelet.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kai_api::{
    BindRequest,
    names::{bind_phases, labels, objects},
};
use kai_cli::control_plane::Part;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::{A_WHILE, at_rest, told};
use crate::{
    invariants::State,
    processes::Who,
    workloads::{self, Gpu},
    world::{NAMESPACE, World, fleet, in_virtual_time},
};

const NODE: &str = "t4x4-0";
/// Many more than it takes to try three times to make a reservation, and far fewer than a hot loop makes in a minute.
const MOST_REQUESTS: u64 = 200;

/// A decision that does not know that three of the four GPUs have gone to a pod which no scheduler placed.
async fn decide_in_vain(world: &mut World) -> Result<()> {
    let limits = json!({"limits": {"nvidia.com/gpu": "3"}});
    let stranger = json!({"metadata": {"name": "stranger"}, "spec": {"nodeName": NODE,
        "containers": [{"name": "main", "image": "example/work:1", "resources": limits}]}});
    world.create::<Pod>(stranger).await?;
    let both = Gpu::Fraction("0.5".to_owned(), 2);
    let pod = workloads::pod(world, "both", &both, objects::DEFAULT_QUEUE).await?;
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "both", "uid": pod.uid()});
    let request = json!({
        "metadata": {"name": "both", "ownerReferences": [owner], "labels": {labels::SELECTED_NODE: NODE}},
        "spec": {"podName": "both", "selectedNode": NODE, "receivedResourceType": "Fraction",
            "receivedGPU": {"count": 2, "portion": "0.5"}, "selectedGPUGroups": ["first", "second"]},
    });
    world.create::<BindRequest>(request).await?;
    Ok(())
}

#[test]
fn a_pod_on_two_devices_of_which_one_cannot_be_had_waits_without_a_hot_loop_and_runs_in_the_end() {
    let outcome = in_virtual_time(async {
        let mut world = World::start(fleet("t4x4")?, |_| {}).await?;
        world.kill(Part::Scheduler, A_WHILE);
        world.processes.arm(None);
        decide_in_vain(&mut world).await?;
        world.pass(A_WHILE).await;
        let requests = world.processes.requests(Who::Part(Part::Binder));
        ensure!(requests < MOST_REQUESTS, "{requests} requests of the binder");
        world.delete::<Pod>("stranger").await?;
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 1 && facts.reservations.len() == 2, "{}", facts.shown());
        ensure!(told(&facts, "both", &["reservation pod"]), "nobody is told why: {:?}", facts.events);
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn binders_that_come_and_go_give_a_device_up_as_soon_as_one_that_stays() {
    let outcome = in_virtual_time(async {
        let mut world = World::start(fleet("t4x4")?, |_| {}).await?;
        world.kill(Part::Scheduler, 10 * A_WHILE);
        decide_in_vain(&mut world).await?;
        // None of them sees more than one reservation pod fail.
        for _ in 0..6 {
            world.pass(Duration::from_millis(1500)).await;
            world.kill(Part::Binder, Duration::from_millis(500));
        }
        world.pass(Duration::from_secs(5)).await;
        let requests: Api<BindRequest> = Api::namespaced(world.client.clone(), NAMESPACE);
        let status = requests.get("both").await?.status.unwrap_or_default();
        ensure!(status.phase.as_deref() == Some(bind_phases::FAILED), "{status:?}");
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}
