//! The end of a cycle: why the rest waits.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    cluster::{pod::Place, status::Status},
    cycle::Cycle,
    ids::{GroupId, NodeId, PodId},
    plan::{Cause, Decision, GroupRefusal, Placed, Plan},
};

impl Cycle<'_> {
    /// The plan, with a reason for every group that still waits, by name.
    pub(super) fn report(mut self) -> Plan {
        self.drop_withdrawn();
        self.remember_promises();
        self.explain_gated();
        let mut reasons: Vec<GroupRefusal> = std::mem::take(&mut self.refusals)
            .into_iter()
            .filter(|(group, _)| self.still_waits(*group))
            .map(|(group, causes)| GroupRefusal { group, causes })
            .collect();
        reasons.sort_by(|a, b| self.group(a.group).key.cmp(&self.group(b.group).key));
        self.plan.reasons = reasons;
        self.plan.verdicts = self.cluster.verdicts();
        if let Some(census) = self.census.take() {
            self.cluster.memory.census = census;
        }
        self.plan
    }

    /// What was promised and then withdrawn is not told, and victims are told for whom they leave in the end.
    fn drop_withdrawn(&mut self) {
        if self.withdrawn.is_empty() {
            return;
        }
        let mut decisions = std::mem::take(&mut self.plan.decisions);
        let spared = self.spare_needless_victims(&decisions);
        let mut told: FxHashSet<PodId> = FxHashSet::default();
        decisions.reverse();
        decisions.retain(|decision| match decision {
            Decision::Bind(placed) => self.holds(placed, Status::Allocated) && told.insert(placed.pod),
            Decision::Pipeline(placed) => self.holds(placed, Status::Pipelined) && told.insert(placed.pod),
            Decision::Started { group, .. } => self.group(*group).count(Status::Allocated) > 0,
            Decision::Evict(eviction) => !spared.contains(&eviction.pod),
            Decision::Stale { .. } => true,
        });
        decisions.reverse();
        for decision in &mut decisions {
            if let Decision::Evict(eviction) = decision {
                let lost = |group: &GroupId| self.got_nothing(*group);
                let heir = |group: &GroupId| self.withdrawn.get(group).copied().filter(|_| lost(group));
                // Nobody is withdrawn for more groups than there are.
                let heirs = std::iter::successors(eviction.beneficiary, heir).take(self.withdrawn.len() + 1);
                eviction.heir = heirs.last().filter(|heir| Some(*heir) != eviction.beneficiary);
            }
        }
        self.plan.decisions = decisions;
        self.bind_what_is_free();
    }

    /// Who was promised what another had been given in the same cycle waits for nobody: where that was all, it gets its place now. Otherwise
    /// the next cycle could give it to the other again, and so on for ever.
    fn bind_what_is_free(&mut self) {
        let mut waiting = self.promised();
        let mut bound: FxHashSet<PodId> = FxHashSet::default();
        let mut started = Vec::new();
        // A pod can share a device only after another has opened it, which may come later in the order.
        loop {
            let before = waiting.len();
            waiting.retain(|(group, places)| {
                let described = self.group(*group);
                let fresh = described.active_allocated() == described.count(Status::Pipelined);
                let binds = self.bind_now(places);
                if binds {
                    bound.extend(places.iter().map(|(pod, _)| *pod));
                    started.extend(fresh.then_some(Decision::Started { group: *group, at: self.now }));
                }
                !binds
            });
            if waiting.len() == before {
                break;
            }
        }
        let mut decisions = std::mem::take(&mut self.plan.decisions);
        for decision in &mut decisions {
            if let Decision::Pipeline(placed) = decision
                && bound.contains(&placed.pod)
            {
                *decision = Decision::Bind(self.placed(placed.pod));
            }
        }
        decisions.extend(started);
        self.plan.decisions = decisions;
    }

    /// What groups were promised, in the order of the promises.
    fn promised(&self) -> Vec<(GroupId, Vec<(PodId, NodeId)>)> {
        let mut promised: Vec<(GroupId, Vec<(PodId, NodeId)>)> = Vec::new();
        let mut known: FxHashMap<GroupId, usize> = FxHashMap::default();
        for decision in &self.plan.decisions {
            let Decision::Pipeline(placed) = decision else { continue };
            let Some(group) = self.cluster.pods[placed.pod.index()].group else { continue };
            let index = *known.entry(group).or_insert(promised.len());
            match promised.get_mut(index) {
                Some((_, places)) => places.push((placed.pod, placed.node)),
                None => promised.push((group, vec![(placed.pod, placed.node)])),
            }
        }
        promised
    }

    /// Gives pods of a group the places that they were promised, if all of these are free now.
    fn bind_now(&mut self, places: &[(PodId, NodeId)]) -> bool {
        if places.iter().any(|(pod, _)| self.cluster.pods[pod.index()].fact != Status::Pending) {
            return false;
        }
        let checkpoint = self.cluster.checkpoint();
        for (pod, _) in places {
            self.cluster.assign(*pod, Place::nowhere(Status::Pending));
        }
        let bound = places.iter().all(|(pod, node)| self.place_now(*pod, *node));
        if !bound {
            self.cluster.rollback(checkpoint);
        }
        bound
    }

    /// Victims of a group that lost what they made room for stay where they are, if nobody took their places: those that were moved each
    /// for itself, those that were evicted all of a group or none.
    fn spare_needless_victims(&mut self, decisions: &[Decision]) -> FxHashSet<PodId> {
        let mut evicted: BTreeMap<GroupId, Vec<PodId>> = BTreeMap::new();
        let mut moved: BTreeMap<GroupId, Vec<PodId>> = BTreeMap::new();
        let mut spared = FxHashSet::default();
        for decision in decisions.iter().rev() {
            let Decision::Evict(eviction) = decision else { continue };
            let beneficiary = eviction.beneficiary;
            if !beneficiary.is_some_and(|group| self.withdrawn.contains_key(&group) && self.got_nothing(group)) {
                continue;
            }
            if !eviction.moved {
                evicted.entry(eviction.group).or_default().push(eviction.pod);
            } else if self.cluster.leaving.contains_key(&eviction.pod) {
                moved.entry(eviction.group).or_default().push(eviction.pod);
            }
        }
        let by_name = |groups: BTreeMap<GroupId, Vec<PodId>>, cycle: &Self| {
            let mut groups: Vec<(GroupId, Vec<PodId>)> = groups.into_iter().collect();
            groups.sort_by(|a, b| cycle.group(a.0).key.cmp(&cycle.group(b.0).key));
            groups
        };
        for (group, pods) in by_name(moved, self) {
            spared.extend(self.stay_where_free(group, &pods));
        }
        for (_, pods) in by_name(evicted, self) {
            let checkpoint = self.cluster.checkpoint();
            let all = pods.iter().all(|pod| {
                let fact = self.evicted.get(pod).copied();
                let fact = fact.filter(|_| self.own_place_is_free(*pod));
                fact.map(|fact| self.cluster.revoke_eviction(*pod, fact)).is_some()
            });
            if all {
                spared.extend(pods);
            } else {
                self.cluster.rollback(checkpoint);
            }
        }
        spared
    }

    /// Whether this cycle leaves a group without anything new.
    fn got_nothing(&self, group: GroupId) -> bool {
        let group = self.group(group);
        group.count(Status::Allocated) == 0 && group.count(Status::Pipelined) == 0
    }

    fn holds(&self, placed: &Placed, status: Status) -> bool {
        let place = &self.cluster.pods[placed.pod.index()].place;
        place.status == status && place.node == Some(placed.node)
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
