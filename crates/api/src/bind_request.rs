//! `BindRequest`: the scheduler's decision about one pod, which the binder carries out.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Binding, ContainerExtendedResourceRequest, ObjectReference};
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequest};
use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{ObjectMeta, Time},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{embedded::kubernetes, names::annotations};

/// Where a pod goes and what it gets there.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduling.run.ai",
    version = "v1alpha2",
    kind = "BindRequest",
    plural = "bindrequests",
    namespaced,
    doc = "A decision to run a pod on a node.",
    status = "BindRequestStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct BindRequestSpec {
    /// Name of the pod, in the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// Name of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_node: Option<String>,
    /// How the pod gets GPUs: `Regular`, `Fraction` or `MigInstance`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_resource_type: Option<String>,
    /// How much GPU the pod gets.
    #[serde(rename = "receivedGPU", skip_serializing_if = "Option::is_none")]
    pub received_gpu: Option<ReceivedGpu>,
    /// Groups of the shared GPUs that the pod joins.
    #[serde(rename = "selectedGPUGroups", default, skip_serializing_if = "Vec::is_empty")]
    pub selected_gpu_groups: Vec<String>,
    /// Devices chosen for the pod's resource claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_claim_allocations: Vec<ResourceClaimAllocation>,
    /// Devices chosen for extended resources that a `DeviceClass` serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended_resource_claim_allocation: Option<ExtendedResourceClaimAllocation>,
    /// Where on the node the pod's resources are expected to be.
    #[serde(rename = "predictedNUMAZones", default, skip_serializing_if = "Vec::is_empty")]
    pub predicted_numa_zones: Vec<NumaZonePlacement>,
    /// How many attempts are made before giving up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i32>,
}

/// An amount of GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceivedGpu {
    /// Number of devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// Share of each device, as a decimal number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub portion: Option<String>,
}

/// Devices for one resource claim of the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceClaimAllocation {
    /// Name of the claim in the pod's spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kubernetes::<AllocationResult>")]
    pub allocation: Option<AllocationResult>,
}

/// Devices for the claim that stands for a pod's extended resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtendedResourceClaimAllocation {
    /// The devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kubernetes::<AllocationResult>")]
    pub allocation: Option<AllocationResult>,
    /// Requests of the claim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::<Vec<DeviceRequest>>")]
    pub device_requests: Vec<DeviceRequest>,
    /// Which container asked for which request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::<Vec<ContainerExtendedResourceRequest>>")]
    pub container_mappings: Vec<ContainerExtendedResourceRequest>,
}

/// Amounts in one NUMA zone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumaZonePlacement {
    /// Name of the zone, such as `node-0`.
    pub zone: String,
    /// Amounts by resource.
    pub amount: BTreeMap<String, Quantity>,
}

/// How far the binder came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindRequestStatus {
    /// `Pending`, `Succeeded` or `Failed`; empty before the first attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Why the last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of failed attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_attempts: Option<i32>,
    /// What is being done: `Reserving`, `Preparing`, `Binding` or `Bound`. Not in KAI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What kind of failure the last one was: `Transient` (tried again), `Refused` (not on this node before `nextRetry`) or `Gone`
    /// (pod or node is no longer there). Not in KAI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_class: Option<String>,
    /// When the next attempt is made; after a refusal, until when the pod avoids the node. Not in KAI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_retry: Option<Time>,
    /// Since when volumes or claims are waited for. Not in KAI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Time>,
    /// How many reservation pods for a GPU of the request have failed so far. Not in KAI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_reservations: Option<i32>,
}

impl BindRequest {
    /// The binding that carries the request out, of the pod with this uid and no other, with what it writes on the pod.
    #[must_use]
    pub fn binding(&self, uid: Option<&str>) -> Binding {
        let mut told = BTreeMap::new();
        if let Some(kind) = &self.spec.received_resource_type {
            told.insert(annotations::RECEIVED_RESOURCE_TYPE.to_owned(), kind.clone());
        }
        if !self.spec.predicted_numa_zones.is_empty() {
            let zones = serde_json::json!(self.spec.predicted_numa_zones).to_string();
            told.insert(annotations::NUMA_PREDICTED.to_owned(), zones);
        }
        Binding {
            metadata: ObjectMeta {
                name: self.spec.pod_name.clone().or_else(|| self.metadata.name.clone()),
                namespace: self.metadata.namespace.clone(),
                uid: uid.map(str::to_owned),
                annotations: Some(told),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: self.spec.selected_node.clone(),
                ..ObjectReference::default()
            },
        }
    }
}
