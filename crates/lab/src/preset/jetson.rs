//! Jetson boards under k3s with the device plugin in its Tegra mode: one device called `tegra`, memory shared with the CPU.

use std::collections::BTreeMap;

use super::{
    Architecture, Device, Replicas, Shape,
    labels::{Gpu, feature_discovery},
    text_map,
};
use crate::seed::Seed;

/// Jetson AGX Thor developer kit, `JetPack` 7: NVML is there but knows no memory size, so GFD writes no `gpu.memory`.
pub fn thor(replicas: Replicas, seed: Seed, node: &str) -> Shape {
    let mut labels = feature_discovery(
        &Gpu {
            product: "NVIDIA-Thor",
            count: 1,
            memory_mib: None,
            // GFD has no name for compute capability 11.
            family: "undefined",
            compute: (11, 0),
            machine: "NVIDIA-Jetson-AGX-Thor-Developer-Kit",
            mode: "unknown",
            driver: ("580", "00", ""),
            cuda: (13, 0),
            mig_capable: false,
        },
        replicas,
    );
    labels.extend(k3s());
    Shape {
        preset: "thor",
        os_image: "Ubuntu 24.04.3 LTS",
        kernel: "6.8.12-tegra",
        runtime: "containerd://2.1.4-k3s1",
        kubelet: "v1.34.1+k3s1",
        capacity: text_map([
            ("cpu", "14"),
            // 128 GB less the carve-outs of the firmware.
            ("memory", "128790528Ki"),
            ("ephemeral-storage", "960379920Ki"),
            ("pods", "110"),
        ]),
        labels,
        ..board(format!("GPU-{}", seed.uuid(&["gpu", node, "0"])))
    }
}

/// Jetson AGX Orin 64 GB developer kit, `JetPack` 6: GFD asks CUDA instead of NVML and does not learn a driver version.
pub fn orin(replicas: Replicas, seed: Seed, node: &str) -> Shape {
    let mut labels = feature_discovery(
        &Gpu {
            product: "Orin",
            count: 1,
            memory_mib: Some(62_841),
            family: "ampere",
            compute: (8, 7),
            machine: "NVIDIA-Jetson-AGX-Orin-Developer-Kit",
            mode: "unknown",
            driver: ("unknown", "unknown", "unknown"),
            cuda: (12, 6),
            mig_capable: false,
        },
        replicas,
    );
    labels.extend(k3s());
    Shape {
        preset: "orin",
        os_image: "Ubuntu 22.04.5 LTS",
        kernel: "5.15.148-tegra",
        runtime: "containerd://2.1.4-k3s1",
        kubelet: "v1.34.1+k3s1",
        capacity: text_map([
            ("cpu", "12"),
            ("memory", "64349452Ki"),
            ("ephemeral-storage", "59723296Ki"),
            ("pods", "110"),
        ]),
        labels,
        // NVML of that generation writes no prefix.
        ..board(seed.uuid(&["gpu", node, "0"]))
    }
}

fn board(uuid: String) -> Shape {
    let devices = vec![Device { id: "tegra".to_owned(), visible_as: "0".to_owned(), uuid }];
    Shape {
        preset: "",
        architecture: Architecture::Arm64,
        os_image: "",
        kernel: "",
        runtime: "",
        kubelet: "",
        capacity: BTreeMap::new(),
        // k3s reserves nothing: allocatable equals capacity there but for the eviction threshold on the disk.
        reserved: BTreeMap::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        devices: BTreeMap::from([("nvidia.com/gpu".to_owned(), devices)]),
        slice: None,
    }
}

fn k3s() -> BTreeMap<String, String> {
    text_map([
        ("beta.kubernetes.io/instance-type", "k3s"),
        ("node.kubernetes.io/instance-type", "k3s"),
        ("feature.node.kubernetes.io/cpu-model.vendor_id", "NVIDIA"),
    ])
}
