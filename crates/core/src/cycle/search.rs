//! The search for victims: the fewest, in the order of taking, whose leaving makes room.
//!
//! ```text
//!   taking order ─▶ one batch more ─▶ counters: may it fit? ─no─▶ one batch more
//!                                            │ yes
//!                                            ▼
//!                         candidates: batches on one node, or on the fewest nodes
//!                                            │
//!                                            ▼
//!                                play ─▶ judge ─▶ accepted: done
//! ```
//!
//! The counters never deny what would fit, so nothing is missed by trusting them. If batches in the order of taking did not lead to a
//! solution and there are few of them, every choice is tried, the smallest first: a solution is found iff one exists.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::{
    cluster::{ledger::Checkpoint, status::Status},
    cycle::{
        Cycle,
        order::ServingOrder,
        ranking::suits,
        room::{Movers, Room},
        scenario::Outcome,
        tasks::Steps,
        victims::{Batch, Promises, TakingOrder},
    },
    delta::Gpus,
    ids::{ClassId, GroupId, NodeId, PodId, QueueId},
    plan::{Cause, Decision, Eviction, VictimRefusal},
    policy::Action,
};

/// If there are no more ways than this to take some batches from some groups, every one is tried.
const EXHAUSTIVE: usize = 1024;

/// Where there are no more batches than this every choice is tried instead.
const FEW: usize = 10;

/// For so many batches single nodes are looked at before several nodes are for any.
const SURVEYED: usize = 64;

/// After so many looks in vain the search only looks again when the number of batches has grown by half.
const PATIENCE: u32 = 64;

/// What was refused, and how often.
pub type Refusals = Vec<(VictimRefusal, u32)>;

/// A search for one group.
pub struct Search<'s> {
    /// By which rule.
    pub action: Action,
    /// For whom.
    pub beneficiary: GroupId,
    /// Its next step.
    pub steps: &'s Steps,
    /// The queues from which may be taken.
    pub queues: &'s [QueueId],
    /// The order of all that wait.
    pub order: &'s ServingOrder,
    /// At most so many groups may be taken from.
    pub most_groups: usize,
}

/// The rules of an action.
pub trait Rules {
    /// Whether a group may be a victim at all.
    fn eligible(&mut self, cycle: &Cycle, group: GroupId) -> Result<(), VictimRefusal>;
    /// What must be known before a scenario is played, to judge it afterwards.
    fn before(&mut self, cycle: &Cycle, batches: &[&Batch]);
    /// Whether a scenario that made room is acceptable.
    fn judge(&mut self, cycle: &Cycle, outcome: &Outcome) -> Result<(), VictimRefusal>;
}

impl Cycle<'_> {
    /// Finds victims and leaves the cluster as if they had left; or leaves it as it was and says what candidates were refused for.
    pub(super) fn search(&mut self, search: &Search, rules: &mut dyn Rules) -> Result<Outcome, Refusals> {
        self.plan.stats.searches += 1;
        let mut attempt = Attempt::default();
        let movers = if search.action == Action::Consolidation { Movers::MustStay } else { Movers::MayGo };
        let mut room = Room::new(self, search.steps, movers);
        if let Some(refusal) = self.hopeless(search, &room) {
            self.plan.stats.searches_refused += 1;
            return Err(vec![(refusal, 1)]);
        }
        let promises = if search.action == Action::Reclaim { Promises::First } else { Promises::InTurn };
        let mut order = self.taking_order(search.queues, promises);
        let mut next_look = 0;
        let enough = room.is_enough();
        let start = self.cluster.checkpoint();
        if let Some(outcome) = self.survey(search, rules, &mut attempt, &mut order, movers) {
            return Ok(outcome);
        }
        while let Some(batch) = self.next_batch(search, rules, &mut attempt, &mut order) {
            room.add(self, &batch);
            attempt.taken.push(batch);
            if attempt.taken.len() < next_look || !room.may_fit() {
                continue;
            }
            if let Some(outcome) = self.look(search, rules, &mut attempt, &room, &mut order) {
                return self.prefer_one_node(search, rules, &attempt, start, outcome).ok_or(attempt.refusals);
            }
            if attempt.hope == Hope::None {
                count(&mut attempt.refusals, VictimRefusal::NoRoom);
                return Err(attempt.refusals);
            }
            attempt.looks += 1;
            if attempt.looks > PATIENCE {
                next_look = attempt.taken.len() + attempt.taken.len() / 2 + 1;
            }
        }
        if attempt.taken.is_empty() {
            count(&mut attempt.refusals, VictimRefusal::NoCandidates);
        } else if room.may_fit() {
            let found = self.look(search, rules, &mut attempt, &room, &mut order);
            if let Some(outcome) = found.or_else(|| self.look_everywhere(search, rules, &mut attempt)) {
                return Ok(outcome);
            }
        } else {
            count(&mut attempt.refusals, VictimRefusal::NoRoom);
        }
        // Where all candidates must stay, or have moved in this cycle already, what is free may do all the same.
        let spared = enough && !(attempt.taken.is_empty() && self.cluster.leaving.is_empty());
        spared.then(|| self.spare_all(search, rules)).flatten().ok_or(attempt.refusals)
    }

    /// Why nobody's leaving can help: a pod fits no node even if it were empty, or there is room for all of them, though they
    /// were turned down, and nobody who could leave stands against them.
    fn hopeless(&mut self, search: &Search, room: &Room) -> Option<VictimRefusal> {
        let told = self.refusals.get(&search.beneficiary).map_or(&[][..], |causes| causes);
        let turned_down =
            told.iter().any(|cause| matches!(cause, Cause::Gang { .. } | Cause::Pod { .. } | Cause::SameAs(_)));
        if told.iter().any(|cause| matches!(cause, Cause::TopologyUnknown(_))) {
            return Some(VictimRefusal::NeverFits);
        }
        let mut seen: SmallVec<[ClassId; 4]> = SmallVec::new();
        let mut opposed = self.group(search.beneficiary).tree.is_some();
        for pod in super::gang::pods_of(search.steps) {
            let class = self.cluster.pods[pod.index()].class;
            let claims = !self.cluster.pods[pod.index()].claims().is_empty();
            if claims && self.policy.plugins.dynamic_resources && self.cluster.claims_refusal(pod).is_some() {
                return Some(VictimRefusal::NeverFits);
            }
            opposed |= claims || !self.cluster.class(class).numa.units.is_empty();
            if seen.contains(&class) {
                continue;
            }
            seen.push(class);
            if !self.could_ever_fit(class) {
                return Some(VictimRefusal::NeverFits);
            }
            if let Some(census) = &mut self.census {
                census.prepare(self.cluster, pod);
                opposed |= census.is_opposed(self.cluster, pod);
            }
            // What a request by memory costs a queue depends on the node: room somewhere is not room for it.
            opposed |= matches!(self.cluster.class(class).gpus, Gpus::Memory { .. });
        }
        let over_limit = self.group(search.beneficiary).queue.is_some_and(|queue| {
            let cost = self.tasks().cost(search.steps, self.largest_gpu);
            self.cluster.breach(queue, &cost, self.group(search.beneficiary).preemptible).is_some()
        });
        // Moving pods about changes nothing for their queues.
        if over_limit && search.action == Action::Consolidation {
            return Some(VictimRefusal::NoRoom);
        }
        // Since it was turned down others may have left.
        let unchanged = self.costly.is_empty();
        (turned_down && unchanged && seen.len() == 1 && room.is_enough() && !opposed && !over_limit)
            .then_some(VictimRefusal::NoRoom)
    }

    /// Whether some node would hold a pod of a class if it were empty.
    fn could_ever_fit(&mut self, class: ClassId) -> bool {
        let version = self.cluster.nodes_version;
        if let Some((_, fits)) = self.cluster.memory.possible.get(&class).filter(|(known, _)| *known == version) {
            return *fits;
        }
        let described = self.cluster.class(class);
        let everywhere = self.policy.plugins.predicates && described.constraints.everywhere().is_some();
        let fits = !everywhere
            && self.cluster.nodes.iter().any(|node| {
                let units = node.shares_of(described).is_none_or(|(_, units)| units != u64::MAX);
                node.exists
                    && units
                    && node.total.fit(&described.amounts)
                    && suits(self.cluster, described, node, self.policy).is_ok()
            });
        self.cluster.memory.possible.insert(class, (version, fits));
        fits
    }

    /// The next batch in the order of taking.
    fn next_batch(
        &mut self,
        search: &Search,
        rules: &mut dyn Rules,
        attempt: &mut Attempt,
        order: &mut TakingOrder,
    ) -> Option<Batch> {
        if let Some(batch) = attempt.ahead.pop_front() {
            return Some(batch);
        }
        let refusals = &mut attempt.refusals;
        self.take_next(order, &mut |cycle, group| {
            // What was made room for is only taken back by reclaim, which then stands for those who made room.
            let costly = search.action != Action::Reclaim && cycle.costly.contains(&group);
            let own = group == search.beneficiary;
            let eligible = if own || costly { Err(VictimRefusal::NoRoom) } else { rules.eligible(cycle, group) };
            eligible.map_err(|refusal| count(refusals, refusal)).is_ok()
        })
    }

    /// The scenario in which nobody leaves: what is free or will be may do.
    fn spare_all(&mut self, search: &Search, rules: &mut dyn Rules) -> Option<Outcome> {
        rules.before(self, &[]);
        let checkpoint = self.cluster.checkpoint();
        let outcome = self.play(search.order, search.beneficiary, &[])?;
        if rules.judge(self, &outcome).is_err() {
            self.cluster.rollback(checkpoint);
            return None;
        }
        Some(outcome)
    }

    /// Whether the beneficiary would fit if all victims left at once. It is asked once, and only where there are too many batches to try
    /// every choice: then nothing that could be found is missed.
    fn may_help(
        &mut self,
        search: &Search,
        rules: &mut dyn Rules,
        attempt: &mut Attempt,
        order: &mut TakingOrder,
    ) -> bool {
        if attempt.hope != Hope::Unknown {
            return attempt.hope == Hope::Some;
        }
        let mut ahead = std::mem::take(&mut attempt.ahead);
        while let Some(batch) = self.next_batch(search, rules, attempt, order) {
            ahead.push_back(batch);
        }
        attempt.ahead = ahead;
        let few = attempt.taken.len() + attempt.ahead.len() <= FEW;
        let all = || attempt.taken.iter().chain(&attempt.ahead);
        let helps = few || self.fits_without(search.beneficiary, all());
        attempt.hope = if helps { Hope::Some } else { Hope::None };
        helps
    }

    /// Looks at single nodes for the first batches: victims on one node may come later in the order of taking than victims on several
    /// and still be fewer. What is found where nothing else was possible is taken; otherwise it is only noted.
    fn survey(
        &mut self,
        search: &Search,
        rules: &mut dyn Rules,
        attempt: &mut Attempt,
        order: &mut TakingOrder,
        movers: Movers,
    ) -> Option<Outcome> {
        let mut room = Room::new(self, search.steps, movers);
        let checkpoint = self.cluster.checkpoint();
        let mut first = true;
        while attempt.taken.len() < SURVEYED
            && let Some(batch) = self.next_batch(search, rules, attempt, order)
        {
            room.add(self, &batch);
            attempt.taken.push(batch);
            if !room.may_fit() {
                continue;
            }
            if let Some(outcome) = self.look_at_nodes(search, rules, attempt, &room) {
                if first {
                    return Some(outcome);
                }
                self.cluster.rollback(checkpoint);
                let chosen = std::mem::take(&mut attempt.newest);
                attempt.tried.remove(&chosen);
                attempt.on_one_node = Some((chosen, outcome.price()));
                break;
            }
            first = false;
        }
        attempt.taken.drain(..).rev().for_each(|batch| attempt.ahead.push_front(batch));
        None
    }

    /// What was found on one node instead of what was found in order, if it costs no more.
    fn prefer_one_node(
        &mut self,
        search: &Search,
        rules: &mut dyn Rules,
        attempt: &Attempt,
        start: Checkpoint,
        outcome: Outcome,
    ) -> Option<Outcome> {
        let noted = attempt.on_one_node.as_ref().filter(|(_, price)| *price <= outcome.price());
        let Some((chosen, _)) = noted.filter(|(chosen, _)| *chosen != attempt.newest) else { return Some(outcome) };
        // Batches come in the same order as when it was found, but perhaps fewer of them so far.
        let all: Vec<&Batch> = attempt.taken.iter().chain(&attempt.ahead).collect();
        let batches: Vec<&Batch> = chosen.iter().filter_map(|place| all.get(*place).copied()).collect();
        self.cluster.rollback(start);
        rules.before(self, &batches);
        // The same game from the same position has the same end.
        let other = self.play(search.order, search.beneficiary, &batches)?;
        if rules.judge(self, &other).is_err() {
            self.cluster.rollback(start);
            return None;
        }
        Some(other)
    }

    /// Tries the scenarios with victims on one node that the newest batch makes possible.
    fn look_at_nodes(
        &mut self,
        search: &Search,
        rules: &mut dyn Rules,
        attempt: &mut Attempt,
        room: &Room,
    ) -> Option<Outcome> {
        let newest = attempt.taken.last()?.group;
        let pods = attempt.taken.iter().filter(|batch| batch.group == newest).flat_map(|batch| &batch.pods);
        let mut nodes: SmallVec<[NodeId; 4]> =
            pods.filter_map(|pod| self.cluster.pods[pod.index()].place.node).collect();
        nodes.sort_unstable_by_key(|node| self.cluster.nodes[node.index()].rank);
        nodes.dedup();
        for node in nodes {
            let chosen = attempt.batches_on(self, &[node]);
            let left = chosen.iter().flat_map(|place| &attempt.taken[*place].pods);
            let left: FxHashSet<NodeId> = left.filter_map(|pod| self.cluster.pods[pod.index()].place.node).collect();
            if room.is_enough_with(&left)
                && let Some(outcome) = self.try_out(search, rules, attempt, &chosen)
            {
                return Some(outcome);
            }
        }
        None
    }

    /// Tries the scenarios that the newest batch makes possible: small ones first, larger ones if there is hope.
    fn look(
        &mut self,
        search: &Search,
        rules: &mut dyn Rules,
        attempt: &mut Attempt,
        room: &Room,
        order: &mut TakingOrder,
    ) -> Option<Outcome> {
        if let Some(outcome) = self.look_at_nodes(search, rules, attempt, room) {
            return Some(outcome);
        }
        let nodes = room.nodes_by_room();
        let mut count = room.fewest(&nodes);
        let mut growth = 1;
        loop {
            let chosen = attempt.batches_on(self, &nodes[..count.min(nodes.len())]);
            if let Some(outcome) = self.try_out(search, rules, attempt, &chosen) {
                return Some(outcome);
            }
            // What follows is as large as the cluster: it is worth asking first whether anything helps.
            if !self.may_help(search, rules, attempt, order) {
                return None;
            }
            if count >= nodes.len() {
                break;
            }
            count += growth;
            growth *= 2;
        }
        let all: Vec<usize> = (0..attempt.taken.len()).collect();
        self.try_out(search, rules, attempt, &all)
    }

    /// Tries every choice of few batches, the smallest first.
    fn look_everywhere(&mut self, search: &Search, rules: &mut dyn Rules, attempt: &mut Attempt) -> Option<Outcome> {
        if attempt.taken.len() > EXHAUSTIVE {
            return None;
        }
        // A group gives its batches in their order: its core never goes while its surplus stays.
        let mut givers: Vec<(GroupId, Vec<usize>)> = Vec::new();
        for (place, batch) in attempt.taken.iter().enumerate() {
            match givers.iter_mut().find(|(group, _)| *group == batch.group) {
                Some((_, places)) => places.push(place),
                None => givers.push((batch.group, vec![place])),
            }
        }
        let choices = givers.iter().try_fold(1, |choices: usize, (_, places)| {
            choices.checked_mul(places.len() + 1).filter(|choices| *choices <= EXHAUSTIVE)
        })?;
        let mut subsets: Vec<Vec<usize>> = (1..choices)
            .map(|mut choice| {
                let mut chosen = Vec::new();
                for (_, places) in &givers {
                    chosen.extend_from_slice(&places[..choice % (places.len() + 1)]);
                    choice /= places.len() + 1;
                }
                chosen.sort_unstable();
                chosen
            })
            .collect();
        subsets.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.iter().rev().cmp(b.iter().rev())));
        subsets.into_iter().find_map(|chosen| self.try_out(search, rules, attempt, &chosen))
    }

    /// Plays and judges one scenario, unless it was tried before.
    fn try_out(
        &mut self,
        search: &Search,
        rules: &mut dyn Rules,
        attempt: &mut Attempt,
        chosen: &[usize],
    ) -> Option<Outcome> {
        if chosen.is_empty() || !attempt.is_new(chosen) {
            return None;
        }
        let batches: Vec<&Batch> = chosen.iter().map(|place| &attempt.taken[*place]).collect();
        let groups = || batches.iter().map(|batch| batch.group).collect::<FxHashSet<GroupId>>().len();
        if batches.len() > search.most_groups && groups() > search.most_groups {
            count(&mut attempt.refusals, VictimRefusal::TooManyMoves);
            return None;
        }
        attempt.plays += 1;
        attempt.newest = chosen.to_vec();
        rules.before(self, &batches);
        let checkpoint = self.cluster.checkpoint();
        let Some(outcome) = self.play(search.order, search.beneficiary, &batches) else {
            count(&mut attempt.refusals, VictimRefusal::NoRoom);
            return None;
        };
        match rules.judge(self, &outcome) {
            Ok(()) => Some(outcome),
            Err(refusal) => {
                self.cluster.rollback(checkpoint);
                count(&mut attempt.refusals, refusal);
                None
            }
        }
    }

    /// Writes down what a search found.
    pub(super) fn commit_search(&mut self, search: &Search, outcome: &Outcome) {
        let ours = self.group(search.beneficiary).queue;
        for (victims, moved) in [(&outcome.evicted, false), (&outcome.moved, true)] {
            for (group, pod) in victims {
                if self.cluster.pods[pod.index()].fact == Status::Pending {
                    self.withdrawn.insert(*group, search.beneficiary);
                    continue;
                }
                let queues = ours.zip(self.group(*group).queue).and_then(|(a, b)| self.cluster.leveled(a, b));
                self.plan.decisions.push(Decision::Evict(Eviction {
                    pod: *pod,
                    group: *group,
                    action: search.action,
                    beneficiary: Some(search.beneficiary),
                    heir: None,
                    queues,
                    moved,
                }));
                if !moved {
                    let charge = self.cluster.charge_of(*pod);
                    let queue = self.group(*group).queue;
                    for queue in queue.into_iter().flat_map(|queue| self.cluster.chain(queue)) {
                        self.lasting[queue.index()].subtract(&charge);
                    }
                    self.evicted.insert(*pod, self.cluster.pods[pod.index()].fact);
                    self.cluster.confirm_eviction(*pod);
                }
            }
        }
        for pod in &outcome.promised {
            if let Some(group) = self.cluster.pods[pod.index()].group {
                self.withdrawn.insert(group, search.beneficiary);
            }
        }
        if !outcome.evicted.is_empty() || !outcome.moved.is_empty() {
            self.costly.insert(search.beneficiary);
        }
        self.note_promise(search.beneficiary);
        let mut placed: Vec<PodId> = super::gang::pods_of(search.steps).collect();
        placed.extend(outcome.moved.iter().map(|(_, pod)| *pod));
        placed.extend(&outcome.promised);
        let placed: Vec<_> = placed.into_iter().map(|pod| self.placed(pod)).collect();
        self.plan.decisions.extend(placed.into_iter().map(Decision::Pipeline));
    }
}

/// What a search has seen so far.
#[derive(Default)]
struct Attempt {
    refusals: Refusals,
    taken: Vec<Batch>,
    /// Batches that come next, where they are already known.
    ahead: VecDeque<Batch>,
    /// Sets of batches that were tried.
    tried: FxHashSet<Vec<usize>>,
    /// The set that was tried last.
    newest: Vec<usize>,
    /// A set of batches on one node that does, and its price.
    on_one_node: Option<(Vec<usize>, usize)>,
    plays: u32,
    /// How often it was looked for candidates.
    looks: u32,
    hope: Hope,
}

/// Whether it helps the beneficiary if everybody leaves that may be made to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Hope {
    /// Nobody has asked yet.
    #[default]
    Unknown,
    Some,
    None,
}

impl Attempt {
    /// All batches of groups that have a pod on one of some nodes.
    fn batches_on(&self, cycle: &Cycle, nodes: &[NodeId]) -> Vec<usize> {
        let wanted: FxHashSet<NodeId> = nodes.iter().copied().collect();
        let on = |batch: &Batch| {
            let mut nodes = batch.pods.iter().filter_map(|pod| cycle.cluster.pods[pod.index()].place.node);
            nodes.any(|node| wanted.contains(&node))
        };
        let groups: FxHashSet<GroupId> = self.taken.iter().filter(|batch| on(batch)).map(|batch| batch.group).collect();
        (0..self.taken.len()).filter(|place| groups.contains(&self.taken[*place].group)).collect()
    }

    /// Whether a set of batches was not tried before.
    fn is_new(&mut self, chosen: &[usize]) -> bool {
        self.tried.insert(chosen.to_vec())
    }
}

/// Counts a refusal.
pub fn count(refusals: &mut Refusals, refusal: VictimRefusal) {
    match refusals.iter_mut().find(|(known, _)| *known == refusal) {
        Some((_, count)) => *count += 1,
        None => refusals.push((refusal, 1)),
    }
}
