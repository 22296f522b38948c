//! `PodGroup`: pods that start together or not at all, with what they need from the scheduler and what it answers.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::Duration;

/// Whether a running workload may be stopped for another one. When not set, workloads of priority under 100 may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preemptibility {
    /// It may be stopped.
    Preemptible,
    /// It runs to its end, within the guaranteed quota of its queue.
    NonPreemptible,
}

/// How the pods of a group are scheduled.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduling.run.ai",
    version = "v2alpha2",
    kind = "PodGroup",
    plural = "podgroups",
    shortname = "pg",
    namespaced,
    doc = "Pods that are scheduled as one workload.",
    status = "PodGroupStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupSpec {
    /// How many pods must start together. 1 when not set; 0 means each pod by itself. Excludes `minSubGroup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_member: Option<i32>,
    /// How many of the top subgroups must be able to start. All of them when not set. Excludes `minMember`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_sub_group: Option<i32>,
    /// Name of the queue that pays. While it does not exist the group waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// `PriorityClass` of the workload. Unknown or empty means the cluster's default class, else a priority of 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Whether the workload may be stopped for others. When not set, workloads of priority under 100 may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemptibility: Option<Preemptibility>,
    /// How near to each other the pods must be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<TopologyConstraint>,
    /// Parts of the workload with requirements of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sub_groups: Vec<SubGroup>,
    /// Whether waiting pods get the condition `PodScheduled=False`. True when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_unschedulable: Option<bool>,
    /// How many cycles are tried before the group is given up on its node pool: -1 (never, when not set) or 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_backoff: Option<i32>,
    /// How long the group waits before others may be stopped for it. Free capacity it may use at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_delay: Option<Duration>,
    /// How long a group with too few running pods is left alone. Negative means for ever; when not set, the
    /// scheduler's own period counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staleness_grace_period: Option<Duration>,
}

/// How near to each other pods must be, in the levels of a Topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyConstraint {
    /// Name of the Topology. The constraint has no effect without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// All pods run in one domain of this level (a node label or its alias), or none runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_topology_level: Option<String>,
    /// Pods run in one domain of this level if that is possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_topology_level: Option<String>,
}

/// A part of a workload. Subgroups form a tree; pods belong to leaves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubGroup {
    /// Name, unique within the group.
    #[schemars(length(min = 1), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// How many pods of this leaf must start together. Excludes `minSubGroup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_member: Option<i32>,
    /// How many of its children must be able to start. All of them when not set. Excludes `minMember`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_sub_group: Option<i32>,
    /// Name of the subgroup above. Without it the subgroup is at the top.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub parent: Option<String>,
    /// How near to each other the pods of this part must be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<TopologyConstraint>,
}

/// What became of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupStatus {
    /// General conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<PodGroupCondition>,
    /// Why the group waits, by node pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scheduling_conditions: Vec<SchedulingCondition>,
    /// What the pods of the group hold and ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources_status: Option<PodGroupResourcesStatus>,
}

/// What the pods of a group hold and ask for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupResourcesStatus {
    /// What its placed pods hold.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated: BTreeMap<String, Quantity>,
    /// The part of it that cannot be preempted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated_non_preemptible: BTreeMap<String, Quantity>,
    /// What all its pods ask for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requested: BTreeMap<String, Quantity>,
}

/// One observation about a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupCondition {
    /// Kind of observation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// True, False or Unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Counts the changes.
    #[serde(rename = "transitionID", skip_serializing_if = "Option::is_none")]
    pub transition_id: Option<String>,
    /// When it last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// One word for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Why a group is not scheduled on a node pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingCondition {
    /// Kind of observation; `UnschedulableOnNodePool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// The node pool that was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_pool: Option<String>,
    /// One word for programs. Kept for old clients; `reasons` says more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence for people. Kept for old clients; `reasons` says more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Every reason that was found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<UnschedulableExplanation>,
    /// When it last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// True, False or Unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Counts the changes; the highest is the newest.
    #[serde(rename = "transitionID", skip_serializing_if = "Option::is_none")]
    pub transition_id: Option<String>,
}

/// One reason why a group waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnschedulableExplanation {
    /// One word for programs, such as `OverLimit`. New ones may appear.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Numbers behind the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<UnschedulableExplanationDetails>,
}

/// Numbers behind a reason; which ones depends on the reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnschedulableExplanationDetails {
    /// The queue's side of `OverLimit` and `NonPreemptibleOverQuota`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_details: Option<QuotaDetails>,
}

/// What a queue had and what was asked of it when a group was refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuotaDetails {
    /// Name of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the queue asked for in all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queue_requested_resources: BTreeMap<String, Quantity>,
    /// Its guaranteed amounts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queue_deserved_resources: BTreeMap<String, Quantity>,
    /// What it held.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queue_allocated_resources: BTreeMap<String, Quantity>,
    /// The part of it that cannot be preempted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queue_allocated_non_preemptible_resources: BTreeMap<String, Quantity>,
    /// Its caps.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queue_resource_limits: BTreeMap<String, Quantity>,
    /// What the group needs to start.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_group_requested_resources: BTreeMap<String, Quantity>,
    /// The part of it that could not be preempted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_group_requested_non_preemptible_resources: BTreeMap<String, Quantity>,
}
