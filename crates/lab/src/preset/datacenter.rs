//! Servers: GPU operator, discrete GPUs, Ubuntu.

use std::collections::BTreeMap;

use super::{
    Architecture, Device, Replicas, Shape, gpus,
    labels::{Gpu, MigProfile, feature_discovery, gpu_operator, mig_profile},
    text_map,
};
use crate::seed::Seed;

/// DGX H100.
pub fn dgx_h100(replicas: Replicas, seed: Seed, node: &str) -> Shape {
    let mut labels = feature_discovery(
        &Gpu {
            product: "NVIDIA-H100-80GB-HBM3",
            count: 8,
            memory_mib: Some(81_559),
            family: "hopper",
            compute: (9, 0),
            machine: "DGXH100",
            mode: "compute",
            driver: ("580", "95", "05"),
            cuda: (13, 0),
            mig_capable: true,
        },
        replicas,
    );
    labels.extend(gpu_operator());
    labels.insert("nvidia.com/mig.strategy".to_owned(), "single".to_owned());
    Shape {
        preset: "dgx-h100",
        os_image: "Ubuntu 22.04.5 LTS",
        kernel: "5.15.0-1082-nvidia",
        runtime: "containerd://1.7.28",
        kubelet: "v1.34.4",
        capacity: text_map([
            ("cpu", "224"),
            ("memory", "2113387548Ki"),
            ("ephemeral-storage", "1843217020Ki"),
            ("hugepages-1Gi", "0"),
            ("hugepages-2Mi", "0"),
            ("pods", "110"),
        ]),
        labels,
        devices: BTreeMap::from([("nvidia.com/gpu".to_owned(), gpus(seed, node, 8))]),
        ..server()
    }
}

/// DGX A100 40 GB with every GPU cut as mig-parted's `all-balanced`, advertised under the mixed strategy.
pub fn a100_mig(replicas: Replicas, seed: Seed, node: &str) -> Shape {
    const PRODUCT: &str = "NVIDIA-A100-SXM4-40GB";
    const GPUS: u32 = 8;
    let profiles = [
        MigProfile { name: "1g.5gb", count: 2, memory_mib: 4864, multiprocessors: 14, slices: 1, engines: (1, 0) },
        MigProfile { name: "2g.10gb", count: 1, memory_mib: 9856, multiprocessors: 28, slices: 2, engines: (2, 1) },
        MigProfile { name: "3g.20gb", count: 1, memory_mib: 19_968, multiprocessors: 42, slices: 3, engines: (3, 2) },
    ];
    let mut labels = feature_discovery(
        &Gpu {
            product: PRODUCT,
            count: GPUS,
            memory_mib: Some(40_960),
            family: "ampere",
            compute: (8, 0),
            machine: "DGXA100-920-23687-2530-000",
            mode: "compute",
            driver: ("580", "95", "05"),
            cuda: (13, 0),
            mig_capable: true,
        },
        Replicas(1),
    );
    labels.extend(gpu_operator());
    labels.extend(text_map([
        ("nvidia.com/gpu.deploy.mig-manager", "true"),
        // A GPU in MIG mode is not itself a resource.
        ("nvidia.com/gpu.replicas", "0"),
        ("nvidia.com/mig.config", "all-balanced"),
        ("nvidia.com/mig.config.state", "success"),
        ("nvidia.com/mig.strategy", "mixed"),
    ]));
    let mut devices = BTreeMap::new();
    for profile in &profiles {
        let on_node = MigProfile { count: profile.count * GPUS, ..*profile };
        labels.extend(mig_profile(PRODUCT, &on_node, replicas));
        let instances = (0..on_node.count)
            .map(|index| {
                let id = format!("MIG-{}", seed.uuid(&["mig", node, profile.name, &index.to_string()]));
                Device { visible_as: id.clone(), uuid: id.clone(), id }
            })
            .collect();
        devices.insert(format!("nvidia.com/mig-{}", profile.name), instances);
    }
    Shape {
        preset: "a100-mig",
        os_image: "Ubuntu 22.04.5 LTS",
        kernel: "5.15.0-1082-nvidia",
        runtime: "containerd://1.7.28",
        kubelet: "v1.34.4",
        capacity: text_map([
            ("cpu", "256"),
            ("memory", "1056508660Ki"),
            ("ephemeral-storage", "1843217020Ki"),
            ("hugepages-1Gi", "0"),
            ("hugepages-2Mi", "0"),
            ("pods", "110"),
        ]),
        labels,
        devices,
        ..server()
    }
}

/// AWS g4dn.12xlarge.
pub fn t4x4(replicas: Replicas, seed: Seed, node: &str) -> Shape {
    let mut labels = feature_discovery(
        &Gpu {
            product: "Tesla-T4",
            count: 4,
            memory_mib: Some(15_360),
            family: "turing",
            compute: (7, 5),
            machine: "g4dn.12xlarge",
            mode: "compute",
            driver: ("580", "95", "05"),
            cuda: (13, 0),
            mig_capable: false,
        },
        replicas,
    );
    labels.extend(gpu_operator());
    labels.extend(text_map([
        ("beta.kubernetes.io/instance-type", "g4dn.12xlarge"),
        ("node.kubernetes.io/instance-type", "g4dn.12xlarge"),
        ("topology.kubernetes.io/region", "eu-central-1"),
        ("topology.kubernetes.io/zone", "eu-central-1a"),
    ]));
    Shape {
        preset: "t4x4",
        os_image: "Ubuntu 22.04.5 LTS",
        kernel: "6.8.0-1040-aws",
        runtime: "containerd://1.7.28",
        kubelet: "v1.34.4",
        capacity: text_map([
            ("cpu", "48"),
            ("memory", "195654028Ki"),
            ("ephemeral-storage", "101430960Ki"),
            ("hugepages-1Gi", "0"),
            ("hugepages-2Mi", "0"),
            ("pods", "110"),
        ]),
        labels,
        devices: BTreeMap::from([("nvidia.com/gpu".to_owned(), gpus(seed, node, 4))]),
        ..server()
    }
}

/// A plain server.
pub fn cpu() -> Shape {
    Shape {
        preset: "cpu",
        os_image: "Ubuntu 24.04.3 LTS",
        kernel: "6.8.0-87-generic",
        runtime: "containerd://2.1.5",
        kubelet: "v1.34.4",
        capacity: text_map([
            ("cpu", "16"),
            ("memory", "65836832Ki"),
            ("ephemeral-storage", "203056560Ki"),
            ("hugepages-1Gi", "0"),
            ("hugepages-2Mi", "0"),
            ("pods", "110"),
        ]),
        ..server()
    }
}

fn server() -> Shape {
    Shape {
        preset: "",
        architecture: Architecture::Amd64,
        os_image: "",
        kernel: "",
        runtime: "",
        kubelet: "",
        capacity: BTreeMap::new(),
        // The kubelet's default hard eviction threshold, and a usual CPU reservation.
        reserved: text_map([("cpu", "200m"), ("memory", "100Mi")]),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        devices: BTreeMap::new(),
        slice: None,
    }
}
