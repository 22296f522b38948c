//! What a running component is given by whoever starts it.

use std::time::Duration;

use jiff::Timestamp;
use kai_clock::Clock;
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::{events::Recorder, health::Health, metrics::Metrics, shared::SharedWatches};

/// The surroundings of one component. Cheap to clone.
#[derive(Clone)]
pub struct Process {
    /// The way to the API server. It never retries by itself.
    pub client: Client,
    /// The time.
    pub clock: Clock,
    /// Cancelled when the component must end.
    pub cancel: CancellationToken,
    /// What is ready.
    pub health: Health,
    /// What is counted.
    pub metrics: Metrics,
    /// Events to be written.
    pub events: Recorder,
    /// Watches that it shares with other components of the same process.
    pub shared: Option<SharedWatches>,
    /// The component's name, as events, leases and field managers show it.
    pub component: &'static str,
    /// The namespace of the components and their leases.
    pub namespace: String,
    /// Who this replica is, for leases.
    pub identity: String,
}

impl Process {
    /// A process with its own health and metrics. Its events are written in the background until `cancel`.
    pub fn new(
        component: &'static str,
        client: Client,
        clock: Clock,
        cancel: CancellationToken,
        namespace: impl Into<String>,
        identity: impl Into<String>,
    ) -> Self {
        Self {
            events: Recorder::start(client.clone(), clock, component, cancel.clone()),
            health: Health::default(),
            metrics: Metrics::default(),
            shared: None,
            namespace: namespace.into(),
            identity: identity.into(),
            client,
            clock,
            cancel,
            component,
        }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Waits, but no longer than until the end of the process. Whether it may go on.
    pub async fn sleep(&self, pause: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => false,
            () = tokio::time::sleep(pause) => true,
        }
    }
}
