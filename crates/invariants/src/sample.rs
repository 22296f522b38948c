//! Plain objects to start from: tests and fuzz targets change what they are about and leave the rest.

use std::collections::BTreeMap;

use kai_core::{
    amounts::GPU,
    delta::{
        Constraints, Gpus, MigStrategy, Node, NodeGpus, Origin, Phase, Placement, Pod, PodGroup, Queue, QueueResource,
        Request, Role, SubGroup,
    },
    policy::{Action, MinRuntimeRule, Plugins, Policy, Strategy},
    time::{Span, Time},
};

/// The moment at which tests take place.
pub const NOW: Time = Time(1_800_000_000_000);

/// An available node with 64 cores, 256 GiB, 110 slots and GPUs of 80,000 MiB.
#[must_use]
pub fn node(name: &str, gpus: u32) -> Node {
    Node {
        name: name.to_owned(),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        unavailable: Vec::new(),
        cpu: 64_000,
        memory: 256 << 30,
        pods: 110,
        storage: 1 << 40,
        extended: BTreeMap::new(),
        gpus: NodeGpus { count: gpus, memory: Some(80_000), mig: MigStrategy::Off },
        numa: None,
        devices: Vec::new(),
    }
}

/// A queue with so many GPUs guaranteed, an equal part of the surplus, and no limits.
#[must_use]
pub fn queue(name: &str, parent: Option<&str>, gpus: i64) -> Queue {
    let unlimited = QueueResource { quota: None, limit: None, over_quota_weight: GPU };
    Queue {
        name: name.to_owned(),
        parent: parent.map(str::to_owned),
        created: Time(NOW.0 - 86_400_000),
        priority: 100,
        cpu: unlimited,
        memory: unlimited,
        gpu: QueueResource { quota: Some(gpus * GPU), ..unlimited },
        preempt_min_runtime: None,
        reclaim_min_runtime: None,
    }
}

/// A preemptible group of priority 50 whose every pod runs for itself.
#[must_use]
pub fn group(key: &str, queue: &str) -> PodGroup {
    PodGroup {
        key: key.to_owned(),
        queue: queue.to_owned(),
        created: Time(NOW.0 - 3_600_000),
        priority: 50,
        preemptible: true,
        min_member: None,
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

/// A leaf subgroup at the top of its group.
#[must_use]
pub fn subgroup(name: &str, min_member: u32) -> SubGroup {
    SubGroup { name: name.to_owned(), parent: None, min_member: Some(min_member), min_sub_group: None, topology: None }
}

/// A pod that waits.
#[must_use]
pub fn pod(uid: &str, group: &str, gpus: Gpus) -> Pod {
    Pod {
        uid: uid.to_owned(),
        namespace: "default".to_owned(),
        labels: BTreeMap::new(),
        group: Some(group.to_owned()),
        subgroup: None,
        created: Time(NOW.0 - 3_600_000),
        phase: Phase::Pending,
        deleted: None,
        placement: None,
        origin: Origin::Ours,
        role: Role::default(),
        nominated: None,
        request: Request { cpu: 100, memory: 1 << 20, gpus, ..Request::default() },
        constraints: Constraints::default(),
        claims: Vec::new(),
        invalid: None,
    }
}

/// The pod, running on a node.
#[must_use]
pub fn running(pod: Pod, node: &str, devices: &[&str]) -> Pod {
    let devices = devices.iter().map(|device| (*device).to_owned()).collect();
    let placement = Placement { node: node.to_owned(), devices, numa: Vec::new(), bound: true };
    Pod { phase: Phase::Running, placement: Some(placement), ..pod }
}

/// KAI's defaults.
#[must_use]
pub fn policy() -> Policy {
    Policy {
        actions: vec![
            Action::Allocate,
            Action::Consolidation,
            Action::Reclaim,
            Action::Preempt,
            Action::StaleGangEviction,
        ],
        gpu_strategy: Strategy::Binpack,
        cpu_strategy: Strategy::Binpack,
        plugins: Plugins {
            predicates: true,
            proportion: true,
            priority: true,
            elastic: true,
            kubeflow: true,
            ray: true,
            node_availability: true,
            gpu_sharing_order: true,
            gpu_pack: true,
            gpu_spread: false,
            resource_type: true,
            subgroup_order: true,
            task_order: true,
            nominated_node: true,
            dynamic_resources: true,
            node_placement: true,
            min_runtime: true,
            topology: true,
            numa: false,
            pod_affinity: true,
        },
        max_consolidation_victims: Some(16),
        consolidating_reclaim: true,
        staleness_grace: Span::seconds(60),
        stuck_after: Span::seconds(120),
        preempt_min_runtime: Span::ZERO,
        reclaim_min_runtime: Span::ZERO,
        reclaim_min_runtime_rule: MinRuntimeRule::LowestCommonAncestor,
        saturation_multiplier: 1000,
        usage_weight: 1000,
        usage: None,
        queue_depth: Vec::new(),
    }
}
