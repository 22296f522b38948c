//! Queue: who may use how much, and in which order surplus and victims are found. Queues form a tree; only leaves run workloads.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::Duration;

/// What a queue may use and how it ranks among its siblings.
#[expect(clippy::duplicated_attributes, reason = "each column has its own name, type and path")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduling.run.ai",
    version = "v2",
    kind = "Queue",
    plural = "queues",
    doc = "A share of the cluster for a team, or for other queues.",
    status = "QueueStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Priority", type_ = "string", json_path = ".spec.priority"),
    printcolumn(name = "Parent", type_ = "string", json_path = ".spec.parentQueue"),
    printcolumn(name = "Children", type_ = "string", json_path = ".status.childQueues"),
    printcolumn(name = "DisplayName", type_ = "string", json_path = ".spec.displayName")
)]
#[serde(rename_all = "camelCase")]
pub struct QueueSpec {
    /// Name for people, used in messages and metrics. The identity of a queue is its object name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Name of the parent queue. A queue without one is at the top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_queue: Option<String>,
    /// Guaranteed amounts, weights and caps. Admission refuses a queue without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<QueueResources>,
    /// Queues of higher priority get surplus first, are served first and lose resources last. 100 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// How long a workload of this queue runs before one of higher priority in the same queue may take its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempt_min_runtime: Option<Duration>,
    /// How long a workload of this queue runs before another queue may take its resources back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_min_runtime: Option<Duration>,
}

/// Amounts by resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Copy)]
#[serde(rename_all = "camelCase")]
pub struct QueueResources {
    /// GPUs, in devices; fractions are allowed (0.5 is half a GPU).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<QueueResource>,
    /// CPU, in thousandths of a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<QueueResource>,
    /// Memory, in megabytes of 1,000,000 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<QueueResource>,
}

/// Amounts of one resource. -1 means unlimited; what is left out is 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Copy)]
#[serde(rename_all = "camelCase")]
pub struct QueueResource {
    /// Guaranteed amount, taken back from others when needed.
    #[serde(default)]
    pub quota: f64,
    /// Share of the surplus relative to sibling queues. 0 gets none.
    #[serde(default)]
    pub over_quota_weight: f64,
    /// Most that this queue and its children may use. 0 means nothing at all.
    #[serde(default)]
    pub limit: f64,
}

/// What a queue uses now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// Conditions such as `Orphan` and `OverQuota`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<QueueCondition>,
    /// Names of the queues whose parent this is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub child_queues: Vec<String>,
    /// What running and placed workloads of this queue and its children hold.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated: BTreeMap<String, Quantity>,
    /// The part of it that cannot be preempted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated_non_preemptible: BTreeMap<String, Quantity>,
    /// What all workloads of this queue and its children ask for, running or waiting.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requested: BTreeMap<String, Quantity>,
}

/// One observation about a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueCondition {
    /// Kind of observation.
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// When it was last looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// One word for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
