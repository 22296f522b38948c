//! What a board looks like to Kubernetes: the known kinds of machine with the labels, versions and sizes of real ones.
//!
//! Values come from published `kubectl get node -o yaml` output and from running GPU Feature Discovery and the device plugin
//! against a fake NVML; they are data, so that a scheduler tested here meets the same label sets as in the field.

mod datacenter;
mod end_to_end;
mod jetson;
mod labels;

use std::collections::BTreeMap;

use crate::seed::Seed;

/// The names `Fleet` accepts, in the order users see them.
pub const KNOWN: &[(&str, &str)] = &[
    ("thor", "Jetson AGX Thor, 128 GB shared memory, one GPU, k3s (`thor:replicas=4` for time-slicing)"),
    ("orin", "Jetson AGX Orin, 64 GB shared memory, one GPU, k3s"),
    ("dgx-h100", "DGX H100, 8 x H100 80 GB"),
    ("a100-mig", "DGX A100, 8 x A100 40 GB, each cut into 2 x 1g.5gb, 2g.10gb, 3g.20gb"),
    ("t4x4", "g4dn.12xlarge, 4 x T4 16 GB"),
    ("cpu", "16 cores, 64 GB, no GPU"),
    ("kai-e2e", "the seven workers of KAI's end-to-end set-up: 4 with 8 fake K80, 2 with 8 by DRA, 1 without"),
];

/// Processor architecture as Kubernetes names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// x86-64.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Architecture {
    /// The value of `kubernetes.io/arch`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// One device the plugin advertises, before sharing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// What the device plugin calls it, such as `GPU-…`, `MIG-…` or `tegra`.
    pub id: String,
    /// What a container sees in `NVIDIA_VISIBLE_DEVICES`.
    pub visible_as: String,
    /// What NVML calls it.
    pub uuid: String,
}

/// A machine without a name: everything of a node that its kind decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Preset name.
    pub preset: &'static str,
    /// Processor architecture.
    pub architecture: Architecture,
    /// `nodeInfo.osImage`.
    pub os_image: &'static str,
    /// `nodeInfo.kernelVersion`; ends in `-tegra` on Jetson boards.
    pub kernel: &'static str,
    /// `nodeInfo.containerRuntimeVersion`.
    pub runtime: &'static str,
    /// `nodeInfo.kubeletVersion`.
    pub kubelet: &'static str,
    /// Capacity: quantities as text, without devices.
    pub capacity: BTreeMap<String, String>,
    /// What the kubelet and system keep for themselves.
    pub reserved: BTreeMap<String, String>,
    /// Labels beyond host name, OS and architecture.
    pub labels: BTreeMap<String, String>,
    /// Annotations beyond the kubelet's own.
    pub annotations: BTreeMap<String, String>,
    /// Devices by resource name, physical ones.
    pub devices: BTreeMap<String, Vec<Device>>,
    /// GPUs published as a `ResourceSlice` of driver `gpu.nvidia.com` instead of by a device plugin.
    pub slice: Option<SliceGpus>,
}

/// GPUs that a DRA driver publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceGpus {
    /// Product name attribute.
    pub product: &'static str,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Device UUIDs.
    pub uuids: Vec<String>,
}

/// How a group multiplies devices, as the device plugin's `sharing.timeSlicing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas(pub u32);

/// The machines that a preset name stands for: (suffix of the node name, shape). One entry for all but `kai-e2e`.
///
/// `node` is the name the group's nodes start with; it only flavours device ids.
pub fn shapes(preset: &str, replicas: Replicas, seed: Seed, node: &str) -> Option<Vec<Shape>> {
    let one = |shape| Some(vec![shape]);
    match preset {
        "thor" => one(jetson::thor(replicas, seed, node)),
        "orin" => one(jetson::orin(replicas, seed, node)),
        "dgx-h100" => one(datacenter::dgx_h100(replicas, seed, node)),
        "a100-mig" => one(datacenter::a100_mig(replicas, seed, node)),
        "t4x4" => one(datacenter::t4x4(replicas, seed, node)),
        "cpu" => one(datacenter::cpu()),
        "kai-e2e" => Some(end_to_end::workers(seed, node)),
        _ => None,
    }
}

fn text_map<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, String> {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn gpus(seed: Seed, node: &str, count: usize) -> Vec<Device> {
    (0..count)
        .map(|index| {
            let id = format!("GPU-{}", seed.uuid(&["gpu", node, &index.to_string()]));
            Device { visible_as: id.clone(), uuid: id.clone(), id }
        })
        .collect()
}

#[cfg(test)]
mod tests;
