//! Objects in, deltas out. An object that others depend on is followed by those others: a `PriorityClass` by its groups, a
//! `BindRequest` by its pod and its claims, a `NodeResourceTopology` and a `ResourceSlice` by their node, a volume claim by its pods, a
//! node by the pods that share its GPUs.
//!
//! Objects may come in any order. What is kept are records, not objects; of a pod that runs and depends on nothing only its uid.

mod foretold;
mod implied;
mod unconfirmed;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{api::core::v1 as k8s, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kai_api::names::{labels, objects};
use kai_core::{
    delta::{Delta, Node},
    time::Time,
};
use rustc_hash::FxHashMap;

use crate::{
    bind_request::BindRecord,
    device::{Devices, Stale},
    group::{GroupRecord, Priorities},
    node,
    numa::{NodeResourceTopology, Zones},
    object::{Kind, Object},
    pod::{Draft, Need, Surroundings},
    queue::{self, key, name},
    volume::Volumes,
};

/// Which objects count, and under which names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The name by which pods ask for this scheduler.
    pub scheduler: String,
    /// The label of pods and of shared claims that names their queue.
    pub queue_label: String,
    /// Whether a pod without an owner is in a group before the pod-grouper has made it.
    pub implied_groups: bool,
    /// The node pool; `None`: everything is of this scheduler.
    pub pool: Option<NodePool>,
    /// Resources whose NUMA zones do not count.
    pub numa_ignored: BTreeSet<String>,
}

/// The nodes, queues and groups of one scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePool {
    /// The label that names the pool.
    pub label: String,
    /// Its value; `None`: objects without the label.
    pub value: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scheduler: objects::SCHEDULER.to_owned(),
            queue_label: labels::QUEUE.to_owned(),
            implied_groups: false,
            pool: None,
            numa_ignored: BTreeSet::new(),
        }
    }
}

pub use self::unconfirmed::GroupNote;

/// What is kept of a pod.
#[derive(Debug)]
enum PodRecord {
    /// Nothing but the pod itself changes what the core knows of it.
    Settled(String),
    /// It depends on other objects.
    Open(Box<Draft>),
}

impl PodRecord {
    fn uid(&self) -> &str {
        match self {
            Self::Settled(uid) => uid,
            Self::Open(draft) => &draft.pod.uid,
        }
    }
}

/// From Kubernetes objects to the core's deltas.
#[derive(Debug, Default)]
pub struct Converter {
    settings: Settings,
    nodes: BTreeMap<String, Node>,
    zones: BTreeMap<String, Zones>,
    pods: FxHashMap<String, PodRecord>,
    uids: FxHashMap<String, String>,
    needs: BTreeMap<Need, BTreeSet<String>>,
    groups: FxHashMap<String, GroupRecord>,
    /// Groups that pods without an owner are in as soon as the pod-grouper has made them, and by which pod.
    implied: FxHashMap<String, GroupRecord>,
    implied_for: FxHashMap<String, String>,
    priorities: Priorities,
    binds: FxHashMap<String, BindRecord>,
    bind_of: FxHashMap<String, String>,
    /// By node: BindRequests for parts of its GPUs.
    sharing_on: BTreeMap<String, BTreeSet<String>>,
    volumes: Volumes,
    config_maps: BTreeSet<String>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// By queue: what people call it, where that is not its name.
    queue_titles: BTreeMap<String, String>,
    devices: Devices,
    /// Pods whose deletion was asked for, by uid, until their objects say so.
    leaving: BTreeMap<String, Time>,
    /// Claims that stand for devices of extended resources, by the uid of their pod, until the binder has made real ones.
    foretold: BTreeMap<String, String>,
    /// What was written on groups, until their objects say so.
    notes: FxHashMap<String, Vec<GroupNote>>,
    /// Ends of vetoes that are still to come, with the key of the pod.
    veto_ends: BTreeSet<(Time, String)>,
    now: Time,
}

impl Converter {
    /// A converter that knows of nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// `namespace/name` of the pod with a uid.
    #[must_use]
    pub fn pod_key(&self, uid: &str) -> Option<&str> {
        self.uids.get(uid).map(String::as_str)
    }

    /// The uid of a pod.
    #[must_use]
    pub fn pod_uid(&self, namespace: &str, name: &str) -> Option<&str> {
        self.pods.get(&format!("{namespace}/{name}")).map(PodRecord::uid)
    }

    /// The names of the NUMA zones of a node, by index.
    #[must_use]
    pub fn zone_names(&self, node: &str) -> &[String] {
        self.zones.get(node).map(Zones::names).unwrap_or_default()
    }

    /// Takes an object that is new or changed.
    #[must_use]
    pub fn apply(&mut self, object: &Object) -> Vec<Delta> {
        let mut out = Vec::new();
        match object {
            Object::Node(object) => self.node(object, &mut out),
            Object::Pod(object) => self.pod(object, &mut out),
            Object::ConfigMap(object) => {
                if self.config_maps.insert(key(&object.metadata)) {
                    self.tell_users(&Need::ConfigMap(key(&object.metadata)), &mut out);
                }
            }
            Object::Namespace(object) => {
                let labels = object.metadata.labels.clone().unwrap_or_default();
                if self.namespaces.insert(name(&object.metadata), labels.clone()) != Some(labels) {
                    self.tell_users(&Need::Namespaces, &mut out);
                }
            }
            Object::PersistentVolumeClaim(object) => {
                self.volumes.insert_claim(object);
                self.tell_users(&Need::Volume(key(&object.metadata)), &mut out);
            }
            Object::PersistentVolume(object) => {
                self.volumes.insert_volume(object);
                self.tell_volumes(Some(&name(&object.metadata)), &mut out);
            }
            Object::StorageClass(object) => {
                self.volumes.insert_class(object);
                self.tell_volumes(None, &mut out);
            }
            Object::PriorityClass(object) => {
                let default = object.global_default.unwrap_or(false);
                self.priorities.insert(name(&object.metadata), object.value, default);
                self.tell_groups(&mut out);
            }
            Object::ResourceClaim(object) => {
                let new = !self.devices.has_claim(&key(&object.metadata));
                let stale = self.devices.insert_claim(object, &self.settings.queue_label);
                for pod in object.status.iter().flat_map(|status| status.reserved_for.iter().flatten()) {
                    self.fulfil(&pod.uid, &mut out);
                }
                self.tell_stale(&stale, &mut out);
                if new {
                    self.tell_users(&Need::Claim(key(&object.metadata)), &mut out);
                }
            }
            Object::ResourceSlice(object) => {
                let stale = self.devices.insert_slice(object);
                self.tell_stale(&stale, &mut out);
            }
            Object::DeviceClass(object) => {
                let stale = self.devices.insert_class(object);
                self.tell_stale(&stale, &mut out);
            }
            Object::NodeResourceTopology(object) => self.node_zones(object, &mut out),
            Object::Queue(object) => {
                let gone = !self.ours(&object.metadata);
                self.name_queue(object, gone);
                out.push(if gone {
                    Delta::QueueGone(name(&object.metadata))
                } else {
                    Delta::Queue(Box::new(queue::queue(object)))
                });
            }
            Object::PodGroup(object) => self.group(object, &mut out),
            Object::BindRequest(object) => self.bind(object, &mut out),
            Object::Topology(object) => out.push(Delta::Topology(queue::topology(object))),
        }
        out
    }

    /// Takes the news that an object is gone. The namespace is empty for kinds without.
    #[must_use]
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) -> Vec<Delta> {
        let mut out = Vec::new();
        let full = || format!("{}/{name}", if namespace.is_empty() { "default" } else { namespace });
        match kind {
            Kind::Node => self.node_gone(name, &mut out),
            Kind::Pod => self.pod_gone(&full(), &mut out),
            Kind::ConfigMap => {
                self.config_maps.remove(&full());
                self.tell_users(&Need::ConfigMap(full()), &mut out);
            }
            Kind::Namespace => {
                self.namespaces.remove(name);
                self.tell_users(&Need::Namespaces, &mut out);
            }
            Kind::PersistentVolumeClaim => {
                self.volumes.remove_claim(&full());
                self.tell_users(&Need::Volume(full()), &mut out);
            }
            Kind::PersistentVolume => {
                self.volumes.remove_volume(name);
                self.tell_volumes(Some(name), &mut out);
            }
            Kind::StorageClass => {
                self.volumes.remove_class(name);
                self.tell_volumes(None, &mut out);
            }
            Kind::PriorityClass => {
                self.priorities.remove(name);
                self.tell_groups(&mut out);
            }
            Kind::ResourceClaim => {
                self.devices.remove_claim(&full());
                out.push(Delta::ClaimGone(full()));
                self.tell_users(&Need::Claim(full()), &mut out);
            }
            Kind::ResourceSlice => {
                let stale = self.devices.remove_slice(name);
                self.tell_stale(&stale, &mut out);
            }
            Kind::DeviceClass => {
                let stale = self.devices.remove_class(name);
                self.tell_stale(&stale, &mut out);
            }
            Kind::NodeResourceTopology => {
                self.zones.remove(name);
                self.tell_node(name, &mut out);
                self.tell_zones(name, &mut out);
            }
            Kind::Queue => {
                self.queue_titles.remove(name);
                out.push(Delta::QueueGone(name.to_owned()));
            }
            Kind::PodGroup => {
                self.notes.remove(&full());
                self.group_gone(&full(), &mut out);
            }
            Kind::BindRequest => self.bind_gone(&full(), &mut out),
            Kind::Topology => out.push(Delta::TopologyGone(name.to_owned())),
        }
        out
    }

    /// What people call a queue, where that is not its name.
    pub(crate) fn queue_title(&self, queue: &str) -> Option<&str> {
        self.queue_titles.get(queue).map(String::as_str)
    }

    fn name_queue(&mut self, object: &kai_api::Queue, gone: bool) {
        let queue = name(&object.metadata);
        let title = object.spec.display_name.clone().filter(|title| !gone && !title.is_empty() && *title != queue);
        match title {
            Some(title) => drop(self.queue_titles.insert(queue, title)),
            None => drop(self.queue_titles.remove(&queue)),
        }
    }

    /// Whether an object is of this scheduler's node pool.
    fn ours(&self, metadata: &ObjectMeta) -> bool {
        self.settings.pool.as_ref().is_none_or(|pool| {
            let found = metadata.labels.as_ref().and_then(|all| all.get(&pool.label));
            found == pool.value.as_ref()
        })
    }

    fn node(&mut self, object: &k8s::Node, out: &mut Vec<Delta>) {
        let read = node::node(object);
        let node = read.name.clone();
        if self.ours(&object.metadata) {
            let memory = read.gpus.memory;
            let old = self.nodes.insert(node.clone(), read);
            self.tell_node(&node, out);
            if old.and_then(|old| old.gpus.memory) != memory {
                self.tell_memory(&node, out);
            }
        } else {
            self.node_gone(&node, out);
        }
    }

    fn node_gone(&mut self, node: &str, out: &mut Vec<Delta>) {
        if self.nodes.remove(node).is_some() {
            out.push(Delta::NodeGone(node.to_owned()));
            self.tell_memory(node, out);
        }
    }

    fn node_zones(&mut self, object: &NodeResourceTopology, out: &mut Vec<Delta>) {
        let zones = Zones::of(object, &self.settings.numa_ignored);
        let node = name(&object.metadata);
        let renamed = self.zones.get(&node).is_none_or(|old| old.names() != zones.names());
        self.zones.insert(node.clone(), zones);
        self.tell_node(&node, out);
        if renamed {
            self.tell_zones(&node, out);
        }
    }

    fn group(&mut self, object: &kai_api::PodGroup, out: &mut Vec<Delta>) {
        let group = key(&object.metadata);
        if self.ours(&object.metadata) {
            let record = GroupRecord::of(object);
            self.confirm_notes(&group, &record);
            self.groups.insert(group.clone(), record);
            out.extend(self.tell_group(&group));
        } else {
            self.group_gone(&group, out);
        }
    }

    fn group_gone(&mut self, group: &str, out: &mut Vec<Delta>) {
        if self.groups.remove(group).is_some() {
            out.push(self.tell_group(group).unwrap_or_else(|| Delta::PodGroupGone(group.to_owned())));
        }
    }

    fn pod(&mut self, object: &k8s::Pod, out: &mut Vec<Delta>) {
        let pod = key(&object.metadata);
        let draft = Draft::of(object, &self.settings.scheduler);
        let old = self.pods.get(&pod).map(|record| record.uid().to_owned());
        if let Some(old) = old {
            let replaced = old != draft.pod.uid;
            self.forget_pod(&pod, out);
            if replaced {
                self.leaving.remove(&old);
                out.push(Delta::PodGone(old));
            }
        }
        for need in draft.needs() {
            self.needs.entry(need).or_default().insert(pod.clone());
        }
        self.uids.insert(draft.pod.uid.clone(), pod.clone());
        if draft.pod.deleted.is_some() {
            self.leaving.remove(&draft.pod.uid);
        }
        self.imply(&pod, object, out);
        self.hold_claims(&pod, &draft, out);
        self.foretell(&pod, &draft, out);
        out.push(Delta::Pod(Box::new(self.resolve(&pod, &draft))));
        let record = if draft.settled() { PodRecord::Settled(draft.pod.uid) } else { PodRecord::Open(Box::new(draft)) };
        self.pods.insert(pod, record);
    }

    fn pod_gone(&mut self, pod: &str, out: &mut Vec<Delta>) {
        let Some(uid) = self.pods.get(pod).map(|record| record.uid().to_owned()) else { return };
        self.leaving.remove(&uid);
        self.forget_pod(pod, out);
        out.push(Delta::PodGone(uid));
        self.no_longer_imply(pod, out);
    }

    /// Takes a pod out of everything that points to it.
    fn forget_pod(&mut self, pod: &str, out: &mut Vec<Delta>) {
        let Some(record) = self.pods.remove(pod) else { return };
        self.uids.remove(record.uid());
        self.fulfil(record.uid(), out);
        let PodRecord::Open(draft) = record else { return };
        for need in draft.needs() {
            if let Some(users) = self.needs.get_mut(&need) {
                users.remove(pod);
                if users.is_empty() {
                    self.needs.remove(&need);
                }
            }
        }
        self.release_claims(&draft, out);
    }

    fn resolve(&self, pod: &str, draft: &Draft) -> kai_core::delta::Pod {
        draft.resolve(&Surroundings {
            bind: self.bind_of.get(pod).and_then(|bind| self.binds.get(bind)),
            volumes: &self.volumes,
            config_maps: &self.config_maps,
            namespaces: &self.namespaces,
            zones: &self.zones,
            claim_exists: &|claim| self.devices.has_claim(claim),
            memory_is_known: &|node| self.nodes.get(node).is_some_and(|node| node.gpus.memory.is_some()),
            leaves: self.leaving.get(&draft.pod.uid).copied(),
            now: self.now,
        })
    }

    fn bind(&mut self, object: &kai_api::BindRequest, out: &mut Vec<Delta>) {
        let own = key(&object.metadata);
        let record = BindRecord::of(object);
        if self.binds.get(&own).is_some_and(|old| old.pod != record.pod) {
            self.bind_gone(&own, out);
        }
        self.forget_sharing(&own);
        if !record.devices.is_empty() {
            self.sharing_on.entry(record.node.clone()).or_default().insert(own.clone());
        }
        let pod = record.pod.clone();
        for veto in record.vetoes.iter().filter(|veto| veto.holds(self.now)) {
            self.veto_ends.insert((Time(veto.until), pod.clone()));
        }
        self.bind_of.insert(pod.clone(), own.clone());
        self.binds.insert(own, record);
        self.tell_bound(&pod, out);
    }

    fn forget_sharing(&mut self, own: &str) {
        let Some(node) = self.binds.get(own).map(|bind| &bind.node) else { return };
        if let Some(binds) = self.sharing_on.get_mut(node) {
            binds.remove(own);
            if binds.is_empty() {
                self.sharing_on.remove(node);
            }
        }
    }

    fn bind_gone(&mut self, own: &str, out: &mut Vec<Delta>) {
        self.forget_sharing(own);
        let Some(gone) = self.binds.remove(own) else { return };
        if self.bind_of.get(&gone.pod).is_some_and(|bind| bind == own) {
            self.bind_of.remove(&gone.pod);
        }
        self.tell_bound(&gone.pod, out);
    }

    /// A BindRequest changed: so did its pod, and the claims of that.
    fn tell_bound(&mut self, pod: &str, out: &mut Vec<Delta>) {
        // A settled pod already runs: a request cannot change anything for it.
        if !matches!(self.pods.get(pod), Some(PodRecord::Open(_))) {
            return;
        }
        let Some(PodRecord::Open(draft)) = self.pods.remove(pod) else { return };
        self.release_claims(&draft, out);
        self.fulfil(&draft.pod.uid, out);
        self.hold_claims(pod, &draft, out);
        self.foretell(pod, &draft, out);
        out.push(Delta::Pod(Box::new(self.resolve(pod, &draft))));
        self.pods.insert(pod.to_owned(), PodRecord::Open(draft));
    }

    /// Notes the claims of a pod that is being bound, with the devices its BindRequest names.
    fn hold_claims(&mut self, pod: &str, draft: &Draft, out: &mut Vec<Delta>) {
        let bind = self.bind_of.get(pod).and_then(|bind| self.binds.get(bind));
        let owned = |bind: &&BindRecord| bind.owner.as_ref().is_none_or(|owner| *owner == draft.pod.uid);
        let waiting = draft.pod.placement.is_none() && draft.pod.deleted.is_none();
        let Some(bind) = bind.filter(owned).filter(|bind| bind.live && waiting) else { return };
        for claim in &draft.claims {
            let Some(key) = &claim.key else { continue };
            let chosen = bind.claims.iter().find(|(name, _)| *name == claim.name).map(|(_, allocation)| allocation);
            if self.devices.hold(key, &draft.pod.uid, chosen) {
                out.extend(self.devices.claim(key).map(|claim| Delta::Claim(Box::new(claim))));
            }
        }
    }

    fn release_claims(&mut self, draft: &Draft, out: &mut Vec<Delta>) {
        for key in draft.claims.iter().filter_map(|claim| claim.key.as_ref()) {
            if self.devices.release(key, &draft.pod.uid) {
                out.extend(self.devices.claim(key).map(|claim| Delta::Claim(Box::new(claim))));
            }
        }
    }

    fn tell_node(&self, node: &str, out: &mut Vec<Delta>) {
        if let Some(known) = self.nodes.get(node) {
            let numa = self.zones.get(node).map(Zones::numa);
            out.push(Delta::Node(Box::new(Node { numa, devices: self.devices.of_node(node), ..known.clone() })));
        }
    }

    fn tell_groups(&self, out: &mut Vec<Delta>) {
        let groups: BTreeSet<&String> = self.groups.keys().chain(self.implied.keys()).collect();
        out.extend(groups.into_iter().filter_map(|group| self.tell_group(group)));
    }

    fn tell_users(&self, need: &Need, out: &mut Vec<Delta>) {
        for pod in self.needs.get(need).into_iter().flatten() {
            if let Some(PodRecord::Open(draft)) = self.pods.get(pod) {
                out.push(Delta::Pod(Box::new(self.resolve(pod, draft))));
            }
        }
    }

    /// The memory of a node's GPUs became known, or is no longer.
    fn tell_memory(&self, node: &str, out: &mut Vec<Delta>) {
        let pods = self.sharing_on.get(node).into_iter().flatten();
        for pod in pods.filter_map(|bind| Some(&self.binds.get(bind)?.pod)) {
            if let Some(PodRecord::Open(draft)) = self.pods.get(pod) {
                out.push(Delta::Pod(Box::new(self.resolve(pod, draft))));
            }
        }
    }

    /// The zones of a node have other names: pods there are found in them anew, by their notes or by their BindRequests.
    fn tell_zones(&self, node: &str, out: &mut Vec<Delta>) {
        let noted = self.needs.get(&Need::Zones(node.to_owned())).into_iter().flatten();
        let foreseen = self.binds.values().filter(|bind| bind.node == node && !bind.zones.is_empty());
        let pods: BTreeSet<&String> = noted.chain(foreseen.map(|bind| &bind.pod)).collect();
        for pod in pods {
            if let Some(PodRecord::Open(draft)) = self.pods.get(pod) {
                out.push(Delta::Pod(Box::new(self.resolve(pod, draft))));
            }
        }
    }

    fn tell_volumes(&self, volume: Option<&str>, out: &mut Vec<Delta>) {
        for claim in self.volumes.claims_of(volume) {
            self.tell_users(&Need::Volume(claim), out);
        }
    }

    fn tell_stale(&self, stale: &Stale, out: &mut Vec<Delta>) {
        for node in &stale.nodes {
            self.tell_node(node, out);
        }
        for resource in &stale.resources {
            out.push(match self.devices.resource(resource) {
                Some(served) => Delta::DeviceResource(served),
                None => Delta::DeviceResourceGone(resource.clone()),
            });
        }
        for claim in &stale.claims {
            out.extend(self.devices.claim(claim).map(|claim| Delta::Claim(Box::new(claim))));
        }
    }
}

#[cfg(test)]
mod tests;
