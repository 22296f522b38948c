//! Nodes whose ledgers changed, in order. Indexes over nodes read on from where they stopped, so that each pays only for what changed.

use crate::ids::NodeId;

/// The nodes that changed.
#[derive(Debug, Default)]
pub struct Journal {
    entries: Vec<NodeId>,
    epoch: u64,
}

/// How far somebody has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bookmark {
    epoch: u64,
    read: usize,
}

impl Journal {
    /// Notes a change.
    pub fn push(&mut self, node: NodeId) {
        self.entries.push(node);
    }

    /// The end of the journal.
    #[must_use]
    pub fn end(&self) -> Bookmark {
        Bookmark { epoch: self.epoch, read: self.entries.len() }
    }

    /// What changed since a bookmark; `None` if the journal no longer reaches back so far: look at every node.
    #[must_use]
    pub fn since(&self, bookmark: Bookmark) -> Option<&[NodeId]> {
        if bookmark.epoch == self.epoch { self.entries.get(bookmark.read..) } else { None }
    }

    /// Forgets what was noted if it is long compared to the number of nodes.
    pub fn trim(&mut self, nodes: usize) {
        if self.entries.len() > 4 * nodes + 1024 {
            self.entries.clear();
            self.epoch += 1;
        }
    }
}
