//! What a pod belongs to: references, owners and the chain of them.

use std::{collections::BTreeMap, fmt, sync::Arc};

use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use serde_json::Value;

/// Which object is meant, in the namespace of the pod unless its kind has none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Such as `apps/v1`.
    pub api_version: String,
    /// Such as `Deployment`.
    pub kind: String,
    /// The name.
    pub name: String,
}

impl Reference {
    /// The API group, empty for the core.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// The version within the group.
    pub fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(&self.api_version, |(_, version)| version)
    }
}

impl From<&OwnerReference> for Reference {
    fn from(reference: &OwnerReference) -> Self {
        Self { api_version: reference.api_version.clone(), kind: reference.kind.clone(), name: reference.name.clone() }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} `{}`", self.kind, self.name)
    }
}

/// An object above a pod, as far as its metadata goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Owner {
    /// Which object it is.
    pub reference: Reference,
    /// Its identity.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// What it belongs to itself.
    pub owners: Vec<OwnerReference>,
}

impl Owner {
    /// From the metadata of an object.
    pub fn new(reference: Reference, metadata: ObjectMeta) -> Self {
        Self {
            reference,
            uid: metadata.uid.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            owners: metadata.owner_references.unwrap_or_default(),
        }
    }

    /// A pod that belongs to itself.
    pub fn of_pod(pod: &Pod) -> Self {
        let name = pod.metadata.name.clone().unwrap_or_default();
        Self::new(Reference { api_version: "v1".into(), kind: "Pod".into(), name }, pod.metadata.clone())
    }

    /// A reference from what it owns, without any flags: nobody waits for a group to be deleted.
    pub fn as_owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.reference.api_version.clone(),
            kind: self.reference.kind.clone(),
            name: self.reference.name.clone(),
            uid: self.uid.clone(),
            ..OwnerReference::default()
        }
    }
}

/// The reference to follow: the controller's, else the first.
pub(crate) fn next_owner(references: &[OwnerReference]) -> Option<&OwnerReference> {
    references.iter().find(|reference| reference.controller == Some(true)).or_else(|| references.first())
}

/// A pod with everything above it.
#[derive(Clone, Debug)]
pub struct Workload<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its owners from the nearest up; the pod itself if it has none that can be read.
    pub owners: &'a [Arc<Owner>],
    /// Which of the owners the group is for.
    pub top: &'a Owner,
    /// Objects that the kind asked for; nothing for those that are not there.
    pub objects: &'a BTreeMap<Reference, Option<Arc<Value>>>,
}

impl<'a> Workload<'a> {
    /// The same workload, for one of the owners below the top.
    #[must_use]
    pub fn with_top(&self, top: &'a Owner) -> Self {
        Self { top, ..self.clone() }
    }

    /// An object that was asked for.
    pub fn object(&self, reference: &Reference) -> Option<&'a Value> {
        self.objects.get(reference)?.as_deref()
    }

    /// The object that the group is for, then the other owners from the highest down.
    pub fn from_top(&self) -> impl Iterator<Item = &'a Owner> {
        let top = self.top;
        let rest = self.owners.iter().rev().map(AsRef::as_ref).filter(move |owner: &&Owner| owner.uid != top.uid);
        std::iter::once(top).chain(rest)
    }

    /// The owners from the nearest up.
    pub fn from_below(&self) -> impl Iterator<Item = &'a Owner> {
        self.owners.iter().map(AsRef::as_ref)
    }

    /// The namespace of all of this.
    pub fn namespace(&self) -> &'a str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }
}

/// An entry of an optional map that is not empty.
pub(crate) fn entry<'a>(map: Option<&'a BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    map?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}
