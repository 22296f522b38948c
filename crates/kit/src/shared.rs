//! Watches that the parts of one process share: one stream from the server and one reading of each object, however many listen.
//!
//! ```text
//!  API server ─▶ watch of a kind ─┬─▶ listener (those objects that it wants)
//!                  (last seen)    └─▶ listener
//! ```
//!
//! What was last seen is kept, for two ends: who does not care for a change is not told of it, and a list tells a listener only what it does
//! not know yet. Whoever begins to listen later is told at once what was last seen, and lets the watch list once more, so that it knows of
//! everything that was written before it began: it takes in the one while the other is under way. All hold the same objects, and are told by
//! the task that reads them: a listener must not wait.

use std::{
    any::{Any, TypeId},
    borrow::Cow,
    collections::BTreeMap,
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, Resource, core::WatchEvent, runtime::watcher};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    health::Health,
    lean::Lean,
    mirror::{Key, sorted},
    put_off::{self, Glance, PutOff},
    reread,
    stream::{Ear, Line, Stream},
    watch::{self, Filter, News},
};

/// Lines that were put off are read so many at once.
const CATCH_UP: usize = 64;
/// Parts start one shortly after the other: one list is for all of them.
const GATHER: Duration = Duration::from_millis(2);

/// Is told what a watch tells.
pub(crate) type Tell<K> = Box<dyn FnMut(News<Arc<K>>) + Send>;

/// Tells of a listener that panicked, and with what.
type End = oneshot::Receiver<Box<dyn Any + Send>>;

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

    /// Tells a listener what the watch of a kind tells about the objects that are wanted, beginning with a list, until what this gives is
    /// dropped. The name of the watch's condition in [`SharedWatches::health`] comes with it.
    pub(crate) fn listen<K>(&self, filter: Filter<K>, tell: Tell<K>) -> (String, End)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let name = format!("watch of {}", K::plural(&()));
        let (ended, end) = oneshot::channel();
        let mut kinds = self.kinds.lock();
        let known = kinds.entry(TypeId::of::<K>()).or_insert_with(|| {
            let kind = Arc::new(SharedKind::<K>::default());
            tokio::spawn(kind.clone().run(self.clone(), name.clone()));
            kind
        });
        if let Ok(kind) = Arc::clone(known).downcast::<SharedKind<K>>() {
            kind.state.lock().welcome(Listener { filter, tell, ended: Some(ended), stage: Stage::Waits });
            kind.again.notify_one();
        }
        (name, end)
    }
}

/// One kind that is watched.
struct SharedKind<K> {
    state: Mutex<State<K>>,
    /// Somebody waits for a list.
    again: Notify,
    /// Something was put off, and nothing was before.
    behind: Notify,
}

struct State<K> {
    listeners: Vec<Listener<K>>,
    /// What was last seen.
    objects: FxHashMap<Key, Arc<K>>,
    /// What the list under way has shown.
    listing: Option<FxHashSet<Key>>,
    put_off: PutOff,
}

struct Listener<K> {
    filter: Filter<K>,
    tell: Tell<K>,
    /// Where its end is told, should it panic. Closed once it no longer listens.
    ended: Option<oneshot::Sender<Box<dyn Any + Send>>>,
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
        let (objects, put_off) = (FxHashMap::default(), PutOff::default());
        let state = State { listeners: Vec::new(), objects, listing: None, put_off };
        Self { state: Mutex::new(state), again: Notify::new(), behind: Notify::new() }
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
            let stream = Stream::new(api, watcher::Config::default());
            let mut ear = self.as_ref();
            let mut watch = std::pin::pin!(watch::keep(stream, &mut ear, name.clone(), health, cancel));
            loop {
                tokio::select! {
                    biased;
                    () = &mut watch => return,
                    // A watch that begins with a list takes the place of this one, unless this one's list is still to come.
                    () = self.again.notified() => if self.state.lock().somebody_waits() { break },
                    () = self.until_calm() => self.catch_up().await,
                }
            }
        }
    }

    /// Returns when something was put off and the crowd is over, or has waited long enough.
    async fn until_calm(&self) {
        self.behind.notified().await;
        let begun = Instant::now();
        while begun.elapsed() < put_off::LONGEST {
            tokio::time::sleep(put_off::LOOK).await;
            if self.state.lock().put_off.is_calm() {
                return;
            }
        }
    }

    /// Reads what was put off, and lets others work in between.
    async fn catch_up(&self) {
        let lines = self.state.lock().put_off.take();
        for lines in lines.chunks(CATCH_UP) {
            self.state.lock().hear_late(lines);
            tokio::task::yield_now().await;
        }
    }
}

/// The little of an object by which it can be told whether it is known.
#[derive(Deserialize)]
struct Version<'a> {
    #[serde(borrow)]
    metadata: VersionMetadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionMetadata<'a> {
    #[serde(borrow)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
}

impl<K> Ear for &SharedKind<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
{
    fn begin(&mut self) {
        let mut state = self.state.lock();
        // Whoever was to read it may have been interrupted.
        let lines = state.put_off.take();
        state.hear_late(&lines);
        state.take(News::Begin);
    }

    fn listed(&mut self, object: &str) -> Result<(), serde_json::Error> {
        let mut state = self.state.lock();
        let known = serde_json::from_str(object).is_ok_and(|version: Version<'_>| state.lists_known(&version.metadata));
        if !known {
            let Lean(object) = serde_json::from_str::<Lean<K>>(object)?;
            state.take(News::Listed(Arc::new(object)));
        }
        Ok(())
    }

    fn complete(&mut self) {
        self.state.lock().take(News::Complete);
    }

    fn line(&mut self, line: &str) -> Result<Line, serde_json::Error> {
        let mut state = self.state.lock();
        let behind = !state.put_off.is_empty();
        if let Some(version) = state.put_off(line) {
            if !behind {
                self.behind.notify_one();
            }
            return Ok(Line::Version(version));
        }
        state.hear(line)
    }

    fn pause(&self) -> Option<Duration> {
        self.state.lock().put_off.pause()
    }
}

impl<K: Resource + DeserializeOwned + 'static> State<K> {
    /// Reads a line and tells of it.
    fn hear(&mut self, line: &str) -> Result<Line, serde_json::Error> {
        if let Some(event) = self.reread(line) {
            return Ok(watch::heard(event, |object| object, |news| self.take(news)));
        }
        let event = serde_json::from_str::<WatchEvent<Lean<K>>>(line)?;
        Ok(watch::heard(event, |Lean(object)| object, |news| self.take(news)))
    }

    /// Reads lines that were put off.
    fn hear_late(&mut self, lines: &[String]) {
        for line in lines {
            if let Err(error) = self.hear(line) {
                tracing::warn!(%error, "a line of a watch cannot be read");
            }
        }
    }

    /// Puts a line off if there is a crowd and everybody can wait for it; the version that it tells of.
    fn put_off(&mut self, line: &str) -> Option<String> {
        let pods = (&self.objects as &dyn Any).is::<FxHashMap<Key, Arc<Pod>>>();
        if !pods || !self.put_off.is_crowd() || self.listing.is_some() {
            return None;
        }
        let glance = Glance::at(line)?;
        let key = glance.key();
        let known = self.objects.get(&key).filter(|known| known.meta().uid.as_deref() == Some(glance.uid()))?;
        if !self.listeners.iter().all(|listener| listener.can_wait(known, glance.node())) {
            return None;
        }
        self.put_off.push(key, line);
        Some(glance.version().to_owned())
    }

    fn somebody_waits(&self) -> bool {
        self.listeners.iter().any(|listener| listener.stage == Stage::Waits)
    }

    /// Tells a new listener what was last seen.
    fn welcome(&mut self, mut listener: Listener<K>) {
        let known =
            sorted(&self.objects).into_iter().filter(|object| (listener.filter.wants)(object)).collect::<Vec<_>>();
        let mut list = [News::Begin].into_iter().chain(known.into_iter().map(News::Listed));
        if list.all(|news| listener.hear(news)) {
            self.listeners.push(listener);
        }
    }

    /// Whether an object of a list is known as it is: then there is nothing to tell.
    fn lists_known(&mut self, listed: &VersionMetadata<'_>) -> bool {
        let key = Key::new(listed.namespace.as_deref().unwrap_or_default(), &*listed.name);
        let version = self.objects.get(&key).and_then(|known| known.meta().resource_version.as_deref());
        let known = version == Some(&*listed.resource_version);
        if known && let Some(seen) = &mut self.listing {
            seen.insert(key);
        }
        known
    }

    /// Reads a line with the help of what is known, where that can be done.
    fn reread(&self, line: &str) -> Option<WatchEvent<K>> {
        let pods = (&self.objects as &dyn Any).downcast_ref::<FxHashMap<Key, Arc<Pod>>>()?;
        let event = reread::event(line, |key| pods.get(key).cloned())?;
        (&mut Some(event) as &mut dyn Any).downcast_mut::<Option<WatchEvent<K>>>()?.take()
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
                self.put_off.forget(&key);
                if let Some(seen) = &mut self.listing {
                    seen.insert(key.clone());
                }
                let before = self.objects.insert(key, Arc::clone(&object));
                let version = &object.meta().resource_version;
                if before.as_ref().is_none_or(|before| before.meta().resource_version != *version) {
                    self.listeners.retain_mut(|listener| listener.hear_applied(&object, before.as_deref()));
                }
            }
            News::Deleted(object) => {
                let key = Key::of(object.as_ref());
                self.put_off.forget(&key);
                self.objects.remove(&key);
                self.listeners.retain_mut(|listener| listener.hear_deleted(&object));
            }
            News::Complete => self.complete(),
        }
    }

    /// What the list did not show is gone. Those for whom it was made know what there is.
    fn complete(&mut self) {
        let seen = self.listing.take().unwrap_or_default();
        let gone: BTreeMap<Key, Arc<K>> = self.objects.extract_if(|key, _| !seen.contains(key)).collect();
        for object in gone.into_values() {
            self.listeners.retain_mut(|listener| listener.hear_deleted(&object));
        }
        self.listeners.retain_mut(|listener| {
            if listener.stage != Stage::Begun {
                return listener.listens();
            }
            listener.stage = Stage::Knows;
            listener.hear(News::Complete)
        });
    }
}

impl<K> Listener<K> {
    /// Tells it of an object that is new or changed. False if it no longer listens.
    fn hear_applied(&mut self, object: &Arc<K>, before: Option<&K>) -> bool {
        let is_news = !before.is_some_and(|before| (self.filter.is_same)(before, object));
        if is_news && (self.filter.wants)(object) {
            self.hear(News::Applied(Arc::clone(object)))
        } else {
            self.listens()
        }
    }

    /// Tells it of an object that is gone. False if it no longer listens.
    fn hear_deleted(&mut self, object: &Arc<K>) -> bool {
        if (self.filter.wants)(object) { self.hear(News::Deleted(Arc::clone(object))) } else { self.listens() }
    }

    /// Whether it can wait for the news that an object is on a node.
    fn can_wait(&self, known: &K, node: &str) -> bool {
        !(self.filter.wants)(known) || (self.filter.can_wait)(known, node)
    }

    fn listens(&self) -> bool {
        self.ended.as_ref().is_some_and(|ended| !ended.is_closed())
    }

    /// Tells it. False if it no longer listens; one that panics does so by itself.
    fn hear(&mut self, news: News<Arc<K>>) -> bool {
        if !self.listens() {
            return false;
        }
        let told = catch_unwind(AssertUnwindSafe(|| (self.tell)(news)));
        if let Err(why) = told
            && let Some(ended) = self.ended.take()
        {
            // Nobody waits for a listener that ends at the same moment.
            let _ = ended.send(why);
            return false;
        }
        true
    }
}
