//! A client that ends with its process: once the lifeline is cut, nothing it sends arrives and nothing it waits for comes back.
//!
//! Components leave tasks in the background, and some of them say goodbye when they are told to end: a lease is given back, the last
//! events are written. A process that is killed does neither. With its lifeline cut, whatever is still running can reach nobody.

use futures::FutureExt as _;
use kai_kit::refusals::Refusals;
use kube::{Client, client::Body};
use tokio_util::sync::CancellationToken;

/// What a request meets after the end of its process.
#[derive(Debug, thiserror::Error)]
#[error("the process was killed")]
pub struct Killed;

/// The same way to the API server, until `cut`. Rights that are refused are noted.
pub fn guard(client: Client, cut: CancellationToken, refusals: Refusals) -> Client {
    let namespace = client.default_namespace().to_owned();
    let transport = tower::service_fn(move |request: http::Request<Body>| {
        let (client, cut, refusals) = (client.clone(), cut.clone(), refusals.clone());
        let (method, uri) = (request.method().clone(), request.uri().clone());
        async move {
            if cut.is_cancelled() {
                return Err(tower::BoxError::from(Killed));
            }
            tokio::select! {
                biased;
                () = cut.cancelled() => Err(Killed.into()),
                answer = client.send(request) => Ok(refusals.look(&method, &uri, answer?).await),
            }
        }
        .boxed()
    });
    Client::new(transport, namespace)
}
