//! What each component asks of the API server: recorded from its client, compared with the rights it says it needs.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use kai_cli::control_plane::rbac::Holder;
use kai_kit::rbac::Call;
use kube::{Client, client::Body};
use tower::BoxError;

/// A request of one kind that was really made, so that it can be made again.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub uri: Uri,
    /// How many of its kind were made.
    pub count: u64,
    /// How many of them were answered with 403.
    pub forbidden: u64,
}

/// All calls of all components so far. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    seen: Arc<Mutex<BTreeMap<(Holder, Call), Sample>>>,
}

impl Calls {
    /// The same client, with its calls recorded as those of `holder`.
    pub fn record(&self, holder: Holder, client: Client) -> Client {
        let calls = self.clone();
        let namespace = client.default_namespace().to_owned();
        let transport = tower::service_fn(move |request: Request<Body>| {
            let (calls, client) = (calls.clone(), client.clone());
            async move {
                let (method, uri) = (request.method().clone(), request.uri().clone());
                let (parts, mut body) = client.send(request).await.map_err(BoxError::from)?.into_parts();
                let mut forbidden = false;
                if parts.status == StatusCode::FORBIDDEN {
                    let bytes = body.collect().await.map_err(BoxError::from)?.to_bytes();
                    // A namespace that is going takes nothing new, whoever asks.
                    forbidden = !String::from_utf8_lossy(&bytes).contains("because it is being terminated");
                    body = Body::from(bytes.to_vec());
                }
                if let Some(call) = Call::of(&method, &uri) {
                    calls.note(holder, call, method, uri, forbidden);
                }
                Ok::<_, BoxError>(Response::from_parts(parts, body))
            }
        });
        Client::new(transport, namespace)
    }

    fn note(&self, holder: Holder, call: Call, method: Method, uri: Uri, forbidden: bool) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let sample = seen.entry((holder, call)).or_insert(Sample { method, uri, count: 0, forbidden: 0 });
        sample.count += 1;
        sample.forbidden += u64::from(forbidden);
    }

    /// What one component has asked.
    pub fn of(&self, holder: Holder) -> Vec<(Call, Sample)> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let own = seen.iter().filter(|((other, _), _)| *other == holder);
        own.map(|((_, call), sample)| (call.clone(), sample.clone())).collect()
    }
}
