//! A PodGroup: its tree of subgroups and how many pods of each leaf stand where.
//!
//! Inner subgroups are *sets*, leaves are *podsets*. A group without subgroups is a root set with one podset.

use smallvec::SmallVec;

use crate::{
    cluster::status::Status,
    delta::TopologyConstraint,
    ids::{PodId, QueueId, Word},
    time::{Span, Time},
};

/// A PodGroup.
#[derive(Clone, Debug)]
pub struct Group {
    /// `namespace/name`.
    pub key: Box<str>,
    /// Whether the group is known; otherwise only pods have named it.
    pub exists: bool,
    /// Its queue's name.
    pub queue_name: Word,
    /// Its queue, if it exists.
    pub queue: Option<QueueId>,
    /// When it was made.
    pub created: Time,
    /// The value of its priority class.
    pub priority: i32,
    /// Whether it may be evicted for others.
    pub preemptible: bool,
    /// The leaves of its tree.
    pub podsets: SmallVec<[PodSet; 1]>,
    /// The inner subgroups, the root first, if there is more than the root with one podset, or a topology constraint.
    pub tree: Option<Box<Tree>>,
    /// Pods that name a subgroup it does not have.
    pub strays: Vec<PodId>,
    /// When its pods last started.
    pub last_start: Option<Time>,
    /// What only few groups have.
    pub rare: Option<Box<RareGroup>>,
    /// Its place in its queue's list of waiting groups.
    pub waiting_place: u32,
    /// Its place in its queue's list of running groups.
    pub running_place: u32,
}

/// What only few groups have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RareGroup {
    /// Nobody is evicted for it so long after creation or the last eviction.
    pub preemption_delay: Option<Span>,
    /// How long it may be below its minimum.
    pub staleness_grace: Option<Span>,
    /// When its pods were last evicted.
    pub last_eviction: Option<Time>,
    /// Since when it is below its minimum.
    pub stale_since: Option<Time>,
    /// What is wrong with it.
    pub invalid: Option<String>,
}

/// A leaf subgroup.
#[derive(Clone, Debug)]
pub struct PodSet {
    /// Its name; empty for the only one of a group without subgroups.
    pub name: Word,
    /// Pods that must run together.
    pub min: u32,
    /// Its pods, in any order.
    pub pods: Vec<PodId>,
    /// How many of them stand where.
    pub counts: [u32; Status::COUNT],
}

/// The inner subgroups of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The sets; the first is the root. Parents come before children.
    pub sets: Vec<SubGroupSet>,
    /// The topology constraint of each podset.
    pub podset_topology: Vec<Option<TopologyConstraint>>,
}

/// An inner subgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubGroupSet {
    /// Its name; empty for the root.
    pub name: Word,
    /// Its parts, by name.
    pub children: Vec<Child>,
    /// How many of them must run together; `None`: all.
    pub min: Option<u32>,
    /// Where it must or should be.
    pub topology: Option<TopologyConstraint>,
}

/// A part of an inner subgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// An inner subgroup.
    Set(u16),
    /// A leaf.
    PodSet(u16),
}

impl PodSet {
    /// A podset without pods.
    #[must_use]
    pub fn new(name: Word, min: u32) -> Self {
        Self { name, min, pods: Vec::new(), counts: [0; Status::COUNT] }
    }

    /// How many pods stand like this.
    #[must_use]
    pub fn count(&self, status: Status) -> u32 {
        self.counts[status.index()]
    }

    /// How many pods hold or are promised resources and do not leave.
    #[must_use]
    pub fn active_allocated(&self) -> u32 {
        [Status::Allocated, Status::Pipelined, Status::Binding, Status::Bound, Status::Running]
            .into_iter()
            .map(|status| self.count(status))
            .sum()
    }

    /// How many pods hold or are promised resources, leaving ones too.
    #[must_use]
    pub fn active(&self) -> u32 {
        self.active_allocated() + self.count(Status::Releasing) + self.count(Status::Stuck)
    }

    /// How many pods the gang can count on now: alive and not gated.
    #[must_use]
    pub fn ready(&self) -> u32 {
        self.active_allocated() + self.count(Status::Pending)
    }
}

impl Group {
    /// A group that is only known by name.
    #[must_use]
    pub fn unknown(key: Box<str>, empty: Word) -> Self {
        Self {
            key,
            exists: false,
            queue_name: empty,
            queue: None,
            created: Time(0),
            priority: 0,
            preemptible: false,
            podsets: SmallVec::new(),
            tree: None,
            strays: Vec::new(),
            last_start: None,
            rare: None,
            waiting_place: u32::MAX,
            running_place: u32::MAX,
        }
    }

    /// How many pods of all podsets stand like this.
    #[must_use]
    pub fn count(&self, status: Status) -> u32 {
        self.podsets.iter().map(|podset| podset.count(status)).sum()
    }

    /// How many pods hold or are promised resources and do not leave.
    #[must_use]
    pub fn active_allocated(&self) -> u32 {
        self.podsets.iter().map(PodSet::active_allocated).sum()
    }

    /// Below, at or above its minimum: 0, 1, 2. Groups below come first, groups above are taken from first.
    #[must_use]
    pub fn elastic_state(&self) -> u8 {
        let below = self.podsets.iter().any(|podset| podset.active_allocated() < podset.min);
        let above = self.podsets.iter().any(|podset| podset.active_allocated() > podset.min);
        if below {
            0
        } else if above {
            2
        } else {
            1
        }
    }

    /// What only few groups have, or the lack of it.
    #[must_use]
    pub fn rare(&self) -> &RareGroup {
        const NONE: &RareGroup = &RareGroup {
            preemption_delay: None,
            staleness_grace: None,
            last_eviction: None,
            stale_since: None,
            invalid: None,
        };
        self.rare.as_deref().unwrap_or(NONE)
    }
}
