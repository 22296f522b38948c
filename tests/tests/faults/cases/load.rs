//! Many at once.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kai_api::names::{namespaces, objects};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};

use super::{A_WHILE, at_rest, told};
use crate::{
    invariants::State,
    workloads::{self, Gpu},
    world::{World, fleet, in_virtual_time},
};

#[test]
fn two_hundred_fractional_pods_at_once_on_ten_nodes_of_eight_all_run() {
    let outcome = in_virtual_time(async {
        let mut world = World::start(fleet("dgx-h100*10")?, |_| {}).await?;
        for number in 0..200 {
            let part = ["0.25", "0.3", "0.4", "0.5"][number % 4];
            workloads::pod(&mut world, &format!("pod-{number}"), &Gpu::part(part), objects::DEFAULT_QUEUE).await?;
        }
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 200, "not all run: {}", facts.shown());
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn thirty_two_binds_at_once_on_one_node_share_its_eight_devices() {
    let outcome = in_virtual_time(async {
        let mut world = World::start(fleet("dgx-h100")?, |_| {}).await?;
        for number in 0..32 {
            workloads::pod(&mut world, &format!("pod-{number}"), &Gpu::part("0.25"), objects::DEFAULT_QUEUE).await?;
        }
        world.pass(A_WHILE).await;
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 32, "not all run: {}", facts.shown());
        ensure!(facts.reservations.len() == 8, "{} reservations", facts.reservations.len());
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn reservation_pods_deleted_by_hand_under_load_come_back_and_nobody_changes_devices() {
    let outcome = in_virtual_time(async {
        let mut world = World::start(fleet("dgx-h100*2")?, |_| {}).await?;
        for number in 0..24 {
            workloads::pod(&mut world, &format!("early-{number}"), &Gpu::part("0.5"), objects::DEFAULT_QUEUE).await?;
        }
        world.pass(A_WHILE).await;
        let before = devices(&world).await?;
        ensure!(before.len() == 24, "{} pods know their device", before.len());
        let api: Api<Pod> = Api::namespaced(world.client.clone(), namespaces::RESERVATION);
        let mut deleted = Vec::new();
        for number in 0..8 {
            workloads::pod(&mut world, &format!("late-{number}"), &Gpu::part("0.5"), objects::DEFAULT_QUEUE).await?;
            let all = api.list(&ListParams::default()).await?.items;
            let victim = all[number % all.len()].name_any();
            api.delete(&victim, &DeleteParams::default()).await?;
            deleted.push(victim);
            world.pass(Duration::from_millis(300)).await;
        }
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 32, "not all run: {}", facts.shown());
        let after = devices(&world).await?;
        let moved: Vec<&String> = before.keys().filter(|name| before.get(*name) != after.get(*name)).collect();
        ensure!(moved.is_empty(), "their devices changed: {moved:?}");
        ensure!(
            told(&facts, "dgx-h100", &["the reservation pod of GPU group", "is gone while pods use the GPU"]),
            "nobody was told"
        );
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

/// The device that each running pod was told.
async fn devices(world: &World) -> Result<BTreeMap<String, String>> {
    let names = world.names::<Pod>().await?;
    let told = names.into_iter().filter_map(|name| {
        let told = world.lab.environment_of(crate::world::NAMESPACE, &name, "main")?;
        Some((name, told.get("NVIDIA_VISIBLE_DEVICES")?.clone()))
    });
    Ok(told.collect())
}
