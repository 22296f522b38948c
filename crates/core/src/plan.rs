//! What to do, in order, and why the rest waits. A plan is complete: whoever carries it out has nothing left to decide.

mod reason;

pub use self::reason::{
    Cause, DeviceShortage, DomainRefusal, GroupRefusal, Holder, NodeRefusal, NodeRefusals, Overdraft, SubGroupShortage,
    Verdict, VictimRefusal,
};
use crate::{
    delta::{DeviceRef, NumaShare},
    ids::{ClaimId, GroupId, NodeId, PodId, QueueId},
    policy::Action,
    time::Time,
};

/// The outcome of a cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Plan {
    /// What to do, in this order.
    pub decisions: Vec<Decision>,
    /// Why the groups that still have pending pods wait, and what is wrong with objects, each by name.
    pub reasons: Vec<GroupRefusal>,
    /// What is wrong with objects themselves.
    pub verdicts: Vec<Verdict>,
    /// How much work it was.
    pub stats: Stats,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Decision {
    /// Bind a pod to a node.
    Bind(Placed),
    /// Nothing to write: the pod will be placed here when what is being released is free.
    Pipeline(Placed),
    /// End a pod.
    Evict(Eviction),
    /// Record that a group's pods started.
    Started {
        /// Which group.
        group: GroupId,
        /// When.
        at: Time,
    },
    /// Record since when a gang is below its minimum; `None`: it no longer is.
    Stale {
        /// Which group.
        group: GroupId,
        /// Since when.
        since: Option<Time>,
    },
}

/// A pod's place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Placed {
    /// Which pod.
    pub pod: PodId,
    /// Where.
    pub node: NodeId,
    /// For shares of devices: the names of their GPU groups. A name that no pod has yet is a device to be reserved.
    pub devices: Vec<String>,
    /// For shares of devices: the part of each, in millionths, rounded up.
    pub portion: u32,
    /// The devices chosen for claims that had none.
    pub claims: Vec<(ClaimId, Vec<(u32, DeviceRef)>)>,
    /// The devices chosen for extended resources that DRA drivers serve: the resource and the device.
    pub extended: Vec<(String, DeviceRef)>,
    /// The NUMA zones it will draw from, as foreseen.
    pub numa: Vec<NumaShare>,
}

/// The end of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Eviction {
    /// Which pod.
    pub pod: PodId,
    /// Its group.
    pub group: GroupId,
    /// By which rule.
    pub action: Action,
    /// For whom it was decided; `None` for stale gangs.
    pub beneficiary: Option<GroupId>,
    /// Who has what it made room for, if reclaim took it back from the beneficiary in the same cycle.
    pub heir: Option<GroupId>,
    /// The two queues that were compared, the beneficiary's first: children of their lowest common ancestor.
    pub queues: Option<(QueueId, QueueId)>,
    /// Whether the cycle found it another place.
    pub moved: bool,
}

/// How much work a cycle was. Counts, not times: equal input gives equal numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Stats {
    /// Groups tried by allocate.
    pub groups_tried: u64,
    /// Groups for which victims were searched.
    pub searches: u64,
    /// Searches that a necessary condition ended before they began.
    pub searches_refused: u64,
    /// Virtual evictions and placements that were tried out.
    pub simulations: u64,
    /// Nodes looked at.
    pub nodes_examined: u64,
}
