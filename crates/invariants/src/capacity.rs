//! No node holds more than it has.
//!
//! Source: the ledger rule of the core (`kai_core::cluster::node`): what is bound must fit beside everything that is physically there; what is
//! promised must fit once everything that leaves has left.

use std::collections::{BTreeMap, BTreeSet};

use kai_core::delta::{Gpus, Node, Pod};

use crate::{
    Cycle, Violation,
    cycle::Placing,
    facts::{is_sane, is_sane_node},
};

const INVARIANT: &str = "no node holds more than it has";

/// Nodes that would hold more than they have.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (name, node) in &cycle.facts.nodes {
        let placed: Vec<&Placing<'_>> = cycle.placements.values().filter(|placing| placing.node == name).collect();
        let here = |pod: &&Pod| pod.placement.as_ref().is_some_and(|placement| placement.node == *name);
        let there = || cycle.facts.pods.values().filter(here);
        let physical: Vec<&Pod> = there().filter(|pod| cycle.standing(pod).is_physical()).collect();
        let staying = physical.iter().filter(|pod| {
            cycle.standing(pod) != crate::facts::standing::Standing::Releasing
                && !cycle.evictions.contains_key(pod.uid.as_str())
        });
        let known: BTreeSet<&str> = physical.iter().flat_map(|pod| devices_of(pod)).collect();

        let mut now = Load::default();
        let mut future = Load::default();
        for pod in &physical {
            now.add(pod, devices_of(pod));
        }
        for pod in staying {
            future.add(pod, devices_of(pod));
        }
        for placing in &placed {
            let devices = || placing.placed.devices.iter().map(String::as_str);
            if placing.bound {
                now.add(placing.pod, devices());
            }
            future.add(placing.pod, devices());
        }
        let bound = placed.iter().filter(|placing| placing.bound).copied();
        complain(cycle, node, "now", &now, bound, &known, &mut violations);
        complain(cycle, node, "in future", &future, placed.iter().copied(), &known, &mut violations);
    }
    violations
}

/// The shared devices a pod has a part of.
fn devices_of(pod: &Pod) -> impl Iterator<Item = &str> {
    let devices = pod.placement.as_ref().map_or(&[][..], |placement| &placement.devices);
    let shared = matches!(pod.request.gpus, Gpus::Portion { .. } | Gpus::Memory { .. }) && is_sane(&pod.request);
    devices.iter().map(String::as_str).filter(move |_| shared)
}

/// What some pods hold together.
#[derive(Debug, Default)]
struct Load<'a> {
    amounts: BTreeMap<&'a str, i128>,
    shared: BTreeSet<&'a str>,
}

impl<'a> Load<'a> {
    fn add(&mut self, pod: &'a Pod, devices: impl Iterator<Item = &'a str>) {
        for (resource, amount) in wants(pod) {
            *self.amounts.entry(resource).or_default() += amount;
        }
        self.shared.extend(devices);
    }
}

/// What a pod takes of a node, besides its devices.
fn wants(pod: &Pod) -> Vec<(&str, i128)> {
    let mut wants = vec![("pods", 1)];
    if is_sane(&pod.request) {
        let request = &pod.request;
        wants.extend([("cpu", request.cpu), ("memory", request.memory), ("storage", request.storage)]);
        wants.extend(request.extended.iter().map(|(name, amount)| (name.as_str(), *amount)));
        if let Gpus::Whole(count) = request.gpus {
            wants.push(("gpu", count.into()));
        }
    }
    wants.into_iter().filter(|(_, amount)| *amount > 0).map(|(name, amount)| (name, i128::from(amount))).collect()
}

/// What a node has of a resource; `None`: DRA drivers may serve it there.
fn has(cycle: &Cycle<'_>, node: &Node, resource: &str) -> Option<i128> {
    let amount = match resource {
        "cpu" => node.cpu,
        "memory" => node.memory,
        "storage" => node.storage,
        "pods" => node.pods,
        "gpu" => i64::from(node.gpus.count),
        other => node.extended.get(other).copied().unwrap_or(0),
    };
    let name = if resource == "gpu" { "nvidia.com/gpu" } else { resource };
    let served = amount == 0 && cycle.facts.device_resources.contains_key(name);
    let amount = if is_sane_node(node) { amount } else { 0 };
    (!served).then_some(amount.into())
}

/// Only what the plan adds to is judged: a node may have been overfull before.
fn complain<'a>(
    cycle: &Cycle<'_>,
    node: &Node,
    when: &str,
    load: &Load<'_>,
    added: impl Iterator<Item = &'a Placing<'a>>,
    known: &BTreeSet<&str>,
    violations: &mut Vec<Violation>,
) {
    let mut touched = BTreeSet::new();
    let mut opened = BTreeSet::new();
    for placing in added {
        touched.extend(wants(placing.pod).into_iter().map(|(resource, _)| resource));
        for device in &placing.placed.devices {
            if !known.contains(device.as_str()) {
                touched.insert("gpu");
                opened.insert(device.as_str());
            }
        }
    }
    for resource in touched {
        let held = load.amounts.get(resource).copied().unwrap_or(0);
        let held = match resource {
            // A divided device is a whole GPU that nobody else can have.
            "gpu" => held + load.shared.len() as i128,
            // Each device that is opened needs a slot for its reservation pod.
            "pods" => held + opened.len() as i128,
            _ => held,
        };
        if let Some(has) = has(cycle, node, resource).filter(|has| held > *has) {
            let what = format!("{when} pods hold {held} of {resource}, it has {has}");
            violations.push(Violation { invariant: INVARIANT, object: node.name.clone(), what });
        }
    }
}
