//! Picking up a pod that was already running when the kubelet started.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, PodStatus};

use super::{
    machine::{ContainerState, Exit, PodMachine, Stage, State, after},
    plan::PodPlan,
};
use crate::seed::Seed;

impl PodMachine {
    /// A machine in the state that the API object tells of. A pod whose containers never started begins anew.
    pub fn resume(
        plan: PodPlan,
        status: &PodStatus,
        seed: Seed,
        host_address: String,
        fresh_address: String,
        now: Timestamp,
    ) -> Self {
        let pod_address = status.pod_ip.clone().filter(|address| !address.is_empty());
        let (mut machine, _) = Self::accept(plan, seed, host_address, pod_address.unwrap_or(fresh_address), now);
        if let Some(time) = &status.start_time {
            machine.accepted = time.0;
        }
        let mut found_any = false;
        let statuses =
            status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
        for found in statuses {
            let plans = machine.plan.containers.iter();
            let Some(index) = plans.clone().position(|container| container.name == found.name) else { continue };
            if let Some(mut container) = container(found) {
                found_any = true;
                if let State::Running { since } = container.state {
                    container.wake = machine.plan.containers[index].run.map(|run| after(since, run));
                    container.ready_at = (!container.ready).then(|| after(since, machine.plan.ready));
                }
                machine.containers[index] = container;
            }
        }
        if found_any {
            machine.sandbox = true;
            machine.stage = Stage::Active;
        }
        for condition in status.conditions.iter().flatten() {
            let kind = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"]
                .into_iter()
                .find(|kind| *kind == condition.type_);
            if let (Some(kind), Some(time)) = (kind, &condition.last_transition_time) {
                machine.conditions.insert(kind, (condition.status == "True", time.0));
            }
        }
        machine
    }
}

/// Nothing for a container that has not started.
fn container(status: &ContainerStatus) -> Option<ContainerState> {
    let restarts = u32::try_from(status.restart_count).unwrap_or(0);
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref()).map(exit);
    let id = bare_id(status.container_id.as_deref());
    let state = status.state.as_ref()?;
    let state = if let Some(running) = &state.running {
        State::Running { since: running.started_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0) }
    } else if let Some(terminated) = &state.terminated {
        State::Terminated(exit(terminated))
    } else {
        // Waiting: in back-off it restarts at once, as after a real kubelet restart.
        last.as_ref()?;
        State::Waiting { why: None }
    };
    Some(ContainerState::found(state, restarts, status.ready, id, last))
}

fn exit(terminated: &ContainerStateTerminated) -> Exit {
    let time = |time: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
        time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
    };
    Exit {
        code: terminated.exit_code,
        reason: terminated.reason.clone().unwrap_or_default(),
        started: time(&terminated.started_at),
        finished: time(&terminated.finished_at),
        id: bare_id(terminated.container_id.as_deref()),
    }
}

fn bare_id(id: Option<&str>) -> String {
    id.unwrap_or_default().trim_start_matches("containerd://").to_owned()
}
