//! What is measured. Names are KAI's; the registry adds the prefix `kai_`.

mod searches;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::atomic::AtomicU64,
    time::Duration,
};

use kai_convert::policy::action_name;
use kai_core::{
    amounts::share,
    cycle::{Searched, Step},
    ids::PodId,
    plan::{Decision, Plan, Stats},
    policy::Action,
};
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder},
    metrics::{MetricType, TypedMetric, counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};
use tokio::time::Instant;

use self::searches::Searches;
use crate::model::Model;

/// A gauge of numbers with decimals.
type Decimal = Gauge<f64, AtomicU64>;

/// Labels of numbers by action.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByAction {
    action: &'static str,
}

/// Labels of numbers by queue, as KAI has them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
#[expect(clippy::struct_field_names, reason = "they are the labels, as KAI calls them")]
pub(crate) struct ByQueue {
    queue_name: String,
    queue_metadata_name: String,
    queue_display_name: String,
}

/// Labels of evictions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByGroup {
    podgroup: String,
    namespace: String,
    uid: String,
    nodepool: String,
    action: &'static str,
}

/// A counter under exactly its name. The ordinary one is shown with `_total`, which KAI's dashboards do not know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Counter);

impl TypedMetric for Count {
    const TYPE: MetricType = MetricType::Unknown;
}

impl EncodeMetric for Count {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.encode_gauge(&self.0.get())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// What was seen of a cycle under way: how long each step took, and which action placed which pod.
#[derive(Debug)]
pub(crate) struct Watched {
    last: Instant,
    stats: Stats,
    decisions: usize,
    prepared: Duration,
    actions: BTreeMap<Action, Seen>,
    placed: BTreeMap<PodId, Action>,
    /// When the last step or search ended.
    searched: Instant,
    searches: Vec<(Searched, Duration)>,
}

/// What was seen of an action.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    took: Duration,
    tried: u64,
    simulated: u64,
    filtered: u64,
}

impl Watched {
    /// Begins now.
    pub(crate) fn new() -> Self {
        Self {
            last: Instant::now(),
            stats: Stats::default(),
            decisions: 0,
            prepared: Duration::ZERO,
            actions: BTreeMap::new(),
            placed: BTreeMap::new(),
            searched: Instant::now(),
            searches: Vec::new(),
        }
    }

    /// A step ended.
    pub(crate) fn see(&mut self, step: Step, plan: &Plan) {
        let now = Instant::now();
        let since = std::mem::replace(&mut self.searched, now);
        if let Step::Searched(searched) = step {
            self.searches.push((searched, now.duration_since(since)));
            return;
        }
        let took = now.duration_since(self.last);
        self.last = now;
        match step {
            Step::Searched(_) => {}
            Step::Prepared => self.prepared = took,
            Step::Done(action) => {
                let seen = self.actions.entry(action).or_default();
                let (new, old) = (&plan.stats, &self.stats);
                seen.took += took;
                // Allocate counts the groups it takes up, the others those for whom they look for victims.
                seen.tried += (new.groups_tried - old.groups_tried) + (new.searches - old.searches);
                seen.simulated += new.simulations - old.simulations;
                seen.filtered += new.searches_refused - old.searches_refused;
                for decision in plan.decisions.get(self.decisions..).unwrap_or_default() {
                    if let Decision::Bind(placed) | Decision::Pipeline(placed) = decision {
                        self.placed.insert(placed.pod, action);
                    }
                }
            }
        }
        self.stats = plan.stats;
        self.decisions = plan.decisions.len();
    }
}

/// The metrics of the scheduler. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    /// How long did the last cycle take, from the first change to the last decision handed out?
    pub(crate) cycle: Decimal,
    /// How long did preparing it take?
    open: Decimal,
    /// How long did it take to hand decisions and reasons out?
    pub(crate) close: Decimal,
    /// How long did each action take?
    actions: Family<ByAction, Decimal>,
    /// How long does deciding take?
    pub(crate) decide: Histogram,
    /// How long does it take until a decision is a BindRequest?
    pub(crate) bind: Histogram,
    /// How often was it tried to make room by evicting?
    searches: Count,
    /// Which action placed groups?
    scheduled: Family<ByAction, Count>,
    /// Which action took groups up?
    acted_on: Family<ByAction, Count>,
    /// Which action tried out how many virtual evictions and placements?
    simulated: Family<ByAction, Count>,
    /// Which action's searches were ended before they began, because nothing could come of them?
    filtered: Family<ByAction, Count>,
    /// What came of searches for victims?
    found: Searches,
    /// Whose pods were evicted, by which action?
    evicted: Family<ByGroup, Counter>,
    /// How often did deciding fail?
    pub(crate) panics: Counter,
    /// How many cycles were run?
    pub(crate) cycles: Counter,
    shares: [Family<ByQueue, Decimal>; 3],
    /// The part of the cluster that each queue used in the past, where that counts.
    uses: [Family<ByQueue, Decimal>; 3],
}

impl Metrics {
    /// Registers all.
    pub(crate) fn register(registry: &kai_kit::Metrics) -> Self {
        let buckets = || Histogram::new((0..10).map(|n| 5.0 * f64::from(1_u32 << n)));
        let metrics = Self {
            cycle: Decimal::default(),
            open: Decimal::default(),
            close: Decimal::default(),
            actions: Family::default(),
            decide: buckets(),
            bind: buckets(),
            searches: Count::default(),
            scheduled: Family::default(),
            acted_on: Family::default(),
            simulated: Family::default(),
            filtered: Family::default(),
            found: Searches::default(),
            evicted: Family::default(),
            panics: Counter::default(),
            cycles: Counter::default(),
            shares: Default::default(),
            uses: Default::default(),
        };
        registry.register(|registry| {
            let own = metrics.clone();
            registry.register("e2e_scheduling_latency_milliseconds", "How long the last cycle took", own.cycle);
            registry.register("open_session_latency_milliseconds", "How long preparing it took", own.open);
            registry.register("close_session_latency_milliseconds", "How long handing its outcome out took", own.close);
            registry.register("action_scheduling_latency_milliseconds", "How long each action took", own.actions);
            registry.register(
                "task_scheduling_latency_milliseconds",
                "How long deciding took in each cycle",
                own.decide,
            );
            registry.register("task_bind_latency_milliseconds", "From a decision to its BindRequest", own.bind);
            registry.register("total_preemption_attempts", "Searches for victims", own.searches);
            registry.register("podgroups_scheduled_by_action", "Groups that got a place", own.scheduled);
            registry.register("podgroups_acted_on_by_action", "Groups that were taken up", own.acted_on);
            registry.register("scenarios_simulation_by_action", "Scenarios that were tried out", own.simulated);
            registry.register("scenarios_filtered_by_action", "Searches that ended before they began", own.filtered);
            own.found.register(registry);
            registry.register("pod_group_evicted_pods", "Pods that were evicted", own.evicted);
            registry.register("scheduling_panics", "Times that deciding failed", own.panics);
            registry.register("scheduling_cycles", "Cycles", own.cycles);
            let names = [("cpu_cores", "cpu"), ("memory_gb", "memory"), ("gpu", "gpu")];
            for ((unit, short), (shares, uses)) in names.into_iter().zip(own.shares.into_iter().zip(own.uses)) {
                registry.register(format!("queue_fair_share_{unit}"), "Fair share of a queue", shares);
                registry.register(format!("queue_{short}_usage"), "Part of the cluster that a queue used", uses);
            }
        });
        metrics
    }

    /// Counts what was decided.
    pub(crate) fn count(&self, plan: &Plan, watched: &Watched, model: &Model, pool: &str) {
        let cluster = &model.cluster;
        self.cycles.inc();
        self.searches.0.inc_by(plan.stats.searches);
        self.open.set(milliseconds(watched.prepared));
        let mut groups: BTreeMap<Action, BTreeSet<_>> = BTreeMap::new();
        for decision in &plan.decisions {
            match decision {
                Decision::Bind(placed) => {
                    let action = watched.placed.get(&placed.pod).copied().unwrap_or(Action::Allocate);
                    let group = cluster.pods.get(placed.pod.index()).and_then(|pod| pod.group);
                    groups.entry(action).or_default().extend(group);
                }
                Decision::Evict(eviction) => {
                    let key = cluster.group_key(eviction.group);
                    let (namespace, podgroup) = key.split_once('/').unwrap_or_default();
                    let uid = model.notes.group_reference(key).and_then(|reference| reference.uid);
                    let labels = ByGroup {
                        podgroup: podgroup.to_owned(),
                        namespace: namespace.to_owned(),
                        uid: uid.unwrap_or_default(),
                        nodepool: pool.to_owned(),
                        action: action_name(eviction.action),
                    };
                    self.evicted.get_or_create(&labels).inc();
                }
                _ => {}
            }
        }
        for (searched, took) in &watched.searches {
            self.found.count(searched, *took);
        }
        for (action, seen) in &watched.actions {
            let labels = ByAction { action: action_name(*action) };
            self.actions.get_or_create(&labels).set(milliseconds(seen.took));
            self.acted_on.get_or_create(&labels).0.inc_by(seen.tried);
            self.simulated.get_or_create(&labels).0.inc_by(seen.simulated);
            self.filtered.get_or_create(&labels).0.inc_by(seen.filtered);
            let placed = groups.get(action).map_or(0, BTreeSet::len);
            self.scheduled.get_or_create(&labels).0.inc_by(placed as u64);
        }
        self.show_queues(model);
    }

    /// Shares and past usage of the queues there are now; those of queues that are gone go with them.
    fn show_queues(&self, model: &Model) {
        let cluster = &model.cluster;
        for place in [share::CPU, share::MEMORY, share::GPU] {
            let (Some(shares), Some(uses)) = (self.shares.get(place), self.uses.get(place)) else { continue };
            shares.clear();
            uses.clear();
            let scale = [1e3, 1e9, 1e6].get(place).copied().unwrap_or(1.0);
            for (slot, queue) in cluster.queues.iter().enumerate().filter(|(_, queue)| queue.exists) {
                let labels = ByQueue {
                    queue_name: queue.name.to_string(),
                    queue_metadata_name: queue.name.to_string(),
                    queue_display_name: model.notes.display_names.get(&*queue.name).cloned().unwrap_or_default(),
                };
                let fair = queue.fair_share.0.get(place).map_or(0.0, |amount| number(*amount) / scale);
                let used = cluster.usage.as_ref().map_or(0, |usage| usage.share(slot, place));
                shares.get_or_create(&labels).set(fair);
                uses.get_or_create(&labels).set(number(i128::from(used)) / 1e9);
            }
        }
    }
}

/// A time as KAI shows it.
pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "a metric is read by people, to a few digits")]
fn number(amount: i128) -> f64 {
    amount as f64
}
