//! What an HTTP request means to an API server: verb, resource, subresource.

use http::{Method, Uri};

use super::ApiFault;

/// The verb and resource of a request; empty strings for paths that are not about objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// `get`, `list`, `watch`, …
    pub verb: &'static str,
    /// Plural name, with `/subresource` if there is one.
    pub resource: String,
}

impl Call {
    /// Reads a request line.
    pub fn of(method: &Method, uri: &Uri) -> Self {
        let segments: Vec<&str> = uri.path().split('/').filter(|segment| !segment.is_empty()).collect();
        let rest = match segments.as_slice() {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
            _ => &[],
        };
        // `namespaces/x/pods/y`, but `namespaces/x` and `namespaces/x/status` are about the namespace itself.
        let rest = match rest {
            ["namespaces", _, "status" | "finalize"] => rest,
            ["namespaces", _, inner @ ..] if !inner.is_empty() => inner,
            other => other,
        };
        let (resource, named) = match rest {
            [] => (String::new(), false),
            [resource] => ((*resource).to_owned(), false),
            [resource, _] => ((*resource).to_owned(), true),
            [resource, _, subresource @ ..] => (format!("{resource}/{}", subresource.join("/")), true),
        };
        let watch = uri.query().is_some_and(|query| {
            query.split('&').any(|parameter| matches!(parameter, "watch=true" | "watch=1" | "watch"))
        });
        let verb = match method.as_str() {
            "GET" | "HEAD" if watch => "watch",
            "GET" | "HEAD" if named => "get",
            "GET" | "HEAD" => "list",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" if named => "delete",
            "DELETE" => "deletecollection",
            _ => "",
        };
        Self { verb, resource }
    }

    /// Whether a rule is about this call. Paths that are not about objects are never hit.
    pub fn matches(&self, fault: &ApiFault) -> bool {
        let resource_matches = match fault.resource.as_deref() {
            None | Some("*") => true,
            Some(pattern) => match pattern.strip_suffix("/*") {
                Some(base) => self.resource.split_once('/').is_some_and(|(resource, _)| resource == base),
                None => self.resource == pattern,
            },
        };
        let verb_matches = fault.verb.as_deref().is_none_or(|verb| verb == "*" || verb == self.verb);
        !self.resource.is_empty() && resource_matches && verb_matches
    }
}
