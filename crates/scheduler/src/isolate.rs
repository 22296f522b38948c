//! Deciding without dying: a panic while one group is looked at costs that group its turn, not the others theirs.
//!
//! After a panic nothing of the model is trusted. It is listed anew from the API, and the deltas of that are kept; from them a fresh
//! cluster is made for every attempt. With ever fewer groups left in, the one that makes deciding fail is found by halving.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use kai_core::{Cluster, cycle::Watch, delta::Delta, plan::Plan, policy::Policy, time::Time};
use kai_kit::work::panic_text;

use crate::{Planner, fingerprint, model::Quarantine};

/// How many groups may be at fault before nobody is blamed any more.
const MOST_CULPRITS: usize = 16;

/// Decides; an error is what a panic said. The cluster must not be used after an error.
pub(crate) fn plan(
    planner: Planner,
    cluster: &mut Cluster,
    now: Time,
    policy: &Policy,
    watch: Watch<'_>,
) -> Result<Plan, String> {
    // Whoever sees the error throws the cluster away: no broken state is looked at.
    catch_unwind(AssertUnwindSafe(|| planner(cluster, now, policy, watch))).map_err(|panic| panic_text(panic.as_ref()))
}

/// A cluster made of deltas with which deciding works, and the groups that had to be left out for that.
pub(crate) struct Isolated {
    /// The cluster.
    pub(crate) cluster: Cluster,
    /// The groups.
    pub(crate) culprits: BTreeMap<String, Quarantine>,
}

/// Finds the groups that make deciding fail; an error if it fails without any group too.
pub(crate) fn isolate(planner: Planner, deltas: &[Delta], now: Time, policy: &Policy) -> Result<Isolated, String> {
    let mut search = Search { planner, deltas, now, policy, culprits: BTreeMap::new() };
    loop {
        let failure = match search.attempt(&|_| true) {
            Ok(cluster) => return Ok(Isolated { cluster, culprits: search.culprits }),
            Err(failure) => failure,
        };
        if search.culprits.len() >= MOST_CULPRITS {
            return Err(failure);
        }
        let (group, print) = search.culprit(&failure)?;
        let what = format!("internal error: {failure}; the group is left out until it is changed");
        search.culprits.insert(group, Quarantine { what, print });
    }
}

struct Search<'a> {
    planner: Planner,
    deltas: &'a [Delta],
    now: Time,
    policy: &'a Policy,
    culprits: BTreeMap<String, Quarantine>,
}

impl Search<'_> {
    /// Decides with the culprits and all groups that are not `within` left out.
    fn attempt(&self, within: &dyn Fn(&str) -> bool) -> Result<Cluster, String> {
        let mut cluster = Cluster::new();
        for delta in self.deltas {
            let mut delta = delta.clone();
            if let Delta::PodGroup(group) = &mut delta {
                let culprit = self.culprits.get(&group.key);
                if let Some(culprit) = culprit {
                    group.invalid = Some(culprit.what.clone());
                } else if !within(&group.key) {
                    group.invalid = Some("left out".to_owned());
                }
            }
            cluster.apply(delta);
        }
        plan(self.planner, &mut cluster, self.now, self.policy, &mut |_, _| ()).map(|_| ())?;
        cluster.settle();
        Ok(cluster)
    }

    /// The first group, by name, with which deciding fails if those before it are in too.
    fn culprit(&self, failure: &str) -> Result<(String, u64), String> {
        let mut groups: BTreeMap<&str, u64> = BTreeMap::new();
        for delta in self.deltas {
            match delta {
                Delta::PodGroup(group) if !self.culprits.contains_key(&group.key) => {
                    groups.insert(&group.key, fingerprint::of(group));
                }
                Delta::PodGroupGone(key) => drop(groups.remove(key.as_str())),
                _ => {}
            }
        }
        let names: Vec<&str> = groups.keys().copied().collect();
        // It works without any, or no group is to blame.
        self.attempt(&|_| false).map_err(|_| failure.to_owned())?;
        // It works with the first `good`, it fails with the first `bad`.
        let (mut good, mut bad) = (0, names.len());
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            let end = names.get(middle).copied().unwrap_or_default();
            if self.attempt(&|group| group < end).is_ok() {
                good = middle;
            } else {
                bad = middle;
            }
        }
        let found = names.get(good).copied().ok_or_else(|| failure.to_owned())?;
        Ok((found.to_owned(), groups.get(found).copied().unwrap_or(0)))
    }
}
