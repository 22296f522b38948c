//! The binder and its reservation pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSecurityContext, ResourceRequirements, SecurityContext};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Image, Service, VpaSpec};
use crate::embedded::kubernetes;

/// The binder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Binder {
    /// How it is deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// The pods that hold shared GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_reservation: Option<ResourceReservation>,
    /// Its replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Pods and requests that are worked on at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_reconciles: Option<i64>,
    /// How long volumes are waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_binding_timeout_seconds: Option<i64>,
    /// Port of health checks. 8081 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_port: Option<i64>,
    /// Port of metrics. 8080 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_port: Option<i64>,
    /// Whether containers get GPUs through CDI. Found out from the GPU operator when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cdi_enabled: Option<bool>,
    /// Changes to plugins, by name: `volumebinding`, `dynamicresources`, `gpusharing`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<String, BinderPluginConfig>,
    /// Vertical autoscaling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpa: Option<VpaSpec>,
}

/// A change to a plugin of the binder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BinderPluginConfig {
    /// Whether it runs. True when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Its place in the order; higher runs first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Its arguments, all of them: they replace the default ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<BTreeMap<String, String>>,
}

/// The pods that hold shared GPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceReservation {
    /// Their image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Seconds to wait for their GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation_timeout: Option<i64>,
    /// Their namespace. `kai-resource-reservation` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Their service account. `kai-resource-reservation` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Value of their label `app`. `kai-resource-reservation` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_label: Option<String>,
    /// Their runtime class, which must let them see the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
    /// Their CPU and memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kubernetes::<ResourceRequirements>")]
    pub pod_resources: Option<ResourceRequirements>,
    /// Their security context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kubernetes::<PodSecurityContext>")]
    pub reservation_pod_security_context: Option<PodSecurityContext>,
    /// Security context of their container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kubernetes::<SecurityContext>")]
    pub reservation_container_security_context: Option<SecurityContext>,
}
