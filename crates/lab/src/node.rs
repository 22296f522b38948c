//! Node objects: what a kubelet registers and what it reports.

use std::{collections::BTreeMap, net::Ipv4Addr};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    fleet::NodeSpec,
    resources::{self, Amounts},
    seed::Seed,
};

/// Whether the kubelet reports itself ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// `Ready=True`.
    Ready,
    /// `Ready=False`, as when the container runtime is down.
    NotReady,
}

/// Time in the API's second precision.
pub fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// Time in the API's microsecond precision (`MicroTime`).
pub fn micros(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// The node's own address, from its place in the fleet.
pub fn address(index: usize) -> Ipv4Addr {
    let index = u32::try_from(index).unwrap_or(0) + 2;
    Ipv4Addr::from(u32::from(Ipv4Addr::new(172, 18, 0, 0)).wrapping_add(index))
}

/// The n-th pod address of a node: each node has its own /24.
pub fn pod_address(node: usize, number: u8) -> Ipv4Addr {
    let subnet = u32::try_from(node).unwrap_or(0);
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 64, 0, 0)).wrapping_add(subnet << 8) | u32::from(number))
}

/// Capacity and allocatable of a node, given what its device plugins count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// As quantities, for the object.
    pub capacity: BTreeMap<String, String>,
    /// As quantities, for the object.
    pub allocatable: BTreeMap<String, String>,
    /// Allocatable as numbers, for admission.
    pub amounts: Amounts,
}

impl Sizes {
    /// Computes both from the shape, the overrides and the devices (all, healthy).
    pub fn of(spec: &NodeSpec, devices: &(Amounts, Amounts)) -> Self {
        let mut capacity = spec.shape.capacity.clone();
        capacity.extend(spec.resources.clone());
        let mut allocatable = BTreeMap::new();
        let mut amounts = Amounts::new();
        for (resource, quantity) in &capacity {
            let total = resources::amount(resource, quantity).unwrap_or(0);
            let reserved = spec.shape.reserved.get(resource).and_then(|text| resources::amount(resource, text));
            let rest = match (resource.as_str(), reserved) {
                // The default hard eviction threshold: a tenth of the disk.
                ("ephemeral-storage", _) if !spec.shape.reserved.is_empty() => total / 10 * 9,
                (_, Some(reserved)) => total.saturating_sub(reserved).max(0),
                (_, None) => total,
            };
            amounts.insert(resource.clone(), rest);
            let text = if rest == total { quantity.clone() } else { quantity_text(resource, rest) };
            allocatable.insert(resource.clone(), text);
        }
        for (resource, count) in &devices.0 {
            capacity.insert(resource.clone(), count.to_string());
        }
        for (resource, count) in &devices.1 {
            allocatable.insert(resource.clone(), count.to_string());
            amounts.insert(resource.clone(), *count);
        }
        Self { capacity, allocatable, amounts }
    }
}

fn quantity_text(resource: &str, amount: i64) -> String {
    match resource {
        "cpu" if amount % 1000 == 0 => (amount / 1000).to_string(),
        "cpu" => format!("{amount}m"),
        "memory" if amount % 1024 == 0 => format!("{}Ki", amount / 1024),
        _ => amount.to_string(),
    }
}

/// Labels of the Node object.
pub fn labels(spec: &NodeSpec) -> BTreeMap<String, String> {
    let architecture = spec.shape.architecture.name();
    let mut labels = spec.shape.labels.clone();
    for (key, value) in [
        ("beta.kubernetes.io/arch", architecture),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture),
        ("kubernetes.io/hostname", spec.name.as_str()),
        ("kubernetes.io/os", "linux"),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    labels.extend(spec.labels.clone());
    labels
}

/// The Node object a kubelet registers.
pub fn object(spec: &NodeSpec, index: usize, sizes: &Sizes, seed: Seed, readiness: Readiness, now: Timestamp) -> Value {
    let shape = &spec.shape;
    let mut annotations = shape.annotations.clone();
    annotations.insert("node.alpha.kubernetes.io/ttl".to_owned(), "0".to_owned());
    annotations.insert("volumes.kubernetes.io/controller-managed-attach-detach".to_owned(), "true".to_owned());
    let taints: Vec<Value> = spec
        .taints
        .iter()
        .map(|taint| match taint.value.as_str() {
            "" => json!({"key": taint.key, "effect": taint.effect}),
            value => json!({"key": taint.key, "value": value, "effect": taint.effect}),
        })
        .collect();
    let mut node_spec = Map::new();
    if !taints.is_empty() {
        node_spec.insert("taints".to_owned(), taints.into());
    }
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": labels(spec), "annotations": annotations},
        "spec": node_spec,
        "status": {
            "capacity": sizes.capacity,
            "allocatable": sizes.allocatable,
            "addresses": [
                {"type": "InternalIP", "address": address(index).to_string()},
                {"type": "Hostname", "address": spec.name},
            ],
            "conditions": conditions(readiness, now, now),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "features": {"supplementalGroupsPolicy": true},
            "nodeInfo": {
                "architecture": shape.architecture.name(),
                "bootID": seed.uuid(&["boot", &spec.name]),
                "containerRuntimeVersion": shape.runtime,
                "kernelVersion": shape.kernel,
                "kubeProxyVersion": "",
                "kubeletVersion": shape.kubelet,
                "machineID": seed.uuid(&["machine", &spec.name]).replace('-', ""),
                "operatingSystem": "linux",
                "osImage": shape.os_image,
                "systemUUID": seed.uuid(&["system", &spec.name]),
            },
        },
    })
}

/// The four conditions a healthy kubelet reports. `ready_since` is when readiness last changed.
pub fn conditions(readiness: Readiness, ready_since: Timestamp, now: Timestamp) -> Value {
    let heartbeat = seconds(now);
    let since = seconds(ready_since);
    let pressure = |kind: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": "False", "reason": reason, "message": message,
            "lastHeartbeatTime": heartbeat, "lastTransitionTime": since})
    };
    let (status, reason, message) = match readiness {
        Readiness::Ready => ("True", "KubeletReady", "kubelet is posting ready status"),
        Readiness::NotReady => (
            "False",
            "KubeletNotReady",
            "container runtime is down, PLEG is not healthy: pleg was last seen active 3m0s ago; threshold is 3m0s",
        ),
    };
    json!([
        pressure("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        pressure("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        pressure("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        {"type": "Ready", "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": heartbeat, "lastTransitionTime": since},
    ])
}

/// The lease a kubelet renews.
pub fn lease(spec: &NodeSpec, uid: &str, now: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": spec.name,
            "namespace": crate::names::LEASE_NAMESPACE,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": spec.name, "uid": uid}],
        },
        "spec": {
            "holderIdentity": spec.name,
            "leaseDurationSeconds": spec.heartbeat.as_secs().saturating_mul(4).clamp(1, 3600),
            "renewTime": micros(now),
        },
    })
}

/// The `ResourceSlice` of a node whose GPUs are published by a DRA driver.
pub fn resource_slice(spec: &NodeSpec, uid: &str) -> Option<Value> {
    let gpus = spec.shape.slice.as_ref()?;
    let devices: Vec<Value> = gpus
        .uuids
        .iter()
        .enumerate()
        .map(|(index, uuid)| {
            json!({
                "name": format!("gpu-{index}"),
                "attributes": {
                    "uuid": {"string": uuid},
                    "model": {"string": gpus.product},
                    "productName": {"string": gpus.product},
                    "type": {"string": "gpu"},
                },
                "capacity": {"memory": {"value": format!("{}Mi", gpus.memory_mib)}},
            })
        })
        .collect();
    Some(json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": format!("{}-gpu.nvidia.com", spec.name),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": spec.name, "uid": uid, "controller": true}],
        },
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": spec.name,
            "pool": {"name": spec.name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{device::DeviceManager, fleet::Fleet};
    use k8s_openapi::api::core::v1::Node;

    fn node(preset: &str) -> Node {
        let spec = Fleet::parse(preset).unwrap().nodes.remove(0);
        let sizes = Sizes::of(&spec, &DeviceManager::new(&spec).counts());
        let now = Timestamp::UNIX_EPOCH;
        serde_json::from_value(object(&spec, 0, &sizes, Seed(1), Readiness::Ready, now)).unwrap()
    }

    #[test]
    fn time_slices_are_advertised_and_the_physical_count_is_in_the_label() {
        let thor = node("thor:replicas=4");
        let status = thor.status.unwrap();
        assert_eq!(status.capacity.unwrap()["nvidia.com/gpu"].0, "4");
        assert_eq!(thor.metadata.labels.unwrap()["nvidia.com/gpu.count"], "1");
        let info = status.node_info.unwrap();
        assert_eq!((info.architecture.as_str(), info.kernel_version.as_str()), ("arm64", "6.8.12-tegra"));
    }

    #[test]
    fn servers_keep_something_for_the_system() {
        let status = node("dgx-h100").status.unwrap();
        let (capacity, allocatable) = (status.capacity.unwrap(), status.allocatable.unwrap());
        assert_eq!((capacity["cpu"].0.as_str(), allocatable["cpu"].0.as_str()), ("224", "223800m"));
        assert_eq!(allocatable["memory"].0, "2113285148Ki");
        assert_eq!(allocatable["nvidia.com/gpu"].0, "8");
        assert_eq!(capacity["pods"].0, "110");
    }

    #[test]
    fn addresses_do_not_collide() {
        let nodes: std::collections::BTreeSet<Ipv4Addr> = (0..crate::fleet::MAX_NODES).map(address).collect();
        assert_eq!(nodes.len(), crate::fleet::MAX_NODES);
        assert_eq!(pod_address(1, 7).to_string(), "10.64.1.7");
        assert_eq!(pod_address(300, 7).to_string(), "10.65.44.7");
    }

    #[test]
    fn dra_nodes_have_a_slice_with_their_devices() {
        let fleet = Fleet::parse("kai-e2e").unwrap();
        let slice = resource_slice(&fleet.nodes[4], "uid").unwrap();
        assert_eq!(slice["spec"]["devices"].as_array().unwrap().len(), 8);
        assert!(resource_slice(&fleet.nodes[0], "uid").is_none());
    }
}
