//! The records of a trace, and how they look as bytes.

use kai_core::{delta::Delta, plan::Plan, policy::Policy, time::Time};

use crate::Error;

/// The first bytes of a trace.
pub const MAGIC: [u8; 8] = *b"kaitrace";

/// The version of the format.
pub const VERSION: u16 = 2;

/// No record's body is longer: more than a thousand times the largest object that Kubernetes stores would need.
pub const LARGEST_RECORD: u32 = 1 << 30;

/// Bytes before a record's body: kind, length, checksum.
pub(crate) const PREFIX: usize = 9;

/// The kinds of records, as written.
pub(crate) mod kind {
    pub const DELTA: u8 = 1;
    pub const POLICY: u8 = 2;
    pub const CYCLE: u8 = 3;
    pub const END: u8 = 4;
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The cluster changed.
    Delta(Delta),
    /// From here on cycles decide like this.
    Policy(Box<Policy>),
    /// A plan was made.
    Cycle {
        /// The time the core was told.
        now: Time,
        /// The plan, as its encoded bytes: they are what replay compares.
        plan: Vec<u8>,
    },
}

/// The bytes of a plan, as a trace has them.
pub(crate) fn encode_plan(plan: &Plan) -> Result<Vec<u8>, Error> {
    postcard::to_allocvec(plan).map_err(Error::Encode)
}

/// An object from all of `bytes`.
pub(crate) fn decode<'de, T: serde::Deserialize<'de>>(bytes: &'de [u8], record: u64) -> Result<T, Error> {
    match postcard::take_from_bytes(bytes) {
        Ok((object, [])) => Ok(object),
        Ok(_) => Err(Error::Undecodable { record, cause: None }),
        Err(cause) => Err(Error::Undecodable { record, cause: Some(cause) }),
    }
}
