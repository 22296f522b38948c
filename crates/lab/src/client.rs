//! `kube::Client` over an axum Router in the same process: no sockets, no retries, no TLS.

use axum::{Router, body::Body};
use http::Request;
use kube::Client;
use tower::ServiceExt;

use crate::faults::FaultLayer;

/// A client whose transport is `router`. It never retries: what the server answers is what the caller sees.
pub fn client_for(router: Router) -> Client {
    Client::new(router.map_request(|request: Request<kube::client::Body>| request.map(Body::new)), "default")
}

/// A client whose transport is `router` behind fault injection.
pub fn client_with_faults(router: Router, faults: &FaultLayer) -> Client {
    let transport = router.map_request(|request: Request<kube::client::Body>| request.map(Body::new));
    Client::new(tower::Layer::layer(faults, transport), "default")
}
