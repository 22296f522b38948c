//! Faults on demand: API calls that fail, hang or lose their answer, and nodes that misbehave, all from a seed.
//!
//! [`FaultLayer`] sits between a `kube::Client` and its transport, so it works on the embedded router and on TCP alike. Which
//! call is hit depends only on the seed and on the order of calls, which a paused single-threaded runtime repeats exactly.

mod call;

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tower::{BoxError, Layer, Service};

pub use self::call::Call;
use crate::{fleet::Span, seed::Seed};

/// A rule: which calls are hit and what happens to them.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiFault {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; any if absent.
    pub verb: Option<String>,
    /// Plural resource with subresource, such as `pods` or `pods/binding`; `pods/*` is any subresource; any if absent.
    pub resource: Option<String>,
    /// When it strikes.
    pub trigger: Trigger,
    /// What it does.
    pub effect: ApiEffect,
}

/// Which of the matching calls are hit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trigger {
    /// Each with this probability.
    Probability(f64),
    /// Exactly the n-th, counted from 1.
    Nth(u64),
    /// Every one.
    Always,
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiEffect {
    /// The server answers with this status and does nothing.
    Error(u16),
    /// The connection breaks before the request arrives.
    Reset,
    /// The request arrives late.
    Delay(Span),
    /// The server does it, then the connection breaks.
    LostAnswer,
}

/// Something that happens to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFault {
    /// When, counted from the start of the nodes.
    pub at: Duration,
    /// Which node.
    pub node: String,
    /// What.
    pub action: NodeAction,
}

/// What can happen to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAction {
    /// The kubelet stops: no heartbeats, no statuses, no reaction to pods.
    Stop,
    /// A stopped or vanished kubelet comes back and catches up.
    Resume,
    /// The kubelet reports `Ready=False`.
    NotReady,
    /// The kubelet reports `Ready=True` again.
    Ready,
    /// The kubelet stops and its Node object is deleted.
    Vanish,
    /// A physical device fails: allocatable shrinks, no new pod gets it.
    DeviceUnhealthy {
        /// Resource name.
        resource: String,
        /// Physical device, from 0.
        index: usize,
    },
    /// A failed device is well again.
    DeviceHealthy {
        /// Resource name.
        resource: String,
        /// Physical device, from 0.
        index: usize,
    },
}

/// The connection to the API server broke, as an injected fault.
#[derive(Debug, thiserror::Error)]
#[error("connection reset by peer (injected fault)")]
pub struct ConnectionReset;

/// Wraps a transport so that its calls meet the faults. Clones share counters; rules can be changed at any time.
#[derive(Clone)]
pub struct FaultLayer {
    shared: Arc<Mutex<Rules>>,
}

struct Rules {
    /// With the number of calls each has matched.
    list: Vec<(ApiFault, u64)>,
    rng: StdRng,
    struck: u64,
}

impl FaultLayer {
    /// A layer with these rules.
    pub fn new(seed: Seed, faults: Vec<ApiFault>) -> Self {
        let list = faults.into_iter().map(|fault| (fault, 0)).collect();
        let rng = StdRng::seed_from_u64(seed.hash(&["api faults"]));
        Self { shared: Arc::new(Mutex::new(Rules { list, rng, struck: 0 })) }
    }

    /// Replaces the rules; counters of `Nth` start again.
    pub fn set(&self, faults: Vec<ApiFault>) {
        self.shared.lock().list = faults.into_iter().map(|fault| (fault, 0)).collect();
    }

    /// How many calls were hit so far.
    pub fn struck(&self) -> u64 {
        self.shared.lock().struck
    }

    /// What happens to a call: the first rule that strikes wins, all matching counters advance.
    fn decide(&self, call: impl FnOnce() -> Call) -> Option<(ApiEffect, Duration)> {
        let mut shared = self.shared.lock();
        if shared.list.is_empty() {
            return None;
        }
        let call = call();
        let Rules { list, rng, struck } = &mut *shared;
        let mut effect = None;
        for (fault, count) in list.iter_mut().filter(|(fault, _)| call.matches(fault)) {
            *count += 1;
            let strikes = match fault.trigger {
                Trigger::Probability(probability) => rng.random_bool(probability.clamp(0.0, 1.0)),
                Trigger::Nth(nth) => *count == nth,
                Trigger::Always => true,
            };
            if strikes && effect.is_none() {
                effect = Some(fault.effect);
            }
        }
        let effect = effect?;
        *struck += 1;
        let delay = match effect {
            ApiEffect::Delay(span) => span.draw(Seed(rng.random()), &[]),
            _ => Duration::ZERO,
        };
        Some((effect, delay))
    }
}

impl<S> Layer<S> for FaultLayer {
    type Service = FaultService<S>;

    fn layer(&self, inner: S) -> FaultService<S> {
        FaultService { inner, layer: self.clone() }
    }
}

/// A transport with faults.
#[derive(Clone)]
pub struct FaultService<S> {
    inner: S,
    layer: FaultLayer,
}

type Body = UnsyncBoxBody<Bytes, BoxError>;

impl<S, RequestBody, ResponseBody> Service<Request<RequestBody>> for FaultService<S>
where
    S: Service<Request<RequestBody>, Response = Response<ResponseBody>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    RequestBody: Send + 'static,
    ResponseBody: http_body::Body<Data = Bytes> + Send + 'static,
    ResponseBody::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let decision = self.layer.decide(|| Call::of(request.method(), request.uri()));
        // The clone that was made ready must be the one that is called.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(async move {
            let boxed = |response: Response<ResponseBody>| response.map(|body| body.map_err(Into::into).boxed_unsync());
            match decision {
                None => inner.call(request).await.map(boxed).map_err(Into::into),
                Some((ApiEffect::Error(status), _)) => Ok(error_response(status)),
                Some((ApiEffect::Reset, _)) => Err(ConnectionReset.into()),
                Some((ApiEffect::Delay(_), delay)) => {
                    tokio::time::sleep(delay).await;
                    inner.call(request).await.map(boxed).map_err(Into::into)
                }
                Some((ApiEffect::LostAnswer, _)) => {
                    inner.call(request).await.map_err(Into::into)?;
                    Err(ConnectionReset.into())
                }
            }
        })
    }
}

fn error_response(status: u16) -> Response<Body> {
    let reason = match status {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "Unknown",
    };
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("injected fault: {reason}"), "reason": reason, "code": status,
    });
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    if status == 429 {
        headers.insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    }
    response
}

#[cfg(test)]
mod tests;
