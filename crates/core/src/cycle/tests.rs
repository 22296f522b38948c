//! A cycle against slow and obvious twins of its parts, on random small clusters.
//!
//! ```text
//!   node_choice     facts ─▶ every node scored by KAI's written sum        = the node and devices of the plan
//!   victim_search   cluster ─▶ every allowed set of victims played         = whether, and at what price, a search succeeds
//!   objections      every node asked anew                                  = what was kept of the last cycle and mended
//!   undo            cluster ─▶ plan ─▶ settle                              = the cluster as it was
//! ```

mod node_choice;
mod objections;
mod regressions;
mod traits;
mod unconfirmed;
mod undo;
mod victim_search;
mod world;

use std::collections::BTreeMap;

use crate::{
    amounts::GPU,
    cluster::Cluster,
    delta::{self, Delta, Gpus, MigStrategy, Origin, Phase, QueueResource},
    plan::{Decision, Placed, Plan},
    policy::{Action, MinRuntimeRule, Plugins, Policy, Strategy},
    time::{Span, Time},
};

/// The time at which everything is planned.
const NOW: Time = Time(1_000_000);

/// KAI's defaults with some actions.
fn policy(actions: &[Action]) -> Policy {
    Policy {
        actions: actions.to_vec(),
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
        usage_weight: 0,
        usage: None,
        queue_depth: Vec::new(),
    }
}

/// An empty node with some GPUs of 16 MiB.
fn node(name: &str, gpus: u32) -> delta::Node {
    delta::Node {
        name: name.to_owned(),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        unavailable: Vec::new(),
        cpu: 64_000,
        memory: 64_000,
        pods: 110,
        storage: 0,
        extended: BTreeMap::new(),
        gpus: delta::NodeGpus { count: gpus, memory: Some(16), mig: MigStrategy::Off },
        numa: None,
        devices: Vec::new(),
    }
}

/// A queue at the top without limits.
fn queue(name: &str, gpu_quota: Option<i64>) -> delta::Queue {
    let free = QueueResource { quota: None, limit: None, over_quota_weight: 1_000_000 };
    delta::Queue {
        name: name.to_owned(),
        parent: None,
        created: Time(0),
        priority: 100,
        cpu: free,
        memory: free,
        gpu: QueueResource { quota: gpu_quota.map(|gpus| gpus * GPU), ..free },
        preempt_min_runtime: None,
        reclaim_min_runtime: None,
    }
}

/// A preemptible group of a queue of which `min` pods must run together.
fn group(key: &str, queue: &str, min: u32) -> delta::PodGroup {
    delta::PodGroup {
        key: key.to_owned(),
        queue: queue.to_owned(),
        created: Time(0),
        priority: 50,
        preemptible: true,
        min_member: Some(min),
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

/// A waiting pod of a group.
fn pod(uid: &str, group: &str, gpus: Gpus) -> delta::Pod {
    delta::Pod {
        uid: uid.to_owned(),
        namespace: "default".to_owned(),
        labels: BTreeMap::new(),
        group: Some(group.to_owned()),
        subgroup: None,
        created: Time(0),
        phase: Phase::Pending,
        deleted: None,
        placement: None,
        origin: Origin::Ours,
        role: delta::Role::default(),
        nominated: None,
        request: delta::Request { gpus, ..delta::Request::default() },
        constraints: delta::Constraints::default(),
        claims: Vec::new(),
        invalid: None,
    }
}

/// The pod, running on a node with a part of some devices.
fn running(pod: delta::Pod, node: &str, devices: &[String]) -> delta::Pod {
    let placement =
        delta::Placement { node: node.to_owned(), devices: devices.to_vec(), numa: Vec::new(), bound: true };
    delta::Pod { phase: Phase::Running, placement: Some(placement), ..pod }
}

/// A cluster of these objects.
fn cluster(deltas: impl IntoIterator<Item = Delta>) -> Cluster {
    let mut cluster = Cluster::new();
    for delta in deltas {
        cluster.apply(delta);
    }
    cluster
}

/// The decisions of a plan, by name.
fn told(cluster: &Cluster, plan: &Plan) -> Vec<String> {
    let place = |placed: &Placed| {
        let (pod, node) = (cluster.pod_uid(placed.pod), cluster.node_name(placed.node));
        if placed.devices.is_empty() {
            format!("{pod} on {node}")
        } else {
            format!("{pod} on {node} {:?}", placed.devices)
        }
    };
    let decisions = plan.decisions.iter().map(|decision| match decision {
        Decision::Bind(placed) => format!("bind {}", place(placed)),
        Decision::Pipeline(placed) => format!("promise {}", place(placed)),
        Decision::Evict(eviction) => {
            let whom = eviction.beneficiary.map(|group| cluster.group_key(group));
            let verb = if eviction.moved { "move" } else { "evict" };
            format!("{verb} {} by {:?} for {whom:?}", cluster.pod_uid(eviction.pod), eviction.action)
        }
        Decision::Started { group, .. } => format!("started {}", cluster.group_key(*group)),
        Decision::Stale { group, since } => format!("stale {} since {since:?}", cluster.group_key(*group)),
    });
    decisions.collect()
}

/// So many random clusters for each property, unless the environment says otherwise.
fn cases(normally: u32) -> proptest::test_runner::Config {
    proptest::test_runner::Config {
        cases: crate::test_cases(normally),
        max_shrink_iters: 4000,
        failure_persistence: None,
        ..proptest::test_runner::Config::default()
    }
}
