//! A pod as it is described.

use std::collections::BTreeMap;

use super::Constraints;
use crate::time::Time;

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Pod {
    /// Its uid: the name under which the core knows it.
    pub uid: String,
    /// Its namespace, for affinity between pods.
    pub namespace: String,
    /// Its labels, for affinity between pods.
    pub labels: BTreeMap<String, String>,
    /// `namespace/name` of its PodGroup.
    pub group: Option<String>,
    /// The subgroup it belongs to; `None`: the default one.
    pub subgroup: Option<String>,
    /// When it was made.
    pub created: Time,
    /// Where it is in its life.
    pub phase: Phase,
    /// When its deletion began.
    pub deleted: Option<Time>,
    /// Where it runs or is about to.
    pub placement: Option<Placement>,
    /// Who schedules it.
    pub origin: Origin,
    /// Its rank among the pods of its subgroup.
    pub role: Role,
    /// The node it was nominated for.
    pub nominated: Option<String>,
    /// What it asks for.
    pub request: Request,
    /// Where it may be.
    pub constraints: Constraints,
    /// The claims it uses, by `namespace/name`.
    pub claims: Vec<String>,
    /// What is wrong with the object itself: it is not scheduled and gets this as its verdict.
    pub invalid: Option<String>,
}

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Phase {
    /// Not running yet. With a placement it is bound or being bound.
    Pending,
    /// Not to be scheduled yet.
    Gated,
    /// Running.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
}

/// Where a pod is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Placement {
    /// The node's name.
    pub node: String,
    /// The shared devices it has a part of, by the names of their GPU groups.
    pub devices: Vec<String>,
    /// The NUMA zones it draws from, where that is known.
    pub numa: Vec<NumaShare>,
    /// Whether it is bound; otherwise a BindRequest is on its way.
    pub bound: bool,
}

/// What a pod draws from one NUMA zone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NumaShare {
    /// The zone's index.
    pub zone: u32,
    /// How much of what.
    pub amounts: BTreeMap<String, i64>,
}

/// Who schedules a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Origin {
    /// This scheduler.
    Ours,
    /// This system's own helpers: reservation pods and scaling pods. What they hold is not taken from what queues share.
    Utility,
    /// Others. What they hold is taken from what queues share.
    Foreign,
}

/// What puts a pod before the others of its subgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Role {
    /// Kubeflow's master or launcher.
    pub kubeflow_leader: bool,
    /// Ray's head.
    pub ray_head: bool,
    /// The label `kai.scheduler/task-priority`: higher first, then pods without it, then pods where it cannot be read (`i64::MIN`).
    pub task_priority: Option<i64>,
}

/// What a pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Request {
    /// Millicores.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes of ephemeral storage.
    pub storage: i64,
    /// Every other resource, MIG profiles too, without GPUs.
    pub extended: BTreeMap<String, i64>,
    /// GPUs.
    pub gpus: Gpus,
    /// What its MIG profiles cost the queue: g-numbers times counts, in millionths of a GPU.
    pub mig_share: i64,
    /// A legacy MIG pod, by annotation: never schedulable, and it keeps MIG pods off its node.
    pub legacy_mig: bool,
    /// What a kubelet would align to NUMA zones; empty: nothing.
    pub numa: Vec<NumaUnit>,
}

/// GPUs of the device plugin that a pod asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Gpus {
    /// None.
    #[default]
    None,
    /// Whole ones.
    Whole(u32),
    /// A part of each of some.
    Portion {
        /// How many devices.
        devices: u32,
        /// Which part of each, in millionths; less than one GPU.
        millionths: u32,
    },
    /// Memory of each of some.
    Memory {
        /// How many devices.
        devices: u32,
        /// MiB of each.
        mib: u64,
    },
}

/// Resources that a kubelet places together: those of the pod or of one container.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NumaUnit {
    /// Whether it stands for the whole pod, as a kubelet of pod scope sees it, or for a container.
    pub whole_pod: bool,
    /// An init container that ends before the others start: it must fit alone.
    pub init: bool,
    /// How much of what, as [`super::NumaZone`] names it; only what the kubelet would align for this pod.
    pub amounts: BTreeMap<String, i64>,
}
