//! Pods: admission, their machines, their statuses and their removal.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use bytes::Bytes;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Value, json};

use super::{
    Kubelets, Timer, later, retry_delay,
    state::{Life, PodEntry, PodKey, key_of},
    writes::{Failure, Purpose},
};
use crate::{
    admission::{self, NodeView, Rejection},
    device::PodDevices,
    names::{self, KUBELET},
    node,
    pod::{Effect, PodMachine, PodPlan, rejected},
};

impl Kubelets {
    /// A pod was bound to one of our nodes, or changed.
    pub(super) fn on_pod(&mut self, pod: Pod) {
        let Some(key) = key_of(&pod) else { return };
        let node_name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        let Some(&index) = node_name.and_then(|name| self.by_name.get(name)) else { return };
        if !self.nodes[index].is_on() {
            self.nodes[index].backlog.insert(key, Some(Box::new(pod)));
            return;
        }
        let known = self.pods.get(&key).map(|entry| Some(&entry.uid) == pod.metadata.uid.as_ref());
        if known != Some(true) {
            // An older pod of this name is no more, whatever its kubelet knows.
            self.forget_backlog(&key);
            self.drop_pod(&key);
        }
        if known != Some(true) && !self.take_in(&key, index, &pod) {
            return;
        }
        self.observe(&key, &pod);
        self.settle(&key);
    }

    /// A pod object is gone: whatever it held is free.
    pub(super) fn on_pod_gone(&mut self, key: &PodKey) {
        let Some(entry) = self.pods.get(key) else {
            // Known at most to a kubelet that is off: then it never has to know.
            self.forget_backlog(key);
            return;
        };
        let node = &mut self.nodes[entry.node];
        if node.is_on() {
            self.drop_pod(key);
        } else {
            node.backlog.insert(key.clone(), None);
        }
    }

    fn forget_backlog(&mut self, key: &PodKey) {
        if self.off > 0 {
            for node in &mut self.nodes {
                node.backlog.remove(key);
            }
        }
    }

    fn drop_pod(&mut self, key: &PodKey) {
        self.release(key);
        self.environments.lock().remove(key);
        let Some(entry) = self.pods.remove(key) else { return };
        let node = &mut self.nodes[entry.node];
        if let Some(octet) = entry.octet {
            node.free_address(octet);
        }
        self.logs.remove_pod(&node.spec.name, &key.0, &key.1);
        self.note(key, entry.node, "gone");
    }

    /// Time has come for a pod.
    pub(super) fn on_pod_timer(&mut self, key: &PodKey) {
        if let Some(entry) = self.pods.get_mut(key) {
            entry.timer = None;
            if self.nodes[entry.node].is_on() {
                self.settle(key);
            }
        }
    }

    /// Makes an entry for a new pod. False if there is nothing to do for it.
    fn take_in(&mut self, key: &PodKey, index: usize, pod: &Pod) -> bool {
        let node = &self.nodes[index];
        let Some(mut plan) = PodPlan::of(pod, &node.spec.delays, self.seed) else { return false };
        if self.programs.is_some() {
            // Any container may have a program.
            plan.containers.iter_mut().for_each(|container| container.prepare = true);
        }
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
        if matches!(phase, "Succeeded" | "Failed") {
            // A finished pod concerns the kubelet only when it is to be deleted.
            let deleting = pod.metadata.deletion_timestamp.is_some();
            if deleting {
                self.pods.insert(key.clone(), PodEntry::new(plan.uid, index, Life::Over));
            }
            return deleting;
        }
        let containers: Vec<String> = plan.containers.iter().map(|container| container.name.clone()).collect();
        self.logs.add_pod(&node.spec.name, &key.0, &key.1, containers.iter().map(String::as_str));
        if status.is_some_and(has_started) {
            self.take_over(key, index, pod, plan);
            self.reattach(key, pod);
        } else if let Err(rejection) = self.admit(&plan, index, pod) {
            self.refuse(key, index, &plan, &rejection);
        } else {
            self.accept(key, index, plan);
        }
        true
    }

    fn admit(&mut self, plan: &PodPlan, index: usize, pod: &Pod) -> Result<(), Rejection> {
        let Some(spec) = &pod.spec else { return Ok(()) };
        let node = &mut self.nodes[index];
        let view = NodeView {
            name: &node.spec.name,
            labels: &node.labels,
            taints: &node.taints,
            allocatable: &node.sizes.amounts,
            used: &node.used,
            pods: node.active,
            ports: &node.ports,
        };
        admission::admit(&plan.uid, spec, &view, &mut node.devices)?;
        node.take(plan);
        Ok(())
    }

    fn accept(&mut self, key: &PodKey, index: usize, plan: PodPlan) {
        let octet = self.nodes[index].take_address();
        let host = node::address(index).to_string();
        let address = node::pod_address(index, octet).to_string();
        let uid = plan.uid.clone();
        let (machine, effects) = PodMachine::accept(plan, self.seed, host, address, self.clock.now());
        let mut entry = PodEntry::new(uid, index, Life::Running(Box::new(machine)));
        entry.octet = Some(octet);
        entry.counted = true;
        self.pods.insert(key.clone(), entry);
        self.publish_devices(key, index);
        self.act(key, effects);
    }

    fn refuse(&mut self, key: &PodKey, index: usize, plan: &PodPlan, rejection: &Rejection) {
        let status = rejected(rejection, self.clock.now());
        self.pods.insert(key.clone(), PodEntry::new(plan.uid.clone(), index, Life::Refused { status }));
        self.note(key, index, &format!("refused {}", rejection.reason));
        let event = Effect::Event {
            warning: true,
            reason: rejection.reason.clone().into(),
            message: rejection.message.clone(),
            container: None,
        };
        self.pod_event(key, plan, event);
    }

    /// Picks up a pod that ran before this kubelet started; its devices are in its checkpoint.
    fn take_over(&mut self, key: &PodKey, index: usize, pod: &Pod, plan: PodPlan) {
        let node = &mut self.nodes[index];
        let annotations = pod.metadata.annotations.as_ref();
        let record = annotations.and_then(|annotations| annotations.get(names::DEVICES));
        let record = record.and_then(|text| serde_json::from_str::<PodDevices>(text).ok());
        if record.is_none()
            && let Some(Err(error)) = pod.spec.as_ref().map(|spec| node.devices.allocate(&plan.uid, spec))
        {
            tracing::warn!(pod = key.1, %error, "a running pod has no record of its devices and none are free");
        }
        let held = record.or_else(|| node.devices.held_by(&plan.uid).cloned()).unwrap_or_default();
        node.take(&plan);
        let fresh = node.take_address();
        let status = pod.status.clone().unwrap_or_default();
        let uid = plan.uid.clone();
        let host = node::address(index).to_string();
        let address = node::pod_address(index, fresh).to_string();
        let machine = PodMachine::resume(plan, &status, self.seed, host, address, self.clock.now());
        let octet = machine.pod_address().rsplit('.').next().and_then(|octet| octet.parse().ok()).unwrap_or(fresh);
        node.free_address(fresh);
        node.keep_address(octet);
        // The machine went down while nobody looked: whatever ran then has ended.
        let ended = node.booted.is_some_and(|booted| machine.runs_since_before(booted));
        if !ended {
            node.devices.restore(&uid, held.clone());
        }
        let mut entry = PodEntry::new(uid, index, Life::Running(Box::new(machine)));
        entry.octet = Some(octet);
        entry.counted = true;
        entry.begun = true;
        self.pods.insert(key.clone(), entry);
        if ended {
            self.pod_after_reboot(key, held);
        }
        self.publish_devices(key, index);
    }

    /// Shows tests what the pod was given and keeps a record for a restarted kubelet.
    fn publish_devices(&mut self, key: &PodKey, index: usize) {
        let Some(entry) = self.pods.get_mut(key) else { return };
        if let Some(devices) = self.nodes[index].devices.held_by(&entry.uid) {
            entry.checkpoint = serde_json::to_string(devices).ok();
            self.board.lock().insert(key.clone(), devices.clone());
        }
    }

    /// Takes in what others wrote: conditions they set, and deletion.
    fn observe(&mut self, key: &PodKey, pod: &Pod) {
        let now = self.clock.now();
        let Some(entry) = self.pods.get_mut(key) else { return };
        let deleting = pod.metadata.deletion_timestamp.is_some();
        match &mut entry.life {
            Life::Running(machine) => {
                if machine.plan().containers.iter().any(|container| container.prepare) {
                    entry.object = Some(Box::new(pod.clone()));
                }
                if !machine.plan().readiness_gates.is_empty() {
                    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
                    machine
                        .set_gates(conditions.map(|condition| (condition.type_.clone(), condition.status == "True")));
                }
                // Somebody else called it unready, as the node controller does of nodes that fall silent: it is told again.
                let unready = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
                let unready =
                    unready.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "False");
                if unready && !entry.busy && machine.is_ready() {
                    entry.reported = None;
                }
                if deleting {
                    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
                    let effects = machine.delete(Duration::from_secs(u64::try_from(grace).unwrap_or(0)), now);
                    self.act(key, effects);
                }
            }
            Life::Refused { .. } if deleting => entry.life = Life::Over,
            Life::Refused { .. } | Life::Over => {}
        }
    }

    /// Lets the pod move as far as it can, then reports and sets the next timer.
    pub(super) fn settle(&mut self, key: &PodKey) {
        let now = self.clock.now();
        self.apply_exits(key);
        // A container whose environment is at hand starts with the step after the one that asked for it.
        loop {
            let Some(entry) = self.pods.get_mut(key) else { return };
            let Life::Running(machine) = &mut entry.life else { break };
            let effects = machine.step(now);
            let asked = effects.iter().any(|effect| matches!(effect, Effect::Prepare(_)));
            self.act(key, effects);
            if !asked {
                break;
            }
        }
        let Some(entry) = self.pods.get_mut(key) else { return };
        if let Life::Running(machine) = &mut entry.life {
            let summary = machine.summary();
            let node = entry.node;
            let wake = machine.wake().filter(|wake| entry.timer.is_none_or(|timer| *wake < timer));
            if let Some(wake) = wake {
                entry.timer = Some(wake);
            }
            let changed = summary != entry.summary;
            if changed {
                entry.summary.clone_from(&summary);
            }
            if let Some(wake) = wake {
                self.schedule(wake, Timer::Pod(key.clone()));
            }
            if changed {
                self.note(key, node, &summary);
            }
        }
        self.flush(key);
    }

    /// Sends the pod's status if the server does not have it yet, and removes the object when all is over.
    pub(super) fn flush(&mut self, key: &PodKey) {
        let now = self.clock.now();
        let Some(entry) = self.pods.get_mut(key) else { return };
        if entry.busy || entry.removal_done || !self.nodes[entry.node].is_on() {
            return;
        }
        let (status, removable) = match &mut entry.life {
            Life::Running(machine) => {
                let never_began = machine.is_removable() && !entry.begun;
                ((!never_began).then(|| machine.status(now)), machine.is_removable())
            }
            Life::Refused { status } => (Some(status.clone()), false),
            Life::Over => (None, true),
        };
        let (namespace, name) = key;
        if let Some(status) = status {
            let fingerprint = fingerprint(&status);
            if entry.reported != Some(fingerprint) {
                entry.busy = true;
                entry.begun = true;
                let mut patch = json!({"metadata": {"uid": entry.uid}, "status": status});
                if let Some(checkpoint) = &entry.checkpoint {
                    patch["metadata"]["annotations"] = json!({names::DEVICES: checkpoint});
                }
                let purpose = Purpose::PodStatus { key: key.clone(), uid: entry.uid.clone(), fingerprint };
                let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status?fieldManager={KUBELET}");
                self.writes.strategic(purpose, path, &patch);
                return;
            }
        }
        if removable {
            entry.busy = true;
            let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
                "preconditions": {"uid": entry.uid}});
            let purpose = Purpose::RemovePod { key: key.clone(), uid: entry.uid.clone() };
            self.writes.delete(purpose, format!("/api/v1/namespaces/{namespace}/pods/{name}"), &options);
        }
    }

    pub(super) fn on_pod_reported(
        &mut self,
        key: &PodKey,
        uid: &str,
        fingerprint: u64,
        answer: Result<Bytes, Failure>,
    ) {
        let Some(entry) = self.pods.get_mut(key).filter(|entry| entry.uid == uid) else { return };
        entry.busy = false;
        match answer {
            Ok(_) => {
                entry.failures = 0;
                entry.checkpoint = None;
                entry.reported = Some(fingerprint);
                self.flush(key);
            }
            Err(failure) if failure.is_final() => {
                // Gone, replaced or refused: the watch tells what happened; the same words would be refused again.
                if failure.code != Some(404) {
                    tracing::warn!(pod = key.1, namespace = key.0, message = failure.message, "status refused");
                }
                entry.reported = Some(fingerprint);
                self.flush(key);
            }
            Err(failure) => self.try_again(key, &failure),
        }
    }

    pub(super) fn on_pod_removed(&mut self, key: &PodKey, uid: &str, answer: Result<Bytes, Failure>) {
        let Some(entry) = self.pods.get_mut(key).filter(|entry| entry.uid == uid) else { return };
        entry.busy = false;
        match answer {
            Err(failure) if !failure.is_final() => self.try_again(key, &failure),
            _ => entry.removal_done = true,
        }
    }

    fn try_again(&mut self, key: &PodKey, failure: &Failure) {
        let Some(entry) = self.pods.get_mut(key) else { return };
        entry.failures += 1;
        tracing::debug!(pod = key.1, namespace = key.0, message = failure.message, "pod write failed; trying again");
        let again = later(self.clock.now(), retry_delay(entry.failures));
        self.schedule(again, Timer::Retry(key.clone()));
    }

    /// Carries out what the machine says: events, logs, freeing resources.
    pub(super) fn act(&mut self, key: &PodKey, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Event { .. } => {
                    let Some(Life::Running(machine)) = self.pods.get(key).map(|entry| &entry.life) else { return };
                    let plan = machine.plan().clone();
                    self.pod_event(key, &plan, effect);
                }
                Effect::Prepare(index) => self.prepare(key, index),
                Effect::Started(index) => self.on_started(key, index),
                Effect::Stop(index) => self.stop_program(key, index),
                Effect::Exited(index, code) => self.on_exited(key, index, code),
                Effect::Released => self.release(key),
            }
        }
    }

    /// Frees what a pod held; at most once.
    pub(super) fn release(&mut self, key: &PodKey) {
        let Some(entry) = self.pods.get_mut(key) else { return };
        if let (true, Life::Running(machine)) = (entry.counted, &entry.life) {
            entry.counted = false;
            self.nodes[entry.node].give_back(machine.plan());
            self.board.lock().remove(key);
        }
    }

    pub(super) fn note(&self, (namespace, name): &PodKey, node: usize, what: &str) {
        let node = &self.nodes[node].spec.name;
        self.recorder.note(self.clock.now(), format_args!("pod {namespace}/{name} on {node}"), what);
    }
}

fn has_started(status: &PodStatus) -> bool {
    let statuses = status.init_container_statuses.iter().chain(status.container_statuses.iter()).flatten();
    statuses
        .filter_map(|status| status.state.as_ref())
        .any(|state| state.running.is_some() || state.terminated.is_some())
}

fn fingerprint(status: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    status.to_string().hash(&mut hasher);
    hasher.finish()
}
