//! What will happen to a pod: read once from its object, its annotations and the delays of its node.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::{
    admission::{HostPort, host_ports},
    environment,
    fleet::{Delays, Span, parse_duration},
    names,
    resources::{self, Amounts},
    seed::Seed,
};

/// When ended containers start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Whatever the exit code.
    Always,
    /// After a failure.
    OnFailure,
    /// Not.
    Never,
}

/// What a container is in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container that keeps running.
    Sidecar,
    /// An ordinary container.
    App,
}

/// One container's future.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPlan {
    /// Name.
    pub name: String,
    /// Image as written.
    pub image: String,
    /// Role.
    pub role: Role,
    /// How long it runs; for ever if absent.
    pub run: Option<Duration>,
    /// How it ends by itself.
    pub exit_code: i32,
    /// Whether its environment must be put together before it starts.
    pub prepare: bool,
}

/// One pod's future.
#[derive(Clone, Debug, PartialEq)]
pub struct PodPlan {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// Init containers first, in order.
    pub containers: Vec<ContainerPlan>,
    /// Restart policy of the pod.
    pub restart: RestartPolicy,
    /// Image pull.
    pub pull: Duration,
    /// Sandbox and start.
    pub start: Duration,
    /// From started to ready.
    pub ready: Duration,
    /// From SIGTERM to the end.
    pub stop: Duration,
    /// Whether it uses the node's address.
    pub host_network: bool,
    /// Conditions that others must set before the pod is ready.
    pub readiness_gates: Vec<String>,
    /// `spec.activeDeadlineSeconds`.
    pub deadline: Option<Duration>,
    /// What it asks of the node.
    pub requests: Amounts,
    /// Host ports it takes.
    pub ports: BTreeSet<HostPort>,
}

impl PodPlan {
    /// Reads a pod; nothing if it has no name, uid or spec yet.
    pub fn of(pod: &Pod, delays: &Delays, seed: Seed) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let name = pod.metadata.name.clone()?;
        let namespace = pod.metadata.namespace.clone()?;
        let annotations = Annotations(pod.metadata.annotations.as_ref());
        let subject = format!("{namespace}/{name}");
        let draw = |what: &str, span: Span| span.draw(seed, &[what, &subject]);
        let restart = match spec.restart_policy.as_deref() {
            Some("Never") => RestartPolicy::Never,
            Some("OnFailure") => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        };
        let exit_code = annotations.code(names::EXIT_CODE);
        let run = match annotations.text(names::RUN_SECONDS) {
            Some("forever") => None,
            Some(text) if parse_duration(text).is_ok() => parse_duration(text).ok(),
            _ if restart != RestartPolicy::Always || exit_code.is_some() => Some(draw("run", delays.run)),
            _ => None,
        };
        let plan = |container: &Container, role: Role| ContainerPlan {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            role,
            prepare: !environment::is_plain(container),
            run: match role {
                Role::Init => Some(draw("init", delays.init)),
                Role::Sidecar => None,
                Role::App => run,
            },
            exit_code: match role {
                Role::Init => annotations.code(names::INIT_EXIT_CODE).unwrap_or(0),
                Role::Sidecar => 0,
                Role::App => exit_code.unwrap_or(0),
            },
        };
        let init = spec.init_containers.iter().flatten().map(|container| {
            plan(container, if resources::is_sidecar(container) { Role::Sidecar } else { Role::Init })
        });
        let containers = init.chain(spec.containers.iter().map(|container| plan(container, Role::App))).collect();
        let seconds = |key: &str, what: &str, span: Span| annotations.duration(key).unwrap_or_else(|| draw(what, span));
        Some(Self {
            uid: pod.metadata.uid.clone()?,
            generation: pod.metadata.generation.unwrap_or(1),
            containers,
            restart,
            pull: seconds(names::PULL_SECONDS, "pull", delays.pull),
            start: seconds(names::START_SECONDS, "start", delays.start),
            ready: seconds(names::READY_SECONDS, "ready", delays.ready),
            stop: seconds(names::STOP_SECONDS, "stop", delays.stop),
            host_network: spec.host_network.unwrap_or(false),
            readiness_gates: spec.readiness_gates.iter().flatten().map(|gate| gate.condition_type.clone()).collect(),
            deadline: spec
                .active_deadline_seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map(Duration::from_secs),
            requests: resources::pod_requests(spec),
            ports: host_ports(spec),
            namespace,
            name,
        })
    }
}

/// A pod's annotations; values that make no sense count as absent.
struct Annotations<'a>(Option<&'a BTreeMap<String, String>>);

impl<'a> Annotations<'a> {
    fn text(&self, key: &str) -> Option<&'a str> {
        self.0.and_then(|annotations| annotations.get(key)).map(|text| text.trim())
    }

    fn duration(&self, key: &str) -> Option<Duration> {
        parse_duration(self.text(key)?).ok()
    }

    fn code(&self, key: &str) -> Option<i32> {
        self.text(key)?.parse().ok()
    }
}
