//! Only gangs that have been below their minimum for their grace period are ended as stale.
//!
//! Source: kai-core.md §4.8; §9.1: a gang that runs as many subgroups as it needs is not stale.

use kai_core::{policy::Action, time::Span};

use crate::{
    Cycle, Violation,
    facts::standing::Standing,
    records::{in_use, is_below},
    victims::each,
};

/// Victims that were not stale, or not for long enough.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    each(cycle, "only stale gangs are ended as stale", |evicting| {
        if evicting.eviction.action != Action::StaleGangEviction {
            return None;
        }
        let (group, gang) = (evicting.group, cycle.gang_of(evicting.pod)?);
        let succeeded = gang.count(|pod| cycle.standing(pod) == Standing::Succeeded);
        if succeeded.iter().any(|count| *count > 0) {
            return Some(format!("a pod of `{}` succeeded: it is finishing", group.key));
        }
        if !is_below(gang, &in_use(cycle, gang)) {
            return Some(format!("`{}` is whole", group.key));
        }
        let grace = group.staleness_grace.unwrap_or(cycle.policy.staleness_grace);
        let stale_for = group.stale_since.map_or(Span::ZERO, |since| cycle.now.since(since));
        let over = grace >= Span::ZERO && stale_for >= grace;
        (!over).then(|| format!("`{}` is stale for {} ms, its grace is {}", group.key, stale_for.0, grace.0))
    })
}
