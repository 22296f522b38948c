//! The one background task: does what follows from writes, in the order the writes happened.
//!
//! The store queues the work ([`Work`]), so nothing is polled. Each piece is idempotent and looks at the present state, not at
//! what happened.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::object::Key;
use crate::server::Core;
use crate::store::{EVENTS, Work};
use crate::verbs::delete::DeleteOptions;
use crate::{garbage, namespace, verbs};

/// How long an event lives after its last write, as in the real server.
const EVENT_LIFETIME: Duration = Duration::from_hours(1);

/// Events in the order in which they expire.
#[derive(Debug, Default)]
pub(crate) struct Expiry(Mutex<VecDeque<(Instant, Key, u64)>>);

impl Expiry {
    /// Lets an event expire, unless it is written again until then.
    pub fn add(&self, key: Key, revision: u64) {
        self.0.lock().push_back((Instant::now() + EVENT_LIFETIME, key, revision));
    }

    fn next(&self) -> Option<Instant> {
        self.0.lock().front().map(|(at, _, _)| *at)
    }

    fn pop(&self, now: Instant) -> Option<(Key, u64)> {
        let mut queue = self.0.lock();
        queue.pop_front_if(|(at, _, _)| *at <= now).map(|(_, key, revision)| (key, revision))
    }
}

/// Runs until the server is cancelled.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        while let Some(work) = core.store.next_work() {
            carry_out(&core, work);
            // Requests come first: a namespace full of objects must not hold up the runtime.
            tokio::task::yield_now().await;
        }
        expire(&core);
        // With nothing to expire this only bounds how late the first expiry after a quiet time is noticed.
        let wake = core.expiry.next().unwrap_or_else(|| Instant::now() + EVENT_LIFETIME);
        tokio::select! {
            biased;
            () = core.cancel.cancelled() => return,
            () = core.store.work_queued() => {}
            () = sleep_until(wake) => {}
        }
    }
}

fn carry_out(core: &Core, work: Work) {
    match work {
        Work::Dependent(table, key) => garbage::collect(core, &table, &key),
        Work::Ending(table, key) => garbage::end(core, &table, &key),
        Work::Namespace(name) => namespace::end(core, &name),
        Work::Definition(name) => namespace::end_definition(core, &name),
    }
}

fn expire(core: &Core) {
    let registry = core.registry();
    let Some(entry) = registry.find_storage(EVENTS) else { return };
    while let Some((key, revision)) = core.expiry.pop(Instant::now()) {
        if core.store.get(EVENTS, &key).is_some_and(|event| event.revision == revision) {
            // Somebody may delete it at the same time, which is as good.
            let _ = verbs::delete::delete_object(core, entry, &key, &DeleteOptions::default());
        }
    }
}
