//! The schedulers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Service, VpaSpec};

/// The schedulers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduler {
    /// How they are deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Garbage collection setting of KAI's scheduler. Accepted and without effect here.
    #[serde(rename = "GOGC", skip_serializing_if = "Option::is_none")]
    pub gogc: Option<i64>,
    /// Their service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_service: Option<SchedulerService>,
    /// Their replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Vertical autoscaling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpa: Option<VpaSpec>,
}

/// The service of a scheduler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerService {
    /// Type of the service. `ClusterIP` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// Port of the service. 8080 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i64>,
    /// Port of the container. 8080 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_port: Option<i64>,
}
