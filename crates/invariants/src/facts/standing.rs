//! Where a pod stands before a cycle.

use kai_core::{
    delta::{Phase, Pod},
    time::{Span, Time},
};

use super::is_sane;

/// Where a pod stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Waits for a place.
    Pending,
    /// Not to be scheduled yet.
    Gated,
    /// Has a place and stays there: being bound, bound or running.
    Placed,
    /// Has a place and is leaving it.
    Releasing,
    /// Has been leaving for so long that nobody counts on it.
    Stuck,
    /// Ended well.
    Succeeded,
    /// Ended badly, or wrong itself.
    Ended,
}

impl Standing {
    /// The standing of a pod.
    #[must_use]
    pub fn of(pod: &Pod, now: Time, stuck_after: Span) -> Self {
        match (pod.phase, pod.deleted) {
            (Phase::Succeeded, _) => Self::Succeeded,
            (Phase::Failed, _) => Self::Ended,
            (Phase::Running, Some(deleted)) if now.since(deleted) > stuck_after => Self::Stuck,
            (_, Some(_)) => Self::Releasing,
            (Phase::Running, None) => Self::Placed,
            _ if pod.placement.is_some() => Self::Placed,
            _ if pod.invalid.is_some() || !is_sane(&pod.request) => Self::Ended,
            (Phase::Gated, None) => Self::Gated,
            (Phase::Pending, None) => Self::Pending,
        }
    }

    /// Whether it occupies its place.
    #[must_use]
    pub fn is_physical(self) -> bool {
        matches!(self, Self::Placed | Self::Releasing | Self::Stuck)
    }
}
