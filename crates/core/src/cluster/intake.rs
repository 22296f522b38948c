//! Deltas: how described objects become entries of the arrays. Whatever order they come in, the same state results.

mod groups;
mod nodes;
mod pods;

use crate::{
    cluster::{Cluster, queue::Queue},
    delta::{self, Delta},
    ids::QueueId,
};

impl Cluster {
    /// Takes over one change. The virtual operations of the last cycle are undone first.
    pub fn apply(&mut self, delta: Delta) {
        self.settle();
        match delta {
            Delta::Node(node) => self.describe_node(&node),
            Delta::NodeGone(name) => self.forget_node(&name),
            Delta::Queue(queue) => self.describe_queue(&queue),
            Delta::QueueGone(name) => self.forget_queue(&name),
            Delta::PodGroup(group) => self.describe_group(&group),
            Delta::PodGroupGone(key) => self.forget_group(&key),
            Delta::Pod(pod) => self.describe_pod(&pod),
            Delta::PodGone(uid) => self.forget_pod(&uid),
            Delta::Topology(topology) => self.describe_topology(topology),
            Delta::TopologyGone(name) => {
                self.topologies.retain(|topology| topology.name != name);
                self.nodes_version += 1;
            }
            Delta::Claim(claim) => self.describe_claim(&claim),
            Delta::ClaimGone(key) => self.forget_claim(&key),
            Delta::DeviceResource(resource) => self.describe_device_resource(resource),
            Delta::DeviceResourceGone(name) => self.forget_device_resource(&name),
            Delta::PodLeaves { uid, since } => self.pod_leaves(&uid, since),
        }
        self.trim_journals();
    }

    /// The queue of a name, made if only its name is known.
    pub(super) fn queue_named(&mut self, name: &str) -> QueueId {
        if let Some(queue) = self.queue_ids.get(name) {
            return *queue;
        }
        let queue = QueueId::of(self.queues.len());
        self.queues.push(Queue::unknown(name));
        self.queue_ids.insert(name.into(), queue);
        self.tree_stale = true;
        queue
    }

    fn describe_queue(&mut self, queue: &delta::Queue) {
        let id = self.queue_named(&queue.name);
        if let Some(parent) = &queue.parent {
            self.queue_named(parent);
        }
        self.queues[id.index()].describe(queue);
        self.tree_stale = true;
    }

    fn forget_queue(&mut self, name: &str) {
        if let Some(id) = self.queue_ids.get(name).copied() {
            self.queues[id.index()].exists = false;
            self.queues[id.index()].parent_name = None;
            self.tree_stale = true;
        }
    }

    fn describe_topology(&mut self, topology: delta::Topology) {
        self.topologies.retain(|known| known.name != topology.name);
        self.topologies.push(topology);
        self.topologies.sort_by(|a, b| a.name.cmp(&b.name));
        self.nodes_version += 1;
    }
}
