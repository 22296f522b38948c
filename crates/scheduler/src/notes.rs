//! The little that is kept of pods and groups: what writing about them needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::{ObjectReference, Pod, PodSpec, Volume},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kai_api::{PodGroup, Queue, SchedulingCondition};
use kai_convert::Settings;
use kube::{Resource as _, ResourceExt as _};

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
    pub(crate) pods: BTreeMap<Arc<str>, PodNote>,
    /// Groups by `namespace/name`.
    pub(crate) groups: BTreeMap<Arc<str>, GroupRecord>,
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

impl Notes {
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
        self.pods.insert(key, PodNote { uid, group, tied, version, waits, plain, seen, told });
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
