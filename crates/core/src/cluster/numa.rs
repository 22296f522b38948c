//! NUMA zones of a node, in words: what each has, what is free now, and what will be free once everything that leaves
//! has left.

mod place;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::{
    amounts::LARGEST,
    cluster::{Cluster, status::Status, words::Words},
    delta::{Numa, NumaPolicy, NumaScope, NumaShare, NumaUnit},
    ids::{NodeId, PodId, Word},
    plan::NodeRefusal,
};

/// The NUMA zones of a node and what is free in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaState {
    /// How strictly the kubelet aligns.
    pub policy: NumaPolicy,
    /// What it aligns.
    pub scope: NumaScope,
    /// The zones, by index.
    pub zones: Vec<Zone>,
}

/// One zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// What it has, sorted by word.
    pub total: Vec<(Word, i64)>,
    /// What is free now, in the places of `total`.
    pub idle: Vec<i64>,
    /// What will be free, in the places of `total`.
    pub future: Vec<i64>,
}

/// What a pod draws from one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneUse {
    /// The zone's index.
    pub zone: u32,
    /// How much of what.
    pub amounts: Vec<(Word, i64)>,
}

/// What a kubelet would align of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaNeed {
    /// The units, in words.
    pub units: Vec<Unit>,
}

/// What is placed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The whole pod, or a container.
    pub whole_pod: bool,
    /// An init container: it must fit alone.
    pub init: bool,
    /// How much of what.
    pub amounts: Vec<(Word, i64)>,
}

impl NumaNeed {
    /// The need in words.
    pub fn new(units: &[NumaUnit], words: &mut Words) -> Self {
        let unit = |unit: &NumaUnit, words: &mut Words| Unit {
            whole_pod: unit.whole_pod,
            init: unit.init,
            // In the order of names: words have none that means anything.
            amounts: in_words(&unit.amounts, words),
        };
        Self { units: units.iter().map(|each| unit(each, words)).collect() }
    }
}

impl NumaState {
    /// The zones as described, with nothing in use.
    pub fn new(numa: &Numa, words: &mut Words) -> Self {
        let zones = numa.zones.iter().map(|zone| {
            let mut total = in_words(&zone.allocatable, words);
            total.sort_unstable();
            let idle: Vec<i64> = total.iter().map(|(_, amount)| *amount).collect();
            Zone { total, future: idle.clone(), idle }
        });
        Self { policy: numa.policy, scope: numa.scope, zones: zones.collect() }
    }
}

/// What a pod draws, in words.
pub fn uses(shares: &[NumaShare], words: &mut Words) -> Vec<ZoneUse> {
    shares.iter().map(|share| ZoneUse { zone: share.zone, amounts: in_words(&share.amounts, words) }).collect()
}

/// Amounts in the order of their names, within what a machine can have.
fn in_words(amounts: &BTreeMap<String, i64>, words: &mut Words) -> Vec<(Word, i64)> {
    amounts.iter().map(|(name, amount)| (words.intern(name), (*amount).clamp(0, LARGEST))).collect()
}

impl NumaState {
    /// Enters (1) or removes (−1) what a pod draws from zones.
    pub fn charge(&mut self, uses: &[ZoneUse], status: Status, times: i64) {
        for used in uses {
            let Some(zone) = self.zones.get_mut(used.zone as usize) else { continue };
            for (word, amount) in &used.amounts {
                let Ok(place) = zone.total.binary_search_by_key(word, |(name, _)| *name) else { continue };
                // Wrapping: even nonsense is taken back exactly.
                let change = amount.wrapping_mul(times);
                if status.is_physical() {
                    zone.idle[place] = zone.idle[place].wrapping_sub(change);
                }
                if status.is_active() && status != Status::Releasing {
                    zone.future[place] = zone.future[place].wrapping_sub(change);
                }
            }
        }
    }
}

impl Cluster {
    /// What a pod would draw from the zones of a node and how far it would be spread; `None`: the node reports no
    /// zones.
    ///
    /// # Errors
    ///
    /// The kubelet would refuse the pod.
    pub fn check_numa(&self, pod: PodId, node: NodeId, now: bool) -> Result<Option<(Vec<ZoneUse>, u32)>, NodeRefusal> {
        let Some(numa) = &self.nodes[node.index()].numa else { return Ok(None) };
        numa.place(&self.class_of(pod).numa, now).map(Some).ok_or(NodeRefusal::Numa)
    }

    /// What will be free in each zone of a node once everything that leaves has left.
    #[must_use]
    pub fn numa_available(&self, node: NodeId) -> Vec<BTreeMap<String, i64>> {
        let zones = self.nodes[node.index()].numa.as_ref().map_or(&[][..], |numa| &numa.zones);
        let free = |zone: &Zone| {
            let amounts = zone.total.iter().zip(&zone.future);
            amounts.map(|((word, _), free)| (self.words.text(*word).to_owned(), *free)).collect()
        };
        zones.iter().map(free).collect()
    }
}
