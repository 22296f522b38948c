//! The little that is kept of pods and groups: what writing about them needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hash,
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::{ObjectReference, Pod, PodSpec, Volume},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kai_api::{PodGroup, Queue, SchedulingCondition, names::annotations};
use kai_convert::Settings;
use kube::{Resource as _, ResourceExt as _};
use rustc_hash::FxHashMap;

use crate::fingerprint;

/// What is kept of a pod of this scheduler.
#[derive(Debug)]
pub(crate) struct PodNote {
    /// Its uid.
    pub(crate) uid: Arc<str>,
    /// `namespace/name` of its group.
    pub(crate) group: Option<Arc<str>>,
    /// Whether it names that group itself.
    pub(crate) tied: bool,
    /// Which version of it was seen last.
    pub(crate) version: u64,
    /// Whether it waits for a node.
    pub(crate) waits: bool,
    /// Whether nothing must be prepared before it is bound: it has neither volumes that are claimed nor claims of devices.
    pub(crate) plain: bool,
    /// Stands for the condition it shows; 0: none.
    pub(crate) seen: u64,
    /// Stands for the condition it was told to show, which may not be seen yet; 0: none.
    pub(crate) told: u64,
    /// Stands for all that counts of it once it has its node.
    print: Option<u64>,
}

/// What is kept of a group.
#[derive(Debug)]
pub(crate) struct GroupRecord {
    /// Its uid.
    pub(crate) uid: String,
    /// Why it waits, as it shows.
    pub(crate) conditions: Vec<SchedulingCondition>,
    /// Whether waiting pods are told.
    pub(crate) mark: bool,
    /// Whether it is given up on this node pool after one cycle.
    pub(crate) gives_up: bool,
    /// Its pods, by `namespace/name`.
    pub(crate) pods: BTreeSet<Arc<str>>,
    /// Whether the object itself was seen; otherwise only pods have named it.
    pub(crate) exists: bool,
    /// Stands for what it was last told; 0: nothing.
    pub(crate) told: u64,
}

/// All that is kept.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Pods of this scheduler by `namespace/name`.
    pub(crate) pods: FxHashMap<Arc<str>, PodNote>,
    /// Groups by `namespace/name`.
    pub(crate) groups: FxHashMap<Arc<str>, GroupRecord>,
    /// Groups that show why they wait, or were told to.
    pub(crate) explained: BTreeSet<Arc<str>>,
    /// The names by which people know queues, where they have others.
    pub(crate) display_names: BTreeMap<String, String>,
    /// Pods that have their place and still say that they wait, for that was written too late; and whether they are being corrected.
    pub(crate) misled: BTreeMap<Arc<str>, bool>,
}

/// Stands for a condition of a pod.
pub(crate) fn condition_print(status: &str, reason: &str, message: &str) -> u64 {
    fingerprint::of(&(status, reason, message)).max(1)
}

/// All of a pod with a node that anybody here reads: kubelets write much that nobody does. None: it is to be read in full.
fn read(pod: &Pod) -> Option<impl PartialEq + Hash> {
    let (metadata, spec, status) = (&pod.metadata, pod.spec.as_ref()?, pod.status.as_ref()?);
    // Whatever else is changed in the spec counts the generation up.
    let (node, generation) = (spec.node_name.as_ref().filter(|node| !node.is_empty())?, metadata.generation?);
    if status.resource_claim_statuses.is_some() {
        return None;
    }
    let shown = status.conditions.iter().flatten().find(|condition| condition.type_ == "PodScheduled");
    let shown = shown.map(|shown| (&shown.status, &shown.reason, &shown.message));
    let owners = metadata.owner_references.as_ref().map_or(0, Vec::len);
    let deleted = metadata.deletion_timestamp.as_ref().map(|deleted| deleted.0);
    let notes = metadata.annotations.iter().flatten().filter(|(name, _)| annotations::may_be_read(name));
    let says = (&metadata.uid, &metadata.labels, notes.collect::<Vec<_>>(), owners, deleted);
    Some((says, node, generation, &status.phase, &status.nominated_node_name, &status.qos_class, shown))
}

/// Whether nothing is new of a pod with a node that anybody here reads.
pub(crate) fn is_same(old: &Pod, new: &Pod) -> bool {
    read(new).is_some_and(|new| read(old).is_some_and(|old| old == new))
}

/// Stands for what is read of a pod with a node.
fn print_of(pod: &Pod) -> Option<u64> {
    read(pod).map(|read| fingerprint::of(&read))
}

impl Notes {
    /// Whether nothing that counts of a pod is new. That it was seen is noted.
    pub(crate) fn knows(&mut self, pod: &Pod) -> bool {
        let Some(print) = print_of(pod) else { return false };
        let Some(note) = self.pods.get_mut(key_of(&pod.metadata).as_str()) else { return false };
        let same = note.print == Some(print);
        if same {
            note.version = version_of(&pod.metadata);
        }
        same
    }

    /// Takes a pod that is new or changed.
    pub(crate) fn pod(&mut self, pod: &Pod, settings: &Settings) {
        let key: Arc<str> = key_of(&pod.metadata).into();
        let spec = pod.spec.as_ref();
        let ours = spec.and_then(|spec| spec.scheduler_name.as_ref()) == Some(&settings.scheduler);
        if !ours {
            self.pod_gone(&key);
            return;
        }
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
        let placed = spec.and_then(|spec| spec.node_name.as_ref()).is_some_and(|node| !node.is_empty());
        let uid: Arc<str> = pod.metadata.uid.clone().unwrap_or_default().into();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let group: Option<Arc<str>> = kai_api::group_of(pod).map(|name| format!("{namespace}/{name}").into());
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let shown = conditions.iter().find(|condition| condition.type_ == "PodScheduled");
        let ended = matches!(phase, "Succeeded" | "Failed") || pod.metadata.deletion_timestamp.is_some();
        if placed && !ended && shown.is_some_and(|condition| condition.status == "False") {
            self.misled.entry(Arc::clone(&key)).or_insert(false);
        } else {
            self.misled.remove(&key);
        }
        let seen = shown.map_or(0, |condition| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            condition_print(&condition.status, &text(&condition.reason), &text(&condition.message))
        });
        let old = self.pods.remove(&key);
        if let Some(old) = old.as_ref().filter(|old| old.group != group) {
            self.leave(&key, old.group.as_ref());
        }
        let told = old.as_ref().filter(|old| old.uid == uid).map_or(0, |old| old.told);
        let waits = !placed && phase == "Pending" && pod.metadata.deletion_timestamp.is_none();
        if let Some(group) = &group {
            let record = self.groups.entry(Arc::clone(group)).or_insert_with(GroupRecord::unseen);
            record.pods.insert(Arc::clone(&key));
        }
        let version = version_of(&pod.metadata);
        let plain = spec.is_some_and(is_plain);
        let tied = kai_api::named_group(pod).is_some();
        self.pods.insert(key, PodNote { uid, group, tied, version, waits, plain, seen, told, print: print_of(pod) });
    }

    /// Takes the news that a pod is gone; gives its group.
    pub(crate) fn pod_gone(&mut self, key: &str) -> Option<Arc<str>> {
        self.misled.remove(key);
        let group = self.pods.remove(key)?.group;
        self.leave(key, group.as_ref());
        group
    }

    fn leave(&mut self, pod: &str, group: Option<&Arc<str>>) {
        let Some(group) = group else { return };
        if let Some(record) = self.groups.get_mut(group) {
            record.pods.remove(pod);
            if record.pods.is_empty() && !record.exists {
                self.groups.remove(group);
            }
        }
    }

    /// Takes a group that is new or changed.
    pub(crate) fn group(&mut self, group: &PodGroup) {
        let key: Arc<str> = key_of(&group.metadata).into();
        let record = self.groups.entry(Arc::clone(&key)).or_insert_with(GroupRecord::unseen);
        let uid = group.metadata.uid.clone().unwrap_or_default();
        if record.uid != uid {
            record.told = 0;
        }
        record.uid = uid;
        record.exists = true;
        record.mark = group.spec.mark_unschedulable.unwrap_or(true);
        record.gives_up = group.spec.scheduling_backoff == Some(1);
        record.conditions =
            group.status.as_ref().map(|status| status.scheduling_conditions.clone()).unwrap_or_default();
        if !record.conditions.is_empty() {
            self.explained.insert(key);
        }
    }

    /// Takes the news that a group is gone.
    pub(crate) fn group_gone(&mut self, key: &str) {
        self.explained.remove(key);
        let Some(record) = self.groups.get_mut(key) else { return };
        record.exists = false;
        record.conditions.clear();
        record.told = 0;
        if record.pods.is_empty() {
            self.groups.remove(key);
        }
    }

    /// Forgets what was told: another replica may have said something else meanwhile.
    pub(crate) fn forget_told(&mut self) {
        for note in self.pods.values_mut() {
            note.told = 0;
        }
        for record in self.groups.values_mut() {
            record.told = 0;
        }
        for corrected in self.misled.values_mut() {
            *corrected = false;
        }
    }

    /// What events about a pod refer to.
    pub(crate) fn pod_reference(&self, key: &str) -> Option<ObjectReference> {
        let note = self.pods.get(key)?;
        Some(reference("v1", "Pod", key, &note.uid))
    }

    /// Takes in a queue.
    pub(crate) fn queue(&mut self, queue: &Queue) {
        let name = queue.name_any();
        match queue.spec.display_name.clone().filter(|display| !display.is_empty()) {
            Some(display) => drop(self.display_names.insert(name, display)),
            None => drop(self.display_names.remove(&name)),
        }
    }

    /// What events about a group refer to.
    pub(crate) fn group_reference(&self, key: &str) -> Option<ObjectReference> {
        let record = self.groups.get(key).filter(|record| record.exists)?;
        Some(reference(&PodGroup::api_version(&()), "PodGroup", key, &record.uid))
    }
}

impl GroupRecord {
    fn unseen() -> Self {
        Self {
            uid: String::new(),
            conditions: Vec::new(),
            mark: true,
            gives_up: false,
            pods: BTreeSet::new(),
            exists: false,
            told: 0,
        }
    }
}

fn is_plain(spec: &PodSpec) -> bool {
    let mut volumes = spec.volumes.iter().flatten();
    let claimed = |volume: &Volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
    !volumes.any(claimed) && spec.resource_claims.as_ref().is_none_or(Vec::is_empty)
}

/// A reference to an object by `namespace/name`.
pub(crate) fn reference(api_version: &str, kind: &str, key: &str, uid: &str) -> ObjectReference {
    let (namespace, name) = key.split_once('/').map_or((None, key), |(namespace, name)| (Some(namespace), name));
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        namespace: namespace.map(str::to_owned),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// The version of an object; later ones are greater.
pub(crate) fn version_of(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// `namespace/name` of an object in a namespace.
pub(crate) fn key_of(metadata: &ObjectMeta) -> String {
    let namespace = metadata.namespace.as_deref().unwrap_or("default");
    format!("{namespace}/{}", metadata.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use kai_convert::{Converter, Object};
    use kai_core::delta::Delta;
    use serde_json::{Value, json};

    use super::*;

    fn pod(value: &Value) -> Pod {
        serde_json::from_value(value.clone()).expect("a pod")
    }

    fn bound() -> Value {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "team", "uid": "u", "generation": 1, "resourceVersion": "5",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"kai.scheduler/queue": "q"}, "annotations": {"pod-group-name": "g"}},
            "spec": {"schedulerName": "kai-scheduler", "nodeName": "n", "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Pending", "qosClass": "Burstable", "conditions": [{"type": "PodScheduled", "status": "True"}]}})
    }

    /// What the core is told of a pod, read in full.
    fn told(before: &Value, after: &Value) -> (Vec<Delta>, Vec<Delta>) {
        let mut converter = Converter::new(Settings::default());
        let mut apply = |value: &Value| converter.apply(&Object::Pod(Arc::new(pod(value))));
        (apply(before), apply(after))
    }

    #[test]
    fn what_kubelets_write_is_passed_over_only_where_reading_it_would_tell_nothing_new() {
        let nothing_new = [
            (
                "/status/containerStatuses",
                json!([{"name": "c", "ready": false, "restartCount": 0, "image": "i", "imageID": ""}]),
            ),
            ("/status/hostIP", json!("10.0.0.1")),
            ("/status/startTime", json!("2026-01-01T00:00:01Z")),
            ("/metadata/resourceVersion", json!("6")),
            ("/metadata/annotations", json!({"pod-group-name": "g", "cni.projectcalico.org/podIP": "10.0.0.1/32"})),
        ];
        let news = [
            ("/metadata/uid", json!("v")),
            ("/metadata/generation", json!(2)),
            ("/metadata/generation", Value::Null),
            ("/metadata/labels", json!({"kai.scheduler/queue": "other"})),
            ("/metadata/annotations", json!({"pod-group-name": "other"})),
            ("/metadata/deletionTimestamp", json!("2026-01-01T00:01:00Z")),
            ("/metadata/ownerReferences", json!([{"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "j"}])),
            ("/spec/nodeName", json!("m")),
            ("/spec/nodeName", Value::Null),
            ("/status/phase", json!("Running")),
            ("/status/phase", json!("Failed")),
            ("/status/nominatedNodeName", json!("m")),
            ("/status/qosClass", json!("Guaranteed")),
            ("/status/resourceClaimStatuses", json!([{"name": "c", "resourceClaimName": "d"}])),
            ("/status/conditions", json!([{"type": "PodScheduled", "status": "False"}])),
        ];
        let cases = nothing_new.map(|case| (case, true)).into_iter().chain(news.map(|case| (case, false)));
        for ((place, value), expected) in cases {
            let mut after = bound();
            let (parent, field) = place.rsplit_once('/').expect("a path");
            after.pointer_mut(parent).expect("an object")[field] = value.clone();
            let mut notes = Notes::default();
            notes.pod(&pod(&bound()), &Settings::default());
            assert_eq!(notes.knows(&pod(&after)), expected, "{place} {value}");
            assert_eq!(is_same(&pod(&bound()), &pod(&after)), expected, "{place} {value}");
            let (old, new) = told(&bound(), &after);
            assert!(!expected || old == new, "{place} {value} tells {new:?}");
        }
    }

    #[test]
    fn a_pod_without_a_node_is_always_read() {
        let mut waiting = bound();
        waiting["spec"]["nodeName"] = Value::Null;
        let mut notes = Notes::default();
        notes.pod(&pod(&waiting), &Settings::default());
        assert!(!notes.knows(&pod(&waiting)) && !is_same(&pod(&waiting), &pod(&waiting)));
        assert!(!Notes::default().knows(&pod(&bound())));
    }
}
