//! The workers of KAI's own end-to-end cluster: kind nodes with the fake GPU operator.
//!
//! Four nodes advertise eight fake K80 by device plugin, two publish them as a `ResourceSlice` (DRA), one has none. The labels
//! are those the fake operator writes, which are fewer than GPU Feature Discovery's.

use std::collections::BTreeMap;

use super::{Architecture, Shape, SliceGpus, gpus, text_map};
use crate::seed::Seed;

const PRODUCT: &str = "Tesla-K80";
const MEMORY_MIB: u64 = 11_441;
const GPUS: usize = 8;

/// The seven workers, GPU nodes first.
pub fn workers(seed: Seed, node: &str) -> Vec<Shape> {
    let plugin = |index: usize| Shape {
        labels: with_pool("default", "device-plugin"),
        devices: BTreeMap::from([("nvidia.com/gpu".to_owned(), gpus(seed, &format!("{node}-{index}"), GPUS))]),
        ..kind_node()
    };
    let dynamic = |index: usize| Shape {
        labels: with_pool("dra", "dra-plugin-gpu"),
        slice: Some(SliceGpus {
            product: PRODUCT,
            memory_mib: MEMORY_MIB,
            uuids: gpus(seed, &format!("{node}-{index}"), GPUS).into_iter().map(|gpu| gpu.id).collect(),
        }),
        ..kind_node()
    };
    (0..4).map(plugin).chain((4..6).map(dynamic)).chain([kind_node()]).collect()
}

fn with_pool(pool: &str, part: &str) -> BTreeMap<String, String> {
    let mut labels = text_map([
        ("nvidia.com/gpu.count", "8"),
        ("nvidia.com/gpu.memory", "11441"),
        ("nvidia.com/gpu.product", PRODUCT),
        ("nvidia.com/gpu.present", "true"),
        ("nvidia.com/gpu.deploy.dcgm-exporter", "true"),
        ("nvidia.com/mig.strategy", "mixed"),
        ("run.ai/fake.gpu", "true"),
        ("run.ai/simulated-gpu-node-pool", pool),
    ]);
    labels.insert(format!("nvidia.com/gpu.deploy.{part}"), "true".to_owned());
    labels
}

fn kind_node() -> Shape {
    Shape {
        preset: "kai-e2e",
        architecture: Architecture::Amd64,
        os_image: "Debian GNU/Linux 12 (bookworm)",
        kernel: "6.8.0-1036-azure",
        runtime: "containerd://2.2.0",
        kubelet: "v1.34.4",
        capacity: text_map([
            ("cpu", "16"),
            ("memory", "65858412Ki"),
            ("ephemeral-storage", "151263200Ki"),
            ("hugepages-1Gi", "0"),
            ("hugepages-2Mi", "0"),
            ("pods", "110"),
        ]),
        // kind turns reservations off.
        reserved: BTreeMap::new(),
        labels: BTreeMap::new(),
        annotations: text_map([("kubeadm.alpha.kubernetes.io/cri-socket", "unix:///run/containerd/containerd.sock")]),
        devices: BTreeMap::new(),
        slice: None,
    }
}
