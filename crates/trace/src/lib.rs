//! What the core was told and what it answered, written down: a trace replays to the same plans, byte for byte, or names the first difference.
//!
//! ```text
//!   deltas, policy, now, plan ──▶ Recorder ──▶ file ──▶ Reader ──▶ replay ──▶ Report
//! ```
//!
//! # Format, version 2
//!
//! ```text
//!   file    = magic "kaitrace" · version: u16 · record…
//!   record  = kind: u8 · length: u32 · checksum: u32 · body: `length` bytes
//!   kind    = 1 delta     body: a `Delta`
//!             2 policy    body: a `Policy`, in force from here on; written when it differs from the one before
//!             3 cycle     body: now: i64 · the `Plan`
//!             4 end       body: u64, the number of records before it; nothing follows
//! ```
//!
//! Numbers outside bodies and `now` and the count of the end are little-endian. Objects in bodies are in postcard's encoding, version 1, of the
//! types of `kai-core`. The checksum is CRC-32 (IEEE 802.3) of kind, length and body. A record is at most [`LARGEST_RECORD`] long.
//!
//! Plans hold ids, not names. Ids follow from the deltas and their order, so the recording must begin with an empty cluster.
//!
//! The crate must not know Kubernetes, clocks or files: it reads and writes streams.

mod checksum;
mod difference;
mod error;
mod reader;
mod record;
mod recorder;
mod replay;

pub use self::{
    difference::Difference,
    error::Error,
    reader::Reader,
    record::{LARGEST_RECORD, MAGIC, Record, VERSION},
    recorder::Recorder,
    replay::{Report, replay, replay_with},
};
