//! The controllers of queues and groups, the node scale adjuster and the NUMA placement exporter.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Image, Service, VpaSpec};
use crate::duration::Duration;
use crate::embedded::kubernetes;

/// The queue controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueController {
    /// How it is deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Its ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_service: Option<QueueControllerService>,
    /// Its webhooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhooks: Option<ControllerWebhooks>,
    /// Its replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Prefix of its metrics. `kai` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_namespace: Option<String>,
    /// Labels of queues that become labels of metrics, as `label=metric,...`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_label_to_metric_label: Option<String>,
    /// Values for queues without such a label, as `label=value,...`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_label_to_default_metric_value: Option<String>,
    /// Vertical autoscaling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpa: Option<VpaSpec>,
}

/// Ports of the queue controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueControllerService {
    /// Metrics. 8080 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<PortMapping>,
    /// Webhooks. 443 to 9443 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<PortMapping>,
}

/// A port of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    /// Port of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i64>,
    /// Port of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_port: Option<i64>,
    /// Name of the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Webhooks of a controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerWebhooks {
    /// Whether objects are validated. True when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_validation: Option<bool>,
    /// What the names of its webhook configurations begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_configuration_name_prefix: Option<String>,
}

/// The pod group controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupController {
    /// How it is deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Its ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_service: Option<PodGroupControllerService>,
    /// Groups that are worked on at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_reconciles: Option<i64>,
    /// Its webhooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhooks: Option<ControllerWebhooks>,
    /// Its replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Vertical autoscaling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpa: Option<VpaSpec>,
}

/// Ports of the pod group controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupControllerService {
    /// Webhooks. 443 to 9443 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<PortMapping>,
}

/// The node scale adjuster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeScaleAdjuster {
    /// How it is deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Its flags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<NodeScaleAdjusterArgs>,
}

/// Flags of the node scale adjuster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeScaleAdjusterArgs {
    /// Image of scaling pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling_pod_image: Option<Image>,
    /// Their namespace. `kai-scale-adjust` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_scale_namespace: Option<String>,
    /// Their service account. `kai-scale-adjust` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_scale_service_account: Option<String>,
    /// Share of a GPU that a request for GPU memory counts as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_to_fraction_ratio: Option<f64>,
}

/// The exporter of NUMA placements, which runs on every selected node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumaPlacementExporter {
    /// How it is deployed. Without `enabled` it runs if some shard has the plugin `numa`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Labels of the nodes it runs on. `feature.node.kubernetes.io/memory-numa=true` when not set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Its tolerations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::<Vec<Toleration>>")]
    pub tolerations: Vec<Toleration>,
    /// Time between looks at the kubelet. 1s when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll_interval: Option<Duration>,
    /// Time between checks of what it wrote; 0 turns them off. 1m when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift_resync_interval: Option<Duration>,
}
