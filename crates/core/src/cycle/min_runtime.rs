//! Minimum runtime: for how long after its start a group is left alone. Its surplus pods may be taken all the same.

use crate::{
    cycle::{Cycle, scenario::Outcome},
    ids::{GroupId, QueueId},
    plan::VictimRefusal,
    policy::MinRuntimeRule,
    time::Span,
};

impl Cycle<'_> {
    /// Whether a group has not run for its minimum time before preemption.
    pub(super) fn protected_from_preempt(&self, group: GroupId) -> bool {
        let queue = self.group(group).queue;
        let value = queue.and_then(|queue| {
            self.cluster.chain(queue).find_map(|queue| self.cluster.queues[queue.index()].preempt_min_runtime)
        });
        self.is_younger(group, value.unwrap_or(self.policy.preempt_min_runtime))
    }

    /// Whether a group has not run for its minimum time before reclaim for a queue.
    pub(super) fn protected_from_reclaim(&self, group: GroupId, reclaimer: QueueId) -> bool {
        let Some(queue) = self.group(group).queue else { return false };
        let first = match self.policy.reclaim_min_runtime_rule {
            MinRuntimeRule::Queue => Some(queue),
            MinRuntimeRule::LowestCommonAncestor => self.cluster.leveled(reclaimer, queue).map(|(_, victim)| victim),
        };
        let value = first.and_then(|first| {
            self.cluster.chain(first).find_map(|queue| self.cluster.queues[queue.index()].reclaim_min_runtime)
        });
        self.is_younger(group, value.unwrap_or(self.policy.reclaim_min_runtime))
    }

    fn is_younger(&self, group: GroupId, runtime: Span) -> bool {
        let started = self.group(group).last_start;
        self.policy.plugins.min_runtime && started.is_some_and(|started| self.now < started.after(runtime))
    }

    /// Whether some podset has more pods than it needs.
    pub(super) fn is_elastic(&self, group: GroupId) -> bool {
        self.group(group).podsets.iter().any(|podset| podset.pods.len() > podset.min as usize)
    }

    /// A protected group may only lose surplus.
    pub(super) fn judge_min_runtime(
        &self,
        outcome: &Outcome,
        protected: &dyn Fn(GroupId) -> bool,
    ) -> Result<(), VictimRefusal> {
        for (group, pod) in outcome.evicted.iter().chain(&outcome.moved) {
            let podset = usize::from(self.cluster.pods[pod.index()].podset);
            let below =
                self.group(*group).podsets.get(podset).is_some_and(|podset| podset.active_allocated() < podset.min);
            if below && protected(*group) {
                return Err(VictimRefusal::MinRuntime);
            }
        }
        Ok(())
    }
}
