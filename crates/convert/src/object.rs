//! The objects the core hears of, by kind.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1 as k8s,
    resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
    scheduling::v1::PriorityClass,
    storage::v1::StorageClass,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::numa::NodeResourceTopology;

/// Declares the kinds once, with their API.
macro_rules! kinds {
    ($($kind:ident($object:ty) $group:literal $version:literal $(| $older:literal)*, $doc:literal;)*) => {
        /// An object of a kind that matters to scheduling.
        #[derive(Clone, Debug)]
        pub enum Object {
            $(#[doc = $doc] $kind(Arc<$object>),)*
        }

        /// A kind that matters to scheduling.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $(#[doc = $doc] $kind,)*
        }

        impl Kind {
            /// A kind by its name in any spelling: the name and the API as they are to be written.
            pub(crate) fn named(name: &str) -> Option<(&'static str, String)> {
                let known = [$((stringify!($kind), $group, $version),)*];
                let (kind, group, version) = known.into_iter().find(|(kind, ..)| kind.eq_ignore_ascii_case(name))?;
                Some((kind, if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }))
            }
        }

        impl Object {
            /// The kind of an object.
            pub fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind,)* }
            }

            /// The namespace and name of an object; the namespace is empty for kinds without.
            pub fn name(&self) -> (&str, &str) {
                let metadata = match self { $(Self::$kind(object) => &object.metadata,)* };
                (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
            }

            /// Reads an object. `None`: its kind does not matter.
            pub fn read(value: &Value) -> Result<Option<Self>, ReadError> {
                let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
                let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
                match (text("kind"), group, version) {
                    $((stringify!($kind), $group, $version $(| $older)*) => decode(value).map(|object| Some(Self::$kind(object))),)*
                    _ => Ok(None),
                }
            }
        }
    };
}

kinds! {
    Node(k8s::Node) "" "v1", "A node.";
    Pod(k8s::Pod) "" "v1", "A pod.";
    ConfigMap(k8s::ConfigMap) "" "v1", "A ConfigMap: only that it exists counts.";
    Namespace(k8s::Namespace) "" "v1", "A namespace: its labels count.";
    PersistentVolumeClaim(k8s::PersistentVolumeClaim) "" "v1", "A volume claim.";
    PersistentVolume(k8s::PersistentVolume) "" "v1", "A volume.";
    StorageClass(StorageClass) "storage.k8s.io" "v1", "A class of volumes.";
    PriorityClass(PriorityClass) "scheduling.k8s.io" "v1", "A class of priority.";
    ResourceClaim(ResourceClaim) "resource.k8s.io" "v1" | "v1beta2", "A claim on devices.";
    ResourceSlice(ResourceSlice) "resource.k8s.io" "v1" | "v1beta2", "Devices of a driver.";
    DeviceClass(DeviceClass) "resource.k8s.io" "v1" | "v1beta2", "A class of devices.";
    NodeResourceTopology(NodeResourceTopology) "topology.node.k8s.io" "v1alpha2" | "v1alpha1", "The NUMA zones of a node.";
    Queue(kai_api::Queue) "scheduling.run.ai" "v2", "A queue.";
    PodGroup(kai_api::PodGroup) "scheduling.run.ai" "v2alpha2", "A group of pods.";
    BindRequest(kai_api::BindRequest) "scheduling.run.ai" "v1alpha2", "A decision on its way.";
    Topology(kai_api::Topology) "kai.scheduler" "v1alpha1", "The levels of a cluster.";
}

/// An object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} `{name}`: {problem}")]
pub struct ReadError {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// What is wrong with it.
    pub problem: String,
}

fn decode<T: DeserializeOwned>(value: &Value) -> Result<Arc<T>, ReadError> {
    T::deserialize(value).map(Arc::new).map_err(|error| {
        let name = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let namespace = value.pointer("/metadata/namespace").and_then(Value::as_str);
        ReadError {
            kind: value.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned(),
            name: namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}")),
            problem: error.to_string(),
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_known_by_api_and_kind() {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
        let read = Object::read(&node).expect("readable").expect("known");
        assert_eq!((read.kind(), read.name()), (Kind::Node, ("", "n")));
        assert!(matches!(Object::read(&json!({"apiVersion": "apps/v1", "kind": "Deployment"})), Ok(None)));
        assert!(matches!(Object::read(&json!({"apiVersion": "example.com/v1", "kind": "Queue"})), Ok(None)));
    }

    #[test]
    fn an_object_that_cannot_be_read_is_named() {
        let queue = json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"},
            "spec": {"resources": {"gpu": {"quota": "two"}}}});
        let error = Object::read(&queue).expect_err("unreadable");
        assert!(error.to_string().starts_with("Queue `q`: "), "{error}");
    }
}
