//! Preempt: a group takes from groups of lower priority in its own queue.

use crate::{
    cycle::{
        Cycle,
        order::ServingOrder,
        scenario::Outcome,
        search::{Refusals, Rules, Search},
        tasks::Steps,
        victims::Batch,
    },
    ids::GroupId,
    plan::VictimRefusal,
    policy::Action,
};

impl Cycle<'_> {
    pub(super) fn preempt(&mut self) {
        self.take_turns(Action::Preempt, &mut Self::preempt_for);
    }

    /// Takes from others of its queue for a group.
    pub(super) fn preempt_for(&mut self, order: &ServingOrder, group: GroupId, steps: &Steps) -> Result<(), Refusals> {
        let Some(queue) = self.group(group).queue else { return Err(vec![(VictimRefusal::NoCandidates, 1)]) };
        let request = self.tasks().cost(steps, self.largest_gpu);
        let over_quota = !self.group(group).preemptible
            && self.policy.plugins.proportion
            && self.cluster.quota_breach(queue, &request).is_some();
        if over_quota {
            return Err(vec![(VictimRefusal::AboveQuota, 1)]);
        }
        if !self.has_lower_priority(group) {
            self.refuse_search(Action::Preempt);
            return Err(vec![(VictimRefusal::NoCandidates, 1)]);
        }
        let search = Search {
            action: Action::Preempt,
            beneficiary: group,
            steps,
            queues: &[queue],
            order,
            most_groups: usize::MAX,
        };
        let outcome = self.search(&search, &mut PreemptRules { group })?;
        self.commit_search(&search, &outcome);
        Ok(())
    }

    /// Whether any group of the queue could be a victim: the first of its roster has the lowest priority.
    fn has_lower_priority(&mut self, group: GroupId) -> bool {
        let (priority, queue) = (self.group(group).priority, self.group(group).queue);
        let Some((groups, next)) = queue.map(|queue| self.roster(queue)) else { return false };
        let left = groups.get(next..).unwrap_or_default();
        let first = if self.policy.plugins.priority { left.get(..1).unwrap_or_default() } else { left };
        first.iter().any(|victim| self.group(*victim).priority < priority)
    }
}

/// The rules of preemption.
struct PreemptRules {
    group: GroupId,
}

impl Rules for PreemptRules {
    fn eligible(&mut self, cycle: &Cycle, victim: GroupId) -> Result<(), VictimRefusal> {
        if cycle.group(victim).priority >= cycle.group(self.group).priority {
            return Err(VictimRefusal::NoCandidates);
        }
        if cycle.protected_from_preempt(victim) && !cycle.is_elastic(victim) {
            return Err(VictimRefusal::MinRuntime);
        }
        Ok(())
    }

    fn before(&mut self, _cycle: &Cycle, _batches: &[&Batch]) {}

    fn judge(&mut self, cycle: &Cycle, outcome: &Outcome) -> Result<(), VictimRefusal> {
        cycle.judge_min_runtime(outcome, &|victim| cycle.protected_from_preempt(victim))
    }
}
