//! A client that ends with its process: once the lifeline is cut, nothing it sends arrives and nothing it waits for comes back.
//!
//! Components leave tasks in the background, and some of them say goodbye when they are told to end: a lease is given back, the last
//! events are written. A process that is killed does neither. With its lifeline cut, whatever is still running can reach nobody.

use std::task::{Context, Poll};

use axum::body::{Body as AnyBody, Bytes, HttpBody};
use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response};
use kai_kit::{refusals::Refusals, wire};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Layer, Service};

/// What a request meets after the end of its process.
#[derive(Debug, thiserror::Error)]
#[error("the process was killed")]
pub struct Killed;

/// A way to the API server.
#[derive(Clone)]
pub struct Way {
    client: Client,
    /// What the client was made from, if that is known.
    config: Option<Box<Config>>,
}

impl From<Client> for Way {
    fn from(client: Client) -> Self {
        Self { client, config: None }
    }
}

impl TryFrom<Config> for Way {
    type Error = kube::Error;

    fn try_from(config: Config) -> Result<Self, kube::Error> {
        let client = match wire::builder(&config)? {
            Some(builder) => builder.build(),
            None => config.clone().try_into()?,
        };
        Ok(Self { client, config: Some(Box::new(config)) })
    }
}

impl Way {
    /// A client that leads there.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The same, until `cut`. Rights that are refused are noted.
    pub fn guarded(self, cut: CancellationToken, refusals: Refusals) -> Client {
        let lifeline = Lifeline { cut, refusals };
        // Within a client of its own if possible: around another it would be a second queue and a second task in the way of each request.
        if let Some(config) = self.config {
            if let Ok(Some(builder)) = wire::builder(&config) {
                return builder.with_layer(&lifeline).build();
            }
            if let Ok(builder) = ClientBuilder::try_from(*config) {
                return builder.with_layer(&lifeline).build();
            }
        }
        let (client, namespace) = (self.client.clone(), self.client.default_namespace().to_owned());
        let send = tower::service_fn(move |request| {
            let client = client.clone();
            async move { client.send(request).await }
        });
        Client::new(lifeline.layer(send), namespace)
    }
}

/// What a process hangs on.
#[derive(Clone)]
struct Lifeline {
    cut: CancellationToken,
    refusals: Refusals,
}

impl<S> Layer<S> for Lifeline {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner, lifeline: self.clone() }
    }
}

struct Guarded<S> {
    inner: S,
    lifeline: Lifeline,
}

impl<S, B> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<AnyBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<AnyBody>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Lifeline { cut, refusals } = self.lifeline.clone();
        if cut.is_cancelled() {
            return std::future::ready(Err(Killed.into())).boxed();
        }
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let answer = self.inner.call(request).map(|answer| match answer {
            Ok(answer) => Ok(answer.map(AnyBody::new)),
            Err(error) => Err(error.into()),
        });
        async move {
            tokio::select! {
                biased;
                () = cut.cancelled() => Err(Killed.into()),
                answer = answer => Ok(refusals.look(&method, &uri, answer?).await),
            }
        }
        .boxed()
    }
}
