//! What the kubelets remember of each node and pod.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Taint};
use serde_json::Value;

use super::containers::ContainerWork;
use crate::{
    admission::HostPort,
    device::DeviceManager,
    fleet::NodeSpec,
    node::{self, Readiness, Sizes},
    pod::{PodMachine, PodPlan},
    resources::{self, Amounts},
    seed::Seed,
};

/// Namespace and name of a pod.
pub(super) type PodKey = (String, String);

/// The key of a pod object.
pub(super) fn key_of(pod: &Pod) -> Option<PodKey> {
    Some((pod.metadata.namespace.clone()?, pod.metadata.name.clone()?))
}

/// Whether the machine is there and its kubelet runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Power {
    On,
    Stopped,
    /// Stopped, and its Node object was taken away with it.
    Vanished,
}

/// One node.
#[expect(clippy::struct_excessive_bools, reason = "four independent calls that may be under way")]
pub(super) struct NodeState {
    pub(super) spec: NodeSpec,
    pub(super) power: Power,
    pub(super) readiness: Readiness,
    pub(super) ready_since: Timestamp,
    pub(super) devices: DeviceManager,
    pub(super) sizes: Sizes,
    /// Labels and taints as the API has them.
    pub(super) labels: BTreeMap<String, String>,
    pub(super) taints: Vec<Taint>,
    /// Requests, number and host ports of the active pods.
    pub(super) used: Amounts,
    pub(super) active: usize,
    pub(super) ports: BTreeSet<HostPort>,
    /// Last octets of pod addresses in use.
    addresses: BTreeSet<u8>,
    /// Uid of the Node object while registered.
    pub(super) uid: Option<String>,
    pub(super) registering: bool,
    pub(super) registrations: u32,
    pub(super) timers_running: bool,
    /// Grows each time the kubelet goes off.
    pub(super) epoch: u32,
    pub(super) lease_busy: bool,
    pub(super) status_busy: bool,
    /// What the next status report must contain.
    pub(super) report: Report,
    pub(super) failures: u32,
    /// How often the machine was rebooted, and when last.
    pub(super) boots: u32,
    pub(super) booted: Option<Timestamp>,
    /// The machine is going through a reboot; whether its devices come back with other UUIDs.
    pub(super) rebooting: Option<bool>,
    /// What happened to pods while the kubelet was stopped; `None` = gone.
    pub(super) backlog: BTreeMap<PodKey, Option<Box<Pod>>>,
}

/// How much of the node status is out of date at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Report {
    Nothing,
    Conditions,
    Everything,
}

impl NodeState {
    pub(super) fn new(spec: NodeSpec, now: Timestamp) -> Self {
        let devices = DeviceManager::new(&spec);
        let taints = spec.taints.iter().map(|taint| Taint {
            key: taint.key.clone(),
            value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
            effect: taint.effect.clone(),
            time_added: None,
        });
        Self {
            sizes: Sizes::of(&spec, &devices.counts()),
            labels: node::labels(&spec),
            taints: taints.collect(),
            devices,
            spec,
            power: Power::On,
            readiness: Readiness::Ready,
            ready_since: now,
            used: Amounts::new(),
            active: 0,
            ports: BTreeSet::new(),
            addresses: BTreeSet::new(),
            uid: None,
            registering: false,
            registrations: 0,
            timers_running: false,
            epoch: 0,
            lease_busy: false,
            status_busy: false,
            report: Report::Nothing,
            failures: 0,
            boots: 0,
            booted: None,
            rebooting: None,
            backlog: BTreeMap::new(),
        }
    }

    /// The Node object as the kubelet reports it.
    pub(super) fn object(&self, index: usize, seed: Seed, now: Timestamp) -> Value {
        let mut object = node::object(&self.spec, index, &self.sizes, seed, self.readiness, now);
        if self.boots > 0 {
            object["status"]["nodeInfo"]["bootID"] = self.boot_id(seed).into();
        }
        object
    }

    /// The kernel's name for this run of the machine.
    pub(super) fn boot_id(&self, seed: Seed) -> String {
        seed.uuid(&["boot", &self.spec.name, &self.boots.to_string()])
    }

    pub(super) fn is_on(&self) -> bool {
        self.power == Power::On
    }

    /// Counts a pod in.
    pub(super) fn take(&mut self, plan: &PodPlan) {
        resources::add(&mut self.used, &plan.requests);
        self.active += 1;
        self.ports.extend(plan.ports.iter().cloned());
    }

    /// Counts a pod out and frees its devices.
    pub(super) fn give_back(&mut self, plan: &PodPlan) {
        resources::subtract(&mut self.used, &plan.requests);
        self.active = self.active.saturating_sub(1);
        for port in &plan.ports {
            self.ports.remove(port);
        }
        self.devices.release(&plan.uid);
    }

    /// A free last octet; when all are taken, one is shared, as nothing here routes packets.
    pub(super) fn take_address(&mut self) -> u8 {
        let octet = (2..=254).find(|octet| !self.addresses.contains(octet)).unwrap_or(254);
        self.addresses.insert(octet);
        octet
    }

    /// Marks the last octet of an address that a pod already has.
    pub(super) fn keep_address(&mut self, octet: u8) {
        self.addresses.insert(octet);
    }

    pub(super) fn free_address(&mut self, octet: u8) {
        self.addresses.remove(&octet);
    }
}

/// What was said, about which container, already.
pub(super) type EventKey = (Cow<'static, str>, String, Option<usize>);

/// One pod.
#[expect(clippy::struct_excessive_bools, reason = "four facts that have nothing to do with each other")]
pub(super) struct PodEntry {
    pub(super) uid: String,
    pub(super) node: usize,
    pub(super) life: Life,
    /// Fingerprint of the status the server is known to have.
    pub(super) reported: Option<u64>,
    /// Whether the server was ever told that the kubelet has it.
    pub(super) begun: bool,
    /// A write about this pod is under way.
    pub(super) busy: bool,
    pub(super) failures: u32,
    /// The earliest timer set for it.
    pub(super) timer: Option<Timestamp>,
    /// The last line noted about it.
    pub(super) summary: String,
    /// Whether it counts against the node.
    pub(super) counted: bool,
    pub(super) octet: Option<u8>,
    /// The kubelet's device record, to be written with the next status.
    pub(super) checkpoint: Option<String>,
    pub(super) removal_done: bool,
    /// Events already written: name and count.
    pub(super) events: BTreeMap<EventKey, (String, u32)>,
    /// The object as last seen, if a start of a container needs it.
    pub(super) object: Option<Box<Pod>>,
    pub(super) work: ContainerWork,
}

/// What the kubelet does with a pod.
pub(super) enum Life {
    Running(Box<PodMachine>),
    /// Refused; the status says why.
    Refused {
        status: Value,
    },
    /// Ended before this kubelet knew it; only its deletion is of interest.
    Over,
}

impl PodEntry {
    pub(super) fn new(uid: String, node: usize, life: Life) -> Self {
        Self {
            uid,
            node,
            life,
            reported: None,
            begun: false,
            busy: false,
            failures: 0,
            timer: None,
            summary: String::new(),
            counted: false,
            octet: None,
            checkpoint: None,
            removal_done: false,
            events: BTreeMap::new(),
            object: None,
            work: ContainerWork::default(),
        }
    }
}
