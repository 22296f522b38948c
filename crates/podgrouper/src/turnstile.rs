//! One at a time: when many pods of a workload need the same object read or written, the first does it and the others
//! are asked for again when it is done. Nobody waits meanwhile.

use std::{collections::BTreeMap, sync::Arc};

use kai_kit::{Key, WorkQueue};
use parking_lot::Mutex;

/// Who is through, by what they are at, and who asked meanwhile.
#[derive(Clone)]
pub(crate) struct Turnstile {
    busy: Arc<Mutex<BTreeMap<String, Vec<Key>>>>,
    queue: WorkQueue<Key>,
}

/// The right to do it. When it goes, the others are asked for.
pub(crate) struct Pass {
    what: String,
    turnstile: Turnstile,
}

impl Turnstile {
    /// Those who were turned away are put into this queue.
    pub(crate) fn new(queue: WorkQueue<Key>) -> Self {
        Self { busy: Arc::default(), queue }
    }

    /// Lets a pod through if nobody else is at it.
    pub(crate) fn enter(&self, what: String, pod: &Key) -> Option<Pass> {
        let mut busy = self.busy.lock();
        if let Some(waiting) = busy.get_mut(&what) {
            waiting.push(pod.clone());
            return None;
        }
        busy.insert(what.clone(), Vec::new());
        drop(busy);
        Some(Pass { what, turnstile: self.clone() })
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let waiting = self.turnstile.busy.lock().remove(&self.what).unwrap_or_default();
        for pod in waiting {
            self.turnstile.queue.add(pod);
        }
    }
}
