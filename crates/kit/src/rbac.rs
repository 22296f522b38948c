//! What a component may do, as data: the manifests are generated from it and the tests take it away piece by piece.

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
}

/// The verbs of somebody who keeps a mirror.
pub const READ: &[&str] = &["get", "list", "watch"];
