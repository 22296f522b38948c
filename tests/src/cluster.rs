//! One cluster of any tier, as the cases see it: a client, namespaces, nodes to put pods on.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace, Node, ServiceAccount};
use kai_cli::control_plane::reservation::InProcessPrograms;
use kai_lab::{cluster::Lab, device::PodDevices, faults::NodeAction, fleet::Fleet};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};

use crate::{
    harness::{Preparation, Tier},
    programs::Programs,
    real::{ControlPlane, RealNode, node::is_ready},
    wait,
};

pub mod kai;
mod simulated;

use kai::{Accounts, Kai};
pub use simulated::FLEET;
use simulated::SimulatedNodes;

/// How long a case waits for a state that a cluster should reach in a second or two.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// A running cluster.
pub struct Cluster {
    tier: Tier,
    client: Client,
    backing: Backing,
    kai: Option<Kai>,
    namespaces: AtomicU32,
}

/// What must live, and be stopped in order, for the cluster to work.
enum Backing {
    Embedded(Box<simulated::Embedded>),
    ControlPlane { nodes: SimulatedNodes, control_plane: Box<ControlPlane> },
    RealNode(Box<RealNode>),
}

impl Cluster {
    /// Starts a cluster of this tier and waits until its nodes are ready.
    pub async fn start(tier: Tier) -> Result<Self> {
        match tier {
            Tier::Embedded => Self::embedded().await,
            Tier::ControlPlane => Self::control_plane().await,
            Tier::RealNode => Self::real_node().await,
        }
    }

    /// Tier 1: API server, controllers and simulated nodes in this process.
    pub async fn embedded() -> Result<Self> {
        let embedded = simulated::Embedded::start(Fleet::parse(FLEET)?, None).await?;
        Self::ready(Tier::Embedded, embedded.lab.client(), Backing::Embedded(Box::new(embedded))).await
    }

    /// Tier 1 or 2 with the whole control plane of kai on it. Reservation pods run the real program in this process.
    pub async fn with_kai(tier: Tier, preparation: Preparation) -> Result<Self> {
        let programs = Arc::new(InProcessPrograms::default());
        let fleet = (preparation.fleet)()?;
        let (accounts, mut cluster) = match tier {
            Tier::Embedded => {
                let embedded = simulated::Embedded::start(fleet, Some(programs.clone())).await?;
                let accounts = Accounts::embedded(&embedded.lab).await?;
                (accounts, Self::ready(tier, embedded.lab.client(), Backing::Embedded(Box::new(embedded))).await?)
            }
            Tier::ControlPlane => {
                let control_plane = Box::new(ControlPlane::start().await?);
                let accounts = Accounts::real(&control_plane).await?;
                let client = control_plane.client().await?;
                let nodes = SimulatedNodes::join(client.clone(), fleet, Some(programs.clone())).await;
                (accounts, Self::ready(tier, client, Backing::ControlPlane { nodes, control_plane }).await?)
            }
            Tier::RealNode => anyhow::bail!("there is no GPU on a real node"),
        };
        accounts.connect(&programs)?;
        (preparation.before)(&cluster.client()).await.context("prepare the cluster")?;
        cluster.kai = Some(accounts.start().await?);
        Ok(cluster)
    }

    /// Tier 2: a real control plane, with simulated nodes joined to it.
    pub async fn control_plane() -> Result<Self> {
        let control_plane = Box::new(ControlPlane::start().await?);
        let client = control_plane.client().await?;
        let nodes = SimulatedNodes::join(control_plane.client().await?, Fleet::parse(FLEET)?, None).await;
        Self::ready(Tier::ControlPlane, client, Backing::ControlPlane { nodes, control_plane }).await
    }

    /// Tier 3: a real control plane with a real node.
    pub async fn real_node() -> Result<Self> {
        let node = Box::new(RealNode::start().await?);
        let client = node.control_plane().client().await?;
        Self::ready(Tier::RealNode, client, Backing::RealNode(node)).await
    }

    /// What this machine lacks for a tier, with the remedy.
    pub fn missing(tier: Tier) -> Option<String> {
        match tier {
            Tier::Embedded => None,
            Tier::ControlPlane => Programs::find().err().map(|error| format!("{error:#}")),
            Tier::RealNode => RealNode::missing(),
        }
    }

    /// How much of the cluster is real.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// A client with all rights that never retries by itself.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The embedded cluster, on tier 1.
    pub fn lab(&self) -> Option<&Lab> {
        match &self.backing {
            Backing::Embedded(embedded) => Some(&embedded.lab),
            Backing::ControlPlane { .. } | Backing::RealNode(_) => None,
        }
    }

    /// The control plane of kai, where there is one.
    pub fn kai(&self) -> Result<&Kai> {
        self.kai.as_ref().context("this cluster was started without kai")
    }

    /// What a running container on a simulated node was told.
    pub fn environment_of(&self, namespace: &str, pod: &str, container: &str) -> Option<BTreeMap<String, String>> {
        match &self.backing {
            Backing::Embedded(embedded) => embedded.lab.environment_of(namespace, pod, container),
            Backing::ControlPlane { nodes, .. } => nodes.nodes.environment_of(namespace, pod, container),
            Backing::RealNode(_) => None,
        }
    }

    /// The devices that a pod on a simulated node holds, by container and resource.
    pub fn devices_of(&self, namespace: &str, pod: &str) -> PodDevices {
        match &self.backing {
            Backing::Embedded(embedded) => embedded.lab.devices_of(namespace, pod),
            Backing::ControlPlane { nodes, .. } => nodes.nodes.devices_of(namespace, pod),
            Backing::RealNode(_) => PodDevices::new(),
        }
    }

    /// Makes something happen to a simulated node now.
    pub fn inject(&self, node: &str, action: NodeAction) -> Result<()> {
        let known = match &self.backing {
            Backing::Embedded(embedded) => embedded.lab.inject(node, action),
            Backing::ControlPlane { nodes, .. } => nodes.nodes.inject(node, action),
            Backing::RealNode(_) => false,
        };
        anyhow::ensure!(known, "there is no simulated node `{node}`");
        Ok(())
    }

    /// The real node, on tier 3.
    pub fn node(&self) -> Option<&RealNode> {
        match &self.backing {
            Backing::RealNode(node) => Some(node),
            Backing::Embedded(_) | Backing::ControlPlane { .. } => None,
        }
    }

    /// A kubeconfig file with all rights, for programs like kubectl. The embedded cluster serves HTTP from the first call on.
    pub async fn kubeconfig(&self) -> Result<PathBuf> {
        let path = match &self.backing {
            Backing::Embedded(embedded) => return embedded.kubeconfig().await,
            Backing::ControlPlane { control_plane, .. } => control_plane.kubeconfig(),
            Backing::RealNode(node) => node.control_plane().kubeconfig(),
        };
        Ok(path.to_path_buf())
    }

    /// Makes a namespace of its own for a case, usable at once: pods can be created in it.
    pub async fn namespace(&self, purpose: &str) -> Result<String> {
        let name = format!("{purpose}-{}", self.namespaces.fetch_add(1, Ordering::Relaxed));
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.clone());
        namespace.metadata.labels = Some(BTreeMap::from([("kai.test/case".into(), purpose.into())]));
        Api::all(self.client()).create(&PostParams::default(), &namespace).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), &name);
        wait::for_object(&accounts, "default", "created", PATIENCE, |account: Option<&ServiceAccount>| {
            account.is_some()
        })
        .await?;
        Ok(name)
    }

    /// Deletes a namespace without waiting for its end.
    pub async fn forget_namespace(&self, name: &str) -> Result<()> {
        Api::<Namespace>::all(self.client()).delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// All nodes, sorted by name.
    pub async fn nodes(&self) -> Result<Vec<Node>> {
        let mut nodes = Api::<Node>::all(self.client()).list(&ListParams::default()).await?.items;
        nodes.sort_by_key(ResourceExt::name_any);
        Ok(nodes)
    }

    /// The name of a node that runs ordinary pods.
    pub async fn any_node(&self) -> Result<String> {
        Ok(self.nodes().await?.first().context("the cluster has no node")?.name_any())
    }

    /// Stops the cluster; an error means that something could not be cleaned up.
    pub async fn stop(self) -> Result<()> {
        if let Some(kai) = self.kai {
            kai.stop().await;
        }
        match self.backing {
            Backing::Embedded(embedded) => {
                embedded.stop().await;
                Ok(())
            }
            Backing::ControlPlane { nodes, mut control_plane } => {
                control_plane.check()?;
                nodes.stop().await;
                Ok(())
            }
            Backing::RealNode(node) => node.stop().await,
        }
    }

    async fn ready(tier: Tier, client: Client, backing: Backing) -> Result<Self> {
        let cluster = Self { tier, client, backing, kai: None, namespaces: AtomicU32::new(0) };
        wait::until("all nodes to be ready", PATIENCE, async || {
            let nodes = cluster.nodes().await?;
            Ok((nodes.len() == cluster.expected_nodes() && nodes.iter().all(is_ready)).then_some(()))
        })
        .await?;
        Ok(cluster)
    }

    fn expected_nodes(&self) -> usize {
        match &self.backing {
            Backing::Embedded(embedded) => embedded.node_count(),
            Backing::ControlPlane { nodes, .. } => nodes.node_count(),
            Backing::RealNode(_) => 1,
        }
    }
}
