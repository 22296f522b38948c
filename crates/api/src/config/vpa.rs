//! Vertical pod autoscaling of a component, in the words of `autoscaling.k8s.io/v1`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When new resource requests reach pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateMode {
    /// Never; recommendations only.
    Off,
    /// When a pod is made.
    Initial,
    /// By making the pod anew.
    Recreate,
    /// In the running pod, else by making it anew.
    InPlaceOrRecreate,
    /// As the autoscaler likes.
    Auto,
}

/// In which direction a recommendation must go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ChangeRequirement {
    /// Up.
    TargetHigherThanRequests,
    /// Down.
    TargetLowerThanRequests,
}

/// Whether a container is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ContainerScalingMode {
    /// It is.
    Auto,
    /// It is not.
    Off,
}

/// What is set on a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ControlledValues {
    /// Requests, and limits in proportion.
    RequestsAndLimits,
    /// Requests.
    RequestsOnly,
}

/// Vertical autoscaling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VpaSpec {
    /// Whether it is on. False when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// When changes reach pods. `InPlaceOrRecreate` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_policy: Option<PodUpdatePolicy>,
    /// What may be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_policy: Option<PodResourcePolicy>,
}

/// When changes reach pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodUpdatePolicy {
    /// How pods are changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_mode: Option<UpdateMode>,
    /// Replicas that must be up before one is evicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    /// What must hold before a pod is evicted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub eviction_requirements: Vec<EvictionRequirement>,
}

/// What may be changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodResourcePolicy {
    /// By container; `*` means the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub container_policies: Vec<ContainerResourcePolicy>,
}

/// What may be changed in a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerResourcePolicy {
    /// Name of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// Whether it is scaled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ContainerScalingMode>,
    /// Least amounts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub min_allowed: BTreeMap<String, Quantity>,
    /// Most amounts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub max_allowed: BTreeMap<String, Quantity>,
    /// Resources that are scaled. CPU and memory when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controlled_resources: Option<Vec<String>>,
    /// What is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controlled_values: Option<ControlledValues>,
}

/// What must hold before a pod is evicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictionRequirement {
    /// Resources of which at least one must change so.
    pub resources: Vec<String>,
    /// The direction.
    pub change_requirement: ChangeRequirement,
}
