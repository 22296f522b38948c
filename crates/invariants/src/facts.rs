//! The cluster as plain facts: the described objects themselves, by name, kept from the same deltas that the core gets.
//!
//! It is the slow, obvious twin of [`kai_core::Cluster`]: no ids, no ledgers, no indexes. Everything is counted anew when asked, so that a
//! wrong ledger of the core cannot hide itself.

pub mod gang;
pub mod queue;
pub mod standing;

use std::collections::BTreeMap;

use kai_core::{
    amounts::LARGEST,
    delta::{Claim, Delta, DeviceResource, Gpus, Node, Origin, Pod, PodGroup, Queue, Request, Topology},
};

/// Everything that was described and is not gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// Queues by name.
    pub queues: BTreeMap<String, Queue>,
    /// PodGroups by `namespace/name`.
    pub groups: BTreeMap<String, PodGroup>,
    /// Pods by uid.
    pub pods: BTreeMap<String, Pod>,
    /// Topologies by name.
    pub topologies: BTreeMap<String, Topology>,
    /// Claims by `namespace/name`.
    pub claims: BTreeMap<String, Claim>,
    /// Extended resources served by DRA drivers, by name.
    pub device_resources: BTreeMap<String, DeviceResource>,
}

impl Facts {
    /// Takes over one change.
    pub fn apply(&mut self, delta: &Delta) {
        match delta.clone() {
            Delta::Node(node) => drop(self.nodes.insert(node.name.clone(), *node)),
            Delta::NodeGone(name) => drop(self.nodes.remove(&name)),
            Delta::Queue(queue) => drop(self.queues.insert(queue.name.clone(), *queue)),
            Delta::QueueGone(name) => drop(self.queues.remove(&name)),
            Delta::PodGroup(group) => drop(self.groups.insert(group.key.clone(), *group)),
            Delta::PodGroupGone(key) => drop(self.groups.remove(&key)),
            Delta::Pod(pod) => drop(self.pods.insert(pod.uid.clone(), *pod)),
            Delta::PodGone(uid) => drop(self.pods.remove(&uid)),
            Delta::Topology(topology) => drop(self.topologies.insert(topology.name.clone(), topology)),
            Delta::TopologyGone(name) => drop(self.topologies.remove(&name)),
            Delta::Claim(claim) => drop(self.claims.insert(claim.key.clone(), *claim)),
            Delta::ClaimGone(key) => drop(self.claims.remove(&key)),
            Delta::DeviceResource(resource) => {
                drop(self.device_resources.insert(resource.resource.clone(), resource));
            }
            Delta::DeviceResourceGone(name) => drop(self.device_resources.remove(&name)),
            Delta::PodLeaves { uid, since } => {
                if let Some(pod) = self.pods.get_mut(&uid) {
                    pod.deleted.get_or_insert(since);
                }
            }
        }
    }

    /// The deltas that describe exactly this, in the order of kinds and names.
    #[must_use]
    pub fn deltas(&self) -> Vec<Delta> {
        let mut deltas = Vec::new();
        deltas.extend(self.nodes.values().map(|node| Delta::Node(Box::new(node.clone()))));
        deltas.extend(self.queues.values().map(|queue| Delta::Queue(Box::new(queue.clone()))));
        deltas.extend(self.topologies.values().map(|topology| Delta::Topology(topology.clone())));
        deltas.extend(self.device_resources.values().map(|resource| Delta::DeviceResource(resource.clone())));
        deltas.extend(self.groups.values().map(|group| Delta::PodGroup(Box::new(group.clone()))));
        deltas.extend(self.claims.values().map(|claim| Delta::Claim(Box::new(claim.clone()))));
        deltas.extend(self.pods.values().map(|pod| Delta::Pod(Box::new(pod.clone()))));
        deltas
    }
}

/// Whether a request can be meant: amounts from zero to what machines have.
#[must_use]
pub fn is_sane(request: &Request) -> bool {
    let fixed = [request.cpu, request.memory, request.storage, request.mig_share];
    let amounts = fixed.into_iter().chain(request.extended.values().copied());
    let gpus = match request.gpus {
        Gpus::None => true,
        Gpus::Whole(count) => count <= 1_000_000,
        Gpus::Portion { devices, millionths } => {
            (1..=1_000_000).contains(&devices) && (1..=1_000_000).contains(&millionths)
        }
        Gpus::Memory { devices, mib } => (1..=1_000_000).contains(&devices) && (1..=1 << 40).contains(&mib),
    };
    gpus && amounts.into_iter().all(|amount| (0..=LARGEST).contains(&amount))
}

/// Whether a node's amounts can be meant; otherwise it has nothing.
#[must_use]
pub fn is_sane_node(node: &Node) -> bool {
    let fixed = [node.cpu, node.memory, node.storage, node.pods];
    fixed.into_iter().chain(node.extended.values().copied()).all(|amount| (0..=LARGEST).contains(&amount))
}

/// MiB of each GPU of a node, where that is known and can be meant.
#[must_use]
pub fn gpu_memory(node: &Node) -> Option<u64> {
    node.gpus.memory.filter(|memory| (1..=1 << 40).contains(memory))
}

/// Whether this scheduler places a pod, if its group lets it.
#[must_use]
pub fn is_ours(pod: &Pod) -> bool {
    pod.origin == Origin::Ours && pod.group.is_some()
}
