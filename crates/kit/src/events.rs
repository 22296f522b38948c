//! Events for users: written in the background, counted instead of repeated, never in the way.
//!
//! An event that was written with the same words about the same object is written again as a higher count, at most once a minute.
//! Warnings come first; in a flood the others wait until it ebbs and are then written slowly, for the server has better things to do. If more
//! wait than can be written, the newest are dropped: events are advice. The few that must not be lost with the process are written before
//! what they tell of is done ([`Recorder::tell_first`]).

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time},
};
use kai_clock::Clock;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    backoff::Backoff,
    errors::{Class, classify},
    writes,
};

/// How many may wait to be written.
const WAITING: usize = 10_000;
/// If more good news than this wait it is a flood.
const FLOOD: usize = 32;
/// The pause before each of a flood.
const SLOWLY: Duration = Duration::from_millis(10);
/// A flood in which nothing came for so long ebbs.
const LULL: Duration = Duration::from_millis(500);
/// A flood that does not ebb is waited for so long.
const LONGEST_FLOOD: Duration = Duration::from_secs(30);
/// The longest message a server takes.
const LONGEST: usize = 1024;
/// How often a repeated event is counted up on the server.
const COUNT_UP: SignedDuration = SignedDuration::from_mins(1);
/// How often old events are forgotten: looking through all of them for each new one would cost more than writing it.
const SWEEP: SignedDuration = SignedDuration::from_mins(1);
/// After this time the same words are a new event.
const FORGET: SignedDuration = SignedDuration::from_mins(30);
/// How often one event is tried: a server that is away for a minute is waited for.
const TRIES: u32 = 20;
const PAUSES: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Whether an event tells of good or bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `Normal`.
    Normal,
    /// `Warning`.
    Warning,
}

#[derive(Debug)]
struct Note {
    at: Timestamp,
    about: ObjectReference,
    kind: Kind,
    reason: &'static str,
    message: String,
    annotations: BTreeMap<String, String>,
}

/// Takes events to be written. Clones share one writer.
#[derive(Clone)]
pub struct Recorder {
    warnings: mpsc::Sender<Note>,
    news: mpsc::Sender<Note>,
    dropped: Arc<AtomicU64>,
    last_news: LastNews,
    client: Client,
    clock: Clock,
    component: &'static str,
    known: Known,
}

/// When good news were told last.
type LastNews = Arc<Mutex<Instant>>;

impl Recorder {
    /// Starts a writer that ends when cancelled.
    pub fn start(client: Client, clock: Clock, component: &'static str, cancel: CancellationToken) -> Self {
        let (warnings, mut warned) = mpsc::channel(WAITING);
        let (news, waiting) = mpsc::channel(WAITING);
        let last_news: LastNews = Arc::new(Mutex::new(Instant::now()));
        let mut waiting = Waiting { news: waiting, last_news: Arc::clone(&last_news), flooded: None };
        let known = Known::default();
        let mut writer =
            Writer { client: client.clone(), clock, component, known: Arc::clone(&known), swept: clock.now() };
        tokio::spawn(async move {
            let work = async {
                loop {
                    let note = tokio::select! {
                        biased;
                        note = warned.recv() => note,
                        note = waiting.next() => note,
                    };
                    let Some(note) = note else { return };
                    writer.write(note).await;
                }
            };
            tokio::select! {
                () = cancel.cancelled() => {}
                () = work => {}
            }
        });
        Self { warnings, news, dropped: Arc::default(), last_news, client, clock, component, known }
    }

    /// Tells something about an object.
    pub fn tell<K: Resource<DynamicType = ()>>(
        &self,
        about: &K,
        kind: Kind,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.tell_of(about.object_ref(&()), kind, reason, message, BTreeMap::new());
    }

    /// Tells something about an object that is only referred to, with annotations for programs.
    pub fn tell_of(
        &self,
        about: ObjectReference,
        kind: Kind,
        reason: &'static str,
        message: impl Into<String>,
        annotations: BTreeMap<String, String>,
    ) {
        let note = Note { at: self.clock.now(), about, kind, reason, message: message.into(), annotations };
        let queue = if kind == Kind::Warning {
            &self.warnings
        } else {
            *self.last_news.lock() = Instant::now();
            &self.news
        };
        if queue.try_send(note).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Tells something before it is done: whoever dies after doing it has told it. Waits until the server has it or will not have it.
    pub async fn tell_first(
        &self,
        about: ObjectReference,
        kind: Kind,
        reason: &'static str,
        message: impl Into<String>,
        annotations: BTreeMap<String, String>,
    ) {
        let now = self.clock.now();
        let note = Note { at: now, about, kind, reason, message: message.into(), annotations };
        let key = key_of(&note);
        let api: Api<Event> = Api::namespaced(self.client.clone(), &key.0);
        if self.known.lock().contains_key(&key) {
            // The server has these words; that they were said again is counted behind.
            self.tell_of(note.about, note.kind, note.reason, note.message, note.annotations);
        } else if create(&api, self.component, &event(self.component, &note, &key)).await {
            self.known.lock().insert(key, Written { count: 1, told: now });
        }
    }

    /// How many could not be taken.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Good news that wait to be written.
struct Waiting {
    news: mpsc::Receiver<Note>,
    last_news: LastNews,
    /// Since when more wait than [`FLOOD`].
    flooded: Option<Instant>,
}

impl Waiting {
    /// The next to be written, when it may be. Whoever does not wait for the answer loses nothing.
    async fn next(&mut self) -> Option<Note> {
        loop {
            if self.news.len() <= FLOOD {
                self.flooded = None;
                return self.news.recv().await;
            }
            let since = *self.flooded.get_or_insert_with(Instant::now);
            let ebb = (*self.last_news.lock() + LULL).min(since + LONGEST_FLOOD);
            if ebb <= Instant::now() {
                sleep(SLOWLY).await;
                return self.news.recv().await;
            }
            sleep_until(ebb).await;
        }
    }
}

/// What the server was told, by namespace and name of the event.
type Known = Arc<Mutex<BTreeMap<(String, String), Written>>>;

#[derive(Debug)]
struct Written {
    count: i32,
    /// When the server last heard of it.
    told: Timestamp,
}

struct Writer {
    client: Client,
    clock: Clock,
    component: &'static str,
    known: Known,
    swept: Timestamp,
}

impl Writer {
    async fn write(&mut self, note: Note) {
        let now = self.clock.now();
        if now.duration_since(self.swept) >= SWEEP {
            self.known.lock().retain(|_, written| now.duration_since(written.told) < FORGET);
            self.swept = now;
        }
        let key = key_of(&note);
        let api: Api<Event> = Api::namespaced(self.client.clone(), &key.0);
        let count = self.known.lock().get_mut(&key).map(|written| {
            written.count = written.count.saturating_add(1);
            (written.count, now.duration_since(written.told) >= COUNT_UP)
        });
        if let Some((count, is_due)) = count {
            if is_due {
                self.count_up(&api, key, count, now).await;
            }
            return;
        }
        if create(&api, self.component, &event(self.component, &note, &key)).await {
            self.known.lock().insert(key, Written { count: 1, told: now });
        }
    }

    async fn count_up(&self, api: &Api<Event>, key: (String, String), count: i32, now: Timestamp) {
        let patch = json!({"count": count, "lastTimestamp": Time(now)});
        let answer = writes::merge(api, self.component, &key.1, &patch).await;
        let mut known = self.known.lock();
        match answer {
            Ok(_) => drop(known.get_mut(&key).map(|written| written.told = now)),
            Err(error) if classify(&error) == Class::Gone => drop(known.remove(&key)),
            Err(error) => tracing::debug!(%error, "event not counted up"),
        }
    }
}

/// Writes a new event. False if the server does not take it.
async fn create(api: &Api<Event>, component: &str, event: &Event) -> bool {
    for failures in 1..=TRIES {
        let Err(error) = writes::create(api, component, event).await else { return true };
        match classify(&error) {
            // Written before a restart, or the answer was lost.
            Class::Exists => return true,
            Class::Conflict | Class::Transient => sleep(PAUSES.after(failures)).await,
            Class::Gone | Class::Refused | Class::Unauthorized => {
                tracing::debug!(%error, reason = event.reason, "event not written");
                return false;
            }
        }
    }
    false
}

fn event(component: &str, note: &Note, (namespace, name): &(String, String)) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            annotations: (!note.annotations.is_empty()).then(|| note.annotations.clone()),
            ..ObjectMeta::default()
        },
        involved_object: note.about.clone(),
        type_: Some(
            match note.kind {
                Kind::Normal => "Normal",
                Kind::Warning => "Warning",
            }
            .to_owned(),
        ),
        reason: Some(note.reason.to_owned()),
        message: Some(shortened(&note.message)),
        action: Some(note.reason.to_owned()),
        count: Some(1),
        event_time: Some(MicroTime(note.at)),
        first_timestamp: Some(Time(note.at)),
        last_timestamp: Some(Time(note.at)),
        source: Some(EventSource { component: Some(component.to_owned()), host: None }),
        reporting_component: Some(component.to_owned()),
        reporting_instance: Some(component.to_owned()),
        ..Event::default()
    }
}

/// Namespace and name of the event.
fn key_of(note: &Note) -> (String, String) {
    (note.about.namespace.clone().unwrap_or_else(|| "default".to_owned()), name_of(note))
}

/// The same words about the same object have the same name, so that a restart repeats nothing.
fn name_of(note: &Note) -> String {
    let mut hash = Sha256::new();
    for part in [note.about.uid.as_deref().unwrap_or_default(), note.reason, &note.message] {
        hash.update(part);
        hash.update([0]);
    }
    let digest = hash.finalize();
    let short = digest.iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let object: String = note.about.name.as_deref().unwrap_or("object").chars().take(230).collect();
    format!("{}.{short:016x}", object.trim_end_matches(['.', '-']))
}

fn shortened(message: &str) -> String {
    if message.len() <= LONGEST {
        return message.to_owned();
    }
    let end = (0..=LONGEST - 4).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    format!("{} …", message.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let cut = shortened(&"ä".repeat(900));
        assert!(cut.len() <= LONGEST && cut.ends_with('…'));
        assert_eq!(shortened("short"), "short");
    }

    #[test]
    fn names_of_events_depend_on_object_reason_and_words() {
        let note = |uid: &str, message: &str| Note {
            at: Timestamp::UNIX_EPOCH,
            about: ObjectReference { uid: Some(uid.into()), name: Some("pod".into()), ..Default::default() },
            kind: Kind::Normal,
            reason: "Evict",
            message: message.into(),
            annotations: BTreeMap::new(),
        };
        assert_eq!(name_of(&note("1", "a")), name_of(&note("1", "a")));
        assert_ne!(name_of(&note("1", "a")), name_of(&note("2", "a")));
        assert_ne!(name_of(&note("1", "a")), name_of(&note("1", "b")));
    }
}
