//! The tree of queues: who belongs to whom, which queues cannot be used, and sums along the way to the root.

use crate::{
    amounts::Shares,
    cluster::{Cluster, queue::Ledger},
    ids::QueueId,
};

/// No queue is nested deeper; a longer way up is a cycle.
const DEEPEST: usize = 64;

impl Cluster {
    /// Rebuilds the tree if queues came, went or changed.
    pub(crate) fn refresh_tree(&mut self) {
        if !std::mem::take(&mut self.tree_stale) {
            return;
        }
        self.link_queues();
        self.break_unusable_queues();
        self.sum_queues();
        for queue in &mut self.queues {
            queue.version += 1;
        }
    }

    /// The queue and its ancestors, from the leaf upwards.
    pub fn chain(&self, queue: QueueId) -> impl Iterator<Item = QueueId> + '_ {
        std::iter::successors(Some(queue), |queue| self.queues[queue.index()].parent)
    }

    /// The two queues to compare: the children of the lowest common ancestor on the way to `one` and to `other`. `None` if they are one.
    #[must_use]
    pub fn leveled(&self, one: QueueId, other: QueueId) -> Option<(QueueId, QueueId)> {
        let (mut one, mut other) = (one, other);
        let (depth, other_depth) = (self.chain(one).count(), self.chain(other).count());
        let level = depth.min(other_depth);
        // Ancestors at the same depth, then both upwards until they have one parent: a queue that is the other's ancestor has no sibling.
        one = self.chain(one).nth(depth - level)?;
        other = self.chain(other).nth(other_depth - level)?;
        while one != other {
            let parents = (self.queues[one.index()].parent, self.queues[other.index()].parent);
            match parents {
                (Some(a), Some(b)) if a != b => (one, other) = (a, b),
                _ => return Some((one, other)),
            }
        }
        None
    }

    /// Adds or subtracts what a pod costs all along the way to the root.
    pub(crate) fn charge_queues(
        &mut self,
        leaf: QueueId,
        charge: &Shares,
        by_memory: i128,
        preemptible: bool,
        times: i64,
    ) {
        let change = |ledger: &mut Ledger| {
            ledger.by_memory += by_memory * i128::from(times);
            for resource in 0..3 {
                let amount = charge.0[resource] * i128::from(times);
                ledger.allocated.0[resource] += amount;
                if !preemptible {
                    ledger.fixed.0[resource] += amount;
                }
            }
        };
        change(&mut self.queues[leaf.index()].own);
        let mut next = Some(leaf);
        while let Some(queue) = next {
            let queue = &mut self.queues[queue.index()];
            change(&mut queue.sum);
            queue.version = queue.version.wrapping_add(1);
            next = queue.parent;
        }
    }

    /// Adds or subtracts what a pod asks for all along the way to the root.
    pub(crate) fn await_queues(&mut self, leaf: QueueId, charge: &Shares, memory: i128, times: i64) {
        let change = |ledger: &mut Ledger| {
            for resource in 0..3 {
                ledger.waiting.0[resource] += charge.0[resource] * i128::from(times);
            }
            ledger.waiting_memory += memory * i128::from(times);
        };
        change(&mut self.queues[leaf.index()].own);
        let mut next = Some(leaf);
        while let Some(queue) = next {
            let queue = &mut self.queues[queue.index()];
            change(&mut queue.sum);
            next = queue.parent;
        }
    }

    fn link_queues(&mut self) {
        for index in 0..self.queues.len() {
            let parent = self.queues[index].parent_name.as_deref().and_then(|name| self.queue_ids.get(name)).copied();
            let queue = &mut self.queues[index];
            queue.parent = parent.filter(|_| queue.exists);
            queue.broken = None;
            queue.children.clear();
        }
        self.complaints.retain(|(kind, _), _| kind != "queue");
    }

    /// Queues whose way to the root leads through a missing queue or in a circle stand alone and cannot be used.
    fn break_unusable_queues(&mut self) {
        for index in 0..self.queues.len() {
            if self.queues[index].exists {
                let broken = self.trouble_above(QueueId::of(index));
                self.queues[index].broken = broken.or_else(|| self.trouble_within(index));
            }
        }
        for index in 0..self.queues.len() {
            let queue = &mut self.queues[index];
            if let Some(what) = queue.broken.clone() {
                queue.parent = None;
                let key = ("queue".to_owned(), queue.name.to_string());
                self.complaints.insert(key, what);
            } else if let Some(parent) = queue.parent {
                self.queues[parent.index()].children.push(QueueId::of(index));
            }
        }
        let mut order: Vec<QueueId> = (0..self.queues.len()).map(QueueId::of).collect();
        order.sort_by(|a, b| {
            let (a, b) = (&self.queues[a.index()], &self.queues[b.index()]);
            (a.created, &a.name).cmp(&(b.created, &b.name))
        });
        for (seniority, queue) in order.into_iter().enumerate() {
            self.queues[queue.index()].seniority = u32::try_from(seniority).unwrap_or(u32::MAX);
        }
        for index in 0..self.queues.len() {
            let mut children = std::mem::take(&mut self.queues[index].children);
            children.sort_by_key(|child| self.queues[child.index()].seniority);
            self.queues[index].children = children;
        }
    }

    fn trouble_above(&self, queue: QueueId) -> Option<String> {
        let mut current = queue;
        for _ in 0..DEEPEST {
            let name = self.queues[current.index()].parent_name.as_deref()?;
            match self.queues[current.index()].parent {
                Some(parent) if self.queues[parent.index()].exists => current = parent,
                _ => {
                    return Some(format!("spec.parentQueue: queue `{name}` does not exist; create it or name another"));
                }
            }
            if current == queue {
                break;
            }
        }
        Some("spec.parentQueue: the queue is its own ancestor, or nested too deep; break the circle".to_owned())
    }

    fn trouble_within(&self, index: usize) -> Option<String> {
        let queue = &self.queues[index];
        for (place, resource) in ["cpu", "memory", "gpu"].into_iter().enumerate() {
            for (field, value) in [("quota", queue.quota[place]), ("limit", queue.limit[place])] {
                if value.is_some_and(|value| value < 0) {
                    return Some(format!(
                        "spec.resources.{resource}.{field}: negative; write -1 for unlimited or an amount from 0"
                    ));
                }
            }
        }
        None
    }

    fn sum_queues(&mut self) {
        for queue in &mut self.queues {
            queue.sum = Ledger::default();
        }
        for index in 0..self.queues.len() {
            let own = self.queues[index].own;
            let mut next = Some(QueueId::of(index));
            while let Some(queue) = next {
                self.queues[queue.index()].sum.add(&own);
                next = self.queues[queue.index()].parent;
            }
        }
    }
}
