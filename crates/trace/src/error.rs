//! What can be wrong with a trace.

use std::io;

use crate::record::{LARGEST_RECORD, VERSION};

/// Why a trace cannot be written or read. Records are counted from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream failed.
    #[error("read or write a trace")]
    Stream(#[source] io::Error),
    /// It does not begin like a trace.
    #[error("not a trace: it does not begin with `kaitrace`")]
    Foreign,
    /// It was written in another version of the format.
    #[error("the trace has version {0} of the format; this program reads version {VERSION}")]
    WrongVersion(u16),
    /// It ends in the middle of a record, or without an end mark.
    #[error("the trace is cut off after {complete} whole records")]
    Truncated {
        /// Records that are whole.
        complete: u64,
    },
    /// A record's bytes are not what was written.
    #[error("record {record} is damaged: its checksum is wrong")]
    Damaged {
        /// Which record.
        record: u64,
    },
    /// A record says it is longer than any.
    #[error("record {record} is damaged: {length} bytes are more than a record can have ({LARGEST_RECORD})")]
    TooLong {
        /// Which record.
        record: u64,
        /// How long.
        length: u64,
    },
    /// A record is of a kind that this version does not have.
    #[error("record {record} is of unknown kind {kind}")]
    UnknownKind {
        /// Which record.
        record: u64,
        /// The kind.
        kind: u8,
    },
    /// A record's bytes mean nothing.
    #[error("record {record} cannot be understood: it was written by another version of kai, or not by kai")]
    Undecodable {
        /// Which record.
        record: u64,
        /// What the decoder says, where it is its finding.
        #[source]
        cause: Option<postcard::Error>,
    },
    /// The end mark counts other records than there are.
    #[error("records are missing: the end mark counts {counted}, there are {found}")]
    Miscounted {
        /// What the end mark says.
        counted: u64,
        /// What is there.
        found: u64,
    },
    /// Something follows the end mark.
    #[error("the trace goes on after its end mark")]
    TrailingBytes,
    /// A cycle comes before any policy.
    #[error("record {record} is a cycle, but no policy came before it")]
    NoPolicy {
        /// Which record.
        record: u64,
    },
    /// An object cannot be written down.
    #[error("write down an object")]
    Encode(#[source] postcard::Error),
}
