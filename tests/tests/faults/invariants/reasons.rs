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
    if let Some(limit) = pod.queue.as_deref().and_then(|queue| queues::limit(facts, queue)) {
        let memory = facts.nodes.values().map(|node| node.memory).max().unwrap_or(1);
        let memory_of =
            |node: &Option<String>| node.as_ref().and_then(|node| facts.nodes.get(node)).map(|node| node.memory);
        let held: u64 = facts
            .pods
            .iter()
            .filter(|other| other.holds() && other.queue == pod.queue)
            .map(|other| queues::millionths(other.ask, memory_of(&other.node).unwrap_or(memory)))
            .sum();
        if held + queues::millionths(pod.ask, memory) * together > limit {
            return (!why.contains("limit") && !why.contains("Limit"))
                .then(|| format!("pod {} is kept by the limit of its queue, and says: {why}", pod.name));
        }
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
    (room >= together).then(|| {
        format!(
            "pod {} waits with {:?}, though there is room for it and its {together} ({rooms:?}): {why}",
            pod.name, pod.ask
        )
    })
}
