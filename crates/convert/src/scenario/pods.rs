//! The state of pods: as the objects say, and inside a cycle as the plan makes it.

use std::collections::BTreeMap;

use kai_core::{
    Cluster,
    delta::{Phase, Pod},
    plan::{Decision, Placed, Plan},
    time::{Span, Time},
};

/// What a scenario sees of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodState {
    pub(super) status: &'static str,
    pub(super) node: Option<String>,
    pub(super) devices: Vec<String>,
    pub(super) zones: Vec<u32>,
}

/// The state of a pod as its object says.
pub(super) fn state(pod: &Pod, now: Time, stuck_after: Span) -> PodState {
    let status = match (pod.phase, pod.deleted, &pod.placement) {
        (Phase::Succeeded, ..) => "Succeeded",
        (Phase::Failed, ..) => "Failed",
        (Phase::Running, Some(deleted), _) if now.since(deleted) > stuck_after => "StuckInReleasing",
        (Phase::Running | Phase::Pending, Some(_), _) => "Releasing",
        (Phase::Running, None, _) => "Running",
        (Phase::Gated, ..) => "Gated",
        (Phase::Pending, None, Some(placement)) if placement.bound => "Bound",
        (Phase::Pending, None, Some(_)) => "Binding",
        (Phase::Pending, None, None) => "Pending",
    };
    let placement = pod.placement.as_ref();
    PodState {
        status,
        node: placement.map(|placement| placement.node.clone()),
        devices: placement.map(|placement| placement.devices.clone()).unwrap_or_default(),
        zones: placement.map(|placement| placement.numa.iter().map(|share| share.zone).collect()).unwrap_or_default(),
    }
}

/// The states inside a cycle: what was decided wins over what is. A pod that is evicted and placed again is pipelined.
pub(super) fn in_cycle(states: &mut BTreeMap<String, PodState>, plan: &Plan, cluster: &Cluster) {
    let placed = |status: &'static str, placed: &Placed| PodState {
        status,
        node: Some(cluster.node_name(placed.node).to_owned()),
        devices: placed.devices.clone(),
        zones: placed.numa.iter().map(|share| share.zone).collect(),
    };
    for decision in &plan.decisions {
        if let Decision::Evict(eviction) = decision
            && let Some(state) = states.get_mut(cluster.pod_uid(eviction.pod))
        {
            state.status = "Releasing";
        }
    }
    for decision in &plan.decisions {
        match decision {
            Decision::Bind(place) => {
                states.insert(cluster.pod_uid(place.pod).to_owned(), placed("Binding", place));
            }
            Decision::Pipeline(place) => {
                states.insert(cluster.pod_uid(place.pod).to_owned(), placed("Pipelined", place));
            }
            _ => {}
        }
    }
}
