//! The binder as a process: watches, one queue of requests, one of nodes, and a clock that repeats both.

use std::{sync::Arc, time::Duration};

use kai_api::names::leases;
use kai_kit::{Process, lease};
use tokio_util::sync::CancellationToken;

use crate::{
    binding::Binder,
    metrics::Metrics,
    options::Options,
    reservation::Keeper,
    settings::{Current, Settings},
    world::World,
};

/// Nodes whose reservations are looked at together.
const NODES: usize = 16;
/// The pause before settings are asked for again that could not be read.
const PAUSE: Duration = Duration::from_secs(2);

/// Why the binder could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A flag has JSON that cannot be read.
    #[error("flag {flag} is not what Kubernetes takes there")]
    Flag {
        /// The flag.
        flag: &'static str,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// A flag says something about plugins that cannot be done.
    #[error("{0}")]
    Plugins(String),
}

/// Binds pods until the process is told to end.
pub async fn run(process: Process, options: Options) -> Result<(), Error> {
    let settings = Current::new(Settings::of(&options)?);
    process.health.not_ready("settings", "not read yet");
    while let Err(error) = settings.read(&process).await {
        process.health.not_ready("settings", error.to_string());
        if !process.sleep(PAUSE).await {
            return Ok(());
        }
    }
    process.health.ready("settings");
    tokio::spawn(settings.clone().follow(process.clone()));
    let metrics = Metrics::new(&process);
    let world = Arc::new(World::start(process.clone(), &options, settings));
    tokio::select! {
        () = process.cancel.cancelled() => return Ok(()),
        () = world.ready() => {}
    }
    if !options.leader_elect {
        work(&world, &metrics, &options, process.cancel.clone()).await;
        return Ok(());
    }
    while !process.cancel.is_cancelled() {
        let lead = |token| work(&world, &metrics, &options, token);
        lease::lead(&process, leases::BINDER, lease::Times::default(), lead).await;
    }
    Ok(())
}

async fn work(world: &Arc<World>, metrics: &Metrics, options: &Options, cancel: CancellationToken) {
    // What went wrong before is known from the requests that still wait.
    let keeper = Arc::new(Keeper::new(Arc::clone(world)));
    let binder = Binder { world: Arc::clone(world), keeper: Arc::clone(&keeper), metrics: metrics.clone() };
    let _awake = Awake::new(world);
    let requests = world.request_queue.run(options.max_concurrent_reconciles, &cancel, |key| binder.work(key));
    let nodes = world.node_queue.run(NODES, &cancel, |node| keeper.pass(node));
    let clock = async {
        loop {
            tokio::time::sleep(Duration::from_secs(options.resync_period.max(1))).await;
            world.resync();
        }
    };
    tokio::select! {
        () = async { tokio::join!(requests, nodes); } => {}
        () = clock => {}
    }
}

/// Changes are heard while this lives: work that loses its lease is dropped in the middle.
struct Awake<'a>(&'a World);

impl<'a> Awake<'a> {
    fn new(world: &'a World) -> Self {
        world.wake();
        Self(world)
    }
}

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        self.0.rest();
    }
}
