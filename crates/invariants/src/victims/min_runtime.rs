//! A group is not broken up before it has run for its minimum time; what it has beyond its minimum may be taken.
//!
//! Source: kai-core.md §4.6; it does not protect from consolidation and from the end of stale gangs.

use kai_core::{
    policy::{Action, MinRuntimeRule},
    time::Span,
};

use crate::{Cycle, Violation, cycle::Evicting, records::in_use, victims::each};

/// Victims that had not run long enough.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    if !cycle.policy.plugins.min_runtime {
        return Vec::new();
    }
    each(cycle, "a group runs for its minimum time", |evicting| {
        let minimum = minimum(cycle, evicting)?;
        let until = evicting.group.last_start?.after(minimum);
        if cycle.now >= until {
            return None;
        }
        let gang = cycle.gang_of(evicting.pod)?;
        let used = in_use(cycle, gang);
        let elastic = gang.podsets.iter().zip(&used).any(|(podset, used)| *used > podset.min);
        let lost = gang.count(|pod| {
            let eviction = cycle.evictions.get(pod.uid.as_str()).map(|evicting| evicting.eviction);
            // What is moved counts as lost only where not even surplus may be touched.
            eviction.is_some_and(|eviction| {
                matches!(eviction.action, Action::Reclaim | Action::Preempt) && !(elastic && eviction.moved)
            })
        });
        let broken = |place: usize| lost[place] > 0 && used[place] - lost[place] < gang.podsets[place].min;
        let key = &evicting.group.key;
        (0..used.len()).any(broken).then(|| format!("group `{key}` is protected until {} and loses its core", until.0))
    })
}

/// The minimum runtime that counts for an eviction.
fn minimum(cycle: &Cycle<'_>, evicting: &Evicting<'_>) -> Option<Span> {
    let queues = cycle.facts.chain(&evicting.group.queue);
    let described = |name: &&str| cycle.facts.queues.get(*name);
    let minimum = match evicting.eviction.action {
        Action::Preempt => {
            let set = queues.iter().filter_map(described).find_map(|queue| queue.preempt_min_runtime);
            set.unwrap_or(cycle.policy.preempt_min_runtime)
        }
        Action::Reclaim => {
            let from = match cycle.policy.reclaim_min_runtime_rule {
                MinRuntimeRule::Queue => evicting.group.queue.as_str(),
                MinRuntimeRule::LowestCommonAncestor => {
                    cycle.facts.leveled(&evicting.beneficiary?.queue, &evicting.group.queue)?.1
                }
            };
            let above = queues.iter().skip_while(|name| **name != from);
            let set = above.filter_map(described).find_map(|queue| queue.reclaim_min_runtime);
            set.unwrap_or(cycle.policy.reclaim_min_runtime)
        }
        Action::Allocate | Action::Consolidation | Action::StaleGangEviction => return None,
    };
    (minimum > Span::ZERO).then_some(minimum)
}
