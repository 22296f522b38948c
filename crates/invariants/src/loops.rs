//! A cluster that nobody changes from outside comes to rest: no two groups evict each other for ever.
//!
//! Source: issue, "two cycles never evict and re-place the same pair of groups forever"; kai-core.md §10.4 (e).

use kai_core::{Cluster, policy::Policy, time::Time};

use crate::{
    Cycle, Facts, Planner, Violation,
    echo::{World, echo},
};

/// So many cycles are driven before the cluster counts as restless even if no state came back.
const MOST_CYCLES: usize = 40;

/// Whether the cluster does not come to rest: a state comes back, or none does for long.
#[must_use]
pub fn check(facts: &Facts, policy: &Policy, now: Time, planner: Planner<'_>) -> Vec<Violation> {
    let mut facts = facts.clone();
    let mut cluster = Cluster::new();
    facts.deltas().into_iter().for_each(|delta| cluster.apply(delta));
    let mut seen: Vec<(Facts, Vec<String>)> = Vec::new();
    for _ in 0..MOST_CYCLES {
        let plan = planner(&mut cluster, now, policy);
        let (cycle, _) = Cycle::new(&facts, &cluster, &plan, policy, now);
        let evicted = cycle.evictions.values().map(|evicting| {
            let beneficiary = evicting.beneficiary.map_or("nobody", |group| group.key.as_str());
            format!("{:?} evicts {} for {beneficiary}", evicting.eviction.action, evicting.pod.uid)
        });
        let evicted = evicted.collect();
        let deltas = echo(&cycle, World::Instant);
        seen.push((facts.clone(), evicted));
        for delta in deltas {
            facts.apply(&delta);
            cluster.apply(delta);
        }
        let known: Vec<usize> = (0..seen.len()).filter(|place| seen[*place].0 == facts).collect();
        match known.as_slice() {
            // It rests: the state is the one before.
            [.., last] if last + 1 == seen.len() && seen[*last].1.is_empty() => return Vec::new(),
            // Promises are no part of the facts, so a state may come twice with another outcome; not again and again.
            [first, _, _, ..] => return vec![complaint("comes back to a state it had", &seen[*first..])],
            _ => {}
        }
    }
    vec![complaint("does not come to rest", &seen[MOST_CYCLES - 6..])]
}

fn complaint(what: &str, rounds: &[(Facts, Vec<String>)]) -> Violation {
    let evictions: Vec<String> = rounds.iter().map(|(_, evicted)| format!("{evicted:?}")).collect();
    Violation {
        invariant: "a cluster that nobody changes comes to rest",
        object: "cluster".to_owned(),
        what: format!("{what}: {}", evictions.join(" then ")),
    }
}
