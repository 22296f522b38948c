//! Work to be done, by key: each key once however often it is asked for, never twice at the same time, later if it failed.
//!
//! A worker that has nothing to do for a key now says when to look again; it never waits itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    future::Future,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;

/// What is to happen with a key after it was worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing until somebody asks.
    Done,
    /// Look again after this time, or earlier if somebody asks.
    After(Duration),
    /// It failed, for this reason: look again after a pause that grows with each failure in a row.
    Failed(String),
}

#[derive(Debug)]
struct Book<T> {
    ready: BTreeSet<T>,
    later: BTreeSet<(Instant, T)>,
    due: BTreeMap<T, Instant>,
    busy: BTreeSet<T>,
    /// Asked for while busy.
    again: BTreeSet<T>,
    failures: BTreeMap<T, u32>,
}

/// Keys to be worked on. Clones share them.
#[derive(Debug)]
pub struct WorkQueue<T> {
    book: Arc<Mutex<Book<T>>>,
    wake: Arc<Notify>,
    backoff: Backoff,
}

impl<T> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self { book: Arc::clone(&self.book), wake: Arc::clone(&self.wake), backoff: self.backoff }
    }
}

impl<T: Ord + Clone + Debug> WorkQueue<T> {
    /// An empty queue with these pauses after failures.
    pub fn new(backoff: Backoff) -> Self {
        let book = Book {
            ready: BTreeSet::new(),
            later: BTreeSet::new(),
            due: BTreeMap::new(),
            busy: BTreeSet::new(),
            again: BTreeSet::new(),
            failures: BTreeMap::new(),
        };
        Self { book: Arc::new(Mutex::new(book)), wake: Arc::new(Notify::new()), backoff }
    }

    /// Asks for a key now.
    pub fn add(&self, key: T) {
        let mut book = self.book.lock();
        if book.busy.contains(&key) {
            book.again.insert(key);
        } else {
            book.cancel_later(&key);
            book.ready.insert(key);
            self.wake.notify_one();
        }
    }

    /// Asks for a key after some time. The earliest wish counts.
    pub fn add_after(&self, key: T, pause: Duration) {
        let due = Instant::now() + pause;
        let mut book = self.book.lock();
        let sooner = book.due.get(&key).is_some_and(|known| *known <= due);
        if sooner || book.ready.contains(&key) {
            return;
        }
        book.cancel_later(&key);
        // Whoever works sleeps until the earliest is due.
        let is_next = book.later.first().is_none_or(|(earliest, _)| due < *earliest);
        book.later.insert((due, key.clone()));
        book.due.insert(key, due);
        if is_next {
            self.wake.notify_one();
        }
    }

    /// Forgets the failures of a key.
    pub fn forgive(&self, key: &T) {
        self.book.lock().failures.remove(key);
    }

    /// Failures in a row of a key.
    #[must_use]
    pub fn failures(&self, key: &T) -> u32 {
        self.book.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// How many keys are due now or being worked on.
    #[must_use]
    pub fn depth(&self) -> usize {
        let book = self.book.lock();
        book.ready.len() + book.busy.len() + book.again.len()
    }

    /// Works on keys until cancelled, on at most `workers` at the same time. A panic in the work is a failure of that key.
    pub async fn run<F, W>(&self, workers: usize, cancel: &CancellationToken, work: F)
    where
        F: Fn(T) -> W,
        W: Future<Output = Next>,
    {
        self.take_up();
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < workers.max(1)
                && let Some(key) = self.take()
            {
                let attempt = AssertUnwindSafe(work(key.clone())).catch_unwind();
                running.push(async move { (key, attempt.await) });
            }
            let due = self.book.lock().later.first().map(|(due, _)| *due);
            // All workers busy: what becomes due must wait for one of them anyway.
            let due = due.filter(|_| running.len() < workers.max(1));
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                Some((key, outcome)) = running.next(), if !running.is_empty() => {
                    let next = outcome.unwrap_or_else(|panic| Next::Failed(panic_text(panic.as_ref())));
                    self.finish(key, next);
                }
                () = self.wake.notified() => {}
                () = sleep_until(due), if due.is_some() => {}
            }
        }
    }

    /// Whoever worked on these before was stopped in the middle, as when a lease is lost: they are due again.
    fn take_up(&self) {
        let mut book = self.book.lock();
        let Book { ready, busy, again, .. } = &mut *book;
        ready.append(busy);
        again.clear();
    }

    fn take(&self) -> Option<T> {
        let now = Instant::now();
        let mut book = self.book.lock();
        while let Some((due, _)) = book.later.first()
            && *due <= now
            && let Some((_, key)) = book.later.pop_first()
        {
            book.due.remove(&key);
            if book.busy.contains(&key) {
                book.again.insert(key);
            } else {
                book.ready.insert(key);
            }
        }
        let key = book.ready.pop_first()?;
        book.busy.insert(key.clone());
        Some(key)
    }

    fn finish(&self, key: T, next: Next) {
        let again = {
            let mut book = self.book.lock();
            book.busy.remove(&key);
            book.again.remove(&key)
        };
        let pause = match next {
            Next::Failed(reason) => {
                let failures = {
                    let mut book = self.book.lock();
                    let failures = book.failures.entry(key.clone()).or_default();
                    *failures = failures.saturating_add(1);
                    *failures
                };
                tracing::debug!(?key, failures, reason, "will try again");
                Some(self.backoff.after(failures))
            }
            Next::Done => {
                self.forgive(&key);
                None
            }
            Next::After(pause) => {
                self.forgive(&key);
                Some(pause)
            }
        };
        if again {
            self.add(key);
        } else if let Some(pause) = pause {
            self.add_after(key, pause);
        }
    }
}

impl<T: Ord + Clone> Book<T> {
    fn cancel_later(&mut self, key: &T) {
        if let Some(due) = self.due.remove(key) {
            self.later.remove(&(due, key.clone()));
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// What a panic said.
#[must_use]
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("a defect of kai: {}", text.unwrap_or_else(|| "panic".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn queue() -> WorkQueue<&'static str> {
        WorkQueue::new(Backoff::new(Duration::from_secs(1), Duration::from_mins(1)))
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_repeated_with_growing_pauses_and_then_forgotten() {
        let queue = queue();
        let cancel = CancellationToken::new();
        let begin = Instant::now();
        let tries = AtomicU32::new(0);
        queue.add("pod");
        let work = |_| async {
            if tries.fetch_add(1, Ordering::Relaxed) < 3 {
                return Next::Failed("no".to_owned());
            }
            cancel.cancel();
            Next::Done
        };
        queue.run(2, &cancel, work).await;
        assert_eq!(begin.elapsed().as_secs(), 1 + 2 + 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_asked_for_while_it_is_worked_on_is_worked_on_once_more() {
        let queue = queue();
        let cancel = CancellationToken::new();
        let tries = AtomicU32::new(0);
        queue.add("pod");
        let work = |key| {
            let (queue, cancel, tries) = (&queue, &cancel, &tries);
            async move {
                if tries.fetch_add(1, Ordering::Relaxed) == 0 {
                    queue.add(key);
                    queue.add(key);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                } else {
                    queue.add_after("end", Duration::from_secs(5));
                }
                if key == "end" {
                    cancel.cancel();
                }
                Next::Done
            }
        };
        queue.run(4, &cancel, work).await;
        assert_eq!(tries.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_was_stopped_in_the_middle_is_done_by_the_next() {
        let queue = queue();
        queue.add("pod");
        let first = CancellationToken::new();
        let stop = first.clone();
        let work = move |_| {
            stop.cancel();
            std::future::pending::<Next>()
        };
        queue.run(2, &first, work).await;
        let second = CancellationToken::new();
        let done = AtomicU32::new(0);
        let work = |_| async {
            done.fetch_add(1, Ordering::Relaxed);
            second.cancel();
            Next::Done
        };
        queue.run(2, &second, work).await;
        assert_eq!(done.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_fails_its_key_and_nobody_else() {
        let queue = queue();
        let cancel = CancellationToken::new();
        queue.add("bad");
        queue.add("good");
        let work = |key| {
            let cancel = &cancel;
            async move {
                assert!(key != "bad", "bad key");
                cancel.cancel();
                Next::Done
            }
        };
        queue.run(1, &cancel, work).await;
        assert_eq!(queue.failures(&"bad"), 1);
    }
}
