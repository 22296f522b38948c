//! The simulated parts of a cluster: everything on tier 1, the nodes on tier 2.

use anyhow::{Result, bail};
use kube::Client;

/// The simulated nodes of both tiers.
pub const FLEET: &str = "dgx-h100,cpu,cpu:name=drain";

/// The cluster of tier 1.
pub(super) struct Embedded {
    client: Client,
}

impl Embedded {
    pub(super) async fn start() -> Result<Self> {
        bail!("the embedded cluster is not part of this build")
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(super) async fn kubeconfig(&self) -> Result<std::path::PathBuf> {
        bail!("the embedded cluster is not part of this build")
    }

    pub(super) fn node_count(&self) -> usize {
        0
    }

    pub(super) async fn stop(self) -> Result<()> {
        Ok(())
    }
}

/// Simulated nodes that have joined somebody's API server.
pub(super) struct SimulatedNodes;

impl SimulatedNodes {
    pub(super) fn join(_client: Client) -> Result<Self> {
        Ok(Self)
    }

    pub(super) fn node_count(&self) -> usize {
        0
    }

    pub(super) async fn stop(self) -> Result<()> {
        Ok(())
    }
}
