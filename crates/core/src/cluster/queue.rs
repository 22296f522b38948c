//! A queue: what it may have, what its pods hold and ask for, and its groups.

use crate::{
    amounts::{Shares, share, share_of},
    delta,
    ids::{GroupId, QueueId},
    time::{Span, Time},
};

/// A queue.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Its name.
    pub name: Box<str>,
    /// Whether the queue is known.
    pub exists: bool,
    /// The name of the queue it belongs to.
    pub parent_name: Option<Box<str>>,
    /// The queue it belongs to, once the tree is built.
    pub parent: Option<QueueId>,
    /// Its parts, oldest first, then by name.
    pub children: Vec<QueueId>,
    /// Why it cannot be used.
    pub broken: Option<String>,
    /// When it was made.
    pub created: Time,
    /// Its place among all queues by age, then name.
    pub seniority: u32,
    /// Higher is served first.
    pub priority: i32,
    /// What is guaranteed, per resource.
    pub quota: [Option<i64>; 3],
    /// What may not be exceeded, per resource.
    pub limit: [Option<i64>; 3],
    /// The part of the surplus, per resource.
    pub weight: [i64; 3],
    /// How long its groups run before they may be preempted.
    pub preempt_min_runtime: Option<Span>,
    /// How long its groups run before they may be reclaimed.
    pub reclaim_min_runtime: Option<Span>,
    /// What its own pods hold and ask for.
    pub own: Ledger,
    /// The same with all its children.
    pub sum: Ledger,
    /// What it should have, as divided at the start of the cycle.
    pub fair_share: Shares,
    /// Counts changes of `allocated`, so that orders know when to look again.
    pub version: u32,
    /// Groups with waiting pods, in any order.
    pub waiting_groups: Vec<GroupId>,
    /// Groups with pods that run, in any order.
    pub running_groups: Vec<GroupId>,
    /// Counts changes of the two lists.
    pub groups_version: u32,
}

/// What pods hold and ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// What they hold or are promised.
    pub allocated: Shares,
    /// Of that, what cannot be evicted.
    pub fixed: Shares,
    /// GPUs among it that are asked for by memory: on other devices they would be another share.
    pub by_memory: i128,
    /// What waiting ones ask for, without GPU memory.
    pub waiting: Shares,
    /// MiB of GPU memory that waiting ones ask for.
    pub waiting_memory: i128,
}

impl Ledger {
    /// Adds another ledger.
    pub fn add(&mut self, other: &Self) {
        self.allocated.add(&other.allocated);
        self.fixed.add(&other.fixed);
        self.by_memory += other.by_memory;
        self.waiting.add(&other.waiting);
        self.waiting_memory += other.waiting_memory;
    }

    /// What its pods hold and ask for together, with memory counted on the smallest device.
    #[must_use]
    pub fn request(&self, smallest_gpu: Option<u64>) -> Shares {
        let mut request = self.allocated.plus(&self.waiting);
        if let Some(memory) = smallest_gpu.filter(|memory| *memory > 0) {
            request.0[share::GPU] += share_of(self.waiting_memory, memory);
        }
        request
    }
}

impl Queue {
    /// A queue that is only known by name.
    #[must_use]
    pub fn unknown(name: &str) -> Self {
        Self {
            name: name.into(),
            exists: false,
            parent_name: None,
            parent: None,
            children: Vec::new(),
            broken: None,
            created: Time(0),
            seniority: 0,
            priority: 0,
            quota: [Some(0); 3],
            limit: [Some(0); 3],
            weight: [0; 3],
            preempt_min_runtime: None,
            reclaim_min_runtime: None,
            own: Ledger::default(),
            sum: Ledger::default(),
            fair_share: Shares::default(),
            version: 0,
            waiting_groups: Vec::new(),
            running_groups: Vec::new(),
            groups_version: 0,
        }
    }

    /// Takes over what a description says.
    pub fn describe(&mut self, queue: &delta::Queue) {
        let resources = [&queue.cpu, &queue.memory, &queue.gpu];
        self.exists = true;
        self.parent_name = queue.parent.as_deref().map(Into::into);
        self.created = queue.created;
        self.priority = queue.priority;
        self.quota = resources.map(|resource| resource.quota);
        self.limit = resources.map(|resource| resource.limit);
        self.weight = resources.map(|resource| resource.over_quota_weight);
        self.preempt_min_runtime = queue.preempt_min_runtime;
        self.reclaim_min_runtime = queue.reclaim_min_runtime;
    }

    /// What it may use before it has to give back, per resource: unlimited where `None`.
    #[must_use]
    pub fn allocatable(&self, resource: usize) -> Option<i128> {
        let limit = self.limit[resource].map(i128::from);
        let Some(quota) = self.quota[resource] else { return limit };
        let share = i128::from(quota).max(self.fair_share.0[resource]);
        Some(limit.map_or(share, |limit| limit.min(share)))
    }

    /// Whether pods can be run from it.
    #[must_use]
    pub fn is_usable_leaf(&self) -> bool {
        self.exists && self.broken.is_none() && self.children.is_empty()
    }
}
