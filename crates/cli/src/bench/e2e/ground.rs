//! The cluster of a turn: an embedded API server, new each time, or a real one; simulated nodes join it and leave again.
//!
//! Everybody reaches it in the same way: through a socket, or, where that is asked for, by calling the embedded server as a function.

use std::{
    collections::BTreeSet,
    net::TcpListener,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    core::v1::{Namespace, Node, Pod, ServiceAccount},
};
use kai_api::{
    PodGroup,
    names::{annotations, namespaces, objects},
};
use kai_clock::Clock;
use kai_lab::{
    client::client_for,
    cluster::{Lab, LabOptions},
    fleet::{Fleet, Span},
    kubelet::{Nodes, NodesOptions},
    record::Recorder,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    calls::Calls,
    ceiling::{self, Loop, Pods},
    figures::{Contender, Round, latencies},
    load::{self, Kind, Sightings, Wanted},
    rival,
    server::Server,
    spent::Spent,
};
use crate::control_plane::{ControlPlane, Part, Settings, Way, install, reservation::InProcessPrograms};

/// How long anything but a round may take.
const PATIENCE: Duration = Duration::from_mins(2);
const LOOK: Duration = Duration::from_millis(50);
/// Nobody reads the log of nodes here.
const EVENT_LOG: usize = 1;

/// A cluster with nodes and nothing else.
pub struct Ground {
    client: Client,
    names: Vec<String>,
    /// For whoever connects; none where everybody is in this process.
    kubeconfig: Option<PathBuf>,
    place: Place,
}

/// Where a cluster is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// The embedded API server in a process of its own.
    Embedded,
    /// The embedded API server, called as a function.
    InProcess,
    /// A real API server that this kubeconfig leads to.
    Real(PathBuf),
}

enum Place {
    InProcess(Box<Lab>),
    /// Nodes that joined an API server, and that server if it is only there for this turn.
    Joined(Box<Nodes>, Option<Box<Server>>),
}

impl Ground {
    /// Starts it and waits until its nodes are there.
    pub async fn start(place: &Where, nodes: u32) -> anyhow::Result<Self> {
        let fleet = fleet(nodes)?;
        let names: Vec<String> = fleet.nodes.iter().map(|node| node.name.clone()).collect();
        let programs = Arc::new(InProcessPrograms::default());
        let (client, kubeconfig, place) = match place {
            Where::InProcess => {
                let mut options = LabOptions::new(fleet, Clock::real());
                options.event_log = EVENT_LOG;
                options.programs = Some(programs.clone());
                let lab = Lab::start(options);
                lab.ready().await;
                (lab.client(), None, Place::InProcess(Box::new(lab)))
            }
            Where::Embedded => {
                let server = Server::start().await?;
                let path = server.kubeconfig().to_owned();
                let (client, nodes) = join(&path, fleet, programs.clone()).await?;
                (client, Some(path), Place::Joined(Box::new(nodes), Some(Box::new(server))))
            }
            Where::Real(path) => {
                prepare(path).await?;
                let (client, nodes) = join(path, fleet, programs.clone()).await?;
                (client, Some(path.clone()), Place::Joined(Box::new(nodes), None))
            }
        };
        programs.connect(client.clone());
        let ground = Self { client, names, kubeconfig, place };
        install::install(&ground.client).await?;
        ground
            .wait_for("all nodes to be ready and without taints", async |client| {
                let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
                let ready: BTreeSet<&str> = nodes
                    .iter()
                    .filter(|node| is_ready(node))
                    .filter_map(|node| node.metadata.name.as_deref())
                    .collect();
                Ok(ground.names.iter().all(|name| ready.contains(name.as_str())))
            })
            .await?;
        Ok(ground)
    }

    /// A way to it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// How others reach it; none where everybody is in this process.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref()
    }

    /// One turn of a contender.
    pub async fn round(
        &self,
        contender: &Contender,
        kind: Kind,
        pods: u32,
        counting: Option<&Calls>,
        round: u32,
    ) -> anyhow::Result<Round> {
        let namespace = self.namespace(contender, kind, round).await?;
        let (client, names) = (&self.client, &self.names);
        let bind_loop = |at_once, when| {
            let namespace = &namespace;
            Box::pin(ceiling::bind_loop(Loop { client, namespace, nodes: names, count: pods, at_once, pods: when }))
        };
        let (done, spent) = match contender {
            Contender::BindLoop { at_once } => {
                let control_plane = self.pods_are_there(&namespace, kind, pods).await?;
                control_plane.shutdown().await;
                clear_webhooks(client).await?;
                self.metered(bind_loop(*at_once, Pods::AreThere)).await?
            }
            Contender::BindAsTheyCome { at_once } => self.metered(bind_loop(*at_once, Pods::Come)).await?,
            Contender::Kai => {
                let control_plane = self.control_plane(&Part::ALL, counting).await?;
                let placed = self.metered(Box::pin(place(client, &namespace, kind, pods, objects::SCHEDULER))).await;
                control_plane.shutdown().await;
                placed?
            }
            Contender::KaiLater => {
                let mut control_plane = self.pods_are_there(&namespace, kind, pods).await?;
                let mut bound = Sightings::begin(client, &namespace, Wanted::TakenIn).await?;
                let starting = async {
                    let begin = Instant::now();
                    control_plane.start_part(Part::Scheduler);
                    let bound = bound.wait(pods).await?;
                    let asked = bound.at.keys().map(|name| (name.clone(), begin)).collect();
                    Ok(ceiling::Turn::new(asked, bound, begin))
                };
                let placed = self.metered(Box::pin(starting)).await;
                control_plane.shutdown().await;
                placed?
            }
            Contender::KubeScheduler(program) => {
                let kubeconfig = self.kubeconfig().context("kube-scheduler needs a socket")?;
                let _running = rival::start(program, kubeconfig).await?;
                // Its first pod is not timed: until then it may be starting.
                let first = self.namespace(contender, kind, u32::MAX).await?;
                place(client, &first, kind, 1, rival::SCHEDULER).await?;
                self.metered(Box::pin(place(client, &namespace, kind, pods, rival::SCHEDULER))).await?
            }
        };
        let latencies = latencies(&done.asked, &done.bound);
        Ok(Round { pods, took: done.took, spent, latencies })
    }

    /// Makes pods that nobody binds, with their groups and the statuses of those, and gives the components that saw to it: so whoever
    /// binds pods that are there finds the same pods.
    async fn pods_are_there(&self, namespace: &str, kind: Kind, pods: u32) -> anyhow::Result<ControlPlane> {
        let others: Vec<Part> = Part::ALL.into_iter().filter(|part| *part != Part::Scheduler).collect();
        let control_plane = self.control_plane(&others, None).await?;
        load::create(&self.client, namespace, kind, pods, objects::SCHEDULER).await?;
        self.wait_for("everything about the pods to be written", async |client| {
            is_settled(client, namespace, usize::try_from(pods)?).await
        })
        .await?;
        Ok(control_plane)
    }

    /// A turn, and the processor time that it took.
    async fn metered(
        &self,
        turn: impl Future<Output = anyhow::Result<ceiling::Turn>>,
    ) -> anyhow::Result<(ceiling::Turn, Spent)> {
        let server = match &self.place {
            Place::Joined(_, Some(server)) => server.process(),
            Place::Joined(_, None) => {
                collect_garbage(&self.client).await;
                None
            }
            Place::InProcess(_) => None,
        };
        let before = Spent::so_far(server);
        let turn = turn.await?;
        Ok((turn, Spent::so_far(server).since(before)))
    }

    /// Components as `kai all` runs them, ready for work.
    async fn control_plane(&self, parts: &[Part], counting: Option<&Calls>) -> anyhow::Result<ControlPlane> {
        let mut settings = Settings::new(namespaces::KAI);
        settings.share_watches = true;
        let mut ways = std::collections::BTreeMap::new();
        for part in Part::ALL {
            let way = match (&self.place, &self.kubeconfig) {
                (Place::InProcess(lab), _) => Way::from(client_for(lab.router())),
                (_, kubeconfig) => Way::try_from(kai_kit::client::config(kubeconfig.as_deref()).await?)?,
            };
            let counted = counting.map(|calls| calls.counted(way.client(), part.component()).into());
            ways.insert(part, counted.unwrap_or(way));
        }
        match &self.place {
            Place::InProcess(lab) => settings.embedded = Some(lab.server().clone()),
            Place::Joined(..) => settings.serve_admission_on_loopback(free_port()?),
        }
        let other = Way::from(self.client.clone());
        let way_for = move |part: Part| ways.get(&part).unwrap_or(&other).clone();
        let mut control_plane = ControlPlane::start(parts, way_for, Clock::real(), settings);
        let ready = tokio::time::timeout(PATIENCE, control_plane.ready()).await;
        ready.unwrap_or_else(|_| Err(anyhow::anyhow!("not ready: {}", control_plane.unmet().join("; "))))?;
        Ok(control_plane)
    }

    /// A namespace of its own for each turn.
    async fn namespace(&self, contender: &Contender, kind: Kind, round: u32) -> anyhow::Result<String> {
        let who = match contender {
            Contender::BindLoop { at_once } => format!("loop-{at_once}"),
            Contender::BindAsTheyCome { at_once } => format!("as-they-come-{at_once}"),
            Contender::Kai => "kai".to_owned(),
            Contender::KaiLater => "kai-later".to_owned(),
            Contender::KubeScheduler(_) => "kube".to_owned(),
        };
        let what = match kind {
            Kind::Whole => "whole",
            Kind::Half => "half",
            Kind::Gang => "gang",
        };
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
        let name = format!("bench-{what}-{who}-{round}-{since}");
        let namespace: Namespace =
            serde_json::from_value(json!({ "metadata": { "name": name, "labels": { LABEL: "true" } } }))?;
        Api::all(self.client.clone()).create(&PostParams::default(), &namespace).await.context("create a namespace")?;
        self.wait_for("the service account of a namespace", async |client| {
            Ok(Api::<ServiceAccount>::namespaced(client.clone(), &name).get_opt("default").await?.is_some())
        })
        .await?;
        Ok(name)
    }

    async fn wait_for(
        &self,
        what: &str,
        is_there: impl AsyncFn(&Client) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let begin = Instant::now();
        while !is_there(&self.client).await? {
            anyhow::ensure!(begin.elapsed() < PATIENCE, "waited {} s for {what}", PATIENCE.as_secs());
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Ends it. A real cluster is left without pods and nodes.
    pub async fn clear(self) -> anyhow::Result<()> {
        let Self { client, place, names, .. } = self;
        match place {
            Place::InProcess(lab) => lab.shutdown().await,
            Place::Joined(mut nodes, Some(server)) => {
                nodes.stop().await;
                server.end().await?;
            }
            Place::Joined(mut nodes, None) => {
                clear_webhooks(&client).await?;
                clear_pods(&client).await?;
                nodes.stop().await;
                let api: Api<Node> = Api::all(client.clone());
                for name in &names {
                    // It may be gone by itself.
                    let _ = api.delete(name, &DeleteParams::default()).await;
                }
            }
        }
        Ok(())
    }
}

/// A server that answers, without webhooks of a turn that was cut off: nobody would answer those.
async fn prepare(kubeconfig: &Path) -> anyhow::Result<()> {
    let client = kai_kit::client::connect(Some(kubeconfig)).await?;
    let answer = tokio::time::timeout(PATIENCE, client.apiserver_version()).await;
    answer.context("no answer in time").and_then(|answer| answer.map_err(Into::into)).with_context(|| {
        format!("reach the API server of `{}` (hint: is it running? `cargo xtask real up`)", kubeconfig.display())
    })?;
    clear_webhooks(&client).await
}

/// Lets a real API server pay for the turns before this one. Its garbage collection takes both cores for seconds, as long as a turn: left to
/// itself it could meet one contender in every round and spare another. A server that does not let itself be asked is measured as it is.
async fn collect_garbage(client: &Client) {
    let Ok(request) = http::Request::get("/debug/pprof/heap?gc=1").body(Vec::new().into()) else { return };
    let refusal = match client.send(request).await {
        Ok(answer) if answer.status().is_success() => return,
        Ok(answer) => answer.status().to_string(),
        Err(error) => error.to_string(),
    };
    tracing::warn!(%refusal, "the API server does not collect its garbage when it is asked to");
}

/// Lets simulated nodes join an API server.
async fn join(kubeconfig: &Path, fleet: Fleet, programs: Arc<InProcessPrograms>) -> anyhow::Result<(Client, Nodes)> {
    let client = kai_kit::client::connect(Some(kubeconfig)).await?;
    let own = kai_kit::client::connect(Some(kubeconfig)).await?;
    let mut options = NodesOptions::new(own, fleet, Clock::real(), Recorder::new(EVENT_LOG), CancellationToken::new());
    options.programs = Some(programs);
    let nodes = Nodes::start(options);
    nodes.registered().await;
    Ok((client, nodes))
}

/// On every namespace that is made here.
const LABEL: &str = "kai-bench";

/// Lets pods be created and waits until all are bound.
async fn place(
    client: &Client,
    namespace: &str,
    kind: Kind,
    pods: u32,
    scheduler: &str,
) -> anyhow::Result<ceiling::Turn> {
    let mut bound = Sightings::begin(client, namespace, Wanted::TakenIn).await?;
    let begin = Instant::now();
    let create = load::create(client, namespace, kind, pods, scheduler);
    let (asked, bound) = tokio::try_join!(create, bound.wait(pods))?;
    Ok(ceiling::Turn::new(asked, bound, begin))
}

/// Whether every pod is tied to its group and every group says what its pods ask for: until then others than the scheduler are at work.
async fn is_settled(client: &Client, namespace: &str, pods: usize) -> anyhow::Result<bool> {
    let all = ListParams::default();
    let tied = Api::<Pod>::namespaced(client.clone(), namespace).list_metadata(&all).await?;
    let tied = tied.iter().filter(|pod| pod.annotations().contains_key(annotations::POD_GROUP)).count();
    if tied < pods {
        return Ok(false);
    }
    let groups = Api::<PodGroup>::namespaced(client.clone(), namespace).list(&all).await?;
    let counted = groups.iter().filter_map(|group| group.status.as_ref()?.resources_status.as_ref());
    Ok(counted.count() >= pods)
}

/// Nobody answers them between two turns.
async fn clear_webhooks(client: &Client) -> anyhow::Result<()> {
    let (how, all) = (DeleteParams::default(), ListParams::default());
    Api::<MutatingWebhookConfiguration>::all(client.clone()).delete_collection(&how, &all).await?;
    Api::<ValidatingWebhookConfiguration>::all(client.clone()).delete_collection(&how, &all).await?;
    Ok(())
}

async fn clear_pods(client: &Client) -> anyhow::Result<()> {
    let ours = ListParams::default().labels(LABEL);
    let all: Api<Namespace> = Api::all(client.clone());
    let mut names: Vec<String> = Vec::new();
    for namespace in all.list(&ours).await? {
        names.extend(namespace.metadata.name);
    }
    for name in &names {
        all.delete(name, &DeleteParams::default()).await?;
    }
    names.push(namespaces::RESERVATION.to_owned());
    let now = DeleteParams::default().grace_period(0);
    for name in names {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &name);
        let begin = Instant::now();
        while !pods.list(&ListParams::default().limit(1)).await?.items.is_empty() {
            pods.delete_collection(&now, &ListParams::default()).await?;
            anyhow::ensure!(begin.elapsed() < PATIENCE, "the pods of {name} do not go");
            tokio::time::sleep(LOOK).await;
        }
    }
    Ok(())
}

/// Nodes with eight GPUs that start containers at once: what is measured is the control plane, not a simulated delay.
fn fleet(nodes: u32) -> anyhow::Result<Fleet> {
    let mut fleet = Fleet::parse(&format!("dgx-h100*{nodes}"))?;
    for node in &mut fleet.nodes {
        node.delays.start = Span::fixed(Duration::ZERO);
    }
    Ok(fleet)
}

/// Whether a node takes pods: it is ready, and whoever keeps pods off nodes that are not has taken note of that. Loops that only bind do not
/// ask for it; a scheduler does.
fn is_ready(node: &Node) -> bool {
    if node.spec.as_ref().is_some_and(|spec| spec.taints.as_ref().is_some_and(|taints| !taints.is_empty())) {
        return false;
    }
    let conditions = node.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A port that nobody had a moment ago.
pub fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0)).context("find a free port")?.local_addr()?.port())
}
