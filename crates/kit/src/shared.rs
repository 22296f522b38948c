//! Watches that the parts of one process share: one stream from the server and one reading of each object, however many listen.
//!
//! ```text
//!  API server ─▶ watch of a kind ─┬─▶ listener (those objects that it wants)
//!                   (last seen) ──┴─▶ listener that came later: first a list of what was last seen
//! ```
//!
//! What was last seen is kept, so whoever begins to listen later costs neither the server nor the others anything. All hold the same
//! objects.

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    fmt::Debug,
    sync::Arc,
};

use kube::{Api, Client, Resource, runtime::watcher};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use crate::{
    health::Health,
    lean::Lean,
    mirror::{Key, sorted},
    watch::{self, IsSame, News, Wants},
};

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
            let spreading = Arc::clone(&kind);
            let tell = move |news| spreading.state.lock().spread(news);
            let (api, config): (Api<Lean<K>>, _) = (Api::all(self.client.clone()), watcher::Config::default());
            tokio::spawn(watch::run(api, config, name.clone(), self.health.clone(), self.cancel.clone(), tell));
            kind
        });
        if let Ok(kind) = Arc::clone(known).downcast::<SharedKind<K>>() {
            kind.state.lock().join(Listener { wants, is_same, tell });
        }
        (name, hear)
    }
}

/// One kind that is watched.
struct SharedKind<K> {
    state: Mutex<State<K>>,
}

struct State<K> {
    listeners: Vec<Listener<K>>,
    /// Those who came before a list was complete. They hear nothing until one is.
    waiting: Vec<Listener<K>>,
    /// What was last seen.
    objects: FxHashMap<Key, Arc<K>>,
    /// What the list under way has shown.
    listing: Option<FxHashSet<Key>>,
    /// Whether a list was complete and none is under way.
    complete: bool,
}

struct Listener<K> {
    wants: Wants<K>,
    is_same: IsSame<K>,
    tell: UnboundedSender<News<Arc<K>>>,
}

impl<K> Default for SharedKind<K> {
    fn default() -> Self {
        let state = State {
            listeners: Vec::new(),
            waiting: Vec::new(),
            objects: FxHashMap::default(),
            listing: None,
            complete: false,
        };
        Self { state: Mutex::new(state) }
    }
}

impl<K: Resource> State<K> {
    /// Lets somebody listen, as soon as it is known what there is.
    fn join(&mut self, listener: Listener<K>) {
        if self.complete {
            listener.list(&self.objects);
            self.listeners.push(listener);
        } else {
            self.waiting.push(listener);
        }
    }

    /// Notes what the watch tells, and hands it on.
    fn spread(&mut self, news: News<Arc<K>>) {
        let mut before = None;
        match &news {
            News::Begin => {
                self.listing = Some(FxHashSet::default());
                self.complete = false;
            }
            News::Listed(object) | News::Applied(object) => {
                let key = Key::of(object.as_ref());
                if let Some(seen) = &mut self.listing {
                    seen.insert(key.clone());
                }
                before = self.objects.insert(key, Arc::clone(object));
            }
            News::Deleted(object) => drop(self.objects.remove(&Key::of(object.as_ref()))),
            News::Complete => {
                if let Some(seen) = self.listing.take() {
                    self.objects.retain(|key, _| seen.contains(key));
                }
                self.complete = true;
            }
        }
        // Who no longer listens is forgotten.
        self.listeners.retain(|listener| listener.hear(&news, before.as_deref()));
        if self.complete && !self.waiting.is_empty() {
            for listener in &self.waiting {
                listener.list(&self.objects);
            }
            self.listeners.append(&mut self.waiting);
        }
    }
}

impl<K> Listener<K> {
    /// Tells it all there is.
    fn list(&self, objects: &FxHashMap<Key, Arc<K>>) {
        let wanted = sorted(objects).into_iter().filter(|object| (self.wants)(object));
        let list = [News::Begin].into_iter().chain(wanted.map(News::Listed)).chain([News::Complete]);
        // It may be gone already; then it is forgotten at the next news.
        list.for_each(|news| drop(self.tell.send(news)));
    }

    /// Tells it something that it wants to hear. False if it no longer listens.
    fn hear(&self, news: &News<Arc<K>>, before: Option<&K>) -> bool {
        let is_for_it = match news {
            News::Begin | News::Complete => true,
            // What is not in a list is gone, so everything in it is told.
            News::Listed(object) | News::Deleted(object) => (self.wants)(object),
            News::Applied(object) => {
                (self.wants)(object) && !before.is_some_and(|before| (self.is_same)(before, object))
            }
        };
        if is_for_it { self.tell.send(news.clone()).is_ok() } else { !self.tell.is_closed() }
    }
}
