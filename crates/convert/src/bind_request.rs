//! BindRequests: decisions on their way. A pod with one that has not failed is where the request says.

use k8s_openapi::api::resource::v1::AllocationResult;
use kai_api::names::bind_phases;

use crate::numa::{self, ZoneShare};

/// What is kept of a BindRequest.
#[derive(Debug)]
pub(crate) struct BindRecord {
    /// `namespace/name` of its pod.
    pub(crate) pod: String,
    /// The uid of the pod that owns it: a pod of the same name made later is another one.
    pub(crate) owner: Option<String>,
    /// The node.
    pub(crate) node: String,
    /// The GPU groups.
    pub(crate) devices: Vec<String>,
    /// The zones, as foreseen.
    pub(crate) zones: Vec<ZoneShare>,
    /// The devices chosen for claims, by the claim's name in the pod.
    pub(crate) claims: Vec<(String, AllocationResult)>,
    /// Whether it has not failed for good.
    pub(crate) live: bool,
}

impl BindRecord {
    /// Reads the object.
    pub(crate) fn of(object: &kai_api::BindRequest) -> Self {
        let spec = &object.spec;
        let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
        let own = object.metadata.name.clone().unwrap_or_default();
        let pod = spec.pod_name.clone().filter(|name| !name.is_empty()).unwrap_or(own);
        let owners = object.metadata.owner_references.iter().flatten();
        let status = object.status.clone().unwrap_or_default();
        let tried_enough = match spec.backoff_limit {
            None => true,
            Some(limit) => status.failed_attempts.unwrap_or(0) >= limit,
        };
        let claims = spec
            .resource_claim_allocations
            .iter()
            .filter_map(|chosen| Some((chosen.name.clone()?, chosen.allocation.clone()?)));
        Self {
            pod: format!("{namespace}/{pod}"),
            owner: owners.filter(|owner| owner.kind == "Pod").map(|owner| owner.uid.clone()).next(),
            node: spec.selected_node.clone().unwrap_or_default(),
            devices: spec.selected_gpu_groups.clone(),
            zones: numa::shares(&spec.predicted_numa_zones),
            claims: claims.collect(),
            live: !(status.phase.as_deref() == Some(bind_phases::FAILED) && tried_enough),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(status: Value, limit: Option<i32>) -> BindRecord {
        let object = json!({"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest",
            "metadata": {"name": "p", "namespace": "team"},
            "spec": {"selectedNode": "n", "selectedGPUGroups": ["g"], "backoffLimit": limit}, "status": status});
        BindRecord::of(&serde_json::from_value(object).expect("a request"))
    }

    #[test]
    fn a_request_that_failed_for_good_no_longer_counts() {
        assert!(read(json!({}), None).live);
        assert!(read(json!({"phase": "Succeeded"}), None).live);
        assert!(!read(json!({"phase": "Failed"}), None).live);
        assert!(read(json!({"phase": "Failed", "failedAttempts": 1}), Some(2)).live);
        assert!(!read(json!({"phase": "Failed", "failedAttempts": 2}), Some(2)).live);
        assert_eq!(read(json!({}), None).pod, "team/p");
    }
}
