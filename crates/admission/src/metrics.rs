//! What the admission server counts.

use kai_kit::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};

/// How a review ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ending {
    path: &'static str,
    verdict: &'static str,
}

/// How many reviews were answered, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reviews(Family<Ending, Counter>);

impl Reviews {
    /// `kai_admission_reviews_total`.
    pub(crate) fn register(&self, metrics: &Metrics) {
        let help = "Reviews answered, by path and verdict: allowed, changed, refused, unreadable or defect";
        metrics.register(|registry| registry.register("admission_reviews", help, self.0.clone()));
    }

    pub(crate) fn count(&self, path: &'static str, verdict: &'static str) {
        self.0.get_or_create(&Ending { path, verdict }).inc();
    }
}
