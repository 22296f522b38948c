//! The way of each process to the API server: counted, recorded, and struck at a chosen write.
//!
//! Every start of a process gets a transport of its own, so that a process that was killed never speaks again. Counts go on across
//! restarts: the n-th write of a process is the n-th of all its lives since the strike was armed.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::Router;
use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use kai_cli::control_plane::Part;
use kai_kit::rbac;
use kai_lab::{
    faults::{ApiEffect, ApiFault, Call, FaultLayer, Trigger},
    seed::Seed,
};
use kube::Client;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service as _, ServiceExt as _};

/// Who speaks to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// A component.
    Part(Part),
    /// A second scheduler beside the first.
    Rival,
    /// The programs of reservation pods.
    Reservation,
}

impl std::fmt::Display for Who {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Part(part) => part.fmt(formatter),
            Self::Rival => formatter.write_str("second scheduler"),
            Self::Reservation => formatter.write_str("reservation program"),
        }
    }
}

/// Something to be done when a write is made.
pub type Deed = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// What meets the chosen write.
#[derive(Clone)]
pub enum Blow {
    /// A fault of the call.
    Fault(ApiEffect),
    /// Something happens before the server gets it.
    Before(Deed),
    /// Something happens after the server did it and before the caller knows.
    After(Deed),
}

/// The n-th write of a process, from 1, and what meets it.
#[derive(Clone)]
pub struct Strike {
    pub who: Who,
    pub nth: usize,
    pub blow: Blow,
}

#[derive(Default)]
struct State {
    /// The transports of all lives of each process, the present one last.
    layers: BTreeMap<Who, Vec<FaultLayer>>,
    /// Rules that every life begins with.
    rules: Vec<ApiFault>,
    /// How many lives there were, for the seed of each.
    lives: u64,
    requests: BTreeMap<Who, u64>,
    writes: BTreeMap<Who, Vec<String>>,
    strike: Option<Strike>,
    struck: Option<String>,
    /// A right that a process lacks.
    denied: Option<(Who, rbac::Right)>,
    /// What each process asked of the server, as authorization sees it, and how often it was refused.
    asked: BTreeMap<Who, BTreeMap<rbac::Call, u64>>,
}

/// All processes. Clones share everything.
#[derive(Clone)]
pub struct Processes {
    router: Router,
    seed: Seed,
    state: Arc<Mutex<State>>,
}

impl Processes {
    /// Processes of an API server.
    pub fn new(router: Router, seed: Seed) -> Self {
        Self { router, seed, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client for a new life of a process, and what fires when a fault kills it.
    pub fn begin(&self, who: Who) -> (Client, CancellationToken) {
        let layer = {
            let mut state = self.state();
            state.lives += 1;
            let seed = Seed(self.seed.hash(&["life", &state.lives.to_string()]));
            let layer = FaultLayer::new(seed, state.rules.clone());
            state.layers.entry(who).or_default().push(layer.clone());
            layer
        };
        let killed = layer.killed();
        let transport =
            self.router.clone().map_request(|request: Request<kube::client::Body>| request.map(axum::body::Body::new));
        let transport = tower::Layer::layer(&layer, transport);
        let processes = self.clone();
        let counted = tower::service_fn(move |request: Request<kube::client::Body>| {
            if let Some(refusal) = processes.authorize(who, &request) {
                return futures::future::ready(Ok::<_, BoxError>(refusal)).boxed();
            }
            let blow = processes.note(who, &request, &layer);
            let mut transport = transport.clone();
            // Without a deed before it, the call is made at once and not later: which call a rule hits is decided here.
            match blow {
                Some(Blow::Before(deed)) => async move {
                    deed().await;
                    transport.call(request).await
                }
                .boxed(),
                Some(Blow::After(deed)) => {
                    let call = transport.call(request);
                    async move {
                        let answer = call.await;
                        deed().await;
                        answer
                    }
                    .boxed()
                }
                Some(Blow::Fault(_)) | None => transport.call(request),
            }
        });
        (Client::new(counted, "default"), killed)
    }

    /// Asks for the right to a call; gives the answer of an API server whose authorization does not grant it.
    fn authorize(
        &self,
        who: Who,
        request: &Request<kube::client::Body>,
    ) -> Option<Response<UnsyncBoxBody<Bytes, BoxError>>> {
        let mut state = self.state();
        let denied = state.denied.clone().filter(|(denied, _)| *denied == who);
        let Some(call) = rbac::Call::of(request.method(), request.uri()) else {
            // Only about what was refused is it asked.
            let review = denied.filter(|_| request.uri().path().ends_with("/selfsubjectaccessreviews"));
            let body = serde_json::json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "metadata": {}, "spec": {}, "status": {"allowed": false}});
            return review.map(|_| answer(StatusCode::CREATED, &body));
        };
        let refused = denied.is_some_and(|(_, right)| right.allows(&call));
        *state.asked.entry(who).or_default().entry(call.clone()).or_default() += u64::from(refused);
        refused.then(|| answer(StatusCode::FORBIDDEN, &forbidden(who, &call)))
    }

    /// Takes a right from a process, or gives it back.
    pub fn deny(&self, denied: Option<(Who, rbac::Right)>) {
        let mut state = self.state();
        state.denied = denied;
        state.asked.clear();
    }

    /// What a process asked of the server since rights last changed, and how often it was refused.
    pub fn asked(&self, who: Who) -> BTreeMap<rbac::Call, u64> {
        self.state().asked.get(&who).cloned().unwrap_or_default()
    }

    /// Notes a call; gives what meets it. Faults are put into the layer.
    fn note(&self, who: Who, request: &Request<kube::client::Body>, layer: &FaultLayer) -> Option<Blow> {
        let call = Call::of(request.method(), request.uri());
        let mut state = self.state();
        *state.requests.entry(who).or_default() += 1;
        if !call.is_write() || call.resource == "leases" {
            return None;
        }
        let writes = state.writes.entry(who).or_default();
        writes.push(call.to_string());
        let count = writes.len();
        let strike = state.strike.take_if(|strike| strike.who == who && strike.nth == count)?;
        state.struck = Some(call.to_string());
        if let Blow::Fault(effect) = strike.blow {
            let mut rules = vec![ApiFault { verb: None, resource: None, trigger: Trigger::Nth(1), effect }];
            rules.extend(state.rules.clone());
            layer.set(rules);
        }
        Some(strike.blow)
    }

    /// Forgets counts and records, and arms a strike.
    pub fn arm(&self, strike: Option<Strike>) {
        let mut state = self.state();
        state.writes.clear();
        state.requests.clear();
        state.struck = None;
        state.strike = strike;
    }

    /// The write that was struck.
    pub fn struck(&self) -> Option<String> {
        self.state().struck.clone()
    }

    /// Rules for every process, now and after restarts.
    pub fn rule(&self, rules: &[ApiFault]) {
        let mut state = self.state();
        state.rules = rules.to_vec();
        for layer in state.layers.values().flatten() {
            layer.set(rules.to_vec());
        }
    }

    /// The writes of each process since they were last forgotten, leases aside.
    pub fn writes(&self) -> BTreeMap<Who, Vec<String>> {
        self.state().writes.clone()
    }

    /// How many writes all processes made since they were last forgotten. That something lasts is counted up on its event once a
    /// minute, which moves nothing.
    pub fn write_count(&self) -> usize {
        self.state().writes.values().flatten().filter(|write| !write.starts_with("patch events")).count()
    }

    /// How many requests of any kind a process made since they were last forgotten.
    pub fn requests(&self, who: Who) -> u64 {
        self.state().requests.get(&who).copied().unwrap_or(0)
    }

    /// How many requests each process made since they were last forgotten.
    pub fn all_requests(&self) -> BTreeMap<String, u64> {
        self.state().requests.iter().map(|(who, count)| (who.to_string(), *count)).collect()
    }

    /// Fires when the present life of a process is ended by a fault.
    pub fn killed(&self, who: Who) -> Option<CancellationToken> {
        self.state().layers.get(&who).and_then(|lives| lives.last()).map(FaultLayer::killed)
    }
}

fn answer(code: StatusCode, body: &serde_json::Value) -> Response<UnsyncBoxBody<Bytes, BoxError>> {
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

/// The refusal of a real API server, word for word.
fn forbidden(who: Who, call: &rbac::Call) -> serde_json::Value {
    let (verb, group, resource) = (call.verb, &call.group, &call.resource);
    let kind = resource.split('/').next().unwrap_or_default();
    let full = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    let place = match &call.namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    let message = format!(
        "{full} is forbidden: User \"system:serviceaccount:kai-scheduler:{who}\" cannot {verb} resource \"{resource}\" in API group \
         \"{group}\" {place}"
    );
    serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": "Forbidden", "details": {"group": group, "kind": kind}, "code": 403})
}
