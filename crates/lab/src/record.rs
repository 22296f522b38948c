//! The event log: one line per transition of a pod or node, in the order they happened.
//!
//! Lines hold no uids or other chance names, so two runs with one seed can be compared byte for byte.

use std::{collections::VecDeque, fmt::Display, sync::Arc};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::broadcast;

/// Collects lines up to a limit (older ones are dropped) and tells subscribers. Cheap to clone; clones share the log.
#[derive(Clone, Debug)]
pub struct Recorder {
    inner: Arc<Mutex<Inner>>,
    live: broadcast::Sender<Arc<str>>,
}

#[derive(Debug)]
struct Inner {
    lines: VecDeque<Arc<str>>,
    limit: usize,
    dropped: u64,
}

impl Recorder {
    /// A recorder that keeps the last `limit` lines.
    pub fn new(limit: usize) -> Self {
        let (live, _) = broadcast::channel(4096);
        Self { inner: Arc::new(Mutex::new(Inner { lines: VecDeque::new(), limit, dropped: 0 })), live }
    }

    /// Adds a line: `<time> <subject>: <what>`.
    pub fn note(&self, now: Timestamp, subject: impl Display, what: impl Display) {
        let line: Arc<str> = format!("{now:.3} {subject}: {what}").into();
        // Nobody listening is not an error.
        let _ = self.live.send(line.clone());
        let mut inner = self.inner.lock();
        if inner.lines.len() >= inner.limit {
            inner.dropped += 1;
            inner.lines.pop_front();
        }
        if inner.limit > 0 {
            inner.lines.push_back(line);
        }
    }

    /// All lines still kept, oldest first.
    pub fn lines(&self) -> Vec<Arc<str>> {
        self.inner.lock().lines.iter().cloned().collect()
    }

    /// How many lines were dropped because of the limit.
    pub fn dropped(&self) -> u64 {
        self.inner.lock().dropped
    }

    /// Lines from now on. A subscriber that lags more than 4,096 lines behind misses some and is told so.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<str>> {
        self.live.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_lines_are_dropped_at_the_limit() {
        let recorder = Recorder::new(2);
        for step in 0..3 {
            recorder.note(Timestamp::UNIX_EPOCH, "pod a/b", step);
        }
        let lines: Vec<String> = recorder.lines().iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["1970-01-01T00:00:00.000Z pod a/b: 1", "1970-01-01T00:00:00.000Z pod a/b: 2"]);
        assert_eq!(recorder.dropped(), 1);
    }
}
