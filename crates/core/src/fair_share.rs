//! Fair share: how much of each resource every queue may count on, given what all of them ask for.
//!
//! Each resource is divided by itself, among the children of one queue at a time; what is divided at the top is the cluster, below
//! it the *fair share* of the parent (not its quota):
//!
//! ```text
//!   total ─▶ quota, as far as it is asked for ─▶ surplus, highest priority first, ─▶ what rounding left over, one unit each:
//!            (everyone, even if the sum           by weight, in whole units           by priority, largest remainder, age, name
//!             is more than there is)              unless less is needed
//! ```
//!
//! *Requestable* is the request, at most the limit. A *unit* is one millicore, one byte, one whole GPU. The arithmetic is exact:
//! results do not depend on the order of the queues and hold for any integers.
//!
//! Two results of KAI that may surprise are kept, because its decisions rest on them. What rounding leaves over in one priority is
//! offered to the next lower one before it is handed out by the unit: of 5 GPUs two queues get 2 each and a third of lower priority
//! the fifth. And the unit that is handed out last is a whole one even where a fraction of a GPU was missing, so a share can lie
//! above what is requestable by less than one GPU.

mod surplus;
pub(crate) mod wide;

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use self::surplus::{Claimant, Surplus};
use crate::{
    amounts::{GPU, Shares},
    time::Time,
};

/// What one unit of each resource of [`Shares`] is: surplus is divided in whole units.
const UNITS: [u128; 3] = [1, 1, GPU.unsigned_abs() as u128];

/// A queue, as far as the division needs to know it. Negative amounts count as 0.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The place of its parent among the entries, which must be before its own; `None`: it is at the top.
    /// An entry whose parent comes later gets nothing.
    pub parent: Option<usize>,
    /// Higher priorities are offered surplus first.
    pub priority: i32,
    /// Breaks ties: older first.
    pub created: Time,
    /// Breaks the last ties: in the order of text.
    pub name: &'a str,
    /// What is guaranteed, per resource; `None`: everything.
    pub quota: [Option<i64>; 3],
    /// What may never be exceeded; `None`: no such thing.
    pub limit: [Option<i64>; 3],
    /// The part of the surplus relative to its siblings, in millionths. Zero: none. The sign only counts relative to that of the
    /// sum over the siblings that still want something: alone, a negative weight is like a positive one.
    pub weight: [i64; 3],
    /// What it has and what it still wants, its whole subtree together.
    pub request: Shares,
    /// What it used of the cluster in the past, in billionths of the whole.
    pub usage: [u64; 3],
}

/// Divides resources among queues. Keeps its buffers from one division to the next.
#[derive(Debug, Default)]
pub struct Division {
    /// How much past usage counts against a queue where surplus is divided, in thousandths.
    pub usage_weight: u32,
    order: Vec<u32>,
    claimants: Vec<Claimant>,
    surplus: Surplus,
}

impl Division {
    /// A division in which past usage has this weight, in thousandths.
    #[must_use]
    pub fn new(usage_weight: u32) -> Self {
        Self { usage_weight, order: Vec::new(), claimants: Vec::new(), surplus: Surplus::default() }
    }

    /// Writes the fair share of every queue to its place in `out`. Queues for which `out` has no place are left out.
    ///
    /// Takes O(Q log Q) for Q queues. Only where past usage counts, or weights of both signs meet in one priority, does each round
    /// of the division look at all queues of that priority; rounds are few unless requests are made up to need many.
    pub fn divide(&mut self, total: Shares, queues: &[Entry<'_>], out: &mut [Shares]) {
        out.fill(Shares::default());
        let queues = &queues[..queues.len().min(out.len())];
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        let well_placed = queues
            .iter()
            .zip(0_u32..)
            .filter(|(queue, place)| queue.parent.is_none_or(|parent| parent < *place as usize));
        order.extend(well_placed.map(|(_, place)| place));
        // Siblings together, parents' own siblings before them; among siblings the order in which leftovers are handed out.
        order.sort_unstable_by_key(|place| {
            let queue = &queues[*place as usize];
            (queue.parent, Reverse(queue.priority), queue.created, queue.name, *place)
        });
        for siblings in order.chunk_by(|one, other| queues[*one as usize].parent == queues[*other as usize].parent) {
            let parent = queues[siblings[0] as usize].parent;
            let available = parent.map_or(total, |parent| out[parent]);
            for resource in 0..UNITS.len() {
                self.divide_among(siblings, available.0[resource].max(0), resource, queues, out);
            }
        }
        self.order = order;
    }

    /// Divides one resource among siblings.
    fn divide_among(
        &mut self,
        siblings: &[u32],
        total: i128,
        resource: usize,
        queues: &[Entry<'_>],
        out: &mut [Shares],
    ) {
        self.claimants.clear();
        // Guarantees may be more than there is. Then only the sign of what remains matters, so saturation is exact enough.
        let mut remaining = total;
        for (&place, rank) in siblings.iter().zip(0_u32..) {
            let queue = &queues[place as usize];
            let requestable = requestable(queue, resource);
            let guaranteed = queue.quota[resource].map_or(total, |quota| i128::from(quota.max(0))).min(requestable);
            out[place as usize].0[resource] = guaranteed;
            remaining = remaining.saturating_sub(guaranteed);
            if requestable > guaranteed && queue.weight[resource] != 0 {
                let need = (requestable - guaranteed).unsigned_abs();
                let (weight, usage) = (queue.weight[resource], queue.usage[resource]);
                self.claimants.push(Claimant::new(place, rank, queue.priority, need, weight, usage));
            }
        }
        let Ok(mut remaining) = u128::try_from(remaining) else { return };
        let unit = UNITS[resource];
        for bucket in self.claimants.chunk_by_mut(|one, other| one.priority == other.priority) {
            self.surplus.divide(bucket, &mut remaining, unit, self.usage_weight);
        }
        for bucket in self.claimants.chunk_by_mut(|one, other| one.priority == other.priority) {
            surplus::hand_out_units(bucket, &mut remaining, unit);
        }
        for claimant in &self.claimants {
            let share = &mut out[claimant.place as usize].0[resource];
            *share = share.saturating_add(i128::try_from(claimant.given).unwrap_or(i128::MAX));
        }
    }
}

/// What a queue can make use of: its request, at most its limit.
fn requestable(queue: &Entry<'_>, resource: usize) -> i128 {
    let limit = queue.limit[resource].map_or(i128::MAX, |limit| i128::from(limit.max(0)));
    queue.request.0[resource].max(0).min(limit)
}
