//! A PodGroup as it is described.

use crate::time::{Span, Time};

/// A PodGroup: pods that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PodGroup {
    /// `namespace/name`.
    pub key: String,
    /// The name of its queue.
    pub queue: String,
    /// When it was made.
    pub created: Time,
    /// The value of its priority class.
    pub priority: i32,
    /// Whether it may be evicted for others.
    pub preemptible: bool,
    /// Pods that must run together where there are no subgroups; `None` is 1.
    pub min_member: Option<u32>,
    /// Subgroups at the top that must run together; `None` is all.
    pub min_sub_group: Option<u32>,
    /// Where the group as a whole must or should be.
    pub topology: Option<TopologyConstraint>,
    /// Its subgroups, in any order.
    pub subgroups: Vec<SubGroup>,
    /// For so long after creation or the last eviction nobody is evicted for it.
    pub preemption_delay: Option<Span>,
    /// How long it may be below its minimum; negative: for ever; `None`: as the policy says.
    pub staleness_grace: Option<Span>,
    /// When its pods last started.
    pub last_start: Option<Time>,
    /// When its pods were last evicted.
    pub last_eviction: Option<Time>,
    /// Since when it is below its minimum, as recorded.
    pub stale_since: Option<Time>,
    /// What is wrong with the object itself: it is not scheduled and gets this as its verdict.
    pub invalid: Option<String>,
}

/// A part of a PodGroup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SubGroup {
    /// Its name, unique in the group.
    pub name: String,
    /// The subgroup it is part of; `None`: the group itself.
    pub parent: Option<String>,
    /// Pods that must run together, if it has pods; `None` is 0.
    pub min_member: Option<u32>,
    /// Subgroups of it that must run together, if it has any; `None` is all.
    pub min_sub_group: Option<u32>,
    /// Where it must or should be.
    pub topology: Option<TopologyConstraint>,
}

/// Where pods must or should be together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TopologyConstraint {
    /// The name of the topology.
    pub topology: String,
    /// The level, as label or alias, of the one domain that must hold all.
    pub required: Option<String>,
    /// The level of the one domain that should hold all.
    pub preferred: Option<String>,
}
