//! Where a kubelet would put a pod's resources among the zones of its node.
//!
//! ```text
//!   none              anywhere: nothing is foreseen
//!   best-effort       few zones if it can, never refused
//!   restricted        the fewest zones that could ever do; every resource must need equally many
//!   single-numa-node  one zone
//! ```
//!
//! A *unit* is what is aligned together: the pod, or one container. Containers run at the same time and draw on what
//! the ones before them left; an init container is alone and leaves everything as it was.

use std::collections::BTreeMap;

use super::{NumaNeed, NumaState, Unit, Zone, ZoneUse};
use crate::{
    delta::{NumaPolicy, NumaScope},
    ids::Word,
};

/// Sets of zones that are looked at for one unit, at most. Machines have at most 16 zones: every set of them is looked
/// at.
const MOST_SETS: u32 = 1 << 16;

/// What is free in each zone, while a pod is being placed.
type Free = Vec<BTreeMap<Word, i64>>;

impl NumaState {
    /// What a pod would draw from which zones, and over how many zones its most scattered part is spread; `None`: its
    /// kubelet would refuse it. `now`: with what is free now; otherwise once everything that leaves has left.
    #[must_use]
    pub fn place(&self, need: &NumaNeed, now: bool) -> Option<(Vec<ZoneUse>, u32)> {
        if self.policy == NumaPolicy::None {
            return Some((Vec::new(), u32::try_from(self.zones.len().max(1)).unwrap_or(u32::MAX)));
        }
        let mut free: Free = self.zones.iter().map(|zone| zone.free(now)).collect();
        let mut drawn: Free = vec![BTreeMap::new(); free.len()];
        let mut span = 1;
        let whole = self.scope == NumaScope::Pod;
        for unit in need.units.iter().filter(|unit| unit.whole_pod == whole) {
            let wanted = self.aligned(unit);
            if wanted.is_empty() {
                continue;
            }
            let zones = match self.policy {
                NumaPolicy::SingleNumaNode => vec![free.iter().position(|zone| covers(&[zone], &wanted))?],
                NumaPolicy::Restricted => self.narrowest(&wanted, &free)?,
                NumaPolicy::BestEffort | NumaPolicy::None => scattered(&wanted, &free),
            };
            span = span.max(zones.len());
            if !unit.init {
                draw(&wanted, &zones, &mut free, &mut drawn);
            }
        }
        let uses = drawn.into_iter().enumerate().filter(|(_, amounts)| !amounts.is_empty()).map(|(zone, amounts)| {
            ZoneUse { zone: u32::try_from(zone).unwrap_or(u32::MAX), amounts: amounts.into_iter().collect() }
        });
        Some((uses.collect(), u32::try_from(span).unwrap_or(u32::MAX)))
    }

    /// What of a unit the node's zones report at all.
    fn aligned(&self, unit: &Unit) -> Vec<(Word, i64)> {
        let reported = |word: Word| self.zones.iter().any(|zone| zone.total.iter().any(|(name, _)| *name == word));
        unit.amounts.iter().copied().filter(|(word, amount)| *amount > 0 && reported(*word)).collect()
    }

    /// The first set of zones that has enough, of the size that every resource needs at least on an empty node.
    fn narrowest(&self, wanted: &[(Word, i64)], free: &Free) -> Option<Vec<usize>> {
        let mut widths = wanted.iter().map(|(word, amount)| self.width(*word, *amount));
        let width = widths.next()??;
        if widths.any(|other| other != Some(width)) {
            return None;
        }
        let mut set: Vec<usize> = (0..width).collect();
        for _ in 0..MOST_SETS {
            let zones: Vec<&BTreeMap<Word, i64>> = set.iter().filter_map(|zone| free.get(*zone)).collect();
            if covers(&zones, wanted) {
                return Some(set);
            }
            if !advance(&mut set, free.len()) {
                return None;
            }
        }
        None
    }

    /// How many zones a resource needs at least on an empty node.
    fn width(&self, word: Word, amount: i64) -> Option<usize> {
        let total = |zone: &Zone| zone.total.iter().find(|(name, _)| *name == word).map_or(0, |(_, total)| *total);
        let mut totals: Vec<i64> = self.zones.iter().map(total).collect();
        totals.sort_unstable_by(|a, b| b.cmp(a));
        let mut sum = 0_i64;
        totals
            .iter()
            .position(|total| {
                sum = sum.saturating_add(*total);
                sum >= amount
            })
            .map(|place| place + 1)
    }
}

impl Zone {
    fn free(&self, now: bool) -> BTreeMap<Word, i64> {
        let amounts = self.idle.iter().zip(&self.future);
        let amounts = amounts.map(|(idle, future)| if now { *idle.min(future) } else { *future });
        self.total.iter().map(|(word, _)| *word).zip(amounts).collect()
    }
}

fn covers(zones: &[&BTreeMap<Word, i64>], wanted: &[(Word, i64)]) -> bool {
    wanted.iter().all(|(word, amount)| {
        let free = zones.iter().filter_map(|zone| zone.get(word)).map(|free| (*free).max(0));
        free.fold(0, i64::saturating_add) >= *amount
    })
}

/// The next set of as many out of `count`, in lexicographic order.
fn advance(set: &mut [usize], count: usize) -> bool {
    let width = set.len();
    let Some(place) = (0..width).rev().find(|place| set[*place] + width - place < count) else { return false };
    let mut zone = set[place];
    for entry in &mut set[place..] {
        zone += 1;
        *entry = zone;
    }
    true
}

/// The first zone with enough, or zones one after another, each with the most of what is still lacking first.
fn scattered(wanted: &[(Word, i64)], free: &Free) -> Vec<usize> {
    if let Some(zone) = free.iter().position(|zone| covers(&[zone], wanted)) {
        return vec![zone];
    }
    let mut zones = Vec::new();
    for (word, amount) in wanted {
        let amount_in = |zone: usize| free[zone].get(word).map_or(0, |free| (*free).max(0));
        let had = zones.iter().map(|zone| amount_in(*zone)).fold(0, i64::saturating_add);
        let mut lacking = amount.saturating_sub(had);
        let mut others: Vec<usize> = (0..free.len()).filter(|zone| !zones.contains(zone)).collect();
        others.sort_by_key(|zone| std::cmp::Reverse(amount_in(*zone)));
        for zone in others {
            if lacking <= 0 || amount_in(zone) == 0 {
                break;
            }
            lacking = lacking.saturating_sub(amount_in(zone));
            zones.push(zone);
        }
    }
    zones.sort_unstable();
    zones
}

/// Takes what is wanted from zones, the first ones first.
fn draw(wanted: &[(Word, i64)], zones: &[usize], free: &mut Free, drawn: &mut Free) {
    for (word, amount) in wanted {
        let mut lacking = *amount;
        for zone in zones {
            let Some(left) = free[*zone].get_mut(word).filter(|left| **left > 0) else { continue };
            let part = lacking.min(*left);
            if part > 0 {
                *left -= part;
                lacking -= part;
                *drawn[*zone].entry(*word).or_default() += part;
            }
        }
    }
}
