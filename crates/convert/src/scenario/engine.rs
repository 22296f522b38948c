//! What drives the scenarios: the core, seen through the few questions a scenario asks of it.

use std::collections::BTreeMap;

use kai_core::{
    delta::Delta,
    ids::{GroupId, NodeId, PodId},
    plan::{Plan, Verdict},
    policy::Policy,
    time::Time,
};

use crate::explain::Names;

/// A scheduler for scenarios.
pub trait Engine: Names {
    /// Takes what changed.
    fn apply(&mut self, delta: Delta);
    /// One cycle.
    fn plan(&mut self, now: Time, policy: &Policy) -> Plan;
    /// A pod by its uid.
    fn pod(&self, uid: &str) -> Option<PodId>;
    /// A group by `namespace/name`.
    fn group(&self, key: &str) -> Option<GroupId>;
    /// A node by its name.
    fn node(&self, name: &str) -> Option<NodeId>;
    /// Whole GPUs of a node that are idle, and that are being released.
    fn node_gpus(&self, node: NodeId) -> (i64, i64);
    /// What the NUMA zones of a node have left.
    fn numa_available(&self, node: NodeId) -> Vec<BTreeMap<String, i64>>;
    /// What is wrong with objects.
    fn verdicts(&self) -> Vec<Verdict> {
        Vec::new()
    }
}
