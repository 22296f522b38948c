//! What PodGroups and Queues hold, as their status; and warnings about nodes whose GPU labels are of no use.
//!
//! ```text
//!  pods ─▶ pod_book ──┐                     ┌─▶ status of the group
//!  nodes, claims,     ├─▶ sums of a group ──┴─▶ ledger ─▶ tree of queues ─▶ status of queues, conditions, gauges
//!  priority classes ──┘
//! ```
//!
//! It must not know: how pods are scheduled and bound. It decides nothing; whatever it writes can be computed again
//! from what is.

pub mod amounts;
pub mod conditions;
pub mod ledger;
mod metrics;
mod options;
pub mod pod_book;
pub mod pod_facts;
mod rights;
pub mod sums;
pub mod tree;
mod work;
mod world;

use kai_api::names::leases;
use kai_kit::{
    Process,
    lease::{self, Times},
};

use self::{
    metrics::{ExtraLabel, QueueMetrics},
    work::Work,
    world::World,
};
pub use self::{options::Options, rights::rights};

/// Why the controllers ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An option cannot be read.
    #[error("option `{option}`: {what}")]
    Option {
        /// Which.
        option: &'static str,
        /// What is wrong with it.
        what: String,
    },
}

/// Runs the controllers until the process is cancelled.
pub async fn run(process: Process, options: Options) -> Result<(), Error> {
    let extra = ExtraLabel::read(&options.queue_label_to_metric_label, &options.queue_label_to_default_metric_value)?;
    let Some(world) = World::start(&process, &options).await else { return Ok(()) };
    let metrics = QueueMetrics::new(&process.metrics, extra);
    let leader_elect = options.leader_elect;
    let work = Work::new(process.clone(), options, world, metrics);
    if !leader_elect {
        work.run(process.cancel.clone()).await;
        return Ok(());
    }
    while !process.cancel.is_cancelled() {
        lease::lead(&process, leases::CONTROLLERS, Times::default(), |held| work.run(held)).await;
    }
    Ok(())
}
