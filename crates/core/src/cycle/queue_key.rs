//! Which of two queues comes first: KAI's eight questions, asked in turn until one tells them apart.
//!
//! A key holds the answers for one queue with the group at its head: the next to be served (its request is added), or the next victim
//! (what was taken so far and the victim are subtracted).

use std::cmp::Ordering;

use crate::{
    amounts::{GPU, Shares, share},
    cluster::Cluster,
    cycle::capacity::{allocatable, quotas, within},
    ids::QueueId,
};

/// The answers for one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueKey {
    /// 1. It has more than its fair share of everything.
    over_utilised: bool,
    /// 2. With its head it exceeds its quota somewhere.
    beyond_quota: bool,
    /// 3. Its priority; higher is served first.
    priority: i32,
    /// 4. Its head uses a resource of which it should have nothing.
    uses_nothing: bool,
    /// 5. The largest part of a resource it has, with its head.
    share_with_head: Ratio,
    /// 6. The same as it is.
    share: Ratio,
    /// 7. What it may use.
    allocatable: [Option<i128>; 3],
    /// 8. Its place among all queues by age, then name.
    seniority: u32,
}

/// A fraction, compared exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    part: i128,
    whole: i128,
}

impl Ratio {
    /// `part` of `whole`; `whole` must be positive.
    #[must_use]
    pub fn new(part: i128, whole: i128) -> Self {
        Self { part, whole: whole.max(1) }
    }

    /// Which is smaller.
    #[must_use]
    pub fn compare(self, other: Self) -> Ordering {
        let small = |ratio: Self| Some((i64::try_from(ratio.part).ok()?, i64::try_from(ratio.whole).ok()?));
        if let (Some((part, whole)), Some((other_part, other_whole))) = (small(self), small(other)) {
            // Nearly always: a product of two words cannot overflow, and is one instruction.
            let product = |a: i64, b: i64| i128::from(a) * i128::from(b);
            return product(part, other_whole).cmp(&product(other_part, whole));
        }
        match (self.part.checked_mul(other.whole), other.part.checked_mul(self.whole)) {
            (Some(left), Some(right)) => left.cmp(&right),
            // Only hostile amounts get here: whole parts decide.
            _ => (self.part / self.whole).cmp(&(other.part / other.whole)),
        }
    }
}

impl QueueKey {
    /// The answers for a queue with `request` at its head, in a cluster with `total`.
    #[must_use]
    pub fn serving(cluster: &Cluster, id: QueueId, request: &Shares, total: &Shares) -> Self {
        let with_head = cluster.queues[id.index()].sum.allocated.plus(request);
        Self::new(cluster, id, &with_head, total, &with_head, request)
    }

    /// The answers for a queue of which `taken` was and would be taken, in a cluster with `total`. Nobody is served, so quota and use are
    /// those of what it has.
    #[must_use]
    pub fn taking(cluster: &Cluster, id: QueueId, taken: &Shares, total: &Shares) -> Self {
        let allocated = cluster.queues[id.index()].sum.allocated;
        let mut without = allocated;
        without.subtract(taken);
        Self::new(cluster, id, &without, total, &allocated, &allocated)
    }

    fn new(cluster: &Cluster, id: QueueId, with_head: &Shares, total: &Shares, judged: &Shares, used: &Shares) -> Self {
        let queue = &cluster.queues[id.index()];
        let allocated = &queue.sum.allocated;
        let allocatable = allocatable(cluster, id);
        let over_utilised = (0..3).all(|resource| queue.fair_share.0[resource] < allocated.0[resource]);
        let uses_nothing = (0..3).any(|resource| allocatable[resource] == Some(0) && used.0[resource] > 0);
        Self {
            over_utilised,
            beyond_quota: !within(judged, &quotas(cluster, id)),
            priority: queue.priority,
            uses_nothing,
            share_with_head: dominant(with_head, &allocatable, total),
            share: dominant(allocated, &allocatable, total),
            allocatable,
            seniority: queue.seniority,
        }
    }

    /// Which queue is served first; victims come from the last.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        self.over_utilised
            .cmp(&other.over_utilised)
            .then_with(|| self.beyond_quota.cmp(&other.beyond_quota))
            .then_with(|| other.priority.cmp(&self.priority))
            .then_with(|| self.uses_nothing.cmp(&other.uses_nothing))
            .then_with(|| self.share_with_head.compare(other.share_with_head))
            .then_with(|| self.share.compare(other.share))
            .then_with(|| self.compare_allocatable(other))
            .then_with(|| self.seniority.cmp(&other.seniority))
    }

    fn compare_allocatable(&self, other: &Self) -> Ordering {
        let at_most = |a: &Self, b: &Self| {
            a.allocatable.iter().zip(&b.allocatable).all(|(a, b)| match (a, b) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(a), Some(b)) => a <= b,
            })
        };
        match (at_most(self, other), at_most(other, self)) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            _ => Ordering::Equal,
        }
    }
}

/// The largest part that a queue has of what it may use of a resource.
fn dominant(amount: &Shares, allocatable: &[Option<i128>; 3], total: &Shares) -> Ratio {
    let ratios = (0..3).map(|resource| {
        let whole = allocatable[resource].unwrap_or(total.0[resource]);
        if whole > 0 {
            return Ratio::new(amount.0[resource], whole);
        }
        // Of nothing any amount is too much: a thousand times itself, in devices, millicores or bytes.
        let unit = if resource == share::GPU { i128::from(GPU) } else { 1 };
        Ratio::new(amount.0[resource].saturating_mul(1000), unit)
    });
    ratios.fold(Ratio::new(0, 1), |most, ratio| if most.compare(ratio) == Ordering::Less { ratio } else { most })
}
