//! How a webhook is reached: a router in this process that stands for a Service, or a server over https.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::{Mutex, RwLock};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tower::ServiceExt;

use crate::admission::ClusterReader;
use crate::select::go_quote;

/// Longest answer that is read; patches are smaller than the largest object.
const ANSWER_LIMIT: usize = 3 * 1024 * 1024;
/// Connection pools kept, one for each bundle of certificates.
const POOLS: usize = 64;

/// Where a webhook is (`clientConfig`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// A Service of the cluster.
    Service {
        /// Namespace of the service.
        namespace: String,
        /// Name of the service.
        name: String,
        /// Path of the request, may be empty.
        path: String,
        /// Port, for messages only.
        port: u64,
    },
    /// A server anywhere.
    Url {
        /// `https://…`.
        url: String,
        /// Certificates it is trusted by, in PEM; empty for those of the machine.
        bundle: Vec<u8>,
    },
}

type Pool = hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Services of this process and connections to others.
#[derive(Debug, Default)]
pub(super) struct Caller {
    services: RwLock<BTreeMap<(String, String), Router>>,
    pools: Mutex<BTreeMap<Vec<u8>, Pool>>,
}

impl Caller {
    pub(super) fn register_service(&self, namespace: &str, name: &str, router: Router) {
        self.services.write().insert((namespace.to_owned(), name.to_owned()), router);
    }

    pub(super) fn forget_service(&self, namespace: &str, name: &str) {
        self.services.write().remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Posts a review and returns the answer's body; the error is worded as by a real server's HTTP client.
    pub(super) async fn call(
        &self,
        client: &Client,
        timeout: Duration,
        body: Vec<u8>,
        cluster: &dyn ClusterReader,
    ) -> Result<Bytes, String> {
        let uri = client.uri(timeout)?;
        let posted = async {
            match client {
                Client::Service { namespace, name, .. } => {
                    self.call_service(namespace, name, &uri, body, cluster).await
                }
                Client::Url { bundle, .. } => self.call_url(bundle, &uri, body).await,
            }
        };
        let answer = tokio::time::timeout(timeout, posted).await;
        let answer = answer.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()));
        let (status, body) = answer.map_err(|why| format!("Post {}: {why}", go_quote(&uri.to_string())))?;
        if status.is_success() { Ok(body) } else { Err(status_error(status, &body)) }
    }

    async fn call_service(
        &self,
        namespace: &str,
        name: &str,
        uri: &Uri,
        body: Vec<u8>,
        cluster: &dyn ClusterReader,
    ) -> Result<(StatusCode, Bytes), String> {
        let router = self.services.read().get(&(namespace.to_owned(), name.to_owned())).cloned();
        let Some(router) = router else {
            return Err(match cluster.get("services", Some(namespace), name) {
                Some(_) => format!("no endpoints available for service {}", go_quote(name)),
                None => format!("service {} not found", go_quote(name)),
            });
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::post(path)
            .header(header::HOST, format!("{name}.{namespace}.svc"))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .body(Body::from(body))
            .map_err(|error| error.to_string())?;
        // A webhook that panics drops the connection; its panic is not the server's.
        let answer = AssertUnwindSafe(router.oneshot(request)).catch_unwind().await.map_err(|_| "EOF".to_owned())?;
        let answer = match answer {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        let status = answer.status();
        let body = axum::body::to_bytes(answer.into_body(), ANSWER_LIMIT).await.map_err(|error| error.to_string())?;
        Ok((status, body))
    }

    async fn call_url(&self, bundle: &[u8], uri: &Uri, body: Vec<u8>) -> Result<(StatusCode, Bytes), String> {
        let pool = self.pool(bundle)?;
        let request = Request::post(uri)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())?;
        let answer = pool.request(request).await.map_err(|error| chain(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_LIMIT).collect().await.map_err(|error| error.to_string())?;
        Ok((status, body.to_bytes()))
    }

    /// Connections to servers that this bundle vouches for.
    fn pool(&self, bundle: &[u8]) -> Result<Pool, String> {
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.get(bundle) {
            return Ok(pool.clone());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = hyper_rustls::HttpsConnectorBuilder::new();
        let builder = if bundle.is_empty() {
            let builder = builder.with_provider_and_native_roots(provider);
            builder.map_err(|error| format!("no certificates of this machine to trust: {error}"))?
        } else {
            let mut roots = rustls::RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(bundle) {
                let certificate = certificate.map_err(|_| "unable to load root certificates".to_owned())?;
                roots.add(certificate).map_err(|error| format!("unable to load root certificates: {error}"))?;
            }
            if roots.is_empty() {
                return Err("unable to load root certificates".to_owned());
            }
            let config = rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|error| error.to_string())?
                .with_root_certificates(roots)
                .with_no_client_auth();
            builder.with_tls_config(config)
        };
        let connector = builder.https_only().enable_http1().build();
        let pool = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
        if pools.len() >= POOLS {
            pools.clear();
        }
        pools.insert(bundle.to_vec(), Pool::clone(&pool));
        Ok(pool)
    }
}

impl Client {
    /// The address of the request; the query tells the webhook how long the server will wait.
    fn uri(&self, timeout: Duration) -> Result<Uri, String> {
        let address = match self {
            Self::Service { namespace, name, path, port } => {
                let slash = if path.starts_with('/') { "" } else { "/" };
                format!("https://{name}.{namespace}.svc:{port}{slash}{path}")
            }
            Self::Url { url, .. } if url.is_empty() => {
                return Err("webhook configuration must have either service or URL".to_owned());
            }
            Self::Url { url, .. } => {
                let plain = url.split(['?', '#']).next().unwrap_or_default();
                if !plain.starts_with("https://") {
                    return Err(format!("{}: 'https' is the only allowed URL scheme", go_quote(url)));
                }
                plain.to_owned()
            }
        };
        let uri = format!("{address}?timeout={}s", timeout.as_secs());
        uri.parse().map_err(|error| format!("Unparsable URL: {error}"))
    }
}

/// What a client makes of an answer that is no success.
fn status_error(status: StatusCode, body: &[u8]) -> String {
    match status.as_u16() {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => "forbidden".to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        code if code >= 500 => {
            let body = String::from_utf8_lossy(body);
            format!("an error on the server ({}) has prevented the request from succeeding", go_quote(body.trim()))
        }
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}

/// An error with its causes, innermost last.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
