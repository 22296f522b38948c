//! A node as it is described.

use std::collections::BTreeMap;

use super::Device;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Why nothing may be placed on it; empty: it is available.
    pub unavailable: Vec<Unavailable>,
    /// Millicores.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Slots for pods.
    pub pods: i64,
    /// Bytes of ephemeral storage.
    pub storage: i64,
    /// Every other resource it offers, MIG profiles too, without GPUs.
    pub extended: BTreeMap<String, i64>,
    /// Its GPUs of the device plugin.
    pub gpus: NodeGpus,
    /// Its NUMA zones, where they are reported.
    pub numa: Option<Numa>,
    /// Its devices of DRA drivers.
    pub devices: Vec<Device>,
}

/// The GPUs of a node that a device plugin serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NodeGpus {
    /// How many there physically are and work: never the number of time-sliced replicas.
    pub count: u32,
    /// MiB of memory of each, exactly as labelled; `None`: unknown, so no request by memory can be placed here.
    pub memory: Option<u64>,
    /// Whether and how they are divided by MIG.
    pub mig: MigStrategy,
}

/// How the GPUs of a node are divided by MIG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum MigStrategy {
    /// Not a MIG node.
    #[default]
    Off,
    /// A MIG node without a strategy: takes whole GPUs and profiles.
    Any,
    /// Profiles appear as whole GPUs: takes only those.
    Single,
    /// Profiles appear under their names: takes only those.
    Mixed,
}

/// A taint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, maybe empty.
    pub value: String,
    /// What it does to pods that do not tolerate it.
    pub effect: TaintEffect,
}

/// What a taint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum TaintEffect {
    /// Keeps pods off.
    NoSchedule,
    /// Keeps pods off if it can.
    PreferNoSchedule,
    /// Keeps pods off and drives them out.
    NoExecute,
}

/// Why nothing may be placed on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Unavailable {
    /// It is cordoned.
    Unschedulable,
    /// Its Ready condition is not true.
    NotReady,
    /// It is short of memory.
    MemoryPressure,
    /// It is short of disk.
    DiskPressure,
    /// It is short of process ids.
    PidPressure,
    /// Its network is not up.
    NetworkUnavailable,
    /// Something is wrong with the object itself.
    Invalid(String),
}

/// The NUMA zones of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Numa {
    /// How strictly the kubelet aligns.
    pub policy: NumaPolicy,
    /// What it aligns.
    pub scope: NumaScope,
    /// The zones, by index.
    pub zones: Vec<NumaZone>,
}

/// How strictly a kubelet aligns resources to zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum NumaPolicy {
    /// Not at all.
    None,
    /// Where it can.
    BestEffort,
    /// To the fewest zones that could ever do; else the pod is refused.
    Restricted,
    /// To one zone; else the pod is refused.
    SingleNumaNode,
}

/// What a kubelet aligns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum NumaScope {
    /// Each container.
    Container,
    /// The pod as one.
    Pod,
}

/// One NUMA zone. Resources are named as pods name them; cpu is in millicores, `nvidia.com/gpu` in devices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NumaZone {
    /// What it has in all.
    pub allocatable: BTreeMap<String, i64>,
    /// What was free when it was reported.
    pub available: BTreeMap<String, i64>,
}
