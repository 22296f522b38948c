//! The clusters that are measured, as a stream of deltas: nothing is kept here, so that 200,000 pods cost no second copy.

use std::collections::BTreeMap;

use kai_core::{
    amounts::GPU,
    delta::{
        Constraints, Delta, Gpus, Level, MigStrategy, Node, NodeGpus, Origin, Phase, Placement, Pod, PodGroup, Queue,
        QueueResource, Request, Role, Taint, Topology,
    },
    time::{Span, Time},
};

/// The moment of every plan: 2026-09-21, 14:13:20 UTC.
pub const NOW: Time = Time(1_790_000_000_000);

/// MiB of each GPU.
pub const GPU_MEMORY: u64 = 81_559;

/// The topology of every cluster here, from the widest level to the narrowest.
pub const TOPOLOGY: &str = "racks";
/// The label of its upper level.
pub const RACK: &str = "bench.kai/rack";
const HOST: &str = "kubernetes.io/hostname";

/// How large a cluster is: its nodes, and how many pods there are for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    /// Nodes.
    pub nodes: u32,
    /// Pods for each node, running or pending: what a shape varies to grow in pods alone.
    pub per_node: u32,
}

/// Takes the deltas of a cluster as they are made, and gives each object a name and an age of its own.
pub struct World<'a> {
    take: &'a mut dyn FnMut(Delta),
    groups: i64,
    pods: u64,
}

impl<'a> World<'a> {
    /// A world that hands its deltas to `take`.
    pub fn new(take: &'a mut dyn FnMut(Delta)) -> Self {
        Self { take, groups: 0, pods: 0 }
    }

    /// A delta as it is.
    pub fn delta(&mut self, delta: Delta) {
        (self.take)(delta);
    }

    /// `count` equal nodes with `gpus` GPUs, changed by number: 20 cores, 20 GB and 500 slots, as in KAI's benchmarks.
    pub fn nodes(&mut self, count: u32, gpus: u32, mut change: impl FnMut(u32, &mut Node)) {
        for number in 0..count {
            self.node(number, gpus, &mut change);
        }
    }

    /// One such node.
    pub fn node(&mut self, number: u32, gpus: u32, change: impl FnOnce(u32, &mut Node)) {
        let mut node = node(number, gpus);
        change(number, &mut node);
        self.delta(Delta::Node(Box::new(node)));
    }

    /// The topology of racks and hosts.
    pub fn topology(&mut self) {
        let level = |label: &str| Level { label: label.into(), alias: None };
        let levels = vec![level(RACK), level(HOST)];
        self.delta(Delta::Topology(Topology { name: TOPOLOGY.into(), levels }));
    }

    /// A queue with unlimited cpu and memory.
    pub fn queue(&mut self, name: &str, parent: Option<&str>, gpu: QueueResource) -> &mut Self {
        self.queue_with(name, parent, gpu, |_| {});
        self
    }

    /// The same with something changed.
    pub fn queue_with(
        &mut self,
        name: &str,
        parent: Option<&str>,
        gpu: QueueResource,
        change: impl FnOnce(&mut Queue),
    ) {
        let unlimited = QueueResource { quota: None, limit: None, over_quota_weight: GPU };
        let mut queue = Queue {
            name: name.into(),
            parent: parent.map(Into::into),
            created: NOW.after(Span::seconds(-30 * 86_400)),
            priority: 100,
            cpu: unlimited,
            memory: unlimited,
            gpu,
            preempt_min_runtime: None,
            reclaim_min_runtime: None,
        };
        change(&mut queue);
        self.delta(Delta::Queue(Box::new(queue)));
    }

    /// A job: its group, then its pods. Jobs are one second apart, the first is the oldest.
    pub fn job(&mut self, job: &Job) {
        self.groups += 1;
        let created = NOW.after(Span::seconds(-10 * 86_400 + self.groups));
        let group = PodGroup { created, ..job.group.clone() };
        self.delta(Delta::PodGroup(Box::new(group)));
        for number in 0..job.pods {
            self.pods += 1;
            let uid = format!("{:08x}-5eed-4000-8000-{:012x}", self.groups, self.pods);
            let mut pod = Pod { uid, created, group: Some(job.group.key.clone()), ..job.pod.clone() };
            if let Some(node) = job.nodes.get(number as usize).or(job.nodes.last()) {
                pod.phase = Phase::Running;
                pod.placement = Some(Placement { node: name_of(*node), devices: vec![], numa: vec![], bound: true });
            }
            self.delta(Delta::Pod(Box::new(pod)));
        }
    }

    /// A running pod of another scheduler that asks for no GPU.
    pub fn foreign(&mut self, node: u32) {
        self.pods += 1;
        self.foreign_named(node, self.pods);
    }

    /// The same under a number of its own.
    pub fn foreign_named(&mut self, node: u32, number: u64) {
        let mut pod = Pod { origin: Origin::Foreign, phase: Phase::Running, ..blank_pod("kube-system") };
        pod.uid = Self::foreign_uid(node, number);
        pod.request = Request { cpu: 100, memory: 64_000_000, ..Request::default() };
        pod.placement = Some(Placement { node: name_of(node), devices: vec![], numa: vec![], bound: true });
        self.delta(Delta::Pod(Box::new(pod)));
    }

    /// The uid of such a pod.
    pub fn foreign_uid(node: u32, number: u64) -> String {
        format!("{node:08x}-f0e1-4000-8000-{number:012x}")
    }
}

/// A job: a group and equal pods.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its group; the time of creation is set when it is made.
    pub group: PodGroup,
    /// What every pod is like; the name, the group and the place are set when it is made.
    pub pod: Pod,
    /// How many pods.
    pub pods: u32,
    /// The nodes of its pods, the last one for all further pods; empty: it waits.
    pub nodes: Vec<u32>,
}

impl Job {
    /// A waiting job of one pod with one GPU, preemptible, of the lowest shipped priority.
    pub fn new(name: &str, queue: &str) -> Self {
        let group = PodGroup {
            key: format!("{queue}/{name}"),
            queue: queue.into(),
            created: NOW,
            priority: 50,
            preemptible: true,
            min_member: Some(1),
            min_sub_group: None,
            topology: None,
            subgroups: vec![],
            preemption_delay: None,
            staleness_grace: None,
            last_start: None,
            last_eviction: None,
            stale_since: None,
            invalid: None,
        };
        Self { group, pod: blank_pod(queue), pods: 1, nodes: vec![] }.asking(Gpus::Whole(1))
    }

    /// As a gang of so many pods.
    #[must_use]
    pub fn gang(mut self, pods: u32) -> Self {
        self.pods = pods;
        self.group.min_member = Some(pods);
        self
    }

    /// Each pod asking for so much of GPUs.
    #[must_use]
    pub fn asking(mut self, gpus: Gpus) -> Self {
        self.pod.request.gpus = gpus;
        self
    }

    /// Running on a node.
    #[must_use]
    pub fn on(mut self, node: u32) -> Self {
        self.nodes = vec![node];
        self
    }

    /// With something changed.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// A quota of GPUs and the weight for what is beyond it.
pub fn quota(gpus: u32, weight: i64) -> QueueResource {
    QueueResource { quota: Some(i64::from(gpus) * GPU), limit: None, over_quota_weight: weight * GPU }
}

/// No bounds.
pub fn unlimited() -> QueueResource {
    QueueResource { quota: None, limit: None, over_quota_weight: GPU }
}

/// A taint that nothing here tolerates.
pub fn taint() -> Taint {
    Taint {
        key: "bench.kai/maintenance".into(),
        value: String::new(),
        effect: kai_core::delta::TaintEffect::NoSchedule,
    }
}

/// The name of the node of a number. As long as real names are, and in the order of the numbers.
pub fn name_of(node: u32) -> String {
    format!("gpu-node-{node:05}")
}

fn node(number: u32, gpus: u32) -> Node {
    let name = name_of(number);
    let labels = [
        (HOST, name.as_str()),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", "linux"),
        ("node.kubernetes.io/instance-type", "dgx-h100"),
        ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
        ("nvidia.com/gpu.memory", "81559"),
    ];
    Node {
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        name,
        taints: vec![],
        unavailable: vec![],
        cpu: 20_000,
        memory: 20_000_000_000,
        pods: 500,
        storage: 1_000_000_000_000,
        extended: BTreeMap::new(),
        gpus: NodeGpus { count: gpus, memory: Some(GPU_MEMORY), mig: MigStrategy::Off },
        numa: None,
        devices: vec![],
    }
}

fn blank_pod(namespace: &str) -> Pod {
    Pod {
        uid: String::new(),
        namespace: namespace.into(),
        labels: BTreeMap::new(),
        group: None,
        subgroup: None,
        created: NOW,
        phase: Phase::Pending,
        deleted: None,
        placement: None,
        origin: Origin::Ours,
        role: Role::default(),
        nominated: None,
        request: Request { cpu: 500, memory: 256_000_000, ..Request::default() },
        constraints: Constraints::default(),
        claims: vec![],
        invalid: None,
    }
}
