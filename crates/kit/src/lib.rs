//! What every component stands on, so that each component is only its own idea.
//!
//! ```text
//!  API server ─▶ watch ─▶ mirror (objects by key, indexes) ─▶ work queue ─▶ reconcile ─▶ writes
//!                  │                                              ▲ delays, backoff, one at a time per key
//!                  └─▶ health (is the watch alive?)               └─ nothing here waits for the world
//! ```
//!
//! It must not know: our kinds, and what any component does.

pub mod backoff;
pub mod client;
pub mod errors;
pub mod events;
pub mod health;
pub mod lean;
pub mod lease;
pub mod metrics;
pub mod mirror;
mod pace;
pub mod process;
mod put_off;
pub mod rbac;
pub mod refusals;
mod reread;
pub mod shared;
mod stream;
pub mod watch;
pub mod wire;
pub mod work;
pub mod writes;

pub use self::{
    errors::{Class, classify},
    events::Recorder,
    health::Health,
    lean::Lean,
    metrics::Metrics,
    mirror::{Change, Index, Key, Mirror},
    pace::Pace,
    process::Process,
    shared::SharedWatches,
    watch::Selection,
    work::{Next, WorkQueue},
};
