//! An admission webhook on a loopback port, with a certificate of its own, that answers as a case wishes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use axum::{Router, extract::State, routing::post, serve::Listener};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderName, StatusCode, header::CONTENT_TYPE};
use kai_tests::request::Answer;
use kai_tests::{cluster::PATIENCE, wait};
use rcgen::{CertificateParams, KeyPair};
use rustls::{ServerConfig, crypto::ring, pki_types::PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::setting::{Setting, config_map};

type Answerer = dyn Fn(&Value) -> Value + Send + Sync;

/// A running webhook; it ends when it is dropped.
pub struct WebhookServer {
    address: SocketAddr,
    authority: String,
    asked: Arc<Asked>,
    task: AbortHandle,
}

struct Asked {
    answer: Box<Answerer>,
    requests: Mutex<Vec<Value>>,
    probes: Mutex<usize>,
}

/// Which of the two kinds of configuration.
#[derive(Clone, Copy)]
pub enum Phase {
    /// May change the object.
    Mutating,
    /// May only refuse it.
    Validating,
}

impl WebhookServer {
    /// Starts a webhook; `answer` gets the `request` of a review and gives the `response`, whose `uid` is filled in.
    pub async fn start(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Result<Self> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.self_signed(&key)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let listener = TlsListener { listener, acceptor: TlsAcceptor::from(Arc::new(config)) };
        let asked = Arc::new(Asked { answer: Box::new(answer), requests: Mutex::default(), probes: Mutex::default() });
        let router = Router::new().route("/case", post(review)).route("/probe", post(probe)).with_state(asked.clone());
        let task = tokio::spawn(async move { axum::serve(listener, router).await }).abort_handle();
        Ok(Self { address, authority: STANDARD.encode(certificate.pem()), asked, task })
    }

    /// A webhook that allows everything.
    pub async fn allowing() -> Result<Self> {
        Self::start(|_| json!({ "allowed": true })).await
    }

    /// The `request` of every review so far.
    pub fn requests(&self) -> Vec<Value> {
        self.asked.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A webhook `case.example.com` that is asked about new config maps of the case's namespace.
    pub fn webhook(&self, s: &Setting) -> Value {
        self.entry(s, "case")
    }

    fn entry(&self, s: &Setting, path: &str) -> Value {
        json!({
            "name": format!("{path}.example.com"),
            "clientConfig": { "url": format!("https://{}/{path}", self.address), "caBundle": self.authority },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }],
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": s.namespace } },
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        })
    }

    /// Creates a configuration with this webhook, and waits until the API server asks it.
    ///
    /// Another webhook, which is asked about the same namespace whatever the case selects, tells when that is. It is the
    /// first, so that no refusal comes before it.
    pub async fn install(&self, s: &Setting, phase: Phase, webhook: Value) -> Result<Answer> {
        let body = configuration(s, phase, json!([self.entry(s, "probe"), webhook]));
        let created = s.server.post(configurations(phase), &body).await?.expect(201)?;
        let probes = || *self.asked.probes.lock().unwrap_or_else(PoisonError::into_inner);
        wait::until("the webhook to be asked", PATIENCE, async || {
            s.server.post(&s.core("configmaps?dryRun=All"), &config_map("probe")).await?;
            Ok((probes() > 0).then_some(()))
        })
        .await?;
        self.asked.requests.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(created)
    }
}

impl Drop for WebhookServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Where configurations live.
pub fn configurations(phase: Phase) -> &'static str {
    match phase {
        Phase::Mutating => "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        Phase::Validating => "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    }
}

/// A configuration that is named after the case's namespace.
pub fn configuration(s: &Setting, phase: Phase, webhooks: Value) -> Value {
    let kind = match phase {
        Phase::Mutating => "MutatingWebhookConfiguration",
        Phase::Validating => "ValidatingWebhookConfiguration",
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": s.namespace },
        "webhooks": webhooks,
    })
}

/// The `patch` of a response.
pub fn patch(operations: &Value) -> Value {
    json!({ "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string()) })
}

type Reply = ([(HeaderName, &'static str); 1], String);

fn verdict(review: &Value, mut response: Value) -> Reply {
    if response.get("uid").is_none() {
        response["uid"] = review["request"]["uid"].clone();
    }
    let review = json!({ "apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response });
    ([(CONTENT_TYPE, "application/json")], review.to_string())
}

async fn review(State(asked): State<Arc<Asked>>, body: Bytes) -> Result<Reply, StatusCode> {
    let review: Value = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    asked.requests.lock().unwrap_or_else(PoisonError::into_inner).push(review["request"].clone());
    Ok(verdict(&review, (asked.answer)(&review["request"])))
}

async fn probe(State(asked): State<Arc<Asked>>, body: Bytes) -> Result<Reply, StatusCode> {
    let review: Value = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    *asked.probes.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    Ok(verdict(&review, json!({ "allowed": true })))
}

struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
            // A client that does not trust the certificate is its own problem.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A loopback address that nobody listens on.
pub async fn closed_port() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("find a free port")?;
    Ok(listener.local_addr()?)
}
