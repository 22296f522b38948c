//! The model of the cluster: what watches told and what was decided since, as the core sees it.
//!
//! Everything that reaches the core goes through [`Model::feed`], which passes over what changes nothing. So heartbeats and our own
//! status writes start no cycle.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::BufWriter,
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kai_api::names::{bind_errors, bind_phases};
use kai_convert::{Converter, GroupNote, Kind, Object, Settings, Veto};
use kai_core::{Cluster, delta::Delta, plan::Plan, policy::Policy, time::Time};
use kai_kit::watch::News;
use kai_trace::Recorder;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::json;

use crate::{
    bind_note::{Binds, Heard, Unconfirmed},
    fingerprint,
    notes::{Notes, key_of, reference, version_of},
    reshape::Shape,
    watches::KINDS,
};

/// A group that is left out because deciding about it failed.
#[derive(Clone, Debug)]
pub(crate) struct Quarantine {
    /// What is said about it.
    pub(crate) what: String,
    /// Stands for the group as it was: another one is tried again.
    pub(crate) print: u64,
}

/// Whether it is known that a pod stays.
pub(crate) enum Stays {
    /// It is known now.
    Known,
    /// More has happened to it: it must be asked for again.
    Unsure(ObjectReference),
}

/// The model.
pub(crate) struct Model {
    /// Which objects count.
    pub(crate) settings: Settings,
    /// As what they are seen.
    shape: Shape,
    /// From objects to deltas.
    pub(crate) converter: Converter,
    /// From deltas to plans.
    pub(crate) cluster: Cluster,
    /// What is kept of pods and groups.
    pub(crate) notes: Notes,
    /// What is kept of BindRequests.
    pub(crate) binds: Binds,
    /// Pods whose deletion is being asked for, by uid.
    pub(crate) evicting: BTreeMap<String, Time>,
    /// Groups that are left out.
    pub(crate) quarantine: BTreeMap<String, Quarantine>,
    /// What is to be written on groups that are not there yet.
    put_off: FxHashMap<String, Vec<GroupNote>>,
    /// What can be written by now.
    pub(crate) due: Vec<(String, Vec<GroupNote>)>,
    /// The time, as of the last change.
    pub(crate) now: Time,
    /// Whether anything changed since the last cycle.
    pub(crate) changed: bool,
    /// All deltas since the model was begun, while a culprit is searched for.
    pub(crate) kept: Option<Vec<Delta>>,
    /// The trace.
    pub(crate) recorder: Option<Recorder<BufWriter<File>>>,
    /// Names of each kind, to see what a new list no longer has.
    names: BTreeMap<Kind, FxHashSet<(String, String)>>,
    /// Names that the list under way has not mentioned yet, and names of requests that were confirmed meanwhile.
    listing: BTreeMap<Kind, BTreeSet<(String, String)>>,
    /// Kinds whose first list is complete.
    listed: BTreeSet<Kind>,
    /// By what it is and its name, stands for the last delta about each object that the core knows; `None`: whatever comes next counts.
    prints: BTreeMap<&'static str, FxHashMap<String, Option<u64>>>,
}

impl Model {
    /// A model that knows of nothing yet.
    pub(crate) fn new(settings: Settings, shape: Shape) -> Self {
        Self {
            converter: Converter::new(settings.clone()),
            settings,
            shape,
            cluster: Cluster::new(),
            notes: Notes::default(),
            binds: Binds::default(),
            evicting: BTreeMap::new(),
            quarantine: BTreeMap::new(),
            put_off: FxHashMap::default(),
            due: Vec::new(),
            now: Time(0),
            changed: false,
            kept: None,
            recorder: None,
            names: BTreeMap::new(),
            listing: BTreeMap::new(),
            listed: BTreeSet::new(),
            prints: BTreeMap::new(),
        }
    }

    /// The same settings and unfinished writes, but nothing known: everything will be listed again, and the deltas are kept.
    pub(crate) fn begin_again(&mut self) {
        let old = std::mem::replace(self, Self::new(self.settings.clone(), self.shape.clone()));
        self.binds.unconfirmed = old.binds.unconfirmed;
        self.binds.foretold = old.binds.foretold;
        self.evicting = old.evicting;
        self.quarantine = old.quarantine;
        self.kept = Some(Vec::new());
        // A trace must begin with an empty cluster: the old one ends here.
        finish(old.recorder);
    }

    /// Whether every kind was listed.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed.len() == KINDS.len()
    }

    /// Takes what a watch told.
    pub(crate) fn take(&mut self, kind: Kind, news: News<Object>) {
        match news {
            News::Begin => {
                let known = self.names.get(&kind).into_iter().flatten().cloned();
                self.listing.insert(kind, known.collect());
            }
            News::Listed(object) => {
                if let Some(open) = self.listing.get_mut(&kind) {
                    open.remove(&name_of(&object));
                }
                self.apply(object);
            }
            News::Complete => {
                for (namespace, name) in self.listing.remove(&kind).unwrap_or_default() {
                    self.remove(kind, &namespace, &name);
                }
                if self.listed.insert(kind) {
                    self.first_list(kind);
                }
            }
            News::Applied(Object::Pod(pod)) if self.notes.knows(&pod) => {}
            News::Applied(object) => self.apply(object),
            News::Deleted(object) => {
                let (namespace, name) = name_of(&object);
                if let Object::BindRequest(request) = &object {
                    let key = format!("{namespace}/{name}");
                    if let Some(unconfirmed) = self.binds.unconfirmed.get_mut(&key) {
                        unconfirmed.heard = Some(Heard::Gone(request.metadata.uid.clone()));
                        return;
                    }
                    // The end of an older request of the same name: a newer one is known.
                    let known = self.binds.known.get(&key);
                    if known.is_some_and(|known| Some(&known.uid) != request.metadata.uid.as_ref()) {
                        return;
                    }
                }
                self.remove(kind, &namespace, &name);
            }
        }
    }

    /// Decisions that are being written are part of a model that was begun again.
    fn first_list(&mut self, kind: Kind) {
        if kind == Kind::BindRequest {
            let unconfirmed: BTreeMap<_, _> = self.binds.unconfirmed.iter().collect();
            let requests: Vec<_> = unconfirmed.into_values().map(|one| one.request.clone()).collect();
            for request in requests {
                let deltas = self.converter.apply(&Object::BindRequest(request));
                self.feed(deltas);
            }
        }
        if kind == Kind::Queue
            && let Some(queue) = self.shape.invented()
        {
            let deltas = self.converter.apply(&queue);
            self.feed(deltas);
        }
        if kind == Kind::Pod {
            for (uid, since) in self.evicting.clone() {
                let deltas = self.converter.pod_leaves(&uid, since);
                self.feed(deltas);
            }
        }
    }

    /// Puts an eviction into the model before it is written.
    pub(crate) fn evict(&mut self, uid: &str, since: Time) {
        self.evicting.insert(uid.to_owned(), since);
        let deltas = self.converter.pod_leaves(uid, since);
        self.feed(deltas);
    }

    /// Takes the news that a pod that was to be evicted stays. What was read may be older than what the watch told since.
    pub(crate) fn stays(&mut self, pod: Arc<Pod>) -> Stays {
        let key = key_of(&pod.metadata);
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let known = self.notes.pods.get(key.as_str()).filter(|known| *known.uid == uid);
        match known {
            // Gone, or not seen yet: the watch tells all there is to tell.
            None => {}
            Some(known) if known.version > version_of(&pod.metadata) => {
                return Stays::Unsure(reference("v1", "Pod", &key, &uid));
            }
            Some(_) => {
                self.converter.pod_stays(&uid);
                self.apply(Object::Pod(pod));
            }
        }
        self.evicting.remove(&uid);
        Stays::Known
    }

    /// A node is not to be tried for a pod though no BindRequest says so.
    pub(crate) fn veto(&mut self, key: &str, veto: Veto) {
        let Some(pod) = self.notes.pods.get(key) else { return };
        let (namespace, name) = key.split_once('/').unwrap_or(("default", key));
        let request = json!({"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest",
            "metadata": {"name": name, "namespace": namespace,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": &*pod.uid}]},
            "spec": {"podName": name, "selectedNode": veto.node},
            "status": {"phase": bind_phases::FAILED, "errorClass": bind_errors::REFUSED, "reason": veto.reason,
                "failedAttempts": 1,
                "nextRetry": Timestamp::from_millisecond(veto.until).unwrap_or_default().to_string()}});
        if let Ok(request) = serde_json::from_value::<kai_api::BindRequest>(request) {
            self.binds.keep(&request, None);
            let deltas = self.converter.apply(&Object::BindRequest(Arc::new(request)));
            self.feed(deltas);
        }
    }

    /// Takes an object that is new or changed.
    pub(crate) fn apply(&mut self, object: Object) {
        let (name, kind) = (name_of(&object), object.kind());
        let Some(mut object) = self.shape.see(object) else {
            self.remove(kind, &name.0, &name.1);
            return;
        };
        if let Object::BindRequest(request) = &mut object {
            self.binds.put_off(request, self.now);
        }
        match &object {
            Object::Pod(pod) => self.notes.pod(pod, &self.settings),
            Object::PodGroup(group) => {
                self.notes.group(group);
                self.due.extend(self.put_off.remove_entry(&format!("{}/{}", name.0, name.1)));
            }
            Object::Queue(queue) => self.notes.queue(queue),
            Object::BindRequest(request) => {
                let key = format!("{}/{}", name.0, name.1);
                if let Some(unconfirmed) = self.binds.unconfirmed.get_mut(&key) {
                    unconfirmed.heard = Some(Heard::There(request.clone()));
                    return;
                }
                let pool = self.settings.pool.as_ref().map(|pool| pool.label.as_str());
                self.binds.keep(request, pool);
            }
            _ => {}
        }
        let deltas = self.converter.apply(&object);
        self.feed(deltas);
        if kind == Kind::Pod {
            self.is_shown(&format!("{}/{}", name.0, name.1));
        }
        self.names.entry(kind).or_default().insert(name);
    }

    /// Takes the news that an object is gone.
    pub(crate) fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        match kind {
            Kind::Pod => {
                if let Some(group) = self.notes.pod_gone(&format!("{namespace}/{name}")) {
                    self.put_off.remove(&*group);
                }
            }
            Kind::PodGroup => {
                self.notes.group_gone(&format!("{namespace}/{name}"));
                self.quarantine.remove(&format!("{namespace}/{name}"));
            }
            Kind::BindRequest => {
                let key = format!("{namespace}/{name}");
                if self.binds.unconfirmed.contains_key(&key) {
                    // Whether it is there is what its writer is about to find out.
                    return;
                }
                self.binds.forget(&key);
            }
            Kind::Queue => drop(self.notes.display_names.remove(name)),
            _ => {}
        }
        if let Some(names) = self.names.get_mut(&kind) {
            names.remove(&(namespace.to_owned(), name.to_owned()));
        }
        let deltas = self.converter.remove(kind, namespace, name);
        self.feed(deltas);
        if kind == Kind::Pod {
            self.is_shown(&format!("{namespace}/{name}"));
        }
    }

    /// Puts a decision into the model before it is written.
    pub(crate) fn decide(&mut self, key: &str, request: Arc<kai_api::BindRequest>) {
        let deltas = self.converter.apply(&Object::BindRequest(request.clone()));
        self.binds.unconfirmed.insert(key.to_owned(), Unconfirmed { request, heard: None, placed: None });
        self.feed(deltas);
    }

    /// A pod that was decided about needs nothing but to be bound: the watch need not be quick to tell of its place.
    pub(crate) fn foretell(&mut self, key: &str, request: &kai_api::BindRequest) {
        if let (Some(note), Some(node)) = (self.notes.pods.get(key), &request.spec.selected_node) {
            self.binds.foretold.insert(key, Arc::clone(&note.uid), node);
        }
    }

    /// Takes what is there after a decision was written, or that nothing is.
    pub(crate) fn confirm(&mut self, key: &str, found: Option<Arc<kai_api::BindRequest>>) {
        let Some(unconfirmed) = self.binds.unconfirmed.remove(key) else { return };
        self.binds.foretold.remove(key);
        let version = |request: &kai_api::BindRequest| version_of(&request.metadata);
        let latest = match (found, unconfirmed.heard) {
            (Some(found), Some(Heard::There(heard))) if version(&heard) > version(&found) => Some(heard),
            // The watch may have told of its end before the answer came; or of the end of its predecessor.
            (Some(found), Some(Heard::Gone(uid))) => Some(found).filter(|found| found.metadata.uid != uid),
            (Some(found), _) => Some(found),
            (None, Some(Heard::There(heard))) => Some(heard),
            (None, _) => None,
        };
        let (namespace, name) = key.split_once('/').unwrap_or(("default", key));
        match latest {
            Some(request) => {
                // A list that began before the request was made does not know of it.
                if let Some(open) = self.listing.get_mut(&Kind::BindRequest) {
                    open.remove(&(namespace.to_owned(), name.to_owned()));
                }
                self.apply(Object::BindRequest(request));
            }
            None => self.remove(Kind::BindRequest, namespace, name),
        }
    }

    /// Takes the news that a pod was bound without a request: the decision counts until the watch shows it.
    pub(crate) fn placed(&mut self, key: &str, uid: String) {
        if let Some(unconfirmed) = self.binds.unconfirmed.get_mut(key) {
            unconfirmed.placed = Some(uid);
            self.is_shown(key);
        }
    }

    /// A decision that was carried out without a request is let go when the watch shows its pod with a node, or gone.
    fn is_shown(&mut self, key: &str) {
        let Some(uid) = self.binds.unconfirmed.get(key).and_then(|decided| decided.placed.as_ref()) else { return };
        let waits = self.notes.pods.get(key).is_some_and(|note| note.waits && *note.uid == **uid);
        if !waits {
            self.confirm(key, None);
        }
    }

    /// Puts what is written on a group into the model; whether it can be written now. If not it will be [`Self::due`].
    pub(crate) fn note(&mut self, group: &str, notes: &[GroupNote]) -> bool {
        for note in notes {
            let deltas = self.converter.group_noted(group, *note);
            self.feed(deltas);
        }
        let exists = self.notes.groups.get(group).is_some_and(|record| record.exists);
        if !exists {
            self.put_off.entry(group.to_owned()).or_default().extend(notes);
        }
        exists
    }

    /// Hands deltas to the core, but for those that change nothing.
    pub(crate) fn feed(&mut self, deltas: Vec<Delta>) {
        for mut delta in deltas {
            self.leave_out(&mut delta);
            let (what, name, says) = subject(&delta);
            let prints = self.prints.entry(what).or_default();
            let print = matches!(says, Says::This).then(|| fingerprint::of(&delta));
            let news = match (says, prints.get_mut(name)) {
                (Says::Gone, _) => prints.remove(name).is_some(),
                (Says::This, Some(known)) => std::mem::replace(known, print) != print,
                (Says::This, None) => prints.insert(name.to_owned(), print).is_none(),
                (Says::Leaves, _) => {
                    prints.insert(name.to_owned(), print);
                    true
                }
            };
            if !news {
                continue;
            }
            self.changed = true;
            if let Some(recorder) = &mut self.recorder
                && let Err(error) = recorder.delta(&delta)
            {
                tracing::warn!(%error, "recording ends");
                self.recorder = None;
            }
            if let Some(kept) = &mut self.kept {
                kept.push(delta.clone());
            }
            self.cluster.apply(delta);
        }
    }

    /// Marks groups that are left out.
    fn leave_out(&mut self, delta: &mut Delta) {
        let Delta::PodGroup(group) = delta else { return };
        let Some(quarantine) = self.quarantine.get(&group.key) else { return };
        if fingerprint::of(group) == quarantine.print {
            group.invalid = Some(quarantine.what.clone());
        } else {
            self.quarantine.remove(&group.key);
        }
    }

    /// Writes a cycle to the trace.
    pub(crate) fn record(&mut self, now: Time, policy: &Policy, plan: &Plan) {
        if let Some(recorder) = &mut self.recorder
            && let Err(error) = recorder.cycle(now, policy, plan)
        {
            tracing::warn!(%error, "recording ends");
            self.recorder = None;
        }
    }

    /// Ends the trace.
    pub(crate) fn finish(&mut self) {
        finish(self.recorder.take());
    }
}

fn finish(recorder: Option<Recorder<BufWriter<File>>>) {
    if let Some(recorder) = recorder
        && let Err(error) = recorder.finish()
    {
        tracing::warn!(%error, "the trace is not complete");
    }
}

/// Namespace and name; objects in namespaces without a written one are in `default`.
fn name_of(object: &Object) -> (String, String) {
    let (namespace, name) = object.name();
    (namespace.to_owned(), name.to_owned())
}

/// What a delta says of its object.
enum Says {
    /// How it is.
    This,
    /// That it gives back what it has. The object is still there, and what it says next counts, whatever it said before.
    Leaves,
    /// That it is no more.
    Gone,
}

/// Which object a delta is about, as what it is and its name, and what it says of it.
fn subject(delta: &Delta) -> (&'static str, &str, Says) {
    match delta {
        Delta::Node(node) => ("node", &node.name, Says::This),
        Delta::NodeGone(name) => ("node", name, Says::Gone),
        Delta::Queue(queue) => ("queue", &queue.name, Says::This),
        Delta::QueueGone(name) => ("queue", name, Says::Gone),
        Delta::PodGroup(group) => ("group", &group.key, Says::This),
        Delta::PodGroupGone(key) => ("group", key, Says::Gone),
        Delta::Pod(pod) => ("pod", &pod.uid, Says::This),
        Delta::PodLeaves { uid, .. } => ("pod", uid, Says::Leaves),
        Delta::PodGone(uid) => ("pod", uid, Says::Gone),
        Delta::Topology(topology) => ("topology", &topology.name, Says::This),
        Delta::TopologyGone(name) => ("topology", name, Says::Gone),
        Delta::Claim(claim) => ("claim", &claim.key, Says::This),
        Delta::ClaimGone(key) => ("claim", key, Says::Gone),
        Delta::DeviceResource(resource) => ("resource", &resource.resource, Says::This),
        Delta::DeviceResourceGone(name) => ("resource", name, Says::Gone),
    }
}
