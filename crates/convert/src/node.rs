//! Nodes. The GPUs of a node are those that physically exist and work: never replicas of time slicing, never unhealthy ones.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as k8s;
use kai_api::names::{node_labels, resources};
use kai_core::delta::{MigStrategy, Node, NodeGpus, Taint, TaintEffect, Unavailable};

use crate::{
    amount::{Round, amount, wrong},
    gpu_labels,
    queue::name,
};

/// A node without its NUMA zones and devices, which other objects tell. What cannot be read makes it unavailable, with a reason.
pub(crate) fn node(object: &k8s::Node) -> Node {
    let labels = object.metadata.labels.clone().unwrap_or_default();
    let mut unavailable = conditions(object);
    let mut amounts = Allocatable::default();
    if let Err(error) = amounts.read(object) {
        amounts = Allocatable::default();
        unavailable.push(Unavailable::Invalid(error));
    }
    let gpus = gpus(object, &labels, &mut amounts);
    let taken = |amounts: &mut Allocatable, name: &str| amounts.0.remove(name).unwrap_or(0);
    Node {
        name: name(&object.metadata),
        taints: taints(object),
        unavailable,
        cpu: taken(&mut amounts, "cpu"),
        memory: taken(&mut amounts, "memory"),
        pods: taken(&mut amounts, "pods"),
        storage: taken(&mut amounts, "ephemeral-storage"),
        extended: amounts.0,
        gpus,
        labels,
        numa: None,
        devices: Vec::new(),
    }
}

/// What pods may have of each resource.
#[derive(Default)]
struct Allocatable(BTreeMap<String, i64>);

impl Allocatable {
    fn read(&mut self, object: &k8s::Node) -> Result<(), String> {
        let status = object.status.as_ref();
        let Some(list) = status.and_then(|status| status.allocatable.as_ref().or(status.capacity.as_ref())) else {
            return Ok(());
        };
        for (resource, quantity) in list {
            let field = format!("status.allocatable[{resource}]");
            let read = amount(&field, resource, quantity, Round::Down)?;
            let gpus = resource == resources::NVIDIA_GPU || resource == resources::AMD_GPU;
            if gpus && u32::try_from(read).is_err() {
                return Err(wrong(
                    &field,
                    format_args!("{read} is more GPUs than any node has"),
                    "correct the device plugin",
                ));
            }
            if read > 0 {
                self.0.insert(resource.clone(), read);
            }
        }
        Ok(())
    }
}

/// The GPUs of the device plugins, taken out of the other resources.
fn gpus(object: &k8s::Node, labels: &BTreeMap<String, String>, amounts: &mut Allocatable) -> NodeGpus {
    let mut count = |resource: &str| amounts.0.remove(resource).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    let advertised = count(resources::NVIDIA_GPU);
    let others = count(resources::AMD_GPU);
    let read = gpu_labels::read("", labels, advertised, gpu_labels::is_tegra(object));
    NodeGpus { count: read.count.saturating_add(others), memory: read.memory, mig: mig(labels, amounts) }
}

/// A label decides whether a node is divided by MIG; without one, whether it offers profiles does.
fn mig(labels: &BTreeMap<String, String>, amounts: &Allocatable) -> MigStrategy {
    let offered = || amounts.0.keys().any(|resource| resource.starts_with(resources::MIG_PREFIX));
    let divided = labels.get(node_labels::MIG_ENABLED).map_or_else(offered, |text| text.trim() == "true");
    match labels.get(node_labels::MIG_STRATEGY).map(String::as_str) {
        _ if !divided => MigStrategy::Off,
        Some("single") => MigStrategy::Single,
        Some("mixed") => MigStrategy::Mixed,
        _ => MigStrategy::Any,
    }
}

fn conditions(object: &k8s::Node) -> Vec<Unavailable> {
    let mut found = Vec::new();
    if object.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false) {
        found.push(Unavailable::Unschedulable);
    }
    let all = object.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    for condition in all {
        let (reason, good) = match condition.type_.as_str() {
            "Ready" => (Unavailable::NotReady, "True"),
            "MemoryPressure" => (Unavailable::MemoryPressure, "False"),
            "DiskPressure" => (Unavailable::DiskPressure, "False"),
            "PIDPressure" => (Unavailable::PidPressure, "False"),
            "NetworkUnavailable" => (Unavailable::NetworkUnavailable, "False"),
            _ => continue,
        };
        if condition.status != good && !found.contains(&reason) {
            found.push(reason);
        }
    }
    found.sort();
    found
}

fn taints(object: &k8s::Node) -> Vec<Taint> {
    let all = object.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let read = all.iter().filter_map(|taint| {
        let value = taint.value.clone().unwrap_or_default();
        Some(Taint { key: taint.key.clone(), value, effect: effect(&taint.effect)? })
    });
    read.collect()
}

/// The effect of a taint by its name.
pub(crate) fn effect(name: &str) -> Option<TaintEffect> {
    match name {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(labels: Value, allocatable: Value) -> Node {
        let status = json!({"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]});
        let object = json!({"metadata": {"name": "n", "labels": labels}, "status": status});
        node(&serde_json::from_value(object).expect("a node"))
    }

    #[test]
    fn replicas_of_time_slicing_are_not_gpus() {
        let sliced = read(json!({"nvidia.com/gpu.count": "2"}), json!({"nvidia.com/gpu": "8"}));
        assert_eq!(sliced.gpus.count, 2);
    }

    #[test]
    fn a_count_above_what_is_allocatable_does_not_overcommit() {
        let unhealthy = read(json!({"nvidia.com/gpu.count": "8"}), json!({"nvidia.com/gpu": "7"}));
        assert_eq!(unhealthy.gpus.count, 7);
        assert_eq!(read(json!({}), json!({"nvidia.com/gpu": "3", "amd.com/gpu": "2"})).gpus.count, 5);
    }

    #[test]
    fn other_resources_that_end_in_gpu_are_ordinary() {
        let node = read(json!({}), json!({"intel.com/gpu": "2", "hugepages-2Mi": "4Mi", "cpu": "2", "pods": "110"}));
        assert_eq!(node.gpus.count, 0);
        assert_eq!(node.extended.get("intel.com/gpu"), Some(&2));
        assert_eq!(node.extended.get("hugepages-2Mi"), Some(&(4 << 20)));
        assert_eq!((node.cpu, node.pods, node.extended.len()), (2000, 110, 2));
    }

    #[test]
    fn memory_is_exact_and_large_numbers_are_bytes() {
        let of = |text: &str| read(json!({"nvidia.com/gpu.memory": text}), json!({})).gpus.memory;
        assert_eq!(of("81559"), Some(81_559));
        assert_eq!(of("85899345920"), Some(81_920));
        assert_eq!(of("1048575"), Some(1_048_575));
        assert_eq!(of("1048576"), Some(1));
        assert_eq!((of("much"), of("0"), of("-1")), (None, None, None));
    }

    #[test]
    fn a_label_decides_about_mig_else_the_profiles_do() {
        let profiles = json!({"nvidia.com/mig-1g.5gb": "7"});
        let of = |labels: Value, allocatable: Value| read(labels, allocatable).gpus.mig;
        assert_eq!(of(json!({}), profiles.clone()), MigStrategy::Any);
        assert_eq!(of(json!({"nvidia.com/mig.strategy": "mixed"}), profiles.clone()), MigStrategy::Mixed);
        assert_eq!(of(json!({"nvidia.com/mig.strategy": "mixed"}), json!({})), MigStrategy::Off);
        let labels = json!({"node-role.kubernetes.io/mig-enabled": "true", "nvidia.com/mig.strategy": "single"});
        assert_eq!(of(labels, json!({})), MigStrategy::Single);
        assert_eq!(of(json!({"node-role.kubernetes.io/mig-enabled": "false"}), profiles), MigStrategy::Off);
    }

    #[test]
    fn bad_conditions_and_bad_amounts_make_a_node_unavailable() {
        let object = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true, "taints": [
                {"key": "k", "value": "v", "effect": "NoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}, {"type": "DiskPressure", "status": "True"}]}});
        let read_one = node(&serde_json::from_value(object).expect("a node"));
        assert_eq!(
            read_one.unavailable,
            [Unavailable::Unschedulable, Unavailable::NotReady, Unavailable::DiskPressure]
        );
        assert_eq!(read_one.taints.len(), 1);
        let broken = read(json!({}), json!({"cpu": "4", "nvidia.com/gpu": "1000000000000000000"}));
        assert!(matches!(broken.unavailable.as_slice(), [Unavailable::Invalid(why)] if why.contains("nvidia.com/gpu")));
        assert_eq!(broken.cpu, 0);
    }
}
