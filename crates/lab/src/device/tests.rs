//! Tests of the device manager.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fleet::Fleet;

fn manager(fleet: &str) -> DeviceManager {
    DeviceManager::new(&Fleet::parse(fleet).unwrap().nodes[0])
}

fn pod(gpus: u32) -> PodSpec {
    serde_json::from_value(json!({"containers": [container("main", gpus)]})).unwrap()
}

fn container(name: &str, gpus: u32) -> serde_json::Value {
    json!({"name": name, "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}})
}

fn ids(devices: &PodDevices, container: &str) -> Vec<String> {
    devices[container]["nvidia.com/gpu"].clone()
}

#[test]
fn each_pod_gets_its_own_devices_and_gives_them_back() {
    let mut manager = manager("dgx-h100");
    let first = ids(manager.allocate("a", &pod(5)).unwrap(), "main");
    let error = manager.allocate("b", &pod(4)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "requested number of devices unavailable for nvidia.com/gpu. Requested: 4, Available: 3"
    );
    let second = ids(manager.allocate("b", &pod(3)).unwrap(), "main");
    assert!(first.iter().all(|id| id.starts_with("GPU-") && !second.contains(id)));
    manager.release("a");
    assert_eq!(ids(manager.allocate("c", &pod(5)).unwrap(), "main"), first);
}

#[test]
fn time_sliced_replicas_are_spread_over_physical_devices() {
    let mut manager = manager("t4x4:replicas=2");
    let physical: BTreeSet<String> = (0..4)
        .map(|index| {
            let id = ids(manager.allocate(&index.to_string(), &pod(1)).unwrap(), "main").remove(0);
            id.split("::").next().unwrap().to_owned()
        })
        .collect();
    assert_eq!(physical.len(), 4);
    assert_eq!(manager.counts().0["nvidia.com/gpu"], 8);
}

#[test]
fn jetson_replicas_are_named_after_tegra_and_seen_as_zero() {
    let mut manager = manager("thor:replicas=4");
    let devices = manager.allocate("a", &pod(2)).unwrap()["main"].clone();
    assert_eq!(devices["nvidia.com/gpu"], ["tegra::0", "tegra::1"]);
    assert_eq!(manager.visible(&devices), "0");
}

#[test]
fn unhealthy_devices_shrink_allocatable_and_are_not_handed_out() {
    let mut manager = manager("thor");
    assert!(manager.set_health("nvidia.com/gpu", 0, false));
    assert!(!manager.set_health("nvidia.com/gpu", 0, false));
    let (capacity, allocatable) = manager.counts();
    assert_eq!((capacity["nvidia.com/gpu"], allocatable["nvidia.com/gpu"]), (1, 0));
    assert_eq!(
        manager.allocate("a", &pod(1)).unwrap_err().to_string(),
        "no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu"
    );
    manager.set_health("nvidia.com/gpu", 0, true);
    assert!(manager.allocate("a", &pod(1)).is_ok());
}

#[test]
fn init_containers_hand_on_their_devices_but_sidecars_keep_theirs() {
    let spec: PodSpec = serde_json::from_value(json!({
        "initContainers": [
            container("warm-up", 2),
            {"name": "proxy", "restartPolicy": "Always", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
        ],
        "containers": [container("main", 2)],
    }))
    .unwrap();
    let mut manager = manager("t4x4");
    let devices = manager.allocate("a", &spec).unwrap().clone();
    let used: BTreeSet<String> = devices.keys().flat_map(|name| ids(&devices, name)).collect();
    assert_eq!(used.len(), 3, "{devices:?}");
    let (proxy, main) = (ids(&devices, "proxy"), ids(&devices, "main"));
    assert!(proxy.iter().all(|id| !main.contains(id)));
}

#[test]
fn a_refused_pod_holds_nothing() {
    let mut manager = manager("t4x4");
    let spec: PodSpec = serde_json::from_value(json!({"containers": [container("a", 3), container("b", 2)]})).unwrap();
    assert!(manager.allocate("x", &spec).is_err());
    assert!(manager.allocate("y", &pod(4)).is_ok());
}

#[test]
fn restored_devices_stay_with_their_pod() {
    let mut before = manager("dgx-h100");
    before.allocate("a", &pod(1)).unwrap();
    let held = before.allocate("b", &pod(2)).unwrap().clone();
    let mut after = manager("dgx-h100");
    after.restore("b", held.clone());
    assert_eq!(after.held_by("b"), Some(&held));
    let others = ids(after.allocate("c", &pod(6)).unwrap(), "main");
    assert!(ids(&held, "main").iter().all(|id| !others.contains(id)));
}

proptest! {
    #[test]
    fn no_device_ever_has_two_holders(steps in prop::collection::vec((0_u8..8, 0_u32..5), 1..60)) {
        let mut manager = manager("dgx-h100:replicas=2");
        for (pod_index, gpus) in steps {
            let uid = pod_index.to_string();
            manager.release(&uid);
            let _ = manager.allocate(&uid, &pod(gpus));
            let all: Vec<String> = (0..8)
                .filter_map(|index| manager.held_by(&index.to_string()).cloned())
                .flat_map(|devices| devices.into_values().flat_map(|by| by.into_values().flatten()))
                .collect();
            let distinct: BTreeSet<&String> = all.iter().collect();
            prop_assert_eq!(distinct.len(), all.len());
        }
    }
}
