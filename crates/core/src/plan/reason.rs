//! Why not: each refusal as a value, made at the moment of the decision.
//!
//! ```text
//! group ─▶ causes ─▶ queue: over limit, over quota, missing
//!                 ─▶ gang: subgroup ─▶ pod ─▶ nodes, counted by refusal ─▶ resource, amount, holders
//!                 ─▶ topology: domains, each with what it lacks
//!                 ─▶ victims: what each candidate was refused for
//! ```
//!
//! Text is made elsewhere.

use crate::{
    amounts::Resource,
    delta::Unavailable,
    ids::{GroupId, NodeId, PodId, QueueId, Word},
    policy::Action,
    time::Time,
};

/// Why a group waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GroupRefusal {
    /// Which group.
    pub group: GroupId,
    /// Why, in the order in which it was found out.
    pub causes: Vec<Cause>,
}

/// One cause.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Cause {
    /// The object itself is wrong.
    Invalid(String),
    /// Its queue does not exist.
    QueueMissing(String),
    /// Its queue cannot be used: it has children, a missing ancestor, or is its own ancestor.
    QueueUnusable(String),
    /// Fewer pods exist than must run together.
    NotReady(Vec<SubGroupShortage>),
    /// A queue would exceed its limit.
    OverLimit(Overdraft),
    /// A queue's pods that cannot be evicted would exceed its quota.
    NonPreemptibleOverQuota(Overdraft),
    /// Nobody is evicted for it yet.
    PreemptionDelayNotElapsed {
        /// When the delay ends.
        until: Time,
    },
    /// Its topology constraint names something that does not exist, as a sentence.
    TopologyUnknown(String),
    /// No domain can hold it.
    Topology {
        /// The subgroup, empty for the whole group.
        subgroup: String,
        /// The topology's name.
        topology: String,
        /// The level's label.
        level: String,
        /// What each domain lacks; empty: even all of them together are too small.
        domains: Vec<DomainRefusal>,
    },
    /// A gang could not be placed as a whole.
    Gang {
        /// The subgroup.
        subgroup: String,
        /// Pods that found a place.
        placed: u32,
        /// Pods that need one.
        needed: u32,
        /// The first pod that found none.
        pod: PodId,
        /// What the nodes said.
        nodes: NodeRefusals,
    },
    /// A pod found no place; it is not part of a gang or its gang already runs.
    Pod {
        /// Which pod.
        pod: PodId,
        /// What the nodes said.
        nodes: NodeRefusals,
    },
    /// No victims were found for it.
    Victims {
        /// By which action.
        action: Action,
        /// What candidates were refused for, and how many.
        refused: Vec<(VictimRefusal, u32)>,
    },
    /// An equal group was refused earlier in the cycle: the causes are the same.
    SameAs(GroupId),
}

/// A subgroup with too few pods.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SubGroupShortage {
    /// The subgroup.
    pub subgroup: String,
    /// Pods that must run together.
    pub needed: u32,
    /// Pods that exist.
    pub existing: u32,
    /// Of those, pods that are gated.
    pub gated: u32,
}

/// A queue asked for more than it may have. GPUs are in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Overdraft {
    /// The first queue, from the leaf upwards, that objects.
    pub queue: QueueId,
    /// The resource: a place in [`crate::amounts::Shares`].
    pub resource: u8,
    /// What it may have.
    pub allowed: i128,
    /// What it has.
    pub allocated: i128,
    /// What was asked.
    pub requested: i128,
}

/// What the nodes said to a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NodeRefusals {
    /// What keeps it off every node, as a sentence: a missing object, a request above the largest node.
    pub everywhere: Option<String>,
    /// Each refusal with the number of nodes, the most frequent first.
    pub counts: Vec<(NodeRefusal, u32)>,
    /// Who holds the GPUs that are short, the largest holder first; at most five.
    pub holders: Vec<Holder>,
    /// The shared device that came nearest to taking the pod, where parts of devices are short.
    pub nearest: Option<Box<DeviceShortage>>,
}

/// A shared device that has too little left. Amounts are in millionths of a MiB where the memory of the device is known, else in
/// millionths of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceShortage {
    /// Its node.
    pub node: NodeId,
    /// Its GPU group.
    pub device: Word,
    /// MiB of memory, where that is known.
    pub memory: Option<u64>,
    /// What it has in all.
    pub capacity: u64,
    /// What is held by or promised to others.
    pub held: u64,
    /// What was asked for.
    pub asked: u64,
    /// Who holds it, by uid.
    pub holders: Vec<PodId>,
}

/// Who holds how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Holder {
    /// The queue.
    pub queue: QueueId,
    /// Millionths of a GPU.
    pub gpus: i128,
}

/// Why a node does not do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum NodeRefusal {
    /// Not enough of a resource; the smallest amount missing on any such node.
    Short(Resource, i64),
    /// No device, or not enough of them, has so much left: the request is for shares of devices.
    GpuMemoryShort,
    /// Not enough slots for pods.
    PodSlots,
    /// The node takes no pods.
    Unavailable(Unavailable),
    /// Its labels do not match the node selector or the node affinity.
    NodeAffinity,
    /// A taint is not tolerated: its key.
    Taint(Word),
    /// Required pods are not there.
    PodAffinity,
    /// Pods to stay away from are there.
    PodAntiAffinity,
    /// Pods there want to stay away from it.
    ExistingAntiAffinity,
    /// It would make the spread uneven.
    Spread,
    /// A port is taken.
    HostPort,
    /// A volume cannot be there.
    Volume(String),
    /// The memory of its devices is not known.
    GpuMemoryUnknown,
    /// Its devices cannot be shared: a DRA driver serves them.
    NotShareable,
    /// The request and the node's MIG strategy do not go together.
    Mig(String),
    /// Its devices do not satisfy the claims.
    Claims(String),
    /// Its NUMA zones cannot hold the pod as its kubelet demands.
    Numa,
    /// The node refused the pod before and is not tried now: its name.
    Vetoed(String),
    /// A queue would exceed its limit with the share this node's devices make of the request.
    OverLimit(Overdraft),
    /// A queue's pods that cannot be evicted would exceed its quota with the share this node's devices make of the request.
    NonPreemptibleOverQuota(Overdraft),
}

/// What a domain of a topology lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DomainRefusal {
    /// The domain: label values from the top, joined with dots.
    pub domain: String,
    /// Pods it could take, where all pods are alike.
    pub pods: Option<u32>,
    /// Pods it should take.
    pub needed: u32,
    /// The resource it lacks, where pods differ.
    pub short: Option<Resource>,
}

/// Why a candidate is not a victim, or why victims did not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum VictimRefusal {
    /// The pending group's queue would exceed its fair share.
    AboveFairShare,
    /// The pending group cannot be evicted and would exceed its queue's quota.
    AboveQuota,
    /// Even everything the rules allow to take is too little.
    TooLittleToTake,
    /// Nothing may be taken from anybody.
    NoCandidates,
    /// Its queue is within its share.
    QueueWithinShare,
    /// It has not run for its minimum time.
    MinRuntime,
    /// Taking it would not have made room.
    NoRoom,
    /// Taking it would have been unfair to its queue.
    Unfair,
    /// It could not be placed elsewhere.
    NotMovable,
    /// More groups would have to move than the policy allows.
    TooManyMoves,
    /// The pending group cannot itself be evicted: nobody is moved for it.
    NotPreemptible,
    /// Not enough GPUs are free in the whole cluster.
    ClusterFull,
    /// No node could ever hold it.
    NeverFits,
}

/// What is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Verdict {
    /// `queue`, `pod group`, `pod`, `node`, `topology`, `claim`.
    pub kind: String,
    /// Its name, as the delta had it.
    pub name: String,
    /// What is wrong, naming the field.
    pub what: String,
}
