//! The label sets of GPU Feature Discovery 0.20 and of the GPU operator.

use std::collections::BTreeMap;

use super::Replicas;

/// What GPU Feature Discovery says of a node whose GPUs are all of one model.
pub struct Gpu {
    /// Sanitised product name, without `-SHARED`.
    pub product: &'static str,
    /// Number of physical GPUs.
    pub count: u32,
    /// MiB each, if NVML knows.
    pub memory_mib: Option<u64>,
    /// Architecture family by compute capability.
    pub family: &'static str,
    /// Compute capability.
    pub compute: (u32, u32),
    /// Sanitised DMI product name.
    pub machine: &'static str,
    /// `compute`, `graphics` or `unknown`.
    pub mode: &'static str,
    /// Driver version in its three parts; the last may be empty.
    pub driver: (&'static str, &'static str, &'static str),
    /// CUDA version of the driver.
    pub cuda: (u32, u32),
    /// Whether NVML answers the MIG question.
    pub mig_capable: bool,
}

/// GFD's labels without MIG resources.
pub fn feature_discovery(gpu: &Gpu, replicas: Replicas) -> BTreeMap<String, String> {
    let shared = replicas.0 > 1;
    let (major, minor, revision) = gpu.driver;
    let full = if revision.is_empty() { format!("{major}.{minor}") } else { format!("{major}.{minor}.{revision}") };
    let mut labels = BTreeMap::new();
    let mut set = |key: &str, value: String| labels.insert(format!("nvidia.com/{key}"), value);
    set("gpu.count", gpu.count.to_string());
    set("gpu.product", if shared { format!("{}-SHARED", gpu.product) } else { gpu.product.to_owned() });
    if let Some(memory) = gpu.memory_mib {
        set("gpu.memory", memory.to_string());
    }
    set("gpu.replicas", replicas.0.to_string());
    set("gpu.sharing-strategy", if shared { "time-slicing" } else { "none" }.to_owned());
    set("gpu.family", gpu.family.to_owned());
    set("gpu.compute.major", gpu.compute.0.to_string());
    set("gpu.compute.minor", gpu.compute.1.to_string());
    set("gpu.machine", gpu.machine.to_owned());
    set("gpu.mode", gpu.mode.to_owned());
    set("gpu.present", "true".to_owned());
    set("mig.capable", gpu.mig_capable.to_string());
    set("mps.capable", "false".to_owned());
    set("vgpu.present", "false".to_owned());
    set("cuda.driver.major", major.to_owned());
    set("cuda.driver.minor", minor.to_owned());
    set("cuda.driver.rev", revision.to_owned());
    set("cuda.driver-version.major", major.to_owned());
    set("cuda.driver-version.minor", minor.to_owned());
    set("cuda.driver-version.revision", revision.to_owned());
    set("cuda.driver-version.full", full);
    set("cuda.runtime.major", gpu.cuda.0.to_string());
    set("cuda.runtime.minor", gpu.cuda.1.to_string());
    set("cuda.runtime-version.major", gpu.cuda.0.to_string());
    set("cuda.runtime-version.minor", gpu.cuda.1.to_string());
    set("cuda.runtime-version.full", format!("{}.{}", gpu.cuda.0, gpu.cuda.1));
    labels
}

/// One MIG profile as GFD describes it under the mixed strategy.
pub struct MigProfile {
    /// Profile name, such as `1g.5gb`.
    pub name: &'static str,
    /// Instances on the node.
    pub count: u32,
    /// MiB each.
    pub memory_mib: u64,
    /// Streaming multiprocessors each.
    pub multiprocessors: u32,
    /// GPU and compute slices.
    pub slices: u32,
    /// Copy and decoder engines.
    pub engines: (u32, u32),
}

/// GFD's labels of one MIG profile under the mixed strategy.
pub fn mig_profile(product: &str, profile: &MigProfile, replicas: Replicas) -> BTreeMap<String, String> {
    let shared = replicas.0 > 1;
    let mut labels = BTreeMap::new();
    let mut set = |key: &str, value: String| labels.insert(format!("nvidia.com/mig-{}.{key}", profile.name), value);
    let suffix = if shared { "-SHARED" } else { "" };
    set("product", format!("{product}-MIG-{}{suffix}", profile.name));
    set("count", profile.count.to_string());
    set("replicas", replicas.0.to_string());
    set("sharing-strategy", if shared { "time-slicing" } else { "none" }.to_owned());
    set("memory", profile.memory_mib.to_string());
    set("multiprocessors", profile.multiprocessors.to_string());
    set("slices.gi", profile.slices.to_string());
    set("slices.ci", profile.slices.to_string());
    set("engines.copy", profile.engines.0.to_string());
    set("engines.decoder", profile.engines.1.to_string());
    for none in ["encoder", "jpeg", "ofa"] {
        set(&format!("engines.{none}"), "0".to_owned());
    }
    labels
}

/// What the GPU operator and node feature discovery add on a data-centre node.
pub fn gpu_operator() -> BTreeMap<String, String> {
    let deployed = [
        "container-toolkit",
        "dcgm",
        "dcgm-exporter",
        "device-plugin",
        "driver",
        "gpu-feature-discovery",
        "node-status-exporter",
        "operator-validator",
    ];
    let mut labels: BTreeMap<String, String> =
        deployed.into_iter().map(|part| (format!("nvidia.com/gpu.deploy.{part}"), "true".to_owned())).collect();
    labels.insert("feature.node.kubernetes.io/pci-10de.present".to_owned(), "true".to_owned());
    labels.insert("feature.node.kubernetes.io/system-os_release.ID".to_owned(), "ubuntu".to_owned());
    labels
}
