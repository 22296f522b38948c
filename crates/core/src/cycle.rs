//! One cycle: what is known becomes what to do.
//!
//! ```text
//!   prepare ─▶ allocate ─▶ consolidation ─▶ reclaim ─▶ preempt ─▶ stale gangs ─▶ report
//!   tree,       place on     move others     take from   take from   evict what    why the
//!   shares      what is free                 other       lower       is broken     rest waits
//!                                            queues      priority
//! ```
//!
//! Every step works on the cluster itself through virtual operations; later steps see what earlier ones did.

mod allocate;
pub mod capacity;
mod consolidate;
mod fairness;
mod gang;
mod min_runtime;
mod objections;
mod order;
mod placement;
mod preempt;
mod promise;
mod queue_key;
mod ranking;
mod reclaim;
mod refusal;
mod report;
mod room;
mod scenario;
mod search;
mod signature;
mod stale;
mod tasks;
#[cfg(test)]
mod tests;
mod turns;
mod victims;

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::{FxHashMap, FxHashSet};

pub use self::search::{SearchEnd, Searched};
use self::{
    order::{ServingOrder, View, WaitingList},
    ranking::Ranking,
    tasks::Tasks,
};
use crate::{
    amounts::{Amounts, Shares},
    cluster::{Cluster, group::Group, status::Status},
    constraints::census::Census,
    fair_share::{Division, Entry},
    ids::{ClassId, GroupId, NodeId, PodId, QueueId},
    journal::Bookmark,
    plan::{Cause, Plan, SubGroupShortage},
    policy::{Action, Policy},
    time::Time,
    usage::UsageLedger,
};

/// A part of a cycle that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Shares are divided, orders made.
    Prepared,
    /// A search for victims, whether it found any or not.
    Searched(Searched),
    /// An action.
    Done(Action),
}

/// Told of each step with the plan as it is then: whoever has a clock can see how long each took. What is in the plan may be taken back
/// by later steps.
pub type Watch<'w> = &'w mut dyn FnMut(Step, &Plan);

/// Decides what to do now. The lasting state of the cluster is not changed: what was decided comes back as deltas.
pub fn plan(cluster: &mut Cluster, now: Time, policy: &Policy) -> Plan {
    plan_watched(cluster, now, policy, &mut |_, _| ())
}

/// The same, with every step told to `watch`.
pub fn plan_watched(cluster: &mut Cluster, now: Time, policy: &Policy, watch: Watch<'_>) -> Plan {
    cluster.settle();
    let mut watch = |step: Step, plan: &Plan| watch(step, plan);
    let mut cycle = Cycle::prepare(cluster, now, policy);
    cycle.watch = Some(&mut watch);
    cycle.tell(Step::Prepared);
    for action in &policy.actions {
        match action {
            Action::Allocate => cycle.allocate(),
            Action::Consolidation => cycle.consolidate(),
            Action::Reclaim => cycle.reclaim(),
            Action::Preempt => cycle.preempt(),
            Action::StaleGangEviction => cycle.evict_stale_gangs(),
        }
        cycle.tell(Step::Done(*action));
    }
    cycle.report()
}

/// The groups that wait, in the order in which allocate would take them up if none of them got anything.
pub fn job_order(cluster: &mut Cluster, now: Time, policy: &Policy) -> Vec<GroupId> {
    cluster.settle();
    let mut cycle = Cycle::prepare(cluster, now, policy);
    let mut order = cycle.waiting_order(Action::Allocate);
    let mut groups = Vec::new();
    while let Some(group) = {
        let cluster = &*cycle.cluster;
        order.pop(&cycle.view(), &|group| !order::is_waiting(cluster, group))
    } {
        groups.push(group);
    }
    if let Some(census) = cycle.census.take() {
        cycle.cluster.memory.census = census;
    }
    groups
}

/// Structures that speed up planning and survive cycles.
#[derive(Debug, Default)]
pub struct Memory {
    /// By class.
    rankings: Vec<Option<Box<Ranking>>>,
    /// By queue: its waiting groups in order, and the version of its lists they are of.
    waiting: FxHashMap<QueueId, (u32, Arc<[GroupId]>)>,
    /// By queue: its groups that may be evicted, first victims first.
    victims: FxHashMap<QueueId, victims::Roster>,
    /// By queue: GPUs of its largest group, and the version of its lists they are of.
    largest: FxHashMap<QueueId, (u32, i128)>,
    /// By class: whether some node would hold its pods if it were empty, and the version of the nodes that is of.
    possible: FxHashMap<ClassId, (u64, bool)>,
    /// By class that waits: what each node has against it.
    objections: FxHashMap<ClassId, objections::Objections>,
    /// The policy all this was made for.
    policy: Option<Policy>,
    trees: crate::topology::Trees,
    division: Division,
    census: Census,
    /// What the last cycle promised.
    promises: Vec<promise::Promise>,
}

/// A cycle under way.
struct Cycle<'a> {
    /// Who wants to know of each step.
    watch: Option<Watch<'a>>,
    cluster: &'a mut Cluster,
    policy: &'a Policy,
    now: Time,
    /// What queues share.
    total: Shares,
    /// MiB of the smallest device.
    smallest_gpu: Option<u64>,
    /// MiB of the largest device.
    largest_gpu: Option<u64>,
    plan: Plan,
    /// Why groups wait, as found out so far.
    refusals: BTreeMap<GroupId, Vec<Cause>>,
    /// By queue: preemptible groups that got something in this cycle.
    promised: FxHashMap<QueueId, victims::Promised>,
    /// Groups that lost what this cycle had given or promised them, or got something else for it, and for whom.
    withdrawn: FxHashMap<GroupId, GroupId>,
    /// Groups for which somebody was evicted or moved.
    costly: FxHashSet<GroupId>,
    /// By queue: what its pods held before the cycle, without those whose eviction was decided.
    lasting: Vec<Shares>,
    /// How pods stood whose eviction was decided.
    evicted: FxHashMap<PodId, Status>,
    /// The places that were promised to the group being served, while it is served there.
    kept: Vec<(ClassId, NodeId)>,
    /// Who is where, for rules between pods; `None` while nobody has such rules.
    census: Option<Census>,
    /// The most that any node has of each resource, once it was asked for.
    largest_node: Option<Amounts>,
    /// GPUs that are or will be free, and when that was counted.
    free_gpus: Option<(Bookmark, i128)>,
}

impl Cycle<'_> {
    fn tell(&mut self, step: Step) {
        if let Some(watch) = &mut self.watch {
            watch(step, &self.plan);
        }
    }
}

impl<'a> Cycle<'a> {
    fn prepare(cluster: &'a mut Cluster, now: Time, policy: &'a Policy) -> Self {
        if cluster.memory.policy.as_ref() != Some(policy) {
            cluster.memory = Memory { policy: Some(policy.clone()), ..Memory::default() };
        }
        cluster.refresh_tree();
        cluster.refresh_ranks();
        cluster.refresh_terminating(now, policy.stuck_after);
        cluster.trim_journals();
        let memories = cluster.gpu_memories();
        let lasting = cluster.queues.iter().map(|queue| queue.sum.allocated).collect();
        let mut cycle = Self {
            watch: None,
            lasting,
            costly: FxHashSet::default(),
            total: cluster.capacity(),
            cluster,
            policy,
            now,
            smallest_gpu: memories.map(|(least, _)| least),
            largest_gpu: memories.map(|(_, most)| most),
            plan: Plan::default(),
            refusals: BTreeMap::new(),
            promised: FxHashMap::default(),
            withdrawn: FxHashMap::default(),
            evicted: FxHashMap::default(),
            kept: Vec::new(),
            census: None,
            largest_node: None,
            free_gpus: None,
        };
        if cycle.cluster.has_rules_between_pods() {
            cycle.census = Some(std::mem::take(&mut cycle.cluster.memory.census));
        }
        cycle.refill_rosters();
        cycle.count_usage();
        cycle.divide();
        cycle
    }

    /// Counts what queues held since the last cycle, where the policy wants past usage to matter.
    fn count_usage(&mut self) {
        let Some(policy) = &self.policy.usage else {
            self.cluster.usage = None;
            return;
        };
        let allocated: Vec<Shares> = self.cluster.queues.iter().map(|queue| queue.sum.allocated).collect();
        let ledger = self.cluster.usage.get_or_insert_with(|| UsageLedger::new(policy.clone()));
        ledger.set_policy(policy);
        ledger.advance(self.now, &allocated, self.total);
    }

    /// Divides the cluster between the queues.
    fn divide(&mut self) {
        let cluster = &mut *self.cluster;
        // Parents before children, as the division wants them.
        let mut order: Vec<QueueId> = Vec::with_capacity(cluster.queues.len());
        let tops = (0..cluster.queues.len()).map(QueueId::of);
        order.extend(tops.filter(|id| cluster.queues[id.index()].parent.is_none()));
        let mut next = 0;
        while let Some(queue) = order.get(next) {
            order.extend_from_slice(&cluster.queues[queue.index()].children);
            next += 1;
        }
        let mut places = vec![usize::MAX; cluster.queues.len()];
        for (place, queue) in order.iter().enumerate() {
            places[queue.index()] = place;
        }
        let entries: Vec<Entry> = order
            .iter()
            .map(|id| {
                let queue = &cluster.queues[id.index()];
                let usable = queue.exists && queue.broken.is_none();
                let request = queue.sum.request(self.smallest_gpu);
                Entry {
                    parent: queue.parent.map(|parent| places[parent.index()]),
                    priority: queue.priority,
                    created: queue.created,
                    name: &queue.name,
                    quota: queue.quota,
                    limit: queue.limit,
                    weight: queue.weight,
                    request: if usable { request } else { Shares::default() },
                    usage: cluster.usage.as_ref().map_or([0; 3], |usage| usage.shares(id.index())),
                }
            })
            .collect();
        let mut shares = vec![Shares::default(); entries.len()];
        let mut division = std::mem::take(&mut cluster.memory.division);
        division.usage_weight = self.policy.usage_weight;
        division.divide(self.total, &entries, &mut shares);
        cluster.memory.division = division;
        for (queue, share) in order.iter().zip(shares) {
            let queue = &mut cluster.queues[queue.index()];
            if queue.fair_share != share {
                queue.fair_share = share;
                queue.version = queue.version.wrapping_add(1);
            }
        }
    }

    fn view(&self) -> View<'_> {
        View { cluster: self.cluster, policy: self.policy, total: self.total, smallest_gpu: self.smallest_gpu }
    }

    fn tasks(&self) -> Tasks<'_> {
        Tasks { cluster: self.cluster, policy: self.policy }
    }

    fn group(&self, group: GroupId) -> &Group {
        &self.cluster.groups[group.index()]
    }

    /// Notes that a group got something: in this cycle it may have to give it back.
    fn note_promise(&mut self, id: GroupId) {
        let group = &self.cluster.groups[id.index()];
        let Some(queue) = group.queue.filter(|_| group.preemptible) else { return };
        let (cluster, memory) = (&*self.cluster, self.smallest_gpu);
        self.promised.entry(queue).or_default().push(id, || cluster.most_gpus(id, memory));
    }

    /// Notes why a group waits.
    fn refuse(&mut self, group: GroupId, cause: Cause) {
        let causes = self.refusals.entry(group).or_default();
        if !causes.contains(&cause) {
            causes.push(cause);
        }
    }

    /// The waiting groups whose turn may come in an action, in order; the others are told why not.
    fn waiting_order(&mut self, action: Action) -> ServingOrder {
        let depth = self.policy.queue_depth.iter().find(|(of, _)| *of == action).map(|(_, depth)| *depth as usize);
        let mut lists = Vec::new();
        for index in 0..self.cluster.queues.len() {
            if self.cluster.queues[index].waiting_groups.is_empty() {
                continue;
            }
            let queue = QueueId::of(index);
            let sorted = self.sorted_waiting(queue);
            let all = sorted.len();
            let mut list: Vec<GroupId> = sorted.iter().copied().filter(|group| self.has_turn(*group, action)).collect();
            list.truncate(depth.unwrap_or(usize::MAX));
            if !list.is_empty() {
                let groups = if list.len() == all { sorted } else { list.into() };
                lists.push(WaitingList { queue, groups, from: 0 });
            }
        }
        ServingOrder::new(&self.view(), lists)
    }

    fn sorted_waiting(&mut self, queue: QueueId) -> Arc<[GroupId]> {
        let described = &self.cluster.queues[queue.index()];
        if let Some((version, list)) = self.cluster.memory.waiting.get(&queue)
            && *version == described.groups_version
        {
            return Arc::clone(list);
        }
        let mut groups = described.waiting_groups.clone();
        let version = described.groups_version;
        let view = self.view();
        groups.sort_unstable_by(|a, b| view.compare_groups(*a, *b));
        let list: Arc<[GroupId]> = groups.into();
        self.cluster.memory.waiting.insert(queue, (version, Arc::clone(&list)));
        list
    }

    /// Whether a group's turn may come in an action. In the first action that asks it is told why not.
    fn has_turn(&mut self, id: GroupId, action: Action) -> bool {
        let group = self.group(id);
        if group.count(Status::Pending) == 0 {
            return false;
        }
        if let Some(cause) = self.unfit(group) {
            self.refuse(id, cause);
            return false;
        }
        if action == Action::Allocate {
            return true;
        }
        let rare = group.rare();
        if let Some(delay) = rare.preemption_delay {
            let until = rare.last_eviction.map_or(group.created, |last| last.max(group.created)).after(delay);
            if self.now < until {
                self.refuse(id, Cause::PreemptionDelayNotElapsed { until });
                return false;
            }
        }
        true
    }

    /// What keeps a group from any turn.
    fn unfit(&self, group: &Group) -> Option<Cause> {
        if let Some(what) = &group.rare().invalid {
            return Some(Cause::Invalid(what.clone()));
        }
        let queue = group.queue.map(|queue| &self.cluster.queues[queue.index()])?;
        if !queue.exists {
            return Some(Cause::QueueMissing(queue.name.to_string()));
        }
        if let Some(what) = &queue.broken {
            return Some(Cause::QueueUnusable(format!("queue `{}`: {what}", queue.name)));
        }
        if !queue.children.is_empty() {
            let what = format!("queue `{}` has child queues: only queues without children run pods", queue.name);
            return Some(Cause::QueueUnusable(what));
        }
        if !self.tasks().is_ready(group) {
            let short = group.podsets.iter().filter(|podset| podset.ready() < podset.min);
            let shortage = short.map(|podset| SubGroupShortage {
                subgroup: self.cluster.word(podset.name).to_owned(),
                needed: podset.min,
                existing: podset.ready() + podset.count(Status::Gated),
                gated: podset.count(Status::Gated),
            });
            return Some(Cause::NotReady(shortage.collect()));
        }
        None
    }
}
