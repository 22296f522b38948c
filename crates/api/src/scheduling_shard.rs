//! `SchedulingShard`: one scheduler for one node pool, with its strategy and its plugins.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::embedded::conditions;

/// How the scheduler of one node pool works.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kai.scheduler",
    version = "v1",
    kind = "SchedulingShard",
    plural = "schedulingshards",
    doc = "A scheduler for one node pool.",
    status = "SchedulingShardStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingShardSpec {
    /// Command line flags of the scheduler, without dashes. They win over what other fields say; unknown ones are
    /// left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, String>,
    /// Part of the container's memory limit that the scheduler's heap may use. 0.9 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = true, "minimum" = 0.0))]
    pub go_mem_limit_ratio: Option<f64>,
    /// Heap limit of the scheduler, instead of the ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub go_mem_limit: Option<Quantity>,
    /// Whether nodes are filled one after the other or evenly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_strategy: Option<PlacementStrategy>,
    /// Value of the node pool label that nodes, queues and groups of this shard carry. Empty means those without the
    /// label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_label_value: Option<String>,
    /// How many workloads per queue an action looks at, by action.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queue_depth_per_action: BTreeMap<String, i64>,
    /// Shortest running times for queues that say nothing themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_runtime: Option<MinRuntime>,
    /// How strongly past usage counts against a queue. 1.0 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k_value: Option<f64>,
    /// Where past usage comes from.
    #[serde(rename = "usageDBConfig", skip_serializing_if = "Option::is_none")]
    pub usage_db_config: Option<UsageDbConfig>,
    /// How long victims are searched for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenario_search_budgets: Option<ScenarioSearchBudgets>,
    /// How long after its deletion a running pod still counts as about to leave. 2m when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck_in_releasing_threshold: Option<Duration>,
    /// Changes to plugins, by name. Higher priority runs first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<String, PluginConfig>,
    /// Changes to actions, by name. Higher priority runs first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub actions: BTreeMap<String, ActionConfig>,
}

/// `binpack` (fill a node before the next, when not set) or `spread`, by resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementStrategy {
    /// For workloads with GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// For workloads without GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
}

/// Shortest running times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MinRuntime {
    /// How long a workload runs before one of higher priority in its queue may take its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempt_min_runtime: Option<String>,
    /// How long a workload runs before another queue may take its resources back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_min_runtime: Option<String>,
}

/// A change to a plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginConfig {
    /// Whether it runs. True when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Its place in the order; built-in ones are 100 apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Its arguments, all of them: they replace the default ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<BTreeMap<String, String>>,
}

/// A change to an action.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Copy)]
#[serde(rename_all = "camelCase")]
pub struct ActionConfig {
    /// Whether it runs. True when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Its place in the order; built-in ones are 100 apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
}

/// How long victims are searched for. Keys are names, with `default` for the rest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScenarioSearchBudgets {
    /// Longest search of one action in one cycle, by action.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub max_action_search_duration: BTreeMap<String, Duration>,
    /// Longest search for one waiting workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_job_search_duration: Option<Duration>,
    /// Search time that every waiting workload gets, whatever the other budgets say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_job_search_duration: Option<Duration>,
    /// Longest search with one generator, by generator.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub max_generator_search_duration: BTreeMap<String, Duration>,
}

/// Where past usage comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageDbConfig {
    /// Kind of database; `prometheus`.
    pub client_type: String,
    /// Its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_string: Option<String>,
    /// Environment variable with its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_string_env_var: Option<String>,
    /// What is asked of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_params: Option<UsageParams>,
}

/// What is asked of the usage database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageParams {
    /// Time after which past usage counts half. Not set or 0 means it counts in full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_life_period: Option<Duration>,
    /// How far back usage counts. One week when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(
        pattern = r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
    ))]
    pub window_size: Option<String>,
    /// How the window moves: `sliding` (when not set), `tumbling` or `cron`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_type: Option<String>,
    /// Start of the first tumbling window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tumbling_window_start_time: Option<Time>,
    /// When a cron window starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron_string: Option<String>,
    /// Time between questions. 1m when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch_interval: Option<Duration>,
    /// Age at which answers no longer count. 5m when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staleness_period: Option<Duration>,
    /// How long an answer is waited for. 1m when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_timeout: Option<Duration>,
    /// Parameters of the kind of database.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_params: BTreeMap<String, String>,
}

/// State of a shard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingShardStatus {
    /// Conditions such as `Available` and `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}
