//! Owners that were read, for as long as a pod has them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kai_kit::{Key, WorkQueue};
use kube::core::ObjectMeta;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::trimmed;
use crate::{
    owner::{Owner, Reference},
    owner_watch,
};

/// How long an owner is good whose changes nobody tells.
const UNWATCHED: Duration = Duration::from_secs(30);
/// How long an owner is good whose changes are told: a safeguard only.
const WATCHED: Duration = Duration::from_mins(10);
/// How long a whole object is good.
const OBJECT: Duration = Duration::from_secs(10);

/// An object and which one it must be. The namespace is part of it: nobody learns about an object of another
/// namespace by its uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub namespace: String,
    pub reference: Reference,
    pub uid: String,
}

/// What came of reading an owner.
#[derive(Clone, Debug)]
pub(super) enum Read {
    Owner(Arc<Owner>),
    Forbidden(String),
}

struct Known {
    read: Read,
    version: Option<u64>,
    until: Instant,
}

/// A whole object, or that it is not there.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    pub object: Option<Arc<Value>>,
    until: Instant,
}

#[derive(Default)]
struct State {
    owners: BTreeMap<Place, Known>,
    /// The pods below each owner.
    pods: BTreeMap<Place, BTreeSet<Key>>,
    /// The owners above each pod.
    above: BTreeMap<Key, BTreeSet<Place>>,
    objects: BTreeMap<(String, Reference), Whole>,
}

pub(super) struct Memory {
    state: Mutex<State>,
    queue: WorkQueue<Key>,
}

impl Memory {
    pub fn new(queue: WorkQueue<Key>) -> Self {
        Self { state: Mutex::default(), queue }
    }

    pub fn owner(&self, place: &Place) -> Option<Read> {
        let state = self.state.lock();
        let known = state.owners.get(place).filter(|known| known.until > Instant::now());
        known.map(|known| known.read.clone())
    }

    pub fn learn(&self, place: &Place, version: Option<u64>, read: Read) {
        let watched = owner_watch::is_watched(&place.reference) && matches!(read, Read::Owner(_));
        let until = Instant::now() + if watched { WATCHED } else { UNWATCHED };
        self.state.lock().owners.insert(place.clone(), Known { read, version, until });
    }

    pub fn object(&self, namespace: &str, reference: &Reference) -> Option<Whole> {
        let state = self.state.lock();
        let known = state.objects.get(&(namespace.to_owned(), reference.clone()));
        known.filter(|known| known.until > Instant::now()).cloned()
    }

    pub fn learn_object(&self, namespace: &str, reference: &Reference, object: Option<Arc<Value>>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.objects.retain(|_, known| known.until > now);
        state.objects.insert((namespace.to_owned(), reference.clone()), Whole { object, until: now + OBJECT });
    }

    /// A pod has exactly these owners. Those without pods are forgotten.
    pub fn follow(&self, pod: &Key, places: BTreeSet<Place>) {
        let mut state = self.state.lock();
        let before = if places.is_empty() {
            state.above.remove(pod)
        } else if state.above.get(pod) == Some(&places) {
            return;
        } else {
            for place in &places {
                state.pods.entry(place.clone()).or_default().insert(pod.clone());
            }
            state.above.insert(pod.clone(), places.clone())
        };
        for place in before.unwrap_or_default().difference(&places) {
            let alone = state.pods.get_mut(place).is_none_or(|pods| {
                pods.remove(pod);
                pods.is_empty()
            });
            if alone {
                state.pods.remove(place);
                state.owners.remove(place);
            }
        }
        // Owners that could not be read, or whose pods went before they were followed, have nobody to be forgotten
        // with.
        if state.owners.len() > 2 * state.pods.len() + 1024 {
            let now = Instant::now();
            let State { owners, pods, .. } = &mut *state;
            owners.retain(|place, known| pods.contains_key(place) || known.until > now);
        }
    }

    /// Takes in an object of a watched kind. If it says something else than before, its pods are asked for.
    pub fn changed(&self, api_version: &str, kind: &str, metadata: &ObjectMeta) {
        let Some(place) = place_of(api_version, kind, metadata) else { return };
        let version = version_of(metadata);
        let pods = {
            let mut state = self.state.lock();
            let Some(known) = state.owners.get_mut(&place) else { return };
            if known.version.zip(version).is_some_and(|(known, new)| new <= known) {
                return;
            }
            let owner = Arc::new(Owner::new(place.reference.clone(), trimmed(metadata.clone())));
            let same = matches!(&known.read, Read::Owner(old) if *old == owner);
            *known = Known { read: Read::Owner(owner), version, until: Instant::now() + WATCHED };
            state.objects.remove(&(place.namespace.clone(), place.reference.clone()));
            if same {
                return;
            }
            state.pods.get(&place).cloned().unwrap_or_default()
        };
        for pod in pods {
            self.queue.add(pod);
        }
    }

    /// Takes in that an object of a watched kind is gone.
    pub fn gone(&self, api_version: &str, kind: &str, metadata: &ObjectMeta) {
        if let Some(place) = place_of(api_version, kind, metadata) {
            self.unlearn(&place);
        }
    }

    /// An owner must be read again.
    pub fn unlearn(&self, place: &Place) {
        self.state.lock().owners.remove(place);
    }
}

fn place_of(api_version: &str, kind: &str, metadata: &ObjectMeta) -> Option<Place> {
    let name = metadata.name.clone()?;
    Some(Place {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        reference: Reference { api_version: api_version.to_owned(), kind: kind.to_owned(), name },
        uid: metadata.uid.clone()?,
    })
}

/// Servers count versions up; where one does not, the last word wins.
pub(super) fn version_of(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use kai_kit::backoff::Backoff;

    use super::*;

    fn metadata(version: &str, queue: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some("train".into()),
            namespace: Some("team".into()),
            uid: Some("1".into()),
            resource_version: Some(version.into()),
            labels: Some([("queue".to_owned(), queue.to_owned())].into()),
            ..ObjectMeta::default()
        }
    }

    /// A memory that knows the Job of two pods.
    fn memory() -> (Memory, WorkQueue<Key>, Place) {
        let queue = WorkQueue::new(Backoff::new(Duration::from_secs(1), Duration::from_secs(1)));
        let memory = Memory::new(queue.clone());
        let place = place_of("batch/v1", "Job", &metadata("5", "a")).unwrap();
        memory.learn(&place, Some(5), Read::Owner(Arc::new(Owner::new(place.reference.clone(), metadata("5", "a")))));
        for pod in ["one", "two"] {
            memory.follow(&Key::new("team", pod), [place.clone()].into());
        }
        (memory, queue, place)
    }

    fn queue_of(memory: &Memory, place: &Place) -> Option<String> {
        match memory.owner(place)? {
            Read::Owner(owner) => owner.labels.get("queue").cloned(),
            Read::Forbidden(_) => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_an_owner_asks_for_its_pods_and_an_old_one_for_nobody() {
        let (memory, queue, place) = memory();
        memory.changed("batch/v1", "Job", &metadata("4", "old"));
        memory.changed("batch/v1", "Job", &metadata("6", "a"));
        assert_eq!((queue_of(&memory, &place).as_deref(), queue.depth()), (Some("a"), 0));
        memory.changed("batch/v1", "Job", &metadata("7", "b"));
        assert_eq!((queue_of(&memory, &place).as_deref(), queue.depth()), (Some("b"), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_is_forgotten_with_its_last_pod() {
        let (memory, _, place) = memory();
        memory.follow(&Key::new("team", "one"), BTreeSet::new());
        assert!(memory.owner(&place).is_some());
        memory.follow(&Key::new("team", "two"), BTreeSet::new());
        assert!(memory.owner(&place).is_none());
        assert!(memory.state.lock().pods.is_empty() && memory.state.lock().above.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_is_not_known_in_another_namespace() {
        let (memory, _, place) = memory();
        assert!(memory.owner(&Place { namespace: "other".into(), ..place }).is_none());
    }
}
