//! The registry that components put their metrics into. All names begin with `kai_` unless said otherwise.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::{encoding::text::encode, registry::Registry};

/// A shared registry.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::with_prefix("kai")
    }
}

impl Metrics {
    /// A registry whose names begin with this.
    #[must_use]
    pub fn with_prefix(prefix: &str) -> Self {
        Self { registry: Arc::new(Mutex::new(Registry::with_prefix(prefix))) }
    }

    /// Registers metrics. Counters get `_total` and units get their name appended by the encoding.
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.lock());
    }

    /// Everything in the text format of `OpenMetrics`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry.lock());
        text
    }
}
