//! What the world makes of a plan, as the deltas of the next moment. Checks over several cycles and tests drive the core with it.

use std::collections::BTreeMap;

use kai_core::{
    delta::{Delta, Phase, Placement, Pod},
    time::{Span, Time},
};

use crate::{Cycle, Facts, cycle::Step};

/// How fast the world is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// Everything is done before the next cycle: bound pods run, ended ones are back and wait under the same uid, and every group that runs
    /// started a minute ago. Time stands still, so a cluster that nobody else changes must come to rest.
    Instant,
    /// Each cycle moves each pod one step on: to being bound, bound, running; to being deleted, to being replaced by a new pod.
    Gradual,
}

/// The deltas that carry out a plan.
#[must_use]
pub fn echo(cycle: &Cycle<'_>, world: World) -> Vec<Delta> {
    let mut next = cycle.facts.clone();
    match world {
        World::Instant => instant(cycle, &mut next),
        World::Gradual => gradual(cycle, &mut next),
    }
    differences(cycle.facts, &next)
}

fn instant(cycle: &Cycle<'_>, next: &mut Facts) {
    for pod in next.pods.values_mut().filter(|pod| pod.phase == Phase::Pending && pod.placement.is_some()) {
        pod.phase = Phase::Running;
    }
    for pod in next.pods.values_mut() {
        let ends = pod.deleted.is_some() || cycle.evictions.contains_key(pod.uid.as_str());
        if ends && matches!(pod.phase, Phase::Pending | Phase::Running) {
            wait_again(pod);
        }
    }
    for placing in cycle.placements.values().filter(|placing| placing.bound) {
        if let Some(pod) = next.pods.get_mut(&placing.pod.uid) {
            pod.phase = Phase::Running;
            pod.placement = Some(placement(placing.node, &placing.placed.devices, true));
        }
    }
    let gangs: BTreeMap<String, bool> = next
        .gangs()
        .into_iter()
        .map(|(key, gang)| {
            let runs = gang.count(|pod| pod.phase == Phase::Running);
            (key.to_owned(), runs.iter().any(|count| *count > 0))
        })
        .collect();
    for (key, group) in &mut next.groups {
        let runs = gangs.get(key).copied().unwrap_or(false);
        group.last_start = runs.then(|| cycle.now.after(Span::seconds(-60)));
    }
}

fn gradual(cycle: &Cycle<'_>, next: &mut Facts) {
    let mut replaced = Vec::new();
    for pod in next.pods.values_mut() {
        if pod.deleted.is_some() {
            let mut fresh = pod.clone();
            wait_again(&mut fresh);
            fresh.uid.push('\'');
            fresh.created = cycle.now;
            replaced.push((pod.uid.clone(), fresh));
        } else if let (Phase::Pending, Some(placement)) = (pod.phase, &mut pod.placement) {
            if placement.bound {
                pod.phase = Phase::Running;
            } else {
                placement.bound = true;
            }
        }
    }
    for (uid, fresh) in replaced {
        next.pods.remove(&uid);
        next.pods.insert(fresh.uid.clone(), fresh);
    }
    for step in &cycle.steps {
        carry_out(step, next, cycle.now);
    }
}

fn carry_out(step: &Step<'_>, next: &mut Facts, now: Time) {
    match step {
        Step::Place(placing) if placing.bound => {
            if let Some(pod) = next.pods.get_mut(&placing.pod.uid) {
                pod.placement = Some(placement(placing.node, &placing.placed.devices, false));
            }
        }
        Step::Place(_) => {}
        Step::Evict(evicting) => {
            if let Some(pod) = next.pods.get_mut(&evicting.pod.uid) {
                pod.deleted = Some(now);
            }
            if let Some(group) = next.groups.get_mut(&evicting.group.key) {
                group.last_eviction = Some(now);
            }
        }
        Step::Started(group, at) => {
            if let Some(group) = next.groups.get_mut(&group.key) {
                group.last_start = Some(*at);
            }
        }
        Step::Stale(group, since) => {
            if let Some(group) = next.groups.get_mut(&group.key) {
                group.stale_since = *since;
            }
        }
    }
}

fn wait_again(pod: &mut Pod) {
    pod.phase = Phase::Pending;
    pod.deleted = None;
    pod.placement = None;
}

fn placement(node: &str, devices: &[String], bound: bool) -> Placement {
    Placement { node: node.to_owned(), devices: devices.to_vec(), numa: Vec::new(), bound }
}

/// The deltas that lead from one state of pods and groups to another.
fn differences(from: &Facts, to: &Facts) -> Vec<Delta> {
    let mut deltas = Vec::new();
    deltas.extend(from.pods.keys().filter(|uid| !to.pods.contains_key(*uid)).map(|uid| Delta::PodGone(uid.clone())));
    let groups = to.groups.iter().filter(|(key, group)| from.groups.get(*key) != Some(group));
    deltas.extend(groups.map(|(_, group)| Delta::PodGroup(Box::new(group.clone()))));
    let pods = to.pods.iter().filter(|(uid, pod)| from.pods.get(*uid) != Some(pod));
    deltas.extend(pods.map(|(_, pod)| Delta::Pod(Box::new(pod.clone()))));
    deltas
}
