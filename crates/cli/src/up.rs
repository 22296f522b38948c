//! `kai up`: the whole system in this process, with simulated nodes, for kubectl and any other client.
//!
//! The API server, the simulated nodes and the control plane share the process; the program of reservation pods is a child process,
//! as it would be on a node. The steps are told as they happen on standard error; once the cluster runs, each event of nodes and
//! pods is one line on standard output, until Ctrl-C.

mod demo;
mod settled;
mod table;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use kai_api::names::namespaces;
use kai_clock::Clock;
use kai_lab::client::client_for;
use kai_lab::cluster::{Lab, LabOptions};
use kai_lab::fleet::Fleet;
use kube::Client;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::demo::Demo;
use crate::control_plane::reservation::ChildPrograms;
use crate::control_plane::{ControlPlane, Part, Settings, install};
use crate::kubeconfig::KubeconfigFile;
use crate::output;

const DEFAULT_FLEET: &str = "dgx-h100,thor,t4x4,cpu";
/// How long the control plane may take to be ready.
const START: Duration = Duration::from_secs(30);

/// Options of `kai up`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The nodes: presets (`dgx-h100,thor:replicas=4,t4x4*10`) or a fleet file. Without it: one of each kind and a demo workload.
    #[arg(long, value_name = "PRESETS|FILE")]
    fleet: Option<String>,
    /// A workload to start with; without --fleet it is `teams`.
    #[arg(long, value_enum)]
    demo: Option<Demo>,
    /// Port on 127.0.0.1 for kubectl and other clients.
    #[arg(long, default_value_t = 16443)]
    port: u16,
    /// Where to write the kubeconfig.
    #[arg(long, default_value = "kai.kubeconfig", value_name = "PATH")]
    kubeconfig: PathBuf,
    /// Seed of everything that is random in the simulation.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stop when every pod runs, has ended, or waits for a reason that the scheduler gave; then print all pods.
    #[arg(long)]
    exit_when_settled: bool,
    /// Only the cluster: no control plane, so that you can run its parts yourself.
    #[arg(long)]
    bare: bool,
}

/// Runs the cluster until Ctrl-C or until it has settled.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let begin = Instant::now();
    let step = |what: String| anstream::eprintln!("[{:>6.2} s] {what}", begin.elapsed().as_secs_f64());
    let mut fleet = Fleet::load(options.fleet.as_deref().unwrap_or(DEFAULT_FLEET))?;
    fleet.seed = kai_lab::seed::Seed(options.seed);
    let nodes: Vec<String> = fleet.nodes.iter().map(|node| node.name.clone()).collect();
    let listener = listen(options.port).await?;
    let address = listener.local_addr()?;
    let cancel = stop_on_signal()?;

    let kubeconfig = KubeconfigFile::write(&options.kubeconfig, &format!("http://{address}"))?;
    let mut lab_options = LabOptions::new(fleet, Clock::real());
    lab_options.programs = Some(Arc::new(ChildPrograms::new(&options.kubeconfig)?));
    let lab = Lab::start(lab_options);
    let mut events = lab.recorder().subscribe();
    let router = lab.router();
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    step(format!("API server on http://{address}, kubeconfig in {}", options.kubeconfig.display()));
    let client = lab.client();
    let kinds = install::install(&client).await?;
    step(format!("serving {}", kinds.join(", ")));
    settled::nodes_ready(&client, &nodes).await?;
    step(format!("{} nodes ready: {}", nodes.len(), shortened(&nodes)));
    let demo = options.demo.or_else(|| options.fleet.is_none().then_some(Demo::Teams));
    if let Some(demo) = demo {
        demo::prepare(&client, demo).await?.into_iter().for_each(step);
    }
    let mut control_plane = None;
    if !options.bare {
        let started = control_plane.insert(start_control_plane(&lab));
        let ready = tokio::time::timeout(START, started.ready()).await;
        ready.unwrap_or_else(|_| {
            Err(anyhow::anyhow!("the control plane is not ready: {}", started.unmet().join("; ")))
        })?;
        let parts: Vec<&str> = Part::ALL.iter().map(|part| part.component()).collect();
        step(format!("control plane ready: {}", parts.join(", ")));
    }
    if let Some(demo) = demo {
        demo::start(&client, demo).await?.into_iter().for_each(step);
    }
    if !options.exit_when_settled {
        anstream::eprintln!(
            "\n  export KUBECONFIG={}\n  kubectl get nodes -o wide\n\nCtrl-C stops.",
            absolute(&options.kubeconfig)
        );
    }

    let waiting = settled::wait(client.clone());
    tokio::pin!(waiting);
    let outcome = loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => break Ok("stopped"),
            line = events.recv() => match line {
                Ok(line) => output::print(&line)?,
                Err(tokio::sync::broadcast::error::RecvError::Lagged(missed)) => output::print(&format!("({missed} events not shown)"))?,
                Err(tokio::sync::broadcast::error::RecvError::Closed) => break Ok("the cluster ended"),
            },
            done = &mut waiting, if options.exit_when_settled => break done.map(|()| "settled"),
            (part, outcome) = ended(control_plane.as_mut()) => break Err(match outcome {
                Ok(()) => anyhow::anyhow!("the {part} ended by itself"),
                Err(error) => error,
            }),
        }
    };
    while let Ok(line) = events.try_recv() {
        output::print(&line)?;
    }
    if options.exit_when_settled && !cancel.is_cancelled() {
        output::print("")?;
        output::print(&table::draw(&client, |namespace, pod| lab.devices_of(namespace, pod)).await?)?;
    }
    if let Some(control_plane) = control_plane {
        control_plane.shutdown().await;
    }
    drop(kubeconfig);
    server.abort();
    lab.shutdown().await;
    step(outcome?.to_owned());
    Ok(())
}

/// Every part, reaching the API server without a socket.
fn start_control_plane(lab: &Lab) -> ControlPlane {
    let mut settings = Settings::new(namespaces::KAI);
    settings.embedded = Some(lab.server().clone());
    settings.share_watches = true;
    let router = lab.router();
    ControlPlane::start(&Part::ALL, move |_| client_for(router.clone()), lab.clock(), settings)
}

/// The end of a part, or never if there are none.
async fn ended(control_plane: Option<&mut ControlPlane>) -> (Part, anyhow::Result<()>) {
    match control_plane {
        Some(control_plane) => control_plane.ended().await,
        None => std::future::pending().await,
    }
}

fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.cancel();
    });
    Ok(cancel)
}

/// Takes the port, or says who has it.
async fn listen(port: u16) -> anyhow::Result<TcpListener> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let who = if answers_as_kai(address).await {
                "another `kai up` is running there"
            } else {
                "another program listens there"
            };
            anyhow::bail!("port {port} is taken: {who}\nhint: stop it, or choose another port with --port")
        }
        Err(error) => Err(error).with_context(|| format!("listen on {address}")),
    }
}

/// No other API server is compiled by rustc.
async fn answers_as_kai(address: SocketAddr) -> bool {
    let config = kube::Config::new(match format!("http://{address}").parse() {
        Ok(uri) => uri,
        Err(_) => return false,
    });
    let Ok(client) = Client::try_from(config) else { return false };
    let version = tokio::time::timeout(Duration::from_secs(2), client.apiserver_version()).await;
    matches!(version, Ok(Ok(version)) if version.compiler == "rustc")
}

fn shortened(names: &[String]) -> String {
    match names {
        [first, second, .., last] if names.len() > 8 => format!("{first}, {second} … {last}"),
        _ => names.join(", "),
    }
}

fn absolute(path: &std::path::Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}
