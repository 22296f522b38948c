//! Watches that the parts of one process share: one stream from the server and one reading of each object, however many listen.
//!
//! ```text
//!  API server ─▶ watch of a kind ─┬─▶ listener (those objects that it wants)
//!                                 └─▶ listener
//! ```
//!
//! Nothing is kept here. Whoever begins to listen later lets the watch list once more; for those who listened before, that is a list like
//! any other.

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    fmt::Debug,
    sync::Arc,
    time::Duration,
};

use kube::{Api, Client, Resource, runtime::watcher};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::{
    Notify,
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};
use tokio_util::sync::CancellationToken;

use crate::{
    health::Health,
    lean::Lean,
    watch::{self, News, Wants},
};

/// Parts start one shortly after the other: one list is for all of them.
const GATHER: Duration = Duration::from_millis(30);

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
    pub(crate) fn listen<K>(&self, wants: Wants<K>) -> (String, UnboundedReceiver<News<Arc<K>>>)
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
            kind.listeners.lock().push(Listener { wants, tell, has_begun: false });
            kind.again.notify_one();
        }
        (name, hear)
    }
}

/// One kind that is watched.
struct SharedKind<K> {
    listeners: Mutex<Vec<Listener<K>>>,
    /// Somebody waits for a list.
    again: Notify,
}

struct Listener<K> {
    wants: Wants<K>,
    tell: UnboundedSender<News<Arc<K>>>,
    /// Whether it has heard the beginning of a list. Before that nothing makes sense to it.
    has_begun: bool,
}

impl<K> Default for SharedKind<K> {
    fn default() -> Self {
        Self { listeners: Mutex::default(), again: Notify::new() }
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
            let tell = |news| self.spread(&news);
            let mut watch =
                std::pin::pin!(watch::run(api, watcher::Config::default(), name.clone(), health, cancel, tell));
            loop {
                tokio::select! {
                    biased;
                    () = &mut watch => return,
                    // A watch that begins with a list takes the place of this one, unless this one's list is still to come.
                    () = self.again.notified() => if self.somebody_waits() { break },
                }
            }
        }
    }

    fn somebody_waits(&self) -> bool {
        self.listeners.lock().iter().any(|listener| !listener.has_begun)
    }

    fn spread(&self, news: &News<Arc<K>>) {
        let begins = matches!(news, News::Begin);
        self.listeners.lock().retain_mut(|listener| {
            listener.has_begun |= begins;
            let is_for_it = match news {
                News::Begin | News::Complete => true,
                News::Listed(object) | News::Applied(object) | News::Deleted(object) => (listener.wants)(object),
            };
            // Who no longer listens is forgotten.
            if listener.has_begun && is_for_it {
                listener.tell.send(news.clone()).is_ok()
            } else {
                !listener.tell.is_closed()
            }
        });
    }
}
