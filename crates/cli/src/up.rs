//! `kai up`: the whole system in this process, with simulated nodes, for kubectl and any other client.
//!
//! The steps are told as they happen on standard error; once the cluster runs, each event of nodes and pods is one line on
//! standard output, until Ctrl-C.

mod demo;
mod settled;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kai_clock::Clock;
use kai_lab::cluster::{Lab, LabOptions};
use kai_lab::fleet::Fleet;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::kubeconfig::KubeconfigFile;
use crate::output;

const DEFAULT_FLEET: &str = "dgx-h100,thor,t4x4,cpu";

/// Options of `kai up`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The nodes: presets (`dgx-h100,thor:replicas=4,t4x4*10`) or a fleet file. Without it: one of each kind and a demo workload.
    #[arg(long, value_name = "PRESETS|FILE")]
    fleet: Option<String>,
    /// Port on 127.0.0.1 for kubectl and other clients.
    #[arg(long, default_value_t = 16443)]
    port: u16,
    /// Where to write the kubeconfig.
    #[arg(long, default_value = "kai.kubeconfig", value_name = "PATH")]
    kubeconfig: PathBuf,
    /// Seed of everything that is random in the simulation.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stop when all nodes are ready and no pod is on its way.
    #[arg(long)]
    exit_when_settled: bool,
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

    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.cancel();
        }
    });

    let lab = Lab::start(LabOptions::new(fleet, Clock::real()));
    let mut events = lab.recorder().subscribe();
    let router = lab.router();
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let kubeconfig = KubeconfigFile::write(&options.kubeconfig, &format!("http://{address}"))?;
    step(format!("API server on http://{address}, kubeconfig in {}", options.kubeconfig.display()));
    let client = lab.client();
    let kinds = install_definitions(&client).await?;
    step(format!("serving {}", kinds.join(", ")));
    settled::nodes_ready(&client, &nodes).await?;
    step(format!("{} nodes ready: {}", nodes.len(), shortened(&nodes)));
    if options.fleet.is_none() {
        step(demo::start(&client).await?);
    }
    anstream::eprintln!(
        "\n  export KUBECONFIG={}\n  kubectl get nodes -o wide\n\nCtrl-C stops.",
        absolute(&options.kubeconfig)
    );

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
        }
    };
    while let Ok(line) = events.try_recv() {
        output::print(&line)?;
    }
    drop(kubeconfig);
    server.abort();
    lab.shutdown().await;
    step(outcome?.to_owned());
    Ok(())
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
    let version = tokio::time::timeout(std::time::Duration::from_secs(2), client.apiserver_version()).await;
    matches!(version, Ok(Ok(version)) if version.compiler == "rustc")
}

/// Installs our resource definitions and returns their kinds.
async fn install_definitions(client: &Client) -> anyhow::Result<Vec<String>> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut kinds = Vec::new();
    for definition in kai_api::crds() {
        let name = definition.name_any();
        api.patch(&name, &PatchParams::apply("kai").force(), &Patch::Apply(&definition))
            .await
            .with_context(|| format!("install the definition `{name}`"))?;
        kinds.push(definition.spec.names.kind);
    }
    Ok(kinds)
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
