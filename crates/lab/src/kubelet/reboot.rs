//! Reboots: the machine goes down with everything on it and comes back, perhaps with devices of other names.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::{
    Kubelets, Timer,
    containers::ContainerWork,
    later,
    state::{Life, PodKey, Power},
};
use crate::{
    admission::Rejection,
    device::{AllocationError, DeviceManager, PodDevices},
    node::Sizes,
    pod::{Effect, rejected},
};

impl Kubelets {
    /// The machine goes down; programs die with it.
    pub(super) fn reboot(&mut self, index: usize, down: Duration, new_uuids: bool) {
        self.power_off(index, Power::Stopped);
        let node = &mut self.nodes[index];
        node.rebooting = Some(node.rebooting.unwrap_or(false) || new_uuids);
        let epoch = node.epoch;
        for entry in self.pods.values_mut().filter(|entry| entry.node == index) {
            entry.work = ContainerWork::default();
        }
        let up = later(self.clock.now(), down);
        self.schedule(up, Timer::Boot(index, epoch));
    }

    /// The machine comes up, unless something else has happened to it since.
    pub(super) fn boot(&mut self, index: usize, epoch: u32) {
        if self.nodes[index].epoch == epoch {
            self.power_on(index);
        }
    }

    /// What a kubelet finds after a reboot: other devices perhaps, and no containers.
    pub(super) fn after_reboot(&mut self, index: usize, new_uuids: bool) {
        let now = self.clock.now();
        let node = &mut self.nodes[index];
        node.boots += 1;
        node.booted = Some(now);
        let name = node.spec.name.clone();
        if new_uuids {
            let boots = node.boots.to_string();
            for (resource, devices) in &mut node.spec.shape.devices {
                for (number, device) in devices.iter_mut().enumerate() {
                    let fresh = self.seed.uuid(&["rebooted", &name, &boots, resource, &number.to_string()]);
                    let prefix = ["GPU-", "MIG-"].into_iter().find(|prefix| device.uuid.starts_with(prefix));
                    let old = std::mem::replace(&mut device.uuid, format!("{}{fresh}", prefix.unwrap_or_default()));
                    for name in [&mut device.id, &mut device.visible_as] {
                        if *name == old {
                            name.clone_from(&device.uuid);
                        }
                    }
                }
            }
        }
        let before = std::mem::replace(&mut node.devices, DeviceManager::new(&node.spec));
        node.sizes = Sizes::of(&node.spec, &node.devices.counts());
        let boot_id = node.boot_id(self.seed);
        self.recorder.note(now, format_args!("node {name}"), "rebooted");
        self.node_event(index, "Rebooted", &format!("Node {name} has been rebooted, boot id: {boot_id}"));
        let here: Vec<PodKey> =
            self.pods.iter().filter(|(_, entry)| entry.node == index).map(|(key, _)| key.clone()).collect();
        for key in here {
            let uid = self.pods.get(&key).map(|entry| entry.uid.clone()).unwrap_or_default();
            self.pod_after_reboot(&key, before.held_by(&uid).cloned().unwrap_or_default());
        }
        self.read_checkpoint(index, &before);
    }

    /// What pods have that a kubelet which started again while the machine was down knows only by name: its record on disk tells, before
    /// it admits anybody.
    fn read_checkpoint(&mut self, index: usize, before: &DeviceManager) {
        let node = &mut self.nodes[index];
        let is_new = |key: &PodKey, uid: &String| self.pods.get(key).is_none_or(|entry| entry.uid != *uid);
        let is_over = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Succeeded" | "Failed"))
        };
        let waiting = node.backlog.iter().filter_map(|(key, pod)| {
            let pod = pod.as_ref().filter(|pod| !is_over(pod))?;
            pod.metadata.uid.clone().filter(|uid| is_new(key, uid))
        });
        let held: Vec<(String, PodDevices)> =
            waiting.filter_map(|uid| before.held_by(&uid).cloned().map(|held| (uid, held))).collect();
        for (uid, held) in held {
            if node.devices.held_by(&uid).is_none() && node.devices.lacks(&held).is_none() {
                node.devices.restore(&uid, held);
            }
        }
    }

    /// A pod that was there before the reboot and had these devices.
    pub(super) fn pod_after_reboot(&mut self, key: &PodKey, held: PodDevices) {
        let now = self.clock.now();
        let Some(entry) = self.pods.get_mut(key) else { return };
        let Life::Running(machine) = &mut entry.life else { return };
        let node = &mut self.nodes[entry.node];
        let lost = node.devices.lacks(&held).map(str::to_owned);
        if lost.is_none() && !machine.is_ended() {
            node.devices.restore(&entry.uid, held);
        }
        let effects = machine.rebooted(now);
        let over = machine.is_ended();
        self.act(key, effects);
        if let (Some(resource), false) = (lost, over) {
            self.refuse_after_reboot(key, &AllocationError::Lost { resource }.into());
        }
    }

    /// The kubelet admits its pods anew, and this one cannot have back what it had.
    fn refuse_after_reboot(&mut self, key: &PodKey, rejection: &Rejection) {
        let now = self.clock.now();
        self.release(key);
        self.environments.lock().remove(key);
        let Some(entry) = self.pods.get_mut(key) else { return };
        let index = entry.node;
        let mut status = rejected(rejection, now);
        // The status of containers that are no more goes, too.
        for list in ["containerStatuses", "initContainerStatuses"] {
            status[list] = Value::Null;
        }
        let Life::Running(machine) = &entry.life else { return };
        let plan = machine.plan().clone();
        let life = if machine.is_deleting() { Life::Over } else { Life::Refused { status } };
        entry.life = life;
        entry.summary.clear();
        self.note(key, index, &format!("refused {}", rejection.reason));
        let event = Effect::Event {
            warning: true,
            reason: rejection.reason.clone().into(),
            message: rejection.message.clone(),
            container: None,
        };
        self.pod_event(key, &plan, event);
    }
}
