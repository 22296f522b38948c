//! All objects, the one revision counter and the recent history, behind one mutex with short critical sections.
//!
//! ```text
//!   table "pods"   objects: OrdMap<Key, Arc<Object>>     a list is an O(1) snapshot of it
//!                  history: [event 12][event 15][event 16]  bounded by count and bytes; watchers hold a revision as cursor
//! ```
//!
//! Invariants: revisions only grow; the events of a table are in revision order; an event holds what was there before, so any
//! revision within the history can be rebuilt by undoing events, which is how a paged list stays consistent without keeping
//! snapshots. Everything that must stay true between tables (who owns whom, which namespaces are ending) is updated in the same
//! critical section, and the work that follows from a write is queued for [`crate::housekeeping`].

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::object::{Draft, Key, Object, Owner, Uid};

/// The storage key of namespaces.
pub const NAMESPACES: &str = "namespaces";
/// The storage key of CustomResourceDefinitions.
pub const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// The storage key of events of both groups.
pub const EVENTS: &str = "events";

/// A table at one moment.
pub type Snapshot = OrdMap<Key, Arc<Object>>;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was not there before.
    Added,
    /// It was there before.
    Modified,
    /// It is gone; the event's object is its last state at the revision of the deletion.
    Deleted,
}

/// One write, as watchers see it.
#[derive(Debug)]
pub struct Event {
    /// What happened.
    pub change: Change,
    /// The object after the write.
    pub object: Arc<Object>,
    /// The object before the write.
    pub previous: Option<Arc<Object>>,
}

/// Why a write did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is an object under this key.
    Exists,
    /// The object is not at the expected revision.
    Changed,
    /// There is no object under this key.
    Missing,
    /// The namespace of the object does not exist.
    NoNamespace,
}

/// Something that follows from a write and is done in the background.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Decide whether an object with owners should still exist.
    Dependent(Arc<str>, Key),
    /// Go on with the foreground or orphaning deletion of an object.
    Ending(Arc<str>, Key),
    /// Go on with the deletion of a namespace.
    Namespace(String),
    /// Go on with the deletion of a CustomResourceDefinition.
    Definition(String),
}

/// What a watcher gets when it asks for news.
#[derive(Debug)]
pub enum News {
    /// Events after the cursor, oldest first, and the revision up to which nothing else happened.
    Events(Vec<Arc<Event>>, u64),
    /// The history no longer reaches back to the cursor; it begins after this revision.
    TooOld(u64),
    /// The resource is no longer served.
    Gone,
}

/// The store.
#[derive(Debug)]
pub struct Store {
    state: Mutex<State>,
    limits: Limits,
    work: Notify,
}

/// How much history a table keeps.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Events.
    pub events: usize,
    /// Bytes of JSON in those events.
    pub bytes: usize,
}

#[derive(Debug)]
struct State {
    revision: u64,
    tables: BTreeMap<Arc<str>, Table>,
    identities: HashMap<Uid, (Arc<str>, Key)>,
    dependents: HashMap<Uid, BTreeSet<(Arc<str>, Key)>>,
    ending_namespaces: BTreeSet<String>,
    work: VecDeque<Work>,
    queued: BTreeSet<Work>,
}

#[derive(Debug, Default)]
struct Table {
    objects: Snapshot,
    history: VecDeque<Arc<Event>>,
    history_bytes: usize,
    /// Revision of the youngest forgotten event; history is complete after it.
    floor: u64,
    news: Arc<Notify>,
    /// The resource is no longer served; watchers end when they have read what there is.
    closed: bool,
}

impl Store {
    /// An empty store. The first write gets revision 2, so that 0 and 1 can never be an object's.
    pub fn new(limits: Limits) -> Self {
        let state = State {
            revision: 1,
            tables: BTreeMap::new(),
            identities: HashMap::new(),
            dependents: HashMap::new(),
            ending_namespaces: BTreeSet::new(),
            work: VecDeque::new(),
            queued: BTreeSet::new(),
        };
        Self { state: Mutex::new(state), limits, work: Notify::new() }
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.state.lock().revision
    }

    /// One object.
    pub fn get(&self, table: &str, key: &Key) -> Option<Arc<Object>> {
        self.state.lock().tables.get(table)?.objects.get(key).cloned()
    }

    /// A table as it is now, with the current revision.
    pub fn snapshot(&self, table: &str) -> (Snapshot, u64) {
        let state = self.state.lock();
        (state.tables.get(table).map(|t| t.objects.clone()).unwrap_or_default(), state.revision)
    }

    /// A table as it was right after `revision`; `None` if the history no longer reaches back that far.
    pub fn snapshot_at(&self, table: &str, revision: u64) -> Option<Snapshot> {
        let (mut objects, undo) = {
            let state = self.state.lock();
            let Some(table) = state.tables.get(table) else { return Some(Snapshot::new()) };
            if revision < table.floor {
                return None;
            }
            let undo: Vec<Arc<Event>> =
                table.history.iter().rev().take_while(|e| e.object.revision > revision).cloned().collect();
            (table.objects.clone(), undo)
        };
        for event in undo {
            match &event.previous {
                Some(previous) => objects.insert(previous.key.clone(), Arc::clone(previous)),
                None => objects.remove(&event.object.key),
            };
        }
        Some(objects)
    }

    /// Up to `limit` events of a table after a revision.
    pub fn news(&self, table: &str, after: u64, limit: usize) -> News {
        let state = self.state.lock();
        let Some(table) = state.tables.get(table) else { return News::Gone };
        if after < table.floor {
            return News::TooOld(table.floor);
        }
        let from = table.history.partition_point(|e| e.object.revision <= after);
        let events: Vec<Arc<Event>> = table.history.iter().skip(from).take(limit).cloned().collect();
        if events.is_empty() && table.closed {
            return News::Gone;
        }
        let complete = from + events.len() == table.history.len();
        let upto = if complete { state.revision } else { events.last().map_or(after, |e| e.object.revision) };
        News::Events(events, upto)
    }

    /// Tells when a table has news; ask for a `notified()` before reading.
    pub fn bell(&self, table: &Arc<str>) -> Arc<Notify> {
        let mut state = self.state.lock();
        let table = state.table(table);
        table.closed = false;
        Arc::clone(&table.news)
    }

    /// Stores a new object.
    pub fn insert(&self, table: &Arc<str>, key: &Key, draft: Draft) -> Result<Arc<Object>, Refusal> {
        let mut state = self.state.lock();
        if state.table(table).objects.contains_key(key) {
            return Err(Refusal::Exists);
        }
        if let Some(namespace) = key.namespace()
            && !state.table_of(NAMESPACES).is_some_and(|t| t.objects.contains_key(&Key::new(None, namespace)))
        {
            return Err(Refusal::NoNamespace);
        }
        Ok(self.commit(&mut state, table, key, draft, None))
    }

    /// Stores an object over the one at `expected`.
    pub fn replace(&self, table: &Arc<str>, key: &Key, expected: u64, draft: Draft) -> Result<Arc<Object>, Refusal> {
        let mut state = self.state.lock();
        let old = state.expect(table, key, expected)?;
        Ok(self.commit(&mut state, table, key, draft, Some(old)))
    }

    /// Removes the object at `expected` and gives its last stored state at the revision of the removal.
    pub fn remove(&self, table: &Arc<str>, key: &Key, expected: u64) -> Result<Arc<Object>, Refusal> {
        let mut state = self.state.lock();
        let old = state.expect(table, key, expected)?;
        Ok(self.removal(&mut state, table, old))
    }

    fn commit(
        &self,
        state: &mut State,
        table: &Arc<str>,
        key: &Key,
        draft: Draft,
        old: Option<Arc<Object>>,
    ) -> Arc<Object> {
        state.revision += 1;
        let object = Arc::new(draft.at(key.clone(), state.revision));
        state.index(table, old.as_deref(), Some(&object));
        let contents = state.table(table);
        contents.closed = false;
        contents.objects.insert(key.clone(), Arc::clone(&object));
        let change = if old.is_some() { Change::Modified } else { Change::Added };
        self.publish(state, table, Event { change, object: Arc::clone(&object), previous: old });
        object
    }

    fn removal(&self, state: &mut State, table: &Arc<str>, old: Arc<Object>) -> Arc<Object> {
        state.revision += 1;
        let gone = Arc::new(old.at(state.revision));
        state.table(table).objects.remove(&old.key);
        state.index(table, Some(&old), None);
        self.publish(state, table, Event { change: Change::Deleted, object: Arc::clone(&gone), previous: Some(old) });
        gone
    }

    fn publish(&self, state: &mut State, table: &Arc<str>, event: Event) {
        if !state.work.is_empty() {
            self.work.notify_one();
        }
        let limits = self.limits;
        let table = state.table(table);
        table.history_bytes += event.object.bytes().len();
        table.history.push_back(Arc::new(event));
        while table.history.len() > limits.events || (table.history_bytes > limits.bytes && table.history.len() > 1) {
            let Some(forgotten) = table.history.pop_front() else { break };
            table.history_bytes -= forgotten.object.bytes().len();
            table.floor = forgotten.object.revision;
        }
        table.news.notify_waiters();
    }

    /// The objects that name `uid` as an owner.
    pub fn dependents(&self, uid: Uid) -> Vec<(Arc<str>, Key)> {
        let state = self.state.lock();
        state.dependents.get(&uid).map(|set| set.iter().cloned().collect()).unwrap_or_default()
    }

    /// Storage keys and keys of everything in a namespace.
    pub fn contents(&self, namespace: &str) -> Vec<(Arc<str>, Key)> {
        let state = self.state.lock();
        let tables = state.tables.iter();
        tables.flat_map(|(name, t)| within(&t.objects, namespace).map(|(k, _)| (Arc::clone(name), k.clone()))).collect()
    }

    /// Ends the watches of a table, when its definition goes. A new watch or object opens it again.
    pub fn close(&self, table: &str) {
        let mut state = self.state.lock();
        if let Some(table) = state.tables.get_mut(table) {
            table.closed = true;
            table.news.notify_waiters();
        }
    }

    /// The next piece of work.
    pub fn next_work(&self) -> Option<Work> {
        let mut state = self.state.lock();
        let work = state.work.pop_front()?;
        state.queued.remove(&work);
        Some(work)
    }

    /// Resolves when work was queued since the last call.
    pub async fn work_queued(&self) {
        self.work.notified().await;
    }
}

/// The part of a snapshot that is in a namespace.
pub fn within<'a>(
    objects: &'a Snapshot,
    namespace: &str,
) -> impl Iterator<Item = (&'a Key, &'a Arc<Object>)> + use<'a> {
    // '0' follows '/' in ASCII: the half-open range holds exactly the keys that begin with `namespace/`.
    let start = Key::from_text(&format!("{namespace}/"));
    let end = Key::from_text(&format!("{namespace}0"));
    objects.range((Bound::Included(start), Bound::Excluded(end)))
}

impl State {
    fn table_of(&self, name: &str) -> Option<&Table> {
        self.tables.get(name)
    }

    fn table(&mut self, name: &Arc<str>) -> &mut Table {
        self.tables.entry(Arc::clone(name)).or_default()
    }

    fn expect(&self, table: &str, key: &Key, revision: u64) -> Result<Arc<Object>, Refusal> {
        let object = self.tables.get(table).and_then(|t| t.objects.get(key)).ok_or(Refusal::Missing)?;
        if object.revision == revision { Ok(Arc::clone(object)) } else { Err(Refusal::Changed) }
    }

    fn push(&mut self, work: Work) {
        if self.queued.insert(work.clone()) {
            self.work.push_back(work);
        }
    }

    /// Keeps the indexes true over a write and queues what follows from it.
    fn index(&mut self, table: &Arc<str>, old: Option<&Object>, new: Option<&Arc<Object>>) {
        let Some(any) = new.map(Arc::as_ref).or(old) else { return };
        let place = (Arc::clone(table), any.key.clone());
        let owners_changed = match (old, new) {
            (Some(old), Some(new)) => old.facts.owners != new.facts.owners,
            _ => true,
        };
        if owners_changed {
            self.reindex_owners(&place, old, new);
        }
        match new {
            Some(new) => self.follow_write(table, &place, old, new, owners_changed),
            None => self.follow_removal(table, any),
        }
    }

    fn reindex_owners(&mut self, place: &(Arc<str>, Key), old: Option<&Object>, new: Option<&Arc<Object>>) {
        for uid in old.iter().flat_map(|o| &o.facts.owners).filter_map(|o| o.uid) {
            if let Some(set) = self.dependents.get_mut(&uid) {
                set.remove(place);
                if set.is_empty() {
                    self.dependents.remove(&uid);
                }
            }
            // An owner in foreground deletion may have waited for this one.
            if let Some((table, key)) = self.identities.get(&uid).cloned()
                && self.tables.get(&table).and_then(|t| t.objects.get(&key)).is_some_and(|o| o.facts.deleting)
            {
                self.push(Work::Ending(table, key));
            }
        }
        for uid in new.iter().flat_map(|n| &n.facts.owners).filter_map(|o| o.uid) {
            self.dependents.entry(uid).or_default().insert(place.clone());
        }
    }

    fn follow_write(
        &mut self,
        table: &Arc<str>,
        place: &(Arc<str>, Key),
        old: Option<&Object>,
        new: &Arc<Object>,
        owners_changed: bool,
    ) {
        if old.is_none_or(|o| o.facts.uid != new.facts.uid) {
            self.identities.insert(new.facts.uid, place.clone());
        }
        let (name, key) = place;
        if owners_changed && !new.facts.owners.is_empty() {
            let all_there = new.facts.owners.iter().all(|owner| self.is_solid(owner, key));
            if !all_there {
                self.push(Work::Dependent(Arc::clone(name), key.clone()));
            }
        }
        if new.facts.deleting {
            if new.facts.finalizers.iter().any(|f| f == "foregroundDeletion" || f == "orphan") {
                self.push(Work::Ending(Arc::clone(name), key.clone()));
            }
            match &**table {
                NAMESPACES => {
                    self.ending_namespaces.insert(key.name().to_owned());
                    self.push(Work::Namespace(key.name().to_owned()));
                }
                DEFINITIONS => self.push(Work::Definition(key.name().to_owned())),
                _ => {}
            }
        }
        if old.is_none() {
            self.touch_namespace(key);
        }
    }

    fn follow_removal(&mut self, table: &Arc<str>, old: &Object) {
        self.identities.remove(&old.facts.uid);
        if let Some(orphans) = self.dependents.get(&old.facts.uid) {
            for (table, key) in orphans.clone() {
                self.push(Work::Dependent(table, key));
            }
        }
        if &**table == NAMESPACES {
            self.ending_namespaces.remove(old.key.name());
        } else if let Some(group) = table.split_once('.').map(|_| table.to_string())
            && self
                .tables
                .get(DEFINITIONS)
                .and_then(|t| t.objects.get(&Key::new(None, &group)))
                .is_some_and(|d| d.facts.deleting)
        {
            self.push(Work::Definition(group));
        }
        self.touch_namespace(&old.key);
    }

    /// Whether an owner is there beyond doubt, so that its dependent need not be looked at.
    fn is_solid(&self, owner: &Owner, dependent: &Key) -> bool {
        let place = owner.uid.and_then(|uid| self.identities.get(&uid));
        place.is_some_and(|(table, key)| {
            key.name() == owner.name
                && (key.namespace().is_none() || key.namespace() == dependent.namespace())
                && self.tables.get(table).and_then(|t| t.objects.get(key)).is_some_and(|owner| !owner.facts.deleting)
        })
    }

    fn touch_namespace(&mut self, key: &Key) {
        if let Some(namespace) = key.namespace()
            && self.ending_namespaces.contains(namespace)
        {
            self.push(Work::Namespace(namespace.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests;
