//! Who waits says why, and that is true: there is no room by a model of our own, or the queue's limit, a gang or a veto stands in the way.

use std::collections::BTreeSet;

use kai_api::names::bind_phases;
use kube::ResourceExt as _;

use super::{
    facts::{Facts, PodFacts, State},
    queues, room,
};

pub fn check(facts: &Facts) -> Vec<String> {
    let mut broken = Vec::new();
    for pod in facts.pods.iter().filter(|pod| pod.state == State::Waits) {
        let said: Vec<&String> = pod.refusals.values().collect();
        let Some(why) = pod.refusals.get("PodScheduled").filter(|text| !text.is_empty()) else {
            broken.push(format!("pod {} waits and does not say why (conditions: {said:?})", pod.name));
            continue;
        };
        let about = [Some(&pod.name), pod.group.as_ref()];
        if about.into_iter().flatten().all(|name| facts.events_about(name).is_empty()) {
            broken.push(format!("pod {} waits and no event tells of it", pod.name));
        }
        broken.extend(untrue(facts, pod, why));
    }
    broken
}

/// What is wrong with a reason.
fn untrue(facts: &Facts, pod: &PodFacts, why: &str) -> Option<String> {
    let group = pod.group.as_ref().and_then(|group| facts.groups.get(group));
    let needed = group.and_then(|group| group.spec.min_member).unwrap_or(1).max(1).unsigned_abs();
    let members = || facts.pods.iter().filter(|other| other.group == pod.group);
    let holding = members().filter(|other| other.holds()).count() as u64;
    let waiting = members().filter(|other| other.state == State::Waits).count() as u64;
    // As many as are still missing start together; with enough of them running, one by one.
    let together = u64::from(needed).saturating_sub(holding).max(1);
    if waiting < together {
        return (!why.contains("not ready for scheduling"))
            .then(|| format!("pod {} is of a gang with too few pods, and says: {why}", pod.name));
    }
    let memory = facts.nodes.values().map(|node| node.memory).max().unwrap_or(1);
    let left = left_of_limit(facts, pod, memory);
    let cost = |memory: u64| queues::millionths(pod.ask, memory);
    let kept_by_limit = || {
        (!why.contains("limit") && !why.contains("Limit"))
            .then(|| format!("pod {} is kept by the limit of its queue, and says: {why}", pod.name))
    };
    if left.is_some_and(|left| cost(memory) * together > left) {
        return kept_by_limit();
    }
    let vetoed: BTreeSet<&str> = facts
        .requests
        .iter()
        .filter(|request| request.name_any() == pod.name)
        .filter(|request| {
            let status = request.status.clone().unwrap_or_default();
            status.phase.as_deref() == Some(bind_phases::FAILED)
                && status.next_retry.is_some_and(|time| time.0 > facts.now)
        })
        .filter_map(|request| request.spec.selected_node.as_deref())
        .collect();
    let open = facts.nodes.keys().filter(|node| !vetoed.contains(node.as_str()));
    let rooms: Vec<(&String, u64)> =
        open.map(|node| (node, room::on_node(facts, node, pod.ask))).filter(|(_, count)| *count > 0).collect();
    let room = rooms.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
    if room < together {
        return None;
    }
    // Memory is another part of each kind of device: there may be room only where the pods cost the queue too much.
    let mut costs: Vec<(u64, u64)> =
        rooms.iter().map(|(node, room)| (cost(facts.nodes[*node].memory), *room)).collect();
    costs.sort_unstable();
    let (mut missing, mut cheapest) = (together, 0);
    for (cost, room) in costs {
        let taken = room.min(missing);
        cheapest += cost * taken;
        missing -= taken;
    }
    if left.is_some_and(|left| cheapest > left) {
        return kept_by_limit();
    }
    Some(format!(
        "pod {} waits with {:?}, though there is room for it and its {together} ({rooms:?}): {why}",
        pod.name, pod.ask
    ))
}

/// Millionths of GPUs that the queue of a pod may still have; none if it has no limit.
fn left_of_limit(facts: &Facts, pod: &PodFacts, memory: u64) -> Option<u64> {
    let limit = queues::limit(facts, pod.queue.as_deref()?)?;
    let memory_of =
        |node: &Option<String>| node.as_ref().and_then(|node| facts.nodes.get(node)).map_or(memory, |node| node.memory);
    let held = facts.pods.iter().filter(|other| other.holds() && other.queue == pod.queue);
    let held: u64 = held.map(|other| queues::millionths(other.ask, memory_of(&other.node))).sum();
    Some(limit.saturating_sub(held))
}
