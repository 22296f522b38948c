//! The admission webhooks for pods.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Service, VpaSpec};

/// The admission webhooks for pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// How they are deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Their ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<AdmissionWebhook>,
    /// Their replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Whether pods may ask for parts of a GPU. False when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_sharing: Option<bool>,
    /// Whether pods that set `NVIDIA_VISIBLE_DEVICES` themselves are refused. False when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_nvidia_visible_devices: Option<bool>,
    /// Whether only pods with a queue label are looked at. False when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_label_selector: Option<bool>,
    /// Name of the validating configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validating_webhook_configuration_name: Option<String>,
    /// Name of the mutating configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutating_webhook_configuration_name: Option<String>,
    /// Runtime class for pods with a part of a GPU. Kept for old manifests; use `gpuFractionRuntimeClassName`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_pod_runtime_class_name: Option<String>,
    /// Runtime class for pods with a part of a GPU; empty sets none. `nvidia` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_fraction_runtime_class_name: Option<String>,
    /// Vertical autoscaling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpa: Option<VpaSpec>,
}

/// Ports of the webhook server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Copy)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionWebhook {
    /// Port of the service. 443 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i64>,
    /// Port of the container. 9443 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_port: Option<i64>,
    /// Port of health checks. 8081 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_port: Option<i64>,
    /// Port of metrics. 8080 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_port: Option<i64>,
}
