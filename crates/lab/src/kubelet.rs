//! The kubelets of a fleet: one task, one pod watch and one timer heap for all nodes of the process.
//!
//! ```text
//!  pod watch --+                +-> admission, devices -> PodMachine -+
//!  node watch -+-> one loop ----+                                     +-> writes (ordered per object, bounded) -> API
//!  timers -----+                +-> heartbeats, node status, faults --+
//! ```
//!
//! Writes state what is, not what happened: a failed one is tried again with what is true by then. Nothing here iterates a
//! hash map or races two branches, so a run in a paused single-threaded runtime repeats exactly.

mod containers;
mod events;
mod machines;
mod nodes;
mod pods;
mod reboot;
mod state;
mod writes;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use axum::Router;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kai_apiserver::NodeProxy;
use kai_clock::Clock;
use kube::{
    Api, Client,
    core::DeserializeGuard,
    runtime::{
        WatchStreamExt,
        utils::Backoff,
        watcher::{self, Event, watcher},
    },
};
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use self::{
    containers::ProgramExit,
    machines::{Machines, Told},
    state::{NodeState, PodEntry, PodKey},
    writes::Writes,
};
use crate::{
    device::PodDevices,
    environment::Environment,
    faults::{NodeAction, NodeFault},
    fleet::Fleet,
    logs::Logs,
    programs::Programs,
    record::Recorder,
    seed::Seed,
};

/// What the kubelets of a process need.
pub struct NodesOptions {
    /// How they reach the API server.
    pub client: Client,
    /// Their clock.
    pub clock: Clock,
    /// Who they are.
    pub fleet: Fleet,
    /// Where transitions are noted.
    pub recorder: Recorder,
    /// Ends them.
    pub cancel: CancellationToken,
    /// Runs containers by real programs; without it all are simulated.
    pub programs: Option<Arc<dyn Programs>>,
    /// Where heartbeats are noted; those of kubelets that start again go on where the old ones ended.
    pub(crate) heartbeats: Heartbeats,
    /// The machines, where others ran kubelets on them before.
    pub(crate) machines: Option<Machines>,
}

impl NodesOptions {
    /// Nodes whose containers are all simulated.
    pub fn new(client: Client, fleet: Fleet, clock: Clock, recorder: Recorder, cancel: CancellationToken) -> Self {
        Self {
            client,
            clock,
            fleet,
            recorder,
            cancel,
            programs: None,
            heartbeats: Heartbeats::default(),
            machines: None,
        }
    }
}

/// Running kubelets.
pub struct Nodes {
    commands: mpsc::UnboundedSender<(String, NodeAction)>,
    names: Arc<BTreeSet<String>>,
    logs: Logs,
    board: DeviceBoard,
    environments: EnvironmentBoard,
    heartbeats: Heartbeats,
    registered: watch::Receiver<usize>,
    cancel: CancellationToken,
    /// None once they have ended.
    task: Option<JoinHandle<Machines>>,
}

/// Who holds which devices, for tests to ask.
type DeviceBoard = Arc<Mutex<BTreeMap<PodKey, PodDevices>>>;

/// What each container was told at its last start, for tests to ask.
type EnvironmentBoard = Arc<Mutex<BTreeMap<PodKey, BTreeMap<String, Environment>>>>;

/// When each node last renewed its lease with success.
pub(crate) type Heartbeats = Arc<Mutex<BTreeMap<String, Timestamp>>>;

impl Nodes {
    /// Starts the kubelets; they register at once.
    pub fn start(options: NodesOptions) -> Self {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (registered_count, registered) = watch::channel(0);
        let logs = Logs::new(options.clock);
        let board = DeviceBoard::default();
        let environments = EnvironmentBoard::default();
        let heartbeats = options.heartbeats.clone();
        let names = Arc::new(options.fleet.nodes.iter().map(|node| node.name.clone()).collect());
        let cancel = options.cancel.clone();
        let (exits, ended) = mpsc::unbounded_channel();
        let shared = Shared {
            logs: logs.clone(),
            board: board.clone(),
            environments: environments.clone(),
            heartbeats: heartbeats.clone(),
            registered: registered_count,
            exits,
        };
        let task = Some(tokio::spawn(Kubelets::new(options, shared).run(inbox, ended)));
        Self { commands, names, logs, board, environments, heartbeats, registered, cancel, task }
    }

    /// Waits until every node has registered.
    pub async fn registered(&self) {
        let all = self.names.len();
        // An error means the kubelets have ended; then there is nothing to wait for.
        let _ = self.registered.clone().wait_for(|count| *count >= all).await;
    }

    /// Makes something happen to a node now. False if there is no such node.
    pub fn inject(&self, node: &str, action: NodeAction) -> bool {
        self.names.contains(node) && self.commands.send((node.to_owned(), action)).is_ok()
    }

    /// The devices a running pod holds, by container and resource; empty if none.
    pub fn devices_of(&self, namespace: &str, pod: &str) -> PodDevices {
        self.board.lock().get(&(namespace.to_owned(), pod.to_owned())).cloned().unwrap_or_default()
    }

    /// What a container was told at its last start; nothing if it has not started or its pod is gone.
    pub fn environment_of(&self, namespace: &str, pod: &str, container: &str) -> Option<Environment> {
        self.environments.lock().get(&(namespace.to_owned(), pod.to_owned()))?.get(container).cloned()
    }

    /// The kubelet server of a node, if it is one of ours.
    pub fn router(&self, node: &str) -> Option<Router> {
        self.names.contains(node).then(|| self.logs.router(node))
    }

    /// A function that finds kubelet servers, as the embedded API server wants it.
    pub fn proxy(&self) -> NodeProxy {
        let (names, logs) = (self.names.clone(), self.logs.clone());
        Arc::new(move |node| names.contains(node).then(|| logs.router(node)))
    }

    pub(crate) fn heartbeats(&self) -> Heartbeats {
        self.heartbeats.clone()
    }

    /// Stops all kubelets without a goodbye; the API objects stay.
    pub async fn stop(&mut self) {
        self.leave().await;
    }

    /// Stops all kubelets; what is left are the machines.
    pub(crate) async fn leave(&mut self) -> Machines {
        self.cancel.cancel();
        match self.task.take() {
            // A panic in there has already been reported by the runtime.
            Some(task) => task.await.unwrap_or_default(),
            None => Machines::default(),
        }
    }
}

/// Runs a fleet against an API server until `cancel` fires: what `kai lab nodes` does.
pub async fn run_nodes(client: Client, fleet: Fleet, clock: Clock, recorder: Recorder, cancel: CancellationToken) {
    let mut nodes = Nodes::start(NodesOptions::new(client, fleet, clock, recorder, cancel.clone()));
    cancel.cancelled().await;
    nodes.stop().await;
}

/// Retries of broken watches: quick at first, never random.
pub(crate) struct WatchBackoff(Duration);

impl WatchBackoff {
    const FIRST: Duration = Duration::from_millis(200);

    pub(crate) fn new() -> Self {
        Self(Self::FIRST)
    }
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = self.0;
        self.0 = (now * 2).min(Duration::from_secs(10));
        Some(now)
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.0 = Self::FIRST;
    }
}

/// Something to do at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Register(usize),
    /// Node and epoch: timers from before the kubelet was last off are ignored.
    Heartbeat(usize, u32),
    NodeStatus(usize, u32),
    StatusRetry(usize),
    Fault(usize),
    Boot(usize, u32),
    Pod(PodKey),
    Retry(PodKey),
}

/// What the loop shares with its owner.
struct Shared {
    logs: Logs,
    board: DeviceBoard,
    environments: EnvironmentBoard,
    heartbeats: Heartbeats,
    registered: watch::Sender<usize>,
    exits: mpsc::UnboundedSender<ProgramExit>,
}

/// The state of the loop.
struct Kubelets {
    client: Client,
    clock: Clock,
    seed: Seed,
    recorder: Recorder,
    cancel: CancellationToken,
    logs: Logs,
    board: DeviceBoard,
    environments: EnvironmentBoard,
    heartbeats: Heartbeats,
    registered: watch::Sender<usize>,
    programs: Option<Arc<dyn Programs>>,
    /// Where programs tell that they have ended.
    exits: mpsc::UnboundedSender<ProgramExit>,
    nodes: Vec<NodeState>,
    by_name: BTreeMap<String, usize>,
    pods: BTreeMap<PodKey, PodEntry>,
    /// What containers were told by kubelets before this one.
    told: Told,
    /// Pods seen since the last relist began, while one is going on.
    relisted: Option<BTreeSet<PodKey>>,
    faults: Vec<NodeFault>,
    /// How many kubelets are off.
    off: usize,
    timers: BinaryHeap<Reverse<(Timestamp, u64, Timer)>>,
    sequence: u64,
    writes: Writes,
}

impl Kubelets {
    fn new(options: NodesOptions, shared: Shared) -> Self {
        let NodesOptions { client, clock, fleet, recorder, cancel, programs, machines, .. } = options;
        let Shared { logs, board, environments, heartbeats, registered, exits } = shared;
        let nodes: Vec<NodeState> = fleet.nodes.into_iter().map(|spec| NodeState::new(spec, clock.now())).collect();
        let by_name = nodes.iter().enumerate().map(|(index, node)| (node.spec.name.clone(), index)).collect();
        let mut kubelets = Self {
            writes: Writes::new(client.clone()),
            client,
            clock,
            seed: fleet.seed,
            recorder,
            cancel,
            logs,
            board,
            environments,
            heartbeats,
            registered,
            programs,
            exits,
            nodes,
            by_name,
            pods: BTreeMap::new(),
            told: Told::new(),
            relisted: None,
            faults: fleet.node_faults,
            off: 0,
            timers: BinaryHeap::new(),
            sequence: 0,
        };
        if let Some(machines) = machines {
            kubelets.arrive(machines);
        }
        kubelets
    }

    async fn run(
        mut self,
        mut commands: mpsc::UnboundedReceiver<(String, NodeAction)>,
        mut ended: mpsc::UnboundedReceiver<ProgramExit>,
    ) -> Machines {
        let bound = watcher::Config::default().fields("spec.nodeName!=");
        let pods = Api::<DeserializeGuard<Pod>>::all(self.client.clone());
        let mut pods = pin!(watcher(pods, bound).backoff(WatchBackoff::new()));
        let nodes = Api::<DeserializeGuard<Node>>::all(self.client.clone());
        let mut nodes = pin!(watcher(nodes, watcher::Config::default()).backoff(WatchBackoff::new()));
        let cancel = self.cancel.clone();
        self.begin();
        loop {
            self.writes.pump();
            let due = self.next_due();
            tokio::select! {
                biased;
                () = cancel.cancelled() => return self.leave(),
                Some(done) = self.writes.next() => self.on_written(done),
                Some((node, action)) = commands.recv() => self.on_command(&node, &action),
                Some(exit) = ended.recv() => self.on_program_exit(&exit),
                Some(event) = pods.next() => self.on_pod_event(event),
                Some(event) = nodes.next() => self.on_node_event(event),
                () = tokio::time::sleep_until(due) => {}
            }
            // Answers come in batches; each pass through `select!` polls both watches, so take all that are there.
            while let Some(done) = self.writes.ready() {
                self.on_written(done);
            }
            self.run_due();
        }
    }

    fn begin(&mut self) {
        let now = self.clock.now();
        for index in 0..self.nodes.len() {
            self.register(index);
        }
        for index in 0..self.faults.len() {
            if let Some(fault) = self.faults.get(index) {
                let at = later(now, fault.at);
                self.schedule(at, Timer::Fault(index));
            }
        }
    }

    fn schedule(&mut self, at: Timestamp, timer: Timer) {
        self.sequence += 1;
        self.timers.push(Reverse((at, self.sequence, timer)));
    }

    fn next_due(&self) -> Instant {
        // Idle kubelets look up once an hour rather than never, which spares an option here.
        let idle = Duration::from_hours(1);
        let wait = self.timers.peek().map_or(idle, |Reverse((at, ..))| {
            Duration::try_from(at.duration_since(self.clock.now())).unwrap_or(Duration::ZERO)
        });
        Instant::now() + wait.min(idle)
    }

    fn run_due(&mut self) {
        let now = self.clock.now();
        while self.timers.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((_, _, timer))) = self.timers.pop() else { return };
            match timer {
                Timer::Register(node) => self.register(node),
                Timer::Heartbeat(node, epoch) => self.heartbeat(node, epoch),
                Timer::NodeStatus(node, epoch) => self.periodic_status(node, epoch),
                Timer::StatusRetry(node) => self.retry_status(node),
                Timer::Fault(index) => {
                    if let Some(fault) = self.faults.get(index).cloned() {
                        self.on_command(&fault.node, &fault.action);
                    }
                }
                Timer::Boot(node, epoch) => self.boot(node, epoch),
                Timer::Pod(key) => self.on_pod_timer(&key),
                Timer::Retry(key) => self.flush(&key),
            }
        }
    }

    fn on_pod_event(&mut self, event: Result<Event<DeserializeGuard<Pod>>, watcher::Error>) {
        match event {
            Ok(Event::Init) => self.relisted = Some(BTreeSet::new()),
            Ok(Event::InitApply(pod)) => {
                if let Some(pod) = understood(pod) {
                    if let (Some(seen), Some(key)) = (&mut self.relisted, state::key_of(&pod)) {
                        seen.insert(key);
                    }
                    self.on_pod(pod);
                }
            }
            Ok(Event::InitDone) => {
                let seen = self.relisted.take().unwrap_or_default();
                let gone: Vec<PodKey> = self.pods.keys().filter(|key| !seen.contains(*key)).cloned().collect();
                for key in gone {
                    self.on_pod_gone(&key);
                }
                self.forget_holders();
            }
            Ok(Event::Apply(pod)) => {
                if let Some(pod) = understood(pod) {
                    self.on_pod(pod);
                }
            }
            Ok(Event::Delete(pod)) => {
                let meta = match &pod.0 {
                    Ok(pod) => &pod.metadata,
                    Err(invalid) => &invalid.metadata,
                };
                if let (Some(namespace), Some(name)) = (meta.namespace.clone(), meta.name.clone()) {
                    self.on_pod_gone(&(namespace, name));
                }
            }
            Err(error) => tracing::debug!(%error, "pod watch broke; trying again"),
        }
    }

    fn on_node_event(&mut self, event: Result<Event<DeserializeGuard<Node>>, watcher::Error>) {
        match event {
            Ok(Event::Init | Event::InitDone) => {}
            Ok(Event::InitApply(node) | Event::Apply(node)) => {
                if let Some(node) = understood(node) {
                    self.on_node(node);
                }
            }
            Ok(Event::Delete(node)) => {
                if let Some(name) = understood(node).and_then(|node| node.metadata.name) {
                    self.on_node_gone(&name);
                }
            }
            Err(error) => tracing::debug!(%error, "node watch broke; trying again"),
        }
    }
}

/// An object that does not fit the types is nothing a kubelet could act on.
fn understood<K>(object: DeserializeGuard<K>) -> Option<K> {
    object
        .0
        .inspect_err(|invalid| tracing::warn!(name = ?invalid.metadata.name, error = %invalid.error, "object ignored"))
        .ok()
}

fn later(time: Timestamp, delay: Duration) -> Timestamp {
    time.saturating_add(jiff::SignedDuration::try_from(delay).unwrap_or(jiff::SignedDuration::MAX))
        .unwrap_or(Timestamp::MAX)
}

/// The pause before the n-th repetition of a failed write: half a second, doubling, at most half a minute.
fn retry_delay(failures: u32) -> Duration {
    Duration::from_millis(500 << failures.saturating_sub(1).min(6)).min(Duration::from_secs(30))
}
