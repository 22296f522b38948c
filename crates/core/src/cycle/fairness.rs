//! What reclaim may take from whom.
//!
//! Two queues are compared at the children of their lowest common ancestor. A queue gives while it holds more than it may use, or, to a
//! queue within its quota, while it holds more than its quota. Each vector (a surplus pod, or the rest of a group as one) is judged before it is taken, so
//! the last may take a queue below its share.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    amounts::Shares,
    cluster::status::Status,
    cycle::{
        Cycle,
        capacity::{allocatable, exceeds, quotas, within},
        queue_key::Ratio,
        scenario::Outcome,
    },
    ids::{GroupId, PodId, QueueId},
    plan::VictimRefusal,
};

/// What queues held before anything was taken.
pub type Holdings = BTreeMap<QueueId, Shares>;

/// What is taken at once.
struct Vector {
    charge: Shares,
    /// Whether it ran before this cycle; otherwise only a promise is taken back.
    runs: bool,
}

impl Cycle<'_> {
    /// Whether a waiting group may have others evicted in other queues: with it its queue stays within its fair share.
    pub(super) fn may_reclaim(&self, group: GroupId, request: &Shares) -> Result<(), VictimRefusal> {
        let described = self.group(group);
        let Some(queue) = described.queue else { return Err(VictimRefusal::NoCandidates) };
        let held = &self.cluster.queues[queue.index()];
        let share = held.fair_share.0.map(Some);
        if !within(&held.sum.allocated.plus(request), &share) {
            return Err(VictimRefusal::AboveFairShare);
        }
        if !described.preemptible && !within(&held.sum.fixed.plus(request), &quotas(self.cluster, queue)) {
            return Err(VictimRefusal::AboveQuota);
        }
        Ok(())
    }

    /// Whether anything may be taken from a queue for another at all.
    pub(super) fn may_give(&self, reclaimer: QueueId, victim: QueueId, request: &Shares) -> bool {
        let Some((reclaimer, victim)) = self.cluster.leveled(reclaimer, victim) else { return false };
        let held = self.cluster.queues[victim.index()].sum.allocated;
        if self.stays_within_quota(reclaimer, request) {
            let quota = quotas(self.cluster, victim);
            let compared = (0..3).filter(|resource| request.0[*resource] > 0);
            let compared: SmallVec<[(i128, i128); 3]> =
                compared.filter_map(|resource| Some((held.0[resource], quota[resource]?))).collect();
            return compared.iter().any(|(held, quota)| held > quota)
                || compared.iter().all(|(held, quota)| held == quota);
        }
        exceeds(&held, &allocatable(self.cluster, victim))
    }

    fn stays_within_quota(&self, queue: QueueId, request: &Shares) -> bool {
        let held = self.cluster.queues[queue.index()].sum.allocated;
        within(&held.plus(request), &quotas(self.cluster, queue))
    }

    /// What all queues concerned hold now, for [`Self::judge_reclaim`].
    pub(super) fn holdings(&self, queues: impl Iterator<Item = QueueId>) -> Holdings {
        let mut holdings = Holdings::new();
        for queue in queues {
            if !holdings.contains_key(&queue) {
                for ancestor in self.cluster.chain(queue) {
                    holdings.insert(ancestor, self.cluster.queues[ancestor.index()].sum.allocated);
                }
            }
        }
        holdings
    }

    /// Whether a scenario is fair, judged by what queues held before it.
    pub(super) fn judge_reclaim(
        &self,
        reclaimer: GroupId,
        request: &Shares,
        mut held: Holdings,
        outcome: &Outcome,
    ) -> Result<(), VictimRefusal> {
        let group = self.group(reclaimer);
        let Some(leaf) = group.queue else { return Err(VictimRefusal::NoCandidates) };
        let before = held.clone();
        // What queues held before the cycle, without what was taken since: promises of this cycle do not make what runs a surplus.
        let mut lasting: BTreeMap<QueueId, Shares> = BTreeMap::new();
        let mut involved: BTreeMap<QueueId, Shares> = BTreeMap::new();
        for (victim, vectors) in self.vectors(outcome) {
            let Some((ours, theirs)) = self.cluster.leveled(leaf, victim) else { return Err(VictimRefusal::Unfair) };
            for Vector { charge: vector, runs } in vectors {
                let mut rest = held.get(&theirs).copied().unwrap_or_default();
                if runs {
                    rest = *lasting.entry(theirs).or_insert_with(|| self.lasting[theirs.index()]);
                }
                let ours_held = before.get(&ours).copied().unwrap_or_default();
                let above_share = exceeds(&rest, &allocatable(self.cluster, theirs));
                let within_quota = within(&ours_held.plus(request), &quotas(self.cluster, ours));
                let above_quota = within_quota && exceeds(&rest, &quotas(self.cluster, theirs));
                if !above_share && !above_quota {
                    return Err(VictimRefusal::Unfair);
                }
                for queue in self.cluster.chain(victim) {
                    if runs {
                        lasting.entry(queue).or_insert_with(|| self.lasting[queue.index()]).subtract(&vector);
                    }
                    held.entry(queue).or_default().subtract(&vector);
                    involved.entry(queue).or_default().add(&vector);
                }
            }
        }
        self.judge_saturation(leaf, request, &held, &involved)?;
        let overdrawn = !group.preemptible
            && self.cluster.chain(leaf).any(|queue| {
                let fixed = before_fixed(self, queue, reclaimer);
                !within(&fixed.plus(request), &quotas(self.cluster, queue))
            });
        if overdrawn { Err(VictimRefusal::AboveQuota) } else { Ok(()) }
    }

    /// An ancestor of the reclaimer that exceeds its share must not be fuller, relatively, than a sibling that gives.
    fn judge_saturation(
        &self,
        leaf: QueueId,
        request: &Shares,
        held: &Holdings,
        involved: &BTreeMap<QueueId, Shares>,
    ) -> Result<(), VictimRefusal> {
        let chain: SmallVec<[QueueId; 8]> = self.cluster.chain(leaf).collect();
        for ours in &chain {
            let parent = self.cluster.queues[ours.index()].parent;
            let siblings = involved.iter().filter(|(queue, _)| {
                **queue != *ours && !chain.contains(queue) && self.cluster.queues[queue.index()].parent == parent
            });
            for (sibling, taken) in siblings {
                let mine = held.get(ours).copied().unwrap_or_default().plus(request);
                let theirs = held.get(sibling).copied().unwrap_or_default();
                for resource in (0..3).filter(|resource| taken.0[*resource] > 0 || request.0[*resource] > 0) {
                    let (share, other_share) = (
                        self.cluster.queues[ours.index()].fair_share.0[resource],
                        self.cluster.queues[sibling.index()].fair_share.0[resource],
                    );
                    let above = mine.0[resource] > share;
                    if !above || other_share <= 0 {
                        continue;
                    }
                    let multiplier = i128::from(self.policy.saturation_multiplier.max(1000));
                    let saturated = share <= 0
                        || Ratio::new(mine.0[resource] * multiplier, share * 1000)
                            .compare(Ratio::new(theirs.0[resource], other_share))
                            != std::cmp::Ordering::Less;
                    if saturated {
                        return Err(VictimRefusal::Unfair);
                    }
                }
            }
        }
        Ok(())
    }

    /// By victim queue, what is taken: each surplus pod alone, the rest of a group together.
    fn vectors(&self, outcome: &Outcome) -> Vec<(QueueId, Vec<Vector>)> {
        let mut by_group: Vec<(GroupId, Vec<PodId>)> = Vec::new();
        let mut places: FxHashMap<GroupId, usize> = FxHashMap::default();
        let replaced = outcome.moved.iter().filter(|_| !self.policy.consolidating_reclaim);
        for (group, pod) in outcome.evicted.iter().chain(replaced) {
            let place = *places.entry(*group).or_insert_with(|| {
                by_group.push((*group, Vec::new()));
                by_group.len() - 1
            });
            by_group[place].1.push(*pod);
        }
        let mut by_queue: Vec<(QueueId, Vec<Vector>)> = Vec::new();
        for (group, pods) in by_group {
            let Some(queue) = self.group(group).queue else { continue };
            let vectors = self.group_vectors(group, &pods);
            match by_queue.iter_mut().find(|(known, _)| *known == queue) {
                Some((_, known)) => known.extend(vectors),
                None => by_queue.push((queue, vectors)),
            }
        }
        by_queue
    }

    fn group_vectors(&self, group: GroupId, pods: &[PodId]) -> Vec<Vector> {
        let described = self.group(group);
        let taken = |podset: usize| {
            pods.iter().filter(|pod| usize::from(self.cluster.pods[pod.index()].podset) == podset).count()
        };
        let mut surplus: SmallVec<[usize; 4]> = described
            .podsets
            .iter()
            .enumerate()
            .map(|(place, podset)| {
                (podset.active_allocated() as usize + taken(place)).saturating_sub(podset.min as usize)
            })
            .collect();
        let mut vectors = Vec::new();
        let mut core = Shares::default();
        let mut promised = Shares::default();
        for pod in pods {
            let charge = self.cluster.charge_of(*pod);
            if self.cluster.pods[pod.index()].fact == Status::Pending {
                promised.add(&charge);
                continue;
            }
            match surplus.get_mut(usize::from(self.cluster.pods[pod.index()].podset)) {
                Some(left) if *left > 0 => {
                    *left -= 1;
                    vectors.push(Vector { charge, runs: true });
                }
                _ => core.add(&charge),
            }
        }
        if !promised.is_zero() {
            vectors.insert(0, Vector { charge: promised, runs: false });
        }
        if !core.is_zero() {
            vectors.push(Vector { charge: core, runs: true });
        }
        vectors
    }
}

/// What cannot be evicted in a queue, without the reclaimer's own new pods.
fn before_fixed(cycle: &Cycle, queue: QueueId, reclaimer: GroupId) -> Shares {
    let mut fixed = cycle.cluster.queues[queue.index()].sum.fixed;
    for pod in cycle.group(reclaimer).podsets.iter().flat_map(|podset| &podset.pods) {
        if cycle.cluster.pods[pod.index()].place.status == Status::Pipelined {
            fixed.subtract(&cycle.cluster.charge_of(*pod));
        }
    }
    fixed
}
