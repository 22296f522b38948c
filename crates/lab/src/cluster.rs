//! The embedded cluster: API server, nodes and controllers in one process.

use std::sync::Arc;

use axum::Router;
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use kube::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    client::{client_for, client_with_faults},
    controllers,
    device::PodDevices,
    environment::Environment,
    faults::{FaultLayer, NodeAction},
    fleet::Fleet,
    kubelet::{Nodes, NodesOptions},
    node_lifecycle,
    programs::Programs,
    record::Recorder,
};

/// How an embedded cluster is set up.
#[derive(Clone)]
pub struct LabOptions {
    /// Its nodes, seed and faults.
    pub fleet: Fleet,
    /// Its clock; virtual in a paused runtime.
    pub clock: Clock,
    /// Whether workload controllers (Deployment, Job, …) and the node life-cycle controller run.
    pub controllers: bool,
    /// Lines of the event log to keep.
    pub event_log: usize,
    /// Runs containers by real programs; without it all are simulated.
    pub programs: Option<Arc<dyn Programs>>,
}

impl LabOptions {
    /// The usual: controllers on, a long event log.
    pub fn new(fleet: Fleet, clock: Clock) -> Self {
        Self { fleet, clock, controllers: true, event_log: 1_000_000, programs: None }
    }
}

/// A running embedded cluster.
pub struct Lab {
    server: ApiServer,
    nodes: Nodes,
    fleet: Fleet,
    clock: Clock,
    recorder: Recorder,
    faults: FaultLayer,
    cancel: CancellationToken,
    controllers: Vec<JoinHandle<()>>,
    programs: Option<Arc<dyn Programs>>,
}

impl Lab {
    /// Starts everything. Must be called inside a tokio runtime; nodes register in the background ([`Lab::ready`]).
    pub fn start(options: LabOptions) -> Self {
        let LabOptions { fleet, clock, controllers: with_controllers, event_log, programs } = options;
        let cancel = CancellationToken::new();
        let mut server_options = Options::new(clock);
        server_options.seed = Some(fleet.seed.hash(&["api server"]));
        server_options.cancel = cancel.child_token();
        let server = ApiServer::start(server_options);
        let faults = FaultLayer::new(fleet.seed, fleet.api_faults.clone());
        let recorder = Recorder::new(event_log);
        let client = client_with_faults(server.router(), &faults);
        let mut nodes_options = NodesOptions::new(client, fleet.clone(), clock, recorder.clone(), cancel.child_token());
        nodes_options.programs.clone_from(&programs);
        let nodes = start_nodes(&server, nodes_options);
        let mut controllers = Vec::new();
        if with_controllers {
            let client = client_with_faults(server.router(), &faults);
            controllers.push(tokio::spawn(controllers::run(client.clone(), clock, cancel.child_token())));
            let heartbeats = nodes.heartbeats();
            controllers.push(tokio::spawn(node_lifecycle::run(client, clock, heartbeats, cancel.child_token())));
        }
        Self { server, nodes, fleet, clock, recorder, faults, cancel, controllers, programs }
    }

    /// Waits until every node has registered.
    pub async fn ready(&self) {
        self.nodes.registered().await;
    }

    /// A client without faults and without retries.
    pub fn client(&self) -> Client {
        client_for(self.server.router())
    }

    /// A client that meets the faults, as kubelets and controllers do.
    pub fn faulty_client(&self) -> Client {
        client_with_faults(self.server.router(), &self.faults)
    }

    /// The faults of API calls; rules can be changed while the cluster runs.
    pub fn faults(&self) -> &FaultLayer {
        &self.faults
    }

    /// The API as a router, to serve over TCP.
    pub fn router(&self) -> Router {
        self.server.router()
    }

    /// The API server, to register in-process webhooks.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// The cluster's clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The transitions of pods and nodes so far, one line each.
    pub fn event_log(&self) -> Vec<Arc<str>> {
        self.recorder.lines()
    }

    /// The recorder behind the event log, to subscribe to.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The devices a running pod holds, by container and resource.
    pub fn devices_of(&self, namespace: &str, pod: &str) -> PodDevices {
        self.nodes.devices_of(namespace, pod)
    }

    /// What a container was told at its last start; nothing if it has not started or its pod is gone.
    pub fn environment_of(&self, namespace: &str, pod: &str, container: &str) -> Option<Environment> {
        self.nodes.environment_of(namespace, pod, container)
    }

    /// The HTTP interface of a node's kubelet, if it is one of ours.
    pub fn kubelet_router(&self, node: &str) -> Option<Router> {
        self.nodes.router(node)
    }

    /// Makes something happen to a node now. False if there is no such node.
    pub fn inject(&self, node: &str, action: NodeAction) -> bool {
        self.nodes.inject(node, action)
    }

    /// Ends all kubelets without a goodbye and starts new ones, which know of pods only what the API knows. Machines and their
    /// containers stay as they are.
    pub async fn restart_kubelets(&mut self) {
        let machines = self.nodes.leave().await;
        let cancel = self.cancel.child_token();
        let mut options =
            NodesOptions::new(self.faulty_client(), self.fleet.clone(), self.clock, self.recorder.clone(), cancel);
        options.programs.clone_from(&self.programs);
        options.heartbeats = self.nodes.heartbeats();
        options.machines = Some(machines);
        self.nodes = start_nodes(&self.server, options);
    }

    /// Stops everything and waits until it has stopped.
    pub async fn shutdown(mut self) {
        self.cancel.cancel();
        self.nodes.stop().await;
        for controller in self.controllers {
            // A panic in there has already been reported by the runtime.
            let _ = controller.await;
        }
    }
}

fn start_nodes(server: &ApiServer, options: NodesOptions) -> Nodes {
    let nodes = Nodes::start(options);
    server.set_node_proxy(nodes.proxy());
    nodes
}
