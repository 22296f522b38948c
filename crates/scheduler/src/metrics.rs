//! What is measured. Names are KAI's; the registry adds the prefix `kai_`.

use std::sync::atomic::AtomicU64;

use kai_core::{
    Cluster,
    amounts::share,
    plan::{Decision, Plan},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

/// A gauge of numbers with decimals.
type Decimal = Gauge<f64, AtomicU64>;

/// Labels of numbers by action.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByAction {
    action: &'static str,
}

/// Labels of numbers by queue, as KAI has them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByQueue {
    queue_name: String,
    queue_metadata_name: String,
}

/// Labels of evictions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByGroup {
    podgroup: String,
    namespace: String,
    nodepool: String,
    action: &'static str,
}

/// The metrics of the scheduler.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// How long did the last cycle take, from the first change to the last decision handed out?
    pub(crate) cycle: Decimal,
    /// How long does deciding take?
    pub(crate) decide: Histogram,
    /// How often was it tried to make room by evicting?
    searches: Counter,
    /// Which action placed groups?
    scheduled: Family<ByAction, Counter>,
    /// Whose pods were evicted, by which action?
    evicted: Family<ByGroup, Counter>,
    /// How often did deciding fail?
    pub(crate) panics: Counter,
    /// How many cycles were run?
    pub(crate) cycles: Counter,
    shares: [Family<ByQueue, Decimal>; 3],
    uses: [Family<ByQueue, Decimal>; 3],
}

impl Metrics {
    /// Registers all.
    pub(crate) fn register(registry: &kai_kit::Metrics) -> Self {
        let buckets = || Histogram::new((0..10).map(|n| 5.0 * f64::from(1_u32 << n)));
        let metrics = Self {
            cycle: Decimal::default(),
            decide: buckets(),
            searches: Counter::default(),
            scheduled: Family::default(),
            evicted: Family::default(),
            panics: Counter::default(),
            cycles: Counter::default(),
            shares: Default::default(),
            uses: Default::default(),
        };
        registry.register(|registry| {
            let mut gauge = |name: &str, help: &str, gauge: Decimal| registry.register(name, help, gauge);
            gauge("e2e_scheduling_latency_milliseconds", "How long the last cycle took", metrics.cycle.clone());
            registry.register(
                "task_scheduling_latency_milliseconds",
                "How long deciding took in each cycle",
                metrics.decide.clone(),
            );
            registry.register("preemption_attempts", "Searches for victims", metrics.searches.clone());
            registry.register("podgroups_scheduled_by_action", "Groups that got a place", metrics.scheduled.clone());
            registry.register("pod_group_evicted_pods", "Pods that were evicted", metrics.evicted.clone());
            registry.register("scheduling_panics", "Times that deciding failed", metrics.panics.clone());
            registry.register("scheduling_cycles", "Cycles", metrics.cycles.clone());
            let names = [("cpu_cores", "cpu"), ("memory_gb", "memory"), ("gpu", "gpu")];
            for (place, (unit, short)) in names.into_iter().enumerate() {
                if let (Some(shares), Some(uses)) = (metrics.shares.get(place), metrics.uses.get(place)) {
                    registry.register(format!("queue_fair_share_{unit}"), "Fair share of a queue", shares.clone());
                    registry.register(format!("queue_{short}_usage"), "What a queue holds", uses.clone());
                }
            }
        });
        metrics
    }

    /// Counts what was decided.
    pub(crate) fn count(&self, plan: &Plan, cluster: &Cluster, pool: &str) {
        self.cycles.inc();
        self.searches.inc_by(plan.stats.searches);
        let mut groups = std::collections::BTreeSet::new();
        for decision in &plan.decisions {
            match decision {
                Decision::Bind(placed) => {
                    groups.extend(cluster.pods.get(placed.pod.index()).and_then(|pod| pod.group));
                }
                Decision::Evict(eviction) => {
                    let (namespace, podgroup) = cluster.group_key(eviction.group).split_once('/').unwrap_or_default();
                    let labels = ByGroup {
                        podgroup: podgroup.to_owned(),
                        namespace: namespace.to_owned(),
                        nodepool: pool.to_owned(),
                        action: kai_convert::policy::action_name(eviction.action),
                    };
                    self.evicted.get_or_create(&labels).inc();
                }
                _ => {}
            }
        }
        self.scheduled.get_or_create(&ByAction { action: "allocate" }).inc_by(groups.len() as u64);
        for queue in cluster.queues.iter().filter(|queue| queue.exists) {
            let labels = ByQueue { queue_name: queue.name.to_string(), queue_metadata_name: queue.name.to_string() };
            for place in [share::CPU, share::MEMORY, share::GPU] {
                let scale = [1e3, 1e9, 1e6].get(place).copied().unwrap_or(1.0);
                let read = |shares: &kai_core::amounts::Shares| {
                    shares.0.get(place).map_or(0.0, |amount| number(*amount) / scale)
                };
                if let (Some(shares), Some(uses)) = (self.shares.get(place), self.uses.get(place)) {
                    shares.get_or_create(&labels).set(read(&queue.fair_share));
                    uses.get_or_create(&labels).set(read(&queue.sum.allocated));
                }
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a metric is read by people, to a few digits")]
fn number(amount: i128) -> f64 {
    amount as f64
}
