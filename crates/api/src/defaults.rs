//! What holds when an object says nothing, in one place. Readers of optional fields take their value from here.

use crate::Duration;

/// Queue quantity that means unlimited.
pub const UNLIMITED: f64 = -1.0;

/// Bytes in the megabyte of a queue's memory.
pub const QUEUE_MEMORY_UNIT: i64 = 1_000_000;

/// Priority of a queue.
pub const QUEUE_PRIORITY: i64 = 100;

/// Priority of a workload whose class is unknown, in a cluster without a default class.
pub const POD_GROUP_PRIORITY: i32 = 50;

/// Lowest priority that makes a workload non-preemptible unless it says otherwise.
pub const NON_PREEMPTIBLE_PRIORITY: i32 = 100;

/// Gang size of a group.
pub const MIN_MEMBER: i32 = 1;

/// Whether waiting pods get an unschedulable condition.
pub const MARK_UNSCHEDULABLE: bool = true;

/// Scheduling cycles before a group is given up; -1 is never.
pub const SCHEDULING_BACKOFF: i32 = -1;

/// How long a group with too few pods is left alone.
pub const STALENESS_GRACE_PERIOD: Duration = Duration::from_seconds(60);

/// How long after its deletion a running pod still counts as about to leave.
pub const STUCK_IN_RELEASING_THRESHOLD: Duration = Duration::from_seconds(120);

/// Shortest running time before preemption, and before reclaim.
pub const MIN_RUNTIME: Duration = Duration::from_seconds(0);

/// The priority classes of a new installation, with their values.
pub const PRIORITY_CLASSES: [(&str, i32); 4] = {
    use crate::names::objects;
    [
        (objects::PRIORITY_TRAIN, 50),
        (objects::PRIORITY_BUILD_PREEMPTIBLE, 75),
        (objects::PRIORITY_BUILD, 100),
        (objects::PRIORITY_INFERENCE, 125),
    ]
};

/// A shard's settings.
pub mod shard {
    use crate::Duration;

    /// Fills one node before the next.
    pub const BINPACK: &str = "binpack";

    /// Fills nodes evenly.
    pub const SPREAD: &str = "spread";

    /// Placement strategy, for GPU and for CPU workloads.
    pub const PLACEMENT_STRATEGY: &str = BINPACK;

    /// How strongly past usage counts.
    pub const K_VALUE: f64 = 1.0;

    /// Part of the memory limit that the heap may use.
    pub const GO_MEM_LIMIT_RATIO: f64 = 0.9;

    /// Time from the end of a cycle to the next.
    pub const SCHEDULE_PERIOD: Duration = Duration::from_seconds(1);

    /// Workloads that consolidation moves at most.
    pub const MAX_CONSOLIDATION_PREEMPTEES: usize = 16;

    /// Plugins and their priorities, highest first. `numa` and `reflectjoborder` exist but are off.
    /// With the GPU strategy `binpack`, `gpuspread` is off; with `spread`, `gpupack` and `gpusharingorder` are.
    pub const PLUGINS: [(&str, i64); 22] = [
        ("predicates", 1900),
        ("proportion", 1800),
        ("priority", 1700),
        ("nodeavailability", 1600),
        ("resourcetype", 1500),
        ("podaffinity", 1400),
        ("elastic", 1300),
        ("kubeflow", 1200),
        ("ray", 1100),
        ("subgrouporder", 1000),
        ("taskorder", 900),
        ("nominatednode", 800),
        ("dynamicresources", 700),
        ("minruntime", 600),
        ("topology", 500),
        ("snapshot", 400),
        ("sg-nodelocalgreedy", 360),
        ("sg-multinodegang", 350),
        ("gpupack", 300),
        ("gpuspread", 300),
        ("nodeplacement", 200),
        ("gpusharingorder", 100),
    ];

    /// Actions and their priorities, highest first. `consolidation` is off when either strategy is `spread`.
    pub const ACTIONS: [(&str, i64); 5] =
        [("allocate", 500), ("consolidation", 400), ("reclaim", 300), ("preempt", 200), ("stalegangeviction", 100)];

    /// Key of a search budget that holds for all names not listed.
    pub const BUDGET_FOR_THE_REST: &str = "default";

    /// Actions that a search budget may name.
    pub const BUDGETED_ACTIONS: [&str; 4] = [BUDGET_FOR_THE_REST, "reclaim", "preempt", "consolidation"];

    /// Longest search of an action.
    pub const MAX_ACTION_SEARCH: Duration = Duration::from_seconds(5 * 60);

    /// Longest search for a workload.
    pub const MAX_JOB_SEARCH: Duration = Duration::from_seconds(4 * 60);

    /// Search time that every workload gets.
    pub const MIN_JOB_SEARCH: Duration = Duration::from_seconds(0);

    /// Longest search by generator.
    pub const MAX_GENERATOR_SEARCH: [(&str, Duration); 3] = [
        (BUDGET_FOR_THE_REST, Duration::from_seconds(2 * 60)),
        ("NodeLocalGreedy", Duration::from_seconds(30)),
        ("MultiNodeGang", Duration::from_seconds(2 * 60)),
    ];
}

/// The usage database.
pub mod usage {
    use crate::Duration;

    /// How far back usage counts, one week.
    pub const WINDOW: Duration = Duration::from_seconds(7 * 24 * 60 * 60);

    /// How the window moves.
    pub const WINDOW_TYPE: &str = "sliding";

    /// Time between questions.
    pub const FETCH_INTERVAL: Duration = Duration::from_seconds(60);

    /// Age at which answers no longer count.
    pub const STALENESS_PERIOD: Duration = Duration::from_seconds(5 * 60);

    /// How long an answer is waited for.
    pub const WAIT_TIMEOUT: Duration = Duration::from_seconds(60);
}

/// The configuration of an installation.
pub mod config {
    use crate::Duration;

    /// Replicas of a component.
    pub const REPLICAS: i32 = 1;

    /// When images are pulled.
    pub const IMAGE_PULL_POLICY: &str = "IfNotPresent";

    /// Requests per second of a component's client.
    pub const CLIENT_QPS: i64 = 20;

    /// Requests at once of a component's client.
    pub const CLIENT_BURST: i64 = 100;

    /// Pods of a component that may be down at once.
    pub const MAX_UNAVAILABLE: i32 = 1;

    /// User of all containers.
    pub const RUN_AS_USER: i64 = 10_000;

    /// Prefix of metrics.
    pub const METRICS_NAMESPACE: &str = "kai";

    /// Port of webhook services.
    pub const WEBHOOK_PORT: i64 = 443;

    /// Port of webhook containers.
    pub const WEBHOOK_TARGET_PORT: i64 = 9443;

    /// Port of health checks.
    pub const PROBE_PORT: i64 = 8081;

    /// Port of metrics.
    pub const METRICS_PORT: i64 = 8080;

    /// How long a reservation pod's GPU is waited for.
    pub const RESERVATION_TIMEOUT: Duration = Duration::from_seconds(40);

    /// How long volumes and resource claims are waited for.
    pub const BIND_TIMEOUT: Duration = Duration::from_seconds(120);

    /// Pods and requests that the binder works on at once.
    pub const BINDER_CONCURRENCY: i64 = 10;

    /// Plugins of the binder and their priorities, highest first.
    pub const BINDER_PLUGINS: [(&str, i64); 4] =
        [("volumebinding", 300), ("dynamicresources", 200), ("gpusharing", 100), ("hamicore", 50)];

    /// Vertical autoscaling mode.
    pub const VPA_UPDATE_MODE: crate::config::UpdateMode = crate::config::UpdateMode::InPlaceOrRecreate;

    /// CPU and memory of a component: requests, then limits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Resources {
        /// Requested CPU.
        pub cpu_request: &'static str,
        /// Requested memory.
        pub memory_request: &'static str,
        /// CPU limit.
        pub cpu_limit: &'static str,
        /// Memory limit.
        pub memory_limit: &'static str,
    }

    /// Any component without an entry of its own.
    pub const RESOURCES: Resources =
        Resources { cpu_request: "50m", memory_request: "256Mi", cpu_limit: "100m", memory_limit: "512Mi" };

    /// The binder.
    pub const BINDER_RESOURCES: Resources =
        Resources { cpu_request: "50m", memory_request: "200Mi", cpu_limit: "100m", memory_limit: "200Mi" };

    /// A scheduler.
    pub const SCHEDULER_RESOURCES: Resources =
        Resources { cpu_request: "250m", memory_request: "512Mi", cpu_limit: "700m", memory_limit: "512Mi" };

    /// Time between looks of the NUMA exporter at the kubelet.
    pub const NUMA_POLL_INTERVAL: Duration = Duration::from_seconds(1);

    /// Time between checks of what the NUMA exporter wrote.
    pub const NUMA_RESYNC_INTERVAL: Duration = Duration::from_seconds(60);

    /// Name of the Prometheus.
    pub const PROMETHEUS_NAME: &str = "prometheus";

    /// How long it keeps samples.
    pub const PROMETHEUS_RETENTION: &str = "2w";

    /// Time between its samples.
    pub const PROMETHEUS_SAMPLE_INTERVAL: &str = "1m";

    /// Storage class of its volume.
    pub const PROMETHEUS_STORAGE_CLASS: &str = "standard";

    /// Time between scrapes.
    pub const SCRAPE_INTERVAL: &str = "30s";

    /// How long a scrape may take.
    pub const SCRAPE_TIMEOUT: &str = "10s";

    /// Seconds between probes of a Prometheus that is there already, seconds that one may take, and tries.
    pub const PROMETHEUS_PROBE: (i64, i64, i64) = (30, 10, 5);
}
