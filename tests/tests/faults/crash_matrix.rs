//! Every write of every process on the way of one fractional pod, and everything that can meet it.
//!
//! A run without faults tells the writes. Then, once per write and blow, the same run with exactly that: the process is killed before
//! or after the write, its answer is lost, the server refuses it, or the pod is deleted at that moment.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use kai_api::names::objects;
use kai_lab::faults::ApiEffect;
use kube::{Api, Client, api::DeleteParams};

use crate::{
    invariants::{self, State},
    processes::{Blow, Deed, Strike, Who},
    settle::settle,
    workloads::{self, Gpu},
    world::{NAMESPACE, World, fleet, in_virtual_time},
};

/// The pod it is about.
const SUBJECT: &str = "subject";
/// Until a pod runs when nothing goes wrong.
const HAPPY: Duration = Duration::from_mins(1);

/// What happens.
#[derive(Clone, Copy, Debug)]
struct Story {
    fleet: &'static str,
    /// A pod that runs before, with this part.
    neighbour: Option<&'static str>,
    gpu: fn() -> Gpu,
    /// Whether the pod runs before and is deleted, instead of being created.
    leaves: bool,
}

const FIRST: Story = Story { fleet: "t4x4", neighbour: None, gpu: || Gpu::part("0.5"), leaves: false };
const SECOND: Story = Story { neighbour: Some("0.5"), ..FIRST };
const SEVERAL: Story = Story { neighbour: Some("0.6"), gpu: || Gpu::Fraction("0.5".to_owned(), 2), ..FIRST };
const JETSON: Story = Story { fleet: "thor", gpu: || Gpu::Memory(30_720, 1), ..FIRST };
const LEAVING: Story = Story { leaves: true, ..FIRST };

/// What meets a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meets {
    Fault(ApiEffect),
    PodDeletedBefore,
    PodDeletedAfter,
}

/// Fewer points than this would mean that the writes were not seen.
const MANY: usize = 10 * FEW;
/// How many of the blows a normal run tries; with `KAI_FAULT_SEEDS` all are tried.
const FEW: usize = 2;

const BLOWS: [Meets; 9] = [
    Meets::Fault(ApiEffect::KillBefore),
    Meets::Fault(ApiEffect::KillAfter),
    Meets::Fault(ApiEffect::LostAnswer),
    Meets::Fault(ApiEffect::Reset),
    Meets::Fault(ApiEffect::Error(500)),
    Meets::Fault(ApiEffect::Error(409)),
    Meets::Fault(ApiEffect::Error(503)),
    Meets::PodDeletedBefore,
    Meets::PodDeletedAfter,
];

fn blow(meets: Meets, client: &Client) -> Blow {
    let client = client.clone();
    let delete: Deed = Arc::new(move || {
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        async move {
            // It may not be there yet, or not any more.
            let _ = pods.delete(SUBJECT, &DeleteParams::default()).await;
        }
        .boxed()
    });
    match meets {
        Meets::Fault(effect) => Blow::Fault(effect),
        Meets::PodDeletedBefore => Blow::Before(delete),
        Meets::PodDeletedAfter => Blow::After(delete),
    }
}

impl Story {
    async fn world(self) -> Result<World> {
        let mut world = World::start(fleet(self.fleet)?, |_| {}).await?;
        if let Some(part) = self.neighbour {
            workloads::pod(&mut world, "neighbour", &Gpu::part(part), objects::DEFAULT_QUEUE).await?;
        }
        if self.leaves {
            workloads::pod(&mut world, SUBJECT, &(self.gpu)(), objects::DEFAULT_QUEUE).await?;
        }
        world.pass(HAPPY).await;
        Ok(world)
    }

    async fn act(self, world: &mut World) -> Result<()> {
        if self.leaves {
            world.delete::<Pod>(SUBJECT).await?;
        } else {
            workloads::pod(world, SUBJECT, &(self.gpu)(), objects::DEFAULT_QUEUE).await?;
        }
        world.pass(HAPPY).await;
        Ok(())
    }

    /// The writes of a run without faults.
    async fn writes(self) -> Result<Vec<(Who, usize, String)>> {
        let mut world = self.world().await?;
        world.processes.arm(None);
        self.act(&mut world).await?;
        let writes = world.processes.writes();
        self.after(&mut world, false).await?;
        world.end().await;
        let numbered = |(who, writes): (Who, Vec<String>)| {
            writes.into_iter().enumerate().map(move |(index, write)| (who, index + 1, write))
        };
        Ok(writes.into_iter().flat_map(numbered).collect())
    }

    /// A run in which a write is met by something.
    async fn strike(self, world: &mut World, who: Who, nth: usize, meets: Meets) -> Result<()> {
        let blow = blow(meets, &world.client);
        world.processes.arm(Some(Strike { who, nth, blow }));
        self.act(world).await?;
        world.processes.struck().context("the write was never made")?;
        let deleted = matches!(meets, Meets::PodDeletedBefore | Meets::PodDeletedAfter);
        self.after(world, deleted).await
    }

    fn blows() -> &'static [Meets] {
        let all = std::env::var_os("KAI_FAULT_SEEDS").is_some();
        if all { &BLOWS } else { &BLOWS[..FEW] }
    }

    /// Everything that can meet one write, one after the other in the same world; gives what went wrong.
    async fn strikes(self, who: Who, nth: usize, write: &str) -> Result<Vec<String>> {
        let mut failures = Vec::new();
        let mut world = self.world().await?;
        for meets in Self::blows().iter().copied() {
            if let Err(error) = self.strike(&mut world, who, nth, meets).await {
                failures.push(format!("{who}, write {nth} ({write}), {meets:?}: {error:#}"));
                world.end().await;
                world = self.world().await?;
                continue;
            }
            self.back_to_the_beginning(&mut world).await?;
        }
        world.end().await;
        Ok(failures)
    }

    async fn back_to_the_beginning(self, world: &mut World) -> Result<()> {
        if self.leaves {
            workloads::pod(world, SUBJECT, &(self.gpu)(), objects::DEFAULT_QUEUE).await?;
        } else {
            world.delete::<Pod>(SUBJECT).await?;
        }
        // Longer than events are counted up.
        world.pass(HAPPY * 2).await;
        Ok(())
    }

    async fn after(self, world: &mut World, deleted: bool) -> Result<()> {
        settle(world).await?;
        let facts = invariants::check(world).await?;
        let subject = facts.pods.iter().find(|pod| pod.name == SUBJECT);
        let runs = subject.is_some_and(|pod| pod.state == State::Runs);
        if self.leaves || deleted {
            ensure!(subject.is_none(), "the pod was deleted and is there: {}", facts.shown());
        } else {
            ensure!(runs, "the pod does not run: {}", facts.shown());
        }
        let neighbour = facts.pods.iter().find(|pod| pod.name == "neighbour");
        let stays = neighbour.is_none_or(|pod| pod.state == State::Runs);
        ensure!(stays && neighbour.is_some() == self.neighbour.is_some(), "the neighbour was disturbed");
        Ok(())
    }

    /// All points; returns how many there were.
    fn play(self) -> usize {
        let writes = in_virtual_time(self.writes()).expect("a run without faults");
        let lines: Vec<String> = writes.iter().map(|(who, nth, write)| format!("  {who} {nth}: {write}")).collect();
        println!("{} writes:\n{}", writes.len(), lines.join("\n"));
        let mut failures = Vec::new();
        let mut points = 0;
        for (who, nth, write) in &writes {
            points += Self::blows().len();
            match in_virtual_time(self.strikes(*who, *nth, write)) {
                Ok(broken) => failures.extend(broken),
                Err(error) => failures.push(format!("{who}, write {nth} ({write}): {error:#}")),
            }
        }
        println!("{points} points, {} failed", failures.len());
        assert!(failures.is_empty(), "{} of {points} points failed:\n{}", failures.len(), failures.join("\n\n"));
        points
    }
}

#[test]
fn a_fractional_pod_survives_everything_that_can_meet_any_write() {
    assert!(FIRST.play() >= 2 * MANY);
}

#[test]
fn so_does_the_second_pod_on_a_shared_device() {
    assert!(SECOND.play() >= MANY);
}

#[test]
fn so_does_a_pod_that_shares_two_devices() {
    assert!(SEVERAL.play() >= MANY);
}

#[test]
fn so_does_a_pod_on_a_jetson_that_asks_for_memory() {
    assert!(JETSON.play() >= MANY);
}

#[test]
fn so_does_the_end_of_the_last_pod_on_a_shared_device() {
    LEAVING.play();
}
