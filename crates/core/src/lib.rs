//! The heart of `kai`: which pod runs where, on which device, at whose expense, and why not.
//!
//! The crate is a function. [`Cluster::apply`] takes what changed, [`plan`] says what to do about it:
//!
//! ```text
//!   Delta ──▶ Cluster ──▶ plan(&mut Cluster, now, &Policy) ──▶ Plan { decisions, reasons, stats }
//!     ▲                                                            │
//!     └────────────── what came of it, as deltas ◀─────────────────┘
//! ```
//!
//! It must not know: input and output, async, clocks, Kubernetes, floating point in a ledger, the order of a hash table.
//! It never panics on input: a bad object becomes a verdict on that object alone.

pub mod amounts;
pub mod claims;
pub mod cluster;
pub mod constraints;
pub mod cycle;
pub mod delta;
pub mod fair_share;
pub mod ids;
pub mod journal;
pub mod plan;
pub mod policy;
pub mod time;
pub mod topology;
pub mod usage;

pub use self::{
    cluster::Cluster,
    cycle::{job_order, plan},
};

/// How many cases a property test tries: so many, unless `KAI_PROPTEST_CASES` says otherwise.
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests may be told how long to try")]
pub(crate) fn test_cases(normally: u32) -> u32 {
    std::env::var("KAI_PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(normally)
}
