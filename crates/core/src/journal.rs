//! What changed, in order. Indexes read on from where they stopped, so that each pays only for what changed.

/// The things that changed: nodes whose ledgers did, or pods whose places did.
#[derive(Debug)]
pub struct Journal<T> {
    entries: Vec<T>,
    epoch: u64,
}

/// How far somebody has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bookmark {
    epoch: u64,
    read: usize,
}

impl<T> Default for Journal<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), epoch: 0 }
    }
}

impl<T> Journal<T> {
    /// Notes a change.
    pub fn push(&mut self, changed: T) {
        self.entries.push(changed);
    }

    /// The end of the journal.
    #[must_use]
    pub fn end(&self) -> Bookmark {
        Bookmark { epoch: self.epoch, read: self.entries.len() }
    }

    /// What changed since a bookmark; `None` if the journal no longer reaches back so far: look at everything.
    #[must_use]
    pub fn since(&self, bookmark: Bookmark) -> Option<&[T]> {
        if bookmark.epoch == self.epoch { self.entries.get(bookmark.read..) } else { None }
    }

    /// Forgets what was noted if it is longer than this.
    pub fn trim(&mut self, most: usize) {
        if self.entries.len() > most {
            self.entries.clear();
            self.epoch += 1;
        }
    }
}
