//! Small clusters.

use std::collections::BTreeMap;

use crate::{
    cluster::{Cluster, pod::Place, status::Status},
    delta::{
        self, Constraints, Delta, Gpus, Level, MigStrategy, NodeGpus, Origin, Phase, Placement, Request, Role,
        TopologyConstraint, Unavailable,
    },
    ids::{NodeId, PodId},
    plan::Cause,
    time::Time,
    topology::{Ask, Bands, NodeSet, Trees, subsets},
};

/// A cluster that is easy to fill.
#[derive(Default)]
pub struct Fixture {
    pub cluster: Cluster,
    pub trees: Trees,
}

impl Fixture {
    /// A cluster with a topology `t` of these levels; `label=alias` gives a level an alias.
    pub fn new(levels: &[&str]) -> Self {
        let mut fixture = Self::default();
        let levels = levels.iter().map(|level| match level.split_once('=') {
            Some((label, alias)) => Level { label: label.to_owned(), alias: Some(alias.to_owned()) },
            None => Level { label: (*level).to_owned(), alias: None },
        });
        fixture.cluster.apply(Delta::Topology(delta::Topology { name: "t".to_owned(), levels: levels.collect() }));
        fixture
    }

    /// A node with GPUs of 1,000 MiB and labels `key=value`, separated by spaces.
    pub fn node(&mut self, name: &str, gpus: u32, labels: &str) -> NodeId {
        self.node_with(name, gpus, labels, |_| {})
    }

    pub fn node_with(&mut self, name: &str, gpus: u32, labels: &str, change: impl FnOnce(&mut delta::Node)) -> NodeId {
        let labels = labels.split_whitespace().filter_map(|label| label.split_once('='));
        let mut node = delta::Node {
            name: name.to_owned(),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            taints: vec![],
            unavailable: vec![],
            cpu: 32_000,
            memory: 1 << 36,
            pods: 110,
            storage: 1 << 40,
            extended: BTreeMap::new(),
            gpus: NodeGpus { count: gpus, memory: Some(1000), mig: MigStrategy::Off },
            numa: None,
            devices: vec![],
        };
        change(&mut node);
        self.cluster.apply(Delta::Node(Box::new(node)));
        self.cluster.refresh_ranks();
        self.cluster.node(name).expect("it was just described")
    }

    /// A pod that waits, or runs on a node.
    pub fn pod(&mut self, uid: &str, request: Request, node: Option<&str>) -> PodId {
        let placement = node.map(|node| Placement {
            node: node.to_owned(),
            devices: if matches!(request.gpus, Gpus::Portion { .. }) { vec![format!("{uid}-device")] } else { vec![] },
            numa: vec![],
            bound: true,
        });
        self.cluster.apply(Delta::Pod(Box::new(delta::Pod {
            uid: uid.to_owned(),
            namespace: "default".to_owned(),
            labels: BTreeMap::new(),
            group: None,
            subgroup: None,
            created: Time(0),
            phase: if placement.is_some() { Phase::Running } else { Phase::Pending },
            deleted: None,
            placement,
            origin: Origin::Ours,
            role: Role::default(),
            nominated: None,
            request,
            constraints: Constraints::default(),
            claims: vec![],
            invalid: None,
        })));
        self.cluster.pod(uid).expect("it was just described")
    }

    /// A pod with whole GPUs on a node.
    pub fn running(&mut self, uid: &str, gpus: u32, node: &str) -> PodId {
        self.pod(uid, whole(gpus), Some(node))
    }

    /// Pods that wait.
    pub fn gang(&mut self, count: usize, request: &Request) -> Vec<PodId> {
        let before = self.cluster.pods.len();
        (0..count).map(|index| self.pod(&format!("gang-{}", before + index), request.clone(), None)).collect()
    }

    /// Places a pod virtually.
    pub fn allocate(&mut self, pod: PodId, node: NodeId) {
        let place = Place { node: Some(node), ..Place::nowhere(Status::Allocated) };
        self.cluster.assign(pod, place);
    }

    /// All sets for a constraint.
    pub fn ask(&mut self, constraint: &TopologyConstraint, tasks: &[PodId]) -> Result<Vec<NodeSet>, Cause> {
        self.ask_with(constraint, tasks, None, &[]).map(|(sets, _)| sets)
    }

    pub fn ask_with(
        &mut self,
        constraint: &TopologyConstraint,
        tasks: &[PodId],
        within: Option<&NodeSet>,
        holding: &[NodeId],
    ) -> Result<(Vec<NodeSet>, Option<Bands>), Cause> {
        let ask = Ask { constraint, subgroup: "", tasks, within, holding };
        let mut subsets = subsets(&mut self.trees, &self.cluster, &ask)?;
        let mut sets = Vec::new();
        while let Some(set) = subsets.next(&mut self.trees, &self.cluster) {
            sets.push(set);
        }
        Ok((sets, subsets.bands))
    }

    /// The names of the nodes of each set.
    pub fn names(&self, sets: &[NodeSet]) -> Vec<String> {
        let names = |set: &NodeSet| {
            let names: Vec<&str> = set.nodes().iter().map(|node| self.cluster.node_name(*node)).collect();
            names.join(" ")
        };
        sets.iter().map(names).collect()
    }

    pub fn set(&self, names: &str) -> NodeSet {
        let nodes = names.split_whitespace().map(|name| self.cluster.node(name).expect("it was described"));
        NodeSet::new(&self.cluster, nodes.collect::<Vec<_>>())
    }
}

/// A request for whole GPUs with a little of everything else.
pub fn whole(gpus: u32) -> Request {
    let gpus = if gpus == 0 { Gpus::None } else { Gpus::Whole(gpus) };
    Request { cpu: 1000, memory: 1 << 30, gpus, ..Request::default() }
}

/// A request for shares of devices.
pub fn portion(devices: u32, millionths: u32) -> Request {
    Request { gpus: Gpus::Portion { devices, millionths }, ..whole(0) }
}

pub fn required(level: &str) -> TopologyConstraint {
    TopologyConstraint { topology: "t".to_owned(), required: Some(level.to_owned()), preferred: None }
}

pub fn preferred(level: &str) -> TopologyConstraint {
    TopologyConstraint { topology: "t".to_owned(), required: None, preferred: Some(level.to_owned()) }
}

pub fn cordon(node: &mut delta::Node) {
    node.unavailable.push(Unavailable::Unschedulable);
}
