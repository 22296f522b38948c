//! A Go program on controller-runtime's default client, as most operators have it, against the embedded and the real API server.
//!
//! The program (`tests/real/controller-runtime`) creates, patches, lists and watches pods and a custom resource. It prints a line
//! for each step and fails at the first surprise.

use std::{
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use kai_tests::{
    case,
    cluster::Cluster,
    harness::{self, Needs, SIMULATED_NODES},
    process::Folder,
};
use tokio::{process::Command, sync::OnceCell, time::timeout};

/// The program takes seconds; Go's first build of the client library takes minutes.
const PATIENCE: Duration = Duration::from_mins(2);

static PROGRAM: OnceCell<(Folder, PathBuf)> = OnceCell::const_new();

fn main() -> ExitCode {
    let result = harness::main_needing(
        Needs::Programs,
        &[case!(a_controller_runtime_client_creates_patches_lists_and_watches, SIMULATED_NODES)],
    );
    // A static is not dropped at the end of the process.
    if let Some((folder, _)) = PROGRAM.get() {
        drop(std::fs::remove_dir_all(folder.path()));
    }
    result
}

async fn a_controller_runtime_client_creates_patches_lists_and_watches(cluster: &Cluster) -> Result<()> {
    let (_, program) = PROGRAM.get_or_try_init(build).await?;
    let mut command = Command::new(program);
    command.env("KUBECONFIG", cluster.kubeconfig().await?).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(PATIENCE, command.output()).await.context("the Go program does not end")??;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    let steps = text.lines().filter(|line| line.starts_with("ok ")).count();
    ensure!(steps > 10, "the program did {steps} steps only:\n{text}");
    Ok(())
}

async fn build() -> Result<(Folder, PathBuf)> {
    let folder = Folder::create("go-client")?;
    let program = folder.path().join("go-client");
    let mut command = Command::new("go");
    command.args(["build", "-mod=readonly", "-o"]).arg(&program).arg(".").env("CGO_ENABLED", "0");
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("real/controller-runtime"));
    let output =
        command.stdin(Stdio::null()).output().await.context("run `go`\nhint: install Go (https://go.dev/dl)")?;
    ensure!(output.status.success(), "build the Go program: {}", String::from_utf8_lossy(&output.stderr));
    Ok((folder, program))
}
