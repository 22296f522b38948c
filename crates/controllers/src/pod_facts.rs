//! All that is kept of a pod: its group, where it is and what it asks for.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kai_api::names::annotations;
use kai_convert::Asked;

/// What counts of a pod that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// Name of its group, in the same namespace.
    pub group: String,
    /// The node whose resources it holds; a pod without one only asks.
    pub node: Option<String>,
    /// What it asks for; pods that ask for the same share it.
    pub asked: Arc<Asked>,
    /// Its claims on devices, as `namespace/name`.
    pub claims: Vec<String>,
}

impl PodFacts {
    /// Reads a pod. Nothing for one that has ended or belongs to no group.
    #[must_use]
    pub fn of(pod: &Pod) -> Option<Self> {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
        if matches!(phase, "Succeeded" | "Failed") {
            return None;
        }
        let notes = pod.metadata.annotations.as_ref()?;
        let group = notes.get(annotations::POD_GROUP).filter(|group| !group.is_empty())?.clone();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty());
        let claims = kai_convert::claims_of(pod).into_iter().filter_map(|claim| claim.key).collect();
        Some(Self { group, node, asked: Arc::new(kai_convert::asked(pod)), claims })
    }
}
