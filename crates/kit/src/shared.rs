//! Watches that the parts of one process share: one stream from the server and one reading of each object, however many listen.
//!
//! ```text
//!  API server ─▶ watch of a kind ─┬─▶ listener (those objects that it wants)
//!                  (last seen)    └─▶ listener
//! ```
//!
//! What was last seen is kept, for two ends: who does not care for a change is not told of it, and a list tells a listener only what it does
//! not know yet. Whoever begins to listen later is told at once what was last seen, and lets the watch list once more, so that it knows of
//! everything that was written before it began: it takes in the one while the other is under way. All hold the same objects.

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    fmt::Debug,
    sync::Arc,
    time::Duration,
};

use kube::{Api, Client, Resource, runtime::watcher};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::de::DeserializeOwned;
use tokio::sync::{
    Notify,
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};
use tokio_util::sync::CancellationToken;

use crate::{
    health::Health,
    lean::Lean,
    mirror::{Key, sorted},
    watch::{self, IsSame, News, Wants},
};

/// Parts start one shortly after the other: one list is for all of them.
const GATHER: Duration = Duration::from_millis(10);

/// The shared watches of a process. Clones are the same.
#[derive(Clone)]
pub struct SharedWatches {
    client: Client,
    health: Health,
    cancel: CancellationToken,
    kinds: Arc<Mutex<BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>>>,
}

impl SharedWatches {
    /// None yet; each begins when somebody listens, and all end with `cancel`.
    #[must_use]
    pub fn new(client: Client, cancel: CancellationToken) -> Self {
        Self { client, cancel, health: Health::default(), kinds: Arc::default() }
    }

    /// How the watches are.
    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// What the watch of a kind tells about the objects that are wanted, beginning with a list. The name of its condition in
    /// [`SharedWatches::health`] comes with it.
    pub(crate) fn listen<K>(&self, wants: Wants<K>, is_same: IsSame<K>) -> (String, UnboundedReceiver<News<Arc<K>>>)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let name = format!("watch of {}", K::plural(&()));
        let (tell, hear) = unbounded_channel();
        let mut kinds = self.kinds.lock();
        let known = kinds.entry(TypeId::of::<K>()).or_insert_with(|| {
            let kind = Arc::new(SharedKind::<K>::default());
            tokio::spawn(kind.clone().run(self.clone(), name.clone()));
            kind
        });
        if let Ok(kind) = Arc::clone(known).downcast::<SharedKind<K>>() {
            kind.state.lock().welcome(Listener { wants, is_same, tell, stage: Stage::Waits });
            kind.again.notify_one();
        }
        (name, hear)
    }
}

/// One kind that is watched.
struct SharedKind<K> {
    state: Mutex<State<K>>,
    /// Somebody waits for a list.
    again: Notify,
}

struct State<K> {
    listeners: Vec<Listener<K>>,
    /// What was last seen.
    objects: FxHashMap<Key, Arc<K>>,
    /// What the list under way has shown.
    listing: Option<FxHashSet<Key>>,
}

struct Listener<K> {
    wants: Wants<K>,
    is_same: IsSame<K>,
    tell: UnboundedSender<News<Arc<K>>>,
    stage: Stage,
}

/// How far a listener has come. All are told what changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits for a list that begins after it came.
    Waits,
    /// That list is under way.
    Begun,
    /// It knows what there is.
    Knows,
}

impl<K> Default for SharedKind<K> {
    fn default() -> Self {
        let state = State { listeners: Vec::new(), objects: FxHashMap::default(), listing: None };
        Self { state: Mutex::new(state), again: Notify::new() }
    }
}

impl<K> SharedKind<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    async fn run(self: Arc<Self>, shared: SharedWatches, name: String) {
        loop {
            tokio::time::sleep(GATHER).await;
            let api: Api<Lean<K>> = Api::all(shared.client.clone());
            let (health, cancel) = (shared.health.clone(), shared.cancel.clone());
            let tell = |news| self.state.lock().take(news);
            let mut watch =
                std::pin::pin!(watch::run(api, watcher::Config::default(), name.clone(), health, cancel, tell));
            loop {
                tokio::select! {
                    biased;
                    () = &mut watch => return,
                    // A watch that begins with a list takes the place of this one, unless this one's list is still to come.
                    () = self.again.notified() => if self.state.lock().somebody_waits() { break },
                }
            }
        }
    }
}

impl<K: Resource> State<K> {
    fn somebody_waits(&self) -> bool {
        self.listeners.iter().any(|listener| listener.stage == Stage::Waits)
    }

    /// Tells a new listener what was last seen.
    fn welcome(&mut self, listener: Listener<K>) {
        let known = sorted(&self.objects).into_iter().filter(|object| (listener.wants)(object));
        let list = [News::Begin].into_iter().chain(known.map(News::Listed));
        // If it is gone by now it is forgotten at the next news.
        list.for_each(|news| drop(listener.tell.send(news)));
        self.listeners.push(listener);
    }

    /// Takes what the watch tells, and tells each listener what it does not know yet.
    fn take(&mut self, news: News<Arc<K>>) {
        match news {
            News::Begin => {
                self.listing = Some(FxHashSet::default());
                let waiting = self.listeners.iter_mut().filter(|listener| listener.stage == Stage::Waits);
                waiting.for_each(|listener| listener.stage = Stage::Begun);
            }
            News::Listed(object) | News::Applied(object) => {
                let key = Key::of(object.as_ref());
                if let Some(seen) = &mut self.listing {
                    seen.insert(key.clone());
                }
                let before = self.objects.insert(key, Arc::clone(&object));
                let version = &object.meta().resource_version;
                if before.as_ref().is_none_or(|before| before.meta().resource_version != *version) {
                    self.listeners.retain(|listener| listener.hear_applied(&object, before.as_deref()));
                }
            }
            News::Deleted(object) => {
                self.objects.remove(&Key::of(object.as_ref()));
                self.listeners.retain(|listener| listener.hear_deleted(&object));
            }
            News::Complete => self.complete(),
        }
    }

    /// What the list did not show is gone. Those for whom it was made know what there is.
    fn complete(&mut self) {
        let seen = self.listing.take().unwrap_or_default();
        let gone: BTreeMap<Key, Arc<K>> = self.objects.extract_if(|key, _| !seen.contains(key)).collect();
        for object in gone.into_values() {
            self.listeners.retain(|listener| listener.hear_deleted(&object));
        }
        for listener in self.listeners.iter_mut().filter(|listener| listener.stage == Stage::Begun) {
            listener.stage = Stage::Knows;
            let _ = listener.tell.send(News::Complete);
        }
    }
}

impl<K> Listener<K> {
    /// Tells it of an object that is new or changed. False if it no longer listens.
    fn hear_applied(&self, object: &Arc<K>, before: Option<&K>) -> bool {
        let is_news = !before.is_some_and(|before| (self.is_same)(before, object));
        self.hear(is_news && (self.wants)(object), || News::Applied(Arc::clone(object)))
    }

    /// Tells it of an object that is gone. False if it no longer listens.
    fn hear_deleted(&self, object: &Arc<K>) -> bool {
        self.hear((self.wants)(object), || News::Deleted(Arc::clone(object)))
    }

    fn hear(&self, is_for_it: bool, news: impl FnOnce() -> News<Arc<K>>) -> bool {
        if is_for_it { self.tell.send(news()).is_ok() } else { !self.tell.is_closed() }
    }
}
