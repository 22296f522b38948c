//! What the one task that owns the model is told.

use std::sync::Arc;

use kai_api::{Config, SchedulingShard};
use kai_convert::{Kind, Object};
use kai_kit::watch::News;

use tokio::sync::oneshot;

use crate::{job_order::JobOrder, outcome::Outcome};

/// One piece of news.
#[derive(Debug)]
pub(crate) enum Change {
    /// A watch told something.
    Watched {
        /// Which set of watches: those of an earlier model no longer count.
        epoch: u64,
        /// Of which kind.
        kind: Kind,
        /// What.
        news: News<Object>,
    },
    /// The watch of shards told something.
    Shard {
        /// Which set of watches.
        epoch: u64,
        /// What.
        news: News<Arc<SchedulingShard>>,
    },
    /// The watch of the Config told something.
    Config {
        /// Which set of watches.
        epoch: u64,
        /// What.
        news: News<Arc<Config>>,
    },
    /// Somebody asks in which order groups wait.
    Asked(oneshot::Sender<JobOrder>),
    /// A write ended.
    Written(Outcome),
}
