//! The control plane: any set of the components in this process, each with its own client, identity and end.
//!
//! ```text
//!  ControlPlane ──starts──▶ Part ──runs in──▶ one task, one Process (client, cancel token, health, metrics, events)
//!       │ stop: told to end, says goodbye
//!       └ kill: its lifeline is cut, its task dropped; nothing it still wanted to do arrives
//! ```
//!
//! `kai all`, `kai up` and the tests start it; the commands for single components are one part of it. Parts meet in objects only.

mod in_process;
pub mod install;
mod lifeline;
pub mod rbac;
pub mod reservation;

use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

use anyhow::Context as _;
use kai_apiserver::ApiServer;
use kai_clock::Clock;
use kai_kit::{Health, Metrics, Process, SharedWatches, rbac::Right, refusals::Refusals};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

pub use self::lifeline::Way;

/// How long a part may take to end when it is told to.
const GOODBYE: Duration = Duration::from_secs(10);
/// How often readiness is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// A component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Gives each pod its group.
    PodGrouper,
    /// Decides.
    Scheduler,
    /// Carries decisions out.
    Binder,
    /// Keeps the statuses of groups and queues.
    Controllers,
    /// Completes and refuses objects before they are stored.
    Admission,
}

impl Part {
    /// Every component.
    pub const ALL: [Self; 5] = [Self::PodGrouper, Self::Scheduler, Self::Binder, Self::Controllers, Self::Admission];

    /// Its name on the command line, in events, leases and field managers.
    pub fn component(self) -> &'static str {
        match self {
            Self::PodGrouper => "pod-grouper",
            Self::Scheduler => "scheduler",
            Self::Binder => "binder",
            Self::Controllers => "controllers",
            Self::Admission => "admission",
        }
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.component())
    }
}

/// How the parts are set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace of the components and their leases.
    pub namespace: String,
    /// Begins the identity of every part; the rest is the component and how often it was started.
    pub identity: String,
    /// What the names of metrics begin with.
    pub metrics_prefix: String,
    /// Of the pod-grouper.
    pub pod_grouper: kai_podgrouper::Options,
    /// Of the scheduler.
    pub scheduler: kai_scheduler::Options,
    /// Of the binder.
    pub binder: kai_binder::Options,
    /// Of the controllers.
    pub controllers: kai_controllers::Options,
    /// Of the admission server.
    pub admission: kai_admission::Options,
    /// An embedded API server that calls admission in this process; without it, admission serves over TLS.
    pub embedded: Option<ApiServer>,
    /// Whether the parts hear of changes through the same watches, which is for parts that may read the same.
    pub share_watches: bool,
}

impl Settings {
    /// The defaults of every component, one replica of each.
    pub fn new(namespace: impl Into<String>) -> Self {
        let mut settings = Self {
            namespace: namespace.into(),
            identity: "kai".to_owned(),
            metrics_prefix: "kai".to_owned(),
            pod_grouper: kai_podgrouper::Options::default(),
            scheduler: kai_scheduler::Options::default(),
            binder: kai_binder::Options::default(),
            controllers: kai_controllers::Options::default(),
            admission: kai_admission::Options::default(),
            embedded: None,
            share_watches: false,
        };
        settings.elect_leaders(false);
        settings
    }

    /// Whether the parts wait for a lease, for when there are several replicas.
    pub fn elect_leaders(&mut self, elect: bool) {
        self.pod_grouper.leader_elect = elect;
        self.scheduler.leader_elect = elect;
        self.binder.leader_elect = elect;
        self.controllers.leader_elect = elect;
    }
}

impl Settings {
    /// Pods that name this scheduler are ours.
    pub fn name_scheduler(&mut self, name: &str) {
        let names = [
            &mut self.pod_grouper.scheduler_name,
            &mut self.binder.scheduler_name,
            &mut self.controllers.scheduler_name,
            &mut self.admission.scheduler_name,
        ];
        for scheduler_name in names {
            name.clone_into(scheduler_name);
        }
        self.scheduler.scheduler_name = Some(name.to_owned());
    }

    /// What a part may do, with the options it has here.
    pub fn rights(&self, part: Part) -> Vec<Right> {
        match part {
            Part::PodGrouper => self.pod_grouper.rights(&self.namespace),
            other => rbac::Holder::Part(other).rights(&self.namespace),
        }
    }

    /// Lets admission serve on a loopback port, for an API server on the same machine.
    pub fn serve_admission_on_loopback(&mut self, port: u16) {
        self.admission.webhook_listen = (Ipv4Addr::LOCALHOST, port).into();
        self.admission.webhook_url = Some(format!("https://127.0.0.1:{port}"));
    }
}

/// A part that was started.
struct Running {
    process: Process,
    /// Cutting it is killing the part.
    cut: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
    /// Which start of the control plane's this was.
    start: u64,
}

/// Tells of the end of a part, whichever way it ends.
struct Farewell {
    part: Part,
    start: u64,
    ends: mpsc::UnboundedSender<(Part, u64)>,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        // Nobody listens when the control plane is gone.
        let _ = self.ends.send((self.part, self.start));
    }
}

type WayFor = Box<dyn Fn(Part) -> Way + Send + Sync>;

/// Running parts.
pub struct ControlPlane {
    way_for: WayFor,
    clock: Clock,
    settings: Settings,
    running: BTreeMap<Part, Running>,
    shared: Option<SharedWatches>,
    /// Ends the shared watches.
    end_of_shared: CancellationToken,
    starts: u64,
    end: mpsc::UnboundedSender<(Part, u64)>,
    ends: mpsc::UnboundedReceiver<(Part, u64)>,
}

impl ControlPlane {
    /// Starts parts. Must be called inside a tokio runtime; they become ready in the background ([`ControlPlane::ready`]).
    pub fn start<W: Into<Way>>(
        parts: &[Part],
        way_for: impl Fn(Part) -> W + Send + Sync + 'static,
        clock: Clock,
        settings: Settings,
    ) -> Self {
        let (end, ends) = mpsc::unbounded_channel();
        let (way_for, running): (WayFor, _) = (Box::new(move |part| way_for(part).into()), BTreeMap::new());
        let end_of_shared = CancellationToken::new();
        // The scheduler watches everything that others do.
        let shared = settings
            .share_watches
            .then(|| SharedWatches::new(way_for(Part::Scheduler).client(), end_of_shared.clone()));
        let mut control_plane = Self { way_for, clock, settings, running, shared, end_of_shared, starts: 0, end, ends };
        for part in parts {
            control_plane.start_part(*part);
        }
        control_plane
    }

    /// Starts one part, as a new process would. One that runs already is killed first.
    pub fn start_part(&mut self, part: Part) {
        self.kill(part);
        self.starts += 1;
        let (cut, cancel) = (CancellationToken::new(), CancellationToken::new());
        let (way, health) = ((self.way_for)(part), Health::default());
        let rights = self.settings.rights(part);
        let refusals = Refusals::new(rights, way.client(), health.clone(), cut.clone());
        let client = way.guarded(cut.clone(), refusals);
        let identity = format!("{}-{part}-{}", self.settings.identity, self.starts);
        let namespace = self.settings.namespace.clone();
        let mut process = Process::new(part.component(), client, self.clock, cancel, namespace, identity);
        process.health = health;
        process.shared.clone_from(&self.shared);
        process.metrics = Metrics::with_prefix(&self.settings.metrics_prefix);
        let work = run(part, process.clone(), self.settings.clone());
        let farewell = Farewell { part, start: self.starts, ends: self.end.clone() };
        let task = tokio::spawn(async move {
            let _farewell = farewell;
            work.await
        });
        self.running.insert(part, Running { process, cut, task, start: self.starts });
    }

    /// Ends a part without a goodbye, as `kill -9` does.
    pub fn kill(&mut self, part: Part) {
        let Some(running) = self.running.remove(&part) else { return };
        running.cut.cancel();
        running.task.abort();
        running.process.cancel.cancel();
        if part == Part::Admission
            && let Some(server) = &self.settings.embedded
        {
            server.admission().forget_service(&self.settings.namespace, &self.settings.admission.webhook_service);
        }
    }

    /// Tells a part to end and waits until it has.
    pub async fn stop_part(&mut self, part: Part) {
        let Some(running) = self.running.get_mut(&part) else { return };
        running.process.cancel.cancel();
        if tokio::time::timeout(GOODBYE, &mut running.task).await.is_err() {
            tracing::warn!(%part, "did not end in time");
        }
        self.kill(part);
    }

    /// A token that kills a part when it is cancelled: for tests that kill in the middle of a call. The part counts as started
    /// until [`ControlPlane::start_part`] replaces it.
    pub fn kill_switch(&self, part: Part) -> Option<CancellationToken> {
        self.running.get(&part).map(|running| running.cut.clone())
    }

    /// Whether a part was started and has not ended.
    pub fn is_running(&self, part: Part) -> bool {
        self.running.get(&part).is_some_and(|running| !running.task.is_finished() && !running.cut.is_cancelled())
    }

    /// What is ready of a part.
    pub fn health(&self, part: Part) -> Option<Health> {
        self.running.get(&part).map(|running| running.process.health.clone())
    }

    /// What a part counts.
    pub fn metrics(&self, part: Part) -> Option<Metrics> {
        self.running.get(&part).map(|running| running.process.metrics.clone())
    }

    /// Waits until all parts are ready. An error if one has ended, with the reason if it gave one.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        // A part names its conditions within the first moments, so being ready once proves nothing.
        let mut in_a_row = 0;
        while in_a_row < 3 {
            let ended = self.running.iter().find(|(_, running)| running.task.is_finished());
            if let Some((part, _)) = ended {
                let part = *part;
                return match self.outcome(part).await {
                    Ok(()) => Err(anyhow::anyhow!("the {part} ended at its start")),
                    Err(error) => Err(error),
                };
            }
            let ready = self.running.values().all(|running| running.process.health.unmet().is_empty());
            in_a_row = if ready { in_a_row + 1 } else { 0 };
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// What the parts still wait for, as lines.
    pub fn unmet(&self) -> Vec<String> {
        let unmet = self.running.iter().flat_map(|(part, running)| {
            let unmet = running.process.health.unmet().into_iter();
            unmet.map(move |(condition, reason)| format!("{part}: {condition}: {reason}"))
        });
        unmet.collect()
    }

    /// Waits until a part ends by itself, and says which and how.
    pub async fn ended(&mut self) -> (Part, anyhow::Result<()>) {
        loop {
            let Some((part, start)) = self.ends.recv().await else { return std::future::pending().await };
            // Who was killed or stopped has been replaced or taken out by now.
            if self.running.get(&part).is_some_and(|running| running.start == start) {
                let outcome = self.outcome(part).await;
                return (part, outcome);
            }
        }
    }

    /// Tells all parts to end and waits until they have. Who decides goes first, who carries out last.
    pub async fn shutdown(mut self) {
        for running in self.running.values() {
            running.process.cancel.cancel();
        }
        for part in Part::ALL {
            self.stop_part(part).await;
        }
    }

    async fn outcome(&mut self, part: Part) -> anyhow::Result<()> {
        let Some(running) = self.running.remove(&part) else { return Ok(()) };
        running.cut.cancel();
        running.process.cancel.cancel();
        flatten(running.task.await).with_context(|| format!("the {part} failed"))
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        for part in Part::ALL {
            self.kill(part);
        }
        self.end_of_shared.cancel();
    }
}

fn flatten(outcome: Result<anyhow::Result<()>, tokio::task::JoinError>) -> anyhow::Result<()> {
    outcome.unwrap_or_else(|error| Err(error.into()))
}

/// Runs one component until it is told to end.
async fn run(part: Part, process: Process, mut settings: Settings) -> anyhow::Result<()> {
    // The two know of each other what they take for granted.
    settings.scheduler.implied_groups &= settings.pod_grouper.groups_as_implied();
    if !settings.scheduler.implied_groups {
        settings.pod_grouper.put_off_from = 0;
    }
    match part {
        Part::PodGrouper => kai_podgrouper::run(process, settings.pod_grouper).await?,
        Part::Scheduler => kai_scheduler::run(process, settings.scheduler).await?,
        Part::Binder => kai_binder::run(process, settings.binder).await?,
        Part::Controllers => kai_controllers::run(process, settings.controllers).await?,
        Part::Admission => match settings.embedded {
            Some(server) => in_process::run(process, settings.admission, &server).await?,
            None => kai_admission::run(process, settings.admission).await?,
        },
    }
    Ok(())
}

#[cfg(test)]
mod tests;
