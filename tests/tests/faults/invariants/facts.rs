//! The cluster as it is, in the few words that the checks need.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod};
use kai_api::{
    BindRequest, PodGroup, Queue,
    names::{annotations, labels, namespaces, node_labels, objects, resources},
};
use kube::{Api, ResourceExt as _, api::ListParams};

use crate::world::World;

/// What a pod asks of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// So many whole ones; none is possible.
    Whole(u64),
    /// Millionths of each of so many.
    Fraction(u64, u64),
    /// MiB of each of so many.
    Memory(u64, u64),
}

impl Ask {
    /// How many devices.
    pub fn devices(self) -> u64 {
        match self {
            Self::Whole(count) | Self::Fraction(_, count) | Self::Memory(_, count) => count,
        }
    }

    /// Millionths of MiB of each device on a node whose devices have so many MiB.
    pub fn of_each(self, memory: u64) -> u64 {
        match self {
            Self::Whole(_) => memory * 1_000_000,
            Self::Fraction(millionths, _) => millionths * memory,
            Self::Memory(mebibytes, _) => mebibytes * 1_000_000,
        }
    }
}

/// How far a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not bound.
    Waits,
    /// Bound, and its containers do not run yet.
    Starts,
    /// Runs and is ready.
    Runs,
    /// Has ended or is about to.
    Ends,
}

/// A pod of ours.
#[derive(Clone, Debug)]
pub struct PodFacts {
    pub name: String,
    pub uid: String,
    pub state: State,
    pub node: Option<String>,
    pub ask: Ask,
    /// The GPU groups that its labels name.
    pub groups: BTreeSet<String>,
    /// Its PodGroup.
    pub group: Option<String>,
    pub queue: Option<String>,
    /// What its container sees as `NVIDIA_VISIBLE_DEVICES`.
    pub told: Option<String>,
    pub annotations: BTreeMap<String, String>,
    /// Messages of conditions that say no, by type.
    pub refusals: BTreeMap<String, String>,
    pub deleting: bool,
    pub phase: String,
    /// What its containers wait for.
    pub waiting: Vec<String>,
}

impl PodFacts {
    /// Whether it uses what it asked for.
    pub fn holds(&self) -> bool {
        matches!(self.state, State::Starts | State::Runs)
    }
}

/// A reservation pod.
#[derive(Clone, Debug)]
pub struct ReservationFacts {
    pub name: String,
    pub node: Option<String>,
    pub group: String,
    pub device: Option<String>,
    /// What the kubelet gave it.
    pub given: Vec<String>,
    pub phase: String,
    pub deleting: bool,
}

/// A node.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// Whether pods can be put there.
    pub open: bool,
    /// Whether its kubelet answers.
    pub ready: bool,
    pub tegra: bool,
    /// MiB of each device.
    pub memory: u64,
    /// Physical devices that are well.
    pub devices: u64,
    /// How often each is offered.
    pub replicas: u64,
}

/// Everything.
pub struct Facts {
    pub now: Timestamp,
    pub pods: Vec<PodFacts>,
    pub reservations: Vec<ReservationFacts>,
    pub nodes: BTreeMap<String, NodeFacts>,
    pub requests: Vec<BindRequest>,
    pub maps: Vec<ConfigMap>,
    pub groups: BTreeMap<String, PodGroup>,
    pub queues: BTreeMap<String, Queue>,
    pub events: Vec<Event>,
}

impl Facts {
    /// Asks the API server, and the kubelets what containers were told.
    pub async fn gather(world: &World) -> Result<Self> {
        let client = &world.client;
        let everything = ListParams::default();
        let all: Vec<Pod> = Api::<Pod>::all(client.clone()).list(&everything).await?.items;
        let (reservations, pods): (Vec<Pod>, Vec<Pod>) =
            all.into_iter().partition(|pod| pod.namespace().as_deref() == Some(namespaces::RESERVATION));
        let nodes = Api::<Node>::all(client.clone()).list(&everything).await?.items;
        let groups = Api::<PodGroup>::all(client.clone()).list(&everything).await?.items;
        let queues = Api::<Queue>::all(client.clone()).list(&everything).await?.items;
        let ours =
            |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref()) == Some(objects::SCHEDULER);
        Ok(Self {
            now: world.lab.clock().now(),
            pods: pods.iter().filter(ours).map(|pod| pod_facts(world, pod)).collect(),
            reservations: reservations.iter().map(|pod| reservation_facts(world, pod)).collect(),
            nodes: nodes.iter().map(|node| (node.name_any(), node_facts(node))).collect(),
            requests: Api::<BindRequest>::all(client.clone()).list(&everything).await?.items,
            maps: Api::<ConfigMap>::all(client.clone()).list(&everything).await?.items,
            groups: groups.into_iter().map(|group| (group.name_any(), group)).collect(),
            queues: queues.into_iter().map(|queue| (queue.name_any(), queue)).collect(),
            events: Api::<Event>::all(client.clone()).list(&everything).await?.items,
        })
    }

    /// How many pods are in a state.
    pub fn count(&self, state: State) -> usize {
        self.pods.iter().filter(|pod| pod.state == state).count()
    }

    /// Messages of events about an object, oldest first.
    pub fn events_about(&self, name: &str) -> Vec<&str> {
        let about = self.events.iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
        about.filter_map(|event| event.message.as_deref()).collect()
    }

    /// For people who look at a failure.
    pub fn shown(&self) -> String {
        let mut text = String::new();
        for (name, node) in &self.nodes {
            let _ = writeln!(text, "  node {name}: {node:?}");
        }
        for pod in &self.pods {
            let PodFacts { name, state, node, ask, groups, told, refusals, phase, waiting, group, .. } = pod;
            let _ = writeln!(
                text,
                "  pod {name}: {state:?} ({phase}{}) on {node:?}, asks {ask:?}, of {group:?}, shares {groups:?}, told {told:?}, {refusals:?} {waiting:?}, says {:?}",
                if pod.deleting { ", deleting" } else { "" },
                pod.annotations.get(annotations::GPU_DEVICES),
            );
        }
        for map in &self.maps {
            let told = map.data.as_ref().and_then(|data| data.get("NVIDIA_VISIBLE_DEVICES"));
            if let Some(told) = told {
                let _ = writeln!(text, "  map {} tells {told}", map.name_any());
            }
        }
        for reservation in &self.reservations {
            let _ = writeln!(text, "  {reservation:?}");
        }
        for request in &self.requests {
            let (spec, status) = (&request.spec, request.status.clone().unwrap_or_default());
            let _ = writeln!(
                text,
                "  request {} to {:?} {:?}: {:?} {:?} {:?} {:?}",
                request.name_any(),
                spec.selected_node,
                spec.selected_gpu_groups,
                status.phase,
                status.step,
                status.reason,
                status.next_retry
            );
        }
        for event in self.events.iter().filter(|event| event.type_.as_deref() == Some("Warning")) {
            let _ = writeln!(text, "  event {:?} {:?}: {:?}", event.involved_object.name, event.reason, event.message);
        }
        text
    }
}

/// Millionths from a decimal such as `0.25`.
pub fn millionths(text: &str) -> u64 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = part.chars().chain(std::iter::repeat('0')).take(6).collect();
    whole.parse::<u64>().unwrap_or(0) * 1_000_000 + digits.parse::<u64>().unwrap_or(0)
}

fn ask(pod: &Pod) -> Ask {
    let annotations = pod.annotations();
    let count = annotations.get(annotations::GPU_FRACTION_DEVICES).and_then(|text| text.parse().ok()).unwrap_or(1);
    if let Some(fraction) = annotations.get(annotations::GPU_FRACTION) {
        return Ask::Fraction(millionths(fraction), count);
    }
    if let Some(memory) = annotations.get(annotations::GPU_MEMORY) {
        return Ask::Memory(memory.parse().unwrap_or(0), count);
    }
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let limits =
        containers.filter_map(|container| container.resources.as_ref()?.limits.as_ref()?.get(resources::NVIDIA_GPU));
    Ask::Whole(limits.filter_map(|quantity| quantity.0.parse::<u64>().ok()).sum())
}

fn state(pod: &Pod) -> State {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is = |kind: &str| conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True");
    if matches!(phase, "Succeeded" | "Failed") || pod.metadata.deletion_timestamp.is_some() {
        return State::Ends;
    }
    match pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
        None => State::Waits,
        Some(_) if phase == "Running" && is("Ready") => State::Runs,
        Some(_) => State::Starts,
    }
}

fn pod_facts(world: &World, pod: &Pod) -> PodFacts {
    let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
    let spec = pod.spec.clone().unwrap_or_default();
    let status = pod.status.clone().unwrap_or_default();
    let container = spec.containers.first().map(|container| container.name.clone()).unwrap_or_default();
    let told = world.lab.environment_of(&namespace, &name, &container);
    let groups = pod.labels().iter().filter_map(|(key, value)| {
        let plain = key == labels::GPU_GROUP;
        plain.then(|| value.clone()).or_else(|| key.strip_prefix(labels::GPU_GROUP_PREFIX).map(str::to_owned))
    });
    let refusals = status.conditions.iter().flatten().filter(|condition| condition.status == "False");
    let refusals = refusals.map(|condition| (condition.type_.clone(), condition.message.clone().unwrap_or_default()));
    let waiting = status.container_statuses.iter().flatten().filter_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        Some(format!("{}: {}", waiting.reason.clone().unwrap_or_default(), waiting.message.clone().unwrap_or_default()))
    });
    PodFacts {
        state: state(pod),
        node: spec.node_name.filter(|node| !node.is_empty()),
        ask: ask(pod),
        groups: groups.collect(),
        group: pod.annotations().get(annotations::POD_GROUP).cloned(),
        queue: pod.labels().get(labels::QUEUE).cloned(),
        told: told.and_then(|told| told.get("NVIDIA_VISIBLE_DEVICES").cloned()),
        annotations: pod.annotations().clone(),
        refusals: refusals.collect(),
        deleting: pod.metadata.deletion_timestamp.is_some(),
        phase: status.phase.unwrap_or_default(),
        waiting: waiting.collect(),
        uid: pod.uid().unwrap_or_default(),
        name,
    }
}

fn reservation_facts(world: &World, pod: &Pod) -> ReservationFacts {
    let given = world.lab.devices_of(namespaces::RESERVATION, &pod.name_any());
    let given = given.into_values().flat_map(|resources| resources.into_values().flatten());
    ReservationFacts {
        name: pod.name_any(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        group: pod.labels().get(labels::GPU_GROUP).cloned().unwrap_or_default(),
        device: pod.annotations().get(annotations::RESERVED_GPU).cloned(),
        given: given.collect(),
        phase: pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default(),
        deleting: pod.metadata.deletion_timestamp.is_some(),
    }
}

fn node_facts(node: &Node) -> NodeFacts {
    let spec = node.spec.clone().unwrap_or_default();
    let status = node.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let closed = spec.unschedulable == Some(true)
        || spec.taints.iter().flatten().any(|taint| taint.effect != "PreferNoSchedule");
    let number = |label: &str| node.labels().get(label).and_then(|text| text.parse::<u64>().ok());
    let offered = status.allocatable.iter().flatten().find(|(name, _)| *name == resources::NVIDIA_GPU);
    let offered = offered.and_then(|(_, quantity)| quantity.0.parse::<u64>().ok()).unwrap_or(0);
    let replicas = number(node_labels::GPU_REPLICAS).unwrap_or(1).max(1);
    NodeFacts {
        open: ready && !closed,
        ready,
        tegra: status.node_info.is_some_and(|info| info.kernel_version.ends_with("-tegra")),
        memory: number(node_labels::GPU_MEMORY).unwrap_or(0),
        devices: offered / replicas,
        replicas,
    }
}
