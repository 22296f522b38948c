//! What came out against what must come out. Each difference is a sentence.

use std::collections::BTreeMap;

use kai_core::{
    amounts::GPU,
    delta::{Gpus, Pod},
    ids::PodId,
    plan::{Decision, Plan},
};

use super::{
    drive::{Cycle, Run},
    file::{Expectation, GroupExpectation, Limits, PodExpectation, full},
    pods::PodState,
};
use crate::amount::{Round, amount, scaled};

/// Everything that is compared once: pods by name, the rest by what the run knows.
pub(super) fn compare(
    run: &Run<'_>,
    states: &BTreeMap<String, PodState>,
    by_uid: &BTreeMap<String, PodState>,
    cycle: &Cycle,
) -> Vec<String> {
    let expect = &run.scenario.expect;
    let mut failures = Vec::new();
    for (pod, expected) in &expect.pods {
        failures.extend(pod_differs(pod, expected, states.get(pod)));
    }
    for (name, expected) in &expect.pod_groups {
        group_differs(run, name, expected, by_uid, &mut failures);
    }
    started(run, cycle, &mut failures);
    nodes_differ(run, &mut failures);
    for (name, expected) in &expect.messages {
        let group = group_key(run, name);
        let found = cycle.explanations.iter().find(|one| one.group == group).map(|one| one.message.as_str());
        if found != Some(expected) {
            failures.push(format!("message of {group}: expected {expected:?}, got {:?}", found.unwrap_or_default()));
        }
    }
    for (name, parts) in &expect.reasons {
        let group = group_key(run, name);
        let found =
            cycle.explanations.iter().find(|one| one.group == group).map(super::super::explain::Explanation::text);
        let text = found.unwrap_or_default();
        let missing = parts.iter().filter(|part| !text.contains(part.as_str()));
        failures.extend(missing.map(|part| format!("reasons of {group}: expected {part:?} in {text:?}")));
    }
    for part in &expect.verdicts {
        if !cycle.verdicts.iter().any(|verdict| verdict.contains(part.as_str())) {
            failures.push(format!("verdicts: expected {part:?} in one of {:?}", cycle.verdicts));
        }
    }
    failures.extend(devices_differ(&expect.gpu_group_hints, states));
    failures
}

/// After the match nothing may move: what must wait is not placed, what must run is not evicted.
pub(super) fn stirred(expect: &Expectation, plan: &Plan, key: impl Fn(PodId) -> String) -> Vec<String> {
    let expected = |pod: PodId| {
        let key = key(pod);
        expect.pods.get(&key).map(|expected| (key, expected.status.as_str()))
    };
    let one = |decision: &Decision| match decision {
        Decision::Bind(placed) | Decision::Pipeline(placed) => match expected(placed.pod)? {
            (pod, "Pending") => Some(format!("pod {pod}: expected to stay Pending, got a place")),
            _ => None,
        },
        Decision::Evict(eviction) => match expected(eviction.pod)? {
            (pod, "Running") => Some(format!("pod {pod}: expected to stay Running, got evicted")),
            _ => None,
        },
        _ => None,
    };
    plan.decisions.iter().filter_map(one).collect()
}

/// Bounds on what one cycle does.
pub(super) fn limits(limits: &Limits, plan: &Plan) -> Vec<String> {
    let count = |which: fn(&Decision) -> bool| plan.decisions.iter().filter(|decision| which(decision)).count();
    let bounds = [
        ("binds", limits.binds, count(|decision| matches!(decision, Decision::Bind(_)))),
        ("evictions", limits.evictions, count(|decision| matches!(decision, Decision::Evict(_)))),
        ("pipelinings", limits.pipelines, count(|decision| matches!(decision, Decision::Pipeline(_)))),
    ];
    let over = bounds.into_iter().filter(|(_, most, found)| most.is_some_and(|most| *found > most));
    over.map(|(what, most, found)| format!("expected at most {} {what}, got {found}", most.unwrap_or(0))).collect()
}

fn pod_differs(pod: &str, expected: &PodExpectation, found: Option<&PodState>) -> Option<String> {
    let Some(found) = found else { return Some(format!("pod {pod}: expected {}, got no such pod", expected.status)) };
    let node = found.node.as_deref();
    let right_node = expected.node.as_deref().is_none_or(|name| node == Some(name))
        && expected.node_in.as_ref().is_none_or(|names| node.is_some_and(|node| names.iter().any(|name| name == node)));
    let right_zones = expected.numa_zones.as_ref().is_none_or(|zones| sorted(zones) == sorted(&found.zones));
    if expected.status == found.status && right_node && right_zones {
        return None;
    }
    let wanted_node = match (&expected.node, &expected.node_in) {
        (Some(name), _) => format!(" on {name}"),
        (None, Some(names)) => format!(" on one of {}", names.join(", ")),
        (None, None) => String::new(),
    };
    let wanted_zones = expected.numa_zones.as_ref().map_or_else(String::new, |zones| format!(" in zones {zones:?}"));
    let found_node = node.map_or_else(String::new, |node| format!(" on {node}"));
    let found_zones =
        if wanted_zones.is_empty() { String::new() } else { format!(" in zones {:?}", sorted(&found.zones)) };
    Some(format!(
        "pod {pod}: expected {}{wanted_node}{wanted_zones}, got {}{found_node}{found_zones}",
        expected.status, found.status
    ))
}

fn sorted(zones: &[u32]) -> Vec<u32> {
    let mut zones = zones.to_vec();
    zones.sort_unstable();
    zones.dedup();
    zones
}

/// A group by the name an expectation gives it: in the namespace it names, else in `default`, else wherever it is.
fn group_key(run: &Run<'_>, name: &str) -> String {
    let usual = full(name);
    if name.contains('/') || run.cluster.group(&usual).is_some() {
        return usual;
    }
    let end = format!("/{name}");
    let mut groups = run.pods.values().filter_map(|pod| pod.group.clone());
    groups.find(|group| group.ends_with(&end)).unwrap_or(usual)
}

fn group_differs(
    run: &Run<'_>,
    name: &str,
    expected: &GroupExpectation,
    states: &BTreeMap<String, PodState>,
    failures: &mut Vec<String>,
) {
    let group = group_key(run, name);
    let pods: Vec<&Pod> = run.pods.values().filter(|pod| pod.group.as_ref() == Some(&group)).collect();
    let sum = |of: &dyn Fn(&Pod) -> i64| pods.iter().map(|pod| of(pod)).fold(0_i64, i64::saturating_add);
    let mut differ = |what: &str, expected: Option<f64>, unit: i64, found: i64| {
        let Some(wanted) = expected.and_then(|number| scaled(number, unit)) else { return };
        // KAI rounds shares of GPUs up to hundredths; ours are exact, so the difference is less than one.
        let close = unit == GPU && found <= wanted && wanted - found < GPU / 100;
        if wanted != found && !close {
            failures.push(format!(
                "group {group}: expected {what} {}, got {}",
                expected.unwrap_or(0.0),
                decimal(found, unit)
            ));
        }
    };
    differ("gpusRequested", expected.gpus_requested, GPU, sum(&|pod| requested(pod)));
    differ("milliCpuRequested", expected.milli_cpu_requested, 1, sum(&|pod| pod.request.cpu));
    differ("memoryRequested", expected.memory_requested, 1, sum(&|pod| pod.request.memory));
    differ("gpusAccepted", expected.gpus_accepted, GPU, sum(&|pod| accepted(run, pod, states.get(&pod.uid))));
}

fn decimal(amount: i64, unit: i64) -> String {
    if unit == 1 { amount.to_string() } else { format!("{}.{:06}", amount / unit, (amount % unit).abs()) }
}

/// Whole GPUs and parts of them, in millionths; memory, profiles and claims count nothing.
fn requested(pod: &Pod) -> i64 {
    match pod.request.gpus {
        Gpus::Whole(count) => i64::from(count) * GPU,
        Gpus::Portion { devices, millionths } => i64::from(devices) * i64::from(millionths),
        Gpus::None | Gpus::Memory { .. } => 0,
    }
}

/// What a pod has on its node, in millionths.
fn accepted(run: &Run<'_>, pod: &Pod, state: Option<&PodState>) -> i64 {
    let placed = state.filter(|state| matches!(state.status, "Binding" | "Bound" | "Running" | "Pipelined"));
    let Some(node) = placed.and_then(|state| state.node.as_deref()) else { return 0 };
    let Gpus::Memory { devices, mib } = pod.request.gpus else { return requested(pod) };
    let memory = run.cluster.node(node).and_then(|node| run.cluster.nodes.get(node.index())?.gpu_memory).unwrap_or(0);
    let part = (u128::from(mib) * 1_000_000).checked_div(u128::from(memory)).unwrap_or(0);
    i64::try_from(part * u128::from(devices)).unwrap_or(i64::MAX)
}

/// A group with a pod that must run has a time at which it started.
fn started(run: &Run<'_>, cycle: &Cycle, failures: &mut Vec<String>) {
    for (key, expected) in &run.scenario.expect.pods {
        if !matches!(expected.status.as_str(), "Binding" | "Bound" | "Running") {
            continue;
        }
        let pod = run.pod_of(key);
        let Some(group) = pod.and_then(|pod| pod.group.clone()) else { continue };
        let recorded = cycle.plan.decisions.iter().any(|decision| match decision {
            Decision::Started { group: started, .. } => run.cluster.group_key(*started) == group,
            _ => false,
        });
        let sentence = format!("group {group}: expected a last-start time, got none");
        if run.cluster.group(&group).is_some()
            && !recorded
            && !run.world.has_started(&group)
            && !failures.contains(&sentence)
        {
            failures.push(sentence);
        }
    }
}

fn nodes_differ(run: &Run<'_>, failures: &mut Vec<String>) {
    for (name, expected) in &run.scenario.expect.nodes {
        let Some(node) = run.cluster.node(name) else {
            failures.push(format!("node {name}: expected it, got no such node"));
            continue;
        };
        let (idle, releasing) = run.cluster.node_gpus(node);
        for (what, expected, found) in
            [("idle", expected.idle_gpus, idle), ("releasing", expected.releasing_gpus, releasing)]
        {
            if let Some(wanted) = expected.and_then(|number| scaled(number, 1))
                && wanted != found
            {
                failures.push(format!("node {name}: expected {wanted} {what} GPUs, got {found}"));
            }
        }
        let zones = run.cluster.nodes.get(node.index()).and_then(|node| node.numa.as_ref());
        for (index, amounts) in &expected.numa_zones_available {
            let zone = index.parse::<usize>().ok().and_then(|index| zones?.zones.get(index));
            for (resource, text) in amounts {
                let quantity = k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.clone());
                let wanted = amount("numaZonesAvailable", resource, &quantity, Round::Down).ok();
                let found = zone.and_then(|zone| {
                    let place = zone.total.iter().position(|(word, _)| run.cluster.word(*word) == resource)?;
                    zone.future.get(place).copied()
                });
                if wanted != found {
                    failures.push(format!("node {name}, zone {index}: expected {resource} {wanted:?}, got {found:?}"));
                }
            }
        }
    }
}

/// On one node equal symbols are one device and different ones are different devices.
fn devices_differ(hints: &BTreeMap<String, Vec<String>>, states: &BTreeMap<String, PodState>) -> Vec<String> {
    let mut failures = Vec::new();
    let mut by_symbol: BTreeMap<(&str, &str), (&str, &str)> = BTreeMap::new();
    let mut by_device: BTreeMap<(&str, &str), (&str, &str)> = BTreeMap::new();
    for (pod, symbols) in hints {
        let Some(state) = states.get(pod) else { continue };
        let (Some(node), true) = (state.node.as_deref(), state.devices.len() == 1 && symbols.len() == 1) else {
            continue;
        };
        let (Some(device), Some(symbol)) = (state.devices.first(), symbols.first()) else { continue };
        let (other, known) = by_symbol.entry((node, symbol)).or_insert((pod, device));
        if known != device {
            failures.push(format!("pod {pod}: expected the device of {other} on {node}, got another"));
        }
        let (other, known) = by_device.entry((node, device)).or_insert((pod, symbol));
        if known != symbol {
            failures.push(format!("pod {pod}: expected another device than {other} on {node}, got the same"));
        }
    }
    failures
}
