//! Numbers about the work done.

use kai_kit::Metrics;
use prometheus_client::metrics::counter::Counter;

/// Counters. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    pub pods_tied: Counter,
    pub groups_created: Counter,
    pub groups_patched: Counter,
    pub owner_reads: Counter,
    pub troubles: Counter,
}

impl Numbers {
    /// Counters that can be asked for.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let numbers = Self::default();
        let rows = [
            ("podgrouper_pods_tied", "Pods that were told their group", &numbers.pods_tied),
            ("podgrouper_groups_created", "Groups that were written for the first time", &numbers.groups_created),
            (
                "podgrouper_groups_patched",
                "Changes of groups after changes of their workloads",
                &numbers.groups_patched,
            ),
            ("podgrouper_owner_reads", "Owners that had to be asked for", &numbers.owner_reads),
            ("podgrouper_troubles", "Attempts after which a pod still had no group", &numbers.troubles),
        ];
        metrics.register(|registry| {
            for (name, help, counter) in rows {
                registry.register(name, help, counter.clone());
            }
        });
        numbers
    }
}
