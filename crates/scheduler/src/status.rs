//! Conditions of pods and groups: the latest wish per object is written, at most once a second, and at most every ten seconds where only
//! numbers changed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use kai_api::{PodGroup, SchedulingCondition, names::reasons};
use kai_kit::{Class, Next, Process, WorkQueue, backoff::Backoff, classify, errors::message, events::Kind, writes};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use crate::notes::reference;

/// The shortest time between two writes about one object.
const PAUSE: Duration = Duration::from_secs(1);
/// The same where only numbers changed.
const LONG_PAUSE: Duration = Duration::from_secs(10);
/// For so long a write is remembered.
const REMEMBER: Duration = Duration::from_mins(1);
/// How many wishes are taken between two rounds of forgetting.
const ROUND: u32 = 1024;

/// What is written about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// A pod, by `namespace/name`.
    Pod(Arc<str>),
    /// A group, by `namespace/name`.
    Group(Arc<str>),
}

/// What is to be shown.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// That a pod waits, and why.
    Waits {
        /// The pod's uid.
        uid: Arc<str>,
        /// Why.
        message: Arc<str>,
        /// Whether an event tells it, too. It is told before it is shown: what is shown is not said again, neither by this process nor
        /// by the next.
        event: bool,
    },
    /// That a pod has its place, where it says that it waits.
    Placed {
        /// The pod's uid.
        uid: Arc<str>,
    },
    /// The scheduling conditions of a group.
    Conditions(Vec<SchedulingCondition>),
}

#[derive(Debug, Default)]
struct Entry {
    wanted: Option<Wanted>,
    written: Option<Instant>,
    /// Stands for what was last written, without its numbers.
    cause: u64,
}

#[derive(Debug, Default)]
struct Book {
    entries: BTreeMap<Target, Entry>,
    taken: u32,
}

/// Writes conditions in the background. Clones share one book.
#[derive(Clone)]
pub(crate) struct Statuses {
    process: Process,
    leads: watch::Receiver<bool>,
    queue: WorkQueue<Target>,
    book: Arc<Mutex<Book>>,
}

impl Statuses {
    /// Nothing to be written yet.
    pub(crate) fn new(process: Process, leads: watch::Receiver<bool>) -> Self {
        let backoff = Backoff::new(PAUSE, Duration::from_secs(30));
        Self { process, leads, queue: WorkQueue::new(backoff), book: Arc::default() }
    }

    /// Wishes for something to be shown. `cause` stands for it without its numbers.
    pub(crate) fn set(&self, target: Target, wanted: Wanted, cause: u64) {
        let now = Instant::now();
        let mut book = self.book.lock();
        book.taken = book.taken.wrapping_add(1);
        if book.taken.is_multiple_of(ROUND) {
            book.entries.retain(|_, entry| {
                entry.wanted.is_some() || entry.written.is_some_and(|written| now - written < REMEMBER)
            });
        }
        let entry = book.entries.entry(target.clone()).or_default();
        entry.wanted = Some(wanted);
        let pause = if entry.cause == cause { LONG_PAUSE } else { PAUSE };
        entry.cause = cause;
        let wait = entry.written.map_or(Duration::ZERO, |written| (written + pause).saturating_duration_since(now));
        drop(book);
        if wait.is_zero() {
            self.queue.add(target);
        } else {
            self.queue.add_after(target, wait);
        }
    }

    /// Takes a wish back that was not begun to be written. Whether there was one.
    pub(crate) fn withdraw(&self, target: &Target) -> bool {
        self.book.lock().entries.get_mut(target).and_then(|entry| entry.wanted.take()).is_some()
    }

    /// Writes until the process ends.
    pub(crate) async fn run(self, workers: usize) {
        self.queue.run(workers, &self.process.cancel, |target| self.write(target)).await;
    }

    async fn write(&self, target: Target) -> Next {
        let mut wanted = {
            let mut book = self.book.lock();
            let Some(entry) = book.entries.get_mut(&target) else { return Next::Done };
            let Some(wanted) = entry.wanted.take() else { return Next::Done };
            entry.written = Some(Instant::now());
            wanted
        };
        if !*self.leads.borrow() {
            return Next::Done;
        }
        if let (Target::Pod(key), Wanted::Waits { uid, message, event }) = (&target, &mut wanted)
            && std::mem::take(event)
        {
            let about = reference("v1", "Pod", key, uid);
            let (kind, reason) = (Kind::Warning, reasons::UNSCHEDULABLE);
            self.process.events.tell_first(about, kind, reason, &**message, BTreeMap::new()).await;
        }
        let result = match (&target, &wanted) {
            (Target::Pod(key), Wanted::Waits { uid, message, .. }) => {
                let fields = json!({"status": "False", "reason": reasons::UNSCHEDULABLE, "message": &**message});
                self.write_pod(key, uid, fields).await
            }
            (Target::Pod(key), Wanted::Placed { uid }) => {
                let fields = json!({"status": "True", "reason": null, "message": null});
                self.write_pod(key, uid, fields).await
            }
            (Target::Group(key), Wanted::Conditions(conditions)) => self.write_group(key, conditions).await,
            _ => Ok(()),
        };
        match result {
            Ok(()) => Next::Done,
            Err(error) => match classify(&error) {
                // Another object by now, or one that was being changed.
                Class::Conflict if self.is_still(&target, &wanted).await => {
                    self.book.lock().entries.entry(target).or_default().wanted.get_or_insert(wanted);
                    Next::Failed(message(&error))
                }
                Class::Gone | Class::Conflict | Class::Refused | Class::Exists => {
                    tracing::debug!(%error, ?target, "condition not written");
                    Next::Done
                }
                Class::Unauthorized | Class::Transient => {
                    // A newer wish wins.
                    self.book.lock().entries.entry(target).or_default().wanted.get_or_insert(wanted);
                    Next::Failed(message(&error))
                }
            },
        }
    }

    /// Whether the object that something was to be written on is there, as far as can be told.
    async fn is_still(&self, target: &Target, wanted: &Wanted) -> bool {
        let (Target::Pod(key), Wanted::Waits { uid, .. } | Wanted::Placed { uid }) = (target, wanted) else {
            return true;
        };
        let (namespace, name) = key.split_once('/').unwrap_or(("default", key));
        let api: Api<Pod> = Api::namespaced(self.process.client.clone(), namespace);
        match api.get_metadata_opt(name).await {
            Ok(found) => found.is_some_and(|found| found.metadata.uid.as_deref() == Some(&**uid)),
            Err(_) => true,
        }
    }

    async fn write_pod(&self, key: &str, uid: &str, mut condition: Value) -> Result<(), kube::Error> {
        let (namespace, name) = key.split_once('/').unwrap_or(("default", key));
        let api: Api<Pod> = Api::namespaced(self.process.client.clone(), namespace);
        condition["type"] = json!("PodScheduled");
        condition["lastTransitionTime"] = json!(Time(self.process.now()));
        // With the uid a pod of the same name that came later is not hit. Strategic: other conditions stay.
        let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
        let parameters =
            PatchParams { field_manager: Some(self.process.component.to_owned()), ..PatchParams::default() };
        api.patch_status(name, &parameters, &Patch::Strategic(patch)).await.map(drop)
    }

    async fn write_group(&self, key: &str, conditions: &[SchedulingCondition]) -> Result<(), kube::Error> {
        let (namespace, name) = key.split_once('/').unwrap_or(("default", key));
        let api: Api<PodGroup> = Api::namespaced(self.process.client.clone(), namespace);
        let patch = json!({"status": {"schedulingConditions": conditions}});
        writes::merge_status(&api, self.process.component, name, &patch).await.map(drop)
    }
}
