//! What the kubelet checks before it runs a pod that was bound to its node.
//!
//! The order is the real one: devices are handed out first (a shortage there is `UnexpectedAdmissionError`), then resources,
//! node affinity, host ports and `NoExecute` taints; only the first failure is reported. Reasons and messages are what users of
//! a real kubelet see.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PodSpec, Taint};

use crate::{
    affinity,
    device::{AllocationError, DeviceManager},
    resources::{self, Amounts},
};

/// A host port in use: protocol, address (empty = all), port.
pub type HostPort = (String, String, i32);

/// What the node looks like to a pod that wants in.
#[derive(Debug)]
pub struct NodeView<'a> {
    /// Node name.
    pub name: &'a str,
    /// Labels of the Node object.
    pub labels: &'a BTreeMap<String, String>,
    /// Taints of the Node object.
    pub taints: &'a [Taint],
    /// Allocatable, devices included.
    pub allocatable: &'a Amounts,
    /// Requests of the active pods.
    pub used: &'a Amounts,
    /// Number of active pods.
    pub pods: usize,
    /// Host ports of the active pods.
    pub ports: &'a BTreeSet<HostPort>,
}

/// A refusal, as it appears in the pod's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// `status.reason`, such as `OutOfcpu`.
    pub reason: String,
    /// Event message; `status.message` has `Pod was rejected: ` before it.
    pub message: String,
}

impl From<AllocationError> for Rejection {
    fn from(error: AllocationError) -> Self {
        Self {
            reason: "UnexpectedAdmissionError".to_owned(),
            message: format!("Allocate failed due to {error}, which is unexpected"),
        }
    }
}

/// Admits a pod and gives it its devices, or says why not; a refused pod holds nothing.
pub fn admit(uid: &str, spec: &PodSpec, node: &NodeView<'_>, devices: &mut DeviceManager) -> Result<(), Rejection> {
    devices.allocate(uid, spec)?;
    check(spec, node).inspect_err(|_| devices.release(uid))
}

/// The host ports a pod wants.
pub fn host_ports(spec: &PodSpec) -> BTreeSet<HostPort> {
    let containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten().filter(|container| resources::is_sidecar(container)));
    containers
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            let address = port.host_ip.clone().filter(|ip| ip != "0.0.0.0").unwrap_or_default();
            Some((port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()), address, number))
        })
        .collect()
}

fn check(spec: &PodSpec, node: &NodeView<'_>) -> Result<(), Rejection> {
    if let Some(os) = &spec.os
        && os.name != "linux"
    {
        return Err(Rejection {
            reason: "PodOSNotSupported".to_owned(),
            message: "Failed to admit pod as the OS field doesn't match node OS".to_owned(),
        });
    }
    fits(&resources::pod_requests(spec), node)?;
    if !affinity::matches_node(spec, node.name, node.labels) {
        return Err(predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"));
    }
    if host_ports(spec).iter().any(|wanted| node.ports.iter().any(|used| conflict(wanted, used))) {
        return Err(predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports"));
    }
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    if affinity::untolerated_no_execute(node.taints, tolerations).is_some() {
        return Err(predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate"));
    }
    Ok(())
}

fn fits(requests: &Amounts, node: &NodeView<'_>) -> Result<(), Rejection> {
    let allocatable = |resource: &str| node.allocatable.get(resource).copied();
    let used = |resource: &str| node.used.get(resource).copied().unwrap_or(0);
    let pods = i64::try_from(node.pods).unwrap_or(i64::MAX);
    let allowed = allocatable("pods").unwrap_or(0);
    if pods.saturating_add(1) > allowed {
        return Err(insufficient("pods", 1, pods, allowed));
    }
    let named = ["cpu", "memory", "ephemeral-storage"];
    let others = requests.keys().map(String::as_str).filter(|name| !named.contains(name));
    for resource in named.into_iter().chain(others) {
        let requested = requests.get(resource).copied().unwrap_or(0);
        let capacity = match allocatable(resource) {
            Some(capacity) => capacity,
            // Extended resources that the node does not know are the cluster's business, not the kubelet's.
            None if is_extended(resource) => continue,
            None => 0,
        };
        if requested > 0 && requested > capacity.saturating_sub(used(resource)) {
            return Err(insufficient(resource, requested, used(resource), capacity));
        }
    }
    Ok(())
}

fn is_extended(resource: &str) -> bool {
    resource.split_once('/').is_some_and(|(domain, _)| !format!("{domain}/").contains("kubernetes.io/"))
        && !resource.starts_with("requests.")
}

fn conflict(wanted: &HostPort, used: &HostPort) -> bool {
    wanted.0 == used.0 && wanted.2 == used.2 && (wanted.1 == used.1 || wanted.1.is_empty() || used.1.is_empty())
}

fn insufficient(resource: &str, requested: i64, used: i64, capacity: i64) -> Rejection {
    Rejection {
        reason: format!("OutOf{resource}"),
        message: format!(
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        ),
    }
}

fn predicate(name: &str, why: &str) -> Rejection {
    Rejection { reason: name.to_owned(), message: format!("Predicate {name} failed: {why}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Fleet;
    use serde_json::{Value, json};

    fn reason(spec: Value) -> Result<(), (String, String)> {
        let fleet = Fleet::parse("t4x4").unwrap();
        let mut devices = DeviceManager::new(&fleet.nodes[0]);
        let mut allocatable: Amounts =
            [("cpu", 4000), ("memory", 1 << 30), ("pods", 3), ("ephemeral-storage", 1 << 30), ("example.com/fpga", 1)]
                .map(|(name, value)| (name.to_owned(), value))
                .into();
        allocatable.extend(devices.counts().1);
        let taint = Taint { key: "down".into(), value: None, effect: "NoExecute".into(), time_added: None };
        let view = NodeView {
            name: "n",
            labels: &BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
            taints: &[taint],
            allocatable: &allocatable,
            used: &Amounts::from([("cpu".to_owned(), 3000)]),
            pods: 2,
            ports: &BTreeSet::from([("TCP".to_owned(), String::new(), 80)]),
        };
        let mut spec = spec;
        if spec.get("tolerations").is_none() {
            spec["tolerations"] = json!([{"operator": "Exists"}]);
        }
        if spec.get("containers").is_none() {
            spec["containers"] = json!([{"name": "c"}]);
        }
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let before = devices.held_by("u").cloned();
        admit("u", &spec, &view, &mut devices).map_err(|rejection| {
            assert_eq!(devices.held_by("u").cloned(), before, "a refused pod holds devices");
            (rejection.reason, rejection.message)
        })
    }

    #[expect(clippy::needless_pass_by_value, reason = "a literal at every call")]
    fn asking(requests: Value) -> Value {
        json!({"containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}]})
    }

    #[test]
    fn a_pod_that_fits_is_admitted() {
        assert_eq!(reason(asking(json!({"cpu": "1", "nvidia.com/gpu": "4", "example.com/unknown": "7"}))), Ok(()));
    }

    #[test]
    fn shortages_are_named_as_the_kubelet_names_them() {
        assert_eq!(
            reason(asking(json!({"cpu": "1500m"}))).unwrap_err(),
            (
                "OutOfcpu".to_owned(),
                "Node didn't have enough resource: cpu, requested: 1500, used: 3000, capacity: 4000".to_owned()
            )
        );
        assert_eq!(reason(asking(json!({"memory": "2Gi"}))).unwrap_err().0, "OutOfmemory");
        assert_eq!(reason(asking(json!({"example.com/fpga": "2"}))).unwrap_err().0, "OutOfexample.com/fpga");
        assert_eq!(
            reason(asking(json!({"nvidia.com/gpu": "5"}))).unwrap_err(),
            (
                "UnexpectedAdmissionError".to_owned(),
                "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 5, \
                 Available: 4, which is unexpected"
                    .to_owned()
            )
        );
    }

    #[test]
    fn placement_rules_are_checked() {
        assert_eq!(
            reason(json!({"nodeSelector": {"zone": "b"}})).unwrap_err(),
            (
                "NodeAffinity".to_owned(),
                "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector".to_owned()
            )
        );
        let port = json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80}]}]});
        assert_eq!(reason(port).unwrap_err().0, "NodePorts");
        assert_eq!(reason(json!({"tolerations": []})).unwrap_err().0, "TaintToleration");
        assert_eq!(reason(json!({"os": {"name": "windows"}})).unwrap_err().0, "PodOSNotSupported");
    }

    #[test]
    fn a_refused_pod_gives_its_devices_back() {
        let mut spec = asking(json!({"nvidia.com/gpu": "1"}));
        spec["nodeSelector"] = json!({"zone": "b"});
        assert_eq!(reason(spec).unwrap_err().0, "NodeAffinity");
    }
}
