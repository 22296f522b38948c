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
    /// Namespace of the object; empty if it has none.
    pub namespace: String,
    /// Name of the object; empty for lists and creations, whose name is in the body.
    pub name: String,
}

impl std::fmt::Display for Call {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}", self.verb, self.resource)?;
        match (self.namespace.as_str(), self.name.as_str()) {
            ("", "") => Ok(()),
            ("", name) => write!(formatter, " {name}"),
            (namespace, name) => write!(formatter, " {namespace}/{name}"),
        }
    }
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
        let (namespace, rest) = match rest {
            ["namespaces", _, "status" | "finalize"] => ("", rest),
            ["namespaces", namespace, inner @ ..] if !inner.is_empty() => (*namespace, inner),
            other => ("", other),
        };
        let (resource, name) = match rest {
            [] => (String::new(), None),
            [resource] => ((*resource).to_owned(), None),
            [resource, name] => ((*resource).to_owned(), Some(*name)),
            [resource, name, subresource @ ..] => (format!("{resource}/{}", subresource.join("/")), Some(*name)),
        };
        let named = name.is_some();
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
        Self { verb, resource, namespace: namespace.to_owned(), name: name.unwrap_or_default().to_owned() }
    }

    /// Whether the call changes something.
    pub fn is_write(&self) -> bool {
        !self.resource.is_empty() && matches!(self.verb, "create" | "update" | "patch" | "delete" | "deletecollection")
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
        let verb_matches = fault.verb.as_deref().is_none_or(|verb| match verb {
            "*" => true,
            "write" => self.is_write(),
            verb => verb == self.verb,
        });
        !self.resource.is_empty() && resource_matches && verb_matches
    }
}
