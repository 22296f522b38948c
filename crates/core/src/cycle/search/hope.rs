//! Cheap reasons not to search, or not to go on: nobody's leaving would help.

use smallvec::SmallVec;

use super::{Attempt, FEW, Hope, Rules, Search};
use crate::{
    cycle::{Cycle, gang, ranking::suits, room::Room, victims::TakingOrder},
    delta::Gpus,
    ids::ClassId,
    plan::{Cause, VictimRefusal},
    policy::Action,
};

impl Cycle<'_> {
    /// Why nobody's leaving can help: a pod fits no node even if it were empty, or there is room for all of them, though they
    /// were turned down, and nobody who could leave stands against them.
    pub(super) fn hopeless(&mut self, search: &Search, room: &Room) -> Option<VictimRefusal> {
        let told = self.refusals.get(&search.beneficiary).map_or(&[][..], |causes| causes);
        let turned_down =
            told.iter().any(|cause| matches!(cause, Cause::Gang { .. } | Cause::Pod { .. } | Cause::SameAs(_)));
        if told.iter().any(|cause| matches!(cause, Cause::TopologyUnknown(_))) {
            return Some(VictimRefusal::NeverFits);
        }
        let mut seen: SmallVec<[ClassId; 4]> = SmallVec::new();
        let mut opposed = self.group(search.beneficiary).tree.is_some();
        for pod in gang::pods_of(search.steps) {
            let class = self.cluster.pods[pod.index()].class;
            let claims = !self.cluster.pods[pod.index()].claims().is_empty();
            if claims && self.policy.plugins.dynamic_resources && self.cluster.claims_refusal(pod).is_some() {
                return Some(VictimRefusal::NeverFits);
            }
            opposed |= claims || !self.cluster.class(class).numa.units.is_empty();
            if seen.contains(&class) {
                continue;
            }
            seen.push(class);
            if !self.could_ever_fit(class) {
                return Some(VictimRefusal::NeverFits);
            }
            if let Some(census) = &mut self.census {
                census.prepare(self.cluster, pod);
                opposed |= census.is_opposed(self.cluster, pod);
            }
            // What a request by memory costs a queue depends on the node: room somewhere is not room for it.
            opposed |= matches!(self.cluster.class(class).gpus, Gpus::Memory { .. });
        }
        let cost = self.tasks().cost(search.steps, self.largest_gpu);
        let group = self.group(search.beneficiary);
        let limited = group.queue.filter(|_| self.policy.plugins.proportion);
        let over_limit = limited.filter(|queue| self.cluster.breach(*queue, &cost, group.preemptible).is_some());
        // Moving pods about changes nothing for their queues where devices are alike.
        let alike = self.smallest_gpu == self.largest_gpu;
        if search.action == Action::Consolidation
            && over_limit.is_some_and(|queue| alike || self.cluster.is_over_limit_everywhere(queue, &cost))
        {
            return Some(VictimRefusal::NoRoom);
        }
        // Since it was turned down others may have left.
        let unchanged = self.costly.is_empty();
        (turned_down && unchanged && seen.len() == 1 && room.is_enough() && !opposed && over_limit.is_none())
            .then_some(VictimRefusal::NoRoom)
    }

    /// Whether some node would hold a pod of a class if it were empty.
    fn could_ever_fit(&mut self, class: ClassId) -> bool {
        let version = self.cluster.nodes_version;
        if let Some((_, fits)) = self.cluster.memory.possible.get(&class).filter(|(known, _)| *known == version) {
            return *fits;
        }
        let described = self.cluster.class(class);
        let everywhere = self.policy.plugins.predicates && described.constraints.everywhere().is_some();
        let fits = !everywhere
            && self.cluster.nodes.iter().any(|node| {
                let units = node.shares_of(described).is_none_or(|(_, units)| units != u64::MAX);
                node.exists
                    && units
                    && node.total.fit(&described.amounts)
                    && suits(self.cluster, described, node, self.policy).is_ok()
            });
        self.cluster.memory.possible.insert(class, (version, fits));
        fits
    }

    /// Whether the beneficiary would fit if all victims left at once. It is asked once, and only where there are too many batches to try
    /// every choice: then nothing that could be found is missed.
    pub(super) fn may_help(
        &mut self,
        search: &Search,
        rules: &mut dyn Rules,
        attempt: &mut Attempt,
        order: &mut TakingOrder,
    ) -> bool {
        if attempt.hope != Hope::Unknown {
            return attempt.hope == Hope::Some;
        }
        let mut ahead = std::mem::take(&mut attempt.ahead);
        while let Some(batch) = self.next_batch(search, rules, attempt, order) {
            ahead.push_back(batch);
        }
        attempt.ahead = ahead;
        let few = attempt.taken.len() + attempt.ahead.len() <= FEW;
        let all = || attempt.taken.iter().chain(&attempt.ahead);
        let helps = few || self.fits_without(search.beneficiary, all());
        attempt.hope = if helps { Hope::Some } else { Hope::None };
        helps
    }
}
