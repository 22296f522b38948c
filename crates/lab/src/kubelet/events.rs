//! Events, as the kubelet's recorder writes them: core/v1, repeated ones counted up instead of written again.

use serde_json::{Value, json};

use super::{Kubelets, state::PodKey, writes::Purpose};
use crate::{
    names,
    node::seconds,
    pod::{Effect, PodPlan, Role},
};

/// One event, before it has a time.
struct Note<'a> {
    namespace: &'a str,
    name: String,
    involved: Value,
    warning: bool,
    reason: &'a str,
    message: &'a str,
    node: &'a str,
}

impl Kubelets {
    /// Writes an event about a pod.
    pub(super) fn pod_event(&mut self, key: &PodKey, plan: &PodPlan, effect: Effect) {
        let Effect::Event { warning, reason, message, container } = effect else { return };
        let now = self.clock.now();
        let Some(entry) = self.pods.get_mut(key) else { return };
        let (namespace, pod) = key;
        let event_key = (reason, message, container);
        if let Some((name, count)) = entry.events.get_mut(&event_key) {
            *count += 1;
            let patch = json!({"count": count, "lastTimestamp": seconds(now)});
            let path = format!("/api/v1/namespaces/{namespace}/events/{name}");
            self.writes.merge(Purpose::Event, path, &patch);
            return;
        }
        let mut involved = json!({
            "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod, "uid": entry.uid,
        });
        if let Some(container) = container.and_then(|index| plan.containers.get(index)) {
            let list = if container.role == Role::App { "containers" } else { "initContainers" };
            involved["fieldPath"] = json!(format!("spec.{list}{{{}}}", container.name));
        }
        self.sequence += 1;
        // The recorder's names are the time in hexadecimal; the counter keeps them apart when time stands still.
        let name = format!("{pod}.{:x}", now.as_nanosecond().unsigned_abs() + u128::from(self.sequence));
        entry.events.insert(event_key.clone(), (name.clone(), 1));
        let node = self.nodes[entry.node].spec.name.clone();
        let (reason, message, _) = &event_key;
        self.write_event(&Note { namespace, name, involved, warning, reason, message, node: &node });
    }

    /// Writes an event about a node.
    pub(super) fn node_event(&mut self, node: usize, reason: &str, message: &str) {
        self.sequence += 1;
        let node = self.nodes[node].spec.name.clone();
        // The kubelet puts the name where the uid belongs, and tools rely on it.
        let involved = json!({"kind": "Node", "name": node, "uid": node});
        let name = format!("{node}.{:x}", self.clock.now().as_nanosecond().unsigned_abs() + u128::from(self.sequence));
        self.write_event(&Note {
            namespace: "default",
            name,
            involved,
            warning: reason == "Rebooted",
            reason,
            message,
            node: &node,
        });
    }

    fn write_event(&mut self, note: &Note<'_>) {
        let now = seconds(self.clock.now());
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": note.name, "namespace": note.namespace},
            "involvedObject": note.involved,
            "type": if note.warning { "Warning" } else { "Normal" },
            "reason": note.reason,
            "message": note.message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": names::KUBELET, "host": note.node},
            "reportingComponent": names::KUBELET,
            "reportingInstance": note.node,
        });
        self.writes.create(Purpose::Event, format!("/api/v1/namespaces/{}/events", note.namespace), &event);
    }
}
