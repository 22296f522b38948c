//! Whose turn it is: the tree of queues with groups at its leaves, read from the top.
//!
//! Each inner queue is represented by the best group below it. A pop descends from the root to the child that compares best *as things stand*:
//! what a queue holds changes with every placement, so nothing but the head of each queue is remembered, and only until the queue or one
//! of its lists changes.

use std::{cell::Cell, cmp::Ordering, sync::Arc};

use rustc_hash::FxHashMap;

use crate::{
    amounts::Shares,
    cluster::{Cluster, status::Status},
    cycle::{queue_key::QueueKey, tasks::Tasks},
    ids::{GroupId, QueueId},
    policy::Policy,
};

/// What comparisons look at.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The policy.
    pub policy: &'a Policy,
    /// What queues share.
    pub total: Shares,
    /// MiB of the smallest device.
    pub smallest_gpu: Option<u64>,
}

impl<'a> View<'a> {
    /// The view of groups' pods.
    #[must_use]
    pub fn tasks(&self) -> Tasks<'a> {
        Tasks { cluster: self.cluster, policy: self.policy }
    }

    /// Which of two groups of a queue comes first.
    #[must_use]
    pub fn compare_groups(&self, one: GroupId, other: GroupId) -> Ordering {
        let (a, b) = (&self.cluster.groups[one.index()], &self.cluster.groups[other.index()]);
        let plugins = &self.policy.plugins;
        let priority = if plugins.priority { b.priority.cmp(&a.priority) } else { Ordering::Equal };
        priority
            .then_with(|| if plugins.elastic { a.elastic_state().cmp(&b.elastic_state()) } else { Ordering::Equal })
            .then_with(|| a.created.cmp(&b.created))
            .then_with(|| a.key.cmp(&b.key))
    }
}

/// Groups in the order in which their turn comes.
#[derive(Debug, Default)]
pub struct ServingOrder {
    leaves: FxHashMap<QueueId, Leaf>,
    /// The queues that have lists.
    queues: Vec<QueueId>,
    roots: Vec<QueueId>,
    /// By queue: the head of its subtree.
    heads: Vec<Option<Head>>,
    /// The keys of queues that were compared with others, each with the head it is of.
    keys: FxHashMap<QueueId, (Head, QueueKey)>,
    /// By queue: whether any leaf below has a list.
    listed: Vec<bool>,
}

/// Groups of one queue that wait, sorted by [`View::compare_groups`].
#[derive(Clone, Debug)]
pub struct WaitingList {
    /// The queue.
    pub queue: QueueId,
    /// Its groups.
    pub groups: Arc<[GroupId]>,
    /// The first that counts.
    pub from: usize,
}

/// The groups of one queue.
#[derive(Debug)]
struct Leaf {
    /// Sorted, shared with other orders.
    base: Arc<[GroupId]>,
    next: usize,
    /// Groups of `base` before this place wait no more.
    live: Cell<usize>,
    /// Added to it, the best last.
    extra: Vec<GroupId>,
}

/// The best group below a queue, at a state of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    group: Option<GroupId>,
    version: u32,
}

impl ServingOrder {
    /// An order over lists of groups.
    #[must_use]
    pub fn new(view: &View, lists: Vec<WaitingList>) -> Self {
        let mut order = Self {
            heads: vec![None; view.cluster.queues.len()],
            listed: vec![false; view.cluster.queues.len()],
            ..Self::default()
        };
        for list in lists {
            order.add_leaf(view, list);
        }
        order
    }

    fn add_leaf(&mut self, view: &View, WaitingList { queue, groups, from }: WaitingList) {
        self.leaves.insert(queue, Leaf { base: groups, next: from, live: Cell::new(from), extra: Vec::new() });
        self.queues.push(queue);
        for ancestor in view.cluster.chain(queue) {
            if std::mem::replace(&mut self.listed[ancestor.index()], true) {
                return;
            }
            if view.cluster.queues[ancestor.index()].parent.is_none() {
                self.roots.push(ancestor);
            }
        }
    }

    /// Adds a group that is not in the lists, or has another turn.
    pub fn push(&mut self, view: &View, group: GroupId) {
        self.push_all(view, vec![group]);
    }

    /// Adds groups that are not in the lists.
    pub fn push_all(&mut self, view: &View, mut groups: Vec<GroupId>) {
        // The best last, as the lists of additions are kept: a few merge in place, many are sorted once.
        groups.sort_by(|a, b| view.compare_groups(*b, *a));
        let mut changed: Option<QueueId> = None;
        for group in groups {
            let Some(queue) = view.cluster.groups[group.index()].queue else { continue };
            if !self.leaves.contains_key(&queue) {
                self.add_leaf(view, WaitingList { queue, groups: Arc::default(), from: 0 });
            }
            if let Some(leaf) = self.leaves.get_mut(&queue) {
                let place = match leaf.extra.last() {
                    Some(last) if view.compare_groups(*last, group) != Ordering::Greater => {
                        leaf.extra.partition_point(|other| view.compare_groups(*other, group) == Ordering::Greater)
                    }
                    _ => leaf.extra.len(),
                };
                leaf.extra.insert(place, group);
            }
            if changed.replace(queue) != Some(queue) {
                self.forget_heads(view, queue);
            }
        }
    }

    /// The lists of all queues below some roots, from the first group that still waits.
    #[must_use]
    pub fn lists_below(&self, cluster: &Cluster, roots: &[QueueId]) -> Vec<WaitingList> {
        let mut lists = Vec::new();
        for queue in &self.queues {
            let below = cluster.chain(*queue).last().is_some_and(|root| roots.contains(&root));
            let Some(leaf) = self.leaves.get(queue).filter(|_| below) else { continue };
            while leaf.base.get(leaf.live.get()).is_some_and(|group| !is_waiting(cluster, *group)) {
                leaf.live.set(leaf.live.get() + 1);
            }
            lists.push(WaitingList { queue: *queue, groups: Arc::clone(&leaf.base), from: leaf.live.get() });
        }
        lists
    }

    /// Leaves out what cannot change the order among groups that were added to these queues: everything outside the children of their lowest
    /// common ancestor, and where it is one queue everything but the added groups.
    pub fn narrow(&mut self, view: &View, queues: &[QueueId]) {
        if let [queue] = queues {
            if let Some(leaf) = self.leaves.get_mut(queue) {
                leaf.next = leaf.base.len();
            }
            self.roots = vec![*queue];
            self.forget_heads(view, *queue);
            return;
        }
        let leads_to_all =
            |ancestor: QueueId| queues.iter().all(|queue| view.cluster.chain(*queue).any(|other| other == ancestor));
        let Some(first) = queues.first() else { return };
        if let Some(common) = view.cluster.chain(*first).find(|ancestor| leads_to_all(*ancestor)) {
            let leads_to_any =
                |child: QueueId| queues.iter().any(|queue| view.cluster.chain(*queue).any(|other| other == child));
            let children = view.cluster.queues[common.index()].children.iter().copied();
            self.roots = children.filter(|child| leads_to_any(*child)).collect();
        }
    }

    /// The next group. Groups of the sorted lists for which `skip` holds have no turn.
    pub fn pop(&mut self, view: &View, skip: &dyn Fn(GroupId) -> bool) -> Option<GroupId> {
        let roots = std::mem::take(&mut self.roots);
        let group = self.best_of(view, &roots, skip);
        self.roots = roots;
        let group = group?;
        let queue = view.cluster.groups[group.index()].queue?;
        let leaf = self.leaves.get_mut(&queue)?;
        if leaf.extra.last() == Some(&group) {
            leaf.extra.pop();
        } else {
            leaf.next += 1;
        }
        self.forget_heads(view, queue);
        Some(group)
    }

    fn forget_heads(&mut self, view: &View, queue: QueueId) {
        for ancestor in view.cluster.chain(queue) {
            self.heads[ancestor.index()] = None;
            self.keys.remove(&ancestor);
        }
    }

    fn head(&mut self, view: &View, queue: QueueId, skip: &dyn Fn(GroupId) -> bool) -> Head {
        let version = view.cluster.queues[queue.index()].version;
        if let Some(head) = self.heads[queue.index()].filter(|head| head.version == version) {
            return head;
        }
        let group = match self.leaves.get_mut(&queue) {
            Some(leaf) => leaf.head(view, skip),
            None => self.best_of(view, &view.cluster.queues[queue.index()].children, skip),
        };
        let head = Head { group, version };
        self.heads[queue.index()] = Some(head);
        head
    }

    /// The head of the queue that comes first. Who is alone is first without comparison.
    fn best_of(&mut self, view: &View, queues: &[QueueId], skip: &dyn Fn(GroupId) -> bool) -> Option<GroupId> {
        let mut best: Option<(QueueId, Head)> = None;
        for queue in queues.iter().copied() {
            if !self.listed[queue.index()] {
                continue;
            }
            let head = self.head(view, queue, skip);
            if head.group.is_none() {
                continue;
            }
            let first = best.is_none_or(|(known, other)| {
                let (one, other) = (self.key(view, queue, head), self.key(view, known, other));
                one.compare(&other) == Ordering::Less
            });
            if first {
                best = Some((queue, head));
            }
        }
        best?.1.group
    }

    fn key(&mut self, view: &View, queue: QueueId, head: Head) -> QueueKey {
        if let Some((_, key)) = self.keys.get(&queue).filter(|(of, _)| *of == head) {
            return *key;
        }
        let tasks = view.tasks();
        let request = head.group.map(|group| tasks.cost(&tasks.to_place(group), view.smallest_gpu)).unwrap_or_default();
        let key = QueueKey::serving(view.cluster, queue, &request, &view.total);
        self.keys.insert(queue, (head, key));
        key
    }
}

impl Leaf {
    fn head(&mut self, view: &View, skip: &dyn Fn(GroupId) -> bool) -> Option<GroupId> {
        while self.base.get(self.next).is_some_and(|group| skip(*group)) {
            self.next += 1;
        }
        match (self.base.get(self.next), self.extra.last()) {
            (Some(base), Some(extra)) if view.compare_groups(*extra, *base) == Ordering::Less => Some(*extra),
            (Some(base), _) => Some(*base),
            (None, extra) => extra.copied(),
        }
    }
}

/// Whether a group still has pods that wait.
#[must_use]
pub fn is_waiting(cluster: &Cluster, group: GroupId) -> bool {
    cluster.groups[group.index()].count(Status::Pending) > 0
}
