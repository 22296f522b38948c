//! The objects of a scenario, and what the world makes of a cycle: evicted pods come back pending, bound ones run, groups remember
//! when they started, claims follow their pods.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kai_api::names::{annotations, bind_phases, labels, namespaces, resource_types};
use serde_json::{Map, Value, json};

use super::{
    file::ScenarioError,
    given::{self, ObjectKey},
};
use crate::object::{Kind, Object};

/// A device for a claim: the place of the request, and driver, pool and name of the device.
pub(super) type Chosen = (usize, [String; 3]);

/// Where a pod was bound.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) node: String,
    pub(super) devices: Vec<String>,
    /// Amounts by zone name.
    pub(super) zones: Vec<(String, BTreeMap<String, i64>)>,
    /// Claims that get devices, by their keys.
    pub(super) claims: Vec<(String, Vec<Chosen>)>,
    /// Whether it has a part of a device.
    pub(super) shared: bool,
}

/// The objects.
#[derive(Debug, Default)]
pub(super) struct World {
    objects: BTreeMap<ObjectKey, Value>,
    changed: BTreeSet<ObjectKey>,
    unreadable: Vec<String>,
}

impl World {
    /// Takes the objects of a scenario; those that nothing can be made of are left out and named in [`Self::unreadable`].
    pub(super) fn new(given: &[Value]) -> Result<Self, ScenarioError> {
        let given = given::read(given)?;
        let changed = given.objects.keys().cloned().collect();
        Ok(Self { objects: given.objects, changed, unreadable: given.unreadable })
    }

    /// Verdicts on objects that cannot be read, as sentences.
    pub(super) fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// Tells everything again.
    pub(super) fn tell_all(&mut self) {
        self.changed = self.objects.keys().cloned().collect();
    }

    /// Takes out what changed: objects as they are, or `None` where they are gone.
    pub(super) fn changes(&mut self) -> Vec<(ObjectKey, Option<Object>)> {
        let changed = std::mem::take(&mut self.changed);
        let read = |key: ObjectKey| {
            let object = self.objects.get(&key).and_then(|value| Object::read(value).ok().flatten());
            (key, object)
        };
        changed.into_iter().map(read).collect()
    }

    /// The node that a pod's object names.
    pub(super) fn node_of(&self, pod: &str) -> Option<&str> {
        self.objects.get(&(Kind::Pod, pod.to_owned()))?.pointer("/spec/nodeName")?.as_str()
    }

    /// Whether a group says when it started.
    pub(super) fn has_started(&self, group: &str) -> bool {
        let object = self.objects.get(&(Kind::PodGroup, group.to_owned()));
        object
            .and_then(|object| object.pointer("/metadata/annotations"))
            .is_some_and(|all| all.get(annotations::LAST_START).is_some())
    }

    /// Reservation pods follow the devices in use; no result depends on them, so they are left out once the world moves.
    pub(super) fn drop_reservations(&mut self) {
        let held: Vec<ObjectKey> = self
            .objects
            .iter()
            .filter(|(key, value)| key.0 == Kind::Pod && label(value, labels::APP) == Some(namespaces::RESERVATION))
            .map(|(key, _)| key.clone())
            .collect();
        for key in held {
            self.objects.remove(&key);
            self.changed.insert(key);
        }
    }

    /// A pod ended and its owner made it anew: same name, uid and age, but pending.
    pub(super) fn comes_back(&mut self, pod: &str) {
        self.edit(Kind::Pod, pod, |value| {
            remove(value, "/spec", &["nodeName"]);
            remove(value, "/metadata", &["deletionTimestamp", "deletionGracePeriodSeconds"]);
            let notes = [annotations::RECEIVED_RESOURCE_TYPE, annotations::NUMA_OBSERVED, annotations::NUMA_PREDICTED];
            remove(value, "/metadata/annotations", &notes);
            if let Some(Value::Object(all)) = value.pointer_mut("/metadata/labels") {
                all.retain(|name, _| name != labels::GPU_GROUP && !name.starts_with(labels::GPU_GROUP_PREFIX));
            }
            set(value, &["status", "phase"], json!("Pending"));
        });
        let bind = (Kind::BindRequest, pod.to_owned());
        if self.objects.remove(&bind).is_some() {
            self.changed.insert(bind);
        }
        self.leave_claims(pod);
    }

    /// A pod is terminating and stays so.
    pub(super) fn stays_terminating(&mut self, pod: &str, now: Timestamp) {
        self.edit(Kind::Pod, pod, |value| {
            set(value, &["metadata", "deletionTimestamp"], json!(before(now, 5)));
        });
    }

    /// A pod runs where it was bound.
    pub(super) fn runs(&mut self, pod: &str, bound: &Bound) {
        self.edit(Kind::Pod, pod, |value| {
            set(value, &["spec", "nodeName"], json!(bound.node));
            set(value, &["status", "phase"], json!("Running"));
            let received = if bound.shared { resource_types::FRACTION } else { resource_types::REGULAR };
            set(value, &["metadata", "annotations", annotations::RECEIVED_RESOURCE_TYPE], json!(received));
            match bound.devices.as_slice() {
                [] => {}
                [one] => set(value, &["metadata", "labels", labels::GPU_GROUP], json!(one)),
                several => {
                    for group in several {
                        set(
                            value,
                            &["metadata", "labels", &format!("{}{group}", labels::GPU_GROUP_PREFIX)],
                            json!(group),
                        );
                    }
                }
            }
            if !bound.zones.is_empty() {
                let zones: Vec<Value> = bound.zones.iter().map(|(zone, amounts)| zone_note(zone, amounts)).collect();
                let text = Value::Array(zones).to_string();
                set(value, &["metadata", "annotations", annotations::NUMA_PREDICTED], json!(text));
            }
        });
        if bound.devices.len() > 1 {
            self.keep_request(pod, bound);
        }
        self.join_claims(pod, bound);
    }

    /// A group with a pod that runs started a minute ago; any other never did.
    pub(super) fn groups_started(&mut self, running: &BTreeSet<String>, now: Timestamp) {
        let groups: Vec<String> =
            self.objects.keys().filter(|(kind, _)| *kind == Kind::PodGroup).map(|(_, key)| key.clone()).collect();
        for group in groups {
            let runs = running.contains(&group);
            self.edit(Kind::PodGroup, &group, |value| {
                if runs {
                    let since = json!(before(now, 60));
                    set(value, &["metadata", "annotations", annotations::LAST_START], since);
                } else {
                    remove(value, "/metadata/annotations", &[annotations::LAST_START]);
                }
            });
        }
    }

    fn keep_request(&mut self, pod: &str, bound: &Bound) {
        let (namespace, name) = pod.split_once('/').unwrap_or(("default", pod));
        let request = json!({"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"podName": name, "selectedNode": bound.node, "selectedGPUGroups": bound.devices,
                "receivedResourceType": resource_types::FRACTION},
            "status": {"phase": bind_phases::SUCCEEDED}});
        let key = (Kind::BindRequest, pod.to_owned());
        self.objects.insert(key.clone(), request);
        self.changed.insert(key);
    }

    /// The claims a pod names.
    fn claims_of(&self, pod: &str) -> Vec<String> {
        let Some(value) = self.objects.get(&(Kind::Pod, pod.to_owned())) else { return Vec::new() };
        let namespace = pod.split_once('/').map_or("default", |(namespace, _)| namespace);
        let made = value.pointer("/status/resourceClaimStatuses").and_then(Value::as_array);
        let uses = value.pointer("/spec/resourceClaims").and_then(Value::as_array).into_iter().flatten();
        let named = uses.filter_map(|used| {
            let own = used.get("resourceClaimName").and_then(Value::as_str);
            let status = || made?.iter().find(|status| status.get("name") == used.get("name"));
            own.or_else(|| status()?.get("resourceClaimName")?.as_str()).map(|name| format!("{namespace}/{name}"))
        });
        named.collect()
    }

    fn leave_claims(&mut self, pod: &str) {
        let uid = self.uid(pod);
        for claim in self.claims_of(pod) {
            self.edit(Kind::ResourceClaim, &claim, |value| {
                let mut unused = false;
                if let Some(Value::Array(users)) = value.pointer_mut("/status/reservedFor") {
                    users.retain(|user| user.get("uid").and_then(Value::as_str) != Some(&uid));
                    unused = users.is_empty();
                }
                if unused {
                    remove(value, "/status", &["allocation", "reservedFor"]);
                }
            });
        }
    }

    fn join_claims(&mut self, pod: &str, bound: &Bound) {
        let uid = self.uid(pod);
        let name = pod.split_once('/').map_or(pod, |(_, name)| name).to_owned();
        for claim in self.claims_of(pod) {
            let chosen = bound.claims.iter().find(|(key, _)| *key == claim).map(|(_, devices)| devices);
            self.edit(Kind::ResourceClaim, &claim, |value| {
                let free = value.pointer("/status/allocation").is_none();
                if let Some(devices) = chosen.filter(|_| free) {
                    let allocation = allocation(value, devices, &bound.node);
                    set(value, &["status", "allocation"], allocation);
                }
                let mut users =
                    value.pointer("/status/reservedFor").and_then(Value::as_array).cloned().unwrap_or_default();
                if !users.iter().any(|user| user.get("uid").and_then(Value::as_str) == Some(&uid)) {
                    users.push(json!({"resource": "pods", "name": name, "uid": uid}));
                }
                set(value, &["status", "reservedFor"], Value::Array(users));
            });
        }
    }

    fn uid(&self, pod: &str) -> String {
        let value = self.objects.get(&(Kind::Pod, pod.to_owned()));
        value.and_then(|value| value.pointer("/metadata/uid")).and_then(Value::as_str).unwrap_or(pod).to_owned()
    }

    fn edit(&mut self, kind: Kind, key: &str, change: impl FnOnce(&mut Value)) {
        let key = (kind, key.to_owned());
        if let Some(value) = self.objects.get_mut(&key) {
            let old = value.clone();
            change(value);
            if *value != old {
                self.changed.insert(key);
            }
        }
    }
}

fn allocation(claim: &Value, devices: &[Chosen], node: &str) -> Value {
    let results: Vec<Value> = devices
        .iter()
        .map(|(place, [driver, pool, device])| {
            let request = claim.pointer(&format!("/spec/devices/requests/{place}/name")).cloned().unwrap_or_default();
            json!({"request": request, "driver": driver, "pool": pool, "device": device})
        })
        .collect();
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    json!({"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}})
}

fn zone_note(zone: &str, amounts: &BTreeMap<String, i64>) -> Value {
    let quantities = amounts.iter().map(|(resource, amount)| {
        let text = if resource == "cpu" { format!("{amount}m") } else { amount.to_string() };
        (resource.clone(), Value::String(text))
    });
    json!({"zone": zone, "amount": Value::Object(quantities.collect())})
}

/// A moment before `now`, as Kubernetes writes it.
pub(super) fn before(now: Timestamp, seconds: i64) -> String {
    now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(now).to_string()
}

fn label<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.pointer("/metadata/labels").and_then(|all| all.get(name)).and_then(Value::as_str)
}

fn remove(value: &mut Value, pointer: &str, names: &[&str]) {
    if let Some(Value::Object(fields)) = value.pointer_mut(pointer) {
        fields.retain(|name, _| !names.contains(&name.as_str()));
    }
}

fn set(value: &mut Value, path: &[&str], to: Value) {
    let mut place = value;
    for name in path {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Value::Object(fields) = place else { return };
        place = fields.entry((*name).to_owned()).or_insert(Value::Null);
    }
    *place = to;
}
