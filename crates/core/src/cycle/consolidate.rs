//! Consolidation: running pods move closer together so that a waiting group fits. Nobody loses a place.

use crate::{
    amounts::share,
    cycle::{
        Cycle,
        order::ServingOrder,
        scenario::Outcome,
        search::{Refusals, Rules, Search},
        tasks::Steps,
        victims::Batch,
    },
    ids::{GroupId, QueueId},
    plan::VictimRefusal,
    policy::Action,
};

impl Cycle<'_> {
    pub(super) fn consolidate(&mut self) {
        if self.policy.max_consolidation_victims != Some(0) {
            self.take_turns(Action::Consolidation, &mut Self::consolidate_for);
        }
    }

    /// Moves others about for a group.
    pub(super) fn consolidate_for(
        &mut self,
        order: &ServingOrder,
        group: GroupId,
        steps: &Steps,
    ) -> Result<(), Refusals> {
        let request = self.tasks().cost(steps, self.largest_gpu);
        let rounding = self.rounding(group);
        let refusal = if !self.group(group).preemptible {
            Some(VictimRefusal::NotPreemptible)
        } else if !self.asks_for_other_gpus(group) && self.free_gpus() + rounding < request.0[share::GPU] {
            Some(VictimRefusal::ClusterFull)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            self.refuse_search(Action::Consolidation);
            return Err(vec![(refusal, 1)]);
        }
        let queues: Vec<QueueId> =
            (0..self.cluster.queues.len()).map(QueueId::of).filter(|queue| self.may_have_victims(*queue)).collect();
        let search = Search {
            action: Action::Consolidation,
            beneficiary: group,
            steps,
            queues: &queues,
            order,
            most_groups: self.policy.max_consolidation_victims.map_or(usize::MAX, |most| most as usize),
        };
        let outcome = self.search(&search, &mut ConsolidationRules)?;
        self.commit_search(&search, &outcome);
        Ok(())
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
