//! Ports of the node that pods take.

use crate::{cluster::words::Words, delta, ids::Word};

/// A port of a node in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    number: u16,
    protocol: Word,
    /// `None`: all addresses.
    address: Option<Word>,
}

impl Port {
    /// Compiles a port; port 0 is none.
    pub(crate) fn new(port: &delta::HostPort, words: &mut Words) -> Option<Self> {
        let protocol = if port.protocol.is_empty() { "TCP" } else { &port.protocol };
        let everywhere = port.address.is_empty() || port.address == "0.0.0.0";
        (port.port != 0).then(|| Self {
            number: port.port,
            protocol: words.intern(protocol),
            address: (!everywhere).then(|| words.intern(&port.address)),
        })
    }

    /// Whether two pods cannot have both on one node.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let overlap = self.address.is_none() || other.address.is_none() || self.address == other.address;
        self.number == other.number && self.protocol == other.protocol && overlap
    }
}
