//! What outlives a kubelet: the machine it runs on, and what the containers there were told.
//!
//! A kubelet that starts again reads its pods from the API, but neither does a machine that is off come up by that, nor do devices get
//! their old names back, nor is a running container told anything anew.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{
    Kubelets, Timer,
    state::{Life, NodeState, PodKey, Power},
};
use crate::{
    device::DeviceManager,
    environment::Environment,
    fleet::NodeSpec,
    node::{Readiness, Sizes},
};

/// The machines of a process whose kubelets ended.
#[derive(Default)]
pub(crate) struct Machines {
    machines: BTreeMap<String, Machine>,
    told: Told,
}

/// What running containers were told, by pod and its uid.
pub(super) type Told = BTreeMap<(PodKey, String), BTreeMap<String, Environment>>;

/// A machine.
struct Machine {
    spec: NodeSpec,
    power: Power,
    readiness: Readiness,
    /// With who holds them: the kubelet keeps a record of that on disk.
    devices: DeviceManager,
    boots: u32,
    booted: Option<Timestamp>,
    rebooting: Option<bool>,
    /// When it comes up again.
    up: Option<Timestamp>,
}

impl Machine {
    fn of(node: NodeState, up: Option<Timestamp>) -> Self {
        let NodeState { spec, power, readiness, devices, boots, booted, rebooting, .. } = node;
        Self { spec, power, readiness, devices, boots, booted, rebooting, up }
    }
}

impl Kubelets {
    /// The kubelets end, the machines stay.
    pub(super) fn leave(self) -> Machines {
        let mut boots: BTreeMap<usize, Timestamp> = BTreeMap::new();
        for std::cmp::Reverse((at, _, timer)) in self.timers {
            if let Timer::Boot(index, epoch) = timer
                && self.nodes[index].epoch == epoch
            {
                boots.insert(index, at);
            }
        }
        let nodes = self.nodes.into_iter().enumerate();
        let machines =
            nodes.map(|(index, node)| (node.spec.name.clone(), Machine::of(node, boots.get(&index).copied())));
        let mut environments = self.environments.lock();
        let told = self.pods.into_iter().filter(|(_, entry)| matches!(entry.life, Life::Running(_)));
        let told = told.filter_map(|(key, entry)| {
            let environments = environments.remove(&key)?;
            Some(((key, entry.uid), environments))
        });
        Machines { told: told.chain(self.told).collect(), machines: machines.collect() }
    }

    /// All pods are known: whatever others held while nobody looked is free.
    pub(super) fn forget_holders(&mut self) {
        let known = self.pods.values().map(|entry| entry.uid.as_str());
        let waiting = self.nodes.iter().flat_map(|node| node.backlog.values().flatten());
        let waiting: Vec<String> = waiting.filter_map(|pod| pod.metadata.uid.clone()).collect();
        let all: BTreeSet<&str> = known.chain(waiting.iter().map(String::as_str)).collect();
        for node in &mut self.nodes {
            node.devices.keep_only(&all);
        }
    }

    /// Kubelets start on machines that are there already.
    pub(super) fn arrive(&mut self, machines: Machines) {
        self.told = machines.told;
        for (name, machine) in machines.machines {
            let Some(&index) = self.by_name.get(&name) else { continue };
            let Machine { spec, power, readiness, devices, boots, booted, rebooting, up } = machine;
            self.off += usize::from(power != Power::On);
            let node = &mut self.nodes[index];
            node.sizes = Sizes::of(&spec, &devices.counts());
            (node.spec, node.power, node.readiness, node.devices) = (spec, power, readiness, devices);
            (node.boots, node.booted, node.rebooting) = (boots, booted, rebooting);
            let epoch = node.epoch;
            if let Some(up) = up {
                self.schedule(up, Timer::Boot(index, epoch));
            }
        }
    }
}
