//! BindRequests: what is kept of those that the server has, and those that were decided but not confirmed.
//!
//! While a request is being written its watch is not believed: what it tells is held back until the writer knows what is there. So an
//! old request that is deleted and a new one of the same name never get mixed up, and a lost answer does no harm.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use kai_api::{
    BindRequest,
    names::{annotations, bind_errors, bind_phases},
};
use kai_convert::Veto;
use kai_core::time::Time;
use kai_kit::backoff::Backoff;
use rustc_hash::FxHashMap;

use crate::{foretold::Foretold, notes::key_of};

/// What is kept of a BindRequest.
#[derive(Clone, Debug)]
pub(crate) struct BindNote {
    /// Its uid.
    pub(crate) uid: String,
    /// Its node.
    pub(crate) node: String,
    /// Whether the binder is still at it.
    pub(crate) open: bool,
    /// Whether it failed for good.
    pub(crate) failed: bool,
    /// The value of the node pool's label.
    pub(crate) pool: Option<String>,
    /// Failures by node, this one's too.
    pub(crate) attempts: BTreeMap<String, i32>,
    /// Nodes that refused the pod.
    pub(crate) vetoes: Vec<Veto>,
}

/// A request that was decided and is being written.
#[derive(Debug)]
pub(crate) struct Unconfirmed {
    /// The request, as the model knows it.
    pub(crate) request: Arc<BindRequest>,
    /// What the watch last told of this name.
    pub(crate) heard: Option<Heard>,
    /// The uid of the pod, once it is bound without a request: then this is only kept until the watch shows the pod in its place.
    pub(crate) placed: Option<String>,
}

/// What the watch told of a name while a request was being written.
#[derive(Debug)]
pub(crate) enum Heard {
    /// This is there.
    There(Arc<BindRequest>),
    /// The one with this uid is gone.
    Gone(Option<String>),
}

/// All BindRequests.
#[derive(Debug, Default)]
pub(crate) struct Binds {
    /// Those that the server has, by `namespace/name`.
    pub(crate) known: FxHashMap<String, BindNote>,
    /// Those among them that are not finished.
    pub(crate) open: BTreeSet<String>,
    /// Those among them that failed for good.
    pub(crate) failed: BTreeSet<String>,
    /// Those that are being written.
    pub(crate) unconfirmed: FxHashMap<String, Unconfirmed>,
    /// Where the pods of some of these will be.
    pub(crate) foretold: Foretold,
    /// Those that are being deleted because their node is gone or nothing is left to be learnt from them, by uid.
    pub(crate) dropping: BTreeSet<String>,
}

/// How long a node is put off.
const PUT_OFF: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_mins(5));

/// The failures by node that were handed on to a request.
fn attempts_of(request: &BindRequest) -> BTreeMap<String, i32> {
    let notes = request.metadata.annotations.as_ref();
    let handed_on = notes.and_then(|all| all.get(annotations::BIND_ATTEMPTS));
    handed_on.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

impl BindNote {
    fn of(object: &BindRequest, pool: Option<&str>) -> Self {
        let status = object.status.clone().unwrap_or_default();
        let failures = status.failed_attempts.unwrap_or(0);
        let phase = status.phase.as_deref();
        let enough = object.spec.backoff_limit.is_none_or(|limit| failures >= limit);
        let failed = phase == Some(bind_phases::FAILED) && enough;
        let mut attempts = attempts_of(object);
        let node = object.spec.selected_node.clone().unwrap_or_default();
        if failures > 0 {
            let known = attempts.entry(node.clone()).or_default();
            *known = failures.max(*known);
        }
        attempts.retain(|_, count| *count > 0);
        let labels = object.metadata.labels.as_ref();
        Self {
            uid: object.metadata.uid.clone().unwrap_or_default(),
            open: !failed && phase != Some(bind_phases::SUCCEEDED),
            failed,
            pool: pool.and_then(|label| labels?.get(label)).cloned(),
            vetoes: Veto::of(object),
            attempts,
            node,
        }
    }
}

impl Binds {
    /// Keeps what is needed of a request. `pool` is the label of node pools.
    pub(crate) fn keep(&mut self, object: &BindRequest, pool: Option<&str>) {
        let key = key_of(&object.metadata);
        let note = BindNote::of(object, pool);
        for (set, belongs) in [(&mut self.open, note.open), (&mut self.failed, note.failed)] {
            if belongs {
                set.insert(key.clone());
            } else {
                set.remove(&key);
            }
        }
        self.known.insert(key, note);
    }

    /// A request that failed and does not say when to try again, as KAI's do: its node is put off for a time that grows with the
    /// failures there, counted over all requests of the pod.
    pub(crate) fn put_off(&self, request: &mut Arc<BindRequest>, now: Time) {
        let enough = request.spec.backoff_limit;
        let (handed_on, node) = (attempts_of(request), request.spec.selected_node.clone().unwrap_or_default());
        let (key, uid) = (key_of(&request.metadata), request.metadata.uid.clone());
        let Some(status) = &request.status else { return };
        let failures = status.failed_attempts.unwrap_or(0);
        let failed =
            status.phase.as_deref() == Some(bind_phases::FAILED) && enough.is_none_or(|limit| failures >= limit);
        if !failed || status.next_retry.is_some() {
            return;
        }
        let known = self.known.get(&key).filter(|known| Some(&known.uid) == uid.as_ref());
        let veto = known.and_then(|known| known.vetoes.iter().find(|veto| veto.node == node));
        let all = handed_on.get(&node).copied().unwrap_or(0).saturating_add(failures.max(1));
        let pause = PUT_OFF.after(u32::try_from(all).unwrap_or(1));
        let until = veto.map_or_else(|| now.0 + i64::try_from(pause.as_millis()).unwrap_or(0), |veto| veto.until);
        let Some(status) = &mut Arc::make_mut(request).status else { return };
        status.failed_attempts = Some(all);
        status.error_class = Some(bind_errors::REFUSED.to_owned());
        status.next_retry = Timestamp::from_millisecond(until).ok().map(meta::Time);
    }

    /// Forgets a request.
    pub(crate) fn forget(&mut self, key: &str) {
        if let Some(gone) = self.known.remove(key) {
            self.dropping.remove(&gone.uid);
        }
        self.open.remove(key);
        self.failed.remove(key);
    }

    /// Requests that failed and whose vetoes have ended, with their uid: nothing holds because of them any more.
    pub(crate) fn spent(&self, now: Time) -> impl Iterator<Item = (&String, &BindNote)> {
        let failed = self.failed.iter().filter(|key| !self.unconfirmed.contains_key(*key));
        let known = failed.filter_map(|key| Some((key, self.known.get(key)?)));
        known.filter(move |(_, note)| note.vetoes.iter().all(|veto| veto.until <= now.0))
    }

    /// Hands on what earlier attempts for the pod taught to a new request.
    pub(crate) fn hand_on(&self, key: &str, request: &mut BindRequest, now: i64) {
        let Some(before) = self.known.get(key) else { return };
        let node = request.spec.selected_node.clone().unwrap_or_default();
        let vetoes: Vec<&Veto> = before.vetoes.iter().filter(|veto| veto.until > now && veto.node != node).collect();
        let notes = request.metadata.annotations.get_or_insert_default();
        // Maps of text and numbers can always be written.
        if !before.attempts.is_empty() {
            notes.insert(
                annotations::BIND_ATTEMPTS.to_owned(),
                serde_json::to_string(&before.attempts).unwrap_or_default(),
            );
        }
        if !vetoes.is_empty() {
            notes.insert(annotations::BIND_VETOES.to_owned(), serde_json::to_string(&vetoes).unwrap_or_default());
        }
        if notes.is_empty() {
            request.metadata.annotations = None;
        }
    }
}
