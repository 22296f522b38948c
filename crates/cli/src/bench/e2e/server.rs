//! The embedded API server as a process of its own, as API servers are: `kai up --bare`, reached with the kubeconfig that it writes.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::Context as _;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

/// A server with one node that has no GPU. It ends when this is dropped.
pub struct Server {
    child: Child,
    kubeconfig: PathBuf,
    /// Holds the kubeconfig.
    folder: TempDir,
}

impl Server {
    /// Starts it on a free port and waits until it answers.
    pub async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("make a folder for the kubeconfig")?;
        let kubeconfig = folder.path().join("kubeconfig");
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command.args(["up", "--bare", "--fleet", "cpu", "--port", "0", "--kubeconfig"]).arg(&kubeconfig);
        // It is killed: what it left goes with the folder.
        command.env("TMPDIR", folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let child = command.spawn().context("start an API server")?;
        let mut server = Self { child, kubeconfig, folder };
        let answers = tokio::time::timeout(PATIENCE, server.answers()).await;
        answers.unwrap_or_else(|_| {
            Err(anyhow::anyhow!("the API server did not answer within {} s", PATIENCE.as_secs()))
        })?;
        Ok(server)
    }

    async fn answers(&mut self) -> anyhow::Result<()> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                anyhow::bail!("the API server ended with {status}");
            }
            if self.kubeconfig.exists() {
                let client = kai_kit::client::connect(Some(&self.kubeconfig)).await?;
                if client.apiserver_version().await.is_ok() {
                    return Ok(());
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// How to reach it.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Its process id, while it runs.
    pub fn process(&self) -> Option<u32> {
        self.child.id()
    }

    /// Ends it.
    pub async fn end(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("end the API server")?;
        self.folder.close().context("remove the folder of the kubeconfig")
    }
}
