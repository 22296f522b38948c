//! Consolidation: running pods move closer together so that a waiting group fits. Nobody loses a place.

use rustc_hash::FxHashMap;

use crate::{
    amounts::share,
    cycle::{
        Cycle,
        scenario::Outcome,
        search::{Rules, Search},
        signature::Refused,
        victims::Batch,
    },
    ids::{GroupId, QueueId},
    plan::{Cause, VictimRefusal},
    policy::Action,
};

impl Cycle<'_> {
    pub(super) fn consolidate(&mut self) {
        let most_groups = self.policy.max_consolidation_victims.map_or(usize::MAX, |most| most as usize);
        if most_groups == 0 {
            return;
        }
        let mut order = self.waiting_order(Action::Consolidation);
        let mut refused: Refused = FxHashMap::default();
        let queues: Vec<QueueId> =
            (0..self.cluster.queues.len()).map(QueueId::of).filter(|queue| self.may_have_victims(*queue)).collect();
        while let Some(group) = order.pop(&self.view(), &|_| false) {
            let steps = self.tasks().to_place(group);
            if steps.is_empty() {
                continue;
            }
            let signature = self.signature(group, &steps);
            if signature.as_ref().is_some_and(|signature| refused.contains_key(signature)) {
                continue;
            }
            let request = self.tasks().cost(&steps, self.largest_gpu);
            let rounding = self.rounding(group);
            let refusal = if !self.group(group).preemptible {
                Some(VictimRefusal::NotPreemptible)
            } else if !self.asks_for_other_gpus(group) && self.free_gpus() + rounding < request.0[share::GPU] {
                Some(VictimRefusal::ClusterFull)
            } else {
                None
            };
            let search = Search {
                action: Action::Consolidation,
                beneficiary: group,
                steps: &steps,
                queues: &queues,
                order: &order,
                most_groups,
            };
            let result = match refusal {
                Some(refusal) => {
                    self.plan.stats.searches_refused += 1;
                    Err(vec![(refusal, 1)])
                }
                None => {
                    self.search(&search, &mut ConsolidationRules).map(|outcome| self.commit_search(&search, &outcome))
                }
            };
            if let Err(refusals) = result {
                self.refuse(group, Cause::Victims { action: Action::Consolidation, refused: refusals });
                refused.extend(signature.map(|signature| (signature, group)));
            }
        }
    }
}

/// The rules of consolidation.
struct ConsolidationRules;

impl Rules for ConsolidationRules {
    fn eligible(&mut self, _cycle: &Cycle, _victim: GroupId) -> Result<(), VictimRefusal> {
        Ok(())
    }

    fn before(&mut self, _cycle: &Cycle, _batches: &[&Batch]) {}

    fn judge(&mut self, _cycle: &Cycle, outcome: &Outcome) -> Result<(), VictimRefusal> {
        if outcome.evicted.is_empty() { Ok(()) } else { Err(VictimRefusal::NotMovable) }
    }
}
