//! Writing decisions: many at the same time, begun in the order in which they were decided. Each write ends with knowledge of what is
//! there, which goes back to the model.

pub(crate) mod bind;
pub(crate) mod evict;
pub(crate) mod note;

use std::{future::Future, sync::Arc, time::Duration};

use kai_kit::{Process, backoff::Backoff};
use tokio::{
    sync::{Semaphore, mpsc::UnboundedSender, watch},
    task::JoinSet,
};

use crate::{Options, change::Change, outcome::Outcome};

/// Pauses after errors that may go away.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// How many writes that nobody waits for are made at the same time: few, so that a flood of them leaves the server to decisions.
const BOOKKEEPERS: usize = 2;

/// Carries out decisions in the background.
pub(crate) struct Writer {
    surroundings: Surroundings,
    permits: Arc<Semaphore>,
    bookkeepers: Arc<Semaphore>,
    changes: UnboundedSender<Change>,
    tasks: JoinSet<()>,
}

/// What a write needs.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) process: Process,
    /// Whether this replica may write.
    pub(crate) leads: watch::Receiver<bool>,
    /// Whether victims get the condition `DisruptionTarget`.
    pub(crate) disruption_condition: bool,
}

impl Surroundings {
    /// Waits after some failures in a row; whether to go on.
    async fn pause(&self, failures: u32) -> bool {
        self.process.sleep(PAUSES.after(failures)).await
    }
}

impl Writer {
    /// A writer.
    pub(crate) fn new(
        process: Process,
        options: &Options,
        disruption_condition: bool,
        changes: UnboundedSender<Change>,
        leads: watch::Receiver<bool>,
    ) -> Self {
        Self {
            surroundings: Surroundings { process, leads, disruption_condition },
            permits: Arc::new(Semaphore::new(options.writes_in_flight.max(1))),
            bookkeepers: Arc::new(Semaphore::new(BOOKKEEPERS)),
            changes,
            tasks: JoinSet::new(),
        }
    }

    /// Whether this replica may write.
    pub(crate) fn leads(&self) -> bool {
        *self.surroundings.leads.borrow()
    }

    /// Begins a write; its outcome comes back as a change.
    pub(crate) fn begin<W>(&mut self, write: impl FnOnce(Surroundings) -> W)
    where
        W: Future<Output = Outcome> + Send + 'static,
    {
        self.spawn(Arc::clone(&self.permits), write(self.surroundings.clone()));
    }

    /// Begins a write that nobody waits for.
    pub(crate) fn begin_note<W>(&mut self, write: impl FnOnce(Surroundings) -> W)
    where
        W: Future<Output = Outcome> + Send + 'static,
    {
        self.spawn(Arc::clone(&self.bookkeepers), write(self.surroundings.clone()));
    }

    fn spawn(&mut self, permits: Arc<Semaphore>, write: impl Future<Output = Outcome> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        let changes = self.changes.clone();
        self.tasks.spawn(async move {
            // Permits are given in the order in which they were asked for. Nobody closes them.
            let _permit = permits.acquire_owned().await;
            let outcome = write.await;
            let _ = changes.send(Change::Written(outcome));
        });
    }
}
