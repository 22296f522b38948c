//! Nodes that are deleted, cordoned, or come back with other devices.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kai_api::names::{namespaces, objects};
use kai_lab::{
    faults::{ApiEffect, ApiFault, NodeAction, Trigger},
    fleet::Span,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::{A_WHILE, at_rest};
use crate::{
    invariants::{Facts, State},
    workloads::{self, Gpu},
    world::{World, fleet, in_virtual_time},
};

/// Two nodes of four devices, and a Deployment of six halves on them.
async fn halves() -> Result<World> {
    let mut world = World::start(fleet("t4x4*2")?, |_| {}).await?;
    workloads::deployment(&mut world, "half", 6, &Gpu::part("0.5"), objects::DEFAULT_QUEUE).await?;
    world.pass(A_WHILE).await;
    Ok(world)
}

fn busiest(facts: &Facts) -> Result<String> {
    let count = |node: &str| facts.pods.iter().filter(|pod| pod.node.as_deref() == Some(node)).count();
    let busiest = facts.nodes.keys().max_by_key(|node| count(node));
    busiest.cloned().ok_or_else(|| anyhow::anyhow!("there are no nodes"))
}

#[test]
fn pods_of_a_node_that_is_deleted_run_on_the_other() {
    let outcome = in_virtual_time(async {
        let mut world = halves().await?;
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 6, "not all run: {}", facts.shown());
        let node = busiest(&facts)?;
        world.lab.inject(&node, NodeAction::Vanish);
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 6 && !facts.nodes.contains_key(&node), "not all run: {}", facts.shown());
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn a_node_that_is_deleted_while_pods_are_bound_to_it_holds_nobody_up() {
    let outcome = in_virtual_time(async {
        let mut world = World::start(fleet("t4x4*2")?, |_| {}).await?;
        workloads::deployment(&mut world, "half", 6, &Gpu::part("0.5"), objects::DEFAULT_QUEUE).await?;
        world.pass(Duration::from_millis(600)).await;
        let api: Api<Node> = Api::all(world.client.clone());
        world.lab.inject("t4x4-0", NodeAction::Vanish);
        // Who deletes a node by hand does it whether or not its machine is there.
        let _ = api.delete("t4x4-0", &DeleteParams::default()).await;
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 6, "not all run: {}", facts.shown());
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn a_cordoned_node_keeps_its_pods_and_gets_no_more() {
    let outcome = in_virtual_time(async {
        let mut world = World::start(fleet("t4x4")?, |_| {}).await?;
        workloads::deployment(&mut world, "half", 4, &Gpu::part("0.5"), objects::DEFAULT_QUEUE).await?;
        world.pass(A_WHILE).await;
        let api: Api<Node> = Api::all(world.client.clone());
        let cordon = |closed: bool| Patch::Merge(json!({"spec": {"unschedulable": closed}}));
        api.patch("t4x4-0", &PatchParams::default(), &cordon(true)).await?;
        world.pass(Duration::from_secs(1)).await;
        workloads::pod(&mut world, "late", &Gpu::part("0.5"), objects::DEFAULT_QUEUE).await?;
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 4 && facts.count(State::Waits) == 1, "{}", facts.shown());
        let why = facts.pods.iter().find(|pod| pod.name == "late").and_then(|pod| pod.refusals.get("PodScheduled"));
        ensure!(why.is_some_and(|why| why.contains("unschedulable")), "it says {why:?}");
        ensure!(
            super::told(&facts, "late", &["unschedulable"]),
            "no event tells why: {:?}",
            facts.events_about("late")
        );
        api.patch("t4x4-0", &PatchParams::default(), &cordon(false)).await?;
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 5, "not all run: {}", facts.shown());
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn after_a_reboot_with_other_uuids_containers_are_told_the_new_ones() {
    let outcome = in_virtual_time(async {
        let mut world = halves().await?;
        let facts = at_rest(&mut world).await?;
        let node = busiest(&facts)?;
        world.lab.inject(&node, NodeAction::Reboot { down: Duration::from_secs(30), new_uuids: true });
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 6, "not all run: {}", facts.shown());
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn after_a_reboot_in_the_midst_of_binds_all_run() {
    let outcome = in_virtual_time(async {
        let mut world = World::start(fleet("t4x4")?, |_| {}).await?;
        workloads::deployment(&mut world, "half", 8, &Gpu::part("0.5"), objects::DEFAULT_QUEUE).await?;
        world.pass(Duration::from_millis(900)).await;
        world.lab.inject("t4x4-0", NodeAction::Reboot { down: Duration::from_secs(45), new_uuids: true });
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 8, "not all run: {}", facts.shown());
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn a_jetson_that_comes_back_with_another_uuid_and_without_its_reservation_takes_pods_again() {
    let outcome = in_virtual_time(async {
        let mut world = World::start(fleet("thor")?, |_| {}).await?;
        workloads::pod(&mut world, "first", &Gpu::part("0.5"), objects::DEFAULT_QUEUE).await?;
        world.pass(A_WHILE).await;
        world.lab.inject("thor-0", NodeAction::Reboot { down: Duration::from_secs(30), new_uuids: true });
        world.pass(Duration::from_secs(10)).await;
        let reservations: Api<Pod> = Api::namespaced(world.client.clone(), namespaces::RESERVATION);
        reservations.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await?;
        world.pass(A_WHILE).await;
        // The first pod runs again by then: it was told a number, and that is still right.
        workloads::pod(&mut world, "second", &Gpu::part("0.5"), objects::DEFAULT_QUEUE).await?;
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 2, "not both run: {}", facts.shown());
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn pods_of_a_node_that_vanished_for_a_moment_keep_their_reservations() {
    let outcome = in_virtual_time(async {
        let mut world = World::start(fleet("t4x4*2")?, |_| {}).await?;
        workloads::deployment(&mut world, "half", 6, &Gpu::part("0.5"), objects::DEFAULT_QUEUE).await?;
        let facts = at_rest(&mut world).await?;
        let uids = reservation_uids(&world).await?;
        world.lab.inject(&busiest(&facts)?, NodeAction::Vanish);
        // Pods of a node that is gone are removed after 40 s.
        world.pass(Duration::from_secs(20)).await;
        world.lab.inject(&busiest(&facts)?, NodeAction::Resume);
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 6, "not all run: {}", facts.shown());
        ensure!(reservation_uids(&world).await? == uids, "other reservations: {}", facts.shown());
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn reservations_that_were_all_deleted_by_hand_come_back_with_the_devices_that_containers_have() {
    let outcome = in_virtual_time(async {
        let mut world = World::start(fleet("dgx-h100")?, |_| {}).await?;
        for number in 0..6 {
            workloads::pod(&mut world, &format!("pod-{number}"), &Gpu::part("0.9"), objects::DEFAULT_QUEUE).await?;
            world.pass(Duration::from_secs(20)).await;
        }
        // Two devices that the kubelet would give first are free by then.
        for name in ["pod-0", "pod-1"] {
            world.delete::<Pod>(name).await?;
        }
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 4, "not all run: {}", facts.shown());
        let uids = reservation_uids(&world).await?;
        let reservations: Api<Pod> = Api::namespaced(world.client.clone(), namespaces::RESERVATION);
        reservations.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 4, "not all run: {}", facts.shown());
        ensure!(reservation_uids(&world).await?.is_disjoint(&uids), "they were not deleted: {}", facts.shown());
        // And whoever comes later joins them.
        workloads::pod(&mut world, "late", &Gpu::part("0.1"), objects::DEFAULT_QUEUE).await?;
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 5 && facts.reservations.len() == 4, "{}", facts.shown());
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn a_whole_gpu_is_not_the_one_that_pods_share_whose_reservation_was_deleted_by_hand() {
    let outcome = in_virtual_time(async {
        let mut world = World::start(fleet("t4x4")?, |_| {}).await?;
        workloads::pod(&mut world, "shares", &Gpu::part("0.5"), objects::DEFAULT_QUEUE).await?;
        world.pass(A_WHILE).await;
        // A new one is made seconds after the old one is gone, and a pod comes for a whole GPU in between.
        let span = Span { from: Duration::from_secs(5), to: Duration::from_secs(6) };
        let (verb, resource) = (Some("create".to_owned()), Some("pods".to_owned()));
        let slow = ApiFault { verb, resource, trigger: Trigger::Probability(1.0), effect: ApiEffect::Delay(span) };
        world.processes.rule(&[slow]);
        let reservations: Api<Pod> = Api::namespaced(world.client.clone(), namespaces::RESERVATION);
        reservations.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        while !reservation_uids(&world).await?.is_empty() {
            world.pass(Duration::from_millis(100)).await;
        }
        workloads::pod(&mut world, "whole", &Gpu::Whole(1), objects::DEFAULT_QUEUE).await?;
        world.pass(A_WHILE).await;
        world.processes.rule(&[]);
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 2, "not both run: {}", facts.shown());
        let told = |name: &str| facts.pods.iter().find(|pod| pod.name == name).and_then(|pod| pod.told.clone());
        ensure!(told("shares").is_some() && told("shares") != told("whole"), "one GPU for both: {}", facts.shown());
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

async fn reservation_uids(world: &World) -> Result<BTreeSet<String>> {
    let reservations: Api<Pod> = Api::namespaced(world.client.clone(), namespaces::RESERVATION);
    Ok(reservations.list(&ListParams::default()).await?.items.iter().filter_map(kube::ResourceExt::uid).collect())
}
