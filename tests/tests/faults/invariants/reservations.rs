//! One reservation pod per shared device in use, on the node of its users, with the device that the kubelet gave it; none else.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{Facts, ReservationFacts};

pub fn check(facts: &Facts) -> Vec<String> {
    let mut broken = Vec::new();
    let mut used: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for pod in facts.pods.iter().filter(|pod| pod.holds()) {
        for group in &pod.groups {
            let node = pod.node.clone().unwrap_or_default();
            used.entry((node, group.clone())).or_default().push(&pod.name);
        }
    }
    let nodes_of = |group: &str| -> BTreeSet<&str> {
        used.keys().filter(|(_, other)| other == group).map(|(node, _)| node.as_str()).collect()
    };
    for ((node, group), users) in &used {
        if !facts.nodes.get(node).is_some_and(|node| node.ready) {
            continue;
        }
        let holders: Vec<&ReservationFacts> = facts
            .reservations
            .iter()
            .filter(|holder| holder.group == *group && holder.node.as_ref() == Some(node) && is_live(holder))
            .collect();
        if holders.len() != 1 {
            broken.push(format!("group {group} on {node}, used by {users:?}, has {} reservations", holders.len()));
        }
        if nodes_of(group).len() > 1 {
            broken.push(format!("group {group} is on several nodes: {:?}", nodes_of(group)));
        }
    }
    let mut held: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for holder in &facts.reservations {
        let node = holder.node.clone().unwrap_or_default();
        let answers = facts.nodes.get(&node).is_some_and(|node| node.ready);
        if !used.contains_key(&(node.clone(), holder.group.clone())) && (answers || !facts.nodes.contains_key(&node)) {
            broken.push(format!("reservation {} on {node} is needed by nobody ({})", holder.name, holder.phase));
        }
        if !is_live(holder) {
            if answers {
                broken.push(format!("reservation {} has ended or is ending: {}", holder.name, holder.phase));
            }
            continue;
        }
        match &holder.device {
            Some(device) => held.entry((node.clone(), device.clone())).or_default().push(&holder.name),
            None if answers => broken.push(format!("reservation {} names no device", holder.name)),
            None => {}
        }
        let tegra = facts.nodes.get(&node).is_some_and(|node| node.tegra);
        let given: Vec<&str> = holder.given.iter().map(|id| id.split("::").next().unwrap_or(id)).collect();
        if let Some(device) = &holder.device
            && answers
            && !tegra
            && given != [device.as_str()]
        {
            broken.push(format!("reservation {} says {device}, but the kubelet gave it {given:?}", holder.name));
        }
    }
    for ((node, device), holders) in held.iter().filter(|(_, holders)| holders.len() > 1) {
        broken.push(format!("device {device} on {node} has several reservations: {holders:?}"));
    }
    broken
}

fn is_live(holder: &ReservationFacts) -> bool {
    !holder.deleting && !matches!(holder.phase.as_str(), "Succeeded" | "Failed")
}
