//! No shared device is given out beyond its memory, and a pod gets as many devices as it asked for.
//!
//! Source: design, "Integers only": a device of M MiB fits sharers iff the sum of portions times M and of MiB times 10^6 is at most M times 10^6.

use std::collections::{BTreeMap, BTreeSet};

use kai_core::delta::{Gpus, Node, Pod};

use crate::{
    Cycle, Violation,
    facts::{gpu_memory, is_sane, standing::Standing},
};

const INVARIANT: &str = "no device is given out beyond its memory";

/// Devices that would hold more than they have, and pods with the wrong number of devices.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    // For each device: units physically used, units used in future, whether a pod was bound to it, whether one was placed on it.
    let mut devices: BTreeMap<(&str, &str), (u128, u128, bool, bool)> = BTreeMap::new();
    for pod in cycle.facts.pods.values() {
        let standing = cycle.standing(pod);
        let Some(placement) = pod.placement.as_ref().filter(|_| standing.is_physical()) else { continue };
        let Some(node) = cycle.facts.nodes.get(&placement.node) else { continue };
        let Some(units) = units(pod, node) else { continue };
        let leaves = standing == Standing::Releasing || cycle.evictions.contains_key(pod.uid.as_str());
        for device in placement.devices.iter().collect::<BTreeSet<_>>() {
            let entry = devices.entry((&placement.node, device)).or_default();
            entry.0 += units;
            entry.1 += if leaves { 0 } else { units };
        }
    }
    for placing in cycle.placements.values() {
        let Some(node) = cycle.facts.nodes.get(placing.node) else { continue };
        let wanted = match placing.pod.request.gpus {
            Gpus::None | Gpus::Whole(_) => 0,
            Gpus::Portion { devices, .. } | Gpus::Memory { devices, .. } => devices as usize,
        };
        let distinct: BTreeSet<&String> = placing.placed.devices.iter().collect();
        if distinct.len() != wanted || placing.placed.devices.len() != wanted {
            let what = format!("asked for {wanted} shared devices, got {:?}", placing.placed.devices);
            violations.push(Violation { invariant: INVARIANT, object: placing.pod.uid.clone(), what });
        }
        let Some(units) = units(placing.pod, node) else { continue };
        let share = units.div_ceil(u128::from(gpu_memory(node).unwrap_or(1)));
        if u128::from(placing.placed.portion) != share {
            let what = format!("its portion is {share} millionths, the plan says {}", placing.placed.portion);
            violations.push(Violation { invariant: INVARIANT, object: placing.pod.uid.clone(), what });
        }
        for device in distinct {
            let entry = devices.entry((placing.node, device)).or_default();
            entry.0 += if placing.bound { units } else { 0 };
            entry.1 += units;
            entry.2 |= placing.bound;
            entry.3 = true;
        }
    }
    for ((node, device), (now, future, bound, placed)) in devices {
        let has = u128::from(cycle.facts.nodes.get(node).and_then(gpu_memory).unwrap_or(1)) * 1_000_000;
        for (when, held, judged) in [("now", now, bound), ("in future", future, placed)] {
            if judged && held > has {
                let what = format!("{when} pods hold {held} units of it, it has {has}");
                violations.push(Violation { invariant: INVARIANT, object: format!("{node}/{device}"), what });
            }
        }
    }
    violations
}

/// Units of each device that a pod takes on a node: all of them where its share cannot be told.
fn units(pod: &Pod, node: &Node) -> Option<u128> {
    if !is_sane(&pod.request) {
        return None;
    }
    let whole = u128::from(gpu_memory(node).unwrap_or(1)) * 1_000_000;
    match pod.request.gpus {
        Gpus::None | Gpus::Whole(_) => None,
        Gpus::Portion { millionths, .. } => Some(u128::from(millionths) * u128::from(gpu_memory(node).unwrap_or(1))),
        Gpus::Memory { mib, .. } => gpu_memory(node).map(|_| u128::from(mib) * 1_000_000).or(Some(whole)),
    }
}
