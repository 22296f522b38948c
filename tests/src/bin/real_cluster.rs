//! A real cluster for hands-on work: `cargo xtask real up` starts it and stays, `cargo xtask real down` ends it.

use std::{fs, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use kai_tests::{
    programs::cache_folder,
    real::{ControlPlane, RealNode},
    wait,
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::signal::unix::{SignalKind, signal};

/// A real Kubernetes on this machine.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Starts etcd, kube-apiserver and kube-controller-manager, and runs them until Ctrl-C or `down`.
    Up {
        /// Adds a real kubelet on containerd; needs root.
        #[arg(long)]
        node: bool,
    },
    /// Ends a cluster that `up` has started.
    Down,
}

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Action::Up { node } => up(node).await,
        Action::Down => down().await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn up(with_node: bool) -> Result<()> {
    let record = record()?;
    if let Some(id) = running()? {
        bail!("a real cluster is already up (process {id})\nhint: `cargo xtask real down` ends it");
    }
    fs::create_dir_all(cache_folder()?)?;
    fs::write(&record, std::process::id().to_string()).with_context(|| format!("write `{}`", record.display()))?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let serve = async {
        if with_node {
            let node = RealNode::start().await?;
            announce(node.control_plane());
            std::future::pending::<()>().await;
            drop(node);
        } else {
            let control_plane = ControlPlane::start().await?;
            announce(&control_plane);
            std::future::pending::<()>().await;
            drop(control_plane);
        }
        Ok(())
    };
    // Whichever way it ends, the cluster is dropped here, and with it every process.
    let result = tokio::select! {
        result = serve => result,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    fs::remove_file(&record)?;
    result
}

fn announce(control_plane: &ControlPlane) {
    println!("export KUBECONFIG={}", control_plane.kubeconfig().display());
    eprintln!("{} is up, logs are in {}", control_plane.url(), control_plane.folder().display());
    eprintln!("kubectl: {}", control_plane.programs().path("kubectl").display());
    eprintln!("Ctrl-C or `cargo xtask real down` ends it");
}

async fn down() -> Result<()> {
    let Some(id) = running()? else {
        eprintln!("no real cluster is up");
        return Ok(());
    };
    let process = Pid::from_raw(id).context("the record holds no process id")?;
    kill_process(process, Signal::TERM).with_context(|| format!("end process {id}"))?;
    wait::until("the cluster to end", Duration::from_secs(30), async || {
        Ok(test_kill_process(process).is_err().then_some(()))
    })
    .await
}

/// The process of the cluster that is up. A record of a process that is gone, or is another program now, counts for nothing.
fn running() -> Result<Option<i32>> {
    let Ok(text) = fs::read_to_string(record()?) else { return Ok(None) };
    let Ok(id) = text.trim().parse::<i32>() else { return Ok(None) };
    let program = fs::read_link(format!("/proc/{id}/exe")).unwrap_or_default();
    Ok(program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("real-cluster")).then_some(id))
}

fn record() -> Result<PathBuf> {
    Ok(cache_folder()?.join("real-cluster.pid"))
}
