//! The running admission server: certificates, TLS, registration.
//!
//! Every replica does all of it: what they write is the same, so nobody has to lead. The API server is told of this
//! server only after it listens with a certificate.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::http::Uri;
use kai_api::{Queue, names::groups};
use kai_kit::{Mirror, Process, Selection, backoff::Backoff, rbac::Right};
use tokio::net::TcpListener;

use crate::{
    certificates::{self, Keeper, Times},
    options::Options,
    registration::{Address, Place, configurations, register},
    router::router,
    rules::Rules,
    tls::{Shown, TlsListener},
};

const PAUSES: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
/// How long open requests may take when the process ends.
const GRACE: Duration = Duration::from_secs(10);

const REGISTERED: &str = "webhook configurations";
const CERTIFIED: &str = "certificate";

/// Why the admission server ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be used.
    #[error("listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the machine said.
        #[source]
        source: io::Error,
    },
    /// The address for the API server is none.
    #[error("`--webhook-url {0}` is not of the form `https://host:port`")]
    Url(String),
    /// TLS is not possible.
    #[error("set up TLS")]
    Tls(#[source] rustls::Error),
    /// The listener ended.
    #[error("serve webhooks")]
    Serve(#[source] io::Error),
}

/// What the admission server calls.
pub fn rights(namespace: &str) -> Vec<Right> {
    const ADMISSION: &str = "admissionregistration.k8s.io";
    const WRITE: &[&str] = &["create", "patch"];
    vec![
        Right::in_namespace(namespace, "", "secrets", &["get", "create", "patch"], "its certificates"),
        Right::cluster(ADMISSION, "mutatingwebhookconfigurations", WRITE, "tells the API server which pods to send"),
        Right::cluster(ADMISSION, "validatingwebhookconfigurations", WRITE, "tells the API server what to send"),
        Right::cluster(groups::SCHEDULING, "queues", &["list", "watch"], "finds cycles and children of queues"),
    ]
}

/// Runs the admission server until the process ends.
pub async fn run(process: Process, options: Options) -> Result<(), Error> {
    let address = options.webhook_listen;
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
    serve(process, options, listener).await
}

/// Runs the admission server on a listener that is already there.
pub async fn serve(process: Process, options: Options, listener: TcpListener) -> Result<(), Error> {
    process.health.not_ready(CERTIFIED, "not read yet");
    process.health.not_ready(REGISTERED, "not written yet");
    let settings = options.settings(&process.namespace);
    let names = certificate_names(&process.namespace, &options)?;
    let queues = Mirror::<Queue>::builder().trim(|queue| queue.status = None);
    let queues = queues.start(&process, Selection::all(), &process.cancel);
    let router = router(Rules::new(settings).with_queues(queues).counted_in(&process.metrics));
    let shown = Shown::default();
    let listener = TlsListener::new(listener, shown.clone()).map_err(Error::Tls)?;
    let keeping = keep(&process, &options, names, &shown);
    let serving = axum::serve(listener, router).with_graceful_shutdown(process.cancel.clone().cancelled_owned());
    let mut serving = std::pin::pin!(async move { serving.await.map_err(Error::Serve) });
    tokio::select! {
        ended = &mut serving => return ended,
        () = keeping => {}
    }
    // Cancelled: what is open may finish, but not for ever.
    tokio::time::timeout(GRACE, serving).await.unwrap_or(Ok(()))
}

/// Keeps certificates and configurations until the process ends.
async fn keep(process: &Process, options: &Options, names: Vec<String>, shown: &Shown) {
    let mut keeper = Keeper::new(process, names, Times::default());
    let mut failures = 0;
    loop {
        let round = async {
            let outcome = round(process, options, &mut keeper, shown).await;
            failures = if outcome { 0 } else { failures + 1 };
            let pause = if failures == 0 {
                Duration::from_secs(options.webhook_check_seconds.max(1))
            } else {
                PAUSES.after(failures)
            };
            tokio::time::sleep(pause).await;
        };
        tokio::select! {
            () = process.cancel.cancelled() => return,
            () = round => {}
        }
    }
}

/// One look. Whether all is as it should be.
async fn round(process: &Process, options: &Options, keeper: &mut Keeper, shown: &Shown) -> bool {
    let material = keeper.ensure().await.and_then(|material| Ok((Arc::new(material.certified_key()?), material)));
    let (key, material) = match material {
        Ok(found) => found,
        Err(error) => {
            let reason = chain(&error);
            tracing::warn!(reason, "certificate not looked at");
            // What is shown already stays good for months.
            if !shown.is_set() {
                process.health.not_ready(CERTIFIED, reason);
            }
            return false;
        }
    };
    if !shown.is_set() {
        shown.set(Arc::clone(&key));
    }
    process.health.ready(CERTIFIED);
    // The API server is told of new authorities before it meets a leaf of theirs.
    let place = Place { address: address(&process.namespace, options), bundle: Some(material.authorities) };
    let wanted = configurations(&options.settings(&process.namespace), &options.names(), &place);
    let written = register(process, &wanted).await;
    shown.set(key);
    match written {
        Ok(()) => {
            process.health.ready(REGISTERED);
            true
        }
        Err(error) => {
            let reason = kai_kit::errors::message(&error);
            tracing::warn!(reason, "webhook configurations not written");
            // Who was told once is still asked: it must not leave the Service because the API server is away.
            if process.health.unmet().iter().any(|(name, _)| name == REGISTERED) {
                process.health.not_ready(REGISTERED, reason);
            }
            false
        }
    }
}

fn address(namespace: &str, options: &Options) -> Address {
    match &options.webhook_url {
        Some(url) => Address::Url(url.clone()),
        None => Address::Service {
            namespace: namespace.to_owned(),
            name: options.webhook_service.clone(),
            port: options.webhook_service_port,
        },
    }
}

/// The names by which API servers may know this server.
fn certificate_names(namespace: &str, options: &Options) -> Result<Vec<String>, Error> {
    let service = format!("{}.{namespace}.svc", options.webhook_service);
    let mut names = vec![service.clone(), format!("{service}.cluster.local")];
    if let Some(url) = &options.webhook_url {
        let uri: Uri = url.parse().map_err(|_| Error::Url(url.clone()))?;
        let host = uri.host().filter(|host| uri.scheme_str() == Some("https") && !host.is_empty());
        let host = host.ok_or_else(|| Error::Url(url.clone()))?;
        names.push(host.trim_start_matches('[').trim_end_matches(']').to_owned());
    }
    Ok(names)
}

/// An error with its causes.
fn chain(error: &certificates::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_is_for_the_service_and_the_address() {
        let options = |url: &str| Options { webhook_url: Some(url.to_owned()), ..Options::default() };
        let names = certificate_names("kai-scheduler", &options("https://[::1]:9443/")).unwrap();
        assert_eq!(names, ["admission.kai-scheduler.svc", "admission.kai-scheduler.svc.cluster.local", "::1"]);
        for url in ["http://host:1", "host:1", "https://", "::"] {
            assert!(matches!(certificate_names("n", &options(url)), Err(Error::Url(_))), "{url}");
        }
    }
}
