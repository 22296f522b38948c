//! What the kubelet reports about a pod.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    machine::{Exit, PodMachine, Stage, State, Trouble},
    plan::Role,
};
use crate::{admission::Rejection, node::seconds};

/// Pod phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not all containers have started.
    Pending,
    /// At least one container runs or will run again.
    Running,
    /// All ended well.
    Succeeded,
    /// At least one ended badly, or the kubelet gave up on the pod.
    Failed,
}

impl Phase {
    /// The API's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

/// The status of a pod that the kubelet refused.
pub fn rejected(rejection: &Rejection, now: Timestamp) -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "False", "reason": "PodFailed", "lastTransitionTime": seconds(now)});
    json!({
        "phase": "Failed",
        "reason": rejection.reason,
        "message": format!("Pod was rejected: {}", rejection.message),
        "startTime": seconds(now),
        "conditions": [condition("Ready"), condition("ContainersReady")],
    })
}

impl PodMachine {
    /// The phase, by the kubelet's rules.
    pub fn phase(&self) -> Phase {
        let apps = || self.plan.containers.iter().zip(&self.containers).filter(|(plan, _)| plan.role == Role::App);
        if self.stage == Stage::Ended {
            let all_well =
                apps().all(|(_, container)| matches!(&container.state, State::Terminated(exit) if exit.code == 0));
            return if self.failure.is_none() && all_well { Phase::Succeeded } else { Phase::Failed };
        }
        let started = |container: &super::machine::ContainerState| {
            !matches!(container.state, State::Waiting { .. }) || container.last.is_some()
        };
        if apps().all(|(_, container)| started(container)) { Phase::Running } else { Phase::Pending }
    }

    /// Whether it was ready when it last reported.
    pub fn is_ready(&self) -> bool {
        self.conditions.get("Ready").is_some_and(|(ready, _)| *ready)
    }

    /// One line for the event log: phase, ready containers, restarts and what it waits for.
    pub fn summary(&self) -> String {
        let counted = || self.plan.containers.iter().zip(&self.containers).filter(|(plan, _)| plan.role != Role::Init);
        let ready = counted().filter(|(_, container)| container.ready).count();
        let restarts: u32 = self.containers.iter().map(|container| container.restarts).sum();
        let mut text = format!("{} {ready}/{}", self.phase().name(), counted().count());
        if restarts > 0 {
            text.push_str(" restarts=");
            text.push_str(&restarts.to_string());
        }
        let trouble = self.containers.iter().find_map(|container| match &container.state {
            State::Waiting { why } => why.as_ref(),
            _ => None,
        });
        if let Some(trouble) = trouble {
            text.push(' ');
            text.push_str(trouble.reason);
        }
        if matches!(self.stage, Stage::Stopping { .. }) {
            text.push_str(" Terminating");
        }
        if let Some((reason, _)) = self.failure {
            text.push(' ');
            text.push_str(reason);
        }
        text
    }

    /// The status to report. Absent reasons are sent as null, so that a strategic merge removes old ones.
    pub fn status(&mut self, now: Timestamp) -> Value {
        let phase = self.phase();
        let mut status = json!({
            "phase": phase.name(),
            "observedGeneration": self.plan.generation,
            "conditions": self.condition_list(phase, now),
            "hostIP": self.host_address,
            "hostIPs": [{"ip": self.host_address}],
            "startTime": seconds(self.accepted),
        });
        if self.sandbox || self.stage == Stage::Ended {
            status["podIP"] = json!(self.pod_address);
            status["podIPs"] = json!([{"ip": self.pod_address}]);
        }
        if let Some((reason, message)) = self.failure {
            status["reason"] = json!(reason);
            status["message"] = json!(message);
        }
        let list = |init: bool| -> Vec<Value> {
            let indices =
                (0..self.containers.len()).filter(|index| (self.plan.containers[*index].role != Role::App) == init);
            indices.map(|index| self.container_status(index)).collect()
        };
        let init = list(true);
        if !init.is_empty() {
            status["initContainerStatuses"] = init.into();
        }
        status["containerStatuses"] = list(false).into();
        status
    }

    fn container_status(&self, index: usize) -> Value {
        let plan = &self.plan.containers[index];
        let container = &self.containers[index];
        let has_init = self.plan.containers.iter().any(|container| container.role != Role::App);
        let state = match &container.state {
            State::Waiting { why: Some(Trouble { reason, message }) } => {
                json!({"waiting": {"reason": reason, "message": message}})
            }
            State::Waiting { why: None } if has_init => json!({"waiting": {"reason": "PodInitializing"}}),
            State::Waiting { why: None } => json!({"waiting": {"reason": "ContainerCreating"}}),
            State::Running { since } => json!({"running": {"startedAt": seconds(*since)}}),
            State::Terminated(exit) => json!({"terminated": terminated(exit)}),
        };
        let last_state = match &container.last {
            Some(exit) if container.state != State::Terminated(exit.clone()) => json!({"terminated": terminated(exit)}),
            _ => json!({}),
        };
        let ended_well = matches!(&container.state, State::Terminated(exit) if exit.code == 0);
        let mut status = json!({
            "name": plan.name,
            "image": plan.image,
            "imageID": "",
            "state": state,
            "lastState": last_state,
            // A finished init container counts as ready.
            "ready": container.ready || (plan.role == Role::Init && ended_well),
            "started": matches!(container.state, State::Running { .. }),
            "restartCount": container.restarts,
        });
        if !container.id.is_empty() {
            status["containerID"] = json!(format!("containerd://{}", container.id));
            let repository = plan.image.split('@').next().unwrap_or_default();
            let digest = self.seed.container_id(&["image digest", &plan.image]);
            status["imageID"] = json!(format!("{repository}@sha256:{digest}"));
        }
        status
    }

    fn condition_list(&mut self, phase: Phase, now: Timestamp) -> Value {
        let names = |keep: &dyn Fn(usize) -> bool| {
            let kept = (0..self.containers.len()).filter(|index| keep(*index));
            kept.map(|index| self.plan.containers[index].name.as_str()).collect::<Vec<_>>().join(" ")
        };
        let incomplete = names(&|index| match self.plan.containers[index].role {
            Role::Init => !matches!(&self.containers[index].state, State::Terminated(exit) if exit.code == 0),
            Role::Sidecar => !matches!(self.containers[index].state, State::Running { .. }),
            Role::App => false,
        });
        let unready = names(&|index| self.plan.containers[index].role != Role::Init && !self.containers[index].ready);
        let begun = self.plan.containers.iter().zip(&self.containers).any(|(plan, container)| {
            plan.role == Role::App && (container.last.is_some() || !matches!(container.state, State::Waiting { .. }))
        });
        let terminal = match phase {
            Phase::Succeeded => Some("PodCompleted"),
            Phase::Failed => Some("PodFailed"),
            _ => None,
        };
        let initialized = if phase == Phase::Succeeded {
            Condition::with_reason(true, "PodCompleted", String::new())
        } else if begun || incomplete.is_empty() {
            Condition::plain(true)
        } else {
            Condition::with_reason(
                false,
                "ContainersNotInitialized",
                format!("containers with incomplete status: [{incomplete}]"),
            )
        };
        let containers_ready = match terminal {
            Some(reason) => Condition::with_reason(false, reason, String::new()),
            None if unready.is_empty() => Condition::plain(true),
            None => Condition::with_reason(
                false,
                "ContainersNotReady",
                format!("containers with unready status: [{unready}]"),
            ),
        };
        let ready = if containers_ready.status { self.gate_condition() } else { containers_ready.clone() };
        let conditions = [
            ("PodReadyToStartContainers", Condition::plain(self.sandbox)),
            ("Initialized", initialized),
            ("Ready", ready),
            ("ContainersReady", containers_ready),
        ];
        let generation = self.plan.generation;
        conditions
            .into_iter()
            .map(|(kind, condition)| {
                let entry = self.conditions.entry(kind).or_insert((condition.status, now));
                if entry.0 != condition.status {
                    *entry = (condition.status, now);
                }
                condition.render(kind, entry.1, generation)
            })
            .collect()
    }

    fn gate_condition(&self) -> Condition {
        let problems: Vec<String> = self
            .plan
            .readiness_gates
            .iter()
            .filter_map(|gate| match self.gates.get(gate) {
                None => Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist.")),
                Some(false) => Some(format!("the status of pod readiness gate {gate:?} is not \"True\", but False")),
                Some(true) => None,
            })
            .collect();
        if problems.is_empty() {
            Condition::plain(true)
        } else {
            Condition::with_reason(false, "ReadinessGatesNotReady", problems.join(", "))
        }
    }
}

#[derive(Clone)]
struct Condition {
    status: bool,
    reason: &'static str,
    message: String,
}

impl Condition {
    fn plain(status: bool) -> Self {
        Self { status, reason: "", message: String::new() }
    }

    fn with_reason(status: bool, reason: &'static str, message: String) -> Self {
        Self { status, reason, message }
    }

    fn render(self, kind: &str, since: Timestamp, generation: i64) -> Value {
        let text = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
        let mut condition = Map::new();
        condition.insert("type".to_owned(), json!(kind));
        condition.insert("status".to_owned(), json!(if self.status { "True" } else { "False" }));
        condition.insert("reason".to_owned(), text(self.reason));
        condition.insert("message".to_owned(), text(&self.message));
        condition.insert("lastTransitionTime".to_owned(), json!(seconds(since)));
        condition.insert("observedGeneration".to_owned(), json!(generation));
        condition.into()
    }
}

fn terminated(exit: &Exit) -> Value {
    json!({
        "exitCode": exit.code,
        "reason": exit.reason,
        "startedAt": seconds(exit.started),
        "finishedAt": seconds(exit.finished),
        "containerID": format!("containerd://{}", exit.id),
    })
}
