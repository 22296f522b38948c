//! What else is possible where something was found: victims on one node, or those that come first in order.
//!
//! Few batches are looked at before many, but who is asked to leave may find that it can stay: more batches may cost fewer pods.

use super::{Attempt, COMPARED, Rules, Search};
use crate::{
    cluster::ledger::Checkpoint,
    cycle::{
        Cycle,
        scenario::Outcome,
        victims::{Batch, TakingOrder},
    },
};

impl Cycle<'_> {
    /// What was just found, or what was noted on one node if it costs no more, or the first batches in order if they cost less.
    pub(super) fn cheapest(
        &mut self,
        search: &Search,
        rules: &mut dyn Rules,
        attempt: &mut Attempt,
        order: &mut TakingOrder,
        start: Checkpoint,
        outcome: Outcome,
    ) -> Option<Outcome> {
        let (mut best, mut price) = (attempt.newest.clone(), outcome.price());
        let mut standing = Some(outcome);
        let in_order = best.len() == attempt.taken.len();
        if let Some((chosen, other)) = attempt.on_one_node.take().filter(|(_, other)| *other <= price) {
            (best, price) = (chosen, other);
        }
        if price > 0 && !in_order && attempt.taken.len() <= COMPARED {
            self.cluster.rollback(start);
            standing = self.first_in_order(search, rules, attempt, order);
            if standing.as_ref().is_some_and(|outcome| outcome.price() < price) {
                return standing;
            }
        }
        if standing.is_some() && best == attempt.newest {
            return standing;
        }
        self.cluster.rollback(start);
        // Batches come in the same order as when it was found, but perhaps fewer of them so far.
        let all: Vec<&Batch> = attempt.taken.iter().chain(&attempt.ahead).collect();
        let batches: Vec<&Batch> = best.iter().filter_map(|place| all.get(*place).copied()).collect();
        // The same game from the same position has the same end.
        self.play_fairly(search, rules, &batches)
    }

    /// The first batches in the order of taking, as few as do, where what was found needs others too.
    fn first_in_order(
        &mut self,
        search: &Search,
        rules: &mut dyn Rules,
        attempt: &mut Attempt,
        order: &mut TakingOrder,
    ) -> Option<Outcome> {
        loop {
            let all: Vec<usize> = (0..attempt.taken.len()).collect();
            if let Some(outcome) = self.try_out(search, rules, attempt, &all) {
                return Some(outcome);
            }
            if attempt.taken.len() == COMPARED {
                return None;
            }
            let batch = self.next_batch(search, rules, attempt, order)?;
            attempt.taken.push(batch);
        }
    }
}
