//! The end of a cycle: why the rest waits.

use crate::{
    cluster::status::Status,
    cycle::Cycle,
    ids::GroupId,
    plan::{Cause, GroupRefusal, Plan},
};

impl Cycle<'_> {
    /// The plan, with a reason for every group that still waits, by name.
    pub(super) fn report(mut self) -> Plan {
        self.explain_gated();
        let mut reasons: Vec<GroupRefusal> = std::mem::take(&mut self.refusals)
            .into_iter()
            .filter(|(group, _)| self.still_waits(*group))
            .map(|(group, causes)| GroupRefusal { group, causes })
            .collect();
        reasons.sort_by(|a, b| self.group(a.group).key.cmp(&self.group(b.group).key));
        self.plan.reasons = reasons;
        self.plan.verdicts = self.cluster.verdicts();
        self.plan
    }

    /// Groups of which every waiting pod is gated never had a turn: they are told so.
    fn explain_gated(&mut self) {
        let queues = self.cluster.queues.iter().flat_map(|queue| queue.waiting_groups.iter().copied());
        let silent: Vec<GroupId> =
            queues.filter(|id| self.still_waits(*id) && !self.refusals.contains_key(id)).collect();
        for id in silent {
            let cause = self.unfit(self.group(id)).unwrap_or(Cause::NotReady(Vec::new()));
            self.refuse(id, cause);
        }
    }

    fn still_waits(&self, group: GroupId) -> bool {
        let group = self.group(group);
        group.count(Status::Pending) > 0 || group.count(Status::Gated) > 0
    }
}
