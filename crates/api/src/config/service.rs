//! What every component has: an image, resources, a Kubernetes client.

use k8s_openapi::api::core::v1::{Affinity, ResourceRequirements};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::embedded::kubernetes;

/// How a component is deployed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// Whether it is deployed. True when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Its image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Resources of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kubernetes::<ResourceRequirements>")]
    pub resources: Option<ResourceRequirements>,
    /// Its Kubernetes client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k8s_client_config: Option<ClientConfig>,
    /// Affinity of its pods, instead of the global one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kubernetes::<Affinity>")]
    pub affinity: Option<Affinity>,
    /// Its disruption budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_disruption_budget: Option<PodDisruptionBudget>,
}

/// An image, as `repository/name:tag`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Registry and path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// When it is pulled. `IfNotPresent` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_policy: Option<String>,
}

/// Limits of a Kubernetes client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Copy)]
#[serde(rename_all = "camelCase")]
pub struct ClientConfig {
    /// Requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qps: Option<i64>,
    /// Requests at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<i64>,
}

/// A disruption budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Copy)]
#[serde(rename_all = "camelCase")]
pub struct PodDisruptionBudget {
    /// Whether there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// How many pods may be down at once. 1 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<i32>,
}
