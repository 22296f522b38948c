//! What a component may do, as data: the manifests are generated from it and the tests take it away piece by piece.

use axum::http::{Method, Uri};
use k8s_openapi::api::rbac::v1::PolicyRule;

/// Where a rule holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In the whole cluster.
    Cluster,
    /// In one namespace.
    Namespace(String),
}

/// A right that a component needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// Where.
    pub scope: Scope,
    /// API group; empty for the core.
    pub group: &'static str,
    /// Plural with subresource, such as `pods/binding`.
    pub resource: &'static str,
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// What for: a comment in the manifest.
    pub why: &'static str,
}

impl Right {
    /// A right in the whole cluster.
    pub const fn cluster(
        group: &'static str,
        resource: &'static str,
        verbs: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self { scope: Scope::Cluster, group, resource, verbs, why }
    }

    /// A right in one namespace.
    pub fn in_namespace(
        namespace: &str,
        group: &'static str,
        resource: &'static str,
        verbs: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self { scope: Scope::Namespace(namespace.to_owned()), group, resource, verbs, why }
    }

    /// The rule in Kubernetes' words.
    #[must_use]
    pub fn rule(&self) -> PolicyRule {
        PolicyRule {
            api_groups: Some(vec![self.group.to_owned()]),
            resources: Some(vec![self.resource.to_owned()]),
            verbs: self.verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..PolicyRule::default()
        }
    }

    /// Whether this right allows a call.
    #[must_use]
    pub fn allows(&self, call: &Call) -> bool {
        let here = match &self.scope {
            Scope::Cluster => true,
            Scope::Namespace(namespace) => call.namespace.as_ref() == Some(namespace),
        };
        here && self.group == call.group && self.resource == call.resource && self.verbs.contains(&call.verb)
    }
}

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

impl Call {
    /// Reads a request line; nothing for paths that are not about objects (discovery, version, health) and for questions about
    /// oneself, which everybody may ask.
    #[must_use]
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
            [] | ["selfsubjectaccessreviews"] => return None,
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
}

/// The verbs of somebody who keeps a mirror.
pub const READ: &[&str] = &["get", "list", "watch"];

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
        assert_eq!(call(Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"), None);
    }

    #[test]
    fn a_right_in_a_namespace_allows_nothing_elsewhere() {
        let right = Right::in_namespace("home", "", "pods", &["get"], "test");
        assert!(right.allows(&call(Method::GET, "/api/v1/namespaces/home/pods/p").unwrap()));
        assert!(!right.allows(&call(Method::GET, "/api/v1/namespaces/away/pods/p").unwrap()));
        assert!(!right.allows(&call(Method::GET, "/api/v1/pods").unwrap()));
    }
}
