//! What is said about pods that wait is said even by a scheduler that dies in the midst of it.

use anyhow::{Context as _, ensure};
use kai_cli::control_plane::Part;
use kai_lab::faults::ApiEffect;

use super::{A_WHILE, at_rest};
use crate::{
    invariants::State,
    processes::{Blow, Strike, Who},
    workloads::{self, Gpu},
    world::{World, fleet, in_virtual_time},
};

#[test]
fn who_waits_is_told_so_by_an_event_whenever_the_scheduler_dies() {
    for nth in 1..=8 {
        let outcome = in_virtual_time(async {
            let mut world = World::start(fleet("t4x4")?, |_| {}).await?;
            workloads::queue(&mut world, "tight", 2).await?;
            world.pass(A_WHILE).await;
            let who = Who::Part(Part::Scheduler);
            world.processes.arm(Some(Strike { who, nth, blow: Blow::Fault(ApiEffect::KillAfter) }));
            workloads::gang(&mut world, "gang", 3, &Gpu::part("0.7"), "tight").await?;
            world.pass(A_WHILE).await;
            world.processes.struck().context("the write was never made")?;
            // That every one of them has its event is among the invariants.
            let facts = at_rest(&mut world).await?;
            ensure!(facts.count(State::Waits) == 3, "{}", facts.shown());
            world.end().await;
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("killed after write {nth}: {error:#}"));
    }
}
