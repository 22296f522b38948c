//! Kubernetes' own scheduler, as a child process, without the limit on requests that it has by default.

use std::{path::Path, process::Stdio};

use anyhow::Context as _;
use tokio::process::{Child, Command};

/// The scheduler name of pods that are its own.
pub const SCHEDULER: &str = "default-scheduler";

/// Starts it; it ends when the child is dropped.
pub async fn start(program: &Path, kubeconfig: &Path) -> anyhow::Result<Child> {
    let kubeconfig = std::path::absolute(kubeconfig)?;
    let mut command = Command::new(program);
    command.arg("--kubeconfig").arg(kubeconfig);
    command.args(["--leader-elect=false", "--secure-port=0", "--kube-api-qps=10000", "--kube-api-burst=10000"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("start `{}`", program.display()))?;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    if let Some(status) = child.try_wait()? {
        anyhow::bail!("`{}` ended with {status}", program.display());
    }
    Ok(child)
}
