//! Preempt: a group takes from groups of lower priority in its own queue.

use rustc_hash::FxHashMap;

use crate::{
    cycle::{
        Cycle,
        scenario::Outcome,
        search::{Rules, Search},
        signature::Refused,
        victims::Batch,
    },
    ids::GroupId,
    plan::{Cause, VictimRefusal},
    policy::Action,
};

impl Cycle<'_> {
    pub(super) fn preempt(&mut self) {
        let mut order = self.waiting_order(Action::Preempt);
        let mut refused: Refused = FxHashMap::default();
        while let Some(group) = order.pop(&self.view(), &|_| false) {
            let steps = self.tasks().to_place(group);
            let Some(queue) = self.group(group).queue.filter(|_| !steps.is_empty()) else { continue };
            let signature = self.signature(group, &steps);
            if signature.as_ref().is_some_and(|signature| refused.contains_key(signature)) {
                continue;
            }
            let request = self.tasks().cost(&steps, self.largest_gpu);
            let over_quota = !self.group(group).preemptible
                && self.policy.plugins.proportion
                && self.cluster.quota_breach(queue, &request).is_some();
            let result = if over_quota {
                Err(vec![(VictimRefusal::AboveQuota, 1)])
            } else if !self.has_lower_priority(group) {
                self.plan.stats.searches_refused += 1;
                Err(vec![(VictimRefusal::NoCandidates, 1)])
            } else {
                let queues = [queue];
                let search = Search {
                    action: Action::Preempt,
                    beneficiary: group,
                    steps: &steps,
                    queues: &queues,
                    order: &order,
                    most_groups: usize::MAX,
                };
                let found = self.search(&search, &mut PreemptRules { group });
                found.map(|outcome| self.commit_search(&search, &outcome))
            };
            if let Err(refusals) = result {
                self.refuse(group, Cause::Victims { action: Action::Preempt, refused: refusals });
                refused.extend(signature.map(|signature| (signature, group)));
            }
        }
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
