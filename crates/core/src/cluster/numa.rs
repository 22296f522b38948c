//! NUMA zones of a node, in words.

use crate::{
    cluster::words::Words,
    delta::{Numa, NumaPolicy, NumaScope, NumaShare, NumaUnit},
    ids::Word,
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
            amounts: unit.amounts.iter().map(|(name, amount)| (words.intern(name), *amount)).collect(),
        };
        Self { units: units.iter().map(|each| unit(each, words)).collect() }
    }
}

impl NumaState {
    /// The zones as described, with nothing in use.
    pub fn new(numa: &Numa, words: &mut Words) -> Self {
        let zones = numa.zones.iter().map(|zone| {
            let mut total: Vec<(Word, i64)> =
                zone.allocatable.iter().map(|(name, amount)| (words.intern(name), *amount)).collect();
            total.sort_unstable();
            let idle: Vec<i64> = total.iter().map(|(_, amount)| *amount).collect();
            Zone { total, future: idle.clone(), idle }
        });
        Self { policy: numa.policy, scope: numa.scope, zones: zones.collect() }
    }
}

/// What a pod draws, in words.
pub fn uses(shares: &[NumaShare], words: &mut Words) -> Vec<ZoneUse> {
    let amounts = |share: &NumaShare, words: &mut Words| {
        share.amounts.iter().map(|(name, amount)| (words.intern(name), *amount)).collect()
    };
    shares.iter().map(|share| ZoneUse { zone: share.zone, amounts: amounts(share, words) }).collect()
}

impl NumaState {
    /// Enters (1) or removes (−1) what a pod draws from zones.
    pub fn charge(&mut self, uses: &[ZoneUse], status: crate::cluster::status::Status, times: i64) {
        use crate::cluster::status::Status;
        for used in uses {
            let Some(zone) = self.zones.get_mut(used.zone as usize) else { continue };
            for (word, amount) in &used.amounts {
                let Some(place) = zone.total.iter().position(|(name, _)| name == word) else { continue };
                if status.is_physical() {
                    zone.idle[place] -= amount * times;
                }
                if status.is_active() && status != Status::Releasing {
                    zone.future[place] -= amount * times;
                }
            }
        }
    }
}
