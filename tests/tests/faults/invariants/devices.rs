//! No device is given more than it has, and a container is told exactly the devices that the reservations of its groups hold.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{Ask, Facts, NodeFacts, PodFacts};

pub fn check(facts: &Facts) -> Vec<String> {
    let mut broken = overfull(facts);
    broken.extend(given_twice(facts));
    for pod in facts.pods.iter().filter(|pod| pod.holds()) {
        let Some(node) = pod.node.as_ref().and_then(|node| facts.nodes.get(node)) else { continue };
        let shares = !matches!(pod.ask, Ask::Whole(_));
        if shares && pod.groups.len() as u64 != pod.ask.devices() {
            broken.push(format!("pod {} asks for {:?} and is in groups {:?}", pod.name, pod.ask, pod.groups));
        }
        if !shares && !pod.groups.is_empty() {
            broken.push(format!("pod {} shares nothing and is in groups {:?}", pod.name, pod.groups));
        }
        if shares && node.ready {
            broken.extend(told(facts, pod, node));
        }
    }
    broken
}

/// The devices of each node: shared ones by group, and whole ones.
fn overfull(facts: &Facts) -> Vec<String> {
    let mut broken = Vec::new();
    let mut shared: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut whole: BTreeMap<&str, u64> = BTreeMap::new();
    for pod in facts.pods.iter().filter(|pod| pod.holds()) {
        let Some(node) = &pod.node else { continue };
        let Some(described) = facts.nodes.get(node) else { continue };
        if let Ask::Whole(count) = pod.ask {
            *whole.entry(node).or_default() += count;
        }
        for group in &pod.groups {
            *shared.entry((node, group)).or_default() += pod.ask.of_each(described.memory);
        }
    }
    for ((node, group), used) in &shared {
        let memory = facts.nodes.get(*node).map_or(0, |node| node.memory);
        if *used > memory * 1_000_000 {
            broken.push(format!("group {group} on {node} uses {used} of {memory} MiB (in millionths)"));
        }
    }
    for (name, node) in facts.nodes.iter().filter(|(_, node)| node.ready) {
        let groups = shared.keys().filter(|(other, _)| other == name).count() as u64;
        // A whole GPU is a device, however often it is offered.
        let entire = whole.get(name.as_str()).copied().unwrap_or(0);
        if groups + entire > node.devices {
            broken.push(format!("node {name} has {} devices, {groups} are shared and {entire} whole", node.devices));
        }
    }
    broken
}

/// Devices that a pod has for itself and others have, too. Where time is sliced or a device has no name of its own that is not to be seen.
fn given_twice(facts: &Facts) -> Vec<String> {
    let mut users: BTreeMap<(&str, &str), Vec<&PodFacts>> = BTreeMap::new();
    for pod in facts.pods.iter().filter(|pod| pod.holds()) {
        let Some((name, node)) = pod.node.as_ref().and_then(|node| facts.nodes.get_key_value(node)) else { continue };
        if node.ready && !node.tegra && node.replicas == 1 {
            for device in pod.told.iter().flat_map(|told| told.split(',')).filter(|device| device.starts_with("GPU-")) {
                users.entry((name, device)).or_default().push(pod);
            }
        }
    }
    let twice = users.into_iter().filter(|(_, pods)| pods.len() > 1);
    let twice = twice.filter(|(_, pods)| pods.iter().any(|pod| matches!(pod.ask, Ask::Whole(_))));
    twice
        .map(|((node, device), pods)| {
            let names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
            format!("device {device} on {node} is a whole one for one of {names:?}")
        })
        .collect()
}

/// What a container was told against what reservations hold.
fn told(facts: &Facts, pod: &PodFacts, node: &NodeFacts) -> Option<String> {
    let held: BTreeSet<&str> = facts
        .reservations
        .iter()
        .filter(|holder| pod.groups.contains(&holder.group) && holder.node == pod.node && !holder.deleting)
        .filter_map(|holder| holder.device.as_deref())
        .collect();
    let told: BTreeSet<&str> = pod.told.iter().flat_map(|told| told.split(',')).collect();
    let right = if node.tegra { told == BTreeSet::from(["0"]) } else { told == held };
    (!right).then(|| format!("pod {} was told {told:?}, its groups {:?} hold {held:?}", pod.name, pod.groups))
}
