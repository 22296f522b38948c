//! The pod-grouper.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClientConfig, Service, VpaSpec};

/// The pod-grouper.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGrouper {
    /// How it is deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Its flags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<PodGrouperArgs>,
    /// Its Kubernetes client, instead of the one in `service`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k8s_client_config: Option<ClientConfig>,
    /// Pods that are worked on at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_reconciles: Option<i64>,
    /// Its replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Vertical autoscaling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpa: Option<VpaSpec>,
}

/// Flags of the pod-grouper.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGrouperArgs {
    /// Whether the pods of a Knative revision start together. True when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang_schedule_knative: Option<bool>,
    /// Whether workloads without a grouper of their own are grouped by Karta definitions. True when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generic_karta_fallback: Option<bool>,
    /// Name of the `ConfigMap` with default priority classes by kind of workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_priorities_config_map_name: Option<String>,
    /// Its namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_priorities_config_map_namespace: Option<String>,
}
