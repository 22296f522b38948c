//! Writing decisions: many at the same time, begun in the order in which they were decided. Each write ends with knowledge of what is
//! there, which goes back to the model.

pub(crate) mod bind;
pub(crate) mod evict;
mod lane;
pub(crate) mod note;

use std::{future::Future, sync::Arc, time::Duration};

use futures::FutureExt as _;
use kai_kit::{Process, backoff::Backoff};
use tokio::sync::{mpsc::UnboundedSender, watch};

use self::lane::{Lane, Work};
use crate::{Options, change::Change, outcome::Outcome};

/// Pauses after errors that may go away.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// How many writes that nobody waits for are made at the same time: few, so that a flood of them leaves the server to decisions.
const BOOKKEEPERS: usize = 2;

/// Carries out decisions in the background.
pub(crate) struct Writer {
    surroundings: Arc<Surroundings>,
    changes: UnboundedSender<Change>,
    decisions: Lane,
    bookkeeping: Lane,
}

/// What a write needs.
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
            surroundings: Arc::new(Surroundings { process, leads, disruption_condition }),
            changes,
            decisions: Lane::new(options.writes_in_flight),
            bookkeeping: Lane::new(BOOKKEEPERS),
        }
    }

    /// Whether this replica may write.
    pub(crate) fn leads(&self) -> bool {
        *self.surroundings.leads.borrow()
    }

    /// Whether decisions wait to be written.
    pub(crate) fn is_behind(&self) -> bool {
        self.decisions.is_behind()
    }

    /// Begins a write; its outcome comes back as a change.
    pub(crate) fn begin<W>(&mut self, write: impl FnOnce(Arc<Surroundings>) -> W + Send + 'static)
    where
        W: Future<Output = Outcome> + Send + 'static,
    {
        let work = self.work(write);
        self.decisions.begin(work);
    }

    /// Begins a write that nobody waits for: decisions that wait to be written come first.
    pub(crate) fn begin_note<W>(&mut self, write: impl FnOnce(Arc<Surroundings>) -> W + Send + 'static)
    where
        W: Future<Output = Outcome> + Send + 'static,
    {
        let (decisions, work) = (self.decisions.waiting(), self.work(write));
        self.bookkeeping.begin(Box::new(move || {
            async move {
                decisions.until_over().await;
                work().await;
            }
            .boxed()
        }));
    }

    fn work<W>(&self, write: impl FnOnce(Arc<Surroundings>) -> W + Send + 'static) -> Work
    where
        W: Future<Output = Outcome> + Send + 'static,
    {
        let (surroundings, changes) = (Arc::clone(&self.surroundings), self.changes.clone());
        Box::new(move || {
            let write = write(surroundings);
            async move { drop(changes.send(Change::Written(write.await))) }.boxed()
        })
    }
}
