//! Victims on one node: often fewer than those that come first in the order of taking.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::{Attempt, Rules, SURVEYED, Search};
use crate::{
    cycle::{
        Cycle,
        room::{Movers, Room},
        scenario::Outcome,
        victims::TakingOrder,
    },
    ids::NodeId,
};

impl Cycle<'_> {
    /// Looks at single nodes for the first batches: victims on one node may come later in the order of taking than victims on several
    /// and still be fewer. What is found where nothing else was possible is taken; otherwise it is only noted.
    pub(super) fn survey(
        &mut self,
        search: &Search,
        rules: &mut dyn Rules,
        attempt: &mut Attempt,
        order: &mut TakingOrder,
        movers: Movers,
    ) -> Option<Outcome> {
        let mut room = Room::new(self, search.steps, movers);
        let checkpoint = self.cluster.checkpoint();
        let mut first = true;
        while attempt.taken.len() < SURVEYED
            && let Some(batch) = self.next_batch(search, rules, attempt, order)
        {
            room.add(self, &batch);
            attempt.taken.push(batch);
            if !room.may_fit() {
                continue;
            }
            if let Some(outcome) = self.look_at_nodes(search, rules, attempt, &room) {
                if first {
                    return Some(outcome);
                }
                self.cluster.rollback(checkpoint);
                let chosen = std::mem::take(&mut attempt.newest);
                attempt.tried.remove(&chosen);
                attempt.on_one_node = Some((chosen, outcome.price()));
                break;
            }
            first = false;
        }
        attempt.taken.drain(..).rev().for_each(|batch| attempt.ahead.push_front(batch));
        None
    }

    /// Tries the scenarios with victims on one node that the newest batch makes possible.
    pub(super) fn look_at_nodes(
        &mut self,
        search: &Search,
        rules: &mut dyn Rules,
        attempt: &mut Attempt,
        room: &Room,
    ) -> Option<Outcome> {
        let newest = attempt.taken.last()?.group;
        let pods = attempt.taken.iter().filter(|batch| batch.group == newest).flat_map(|batch| &batch.pods);
        let mut nodes: SmallVec<[NodeId; 4]> =
            pods.filter_map(|pod| self.cluster.pods[pod.index()].place.node).collect();
        nodes.sort_unstable_by_key(|node| self.cluster.nodes[node.index()].rank);
        nodes.dedup();
        for node in nodes {
            let chosen = attempt.batches_on(self, &[node]);
            let left = chosen.iter().flat_map(|place| &attempt.taken[*place].pods);
            let left: FxHashSet<NodeId> = left.filter_map(|pod| self.cluster.pods[pod.index()].place.node).collect();
            if room.is_enough_with(&left)
                && let Some(outcome) = self.try_out(search, rules, attempt, &chosen)
            {
                return Some(outcome);
            }
        }
        None
    }
}
