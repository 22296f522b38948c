//! Objects of one kind as they were last seen, in memory: read without asking the server, told of by changes.
//!
//! What a component writes it also puts in here ([`Mirror::saw`]), so that its next decision knows of it before the watch does. An
//! older version that comes late never replaces a newer one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Debug},
    sync::Arc,
};

use kube::{Api, Resource, ResourceExt, runtime::watcher};
use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::de::DeserializeOwned;
use tokio::sync::watch as latest;
use tokio_util::sync::CancellationToken;

use crate::{
    health::Health,
    lean::Lean,
    process::Process,
    watch::{self, News, Selection},
};

/// Where an object is. The namespace is empty for kinds without.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Key {
    /// A key.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return formatter.write_str(&self.name);
        }
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// A difference between what was known and what is.
#[derive(Debug)]
pub enum Change<'a, K> {
    /// An object that was not there.
    Added(&'a Arc<K>),
    /// An object that was different before.
    Changed(&'a Arc<K>, &'a Arc<K>),
    /// An object that is no longer there, as it was last.
    Removed(&'a Arc<K>),
}

impl<K> Change<'_, K> {
    /// The object as it is, or as it last was.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Added(object) | Self::Changed(_, object) | Self::Removed(object) => object,
        }
    }
}

type Hear<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;
type KeysOf<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

struct State<K> {
    objects: FxHashMap<Key, Arc<K>>,
    indexes: Vec<BTreeMap<String, BTreeSet<Key>>>,
    /// While a list is being read: what it and our own writes have shown so far.
    listing: Option<FxHashSet<Key>>,
}

struct Inner<K> {
    state: RwLock<State<K>>,
    trim: Box<dyn Fn(&mut K) + Send + Sync>,
    keys: Vec<KeysOf<K>>,
    hear: Hear<K>,
    complete: latest::Sender<bool>,
}

/// The objects of one kind. Clones share them.
pub struct Mirror<K> {
    inner: Arc<Inner<K>>,
}

impl<K> Clone for Mirror<K> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

/// A way to find objects other than by their key: which of a mirror's indexes it is.
#[derive(Clone, Copy, Debug)]
pub struct Index(usize);

/// A mirror before it is started.
pub struct Builder<K> {
    trim: Box<dyn Fn(&mut K) + Send + Sync>,
    keys: Vec<KeysOf<K>>,
    hear: Hear<K>,
}

impl<K> Default for Builder<K> {
    fn default() -> Self {
        Self { trim: Box::new(|_| ()), keys: Vec::new(), hear: Box::new(|_| ()) }
    }
}

impl<K> Builder<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    /// Takes away what nobody will ask for, to save memory.
    #[must_use]
    pub fn trim(mut self, trim: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.trim = Box::new(trim);
        self
    }

    /// Tells each change to a function, after it has entered the mirror. The function must not wait.
    #[must_use]
    pub fn hear(mut self, hear: impl Fn(&Change<'_, K>) + Send + Sync + 'static) -> Self {
        self.hear = Box::new(hear);
        self
    }

    /// Makes objects findable by the strings that a function gives.
    pub fn index(&mut self, keys: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Index {
        self.keys.push(Box::new(keys));
        Index(self.keys.len() - 1)
    }

    /// A mirror that is not fed by a watch, for tests and for kinds that do not exist here.
    pub fn detached(self) -> Mirror<K> {
        let Self { trim, keys, hear } = self;
        let state = State { objects: FxHashMap::default(), indexes: vec![BTreeMap::new(); keys.len()], listing: None };
        Mirror {
            inner: Arc::new(Inner {
                state: RwLock::new(state),
                trim,
                keys,
                hear,
                complete: latest::Sender::new(false),
            }),
        }
    }

    /// Watches objects of all namespaces in the background until cancelled.
    pub fn start(self, process: &Process, selection: Selection<K>, cancel: &CancellationToken) -> Mirror<K>
    where
        K: Resource<DynamicType = ()>,
    {
        let name = format!("watch of {}", K::plural(&()));
        let mirror = self.detached();
        let feeding = mirror.clone();
        let tell = move |news| feeding.take(news);
        tokio::spawn(watch::follow(process.clone(), selection, name, cancel.clone(), tell));
        mirror
    }

    /// Watches some objects by themselves, under a name of their own in `health`.
    pub fn start_apart(
        self,
        name: &str,
        api: Api<Lean<K>>,
        config: watcher::Config,
        health: &Health,
        cancel: &CancellationToken,
    ) -> Mirror<K> {
        let mirror = self.detached();
        let name = name.to_owned();
        let feeding = mirror.clone();
        let tell = move |news| feeding.take(news);
        tokio::spawn(watch::run(api, config, name, health.clone(), cancel.clone(), tell));
        mirror
    }
}

impl<K> Mirror<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    /// A mirror to be set up and started.
    pub fn builder() -> Builder<K> {
        Builder::default()
    }

    /// Waits until the first list is complete.
    pub async fn ready(&self) {
        // The sender lives as long as this mirror.
        let _ = self.inner.complete.subscribe().wait_for(|complete| *complete).await;
    }

    /// The object at a key.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.inner.state.read().objects.get(key).cloned()
    }

    /// All objects, by key.
    pub fn all(&self) -> Vec<Arc<K>> {
        sorted(&self.inner.state.read().objects)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.inner.state.read().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The objects of which an index gives this string, by key.
    pub fn find(&self, index: Index, text: &str) -> Vec<Arc<K>> {
        let state = self.inner.state.read();
        let keys = state.indexes.get(index.0).and_then(|index| index.get(text)).into_iter().flatten();
        keys.filter_map(|key| state.objects.get(key).cloned()).collect()
    }

    /// Takes in an object that the server answered with: newer than or equal to what the watch has told.
    pub fn saw(&self, object: K) {
        self.apply(Arc::new(object));
    }

    /// Takes in that an object is gone, if it is still this one.
    pub fn lost(&self, object: &K) {
        self.remove(object);
    }

    /// Takes in what a watch tells.
    pub fn take(&self, news: News<Arc<K>>) {
        match news {
            News::Begin => self.inner.state.write().listing = Some(FxHashSet::default()),
            News::Listed(object) | News::Applied(object) => self.apply(object),
            News::Deleted(object) => self.remove(&object),
            News::Complete => {
                self.sweep();
                self.inner.complete.send_replace(true);
            }
        }
    }

    fn apply(&self, mut object: Arc<K>) {
        // What others hold too is kept as it is: a smaller copy of it would weigh more than none.
        if let Some(object) = Arc::get_mut(&mut object) {
            object.meta_mut().managed_fields = None;
            (self.inner.trim)(object);
        }
        let key = Key::of(object.as_ref());
        let old = {
            let mut state = self.inner.state.write();
            if let Some(seen) = &mut state.listing {
                seen.insert(key.clone());
            }
            let old = state.objects.get(&key).cloned();
            if old.as_ref().is_some_and(|old| !is_newer(object.as_ref(), old.as_ref())) {
                return;
            }
            self.reindex(&mut state, &key, old.as_deref(), Some(&object));
            state.objects.insert(key, Arc::clone(&object));
            old
        };
        match old {
            // The same name with another uid: one object went and another came.
            Some(old) if old.meta().uid != object.meta().uid => {
                (self.inner.hear)(&Change::Removed(&old));
                (self.inner.hear)(&Change::Added(&object));
            }
            Some(old) => (self.inner.hear)(&Change::Changed(&old, &object)),
            None => (self.inner.hear)(&Change::Added(&object)),
        }
    }

    fn remove(&self, object: &K) {
        let key = Key::of(object);
        let old = {
            let mut state = self.inner.state.write();
            let same = state.objects.get(&key).is_some_and(|old| old.meta().uid == object.meta().uid);
            if !same {
                return;
            }
            let Some(old) = state.objects.remove(&key) else { return };
            self.reindex(&mut state, &key, Some(&old), None);
            old
        };
        (self.inner.hear)(&Change::Removed(&old));
    }

    /// Takes out what a complete list did not have.
    fn sweep(&self) {
        let gone: Vec<Arc<K>> = {
            let mut state = self.inner.state.write();
            let Some(seen) = state.listing.take() else { return };
            let gone: BTreeSet<Key> = state.objects.keys().filter(|key| !seen.contains(*key)).cloned().collect();
            let mut removed = Vec::with_capacity(gone.len());
            for key in gone {
                if let Some(old) = state.objects.remove(&key) {
                    self.reindex(&mut state, &key, Some(&old), None);
                    removed.push(old);
                }
            }
            removed
        };
        for old in gone {
            (self.inner.hear)(&Change::Removed(&old));
        }
    }

    /// Lets an object be found by what it says now, and no longer by what it said.
    fn reindex(&self, state: &mut State<K>, key: &Key, old: Option<&K>, new: Option<&K>) {
        for (index, keys) in state.indexes.iter_mut().zip(&self.inner.keys) {
            let (before, after) = (old.map(keys).unwrap_or_default(), new.map(keys).unwrap_or_default());
            if before == after {
                continue;
            }
            for text in before {
                if let Some(found) = index.get_mut(&text) {
                    found.remove(key);
                    if found.is_empty() {
                        index.remove(&text);
                    }
                }
            }
            for text in after {
                index.entry(text).or_default().insert(key.clone());
            }
        }
    }
}

/// Objects in the order of their keys, whatever the order of a hash table is.
pub(crate) fn sorted<K>(objects: &FxHashMap<Key, Arc<K>>) -> Vec<Arc<K>> {
    let mut all: Vec<(&Key, &Arc<K>)> = objects.iter().collect();
    all.sort_unstable_by_key(|(key, _)| *key);
    all.into_iter().map(|(_, object)| Arc::clone(object)).collect()
}

/// Whether an object is another version than the one that is known, and not an older one. Resource versions are opaque to clients,
/// but every server counts up; where one does not, the last word wins.
fn is_newer<K: Resource>(new: &K, old: &K) -> bool {
    let version = |object: &K| object.resource_version().and_then(|text| text.parse::<u64>().ok());
    match (version(new), version(old)) {
        (Some(new), Some(old)) => new > old,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
