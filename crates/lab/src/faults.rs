//! Faults on demand: API calls that fail, hang or lose their answer, and nodes that misbehave, all from a seed.
//!
//! [`FaultLayer`] sits between a `kube::Client` and its transport, so it works on the embedded router and on TCP alike. Which
//! call is hit depends only on the seed and on the order of calls, which a paused single-threaded runtime repeats exactly.
//!
//! A test of crashes gives every process its own layer, lets it run once to learn its writes ([`FaultLayer::writes`]), and then
//! once per write with [`ApiEffect::KillBefore`] and once with [`ApiEffect::KillAfter`].

mod call;

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Layer, Service};

pub use self::call::Call;
use crate::{fleet::Span, seed::Seed};

/// A rule: which calls are hit and what happens to them.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiFault {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or `write` for each of the last five;
    /// any if absent.
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
    /// The caller's process dies before the request is sent: [`FaultLayer::killed`] fires, nothing of this process is sent or
    /// answered any more.
    KillBefore,
    /// The server does it and the caller's process dies before the answer arrives.
    KillAfter,
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
    /// The machine goes down at once and comes up again: everything on it has ended. Containers start again by the pod's
    /// restart policy; a pod whose devices have other names by then is refused with `UnexpectedAdmissionError`.
    Reboot {
        /// How long it is away.
        down: Duration,
        /// Whether its devices come back with other UUIDs.
        new_uuids: bool,
    },
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
    writes: u64,
    written: Vec<Call>,
    keep_written: bool,
    killed: CancellationToken,
}

/// What a call meets.
enum Decision {
    Pass,
    Meets(ApiEffect, Duration),
    /// The caller is dead.
    Nothing,
}

impl FaultLayer {
    /// A layer with these rules.
    pub fn new(seed: Seed, faults: Vec<ApiFault>) -> Self {
        let list = faults.into_iter().map(|fault| (fault, 0)).collect();
        let rng = StdRng::seed_from_u64(seed.hash(&["api faults"]));
        let rules = Rules {
            list,
            rng,
            struck: 0,
            writes: 0,
            written: Vec::new(),
            keep_written: false,
            killed: CancellationToken::new(),
        };
        Self { shared: Arc::new(Mutex::new(rules)) }
    }

    /// From now on keeps a description of every write, for [`FaultLayer::writes`].
    pub fn keep_writes(&self) {
        self.shared.lock().keep_written = true;
    }

    /// The writes since [`FaultLayer::keep_writes`], in the order they were sent. The n-th of a layer that kept them from the
    /// start is hit by a rule with verb `write`, any resource and `Trigger::Nth(n)`.
    pub fn writes(&self) -> Vec<Call> {
        self.shared.lock().written.clone()
    }

    /// How many writes this layer has seen, hit or not.
    pub fn write_count(&self) -> u64 {
        self.shared.lock().writes
    }

    /// Fires when a rule kills the process behind this layer. Whoever started the process must drop its tasks then; its calls
    /// stay unanswered.
    pub fn killed(&self) -> CancellationToken {
        self.shared.lock().killed.clone()
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
    fn decide(&self, method: &Method, uri: &Uri) -> Decision {
        let mut shared = self.shared.lock();
        if shared.killed.is_cancelled() {
            return Decision::Nothing;
        }
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        if shared.list.is_empty() && is_read {
            return Decision::Pass;
        }
        let call = Call::of(method, uri);
        if call.is_write() {
            shared.writes += 1;
            if shared.keep_written {
                shared.written.push(call.clone());
            }
        }
        let Rules { list, rng, struck, .. } = &mut *shared;
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
        let Some(effect) = effect else { return Decision::Pass };
        *struck += 1;
        let delay = match effect {
            ApiEffect::Delay(span) => span.draw(Seed(rng.random()), &[]),
            _ => Duration::ZERO,
        };
        Decision::Meets(effect, delay)
    }

    /// The process behind this layer is no more; never returns to its caller.
    async fn die<T>(&self) -> T {
        self.shared.lock().killed.cancel();
        std::future::pending().await
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
        let decision = self.layer.decide(request.method(), request.uri());
        let layer = self.layer.clone();
        // The clone that was made ready must be the one that is called.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(async move {
            let boxed = |response: Response<ResponseBody>| response.map(|body| body.map_err(Into::into).boxed_unsync());
            match decision {
                Decision::Pass => inner.call(request).await.map(boxed).map_err(Into::into),
                Decision::Nothing => std::future::pending().await,
                Decision::Meets(effect, delay) => match effect {
                    ApiEffect::Error(status) => Ok(error_response(status)),
                    ApiEffect::Reset => Err(ConnectionReset.into()),
                    ApiEffect::Delay(_) => {
                        tokio::time::sleep(delay).await;
                        inner.call(request).await.map(boxed).map_err(Into::into)
                    }
                    ApiEffect::LostAnswer => {
                        inner.call(request).await.map_err(Into::into)?;
                        Err(ConnectionReset.into())
                    }
                    ApiEffect::KillBefore => layer.die().await,
                    ApiEffect::KillAfter => {
                        // What the server answered, an error included, nobody will ever know.
                        let _ = inner.call(request).await;
                        layer.die().await
                    }
                },
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
