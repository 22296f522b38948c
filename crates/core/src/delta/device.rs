//! Devices of DRA drivers and the claims on them.
//!
//! Selectors are expressions of another language; whoever converts objects evaluates them. What is left are *kinds*: devices that no
//! selector tells apart share a kind, and a request lists the kinds it takes.

/// A device of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Device {
    /// Which one.
    pub device: DeviceRef,
    /// Devices of equal kind satisfy the same requests.
    pub kind: u32,
    /// Whether it is a GPU that queues count.
    pub gpu: bool,
}

/// The name of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceRef {
    /// The driver.
    pub driver: String,
    /// The pool.
    pub pool: String,
    /// The device in the pool.
    pub name: String,
}

/// A ResourceClaim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Claim {
    /// `namespace/name`.
    pub key: String,
    /// What it asks for.
    pub requests: Vec<ClaimRequest>,
    /// The devices it has and the node they are on; `None`: not allocated.
    pub allocation: Option<ClaimAllocation>,
    /// The pods that hold it, by uid.
    pub reserved_for: Vec<String>,
    /// How many pods may hold it.
    pub max_consumers: u32,
    /// The queue whose label it carries.
    pub queue: Option<String>,
    /// Whether it was made for one pod from a template; others are shared and must carry their queue's label if they hold GPUs.
    pub of_one_pod: bool,
    /// What makes it impossible to allocate, as a sentence: a missing device class, a request that is not supported.
    pub impossible: Option<String>,
}

/// The devices a claim has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClaimAllocation {
    /// The node; `None`: usable from everywhere.
    pub node: Option<String>,
    /// For each device the request's place in [`Claim::requests`] and the device.
    pub devices: Vec<(u32, DeviceRef)>,
}

/// One request of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClaimRequest {
    /// Its name.
    pub name: String,
    /// How many devices.
    pub count: DeviceCount,
    /// The kinds that do, sorted.
    pub kinds: Vec<u32>,
    /// Whether its devices are GPUs that queues count.
    pub gpu: bool,
}

/// How many devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum DeviceCount {
    /// So many.
    Exactly(u64),
    /// Every one of the node that matches.
    All,
}
