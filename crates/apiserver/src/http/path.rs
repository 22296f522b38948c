//! What a URL path means: a resource, a collection, a subresource, or one of the server's own documents.

/// A path below `/api/v1` or `/apis/GROUP/VERSION` that names a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath {
    /// API group, empty for core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Namespace, when the path has one.
    pub namespace: Option<String>,
    /// Plural resource name.
    pub plural: String,
    /// Object name.
    pub name: Option<String>,
    /// What follows the name.
    pub subresource: Option<String>,
    /// The deprecated `/watch/` prefix was used.
    pub watch: bool,
}

/// A parsed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Path {
    /// A resource.
    Resource(ResourcePath),
    /// Anything else, as its segments.
    Other(Vec<String>),
}

/// Parses the path of a request.
pub fn parse(path: &str) -> Path {
    let segments: Vec<String> = path.split('/').filter(|s| !s.is_empty()).map(|s| decode(s, Plus::Kept)).collect();
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let resource = match words.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => resource("", version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => resource(group, version, rest),
        _ => None,
    };
    resource.map_or(Path::Other(segments), Path::Resource)
}

fn resource(group: &str, version: &str, rest: &[&str]) -> Option<ResourcePath> {
    let (watch, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        rest => (false, rest),
    };
    let base = ResourcePath { group: group.to_owned(), version: version.to_owned(), watch, ..ResourcePath::default() };
    let (namespace, rest) = match rest {
        // Subresources of a namespace itself.
        ["namespaces", _, "status" | "finalize"] if group.is_empty() => (None, rest),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some((*namespace).to_owned()), rest),
        rest => (None, rest),
    };
    let (plural, rest) = rest.split_first()?;
    let (name, rest) = rest.split_first().map_or((None, rest), |(name, rest)| (Some((*name).to_owned()), rest));
    let subresource = (!rest.is_empty()).then(|| rest.join("/"));
    Some(ResourcePath { namespace, plural: (*plural).to_owned(), name, subresource, ..base })
}

/// Whether `+` means a space, as in query strings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Plus {
    /// It is a plus.
    Kept,
    /// It is a space.
    Space,
}

/// Undoes percent encoding; bytes that are no UTF-8 afterwards are replaced.
pub fn decode(text: &str, plus: Plus) -> String {
    if !text.contains(['%', '+']) {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).and_then(|h| std::str::from_utf8(h).ok());
        match (byte, hex.and_then(|h| u8::from_str_radix(h, 16).ok())) {
            (b'%', Some(value)) => {
                decoded.push(value);
                at += 3;
                continue;
            }
            (b'+', _) if plus == Plus::Space => decoded.push(b' '),
            _ => decoded.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(path: &str) -> String {
        match parse(path) {
            Path::Other(words) => format!("other {}", words.join(" ")),
            Path::Resource(p) => format!(
                "{}/{} {:?} {} {:?} {:?}{}",
                p.group,
                p.version,
                p.namespace,
                p.plural,
                p.name,
                p.subresource,
                if p.watch { " watch" } else { "" }
            ),
        }
    }

    #[test]
    fn paths_name_resources_as_in_kubernetes() {
        let cases = [
            ("/api/v1/pods", "/v1 None pods None None"),
            ("/api/v1/namespaces", "/v1 None namespaces None None"),
            ("/api/v1/namespaces/a", "/v1 None namespaces Some(\"a\") None"),
            ("/api/v1/namespaces/a/finalize", "/v1 None namespaces Some(\"a\") Some(\"finalize\")"),
            ("/api/v1/namespaces/a/pods/b/log", "/v1 Some(\"a\") pods Some(\"b\") Some(\"log\")"),
            ("/apis/apps/v1/namespaces/a/deployments/", "apps/v1 Some(\"a\") deployments None None"),
            ("/api/v1/watch/namespaces/a/pods", "/v1 Some(\"a\") pods None None watch"),
            ("/apis/rbac/v1/clusterroles/system%3Anode", "rbac/v1 None clusterroles Some(\"system:node\") None"),
            ("/apis/apps/v1", "other apis apps v1"),
            ("/version", "other version"),
            ("/", "other "),
        ];
        for (path, expected) in cases {
            assert_eq!(described(path), expected, "{path}");
        }
    }

    #[test]
    fn broken_percent_signs_are_kept() {
        assert_eq!(decode("a%2", Plus::Kept), "a%2");
        assert_eq!(decode("%zz+%20", Plus::Space), "%zz  ");
    }
}
