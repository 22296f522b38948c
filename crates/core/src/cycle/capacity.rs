//! What queues may have: the hard limits, and the quota for pods that cannot be evicted.

use crate::{
    amounts::{Shares, share},
    cluster::Cluster,
    ids::QueueId,
    plan::{Cause, NodeRefusal, Overdraft},
};

/// Which rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// A limit.
    Limit(Overdraft),
    /// The quota, by pods that cannot be evicted.
    Quota(Overdraft),
}

impl Breach {
    /// As the cause of a group's refusal.
    #[must_use]
    pub fn cause(self) -> Cause {
        match self {
            Self::Limit(overdraft) => Cause::OverLimit(overdraft),
            Self::Quota(overdraft) => Cause::NonPreemptibleOverQuota(overdraft),
        }
    }

    /// As the refusal of a node.
    #[must_use]
    pub fn refusal(self) -> NodeRefusal {
        match self {
            Self::Limit(overdraft) => NodeRefusal::OverLimit(overdraft),
            Self::Quota(overdraft) => NodeRefusal::NonPreemptibleOverQuota(overdraft),
        }
    }
}

impl Cluster {
    /// The first queue, from the leaf upwards, that may not have so much more: by its limit, then by its quota.
    #[must_use]
    pub fn breach(&self, leaf: QueueId, request: &Shares, preemptible: bool) -> Option<Breach> {
        self.chain(leaf).find_map(|id| {
            let queue = &self.queues[id.index()];
            let over = overdraft(id, &queue.limit, &queue.sum.allocated, request).map(Breach::Limit);
            over.or_else(|| {
                let fixed = overdraft(id, &queue.quota, &queue.sum.fixed, request);
                fixed.filter(|_| !preemptible).map(Breach::Quota)
            })
        })
    }

    /// Whether a request exceeds a limit wherever pods are moved: only what is asked for by memory may cost less elsewhere.
    #[must_use]
    pub fn is_over_limit_everywhere(&self, leaf: QueueId, request: &Shares) -> bool {
        self.chain(leaf).any(|id| {
            let queue = &self.queues[id.index()];
            let mut least = queue.sum.allocated;
            least.0[share::GPU] -= queue.sum.by_memory;
            overdraft(id, &queue.limit, &least, request).is_some()
        })
    }

    /// The first queue whose quota pods that cannot be evicted would exceed.
    #[must_use]
    pub fn quota_breach(&self, leaf: QueueId, request: &Shares) -> Option<Overdraft> {
        self.chain(leaf).find_map(|id| {
            let queue = &self.queues[id.index()];
            overdraft(id, &queue.quota, &queue.sum.fixed, request)
        })
    }
}

fn overdraft(queue: QueueId, allowed: &[Option<i64>; 3], allocated: &Shares, request: &Shares) -> Option<Overdraft> {
    // GPUs first: it is what users ask about.
    [2, 0, 1].into_iter().find_map(|resource| {
        let allowed = i128::from(allowed[resource]?);
        let (allocated, requested) = (allocated.0[resource], request.0[resource]);
        (requested > 0 && allowed < allocated + requested).then(|| Overdraft {
            queue,
            resource: u8::try_from(resource).unwrap_or(0),
            allowed,
            allocated,
            requested,
        })
    })
}

/// Whether `amount` stays within `bounds`, unlimited where `None`.
#[must_use]
pub fn within(amount: &Shares, bounds: &[Option<i128>; 3]) -> bool {
    amount.0.iter().zip(bounds).all(|(amount, bound)| bound.is_none_or(|bound| *amount <= bound))
}

/// Whether `amount` exceeds one of `bounds`.
#[must_use]
pub fn exceeds(amount: &Shares, bounds: &[Option<i128>; 3]) -> bool {
    !within(amount, bounds)
}

/// Quotas as bounds.
#[must_use]
pub fn quotas(cluster: &Cluster, queue: QueueId) -> [Option<i128>; 3] {
    cluster.queues[queue.index()].quota.map(|quota| quota.map(i128::from))
}

/// What queues may use before they have to give back, as bounds.
#[must_use]
pub fn allocatable(cluster: &Cluster, queue: QueueId) -> [Option<i128>; 3] {
    let queue = &cluster.queues[queue.index()];
    [queue.allocatable(0), queue.allocatable(1), queue.allocatable(2)]
}
