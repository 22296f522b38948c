//! The search for victims: the fewest, in the order of taking, whose leaving makes room.
//!
//! ```text
//!   taking order ─▶ one batch more ─▶ counters: may it fit? ─no─▶ one batch more
//!                                            │ yes
//!                                            ▼
//!                         candidates: batches on one node, or on the fewest nodes
//!                                            │
//!                                            ▼
//!               play ─▶ judge ─▶ accepted: or one node, or all batches in order, if cheaper
//! ```
//!
//! The counters never deny what would fit, so nothing is missed by trusting them. If batches in the order of taking did not lead to a
//! solution and there are few of them, every choice is tried, the smallest first: a solution is found iff one exists.

mod cheapest;
mod hope;
mod one_node;

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use crate::{
    cluster::status::Status,
    cycle::{
        Cycle, Step,
        order::ServingOrder,
        room::{Movers, Room},
        scenario::Outcome,
        tasks::Steps,
        victims::{Batch, Promises, TakingOrder},
    },
    ids::{GroupId, NodeId, PodId, QueueId},
    plan::{Decision, Eviction, VictimRefusal},
    policy::Action,
};

/// If there are no more ways than this to take some batches from some groups, every one is tried.
const EXHAUSTIVE: usize = 1024;

/// Where there are no more batches than this every choice is tried instead.
const FEW: usize = 10;

/// For so many batches single nodes are looked at before several nodes are for any.
const SURVEYED: usize = 64;

/// No more batches than these are taken in order only to see whether they cost less than what was found.
const COMPARED: usize = 32;

/// After so many looks in vain the search only looks again when the number of batches has grown by half.
const PATIENCE: u32 = 64;

/// What was refused, and how often.
pub type Refusals = Vec<(VictimRefusal, u32)>;

/// A search that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Searched {
    /// By which rule.
    pub action: Action,
    /// How it ended.
    pub end: SearchEnd,
    /// Scenarios that were played.
    pub played: u32,
    /// Scenarios that made room and were refused by the rules.
    pub refused: u32,
    /// Scenarios that came up again and were not played again.
    pub repeated: u32,
}

/// How a search for victims ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEnd {
    /// With victims.
    Found,
    /// Without.
    InVain,
    /// Before it began: something that is necessary was missing.
    NotBegun,
}

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
        let room = Room::new(self, search.steps, movers);
        if let Some(refusal) = self.hopeless(search, &room) {
            self.refuse_search(search.action);
            return Err(vec![(refusal, 1)]);
        }
        let found = self.find_victims(search, rules, &mut attempt, room, movers);
        let Attempt { plays: played, unfair: refused, repeated, refusals, .. } = attempt;
        let end = if found.is_some() { SearchEnd::Found } else { SearchEnd::InVain };
        self.tell(Step::Searched(Searched { action: search.action, end, played, refused, repeated }));
        found.ok_or(refusals)
    }

    /// Counts a search that need not begin.
    pub(super) fn refuse_search(&mut self, action: Action) {
        self.plan.stats.searches_refused += 1;
        let end = SearchEnd::NotBegun;
        self.tell(Step::Searched(Searched { action, end, played: 0, refused: 0, repeated: 0 }));
    }

    fn find_victims(
        &mut self,
        search: &Search,
        rules: &mut dyn Rules,
        attempt: &mut Attempt,
        mut room: Room,
        movers: Movers,
    ) -> Option<Outcome> {
        let promises = if search.action == Action::Reclaim { Promises::First } else { Promises::InTurn };
        let mut order = self.taking_order(search.queues, promises);
        let mut next_look = 0;
        let enough = room.is_enough();
        let start = self.cluster.checkpoint();
        if let Some(outcome) = self.survey(search, rules, attempt, &mut order, movers) {
            return self.cheapest(search, rules, attempt, &mut order, start, outcome);
        }
        while let Some(batch) = self.next_batch(search, rules, attempt, &mut order) {
            room.add(self, &batch);
            attempt.taken.push(batch);
            if attempt.taken.len() < next_look || !room.may_fit() {
                continue;
            }
            if let Some(outcome) = self.look(search, rules, attempt, &room, &mut order) {
                return self.cheapest(search, rules, attempt, &mut order, start, outcome);
            }
            if attempt.hope == Hope::None {
                count(&mut attempt.refusals, VictimRefusal::NoRoom);
                return None;
            }
            attempt.looks += 1;
            if attempt.looks > PATIENCE {
                next_look = attempt.taken.len() + attempt.taken.len() / 2 + 1;
            }
        }
        if attempt.taken.is_empty() {
            count(&mut attempt.refusals, VictimRefusal::NoCandidates);
        } else if room.may_fit() {
            let found = self.look(search, rules, attempt, &room, &mut order);
            if let Some(outcome) = found.or_else(|| self.look_everywhere(search, rules, attempt)) {
                return Some(outcome);
            }
        } else {
            count(&mut attempt.refusals, VictimRefusal::NoRoom);
        }
        // Where all candidates must stay, or have moved in this cycle already, what is free may do all the same.
        let spared = enough && !(attempt.taken.is_empty() && self.cluster.leaving.is_empty());
        spared.then(|| self.play_fairly(search, rules, &[])).flatten()
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

    /// Plays a scenario, whether it was tried before or not; `None` and everything as before if it makes no room or is refused.
    fn play_fairly(&mut self, search: &Search, rules: &mut dyn Rules, batches: &[&Batch]) -> Option<Outcome> {
        rules.before(self, batches);
        let checkpoint = self.cluster.checkpoint();
        let outcome = self.play(search.order, search.beneficiary, batches)?;
        if rules.judge(self, &outcome).is_err() {
            self.cluster.rollback(checkpoint);
            return None;
        }
        Some(outcome)
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
        if chosen.is_empty() {
            return None;
        }
        if !attempt.is_new(chosen) {
            attempt.repeated += 1;
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
                attempt.unfair += 1;
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
    /// The set that was played last.
    newest: Vec<usize>,
    /// A set of batches on one node that does, and its price.
    on_one_node: Option<(Vec<usize>, usize)>,
    plays: u32,
    /// Of these, those that the rules refused.
    unfair: u32,
    /// How often a set came up again.
    repeated: u32,
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
