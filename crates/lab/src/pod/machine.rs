//! The state machine that follows a plan through time.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};

use super::plan::{ContainerPlan, PodPlan, RestartPolicy, Role};
use crate::seed::Seed;

/// The kubelet's first restart delay; the very first restart is immediate.
const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
const LONGEST_BACK_OFF: Duration = Duration::from_mins(5);
/// How often a container is tried whose environment lacks something.
const CONFIGURATION_RETRY: Duration = Duration::from_secs(2);
/// A container that ran this long starts with a clean slate.
const FORGIVEN_AFTER: SignedDuration = SignedDuration::from_secs(600);

/// Something the kubelet does besides reporting status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// An event about the pod or one of its containers.
    Event {
        /// Whether it is a warning.
        warning: bool,
        /// Reason, such as `Started`.
        reason: Cow<'static, str>,
        /// Message.
        message: String,
        /// Index of the container.
        container: Option<usize>,
    },
    /// A container is due, but its environment must be put together first: answer with [`PodMachine::prepared`] or
    /// [`PodMachine::refuse_start`].
    Prepare(usize),
    /// A container began; its log starts anew.
    Started(usize),
    /// A container that is run by a program is asked to end.
    Stop(usize),
    /// A container ended with this code.
    Exited(usize, i32),
    /// All containers ended for good; resources and devices are free.
    Released,
}

/// One pod on its way.
#[derive(Clone, Debug)]
pub struct PodMachine {
    pub(super) plan: PodPlan,
    pub(super) seed: Seed,
    pub(super) accepted: Timestamp,
    pub(super) stage: Stage,
    pub(super) containers: Vec<ContainerState>,
    pub(super) host_address: String,
    pub(super) pod_address: String,
    pub(super) sandbox: bool,
    /// Status and time of the last change, by condition type.
    pub(super) conditions: BTreeMap<&'static str, (bool, Timestamp)>,
    /// Conditions set by others that the pod waits for.
    pub(super) gates: BTreeMap<String, bool>,
    /// Why the kubelet failed the pod as a whole.
    pub(super) failure: Option<(&'static str, &'static str)>,
    pub(super) deleting: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Creating { until: Timestamp },
    Active,
    Stopping { until: Timestamp, forced: bool },
    Ended,
}

#[derive(Clone, Debug)]
pub(super) struct ContainerState {
    pub(super) state: State,
    pub(super) last: Option<Exit>,
    pub(super) restarts: u32,
    pub(super) ready: bool,
    pub(super) id: String,
    back_off: Duration,
    /// When a waiting container may start, or a running one ends by itself.
    pub(super) wake: Option<Timestamp>,
    pub(super) ready_at: Option<Timestamp>,
    preparation: Preparation,
    /// A program decides when it ends, not the plan.
    by_program: bool,
}

/// How far the start of a container has come that needs more than time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preparation {
    Needed,
    Asked,
    Done { by_program: bool },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not started yet, or not started again: nothing is said while that is the usual way of things.
    Waiting {
        why: Option<Trouble>,
    },
    Running {
        since: Timestamp,
    },
    Terminated(Exit),
}

/// Why a container waits longer than usual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    pub(super) code: i32,
    pub(super) reason: String,
    pub(super) started: Timestamp,
    pub(super) finished: Timestamp,
    pub(super) id: String,
}

impl ContainerState {
    pub(super) fn new() -> Self {
        Self {
            state: State::Waiting { why: None },
            last: None,
            restarts: 0,
            ready: false,
            id: String::new(),
            back_off: Duration::ZERO,
            wake: None,
            ready_at: None,
            preparation: Preparation::Needed,
            by_program: false,
        }
    }

    /// A container found running when the kubelet came back.
    pub(super) fn found(state: State, restarts: u32, ready: bool, id: String, last: Option<Exit>) -> Self {
        let back_off = if restarts > 0 { FIRST_BACK_OFF } else { Duration::ZERO };
        Self { state, last, restarts, ready, id, back_off, ..Self::new() }
    }

    fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Whatever was under way to start it is no more.
    pub(super) fn forget_start(&mut self) {
        self.preparation = Preparation::Needed;
        self.by_program = false;
        self.wake = None;
    }

    fn is_program(&self) -> bool {
        self.by_program && self.is_running()
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Terminated(_))
    }
}

pub(super) fn after(time: Timestamp, delay: Duration) -> Timestamp {
    time.saturating_add(SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX)).unwrap_or(Timestamp::MAX)
}

impl PodMachine {
    /// A pod that was just admitted.
    pub fn accept(
        plan: PodPlan,
        seed: Seed,
        host_address: String,
        pod_address: String,
        now: Timestamp,
    ) -> (Self, Vec<Effect>) {
        let until = after(now, plan.pull.saturating_add(plan.start));
        let effects = if plan.pull.is_zero() {
            Vec::new()
        } else {
            let pulling = |(index, container): (usize, &ContainerPlan)| Effect::Event {
                warning: false,
                reason: "Pulling".into(),
                message: format!("Pulling image {:?}", container.image),
                container: Some(index),
            };
            plan.containers.iter().enumerate().map(pulling).collect()
        };
        let machine = Self {
            containers: plan.containers.iter().map(|_| ContainerState::new()).collect(),
            pod_address: if plan.host_network { host_address.clone() } else { pod_address },
            plan,
            seed,
            accepted: now,
            stage: Stage::Creating { until },
            host_address,
            sandbox: false,
            conditions: BTreeMap::new(),
            gates: BTreeMap::new(),
            failure: None,
            deleting: false,
        };
        (machine, effects)
    }

    /// The plan it follows.
    pub fn plan(&self) -> &PodPlan {
        &self.plan
    }

    /// Whether all containers have ended for good.
    pub fn is_ended(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// Whether the API object can go: deletion was asked for and nothing runs.
    pub fn is_removable(&self) -> bool {
        self.deleting && self.is_ended()
    }

    /// The address it was given.
    pub fn pod_address(&self) -> &str {
        &self.pod_address
    }

    /// Takes note of conditions that others set.
    pub fn set_gates(&mut self, conditions: impl Iterator<Item = (String, bool)>) {
        let gates = &self.plan.readiness_gates;
        self.gates = conditions.filter(|(kind, _)| gates.contains(kind)).collect();
    }

    /// Deletion with a grace period was asked for, perhaps again: time can only get shorter.
    pub fn delete(&mut self, grace: Duration, now: Timestamp) -> Vec<Effect> {
        self.deleting = true;
        // A program ends when it likes within the grace period.
        let by_program = self.containers.iter().any(ContainerState::is_program);
        let forced = by_program || self.plan.stop > grace;
        let until = after(now, if by_program { grace } else { self.plan.stop.min(grace) });
        match self.stage {
            Stage::Ended => Vec::new(),
            Stage::Creating { .. } => {
                self.stage = Stage::Ended;
                vec![Effect::Released]
            }
            Stage::Active => {
                self.stage = Stage::Stopping { until, forced };
                self.killing()
            }
            Stage::Stopping { until: before, .. } => {
                if until < before {
                    self.stage = Stage::Stopping { until, forced };
                }
                Vec::new()
            }
        }
    }

    /// Moves as far as the time allows.
    pub fn step(&mut self, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        // Every pass either starts, ends or readies a container or changes the stage. A container with a zero run time is
        // bounded by its back-off, so this ends; the limit is a belt to those braces.
        for _ in 0..10_000 {
            let moved = match self.stage {
                Stage::Creating { until } if now >= until => {
                    self.sandbox = true;
                    self.stage = Stage::Active;
                    true
                }
                Stage::Active => self.advance(now, &mut effects),
                Stage::Stopping { until, forced } if now >= until => {
                    let (code, reason) = if forced { (137, "Error") } else { (143, "Error") };
                    self.end_all(code, reason, now, &mut effects);
                    true
                }
                _ => false,
            };
            if !moved {
                break;
            }
        }
        effects
    }

    /// When to call `step` next.
    pub fn wake(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Creating { until } | Stage::Stopping { until, .. } => Some(until),
            Stage::Ended => None,
            Stage::Active => {
                let deadline = self.plan.deadline.map(|deadline| after(self.accepted, deadline));
                let containers = self.containers.iter().filter(|container| !container.is_done());
                containers.flat_map(|container| [container.wake, container.ready_at]).chain([deadline]).flatten().min()
            }
        }
    }

    /// The address of its node.
    pub fn host_address(&self) -> &str {
        &self.host_address
    }

    /// Whether containers may start: the sandbox is there and nobody has asked the pod to end.
    pub fn is_active(&self) -> bool {
        self.stage == Stage::Active
    }

    /// Whether a container runs now.
    pub fn is_running(&self, index: usize) -> bool {
        self.containers.get(index).is_some_and(ContainerState::is_running)
    }

    /// The environment of a container is complete: it starts with the next step, or, if it was found running, goes on.
    pub fn prepared(&mut self, index: usize, by_program: bool) {
        let Some(container) = self.containers.get_mut(index) else { return };
        if container.is_running() {
            container.by_program = by_program;
            if by_program {
                container.wake = None;
            }
        } else {
            container.preparation = Preparation::Done { by_program };
        }
    }

    /// Nobody can prepare the container at the moment; the next step asks again.
    pub fn prepare_again(&mut self, index: usize) {
        if let Some(container) = self.containers.get_mut(index) {
            container.preparation = Preparation::Needed;
        }
    }

    /// A container cannot be started, for instance because its environment cannot be put together: it waits and is tried again.
    pub fn refuse_start(&mut self, index: usize, reason: &'static str, message: String, now: Timestamp) -> Vec<Effect> {
        let Some(container) = self.containers.get_mut(index).filter(|container| !container.is_running()) else {
            return Vec::new();
        };
        let event = Effect::Event {
            warning: true,
            reason: "Failed".into(),
            message: format!("Error: {message}"),
            container: Some(index),
        };
        container.preparation = Preparation::Needed;
        container.wake = Some(after(now, CONFIGURATION_RETRY));
        container.state = State::Waiting { why: Some(Trouble { reason, message }) };
        vec![event]
    }

    /// The program of a container has ended.
    pub fn exited(&mut self, index: usize, code: i32, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !self.containers.get(index).is_some_and(ContainerState::is_program) {
            return effects;
        }
        if matches!(self.stage, Stage::Stopping { .. }) {
            let reason = if code == 0 { "Completed" } else { "Error" };
            self.terminate(index, code, reason, now, &mut effects);
            if !self.containers.iter().any(ContainerState::is_program) {
                self.stage = Stage::Stopping { until: now, forced: false };
            }
        } else {
            self.exit(index, code, now, &mut effects);
        }
        effects
    }

    fn killing(&self) -> Vec<Effect> {
        let running = self.containers.iter().enumerate().filter(|(_, container)| container.is_running());
        running
            .flat_map(|(index, container)| {
                let event = Effect::Event {
                    warning: false,
                    reason: "Killing".into(),
                    message: format!("Stopping container {}", self.plan.containers[index].name),
                    container: Some(index),
                };
                [Some(event), container.by_program.then_some(Effect::Stop(index))]
            })
            .flatten()
            .collect()
    }

    /// One move of an active pod; false if it must wait.
    fn advance(&mut self, now: Timestamp, effects: &mut Vec<Effect>) -> bool {
        if self.plan.deadline.is_some_and(|deadline| now >= after(self.accepted, deadline)) {
            self.failure = Some(("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"));
            effects.push(Effect::Event {
                warning: false,
                reason: "DeadlineExceeded".into(),
                message: "Pod was active on the node longer than the specified deadline".to_owned(),
                container: None,
            });
            self.stage = Stage::Stopping { until: after(now, self.plan.stop), forced: false };
            effects.extend(self.killing());
            return true;
        }
        for index in 0..self.containers.len() {
            match self.advance_container(index, now, effects) {
                Move::Made => return true,
                Move::Blocks => return false,
                Move::None => {}
            }
        }
        let mut apps = self.plan.containers.iter().zip(&self.containers).filter(|(plan, _)| plan.role == Role::App);
        if apps.all(|(_, container)| container.is_done()) {
            self.end_all(0, "Completed", now, effects);
            return true;
        }
        false
    }

    fn advance_container(&mut self, index: usize, now: Timestamp, effects: &mut Vec<Effect>) -> Move {
        let role = self.plan.containers[index].role;
        let container = &mut self.containers[index];
        let due = container.wake.is_none_or(|wake| now >= wake);
        match &container.state {
            State::Waiting { .. } if due && self.plan.containers[index].prepare => match container.preparation {
                Preparation::Needed => {
                    container.preparation = Preparation::Asked;
                    container.wake = None;
                    effects.push(Effect::Prepare(index));
                    Move::Made
                }
                Preparation::Asked if role == Role::App || container.last.is_some() => Move::None,
                Preparation::Asked => Move::Blocks,
                Preparation::Done { .. } => {
                    self.start(index, now, effects);
                    Move::Made
                }
            },
            State::Waiting { .. } if due => {
                self.start(index, now, effects);
                Move::Made
            }
            State::Running { .. } if container.wake.is_some_and(|wake| now >= wake) => {
                self.exit(index, self.plan.containers[index].exit_code, now, effects);
                Move::Made
            }
            State::Running { .. } if container.ready_at.is_some_and(|ready_at| now >= ready_at) => {
                container.ready_at = None;
                container.ready = true;
                Move::Made
            }
            State::Waiting { .. } | State::Running { .. } if role == Role::Init => Move::Blocks,
            _ => Move::None,
        }
    }

    fn start(&mut self, index: usize, now: Timestamp, effects: &mut Vec<Effect>) {
        let plan = &self.plan.containers[index];
        let container = &mut self.containers[index];
        if container.last.is_some() {
            container.restarts += 1;
        }
        let subject = format!("{}/{}", self.plan.namespace, self.plan.name);
        container.id = self.seed.container_id(&["container", &subject, &plan.name, &container.restarts.to_string()]);
        container.state = State::Running { since: now };
        container.by_program = container.preparation == Preparation::Done { by_program: true };
        container.preparation = Preparation::Needed;
        container.wake = plan.run.filter(|_| !container.by_program).map(|run| after(now, run));
        let ready_now = plan.role != Role::App || self.plan.ready.is_zero();
        container.ready = plan.role != Role::Init && ready_now;
        container.ready_at = (!ready_now).then(|| after(now, self.plan.ready));
        let event = |reason: &'static str, message| Effect::Event {
            warning: false,
            reason: reason.into(),
            message,
            container: Some(index),
        };
        if self.plan.pull.is_zero() || container.restarts > 0 {
            effects.push(event("Pulled", format!("Container image {:?} already present on machine", plan.image)));
        } else {
            let took = format!("{:?}", self.plan.pull);
            effects.push(event(
                "Pulled",
                format!(
                    "Successfully pulled image {:?} in {took} ({took} including waiting). Image size: {} bytes.",
                    plan.image,
                    50_000_000 + self.seed.hash(&["image", &plan.image]) % 5_000_000_000
                ),
            ));
        }
        effects.push(event("Created", format!("Created container: {}", plan.name)));
        effects.push(event("Started", format!("Started container {}", plan.name)));
        effects.push(Effect::Started(index));
    }

    /// A container ends by itself; it may start again.
    fn exit(&mut self, index: usize, code: i32, now: Timestamp, effects: &mut Vec<Effect>) {
        let plan = &self.plan.containers[index];
        let again = match (plan.role, self.plan.restart) {
            (Role::Sidecar, _) | (Role::App, RestartPolicy::Always) => true,
            (Role::Init, RestartPolicy::Always) | (_, RestartPolicy::OnFailure) => code != 0,
            (_, RestartPolicy::Never) => false,
        };
        let ran = self.terminate(index, code, if code == 0 { "Completed" } else { "Error" }, now, effects);
        if again {
            let container = &mut self.containers[index];
            let State::Terminated(exit) = &container.state else { return };
            container.last = Some(exit.clone());
            let delay = if ran >= FORGIVEN_AFTER { Duration::ZERO } else { container.back_off };
            container.back_off = (delay * 2).clamp(FIRST_BACK_OFF, LONGEST_BACK_OFF);
            container.wake = Some(after(now, delay));
            container.state = State::Waiting { why: None };
            if !delay.is_zero() {
                let PodPlan { namespace, name, uid, .. } = &self.plan;
                let pod = format!("{name}_{namespace}({uid})");
                let text = back_off_text(delay);
                let container_name = &self.plan.containers[index].name;
                let message = format!("back-off {text} restarting failed container={container_name} pod={pod}");
                container.state = State::Waiting { why: Some(Trouble { reason: "CrashLoopBackOff", message }) };
                effects.push(Effect::Event {
                    warning: true,
                    reason: "BackOff".into(),
                    message: format!("Back-off restarting failed container {container_name} in pod {pod}"),
                    container: Some(index),
                });
            }
        } else if self.plan.containers[index].role == Role::Init && code != 0 {
            self.end_all(0, "Completed", now, effects);
        }
    }

    /// Ends whatever still runs; the pod is over.
    pub(super) fn end_all(&mut self, code: i32, reason: &str, now: Timestamp, effects: &mut Vec<Effect>) {
        for index in 0..self.containers.len() {
            if self.containers[index].is_running() {
                self.terminate(index, code, reason, now, effects);
            } else if let (State::Waiting { .. }, Some(exit)) =
                (&self.containers[index].state, self.containers[index].last.clone())
            {
                self.containers[index].state = State::Terminated(exit);
            }
        }
        self.stage = Stage::Ended;
        self.sandbox = false;
        effects.push(Effect::Released);
    }

    /// Marks a running container as ended; returns how long it ran.
    pub(super) fn terminate(
        &mut self,
        index: usize,
        code: i32,
        reason: &str,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) -> SignedDuration {
        let container = &mut self.containers[index];
        let State::Running { since } = container.state else { return SignedDuration::ZERO };
        let reason = reason.to_owned();
        let id = container.id.clone();
        container.state = State::Terminated(Exit { code, reason, started: since, finished: now, id });
        container.ready = false;
        container.wake = None;
        container.ready_at = None;
        effects.push(Effect::Exited(index, code));
        now.duration_since(since)
    }
}

enum Move {
    Made,
    Blocks,
    None,
}

/// Go's way to print the few delays there are.
fn back_off_text(delay: Duration) -> String {
    match (delay.as_secs() / 60, delay.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}
