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

/// An object and which one it must be. The namespace is part of it: nobody learns about an object of another namespace by its uid.
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

#[derive(Default)]
struct State {
    owners: BTreeMap<Place, Known>,
    /// The pods below each owner.
    pods: BTreeMap<Place, BTreeSet<Key>>,
    /// The owners above each pod.
    above: BTreeMap<Key, BTreeSet<Place>>,
    objects: BTreeMap<(String, Reference), (Instant, Option<Arc<Value>>)>,
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

    pub fn object(&self, namespace: &str, reference: &Reference) -> Option<Option<Arc<Value>>> {
        let state = self.state.lock();
        let (until, object) = state.objects.get(&(namespace.to_owned(), reference.clone()))?;
        (*until > Instant::now()).then(|| object.clone())
    }

    pub fn learn_object(&self, namespace: &str, reference: &Reference, object: Option<Arc<Value>>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.objects.retain(|_, (until, _)| *until > now);
        state.objects.insert((namespace.to_owned(), reference.clone()), (now + OBJECT, object));
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
        // Owners that could not be read, or whose pods went before they were followed, have nobody to be forgotten with.
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
            self.state.lock().owners.remove(&place);
        }
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
