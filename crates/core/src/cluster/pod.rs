//! A pod: its class, its group, and its place.

use smallvec::SmallVec;

use crate::{
    cluster::{numa::ZoneUse, status::Status},
    delta::Role,
    ids::{ClaimId, ClassId, GroupId, NodeId, Word},
    time::Time,
};

/// A pod.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Its uid.
    pub uid: Box<str>,
    /// When it was made.
    pub created: Time,
    /// Its group, if it has one that exists or may come.
    pub group: Option<GroupId>,
    /// The podset of its group; `u16::MAX` if the group has none of that name.
    pub podset: u16,
    /// What decides where it fits.
    pub class: ClassId,
    /// Its namespace.
    pub namespace: Word,
    /// Its labels: an entry of the cluster's label sets.
    pub labels: u32,
    /// Its rank in its podset: an entry of the cluster's roles.
    pub role: u32,
    /// Where it is, or was put in this cycle.
    pub place: Place,
    /// How it stood before this cycle.
    pub fact: Status,
    /// What only few pods have.
    pub rare: Option<Box<Rare>>,
}

/// What only few pods have.
#[derive(Clone, Debug, Default)]
pub struct Rare {
    /// When its deletion began.
    pub deleted: Option<Time>,
    /// The node it was nominated for.
    pub nominated: Option<Word>,
    /// The subgroup it names.
    pub subgroup: Option<Word>,
    /// Its claims.
    pub claims: Vec<ClaimId>,
    /// GPUs of its claims, in millionths.
    pub claimed_gpus: i128,
    /// Scheduled by others: it counts against what queues share.
    pub foreign: bool,
    /// What is wrong with it.
    pub invalid: Option<String>,
}

/// Where a pod is, or is promised to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// How it stands.
    pub status: Status,
    /// The node, for active pods.
    pub node: Option<NodeId>,
    /// The shared devices it has a part of.
    pub devices: SmallVec<[Word; 2]>,
    /// What only few places have.
    pub detail: Option<Box<Detail>>,
}

/// What only few places have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// What it draws from which NUMA zones.
    pub numa: Vec<ZoneUse>,
    /// For each claim, the devices: the request's place and the device's place on the node.
    pub claims: Vec<(ClaimId, Vec<(u32, u32)>)>,
    /// For each unit of an extended resource that a DRA driver serves, the device's place on the node.
    pub extended: Vec<(Word, u32)>,
}

impl Pod {
    /// Whether this cycle evicted it and found it no other place.
    #[must_use]
    pub fn is_evicted(&self) -> bool {
        self.place.status == Status::Releasing && self.fact != Status::Releasing
    }

    /// Its claims.
    #[must_use]
    pub fn claims(&self) -> &[ClaimId] {
        self.rare.as_ref().map_or(&[], |rare| &rare.claims)
    }

    /// Whether others schedule it.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.foreign)
    }
}

impl Place {
    /// A place nowhere.
    #[must_use]
    pub fn nowhere(status: Status) -> Self {
        Self { status, node: None, devices: SmallVec::new(), detail: None }
    }

    /// The same place with another status.
    #[must_use]
    pub fn with(&self, status: Status) -> Self {
        Self { status, ..self.clone() }
    }
}

/// What puts pods of a podset in order: first the leaders, then by task priority, age and uid.
#[must_use]
pub fn order_key(role: Role) -> (bool, bool, i64) {
    let priority = match role.task_priority {
        // Higher first; pods with the label before those without; unreadable ones last.
        Some(i64::MIN) => i64::MAX,
        Some(priority) => priority.saturating_neg().clamp(i64::MIN, i64::MAX - 2),
        None => i64::MAX - 1,
    };
    (!role.kubeflow_leader, !role.ray_head, priority)
}
