//! Tests of the presets.

use super::*;

fn shape(preset: &str, replicas: u32) -> Shape {
    shapes(preset, Replicas(replicas), Seed(1), "node").unwrap().remove(0)
}

#[test]
fn every_known_preset_has_a_shape_with_valid_labels() {
    for (name, _) in KNOWN {
        for shape in shapes(name, Replicas(1), Seed(1), "node").unwrap() {
            for (key, value) in &shape.labels {
                assert!(value.len() <= 63, "{name}: {key}={value}");
                assert!(value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)), "{name}: {key}={value}");
            }
            for (resource, quantity) in &shape.capacity {
                assert!(crate::resources::amount(resource, quantity).is_some(), "{name}: {resource}");
            }
        }
    }
}

#[test]
fn thor_has_no_memory_label_and_a_tegra_kernel() {
    let thor = shape("thor", 1);
    assert!(thor.kernel.ends_with("-tegra"));
    assert!(!thor.labels.contains_key("nvidia.com/gpu.memory"));
    assert_eq!(thor.labels["nvidia.com/gpu.family"], "undefined");
    assert_eq!(thor.devices["nvidia.com/gpu"][0].id, "tegra");
}

#[test]
fn time_slicing_shows_in_product_replicas_and_strategy() {
    let thor = shape("thor", 4);
    assert_eq!(thor.labels["nvidia.com/gpu.product"], "NVIDIA-Thor-SHARED");
    assert_eq!(thor.labels["nvidia.com/gpu.replicas"], "4");
    assert_eq!(thor.labels["nvidia.com/gpu.sharing-strategy"], "time-slicing");
    assert_eq!(thor.labels["nvidia.com/gpu.count"], "1");
}

#[test]
fn mig_node_advertises_instances_and_no_whole_gpu() {
    let node = shape("a100-mig", 1);
    assert!(!node.devices.contains_key("nvidia.com/gpu"));
    assert_eq!(node.devices["nvidia.com/mig-1g.5gb"].len(), 16);
    assert_eq!(node.labels["nvidia.com/mig-3g.20gb.count"], "8");
    assert_eq!(node.labels["nvidia.com/gpu.replicas"], "0");
}

#[test]
fn end_to_end_set_up_has_seven_workers() {
    let workers = shapes("kai-e2e", Replicas(1), Seed(1), "e2e").unwrap();
    let by_plugin = workers.iter().filter(|worker| worker.devices.values().map(Vec::len).sum::<usize>() == 8).count();
    let by_slice = workers.iter().filter(|worker| worker.slice.is_some()).count();
    assert_eq!((workers.len(), by_plugin, by_slice), (7, 4, 2));
}
