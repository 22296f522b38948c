//! Calls to the API server: queued in order, a bounded number at a time, answers handed back to the loop.

use std::{collections::VecDeque, future::Future};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use http::{Method, Request, header};
use http_body_util::BodyExt;
use kube::Client;
use serde_json::Value;

use super::state::PodKey;

/// Calls under way at once. A real server takes about this many from one client without queueing.
const PARALLEL: usize = 64;

/// What a call was for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    CreateNode(usize),
    AdoptNode(usize),
    DeleteNode,
    CreateLease(usize),
    RenewLease(usize),
    CreateSlice,
    NodeStatus(usize),
    PodStatus {
        key: PodKey,
        uid: String,
        fingerprint: u64,
    },
    RemovePod {
        key: PodKey,
        uid: String,
    },
    Event,
    /// For the environment of a container.
    ReadConfigMap {
        key: PodKey,
        uid: String,
        container: usize,
        name: String,
    },
}

/// A finished call.
pub(super) struct Written {
    pub(super) purpose: Purpose,
    pub(super) answer: Result<Bytes, Failure>,
}

/// Why a call failed: the server's status code, or none if there was no answer.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: Option<u16>,
    pub(super) message: String,
}

impl Failure {
    /// The server will never accept this call, however often it is repeated.
    pub(super) fn is_final(&self) -> bool {
        self.code.is_some_and(|code| (400..500).contains(&code) && !matches!(code, 401 | 403 | 408 | 429))
    }
}

pub(super) struct Writes {
    client: Client,
    queue: VecDeque<(Purpose, Request<Vec<u8>>)>,
    under_way: FuturesUnordered<BoxFuture<'static, Written>>,
}

impl Writes {
    pub(super) fn new(client: Client) -> Self {
        Self { client, queue: VecDeque::new(), under_way: FuturesUnordered::new() }
    }

    pub(super) fn create(&mut self, purpose: Purpose, path: String, object: &Value) {
        self.push(purpose, Method::POST, path, "application/json", object);
    }

    pub(super) fn merge(&mut self, purpose: Purpose, path: String, patch: &Value) {
        self.push(purpose, Method::PATCH, path, "application/merge-patch+json", patch);
    }

    pub(super) fn strategic(&mut self, purpose: Purpose, path: String, patch: &Value) {
        self.push(purpose, Method::PATCH, path, "application/strategic-merge-patch+json", patch);
    }

    pub(super) fn delete(&mut self, purpose: Purpose, path: String, options: &Value) {
        self.push(purpose, Method::DELETE, path, "application/json", options);
    }

    pub(super) fn read(&mut self, purpose: Purpose, path: String) {
        self.push(purpose, Method::GET, path, "application/json", &Value::Null);
    }

    /// Sends what may be sent now.
    pub(super) fn pump(&mut self) {
        while self.under_way.len() < PARALLEL {
            let Some((purpose, request)) = self.queue.pop_front() else { return };
            let client = self.client.clone();
            self.under_way.push(Box::pin(async move { Written { purpose, answer: send(client, request).await } }));
        }
    }

    /// The next answer; nothing while nothing is under way.
    pub(super) fn next(&mut self) -> impl Future<Output = Option<Written>> + '_ {
        self.under_way.next()
    }

    /// An answer that is already there.
    pub(super) fn ready(&mut self) -> Option<Written> {
        self.under_way.next().now_or_never().flatten()
    }

    fn push(&mut self, purpose: Purpose, method: Method, path: String, content: &'static str, body: &Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content)
            .header(header::USER_AGENT, "kubelet/v1.34.4 (linux) kai-lab")
            .body(if body.is_null() { Vec::new() } else { body.to_string().into_bytes() });
        match request {
            Ok(request) => self.queue.push_back((purpose, request)),
            // Only an impossible name could make an impossible path, and the server would not have stored it.
            Err(error) => tracing::warn!(%error, "call dropped"),
        }
    }
}

async fn send(client: Client, request: Request<Vec<u8>>) -> Result<Bytes, Failure> {
    let broken = |error: &dyn std::fmt::Display| Failure { code: None, message: error.to_string() };
    let response = client.send(request.map(kube::client::Body::from)).await.map_err(|error| broken(&error))?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|error| broken(&error))?.to_bytes();
    if status.is_success() {
        return Ok(body);
    }
    let parsed: Option<Value> = serde_json::from_slice(&body).ok();
    let message = parsed.as_ref().and_then(|status| status["message"].as_str()).unwrap_or("no message").to_owned();
    Err(Failure { code: Some(status.as_u16()), message })
}
