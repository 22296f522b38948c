//! The commands that run components: each alone, or `all` in one process.
//!
//! They run until SIGTERM or Ctrl-C, then give back what they hold (leases) and end with 0. A component that cannot go on ends the
//! process with 1, so that whoever started it starts it again.

mod accepted;
mod reach;

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Context as _;
use kai_api::names::namespaces;
use kai_clock::Clock;
use kai_kit::{Health, Metrics};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::accepted::Accepted;
use crate::control_plane::{ControlPlane, Part, Settings, Way};

/// What every component is told.
#[derive(Clone, Debug, clap::Args)]
pub struct Surroundings {
    /// The cluster; as kubectl finds it, or the service account of the pod, when not given.
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// The namespace of the components and their leases.
    #[arg(long, env = "NAMESPACE", default_value = namespaces::KAI)]
    namespace: String,
    /// Where to serve /healthz, /readyz and /metrics; `off` for nowhere.
    #[arg(long, default_value = "0.0.0.0:8080", value_name = "ADDRESS", visible_aliases = ["listen-address", "metrics-bind-address"])]
    listen: Listen,
    /// What the names of metrics begin with.
    #[arg(long, default_value = "kai", value_name = "PREFIX")]
    metrics_namespace: String,
    /// Who this replica is, in leases; the name of the pod or machine when not given.
    #[arg(long, env = "POD_NAME")]
    identity: Option<String>,
    #[command(flatten)]
    accepted: Accepted,
}

/// An address, or none.
#[derive(Clone, Copy, Debug)]
struct Listen(Option<SocketAddr>);

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        // `:8080`, as Go programs write it.
        let every = if text.starts_with(':') { "0.0.0.0" } else { "" };
        let address = format!("{every}{text}").parse();
        address.map(|address| Self(Some(address))).map_err(|_| "give ADDRESS:PORT or `off`".to_owned())
    }
}

/// A component alone, with its own flags.
#[derive(Clone, Debug, clap::Args)]
pub struct Alone<Options: clap::Args> {
    #[command(flatten)]
    surroundings: Surroundings,
    #[command(flatten)]
    options: Options,
}

/// Options of `kai all`.
#[derive(Clone, Debug, clap::Args)]
pub struct All {
    #[command(flatten)]
    surroundings: Surroundings,
    /// Wait for leases: for more than one replica.
    #[arg(long)]
    leader_elect: bool,
    /// Pods that name this scheduler are ours.
    #[arg(long, default_value = kai_api::names::objects::SCHEDULER)]
    scheduler_name: String,
    /// Where admission serves.
    #[arg(long, default_value_t = kai_admission::Options::default().webhook_listen, value_name = "ADDRESS")]
    webhook_listen: SocketAddr,
    /// Where the API server reaches admission. When not given: by the Service `admission` in a cluster, at this machine outside of one.
    #[arg(long, value_name = "URL")]
    webhook_url: Option<String>,
}

impl<Options: clap::Args> Alone<Options> {
    /// Whether logs are to be JSON, whatever else is said.
    pub fn logs_json(&self) -> bool {
        self.surroundings.accepted.json()
    }
}

impl All {
    /// Whether logs are to be JSON, whatever else is said.
    pub fn logs_json(&self) -> bool {
        self.surroundings.accepted.json()
    }
}

/// Runs the pod-grouper.
pub async fn pod_grouper(command: Alone<kai_podgrouper::Options>) -> anyhow::Result<()> {
    let Alone { surroundings, options } = command;
    serve(surroundings, &[Part::PodGrouper], |settings| settings.pod_grouper = options).await
}

/// Runs the scheduler.
pub async fn scheduler(command: Alone<kai_scheduler::Options>) -> anyhow::Result<()> {
    let Alone { surroundings, options } = command;
    serve(surroundings, &[Part::Scheduler], |settings| settings.scheduler = options).await
}

/// Runs the binder.
pub async fn binder(command: Alone<kai_binder::Options>) -> anyhow::Result<()> {
    let Alone { surroundings, options } = command;
    serve(surroundings, &[Part::Binder], |settings| settings.binder = options).await
}

/// Runs the controllers of groups and queues.
pub async fn controllers(command: Alone<kai_controllers::Options>) -> anyhow::Result<()> {
    let Alone { surroundings, options } = command;
    serve(surroundings, &[Part::Controllers], |settings| settings.controllers = options).await
}

/// Runs the admission server.
pub async fn admission(command: Alone<kai_admission::Options>) -> anyhow::Result<()> {
    let Alone { surroundings, options } = command;
    serve(surroundings, &[Part::Admission], |settings| settings.admission = options).await
}

/// Runs everything.
pub async fn all(command: All) -> anyhow::Result<()> {
    let All { surroundings, leader_elect, scheduler_name, webhook_listen, webhook_url } = command;
    serve(surroundings, &Part::ALL, |settings| {
        settings.elect_leaders(leader_elect);
        settings.name_scheduler(&scheduler_name);
        settings.admission.webhook_listen = webhook_listen;
        settings.admission.webhook_url = webhook_url;
    })
    .await
}

async fn serve(surroundings: Surroundings, parts: &[Part], set: impl FnOnce(&mut Settings)) -> anyhow::Result<()> {
    let way = Way::try_from(kai_kit::client::config(surroundings.kubeconfig.as_deref()).await?)?;
    let version = way.client().apiserver_version().await.context("reach the API server")?;
    let mut settings = Settings::new(&surroundings.namespace);
    settings.identity = surroundings.identity.clone().unwrap_or_else(host_name);
    settings.metrics_prefix.clone_from(&surroundings.metrics_namespace);
    set(&mut settings);
    let admission = &mut settings.admission;
    if parts.contains(&Part::Admission) && admission.webhook_url.is_none() && !reach::is_in_cluster() {
        let server = kai_kit::client::server(surroundings.kubeconfig.as_deref()).await?;
        let url = reach::own_url(&server, admission.webhook_listen.port())?;
        anstream::eprintln!("not in a cluster: the API server is to reach admission at {url} (--webhook-url)");
        admission.webhook_url = Some(url);
    }
    let names: Vec<&str> = parts.iter().map(|part| part.component()).collect();
    settings.share_watches = parts.len() > 1;
    let mut control_plane = ControlPlane::start(parts, move |_| way.clone(), Clock::real(), settings);
    anstream::eprintln!(
        "kai {} {} on Kubernetes {}, leases in namespace {}",
        env!("CARGO_PKG_VERSION"),
        if parts.len() > 1 { format!("all ({})", names.join(", ")) } else { names.concat() },
        version.git_version,
        surroundings.namespace
    );

    let cancel = CancellationToken::new();
    if let Some(address) = surroundings.listen.0 {
        let router = router(&control_plane, parts);
        let serving = kai_kit::health::serve(address, router, cancel.clone());
        let stop = cancel.clone();
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                anstream::eprintln!(
                    "error: listen on {address}: {error}\nhint: choose another address with --listen, or `off`"
                );
                stop.cancel();
            }
        });
        anstream::eprintln!("health and metrics on http://{address}");
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let outcome = tokio::select! {
        biased;
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        () = cancel.cancelled() => Err(anyhow::anyhow!("health and metrics cannot be served")),
        (part, outcome) = control_plane.ended() => match outcome {
            Ok(()) => Err(anyhow::anyhow!("the {part} ended by itself")),
            Err(error) => Err(error),
        },
    };
    anstream::eprintln!("stopping");
    control_plane.shutdown().await;
    cancel.cancel();
    outcome
}

/// Health and metrics of one part as they are; of several under one roof.
fn router(control_plane: &ControlPlane, parts: &[Part]) -> axum::Router {
    let surfaces: Vec<(Part, Health, Metrics)> = parts
        .iter()
        .filter_map(|part| Some((*part, control_plane.health(*part)?, control_plane.metrics(*part)?)))
        .collect();
    if let [(_, health, metrics)] = surfaces.as_slice() {
        return health.router(metrics.clone());
    }
    let ready = surfaces.clone();
    let mut router = axum::Router::new()
        .route("/healthz", axum::routing::get(async || "ok"))
        .route("/livez", axum::routing::get(async || "ok"))
        .route("/readyz", axum::routing::get(async move || readiness(&ready)));
    for (part, health, metrics) in surfaces {
        // Registries cannot be joined, and two parts may count things of the same name: each has its own path.
        router = router.nest(&format!("/{part}"), health.router(metrics));
    }
    router
}

fn readiness(surfaces: &[(Part, Health, Metrics)]) -> (http::StatusCode, String) {
    let unmet: Vec<String> = surfaces
        .iter()
        .flat_map(|(part, health, _)| {
            health.unmet().into_iter().map(move |(name, why)| format!("[-] {part}: {name}: {why}\n"))
        })
        .collect();
    if unmet.is_empty() {
        (http::StatusCode::OK, "ok".to_owned())
    } else {
        (http::StatusCode::SERVICE_UNAVAILABLE, unmet.concat())
    }
}

/// Replicas are told apart by where they run; two on one machine by their process.
fn host_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}-{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Scheduler {
        #[command(flatten)]
        alone: Alone<kai_scheduler::Options>,
    }

    #[derive(Debug, Parser)]
    struct Binder {
        #[command(flatten)]
        alone: Alone<kai_binder::Options>,
    }

    #[derive(Debug, Parser)]
    struct PodGrouper {
        #[command(flatten)]
        alone: Alone<kai_podgrouper::Options>,
    }

    #[derive(Debug, Parser)]
    struct Admission {
        #[command(flatten)]
        alone: Alone<kai_admission::Options>,
    }

    #[derive(Debug, Parser)]
    struct Controllers {
        #[command(flatten)]
        alone: Alone<kai_controllers::Options>,
    }

    fn words(line: &str) -> impl Iterator<Item = &str> {
        std::iter::once("kai").chain(line.split_whitespace())
    }

    #[test]
    fn deployments_written_for_kai_start() {
        let common = "--qps=50 --burst=300 --v=3 --leader-elect=true --listen-address=:8080 --metrics-namespace=kai";
        let scheduler = "--scheduler-name=kai-scheduler --namespace=kai-scheduler --log-json=true --enable-profiler=false \
            --profiler-port=8182 --pyroscope-address= --log-flush-frequency=5s --schedule-period=1s \
            --partition-label-value= --nodepool-label-key=kai.scheduler/node-pool --feature-gates=A=true";
        let parsed = Scheduler::try_parse_from(words(&format!("{common} {scheduler}"))).unwrap();
        assert!(parsed.alone.logs_json());
        let binder = "--resource-reservation-namespace=r --resource-reservation-service-account=s \
            --resource-reservation-app-label=l --resource-reservation-pod-image=i \
            --resource-reservation-allocation-timeout=40 --scale-adjust-namespace=kai-scale-adjust \
            --max-concurrent-reconciles=10 --rate-limiter-base-delay=1 --rate-limiter-max-delay=60 --fake-gpu-nodes=false \
            --plugins={} --runtime-class-name=nvidia --health-probe-bind-address=:8081";
        Binder::try_parse_from(words(&format!("{common} {binder}"))).unwrap();
        let grouper = "--nodepool-label-key=a --queue-label-key=b --scheduler-name=c --max-concurrent-reconciles=10 \
            --search-legacy-pg --knative-gang-schedule=true --generic-karta-fallback=true \
            --default-priorities-configmap-name=n --default-priorities-configmap-namespace=m --pod-label-selector=a=b \
            --namespace-label-selector=c=d";
        PodGrouper::try_parse_from(words(&format!("{common} {grouper}"))).unwrap();
        let admission = "--scheduler-name=a --gpu-sharing-enabled --hami-core-enabled=false --block-nvidia-visible-devices=false \
            --gpu-pod-runtime-class-name=nvidia --health-probe-bind-address=:8081";
        Admission::try_parse_from(words(&format!("{common} {admission}"))).unwrap();
        let controllers = "--max-concurrent-reconciles=10 --enable-podgroup-webhook=true --scheduler-name=x";
        Controllers::try_parse_from(words(&format!("{common} {controllers}"))).unwrap();
    }
}
