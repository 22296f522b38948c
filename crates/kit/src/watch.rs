//! A watch that never ends: lists, watches, and after any trouble does so again with growing pauses.
//!
//! Each event is given to a function at once and in order; nothing is kept here. Where the parts of a process share watches
//! ([`crate::shared`]), the events come from there.

use std::{fmt::Debug, panic, sync::Arc, time::Duration};

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Resource, core::WatchEvent, runtime::watcher};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::{
    backoff::Backoff,
    health::Health,
    lean::Lean,
    process::Process,
    stream::{Ear, Line, Step, Stream},
};

const PAUSES: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
/// A watch that was taken up again says nothing until something changes. After so long without an error it is taken to be there.
const CALM: Duration = Duration::from_secs(15);

/// Says of an object whether it is wanted.
pub(crate) type Wants<K> = Box<dyn Fn(&K) -> bool + Send + Sync>;

/// Says of an object as it was whether the news that it is on a node can wait.
pub(crate) type CanWait<K> = Box<dyn Fn(&K, &str) -> bool + Send + Sync>;

/// Says of an object as it was and as it is whether the difference is of no interest.
pub(crate) type IsSame<K> = fn(&K, &K) -> bool;

/// Which news a listener of a shared watch is told, and when.
pub(crate) struct Filter<K> {
    pub(crate) wants: Wants<K>,
    pub(crate) is_same: IsSame<K>,
    pub(crate) can_wait: CanWait<K>,
}

/// Which objects of a kind, of all namespaces.
pub struct Selection<K> {
    config: watcher::Config,
    /// The same for one object, for a watch that is shared. None: it cannot be shared.
    wants: Option<Wants<K>>,
    is_same: IsSame<K>,
    can_wait: CanWait<K>,
}

impl<K> Selection<K> {
    /// All of them.
    #[must_use]
    pub fn all() -> Self {
        Self {
            config: watcher::Config::default(),
            wants: Some(Box::new(|_| true)),
            is_same: |_, _| false,
            can_wait: Box::new(|_, _| false),
        }
    }

    /// In a crowd the news that an object has this node may come late, if everybody who shares the watch says so. A watch of one's own
    /// is never late.
    #[must_use]
    pub fn foretelling(self, can_wait: impl Fn(&K, &str) -> bool + Send + Sync + 'static) -> Self {
        Self { can_wait: Box::new(can_wait), ..self }
    }

    /// Changes that make no difference need not be told. A watch that is shared knows what was there before and passes over them; one of
    /// one's own tells everything.
    #[must_use]
    pub fn passing_over(self, is_same: fn(&K, &K) -> bool) -> Self {
        Self { is_same, ..self }
    }

    /// Of these only those with certain labels, which may come and go.
    #[must_use]
    pub fn labels(self, selector: &str) -> Self {
        if selector.is_empty() {
            return self;
        }
        Self { config: self.config.labels(selector), wants: None, ..self }
    }
}

impl Selection<Pod> {
    /// The pods of a scheduler. No pod ever changes its scheduler.
    #[must_use]
    pub fn of_scheduler(name: &str) -> Self {
        let config = watcher::Config::default().fields(&format!("spec.schedulerName={name}"));
        let name = name.to_owned();
        let is_its = move |pod: &Pod| {
            let scheduler = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
            scheduler == Some(name.as_str())
        };
        Self { config, wants: Some(Box::new(is_its)), ..Self::all() }
    }
}

/// Whether a pod differs from what it was only in its status and in annotations that are not read. Kubelets and network plugins write much
/// there that few read.
#[must_use]
pub fn only_status_differs(old: &Pod, new: &Pod, reads: impl Fn(&str) -> bool) -> bool {
    fn node(pod: &Pod) -> Option<&str> {
        pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())
    }
    let (was, is) = (&old.metadata, &new.metadata);
    let [noted, notes] = [was, is].map(|one| one.annotations.iter().flatten().filter(|(name, _)| reads(name)));
    // Whatever else is changed in a spec counts the generation up; a server that does not count says nothing.
    is.generation.is_some()
        && (was.generation, &was.uid, was.deletion_timestamp.is_some())
            == (is.generation, &is.uid, is.deletion_timestamp.is_some())
        && node(old) == node(new)
        && was.labels == is.labels
        && noted.eq(notes)
        && (&was.owner_references, &was.finalizers) == (&is.owner_references, &is.finalizers)
}

/// What a watch tells.
#[derive(Clone, Debug)]
pub enum News<K> {
    /// A list begins: what is not in it is gone.
    Begin,
    /// An object of the list.
    Listed(K),
    /// The list is complete.
    Complete,
    /// An object is new or changed.
    Applied(K),
    /// An object is gone.
    Deleted(K),
}

/// Watches until cancelled, together with other parts of the process if watches are shared. `name` is the condition in its health.
/// `tell` must not wait: where watches are shared, others are told after it.
pub async fn follow<K>(
    process: Process,
    selection: Selection<K>,
    name: String,
    cancel: CancellationToken,
    tell: impl FnMut(News<Arc<K>>) + Send + 'static,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let Selection { config, wants, is_same, can_wait } = selection;
    let (Some(shared), Some(wants)) = (&process.shared, wants) else {
        return run(Api::all(process.client.clone()), config, name, process.health, cancel, tell).await;
    };
    let (condition, end) = shared.listen(Filter { wants, is_same, can_wait }, Box::new(tell));
    process.health.follow(&name, shared.health(), &condition);
    tokio::select! {
        () = cancel.cancelled() => {}
        end = end => if let Ok(why) = end { panic::resume_unwind(why) },
    }
}

/// Watches until cancelled. `name` is the condition in `health`: it holds from the first complete list on, while the watch answers.
pub async fn run<K>(
    api: Api<Lean<K>>,
    config: watcher::Config,
    name: String,
    health: Health,
    cancel: CancellationToken,
    tell: impl FnMut(News<Arc<K>>) + Send,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut all = All { tell, kind: std::marker::PhantomData };
    keep(Stream::new(api, config), &mut all, name, health, cancel).await;
}

/// Goes on with a stream until cancelled, whatever happens. `name` is the condition in `health`.
pub(crate) async fn keep(
    mut stream: Stream,
    ear: &mut (impl Ear + Send),
    name: String,
    health: Health,
    cancel: CancellationToken,
) {
    health.not_ready(&name, "not listed yet");
    let mut failures = 0;
    let mut listing = true;
    loop {
        let mut step = None;
        if let Some(pause) = ear.pause().filter(|_| stream.is_watching()) {
            step = stream.step(ear).now_or_never();
            if step.is_none() {
                tokio::time::sleep(pause).await;
            }
        }
        let step = if let Some(step) = step {
            step
        } else {
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                step = stream.step(ear) => step,
                () = tokio::time::sleep(CALM), if failures > 0 && !listing => {
                    failures = 0;
                    health.ready(&name);
                    continue;
                }
            }
        };
        match step {
            Ok(Step::Silent) => {}
            // A list begins before the server has answered: only what it sends proves that it is there.
            Ok(Step::Begun) => listing = true,
            Ok(Step::Page) => failures = 0,
            Ok(Step::Told) => {
                (failures, listing) = (0, false);
                health.ready(&name);
            }
            Err(error) => {
                failures += 1;
                // A watch that ended is taken up again from where it was: that is ordinary life.
                if failures > 1 {
                    health.not_ready(&name, error.to_string());
                }
                tracing::debug!(%error, %name, failures, "watch interrupted");
                tokio::select! {
                    () = cancel.cancelled() => return,
                    () = tokio::time::sleep(PAUSES.after(failures)) => {}
                }
            }
        }
    }
}

/// Reads every object, and tells of it.
struct All<K, F> {
    tell: F,
    kind: std::marker::PhantomData<fn() -> K>,
}

impl<K: Resource + DeserializeOwned, F: FnMut(News<Arc<K>>)> Ear for All<K, F> {
    fn begin(&mut self) {
        (self.tell)(News::Begin);
    }

    fn listed(&mut self, object: &str) -> Result<(), serde_json::Error> {
        let Lean(object) = serde_json::from_str::<Lean<K>>(object)?;
        (self.tell)(News::Listed(Arc::new(object)));
        Ok(())
    }

    fn complete(&mut self) {
        (self.tell)(News::Complete);
    }

    fn line(&mut self, line: &str) -> Result<Line, serde_json::Error> {
        let event = serde_json::from_str::<WatchEvent<Lean<K>>>(line)?;
        Ok(heard(event, |Lean(object)| object, &mut self.tell))
    }
}

/// Tells of an event; gives what it says about the watch itself.
pub(crate) fn heard<T, K: Resource>(
    event: WatchEvent<T>,
    object: impl Fn(T) -> K,
    mut tell: impl FnMut(News<Arc<K>>),
) -> Line {
    let news = match event {
        WatchEvent::Added(read) | WatchEvent::Modified(read) => News::Applied(Arc::new(object(read))),
        WatchEvent::Deleted(read) => News::Deleted(Arc::new(object(read))),
        WatchEvent::Bookmark(bookmark) => return Line::Version(bookmark.metadata.resource_version),
        WatchEvent::Error(status) => return Line::Failed(status),
    };
    let (News::Applied(object) | News::Deleted(object)) = &news else { return Line::Version(String::new()) };
    let version = object.meta().resource_version.clone().unwrap_or_default();
    tell(news);
    Line::Version(version)
}
