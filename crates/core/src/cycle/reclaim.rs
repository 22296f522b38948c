//! Reclaim: a queue below its fair share takes from queues above theirs.

use rustc_hash::FxHashMap;

use crate::{
    amounts::{Shares, share},
    cluster::node::Node,
    cycle::{
        Cycle,
        capacity::{allocatable, quotas},
        fairness::Holdings,
        order::ServingOrder,
        ranking::suits,
        scenario::Outcome,
        search::{Refusals, Rules, Search},
        tasks::Steps,
        victims::{Batch, Promised},
    },
    delta::Gpus,
    ids::{GroupId, QueueId},
    plan::VictimRefusal,
    policy::Action,
};

impl Cycle<'_> {
    pub(super) fn reclaim(&mut self) {
        if self.policy.plugins.proportion {
            self.take_turns(Action::Reclaim, &mut Self::reclaim_for);
        }
    }

    /// Takes from other queues for a group.
    pub(super) fn reclaim_for(&mut self, order: &ServingOrder, group: GroupId, steps: &Steps) -> Result<(), Refusals> {
        let request = self.tasks().cost(steps, self.smallest_gpu);
        let queues = self.reclaimable(group, &request)?;
        let search = Search {
            action: Action::Reclaim,
            beneficiary: group,
            steps,
            queues: &queues,
            order,
            most_groups: usize::MAX,
        };
        let mut rules = ReclaimRules { group, request, held: Holdings::new() };
        let outcome = self.search(&search, &mut rules)?;
        self.commit_search(&search, &outcome);
        Ok(())
    }

    /// The leaf queues from which may be taken for a group, if that can be enough.
    fn reclaimable(&mut self, group: GroupId, request: &Shares) -> Result<Vec<QueueId>, Refusals> {
        let refuse = |refusal| Err(vec![(refusal, 1)]);
        if let Err(refusal) = self.may_reclaim(group, request) {
            return refuse(refusal);
        }
        let Some(reclaimer) = self.group(group).queue else { return refuse(VictimRefusal::NoCandidates) };
        let queues: Vec<QueueId> = (0..self.cluster.queues.len())
            .map(QueueId::of)
            .filter(|queue| *queue != reclaimer && self.may_have_victims(*queue))
            .filter(|queue| self.may_give(reclaimer, *queue, request))
            .collect();
        if queues.is_empty() {
            self.refuse_search(Action::Reclaim);
            return refuse(VictimRefusal::QueueWithinShare);
        }
        if !self.enough_to_take(group, reclaimer, request, &queues) {
            self.refuse_search(Action::Reclaim);
            return refuse(VictimRefusal::TooLittleToTake);
        }
        Ok(queues)
    }

    /// Whether what is free and what queues may give at most cover a request for GPUs.
    ///
    /// A queue gives while it holds more than its bound, and the last vector may be the largest it has: so it gives less than what it
    /// holds above the bound plus that vector. Where another resource than GPUs is above its bound GPUs are no limit.
    fn enough_to_take(&mut self, group: GroupId, reclaimer: QueueId, request: &Shares, queues: &[QueueId]) -> bool {
        let wanted = request.0[share::GPU];
        if wanted <= 0 || self.asks_for_other_gpus(group) {
            return true;
        }
        let mut available = 0;
        let mut given: FxHashMap<QueueId, i128> = FxHashMap::default();
        for queue in queues {
            if available >= wanted {
                return true;
            }
            let Some((ours, theirs)) = self.cluster.leveled(reclaimer, *queue) else { continue };
            let most = match given.get(&theirs) {
                Some(most) => *most,
                None => self.most_given(ours, theirs, request),
            };
            let own = &self.cluster.queues[queue.index()].sum;
            let take = (own.allocated.0[share::GPU] - own.fixed.0[share::GPU]).min(most).max(0);
            given.insert(theirs, most - take);
            available += take;
        }
        // What pods ask for by memory is rounded up: a millionth each makes up for it.
        let rounding = self.rounding(group);
        available >= wanted || available + self.free_gpus() + rounding >= wanted
    }

    /// Whether sums of GPUs do not tell if a group fits: it asks for MIG profiles or claims; or somebody's share depends on where it is,
    /// because it is asked for by memory and devices differ.
    pub(super) fn asks_for_other_gpus(&self, group: GroupId) -> bool {
        let alike = self.smallest_gpu == self.largest_gpu;
        let mut pods = self.group(group).podsets.iter().flat_map(|podset| &podset.pods);
        (!alike && self.cluster.pods_by_memory > 0)
            || pods.any(|pod| {
                let class = self.cluster.class_of(*pod);
                let by_memory = matches!(class.gpus, Gpus::Memory { .. });
                class.mig || (by_memory && !alike) || !self.cluster.pods[pod.index()].claims().is_empty()
            })
    }

    /// Millionths by which what a group asks for by memory was rounded up, at most.
    pub(super) fn rounding(&self, group: GroupId) -> i128 {
        let pods = self.group(group).podsets.iter().flat_map(|podset| &podset.pods);
        let devices = pods.map(|pod| match self.cluster.class_of(*pod).gpus {
            Gpus::Memory { devices, .. } => i128::from(devices),
            _ => 0,
        });
        devices.sum()
    }

    /// GPUs that a queue gives at most.
    fn most_given(&mut self, ours: QueueId, theirs: QueueId, request: &Shares) -> i128 {
        let victim = &self.cluster.queues[theirs.index()];
        let held = victim.sum.allocated;
        let mut bounds = allocatable(self.cluster, theirs);
        let reclaimer = &self.cluster.queues[ours.index()];
        let quota = quotas(self.cluster, ours);
        if super::capacity::within(&reclaimer.sum.allocated.plus(request), &quota) {
            for (bound, quota) in bounds.iter_mut().zip(quotas(self.cluster, theirs)) {
                *bound = match (*bound, quota) {
                    (Some(bound), Some(quota)) => Some(bound.min(quota)),
                    (bound, quota) => bound.or(quota),
                };
            }
        }
        let others = [share::CPU, share::MEMORY].into_iter();
        if others.into_iter().any(|resource| bounds[resource].is_some_and(|bound| held.0[resource] > bound)) {
            return held.0[share::GPU];
        }
        let Some(bound) = bounds[share::GPU] else { return 0 };
        let above = (held.0[share::GPU] - bound).max(0);
        if above == 0 { 0 } else { above - 1 + self.largest_vector(theirs) }
    }

    /// GPUs of the largest group below a queue.
    fn largest_vector(&mut self, queue: QueueId) -> i128 {
        let described = &self.cluster.queues[queue.index()];
        let version = described.groups_version;
        let known = self.cluster.memory.largest.get(&queue).filter(|(known, _)| *known == version);
        let own = known.map_or_else(
            || {
                let groups =
                    described.running_groups.iter().map(|group| self.cluster.most_gpus(*group, self.smallest_gpu));
                groups.max().unwrap_or(0)
            },
            |(_, largest)| *largest,
        );
        self.cluster.memory.largest.insert(queue, (version, own));
        // What this cycle gave can be taken back as well.
        let given = self.promised.get(&queue).map_or(0, Promised::largest);
        let children = self.cluster.queues[queue.index()].children.clone();
        children.into_iter().map(|child| self.largest_vector(child)).max().unwrap_or(0).max(own).max(given)
    }

    /// Whether any pod that asks for GPUs may be on a node: what nobody may use is not free.
    fn is_usable(&self, node: &Node) -> bool {
        let mut classes = self.cluster.classes.iter().filter(|class| !class.is_cpu_only());
        classes.any(|class| suits(self.cluster, class, node, self.policy).is_ok())
    }

    /// GPUs that are or will be free, shares of devices too, in millionths.
    pub(super) fn free_gpus(&mut self) -> i128 {
        let end = self.cluster.journal.end();
        if let Some((_, free)) = self.free_gpus.filter(|(read, _)| *read == end) {
            return free;
        }
        let free = self.cluster.nodes.iter().filter(|node| node.is_available()).map(|node| {
            // What is left of each divided device is rounded down: a millionth each makes up for it.
            let free = node.free_gpus() + node.shared.len() as i128;
            if free > 0 && self.is_usable(node) { free } else { 0 }
        });
        let free = free.sum();
        self.free_gpus = Some((end, free));
        free
    }
}

/// The rules of reclaim.
struct ReclaimRules {
    group: GroupId,
    request: Shares,
    held: Holdings,
}

impl Rules for ReclaimRules {
    fn eligible(&mut self, cycle: &Cycle, victim: GroupId) -> Result<(), VictimRefusal> {
        let Some(queue) = cycle.group(self.group).queue else { return Err(VictimRefusal::NoCandidates) };
        if cycle.protected_from_reclaim(victim, queue) && !cycle.is_elastic(victim) {
            return Err(VictimRefusal::MinRuntime);
        }
        Ok(())
    }

    fn before(&mut self, cycle: &Cycle, batches: &[&Batch]) {
        let ours = cycle.group(self.group).queue;
        self.held = cycle.holdings(batches.iter().map(|batch| batch.queue).chain(ours));
    }

    fn judge(&mut self, cycle: &Cycle, outcome: &Outcome) -> Result<(), VictimRefusal> {
        let Some(queue) = cycle.group(self.group).queue else { return Err(VictimRefusal::NoCandidates) };
        cycle.judge_min_runtime(outcome, &|victim| cycle.protected_from_reclaim(victim, queue))?;
        cycle.judge_reclaim(self.group, &self.request, std::mem::take(&mut self.held), outcome)
    }
}
