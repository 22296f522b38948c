//! Watches to deltas, deltas to a plan, the plan to writes.
//!
//! ```text
//!  API server ─▶ watches ─▶ changes ─▶ model (Converter, Cluster) ─▶ plan ─▶ decisions ─▶ writes ─▶ API server
//!                                        ▲      one task owns it        │        │
//!                                        │                              │        └▶ BindRequests, deletes, annotations
//!                                        │◀── decisions, unconfirmed ───┘        └▶ conditions, events
//!                                        └◀── outcomes of writes: confirmed, or taken back
//! ```
//!
//! A change opens a short window; when it closes, a cycle is run. A decision is part of the model from the moment it is made: the next
//! cycle may begin while it is still being written. It must not know: how binding is done, and how groups are made.

mod bind_note;
mod change;
mod cycle;
mod fingerprint;
mod foretold;
mod isolate;
mod job_order;
mod leader;
mod metrics;
mod model;
mod notes;
mod options;
mod outcome;
mod reshape;
mod rights;
mod scheduler;
mod setup;
mod snapshot;
mod status;
mod watches;
mod write;

#[cfg(test)]
mod tests;

use kai_core::{Cluster, cycle::Watch, plan::Plan, policy::Policy, time::Time};
use kai_kit::Process;

pub use self::{
    options::{Accepted, Options},
    rights::rights,
    snapshot::snapshot,
};

/// Why the scheduler ended though nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace cannot be written.
    #[error("record to `{path}`")]
    Record {
        /// Where to.
        path: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The file of `--scheduler-conf` cannot be used.
    #[error("--scheduler-conf `{path}`")]
    Configuration {
        /// Which file.
        path: std::path::PathBuf,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Snapshots and the order cannot be served.
    #[error("serve snapshots and the order of groups on --plugin-server-port {port}")]
    Serve {
        /// The port.
        port: u16,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

/// What decides.
type Planner = fn(&mut Cluster, Time, &Policy, Watch<'_>) -> Plan;

/// Schedules until the process ends.
pub async fn run(process: Process, options: Options) -> Result<(), Error> {
    scheduler::run(process, options, kai_core::cycle::plan_watched).await
}
