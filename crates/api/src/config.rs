//! Config: how the whole installation is set up. The operator follows the one named `kai-config`.
//!
//! Every field may be left out. Each component has a block of its own, all of them with the same [`Service`] inside.

mod admission;
mod binder;
mod controllers;
mod global;
mod pod_grouper;
mod prometheus;
mod scheduler;
mod service;
mod vpa;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::embedded::conditions;

pub use admission::{Admission, AdmissionWebhook};
pub use binder::{Binder, BinderPluginConfig, MountDevices, ResourceReservation, TegraMode, TegraReservation};
pub use controllers::{
    ControllerWebhooks, NodeScaleAdjuster, NodeScaleAdjusterArgs, NumaPlacementExporter, PodGroupController,
    PodGroupControllerService, PortMapping, QueueController, QueueControllerService,
};
pub use global::GlobalConfig;
pub use pod_grouper::{PodGrouper, PodGrouperArgs};
pub use prometheus::{ExternalPrometheusHealthProbe, Prometheus, ServiceMonitor};
pub use scheduler::{Scheduler, SchedulerService};
pub use service::{ClientConfig, Image, PodDisruptionBudget, Service};
pub use vpa::{
    ChangeRequirement, ContainerResourcePolicy, ContainerScalingMode, ControlledValues, EvictionRequirement,
    PodResourcePolicy, PodUpdatePolicy, UpdateMode, VpaSpec,
};

/// Settings of an installation.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kai.scheduler",
    version = "v1",
    kind = "Config",
    plural = "configs",
    doc = "Settings of an installation.",
    status = "ConfigStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ConfigSpec {
    /// Namespace of the components. `kai-scheduler` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Settings for all components.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global: Option<GlobalConfig>,
    /// The pod-grouper, which finds out which pods belong together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_grouper: Option<PodGrouper>,
    /// The binder, which carries out the scheduler's decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binder: Option<Binder>,
    /// The admission webhooks for pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// The schedulers, one per shard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
    /// The queue controller, which sums up what queues use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_controller: Option<QueueController>,
    /// The pod group controller, which sums up what groups use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_group_controller: Option<PodGroupController>,
    /// The node scale adjuster, which makes autoscalers see waiting fractions of GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_scale_adjuster: Option<NodeScaleAdjuster>,
    /// Measurements of usage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<Prometheus>,
    /// The exporter of NUMA placements, on every node with NUMA zones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_placement_exporter: Option<NumaPlacementExporter>,
}

/// State of an installation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigStatus {
    /// Conditions such as `Deployed`, `Available` and `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}
