//! Who gives first: running groups in the reverse of the order of serving.
//!
//! The tree of queues is read for the *last* queue, with what was already taken from each and its next victim left out of its share; in a leaf the
//! lowest priority, the largest surplus and the youngest go first. A group gives in *batches*: surplus pods one by one, then surplus
//! parts, then everything that is left at once.

use std::{cmp::Ordering, sync::Arc};

use smallvec::{SmallVec, smallvec};

use crate::{
    amounts::Shares,
    cluster::{Cluster, status::Status},
    cycle::{Cycle, order::View, queue_key::QueueKey, tasks::is_evictable},
    ids::{GroupId, PodId, QueueId},
};

/// The groups of a queue that may be evicted, first victims first.
#[derive(Clone, Debug)]
pub struct Roster {
    /// Which state of the queue's lists it was made from.
    version: u32,
    groups: Arc<[GroupId]>,
    /// Groups before this place have nothing left to give in this cycle.
    spent: usize,
}

/// Pods of a group that go together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The group.
    pub group: GroupId,
    /// Its queue.
    pub queue: QueueId,
    /// The pods.
    pub pods: SmallVec<[PodId; 4]>,
    /// What they cost their queue.
    pub charge: Shares,
}

/// When promises of this cycle are taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promises {
    /// Before anything that runs: nobody loses what a queue rightly holds for what it was just promised.
    First,
    /// In the turn of the group.
    InTurn,
}

/// Batches in the order in which they would be taken.
#[derive(Debug)]
pub struct TakingOrder {
    promises: Promises,
    leaves: Vec<Leaf>,
    /// By queue: what was taken below it.
    taken: Vec<Shares>,
    /// By queue: its leaf, if it is one.
    leaf_of: Vec<u32>,
    /// By queue: whether any leaf below takes part.
    listed: Vec<bool>,
    roots: SmallVec<[QueueId; 4]>,
}

#[derive(Debug)]
struct Leaf {
    /// Groups that have given nothing yet: those that ran before this cycle, and those that were given or promised places in it.
    fresh: [List; 2],
    /// Groups that have given and can give more, the next last.
    again: Vec<Giver>,
    /// Whether the heads of `fresh` are known to have something to give.
    ready: bool,
}

/// The places in [`Leaf::fresh`].
const RUNNING: usize = 0;
const PROMISED: usize = 1;

/// Groups in the order in which they would give.
#[derive(Clone, Debug, Default)]
struct List {
    groups: Arc<[GroupId]>,
    next: usize,
}

impl List {
    fn head(&self) -> Option<GroupId> {
        self.groups.get(self.next).copied()
    }
}

/// Groups of a queue that were given or promised places in this cycle.
#[derive(Debug, Default)]
pub struct Promised {
    groups: Vec<GroupId>,
    /// The same in the order in which they would give.
    sorted: Arc<[GroupId]>,
    /// GPUs of the largest of them.
    largest: i128,
}

impl Promised {
    /// GPUs of the largest group.
    pub fn largest(&self) -> i128 {
        self.largest
    }

    /// Adds a group with so many GPUs; the same may be added again.
    pub fn push(&mut self, group: GroupId, gpus: impl FnOnce() -> i128) {
        if self.groups.last() != Some(&group) {
            self.groups.push(group);
            self.largest = self.largest.max(gpus());
        }
    }
}

/// Who gives next in a leaf.
enum Next {
    /// The head of one of the lists.
    Fresh(usize, GroupId),
    /// The last of those that have given.
    Again,
}

/// A group that gives.
#[derive(Clone, Debug)]
struct Giver {
    group: GroupId,
    /// What is left.
    batches: smallvec::IntoIter<[Batch; 1]>,
}

impl Cycle<'_> {
    /// The order of victims of some leaf queues.
    pub(super) fn taking_order(&mut self, queues: &[QueueId], promises: Promises) -> TakingOrder {
        let count = self.cluster.queues.len();
        let mut order = TakingOrder {
            promises,
            leaves: Vec::with_capacity(queues.len()),
            taken: vec![Shares::default(); count],
            leaf_of: vec![u32::MAX; count],
            listed: vec![false; count],
            roots: SmallVec::new(),
        };
        for queue in queues {
            let (groups, next) = self.roster(*queue);
            let promised = List { groups: self.promised_groups(*queue), next: 0 };
            order.leaf_of[queue.index()] = u32::try_from(order.leaves.len()).unwrap_or(u32::MAX);
            order.leaves.push(Leaf { fresh: [List { groups, next }, promised], again: Vec::new(), ready: false });
            for ancestor in self.cluster.chain(*queue) {
                if std::mem::replace(&mut order.listed[ancestor.index()], true) {
                    break;
                }
                if self.cluster.queues[ancestor.index()].parent.is_none() {
                    order.roots.push(ancestor);
                }
            }
        }
        order
    }

    /// Whether a queue has groups to take from. What runs in a queue that cannot be used is left alone: it could never come back.
    pub(super) fn may_have_victims(&self, queue: QueueId) -> bool {
        let described = &self.cluster.queues[queue.index()];
        described.is_usable_leaf() && (!described.running_groups.is_empty() || self.promised.contains_key(&queue))
    }

    /// The groups of a queue that may be evicted, and from where on some have something left.
    pub(super) fn roster(&mut self, queue: QueueId) -> (Arc<[GroupId]>, usize) {
        let described = &self.cluster.queues[queue.index()];
        let version = described.groups_version;
        let known = self.cluster.memory.victims.remove(&queue).filter(|roster| roster.version == version);
        let mut roster = known.unwrap_or_else(|| {
            let running = described.running_groups.iter().copied();
            let may_give = |group: &GroupId| {
                let group = &self.cluster.groups[group.index()];
                group.preemptible && group.rare().invalid.is_none()
            };
            let mut groups: Vec<GroupId> = running.filter(may_give).collect();
            let view = self.view();
            groups.sort_unstable_by(|a, b| view.compare_groups(*b, *a));
            Roster { version, groups: groups.into(), spent: 0 }
        });
        while roster.groups.get(roster.spent).is_some_and(|group| !can_give(self.cluster, *group, RUNNING)) {
            roster.spent += 1;
        }
        let result = (Arc::clone(&roster.groups), roster.spent);
        self.cluster.memory.victims.insert(queue, roster);
        result
    }

    fn promised_groups(&mut self, queue: QueueId) -> Arc<[GroupId]> {
        let Some(mut promised) = self.promised.remove(&queue) else { return Arc::default() };
        if promised.sorted.len() != promised.groups.len() {
            let view = self.view();
            promised.groups.sort_unstable_by(|a, b| view.compare_groups(*b, *a));
            promised.groups.dedup();
            promised.sorted = promised.groups.as_slice().into();
        }
        let sorted = Arc::clone(&promised.sorted);
        self.promised.insert(queue, promised);
        sorted
    }

    /// At the start of a cycle every victim has everything to give.
    pub(super) fn refill_rosters(&mut self) {
        for roster in self.cluster.memory.victims.values_mut() {
            roster.spent = 0;
        }
    }

    /// The next batch. Groups for which `eligible` does not hold give nothing.
    pub(super) fn take_next(
        &mut self,
        order: &mut TakingOrder,
        eligible: &mut dyn FnMut(&Self, GroupId) -> bool,
    ) -> Option<Batch> {
        let promises = order.promises;
        for leaf in order.leaves.iter_mut().filter(|leaf| !leaf.ready) {
            for (kind, list) in leaf.fresh.iter_mut().enumerate() {
                while list
                    .head()
                    .is_some_and(|group| !gives(self.cluster, group, kind, promises) || !eligible(self, group))
                {
                    list.next += 1;
                }
            }
            leaf.ready = true;
        }
        let leaf = order.last_leaf(&self.view())?;
        let leaf = &mut order.leaves[leaf];
        let mut giver = match leaf.next(&self.view(), promises)? {
            Next::Fresh(list, group) => {
                leaf.fresh[list].next += 1;
                leaf.ready = false;
                Giver { group, batches: self.batches(group, list, promises).into_iter() }
            }
            Next::Again => leaf.again.pop()?,
        };
        let batch = giver.batches.next()?;
        if !giver.batches.as_slice().is_empty() {
            let view = self.view();
            let place = leaf.again.partition_point(|other| compare_givers(&view, other, &giver) == Ordering::Greater);
            leaf.again.insert(place, giver);
        }
        for queue in self.cluster.chain(batch.queue) {
            order.taken[queue.index()].add(&batch.charge);
        }
        Some(batch)
    }

    /// Everything a group can give, in order: what this cycle gave or promised it at once, or what it had before.
    fn batches(&mut self, group: GroupId, list: usize, promises: Promises) -> SmallVec<[Batch; 1]> {
        let Some(queue) = self.group(group).queue else { return SmallVec::new() };
        let podsets = self.group(group).podsets.iter();
        let mut new: SmallVec<[PodId; 4]> =
            podsets.flat_map(|podset| &podset.pods).copied().filter(|pod| is_new(self.cluster, *pod)).collect();
        if promises == Promises::InTurn {
            new.clear();
        } else if list == PROMISED {
            new.sort_unstable_by(|a, b| self.tasks().compare_pods(*b, *a));
            let charge = self.charge_of_all(&new);
            return smallvec![Batch { group, queue, pods: new, charge }];
        }
        let checkpoint = self.cluster.checkpoint();
        for pod in new {
            self.cluster.evict(pod);
        }
        let mut batches = SmallVec::new();
        loop {
            let pods = self.tasks().to_evict(group);
            if pods.is_empty() {
                break;
            }
            let charge = self.charge_of_all(&pods);
            let all = pods.len() >= self.group(group).active_allocated() as usize;
            if !all {
                for pod in &pods {
                    self.cluster.evict(*pod);
                }
            }
            batches.push(Batch { group, queue, pods, charge });
            if all {
                break;
            }
        }
        self.cluster.rollback(checkpoint);
        batches
    }

    fn charge_of_all(&self, pods: &[PodId]) -> Shares {
        let mut charge = Shares::default();
        for pod in pods {
            charge.add(&self.cluster.charge_of(*pod));
        }
        charge
    }
}

impl TakingOrder {
    /// The leaf from which to take next.
    fn last_leaf(&self, view: &View) -> Option<usize> {
        self.last_of(view, &self.roots).map(|(_, leaf)| leaf)
    }

    /// Of some queues the one that comes last, and the leaf below it from which to take. Who is alone is last without comparison.
    fn last_of(&self, view: &View, queues: &[QueueId]) -> Option<(QueueId, usize)> {
        let listed = queues.iter().filter(|queue| self.listed[queue.index()]);
        let mut found = listed.filter_map(|queue| Some((*queue, self.last_below(view, *queue)?)));
        let mut last = found.next()?;
        let mut last_key: Option<QueueKey> = None;
        for next in found {
            let known = last_key.unwrap_or_else(|| self.key(view, last));
            let key = self.key(view, next);
            let later = key.compare(&known) == Ordering::Greater;
            (last, last_key) = if later { (next, Some(key)) } else { (last, Some(known)) };
        }
        Some(last)
    }

    fn last_below(&self, view: &View, queue: QueueId) -> Option<usize> {
        match self.leaf_of[queue.index()] {
            u32::MAX => self.last_of(view, &view.cluster.queues[queue.index()].children).map(|(_, leaf)| leaf),
            leaf => self.leaves[leaf as usize].next(view, self.promises).map(|_| leaf as usize),
        }
    }

    /// How a queue stands if what was taken below it and the next victim of a leaf are left out.
    fn key(&self, view: &View, (queue, leaf): (QueueId, usize)) -> QueueKey {
        let next = self.leaves[leaf].head_charge(view, self.promises).unwrap_or_default();
        let taken = self.taken[queue.index()].plus(&next);
        QueueKey::taking(view.cluster, queue, &taken, &view.total)
    }
}

impl Leaf {
    /// Who gives next; `None` if nobody is left.
    fn next(&self, view: &View, promises: Promises) -> Option<Next> {
        if promises == Promises::First
            && let Some(group) = self.fresh[PROMISED].head()
        {
            return Some(Next::Fresh(PROMISED, group));
        }
        let state = |group: GroupId| (group, view.cluster.groups[group.index()].elastic_state());
        let heads = self.fresh.iter().enumerate().filter_map(|(list, groups)| Some((list, groups.head()?)));
        let fresh = heads.min_by(|a, b| compare_victims(view, state(a.1), state(b.1)));
        match (fresh, self.again.last()) {
            (None, None) => None,
            (None, Some(_)) => Some(Next::Again),
            (Some((_, group)), Some(giver))
                if compare_victims(view, state(group), (giver.group, giver.state())) != Ordering::Less =>
            {
                Some(Next::Again)
            }
            (Some((list, group)), _) => Some(Next::Fresh(list, group)),
        }
    }

    /// What the next giver holds.
    fn head_charge(&self, view: &View, promises: Promises) -> Option<Shares> {
        if let Next::Fresh(_, group) = self.next(view, promises)? {
            return Some(held(view.cluster, group));
        }
        let giver = self.again.last()?;
        let mut left = Shares::default();
        for batch in giver.batches.as_slice() {
            left.add(&batch.charge);
        }
        Some(left)
    }
}

impl Giver {
    /// Whether it still has surplus.
    fn state(&self) -> u8 {
        if self.batches.as_slice().len() > 1 { 2 } else { 1 }
    }
}

/// Which of two givers goes first.
fn compare_givers(view: &View, one: &Giver, other: &Giver) -> Ordering {
    compare_victims(view, (one.group, one.state()), (other.group, other.state()))
}

/// Which of two groups goes first: the reverse of the order of serving.
fn compare_victims(view: &View, (one, state): (GroupId, u8), (other, other_state): (GroupId, u8)) -> Ordering {
    let (a, b) = (&view.cluster.groups[one.index()], &view.cluster.groups[other.index()]);
    let plugins = &view.policy.plugins;
    let priority = if plugins.priority { a.priority.cmp(&b.priority) } else { Ordering::Equal };
    priority
        .then_with(|| if plugins.elastic { other_state.cmp(&state) } else { Ordering::Equal })
        .then_with(|| b.created.cmp(&a.created))
        .then_with(|| b.key.cmp(&a.key))
}

/// Whether a group has its turn in a list: each group is in one, unless promises are taken first.
fn gives(cluster: &Cluster, group: GroupId, list: usize, promises: Promises) -> bool {
    match promises {
        Promises::First => can_give(cluster, group, list),
        Promises::InTurn => {
            let ran = cluster.groups[group.index()].running_place != u32::MAX;
            ran == (list == RUNNING) && (can_give(cluster, group, RUNNING) || can_give(cluster, group, PROMISED))
        }
    }
}

/// Whether a group has something to give: what it had before this cycle, or what it got in it.
fn can_give(cluster: &Cluster, group: GroupId, list: usize) -> bool {
    let group = &cluster.groups[group.index()];
    let mut pods = group.podsets.iter().flat_map(|podset| &podset.pods);
    // Of a group of which a pod was moved the others stay: one that is moved cannot be taken, and a gang goes whole.
    if pods.clone().any(|pod| cluster.leaving.contains_key(pod)) {
        return false;
    }
    pods.any(|pod| is_evictable(cluster, *pod) && is_new(cluster, *pod) == (list == PROMISED))
}

/// Whether this cycle gave or promised a pod its place.
fn is_new(cluster: &Cluster, pod: PodId) -> bool {
    let pod = &cluster.pods[pod.index()];
    pod.fact == Status::Pending && pod.place.status.is_active_allocated()
}

/// What a group's pods cost its queue.
fn held(cluster: &Cluster, group: GroupId) -> Shares {
    let mut sum = Shares::default();
    for pod in cluster.groups[group.index()].podsets.iter().flat_map(|podset| &podset.pods) {
        if cluster.pods[pod.index()].place.status.is_charged() {
            sum.add(&cluster.charge_of(*pod));
        }
    }
    sum
}
