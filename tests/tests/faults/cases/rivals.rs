//! Two schedulers alive at once: without an election, and with a lease that is stolen.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kai_api::names::{namespaces, objects};
use kai_cli::control_plane::{ControlPlane, Part, Settings};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::{A_WHILE, at_rest};
use crate::{
    invariants::State,
    processes::Who,
    workloads::{self, Gpu},
    world::{World, fleet, in_virtual_time},
};

/// A second scheduler on the same cluster.
fn second(world: &World, elect: bool) -> ControlPlane {
    let mut settings = Settings::new(namespaces::KAI);
    "rival".clone_into(&mut settings.identity);
    settings.elect_leaders(elect);
    let clients = world.processes.clone();
    ControlPlane::start(&[Part::Scheduler], move |_| clients.begin(Who::Rival).0, world.lab.clock(), settings)
}

async fn crowd(world: &mut World) -> Result<()> {
    for number in 0..10 {
        workloads::pod(world, &format!("pod-{number}"), &Gpu::part("0.5"), objects::DEFAULT_QUEUE).await?;
        world.pass(Duration::from_millis(50)).await;
    }
    workloads::gang(world, "gang", 2, &Gpu::Whole(1), objects::DEFAULT_QUEUE).await?;
    Ok(())
}

#[test]
fn two_schedulers_without_an_election_give_no_device_away_twice() {
    let outcome = in_virtual_time(async {
        let mut world = World::start(fleet("t4x4*2")?, |_| {}).await?;
        let rival = second(&world, false);
        crowd(&mut world).await?;
        world.pass(A_WHILE).await;
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 12, "not all run: {}", facts.shown());
        rival.shutdown().await;
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn a_scheduler_whose_lease_is_stolen_stops_and_the_thief_goes_on() {
    let outcome = in_virtual_time(async {
        let mut world = World::start(fleet("t4x4*2")?, |settings| settings.elect_leaders(true)).await?;
        let rival = second(&world, true);
        crowd(&mut world).await?;
        world.pass(Duration::from_millis(300)).await;
        let leases: Api<Lease> = Api::namespaced(world.client.clone(), namespaces::KAI);
        let names: Vec<Option<String>> =
            leases.list(&ListParams::default()).await?.items.into_iter().map(|lease| lease.metadata.name).collect();
        ensure!(names.contains(&Some(objects::SCHEDULER.to_owned())), "the leases are {names:?}");
        let stolen = json!({"spec": {"holderIdentity": "somebody-else"}});
        leases.patch(objects::SCHEDULER, &PatchParams::default(), &Patch::Merge(stolen)).await?;
        workloads::pod(&mut world, "late", &Gpu::part("0.5"), objects::DEFAULT_QUEUE).await?;
        world.pass(A_WHILE).await;
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 13, "not all run: {}", facts.shown());
        rival.shutdown().await;
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}
