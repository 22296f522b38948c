//! What changed in the cluster. Every object arrives whole, under its name; the same name again replaces it.
//!
//! Names stay outside the core's arrays: a pod is known by its uid, a PodGroup and a claim by `namespace/name`, everything else by
//! its name. Order of arrival does not matter: a pod may come before its group, a group before its queue, a child before its parent.
//! Whoever converts objects resolves what needs other objects (priority classes, BindRequests, claim templates) before it gets here.

mod constraint;
mod device;
mod group;
mod node;
mod pod;
mod queue;

pub use self::{
    constraint::{
        Constraints, Expression, HostPort, Operator, PodTerm, Selector, SpreadConstraint, Term, Toleration, VolumeNeed,
        Weighted, WhenUnsatisfiable,
    },
    device::{Claim, ClaimAllocation, ClaimRequest, Device, DeviceCount, DeviceRef},
    group::{PodGroup, SubGroup, TopologyConstraint},
    node::{MigStrategy, Node, NodeGpus, Numa, NumaPolicy, NumaScope, NumaZone, Taint, TaintEffect, Unavailable},
    pod::{Gpus, NumaShare, NumaUnit, Origin, Phase, Placement, Pod, Request, Role},
    queue::{Queue, QueueResource},
};

/// One change of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Delta {
    /// A node is there, as described.
    Node(Box<Node>),
    /// A node is gone. Pods on it stay known until they go themselves.
    NodeGone(String),
    /// A queue is there.
    Queue(Box<Queue>),
    /// A queue is gone.
    QueueGone(String),
    /// A PodGroup is there.
    PodGroup(Box<PodGroup>),
    /// A PodGroup is gone, by `namespace/name`.
    PodGroupGone(String),
    /// A pod is there.
    Pod(Box<Pod>),
    /// A pod is gone, by uid.
    PodGone(String),
    /// A topology is there.
    Topology(Topology),
    /// A topology is gone.
    TopologyGone(String),
    /// A ResourceClaim is there.
    Claim(Box<Claim>),
    /// A ResourceClaim is gone, by `namespace/name`.
    ClaimGone(String),
    /// Devices of DRA drivers serve an extended resource on nodes that do not offer it themselves.
    DeviceResource(DeviceResource),
    /// No devices serve this extended resource any more.
    DeviceResourceGone(String),
    /// The deletion of a pod was asked for, though its object does not say so yet.
    PodLeaves {
        /// Its uid.
        uid: String,
        /// Since when.
        since: crate::time::Time,
    },
}

/// An extended resource that devices of DRA drivers serve. `nvidia.com/gpu` stands for whole GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceResource {
    /// The name of the resource.
    pub resource: String,
    /// The kinds of devices that do, sorted.
    pub kinds: Vec<u32>,
    /// Whether they are GPUs that queues count.
    pub gpu: bool,
}

/// A Topology: the labels that divide nodes into domains, from the widest to the narrowest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Topology {
    /// Its name.
    pub name: String,
    /// Its levels, from the top.
    pub levels: Vec<Level>,
}

/// One level of a topology.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Level {
    /// The node label whose value names the domain.
    pub label: String,
    /// Another name for the level, usable in constraints.
    pub alias: Option<String>,
}
