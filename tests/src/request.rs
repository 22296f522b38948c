//! Plain HTTP requests to a cluster's API server, as the conformance suite makes them: paths, JSON bodies, raw answers.
//!
//! They go through the transport of `kube::Client`, so the same request reaches the embedded server in process and a real one
//! over TLS. Nothing is decoded into types: what is compared is what a client would read.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, BodyStream};
use kube::{Client, client::Body};
use serde_json::Value;
use tokio::time::timeout;

/// How long an answer or the next watch event may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends requests to one API server.
#[derive(Clone)]
pub struct Server {
    client: Client,
}

/// An answer: status, headers, text, and the text as JSON if it is.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body as text.
    pub text: String,
    /// Body as JSON; `null` if it is none.
    pub json: Value,
}

/// The four kinds of patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 6902.
    Json,
    /// RFC 7396.
    Merge,
    /// Kubernetes' own, by merge keys.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchKind {
    fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

impl Server {
    /// Sends through this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.send(Method::GET, path, &[], Vec::new()).await
    }

    /// POST of a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send(Method::POST, path, &[("content-type", "application/json")], body.to_string().into_bytes()).await
    }

    /// PUT of a JSON body.
    pub async fn put(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send(Method::PUT, path, &[("content-type", "application/json")], body.to_string().into_bytes()).await
    }

    /// PATCH of one of the four kinds.
    pub async fn patch(&self, kind: PatchKind, path: &str, body: &Value) -> Result<Answer> {
        self.send(Method::PATCH, path, &[("content-type", kind.media_type())], body.to_string().into_bytes()).await
    }

    /// DELETE, with options if they are not `null`.
    pub async fn delete(&self, path: &str, options: &Value) -> Result<Answer> {
        let body = if options.is_null() { Vec::new() } else { options.to_string().into_bytes() };
        self.send(Method::DELETE, path, &[("content-type", "application/json")], body).await
    }

    /// Any request. `accept` is JSON unless a header says otherwise.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Result<Answer> {
        let what = format!("{method} {path}");
        let response = timeout(PATIENCE, self.client.send(request(method, path, headers, body)?))
            .await
            .with_context(|| format!("{what}: no answer"))?
            .with_context(|| what.clone())?;
        let (parts, body) = response.into_parts();
        let bytes =
            timeout(PATIENCE, body.collect()).await.with_context(|| format!("{what}: the body never ends"))??;
        let text = String::from_utf8_lossy(&bytes.to_bytes()).into_owned();
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Answer { status: parts.status, headers: parts.headers, text, json })
    }

    /// Opens a watch; `path` has the query.
    pub async fn watch(&self, path: &str) -> Result<Watch> {
        self.watch_as(path, "application/json").await
    }

    /// Opens a watch with an `Accept` header.
    pub async fn watch_as(&self, path: &str, accept: &str) -> Result<Watch> {
        let request = request(Method::GET, path, &[("accept", accept)], Vec::new())?;
        let response =
            timeout(PATIENCE, self.client.send(request)).await.with_context(|| format!("watch {path}"))??;
        let status = response.status();
        if !status.is_success() {
            let body = response.into_body().collect().await?.to_bytes();
            bail!("watch {path}: {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(Watch { body: BodyStream::new(response.into_body()), buffer: Vec::new() })
    }
}

fn request(method: Method, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Result<Request<Body>> {
    let mut builder = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("accept")) {
        builder = builder.header("accept", "application/json");
    }
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(Body::from(body)).with_context(|| format!("build the request {path}"))
}

/// An open watch.
pub struct Watch {
    body: BodyStream<Body>,
    buffer: Vec<u8>,
}

impl Watch {
    /// The next event, or an error if none comes in time or the stream has ended.
    pub async fn next(&mut self) -> Result<Value> {
        self.next_or_end().await?.context("the watch has ended")
    }

    /// The next event that is no bookmark.
    pub async fn next_change(&mut self) -> Result<Value> {
        loop {
            let event = self.next().await?;
            if event["type"] != "BOOKMARK" {
                return Ok(event);
            }
        }
    }

    /// The next event; `None` when the server has closed the stream.
    pub async fn next_or_end(&mut self) -> Result<Option<Value>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line).context("a watch event is one JSON line")?));
            }
            match timeout(PATIENCE, self.body.next()).await.context("no watch event in time")? {
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                None => return Ok(None),
            }
        }
    }

    /// Fails if an event other than a bookmark comes within `quiet`.
    pub async fn expect_nothing(&mut self, quiet: Duration) -> Result<()> {
        match timeout(quiet, self.next_change()).await {
            Err(_) => Ok(()),
            Ok(event) => bail!("expected no event, saw {}", event?),
        }
    }
}

impl Answer {
    /// Checks the status code; the answer comes back for more.
    pub fn expect(self, code: u16) -> Result<Self> {
        ensure!(self.status.as_u16() == code, "expected {code}, got {}: {}", self.status, self.excerpt());
        Ok(self)
    }

    /// Checks that this is a `Status` failure with this code and reason.
    pub fn expect_failure(self, code: u16, reason: &str) -> Result<Self> {
        let answer = self.expect(code)?;
        ensure!(answer.json["kind"] == "Status", "expected a Status, got {}", answer.excerpt());
        ensure!(answer.json["status"] == "Failure", "expected a Failure, got {}", answer.excerpt());
        ensure!(answer.json["reason"] == reason, "expected reason {reason}, got {}", answer.excerpt());
        ensure!(answer.json["code"] == code, "expected code {code} in the body, got {}", answer.excerpt());
        Ok(answer)
    }

    /// Checks that the message holds this text.
    pub fn expect_message(self, part: &str) -> Result<Self> {
        let message = self.json["message"].as_str().unwrap_or(&self.text);
        ensure!(message.contains(part), "expected `{part}` in the message, got `{message}`");
        Ok(self)
    }

    /// Checks the value at a JSON pointer; a missing value is `null`.
    pub fn expect_value(self, pointer: &str, wanted: impl Into<Value>) -> Result<Self> {
        let wanted = wanted.into();
        let found = self.json.pointer(pointer).unwrap_or(&Value::Null);
        ensure!(*found == wanted, "expected {wanted} at {pointer}, got {found} in {}", self.excerpt());
        Ok(self)
    }

    /// Checks that one of the causes of a failure has this reason and field.
    pub fn expect_cause(self, reason: &str, field: &str) -> Result<Self> {
        let found = self.json["details"]["causes"].as_array().into_iter().flatten();
        let mut found = found.map(|cause| (cause["reason"].as_str(), cause["field"].as_str()));
        ensure!(
            found.any(|cause| cause == (Some(reason), Some(field))),
            "expected the cause {reason} at {field}, got {}",
            self.excerpt()
        );
        Ok(self)
    }

    /// Checks that this is the 422 of an invalid object, with this cause and this text in its message.
    pub fn expect_invalid(self, reason: &str, field: &str, message: &str) -> Result<Self> {
        self.expect_failure(422, "Invalid")?.expect_cause(reason, field)?.expect_message(message)
    }

    /// The string at a JSON pointer.
    pub fn string(&self, pointer: &str) -> Result<String> {
        let found = self.json.pointer(pointer).and_then(Value::as_str);
        Ok(found.with_context(|| format!("no string at {pointer} in {}", self.excerpt()))?.to_owned())
    }

    /// The values of the `warning` headers.
    pub fn warnings(&self) -> Vec<String> {
        let values = self.headers.get_all("warning").iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    }

    fn excerpt(&self) -> String {
        let mut text: String = self.text.chars().take(1500).collect();
        if text.len() < self.text.len() {
            let _ = write!(text, "… ({} bytes)", self.text.len());
        }
        text
    }
}
