//! Small clusters for tests of claims, zones and ledgers.

use std::collections::BTreeMap;

use crate::{
    Cluster,
    cluster::{
        pod::{Detail, Place},
        status::Status,
    },
    delta::{
        self, Claim, ClaimAllocation, ClaimRequest, Constraints, Delta, Device, DeviceCount, DeviceRef, MigStrategy,
        NodeGpus, Origin, Phase, Placement, PodGroup, Request, Role,
    },
    ids::{NodeId, PodId},
    time::Time,
};

pub(crate) fn device_ref(node: &str, name: &str) -> DeviceRef {
    DeviceRef { driver: "gpu.nvidia.com".into(), pool: node.into(), name: name.into() }
}

/// A node with a device of each kind in `kinds`, named `0`, `1`, ….
pub(crate) fn node(name: &str, kinds: &[u32]) -> delta::Node {
    let device = |(place, kind): (usize, &u32)| Device {
        device: device_ref(name, &place.to_string()),
        kind: *kind,
        gpu: *kind < 10,
    };
    delta::Node {
        name: name.into(),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        unavailable: Vec::new(),
        cpu: 64_000,
        memory: 1 << 40,
        pods: 110,
        storage: 1 << 40,
        extended: BTreeMap::new(),
        gpus: NodeGpus { count: 0, memory: None, mig: MigStrategy::Off },
        numa: None,
        devices: kinds.iter().enumerate().map(device).collect(),
    }
}

/// A pending pod.
pub(crate) fn pod(uid: &str, claims: &[&str]) -> delta::Pod {
    delta::Pod {
        uid: uid.into(),
        namespace: "test".into(),
        labels: BTreeMap::new(),
        group: Some(format!("test/{uid}")),
        subgroup: None,
        created: Time(0),
        phase: Phase::Pending,
        deleted: None,
        placement: None,
        origin: Origin::Ours,
        role: Role::default(),
        nominated: None,
        request: Request { cpu: 1000, ..Request::default() },
        constraints: Constraints::default(),
        claims: claims.iter().map(|claim| (*claim).to_owned()).collect(),
        invalid: None,
    }
}

/// A running pod.
pub(crate) fn running(uid: &str, node: &str, claims: &[&str]) -> delta::Pod {
    let placement = Placement { node: node.into(), devices: Vec::new(), numa: Vec::new(), bound: true };
    delta::Pod { phase: Phase::Running, placement: Some(placement), ..pod(uid, claims) }
}

pub(crate) fn group(key: &str, queue: &str) -> PodGroup {
    PodGroup {
        key: key.into(),
        queue: queue.into(),
        created: Time(0),
        priority: 50,
        preemptible: true,
        min_member: Some(1),
        min_sub_group: None,
        topology: None,
        subgroups: Vec::new(),
        preemption_delay: None,
        staleness_grace: None,
        last_start: None,
        last_eviction: None,
        stale_since: None,
        invalid: None,
    }
}

/// A claim made from a template.
pub(crate) fn claim(key: &str, requests: &[(DeviceCount, &[u32])]) -> Claim {
    let request = |(place, (count, kinds)): (usize, &(DeviceCount, &[u32]))| ClaimRequest {
        name: format!("request-{place}"),
        count: *count,
        kinds: kinds.to_vec(),
        gpu: kinds.iter().all(|kind| *kind < 10),
    };
    Claim {
        key: key.into(),
        requests: requests.iter().enumerate().map(request).collect(),
        allocation: None,
        reserved_for: Vec::new(),
        max_consumers: 256,
        queue: None,
        of_one_pod: true,
        impossible: None,
    }
}

/// A claim that has devices of a node and is reserved for pods.
pub(crate) fn allocated(claim: Claim, node: &str, devices: &[(u32, &str)], pods: &[&str]) -> Claim {
    let devices = devices.iter().map(|(request, device)| (*request, device_ref(node, device))).collect();
    Claim {
        allocation: Some(ClaimAllocation { node: Some(node.into()), devices }),
        reserved_for: pods.iter().map(|pod| (*pod).to_owned()).collect(),
        ..claim
    }
}

pub(crate) fn cluster(deltas: impl IntoIterator<Item = Delta>) -> Cluster {
    let mut cluster = Cluster::new();
    for delta in deltas {
        cluster.apply(delta);
    }
    cluster
}

impl From<delta::Node> for Delta {
    fn from(node: delta::Node) -> Self {
        Self::Node(Box::new(node))
    }
}

impl From<delta::Pod> for Delta {
    fn from(pod: delta::Pod) -> Self {
        Self::Pod(Box::new(pod))
    }
}

impl From<Claim> for Delta {
    fn from(claim: Claim) -> Self {
        Self::Claim(Box::new(claim))
    }
}

impl From<PodGroup> for Delta {
    fn from(group: PodGroup) -> Self {
        Self::PodGroup(Box::new(group))
    }
}

impl Cluster {
    pub(crate) fn the_pod(&self, uid: &str) -> PodId {
        self.pod(uid).expect("the pod is known")
    }

    pub(crate) fn the_node(&self, name: &str) -> NodeId {
        self.node(name).expect("the node is known")
    }

    /// Devices of a node in use now, and in use once everything that leaves has left.
    pub(crate) fn in_use(&self, node: &str) -> (Vec<u32>, Vec<u32>) {
        let devices = &self.nodes[self.the_node(node).index()].devices;
        let places = |used: fn(&crate::cluster::node::DraDevice) -> u32| {
            (0_u32..).zip(devices).filter(|(_, device)| used(device) > 0).map(|(place, _)| place).collect()
        };
        (places(|device| device.used), places(|device| device.staying))
    }

    /// The place that the node's devices offer a pod, now or later; `None` if they offer none.
    pub(crate) fn offer(&self, pod: PodId, node: NodeId) -> Option<Place> {
        let fit = self.check_claims(pod, node).ok()?;
        let status = if fit.now { Status::Allocated } else { Status::Pipelined };
        let detail = Detail { numa: Vec::new(), claims: fit.claims, extended: fit.extended };
        let detail = (detail != Detail::default()).then(|| Box::new(detail));
        Some(Place { status, node: Some(node), devices: smallvec::SmallVec::new(), detail })
    }

    /// Places a pod on a node, now or later, and says how.
    pub(crate) fn put(&mut self, uid: &str, node: &str) -> Option<Status> {
        let (pod, node) = (self.the_pod(uid), self.the_node(node));
        let place = self.offer(pod, node)?;
        let status = place.status;
        if self.pods[pod.index()].is_evicted() {
            self.relocate(pod, place);
        } else {
            self.assign(pod, place);
        }
        Some(status)
    }
}
