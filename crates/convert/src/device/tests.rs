//! Slices, classes and claims as the core sees them.

use serde_json::{Value, json};

use super::*;

fn slice(devices: &mut Devices, name: &str, node: &str, products: &[&str]) -> Stale {
    slice_of(devices, name, node, products, (1, 1))
}

fn slice_of(
    devices: &mut Devices,
    name: &str,
    node: &str,
    products: &[&str],
    (generation, count): (i64, i64),
) -> Stale {
    let list: Vec<Value> = products
        .iter()
        .enumerate()
        .map(|(index, product)| json!({"name": format!("gpu-{index}"), "attributes": {"product": {"string": product}}}))
        .collect();
    let object = json!({"metadata": {"name": name}, "spec": {"driver": "gpu.nvidia.com", "nodeName": node, "devices": list,
        "pool": {"name": node, "generation": generation, "resourceSliceCount": count}}});
    devices.insert_slice(&serde_json::from_value(object).expect("a slice"))
}

fn class(devices: &mut Devices, name: &str, spec: Value) -> Stale {
    let object = json!({"metadata": {"name": name}, "spec": spec});
    devices.insert_class(&serde_json::from_value(object).expect("a class"))
}

fn claim(devices: &mut Devices, request: Value) -> Stale {
    let object = json!({"metadata": {"name": "c", "namespace": "team", "labels": {"kai.scheduler/queue": "q"}},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": request}]}}});
    devices.insert_claim(&serde_json::from_value(object).expect("a claim"), "kai.scheduler/queue")
}

fn product(name: &str) -> Value {
    json!([{"cel": {"expression": format!("device.attributes['gpu.nvidia.com'].product == '{name}'")}}])
}

#[test]
fn devices_that_no_selector_tells_apart_share_a_kind() {
    let mut devices = Devices::default();
    slice(&mut devices, "s", "n", &["H100", "H100", "A100"]);
    class(&mut devices, "gpu.nvidia.com", json!({}));
    let kinds = |devices: &Devices| devices.of_node("n").iter().map(|device| device.kind).collect::<Vec<_>>();
    let all = kinds(&devices);
    assert!(all[0] == all[1] && all[1] == all[2]);

    let stale = claim(&mut devices, json!({"deviceClassName": "gpu.nvidia.com", "selectors": product("H100")}));
    assert!(stale.nodes.contains("n") && stale.claims.contains("team/c"));
    let told = kinds(&devices);
    assert!(told[0] == told[1] && told[1] != told[2]);
    let read = devices.claim("team/c").expect("a claim");
    assert_eq!(read.requests[0].kinds, [told[0]]);
    assert!(read.requests[0].gpu && read.impossible.is_none());
    assert_eq!((read.queue.as_deref(), read.max_consumers), (Some("q"), 256));
}

#[test]
fn a_new_slice_gets_the_kinds_that_are_known() {
    let mut devices = Devices::default();
    class(&mut devices, "gpu", json!({"selectors": product("H100")}));
    slice(&mut devices, "s1", "n1", &["H100"]);
    claim(&mut devices, json!({"deviceClassName": "gpu"}));
    let stale = slice(&mut devices, "s2", "n2", &["H100"]);
    assert_eq!((stale.nodes, stale.claims), (BTreeSet::from(["n2".to_owned()]), BTreeSet::new()));
    assert_eq!(devices.of_node("n1")[0].kind, devices.of_node("n2")[0].kind);
}

#[test]
fn a_missing_class_and_what_is_not_supported_make_a_claim_impossible() {
    let mut devices = Devices::default();
    claim(&mut devices, json!({"deviceClassName": "gpu"}));
    assert!(devices.claim("team/c").and_then(|c| c.impossible).is_some_and(|why| why.contains("\"gpu\"")));
    let stale = class(&mut devices, "gpu", json!({}));
    assert!(stale.claims.contains("team/c"));
    assert_eq!(devices.claim("team/c").and_then(|c| c.impossible), None);
    claim(&mut devices, json!({"deviceClassName": "gpu", "adminAccess": true}));
    assert!(devices.claim("team/c").and_then(|c| c.impossible).is_some_and(|why| why.contains("adminAccess")));
    claim(&mut devices, json!({"deviceClassName": "gpu", "selectors": [{"cel": {"expression": "((("}}]}));
    assert!(devices.claim("team/c").and_then(|c| c.impossible).is_some_and(|why| why.contains("does not compile")));
}

#[test]
fn counts_reach_the_end_of_the_integers() {
    let mut devices = Devices::default();
    claim(&mut devices, json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": i64::MAX}));
    let count = devices.claim("team/c").map(|claim| claim.requests[0].count);
    assert_eq!(count, Some(kai_core::delta::DeviceCount::Exactly(i64::MAX.unsigned_abs())));
    claim(&mut devices, json!({"deviceClassName": "gpu", "allocationMode": "All"}));
    assert_eq!(devices.claim("team/c").map(|c| c.requests[0].count), Some(kai_core::delta::DeviceCount::All));
}

#[test]
fn only_the_newest_complete_generation_of_a_pool_counts() {
    let mut devices = Devices::default();
    slice_of(&mut devices, "old", "n", &["H100"], (1, 1));
    assert_eq!(devices.of_node("n").len(), 1);
    slice_of(&mut devices, "new-1", "n", &["H100", "H100"], (2, 2));
    assert_eq!(devices.of_node("n").len(), 0);
    slice_of(&mut devices, "new-2", "n", &["H100", "H100", "H100"], (2, 2));
    assert_eq!(devices.of_node("n").len(), 3);
    assert!(devices.remove_slice("new-2").nodes.contains("n"));
}

#[test]
fn a_class_serves_the_resource_it_names_and_its_own() {
    let mut devices = Devices::default();
    slice(&mut devices, "s", "n", &["H100", "A100"]);
    let stale =
        class(&mut devices, "gpu", json!({"extendedResourceName": "nvidia.com/gpu", "selectors": product("A100")}));
    assert!(stale.resources.contains("nvidia.com/gpu"));
    let served = devices.resource("nvidia.com/gpu").expect("served");
    assert_eq!((served.kinds.len(), served.gpu), (1, true));
    assert_eq!(devices.resource("deviceclass.resource.kubernetes.io/gpu").map(|r| r.kinds), Some(served.kinds));
    devices.remove_class("gpu");
    assert_eq!(devices.resource("nvidia.com/gpu"), None);
}

#[test]
fn a_pod_being_bound_holds_the_claim_with_the_devices_chosen_for_it() {
    let mut devices = Devices::default();
    claim(&mut devices, json!({"deviceClassName": "gpu"}));
    let chosen: dra::AllocationResult = serde_json::from_value(json!({
        "devices": {"results": [{"driver": "d", "pool": "n", "device": "gpu-0", "request": "r"}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}
    }))
    .expect("an allocation");
    devices.hold("team/c", "uid", Some(&chosen));
    let read = devices.claim("team/c").expect("a claim");
    assert_eq!(read.reserved_for, ["uid"]);
    let allocation = read.allocation.expect("allocated");
    assert_eq!((allocation.node.as_deref(), allocation.devices.len()), (Some("n"), 1));
    devices.release("team/c", "uid");
    assert_eq!(devices.claim("team/c").and_then(|claim| claim.allocation), None);
}

#[test]
fn filters_nobody_uses_are_forgotten() {
    let mut devices = Devices::default();
    slice(&mut devices, "s", "n", &["H100"]);
    class(&mut devices, "gpu", json!({}));
    for index in 0..500 {
        claim(&mut devices, json!({"deviceClassName": "gpu", "selectors": product(&format!("p{index}"))}));
    }
    assert!(devices.filters.len() < 80, "{}", devices.filters.len());
    assert_eq!(devices.claim("team/c").map(|claim| claim.requests[0].kinds.len()), Some(0));
}

#[test]
fn an_allocation_that_names_no_node_is_where_its_devices_are() {
    let mut devices = Devices::default();
    let object = json!({"metadata": {"name": "c", "namespace": "team"}, "spec": {}, "status": {"allocation": {
        "devices": {"results": [{"driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0", "request": "r"}]}}}});
    devices.insert_claim(&serde_json::from_value(object).expect("a claim"), "kai.scheduler/queue");
    let node =
        |devices: &Devices| devices.claim("team/c").and_then(|claim| claim.allocation).and_then(|found| found.node);
    assert_eq!(node(&devices), None);
    assert!(slice(&mut devices, "s", "n", &["H100"]).claims.contains("team/c"));
    assert_eq!(node(&devices).as_deref(), Some("n"));
    assert!(devices.remove_slice("s").claims.contains("team/c"));
}
