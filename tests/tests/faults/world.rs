//! The embedded cluster with the control plane on it, both in this process and in virtual time.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
    time::Duration,
};

use anyhow::Context as _;
use futures::{StreamExt as _, stream::FuturesUnordered};
use jiff::Timestamp;
use kai_api::names::{namespaces, node_labels};
use kai_cli::control_plane::{ControlPlane, Part, Settings, install, reservation::InProcessPrograms};
use kai_clock::Clock;
use kai_lab::{
    cluster::{Lab, LabOptions},
    fleet::Fleet,
    programs::{ContainerStart, Programs, RunningProgram},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::Instant;

use crate::processes::{Processes, Who};

/// Where the workloads are.
pub const NAMESPACE: &str = "team";
/// How long a process that was killed is away.
pub const AWAY: Duration = Duration::from_secs(2);
/// How long the control plane may take to be ready.
const START: Duration = Duration::from_mins(2);
/// How often a user tries to create something while admission is away.
const TRIES: u32 = 60;
/// In virtual time: how often it is said that time passes.
const BEAT: Duration = Duration::from_secs(1);
/// In real time: who has not let a second pass within this never will.
const STANDSTILL: Duration = Duration::from_mins(2);

/// Cluster and control plane.
pub struct World {
    pub lab: Lab,
    pub plane: ControlPlane,
    pub processes: Processes,
    /// A client that meets no faults.
    pub client: Client,
    /// Parts that were killed, and when they come back.
    coming: BTreeMap<Part, Instant>,
}

/// The real program of reservation pods; each container is a process of its own, which a fault can kill.
struct ReservationPrograms(std::sync::OnceLock<Processes>);

impl Programs for ReservationPrograms {
    fn start(&self, start: ContainerStart) -> Option<RunningProgram> {
        let processes = self.0.get()?;
        if start.namespace != namespaces::RESERVATION {
            return None;
        }
        let programs = InProcessPrograms::default();
        let (client, killed) = processes.begin(Who::Reservation);
        programs.connect(client);
        programs.start(start).map(|program| program.killed_by(killed))
    }
}

/// A fleet from a list; Jetsons get the labels by which their owners tell of the GPU that nothing discovers.
pub fn fleet(list: &str) -> anyhow::Result<Fleet> {
    let mut fleet = Fleet::parse(list)?;
    for node in &mut fleet.nodes {
        // As rare as a node controller bears: heartbeats are most of what happens in a cluster at rest.
        (node.heartbeat, node.status_interval) = (Duration::from_secs(40), Duration::from_hours(1));
    }
    for node in fleet.nodes.iter_mut().filter(|node| node.shape.kernel.ends_with("-tegra")) {
        for (label, value) in [(node_labels::GPU_MEMORY, "131072"), (node_labels::GPU_COUNT, "1")] {
            if !node.shape.labels.contains_key(label) {
                node.labels.insert(label.to_owned(), value.to_owned());
            }
        }
    }
    Ok(fleet)
}

impl World {
    /// A cluster with these nodes; `change` sets the control plane up otherwise than by default.
    pub async fn start(fleet: Fleet, change: impl FnOnce(&mut Settings)) -> anyhow::Result<Self> {
        let seed = fleet.seed;
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse()?;
        let programs = Arc::new(ReservationPrograms(std::sync::OnceLock::new()));
        let mut options = LabOptions::new(fleet, Clock::starting_at(epoch));
        options.programs = Some(Arc::clone(&programs) as Arc<dyn Programs>);
        let lab = Lab::start(options);
        let processes = Processes::new(lab.router(), seed);
        // Nothing reserves anything before there is a control plane.
        let _ = programs.0.set(processes.clone());
        lab.ready().await;
        let client = lab.client();
        install::install(&client).await?;
        let mut settings = Settings::new(namespaces::KAI);
        settings.embedded = Some(lab.server().clone());
        change(&mut settings);
        let clients = processes.clone();
        let client_for = move |part| clients.begin(Who::Part(part)).0;
        let plane = ControlPlane::start(&Part::ALL, client_for, lab.clock(), settings);
        let mut world = Self { lab, plane, processes, client, coming: BTreeMap::new() };
        let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        world.create_in::<k8s_openapi::api::core::v1::Namespace>(Api::all(world.client.clone()), namespace).await?;
        tokio::time::timeout(START, world.plane.ready()).await.context("the control plane is not ready")??;
        Ok(world)
    }

    /// Creates something in the namespace of the workloads.
    pub async fn create<K>(&mut self, object: Value) -> anyhow::Result<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let api = Api::namespaced(self.client.clone(), NAMESPACE);
        self.create_in(api, object).await
    }

    /// Creates something, again and again while admission is away, as users do.
    pub async fn create_in<K>(&mut self, api: Api<K>, object: Value) -> anyhow::Result<K>
    where
        K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object)?;
        for _ in 0..TRIES {
            match api.create(&PostParams::default(), &object).await {
                Ok(made) => return Ok(made),
                Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => {
                    self.pass(Duration::from_secs(1)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        anyhow::bail!("nobody answers for admission")
    }

    /// Deletes something as users do; what is gone already is fine.
    pub async fn delete<K>(&self, name: &str) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), NAMESPACE);
        match api.delete(name, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            answer => Ok(answer.map(drop)?),
        }
    }

    /// Kills a part; it comes back after some time.
    pub fn kill(&mut self, part: Part, away: Duration) {
        self.plane.kill(part);
        self.coming.insert(part, Instant::now() + away);
    }

    /// Starts what was killed.
    fn bring_back(&mut self, everybody: bool) {
        let now = Instant::now();
        let due: Vec<Part> =
            self.coming.iter().filter(|(_, at)| everybody || **at <= now).map(|(part, _)| *part).collect();
        for part in due {
            self.coming.remove(&part);
            self.plane.start_part(part);
        }
    }

    /// Whoever is away comes back now.
    pub fn bring_all_back(&mut self) {
        self.bring_back(true);
    }

    /// Lets time pass. Processes that a fault kills meanwhile come back after [`AWAY`].
    pub async fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            self.bring_back(false);
            let tokens = Part::ALL.into_iter().filter(|part| !self.coming.contains_key(part));
            let tokens: Vec<_> =
                tokens.filter_map(|part| Some((part, self.processes.killed(Who::Part(part))?))).collect();
            let deaths = tokens.into_iter().map(|(part, token)| async move {
                token.cancelled().await;
                part
            });
            let mut deaths: FuturesUnordered<_> = deaths.collect();
            let next = self.coming.values().min().copied().unwrap_or(end).min(end);
            tokio::select! {
                biased;
                Some(part) = deaths.next() => self.kill(part, AWAY),
                () = tokio::time::sleep_until(next) => {}
            }
            if Instant::now() >= end {
                self.bring_back(false);
                return;
            }
        }
    }

    /// The names of the objects of a kind in the namespace of the workloads.
    pub async fn names<K>(&self) -> anyhow::Result<Vec<String>>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), NAMESPACE);
        Ok(api.list(&kube::api::ListParams::default()).await?.items.iter().map(kube::ResourceExt::name_any).collect())
    }

    /// Ends everything.
    pub async fn end(self) {
        self.plane.shutdown().await;
        self.lab.shutdown().await;
    }
}

/// Runs something in a runtime of its own whose time is virtual. A panic in there is an error; who never lets time pass ends the process.
pub fn in_virtual_time<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    let (beat, beats) = mpsc::channel();
    watch_for_spinning(beats);
    runtime.spawn(async move {
        while beat.send(()).is_ok() {
            tokio::time::sleep(BEAT).await;
        }
    });
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(work)));
    outcome.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(anyhow::anyhow!("panic: {}", text.unwrap_or_default()))
    })
}

/// Ends the process when beats stop coming before their sender is gone: a test of virtual time that spins would never end by itself.
fn watch_for_spinning(beats: mpsc::Receiver<()>) {
    let what = std::thread::current().name().unwrap_or("a test").to_owned();
    std::thread::spawn(move || {
        loop {
            match beats.recv_timeout(STANDSTILL) {
                Ok(()) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    eprintln!("{what}: virtual time stands still, somebody works without end and without waiting");
                    std::process::exit(1);
                }
            }
        }
    });
}
