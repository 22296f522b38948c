//! Numbers of the binder: how many pods it bound, how long that took, and how often it failed.

use jiff::Timestamp;
use kai_api::BindRequest;
use kai_kit::Process;
use kube::ResourceExt;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ClassLabel {
    class: &'static str,
}

/// The metrics of the binder. Clones share them.
#[derive(Clone)]
pub(crate) struct Metrics {
    bound: Counter,
    failed: Family<ClassLabel, Counter>,
    latency: Histogram,
}

impl Metrics {
    /// Registers them.
    pub(crate) fn new(process: &Process) -> Self {
        let buckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
        let metrics = Self { bound: Counter::default(), failed: Family::default(), latency: Histogram::new(buckets) };
        process.metrics.register(|registry| {
            registry.register("binder_pods_bound", "Pods that were bound", metrics.bound.clone());
            registry.register("binder_attempts_failed", "Attempts that failed, by class", metrics.failed.clone());
            let help = "Seconds from a BindRequest to the bound pod";
            registry.register("binder_bind_latency_seconds", help, metrics.latency.clone());
        });
        metrics
    }

    /// A pod was bound.
    pub(crate) fn bound(&self, request: &BindRequest, now: Timestamp) {
        self.bound.inc();
        if let Some(created) = request.creation_timestamp() {
            self.latency.observe(now.duration_since(created.0).as_secs_f64().max(0.0));
        }
    }

    /// An attempt failed.
    pub(crate) fn failed(&self, class: &'static str) {
        self.failed.get_or_create(&ClassLabel { class }).inc();
    }
}
