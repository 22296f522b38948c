//! The simulated parts of a cluster: everything on tier 1, the nodes on tier 2.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result};
use kai_clock::Clock;
use kai_lab::{
    cluster::{Lab, LabOptions},
    fleet::Fleet,
    kubelet::{Nodes, NodesOptions},
    programs::Programs,
    record::Recorder,
};
use kube::Client;
use serde_json::json;
use tokio::{net::TcpListener, sync::OnceCell, task::AbortHandle};
use tokio_util::sync::CancellationToken;

use crate::process::Folder;

/// The simulated nodes of both tiers: one with eight GPUs, one with none, one for who drains a node.
pub const FLEET: &str = "dgx-h100,cpu,cpu:name=drain";
const EVENT_LOG: usize = 100_000;

/// The cluster of tier 1.
pub(super) struct Embedded {
    pub(super) lab: Lab,
    node_count: usize,
    served: OnceCell<Served>,
}

/// The embedded API server on a loopback port, for programs outside of this process.
struct Served {
    folder: Folder,
    server: AbortHandle,
}

impl Embedded {
    pub(super) async fn start(fleet: Fleet, programs: Option<Arc<dyn Programs>>) -> Result<Self> {
        let node_count = fleet.nodes.len();
        let mut options = LabOptions::new(fleet, Clock::real());
        options.programs = programs;
        let lab = Lab::start(options);
        lab.ready().await;
        Ok(Self { lab, node_count, served: OnceCell::new() })
    }

    /// A kubeconfig file; the first call begins to serve over HTTP.
    pub(super) async fn kubeconfig(&self) -> Result<PathBuf> {
        let served = self.served.get_or_try_init(|| self.serve()).await?;
        Ok(served.folder.path().join("kubeconfig"))
    }

    async fn serve(&self) -> Result<Served> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen on a loopback port")?;
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "embedded", "cluster": {"server": format!("http://{}", listener.local_addr()?)}}],
            "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": ""}}],
            "current-context": "embedded",
        });
        let folder = Folder::create("embedded")?;
        folder.write("kubeconfig", kubeconfig.to_string())?;
        let router = self.lab.router();
        let server = tokio::spawn(async move { axum::serve(listener, router).await }).abort_handle();
        Ok(Served { folder, server })
    }

    pub(super) fn node_count(&self) -> usize {
        self.node_count
    }

    pub(super) async fn stop(self) {
        if let Some(served) = self.served.get() {
            served.server.abort();
        }
        self.lab.shutdown().await;
    }
}

/// Simulated nodes that have joined somebody's API server.
pub(super) struct SimulatedNodes {
    pub(super) nodes: Nodes,
    node_count: usize,
}

impl SimulatedNodes {
    pub(super) async fn join(client: Client, fleet: Fleet, programs: Option<Arc<dyn Programs>>) -> Self {
        let node_count = fleet.nodes.len();
        let (clock, cancel) = (Clock::real(), CancellationToken::new());
        let recorder = Recorder::new(EVENT_LOG);
        let mut options = NodesOptions::new(client, fleet, clock, recorder, cancel);
        options.programs = programs;
        let nodes = Nodes::start(options);
        nodes.registered().await;
        Self { nodes, node_count }
    }

    pub(super) fn node_count(&self) -> usize {
        self.node_count
    }

    pub(super) async fn stop(mut self) {
        self.nodes.stop().await;
    }
}
