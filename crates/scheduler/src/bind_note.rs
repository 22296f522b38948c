//! BindRequests: what is kept of those that the server has, and those that were decided but not confirmed.
//!
//! While a request is being written its watch is not believed: what it tells is held back until the writer knows what is there. So an
//! old request that is deleted and a new one of the same name never get mixed up, and a lost answer does no harm.

use std::collections::{BTreeMap, BTreeSet};

use kai_api::{
    BindRequest,
    names::{annotations, bind_phases},
};
use kai_convert::Veto;

use crate::notes::key_of;

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
    pub(crate) request: Box<BindRequest>,
    /// What the watch last told of this name.
    pub(crate) heard: Option<Heard>,
}

/// What the watch told of a name while a request was being written.
#[derive(Debug)]
pub(crate) enum Heard {
    /// This is there.
    There(Box<BindRequest>),
    /// The one with this uid is gone.
    Gone(Option<String>),
}

/// All BindRequests.
#[derive(Debug, Default)]
pub(crate) struct Binds {
    /// Those that the server has, by `namespace/name`.
    pub(crate) known: BTreeMap<String, BindNote>,
    /// Those among them that are not finished.
    pub(crate) open: BTreeSet<String>,
    /// Those that are being written.
    pub(crate) unconfirmed: BTreeMap<String, Unconfirmed>,
    /// Those that are being deleted because their node is gone, by uid.
    pub(crate) dropping: BTreeSet<String>,
}

impl BindNote {
    fn of(object: &BindRequest, pool: Option<&str>) -> Self {
        let status = object.status.clone().unwrap_or_default();
        let failures = status.failed_attempts.unwrap_or(0);
        let phase = status.phase.as_deref();
        let enough = object.spec.backoff_limit.is_none_or(|limit| failures >= limit);
        let failed = phase == Some(bind_phases::FAILED) && enough;
        let notes = object.metadata.annotations.as_ref();
        let handed_on = notes.and_then(|all| all.get(annotations::BIND_ATTEMPTS));
        let mut attempts: BTreeMap<String, i32> =
            handed_on.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let node = object.spec.selected_node.clone().unwrap_or_default();
        if failures > 0 {
            let known = attempts.entry(node.clone()).or_default();
            *known = failures.max(*known);
        }
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
        if note.open {
            self.open.insert(key.clone());
        } else {
            self.open.remove(&key);
        }
        self.known.insert(key, note);
    }

    /// Forgets a request.
    pub(crate) fn forget(&mut self, key: &str) {
        if let Some(gone) = self.known.remove(key) {
            self.dropping.remove(&gone.uid);
        }
        self.open.remove(key);
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
