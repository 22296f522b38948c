//! Nodes: registration, heartbeats, status reports, faults.

use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::api::core::v1::{Node, Pod};
use rand::RngExt;
use serde_json::{Value, json};

use super::{
    Kubelets, Timer, later, retry_delay,
    state::{PodKey, Power, Report},
    writes::{Failure, Purpose, Written},
};
use crate::{
    faults::NodeAction,
    names::{KUBELET, LEASE_NAMESPACE},
    node::{self, Readiness, Sizes},
};

/// How many different moments within an interval periodic work is spread over.
const MARKS: u32 = 100;

impl Kubelets {
    /// Creates the Node object unless it is there or being made.
    pub(super) fn register(&mut self, index: usize) {
        let now = self.clock.now();
        let node = &mut self.nodes[index];
        if !node.is_on() || node.registering || node.uid.is_some() {
            return;
        }
        node.registering = true;
        let object = node.object(index, self.seed, now);
        self.writes.create(Purpose::CreateNode(index), format!("/api/v1/nodes?fieldManager={KUBELET}"), &object);
    }

    /// Renews the lease and sets the next renewal.
    pub(super) fn heartbeat(&mut self, index: usize, epoch: u32) {
        let now = self.clock.now();
        let node = &mut self.nodes[index];
        if !node.is_on() || node.epoch != epoch {
            return;
        }
        let next = later(now, node.spec.heartbeat);
        if node.uid.is_some() && !node.lease_busy {
            node.lease_busy = true;
            let patch = json!({"spec": {"renewTime": node::micros(now)}});
            let path = format!("{}/{}?fieldManager={KUBELET}", leases(), node.spec.name);
            self.writes.merge(Purpose::RenewLease(index), path, &patch);
        }
        self.schedule(next, Timer::Heartbeat(index, epoch));
    }

    /// Reports the unchanged status now and then.
    pub(super) fn periodic_status(&mut self, index: usize, epoch: u32) {
        let node = &self.nodes[index];
        if !node.is_on() || node.epoch != epoch {
            return;
        }
        let next = later(self.clock.now(), node.spec.status_interval);
        self.report(index, Report::Conditions);
        self.schedule(next, Timer::NodeStatus(index, epoch));
    }

    /// The API's view of a node changed.
    pub(super) fn on_node(&mut self, object: Node) {
        let Some(&index) = object.metadata.name.as_ref().and_then(|name| self.by_name.get(name)) else { return };
        let node = &mut self.nodes[index];
        node.labels = object.metadata.labels.unwrap_or_default();
        node.taints = object.spec.and_then(|spec| spec.taints).unwrap_or_default();
        // The node life-cycle controller lost patience with this kubelet, but it is well.
        let conditions = object.status.and_then(|status| status.conditions).unwrap_or_default();
        let forgotten = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "Unknown");
        if forgotten {
            self.report(index, Report::Conditions);
        }
    }

    /// The Node object was deleted: a kubelet that is well registers again.
    pub(super) fn on_node_gone(&mut self, name: &str) {
        let Some(&index) = self.by_name.get(name) else { return };
        let now = self.clock.now();
        let node = &mut self.nodes[index];
        if node.uid.take().is_none() {
            return;
        }
        self.recorder.note(now, format_args!("node {name}"), "gone");
        let again = later(now, node.spec.heartbeat);
        self.schedule(again, Timer::Register(index));
    }

    /// Something happens to a node.
    pub(super) fn on_command(&mut self, name: &str, action: &NodeAction) {
        let Some(&index) = self.by_name.get(name) else { return };
        match action {
            NodeAction::Stop => self.power_off(index, Power::Stopped),
            NodeAction::Vanish => {
                self.power_off(index, Power::Vanished);
                self.writes.delete(Purpose::DeleteNode, format!("/api/v1/nodes/{name}"), &json!({}));
            }
            NodeAction::Resume => self.power_on(index),
            NodeAction::Reboot { down, new_uuids } => self.reboot(index, *down, *new_uuids),
            NodeAction::Ready => self.set_readiness(index, Readiness::Ready),
            NodeAction::NotReady => self.set_readiness(index, Readiness::NotReady),
            NodeAction::DeviceUnhealthy { resource, index: device } => self.set_health(index, resource, *device, false),
            NodeAction::DeviceHealthy { resource, index: device } => self.set_health(index, resource, *device, true),
        }
    }

    /// An answer arrived.
    pub(super) fn on_written(&mut self, written: Written) {
        let Written { purpose, answer } = written;
        match purpose {
            Purpose::CreateNode(index) | Purpose::AdoptNode(index) => self.on_registered(index, &purpose, answer),
            Purpose::CreateLease(index) | Purpose::RenewLease(index) => self.on_lease(index, &purpose, answer),
            Purpose::NodeStatus(index) => self.on_reported(index, answer),
            Purpose::PodStatus { key, uid, fingerprint } => self.on_pod_reported(&key, &uid, fingerprint, answer),
            Purpose::RemovePod { key, uid } => self.on_pod_removed(&key, &uid, answer),
            Purpose::ReadConfigMap { key, uid, container, name } => {
                self.on_config_map(&key, &uid, container, name, answer);
            }
            Purpose::Event | Purpose::DeleteNode | Purpose::CreateSlice => {
                if let Err(failure) = answer {
                    tracing::debug!(?purpose, message = failure.message, "write failed; not repeated");
                }
            }
        }
    }

    fn on_registered(&mut self, index: usize, purpose: &Purpose, answer: Result<Bytes, Failure>) {
        let now = self.clock.now();
        let node = &mut self.nodes[index];
        node.registering = false;
        let name = node.spec.name.clone();
        let object: Value = match answer {
            Ok(body) => serde_json::from_slice(&body).unwrap_or_default(),
            Err(failure) if failure.code == Some(409) && matches!(purpose, Purpose::CreateNode(_)) => {
                // It is there from an earlier life: bring labels up to date, as the real kubelet does.
                node.registering = true;
                let patch = json!({"metadata": {"labels": node::labels(&node.spec)}});
                let path = format!("/api/v1/nodes/{name}?fieldManager={KUBELET}");
                self.writes.merge(Purpose::AdoptNode(index), path, &patch);
                return;
            }
            Err(failure) => {
                tracing::debug!(node = name, message = failure.message, "registration failed; trying again");
                node.failures += 1;
                let again = later(now, retry_delay(node.failures));
                self.schedule(again, Timer::Register(index));
                return;
            }
        };
        node.failures = 0;
        node.registrations += 1;
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let slice = node::resource_slice(&node.spec, &uid);
        let first = node.registrations == 1;
        let complete = matches!(purpose, Purpose::CreateNode(_)) && object["status"]["capacity"].is_object();
        node.uid = Some(uid);
        self.recorder.note(now, format_args!("node {name}"), "registered");
        self.create_lease(index);
        if let Some(slice) = slice {
            self.writes.create(Purpose::CreateSlice, "/apis/resource.k8s.io/v1/resourceslices".to_owned(), &slice);
        }
        if first {
            self.node_event(index, "Starting", "Starting kubelet.");
        }
        if !complete {
            self.report(index, Report::Everything);
        }
        self.start_timers(index);
        self.registered.send_modify(|count| *count += usize::from(first));
    }

    /// Heartbeats of different nodes are spread over the interval, so that they do not come in one burst, but on a hundred marks
    /// only: a large fleet in virtual time then wakes a hundred times per interval and not once per node.
    fn start_timers(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        // A kubelet that is off by the time it hears that it is registered begins when it comes back.
        if !node.is_on() || std::mem::replace(&mut node.timers_running, true) {
            return;
        }
        let mut rng = self.seed.rng(&["heartbeat", &node.spec.name]);
        let mut within = |span: Duration| span / MARKS * (rng.random_range(0..MARKS) + 1);
        let (beat, status) = (within(node.spec.heartbeat), within(node.spec.status_interval));
        let (now, epoch) = (self.clock.now(), node.epoch);
        self.schedule(later(now, beat), Timer::Heartbeat(index, epoch));
        self.schedule(later(now, status), Timer::NodeStatus(index, epoch));
    }

    fn create_lease(&mut self, index: usize) {
        let now = self.clock.now();
        let node = &mut self.nodes[index];
        let Some(uid) = &node.uid else { return };
        let lease = node::lease(&node.spec, uid, now);
        node.lease_busy = true;
        self.writes.create(Purpose::CreateLease(index), format!("{}?fieldManager={KUBELET}", leases()), &lease);
    }

    fn on_lease(&mut self, index: usize, purpose: &Purpose, answer: Result<Bytes, Failure>) {
        let now = self.clock.now();
        let node = &mut self.nodes[index];
        node.lease_busy = false;
        match answer {
            Ok(_) => {
                let mut heartbeats = self.heartbeats.lock();
                if let Some(last) = heartbeats.get_mut(&node.spec.name) {
                    *last = now;
                } else {
                    heartbeats.insert(node.spec.name.clone(), now);
                }
            }
            Err(failure) if failure.code == Some(404) && matches!(purpose, Purpose::RenewLease(_)) => {
                self.create_lease(index);
            }
            // The next heartbeat tries again; a lease that exists is renewed by then.
            Err(failure) => tracing::debug!(node = node.spec.name, message = failure.message, "lease not written"),
        }
    }

    /// Reports the node status, or more of it once the report under way is through.
    fn report(&mut self, index: usize, what: Report) {
        let now = self.clock.now();
        let node = &mut self.nodes[index];
        node.report = node.report.max(what);
        if node.status_busy || !node.is_on() || node.uid.is_none() || node.report == Report::Nothing {
            return;
        }
        node.status_busy = true;
        let conditions = node::conditions(node.readiness, node.ready_since, now);
        let status = match std::mem::replace(&mut node.report, Report::Nothing) {
            Report::Everything => {
                let mut object = node.object(index, self.seed, now);
                object["status"]["conditions"] = conditions;
                object["status"].take()
            }
            _ => json!({"conditions": conditions}),
        };
        let path = format!("/api/v1/nodes/{}/status?fieldManager={KUBELET}", node.spec.name);
        self.writes.strategic(Purpose::NodeStatus(index), path, &json!({"status": status}));
    }

    fn on_reported(&mut self, index: usize, answer: Result<Bytes, Failure>) {
        let node = &mut self.nodes[index];
        node.status_busy = false;
        match answer {
            Ok(_) => self.report(index, Report::Nothing),
            Err(failure) if failure.code == Some(404) => {
                let name = node.spec.name.clone();
                self.on_node_gone(&name);
            }
            Err(failure) => {
                tracing::debug!(node = node.spec.name, message = failure.message, "node status not written");
                // What was lost is unknown, so the next report is a full one.
                node.report = Report::Everything;
                let again = later(self.clock.now(), retry_delay(1));
                self.schedule(again, Timer::StatusRetry(index));
            }
        }
    }

    /// A failed report is due again.
    pub(super) fn retry_status(&mut self, index: usize) {
        self.report(index, Report::Nothing);
    }

    fn set_readiness(&mut self, index: usize, wanted: Readiness) {
        let now = self.clock.now();
        let node = &mut self.nodes[index];
        if node.readiness == wanted {
            return;
        }
        node.readiness = wanted;
        node.ready_since = now;
        let word = if wanted == Readiness::Ready { "NodeReady" } else { "NodeNotReady" };
        let name = node.spec.name.clone();
        self.recorder.note(now, format_args!("node {name}"), word);
        self.node_event(index, word, &format!("Node {name} status is now: {word}"));
        self.report(index, Report::Conditions);
    }

    fn set_health(&mut self, index: usize, resource: &str, device: usize, healthy: bool) {
        let now = self.clock.now();
        let node = &mut self.nodes[index];
        if !node.devices.set_health(resource, device, healthy) {
            return;
        }
        node.sizes = Sizes::of(&node.spec, &node.devices.counts());
        let word = if healthy { "healthy" } else { "unhealthy" };
        let name = &node.spec.name;
        self.recorder.note(now, format_args!("node {name}"), format_args!("{resource} device {device} {word}"));
        self.report(index, Report::Everything);
    }

    pub(super) fn power_off(&mut self, index: usize, power: Power) {
        let node = &mut self.nodes[index];
        if node.power == power {
            return;
        }
        self.off += usize::from(node.is_on());
        node.power = power;
        node.epoch += 1;
        node.timers_running = false;
        let word = if power == Power::Vanished { "vanished" } else { "stopped" };
        self.recorder.note(self.clock.now(), format_args!("node {}", node.spec.name), word);
    }

    /// The kubelet comes back: it catches up with what happened to its pods and takes up its duties.
    pub(super) fn power_on(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.is_on() {
            return;
        }
        node.power = Power::On;
        self.off = self.off.saturating_sub(1);
        if let Some(new_uuids) = node.rebooting.take() {
            self.after_reboot(index, new_uuids);
        }
        let node = &mut self.nodes[index];
        let backlog: Vec<(PodKey, Option<Box<Pod>>)> = std::mem::take(&mut node.backlog).into_iter().collect();
        self.recorder.note(self.clock.now(), format_args!("node {}", node.spec.name), "resumed");
        if node.uid.is_some() {
            self.report(index, Report::Everything);
            self.start_timers(index);
        } else {
            self.register(index);
        }
        for (key, pod) in backlog {
            match pod {
                Some(pod) => self.on_pod(*pod),
                None => self.on_pod_gone(&key),
            }
        }
        let here: Vec<PodKey> =
            self.pods.iter().filter(|(_, entry)| entry.node == index).map(|(key, _)| key.clone()).collect();
        for key in here {
            self.on_pod_timer(&key);
        }
    }
}

fn leases() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases")
}
