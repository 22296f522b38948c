//! Who asks the API server for what, and how often: a client that counts.

use std::{collections::BTreeMap, sync::Arc};

use futures::FutureExt as _;
use kube::{Client, client::Body};
use parking_lot::Mutex;

/// How often each component made each kind of request. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Calls(Arc<Mutex<BTreeMap<(&'static str, String), u32>>>);

impl Calls {
    /// The same way to the server, counted under a component's name.
    pub fn counted(&self, client: Client, component: &'static str) -> Client {
        let (calls, namespace) = (self.clone(), client.default_namespace().to_owned());
        let transport = tower::service_fn(move |request: http::Request<Body>| {
            let call = name(request.method(), request.uri().path(), request.uri().query().unwrap_or_default());
            *calls.0.lock().entry((component, call)).or_default() += 1;
            let client = client.clone();
            async move { client.send(request).await }.boxed()
        });
        Client::new(transport, namespace)
    }

    /// Component, request and how often per pod.
    pub fn per_pod(&self, pods: u32) -> Vec<(String, String, f64)> {
        let calls = self.0.lock();
        let each = calls.iter().map(|((component, call), count)| {
            ((*component).to_owned(), call.clone(), f64::from(*count) / f64::from(pods.max(1)))
        });
        each.collect()
    }
}

/// `POST pods/binding`: the verb and the resource without names.
fn name(method: &http::Method, path: &str, query: &str) -> String {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let rest = match segments.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        other => other,
    };
    let rest = match rest {
        ["namespaces", _, resource @ ..] if !resource.is_empty() => resource,
        other => other,
    };
    let resource = match rest {
        [resource, _, subresource, ..] => format!("{resource}/{subresource}"),
        [resource, ..] => (*resource).to_owned(),
        [] => path.to_owned(),
    };
    let watches = query.split('&').any(|part| part.starts_with("watch="));
    let verb = match (method.as_str(), rest.len()) {
        ("GET", _) if watches => "WATCH",
        ("GET", 1) => "LIST",
        (other, _) => other,
    };
    format!("{verb} {resource}")
}

/// Whether a request of this name changes something.
pub fn is_write(call: &str) -> bool {
    !["GET", "LIST", "WATCH"].iter().any(|verb| call.starts_with(verb))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn requests_are_named_by_verb_and_resource() {
        assert_eq!(name(&Method::POST, "/api/v1/namespaces/a/pods/b/binding", ""), "POST pods/binding");
        assert_eq!(name(&Method::GET, "/api/v1/pods", "watch=true&a=b"), "WATCH pods");
        assert_eq!(name(&Method::GET, "/apis/scheduling.run.ai/v2/queues", ""), "LIST queues");
        assert_eq!(name(&Method::PATCH, "/apis/a/v1/namespaces/b/podgroups/c/status", ""), "PATCH podgroups/status");
        assert_eq!(name(&Method::PUT, "/api/v1/namespaces/a", ""), "PUT namespaces");
        assert!(is_write("POST pods") && !is_write("WATCH pods"));
    }
}
