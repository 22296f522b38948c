//! An API server that nobody reaches for a minute.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use kai_api::names::objects;
use kai_lab::faults::{ApiEffect, ApiFault, Trigger};

use super::at_rest;
use crate::{
    invariants::State,
    workloads::{self, Gpu},
    world::{World, fleet, in_virtual_time},
};

#[test]
fn an_api_server_that_is_away_for_a_minute_in_the_midst_of_binds_costs_time_and_nothing_else() {
    let outcome = in_virtual_time(async {
        let mut world = World::start(fleet("t4x4*2")?, |_| {}).await?;
        for number in 0..12 {
            workloads::pod(&mut world, &format!("pod-{number}"), &Gpu::part("0.5"), objects::DEFAULT_QUEUE).await?;
        }
        world.pass(Duration::from_millis(700)).await;
        let away = ApiFault { verb: None, resource: None, trigger: Trigger::Always, effect: ApiEffect::Reset };
        world.processes.rule(std::slice::from_ref(&away));
        world.lab.faults().set(vec![away]);
        world.pass(Duration::from_mins(1)).await;
        for number in 0..2 {
            world.delete::<Pod>(&format!("pod-{number}")).await?;
        }
        world.processes.rule(&[]);
        world.lab.faults().set(Vec::new());
        let facts = at_rest(&mut world).await?;
        ensure!(facts.count(State::Runs) == 10, "not all run: {}", facts.shown());
        world.end().await;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}
