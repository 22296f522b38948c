//! A queue as it is described.

use crate::time::{Span, Time};

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// The queue it belongs to; `None`: it is at the top.
    pub parent: Option<String>,
    /// When it was made.
    pub created: Time,
    /// Who gets surplus first, is served first and reclaimed last.
    pub priority: i32,
    /// Millicores.
    pub cpu: QueueResource,
    /// Bytes.
    pub memory: QueueResource,
    /// Millionths of a GPU.
    pub gpu: QueueResource,
    /// How long its groups run before they may be preempted.
    pub preempt_min_runtime: Option<Span>,
    /// How long its groups run before they may be reclaimed.
    pub reclaim_min_runtime: Option<Span>,
}

/// What a queue may have of one resource. `None` is "unlimited".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct QueueResource {
    /// What is guaranteed.
    pub quota: Option<i64>,
    /// What may never be exceeded.
    pub limit: Option<i64>,
    /// Its part of the surplus relative to its siblings, in millionths.
    pub over_quota_weight: i64,
}
