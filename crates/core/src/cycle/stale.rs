//! Stale gangs: what is left of a gang that lost members below its minimum is evicted after a grace period.

use crate::{
    cluster::status::Status,
    cycle::Cycle,
    ids::{GroupId, PodId},
    plan::{Decision, Eviction},
    policy::Action,
};

impl Cycle<'_> {
    pub(super) fn evict_stale_gangs(&mut self) {
        let mut suspects: Vec<GroupId> = self.cluster.suspects.iter().copied().collect();
        suspects.sort_by(|a, b| self.group(*a).key.cmp(&self.group(*b).key));
        for id in suspects {
            let since = self.group(id).rare().stale_since;
            if !self.is_stale(id) {
                if since.is_some() {
                    self.plan.decisions.push(Decision::Stale { group: id, since: None });
                }
                continue;
            }
            if since.is_none() {
                self.plan.decisions.push(Decision::Stale { group: id, since: Some(self.now) });
            }
            let grace = self.group(id).rare().staleness_grace.unwrap_or(self.policy.staleness_grace);
            let stale_for = self.now.since(since.unwrap_or(self.now));
            if grace.0 >= 0 && stale_for >= grace {
                self.evict_all(id);
            }
        }
    }

    /// Whether pods of a gang hold resources while others are missing. A gang of which a pod has succeeded is ending, not broken.
    fn is_stale(&self, id: GroupId) -> bool {
        let group = self.group(id);
        let active = group.podsets.iter().any(|podset| podset.active() > 0);
        group.exists && active && group.count(Status::Succeeded) == 0 && !self.tasks().is_whole(group)
    }

    fn evict_all(&mut self, id: GroupId) {
        let mut pods: Vec<PodId> =
            self.group(id).podsets.iter().flat_map(|podset| podset.pods.iter().copied()).collect();
        pods.retain(|pod| super::tasks::is_evictable(self.cluster, *pod));
        pods.sort_by(|a, b| self.tasks().compare_pods(*a, *b));
        for pod in pods {
            self.cluster.evict(pod);
            self.plan.decisions.push(Decision::Evict(Eviction {
                pod,
                group: id,
                action: Action::StaleGangEviction,
                beneficiary: None,
                heir: None,
                queues: None,
                moved: false,
            }));
        }
    }
}
