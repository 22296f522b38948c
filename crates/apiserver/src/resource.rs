//! What a resource is: its names, scope, verbs and schema, whether built in or defined by a CustomResourceDefinition.

use std::sync::Arc;

use serde_json::Value;

use crate::schema::Schema;

/// Whether objects of a resource live in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One per cluster.
    Cluster,
    /// One per namespace.
    Namespaced,
}

/// Group, version and kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvk {
    /// API group, empty for core.
    pub group: String,
    /// Version, such as `v1`.
    pub version: String,
    /// Kind, such as `Pod`.
    pub kind: String,
}

impl Gvk {
    /// From three words.
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }

    /// The `apiVersion` field: `v1` or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// One column of `kubectl get`, read from the object by JSONPath (CRD `additionalPrinterColumns`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrinterColumn {
    /// Header.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    /// OpenAPI format, may be empty.
    pub format: String,
    /// Help text, may be empty.
    pub description: String,
    /// 0 is always shown, more only with `-o wide`.
    pub priority: i64,
    /// JSONPath such as `.spec.queue`.
    pub json_path: String,
}

/// Where the replica counts of a custom resource are, for its `scale` subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// Dotted path below the object, such as `.spec.replicas`.
    pub spec_replicas: String,
    /// As above, in status.
    pub status_replicas: String,
    /// Path of the label selector in string form, if any.
    pub label_selector: Option<String>,
}

/// A subresource that a resource serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// Last path segment, such as `status`.
    pub name: String,
    /// The kind its bodies have (`Scale`, `Binding`, or the parent's own).
    pub kind: Gvk,
    /// Verbs it takes.
    pub verbs: Vec<String>,
}

/// Where a resource comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Part of Kubernetes.
    BuiltIn,
    /// Defined by the CustomResourceDefinition of this name.
    Custom {
        /// `metadata.name` of the definition.
        definition: String,
        /// Set when the `scale` subresource is on.
        scale: Option<ScalePaths>,
        /// Columns besides NAME (and AGE when this is empty).
        columns: Vec<PrinterColumn>,
        /// JSON paths of `selectableFields`.
        selectable_fields: Vec<String>,
        /// What every answer in a deprecated version warns of.
        deprecation: Option<String>,
    },
}

/// One served resource in one version.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Group, version, kind.
    pub gvk: Gvk,
    /// Plural, as in the URL.
    pub plural: String,
    /// Singular, for kubectl.
    pub singular: String,
    /// Kind of a list, such as `PodList`.
    pub list_kind: String,
    /// Short names, such as `po`.
    pub short_names: Vec<String>,
    /// Categories, such as `all`.
    pub categories: Vec<String>,
    /// Scope.
    pub scope: Scope,
    /// Verbs of the resource itself.
    pub verbs: Vec<String>,
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// Structural schema of the objects; `None` accepts anything.
    pub schema: Option<Arc<Schema>>,
    /// Built in or custom.
    pub origin: Origin,
}

impl Resource {
    /// Whether there is a subresource of this name.
    pub fn has_subresource(&self, name: &str) -> bool {
        self.subresources.iter().any(|s| s.name == name)
    }

    /// `plural` or `plural.group`: the key under which all versions share their objects.
    pub fn storage_key(&self) -> String {
        if self.gvk.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.gvk.group) }
    }

    /// The error subject for an object of this resource.
    pub fn subject<'a>(&'a self, name: &'a str) -> crate::status::Subject<'a> {
        crate::status::Subject { group: &self.gvk.group, resource: &self.plural, kind: &self.gvk.kind, name }
    }
}

/// Reads a dotted path (`spec.nodeName`) from an object.
pub fn lookup<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.trim_start_matches('.').split('.').try_fold(object, |value, segment| value.get(segment))
}
