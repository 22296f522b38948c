//! What each component asks of the API server: recorded from its client, compared with the rights it says it needs.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use http::{Method, Request, StatusCode, Uri};
use kai_cli::control_plane::rbac::Holder;
use kai_kit::rbac::{Right, Scope};
use kube::{Client, client::Body};

/// A request as authorization sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// `get`, `list`, `watch`, …
    pub verb: &'static str,
    /// API group; empty for the core.
    pub group: String,
    /// Plural, with `/subresource` if there is one.
    pub resource: String,
    /// The namespace; none for the whole cluster.
    pub namespace: Option<String>,
}

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
                let answer = client.send(request).await;
                let forbidden = answer.as_ref().is_ok_and(|answer| answer.status() == StatusCode::FORBIDDEN);
                if let Some(call) = Call::of(&method, &uri) {
                    calls.note(holder, call, method, uri, forbidden);
                }
                answer
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

impl Call {
    /// Reads a request line; nothing for paths that are not about objects (discovery, version, health).
    pub fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let segments: Vec<&str> = uri.path().split('/').filter(|segment| !segment.is_empty()).collect();
        let (group, rest) = match segments.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => return None,
        };
        // `namespaces/x` and its own subresources are about the namespace itself.
        let (namespace, rest) = match rest {
            ["namespaces", name] | ["namespaces", name, "status" | "finalize"] => (Some((*name).to_owned()), rest),
            ["namespaces", name, inner @ ..] => (Some((*name).to_owned()), inner),
            other => (None, other),
        };
        let (resource, named) = match rest {
            [] => return None,
            [resource] => ((*resource).to_owned(), false),
            [resource, _] => ((*resource).to_owned(), true),
            [resource, _, subresource @ ..] => (format!("{resource}/{}", subresource.join("/")), true),
        };
        let watch =
            uri.query().is_some_and(|query| query.split('&').any(|part| matches!(part, "watch=true" | "watch=1")));
        let verb = match method.as_str() {
            "GET" | "HEAD" if watch => "watch",
            "GET" | "HEAD" if named => "get",
            "GET" | "HEAD" => "list",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" if named => "delete",
            "DELETE" => "deletecollection",
            _ => return None,
        };
        Some(Self { verb, group: group.to_owned(), resource, namespace })
    }

    /// Whether a right allows this.
    pub fn is_allowed_by(&self, right: &Right) -> bool {
        let here = match &right.scope {
            Scope::Cluster => true,
            Scope::Namespace(namespace) => self.namespace.as_ref() == Some(namespace),
        };
        here && right.group == self.group && right.resource == self.resource && right.verbs.contains(&self.verb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: Method, uri: &'static str) -> Option<Call> {
        Call::of(&method, &Uri::from_static(uri))
    }

    #[test]
    fn a_request_line_is_read_as_authorization_reads_it() {
        let patch =
            call(Method::PATCH, "/apis/scheduling.run.ai/v2alpha2/namespaces/a/podgroups/g/status?x=1").unwrap();
        assert_eq!(
            (patch.verb, patch.group.as_str(), patch.resource.as_str()),
            ("patch", "scheduling.run.ai", "podgroups/status")
        );
        assert_eq!(patch.namespace.as_deref(), Some("a"));
        let watch = call(Method::GET, "/api/v1/nodes?watch=true").unwrap();
        assert_eq!((watch.verb, watch.resource.as_str(), watch.namespace), ("watch", "nodes", None));
        assert_eq!(call(Method::POST, "/api/v1/namespaces/a/pods/p/binding").unwrap().resource, "pods/binding");
        assert_eq!(call(Method::GET, "/version"), None);
        assert_eq!(call(Method::GET, "/apis/apps/v1"), None);
    }

    #[test]
    fn a_right_in_a_namespace_allows_nothing_elsewhere() {
        let right = Right::in_namespace("home", "", "pods", &["get"], "test");
        assert!(call(Method::GET, "/api/v1/namespaces/home/pods/p").unwrap().is_allowed_by(&right));
        assert!(!call(Method::GET, "/api/v1/namespaces/away/pods/p").unwrap().is_allowed_by(&right));
        assert!(!call(Method::GET, "/api/v1/pods").unwrap().is_allowed_by(&right));
    }
}
