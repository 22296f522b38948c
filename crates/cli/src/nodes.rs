//! `kai lab nodes`: simulated nodes for any API server.

use std::path::PathBuf;

use anyhow::Context;
use kai_clock::Clock;
use kai_lab::fleet::Fleet;
use kai_lab::record::Recorder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::output;

/// Options of `kai lab nodes`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Presets (`dgx-h100,thor*3`) or a fleet file.
    #[arg(long, value_name = "PRESETS|FILE")]
    fleet: String,
    /// The cluster to join; as kubectl finds it when not given.
    #[arg(long, env = "KUBECONFIG", value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use.
    #[arg(long)]
    context: Option<String>,
}

/// Joins the nodes and runs their pods until Ctrl-C.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let fleet = Fleet::load(&options.fleet)?;
    let client = connect(&options).await?;
    let version = client.apiserver_version().await.context("reach the API server of the kubeconfig")?;
    anstream::eprintln!("joining {} nodes to Kubernetes {}", fleet.nodes.len(), version.git_version);
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        stop.cancel();
    });
    let recorder = Recorder::new(0);
    let mut events = recorder.subscribe();
    let printer = tokio::spawn(async move {
        loop {
            match events.recv().await {
                Ok(line) => output::print(&line)?,
                Err(RecvError::Lagged(missed)) => output::print(&format!("({missed} events not shown)"))?,
                Err(RecvError::Closed) => return std::io::Result::Ok(()),
            }
        }
    });
    kai_lab::kubelet::run_nodes(client, fleet, Clock::real(), recorder, cancel).await;
    printer.await??;
    anstream::eprintln!("stopped; the nodes stay registered and turn NotReady, as when a kubelet stops");
    Ok(())
}

async fn connect(options: &Options) -> anyhow::Result<kube::Client> {
    let choice = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    let config = match &options.kubeconfig {
        Some(path) => {
            let kubeconfig =
                Kubeconfig::read_from(path).with_context(|| format!("read kubeconfig `{}`", path.display()))?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &choice).await?
        }
        None => kube::Config::from_kubeconfig(&choice).await.context("find a kubeconfig (hint: --kubeconfig PATH)")?,
    };
    Ok(kube::Client::try_from(config)?)
}
