//! Whether a process is alive and ready, and its metrics, over HTTP.
//!
//! `/healthz`: the process answers. `/readyz`: every named condition holds; the body says which do not and why. `/metrics`: numbers.

use std::{collections::BTreeMap, fmt::Write as _, net::SocketAddr, sync::Arc};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// The conditions of a process by name.
#[derive(Clone, Debug, Default)]
pub struct Health {
    conditions: Arc<Mutex<BTreeMap<String, Condition>>>,
}

#[derive(Clone, Debug)]
enum Condition {
    /// It holds or does not, for this reason.
    Is(Result<(), String>),
    /// It is what a condition of somebody else is.
    As(Health, String),
}

impl Condition {
    fn state(&self) -> Result<(), String> {
        match self {
            Self::Is(state) => state.clone(),
            Self::As(other, condition) => {
                let known = other.conditions.lock().get(condition).cloned();
                known.map_or_else(|| Err("not begun yet".to_owned()), |known| known.state())
            }
        }
    }
}

impl Health {
    /// A condition does not hold, for this reason. A condition must be named before it can be missed.
    pub fn not_ready(&self, condition: &str, reason: impl Into<String>) {
        self.conditions.lock().insert(condition.to_owned(), Condition::Is(Err(reason.into())));
    }

    /// A condition holds.
    pub fn ready(&self, condition: &str) {
        let mut conditions = self.conditions.lock();
        // Watches say it with every event.
        if !matches!(conditions.get(condition), Some(Condition::Is(Ok(())))) {
            conditions.insert(condition.to_owned(), Condition::Is(Ok(())));
        }
    }

    /// From now on a condition is what one of another process is, which must not follow this one.
    pub fn follow(&self, condition: &str, other: &Self, its_condition: &str) {
        let followed = Condition::As(other.clone(), its_condition.to_owned());
        self.conditions.lock().insert(condition.to_owned(), followed);
    }

    /// The conditions that do not hold, with their reasons.
    #[must_use]
    pub fn unmet(&self) -> Vec<(String, String)> {
        let conditions = self.conditions.lock();
        let unmet = conditions.iter().filter_map(|(name, state)| Some((name.clone(), state.state().err()?)));
        unmet.collect()
    }

    /// The HTTP interface.
    pub fn router(&self, metrics: Metrics) -> Router {
        Router::new()
            .route("/healthz", get(async || "ok"))
            .route("/livez", get(async || "ok"))
            .route("/readyz", get(readyz))
            .with_state(self.clone())
            .route("/metrics", get(async move || ([("content-type", CONTENT_TYPE)], metrics.text())))
    }
}

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

async fn readyz(State(health): State<Health>) -> (StatusCode, String) {
    let mut text = String::new();
    for (name, state) in health.conditions.lock().iter() {
        // Writing to a string cannot fail.
        let _ = match state.state() {
            Ok(()) => writeln!(text, "[+] {name}"),
            Err(reason) => writeln!(text, "[-] {name}: {reason}"),
        };
    }
    let code = if health.unmet().is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, text)
}

/// Serves a router until cancelled.
pub async fn serve(address: SocketAddr, router: Router, cancel: CancellationToken) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    axum::serve(listener, router).with_graceful_shutdown(cancel.cancelled_owned()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_is_told_with_its_reason() {
        let health = Health::default();
        health.not_ready("watch of pods", "not listed yet");
        health.ready("cycle");
        assert_eq!(health.unmet(), [("watch of pods".to_owned(), "not listed yet".to_owned())]);
        health.ready("watch of pods");
        assert!(health.unmet().is_empty());
    }

    #[test]
    fn a_condition_can_be_that_of_another() {
        let (health, other) = (Health::default(), Health::default());
        health.follow("watch of pods", &other, "watch of all pods");
        assert_eq!(health.unmet(), [("watch of pods".to_owned(), "not begun yet".to_owned())]);
        other.not_ready("watch of all pods", "the server is away");
        assert_eq!(health.unmet(), [("watch of pods".to_owned(), "the server is away".to_owned())]);
        other.ready("watch of all pods");
        assert!(health.unmet().is_empty());
    }
}
