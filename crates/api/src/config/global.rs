//! Settings that hold for all components.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, SecurityContext, Toleration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::VpaSpec;
use crate::embedded::kubernetes;

/// Settings for all components.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GlobalConfig {
    /// Vertical autoscaling of components that say nothing themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpa: Option<VpaSpec>,
    /// Whether the cluster is `OpenShift`, which sets security contexts itself. False when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub openshift: Option<bool>,
    /// Affinity of all components.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kubernetes::<Affinity>")]
    pub affinity: Option<Affinity>,
    /// Whether replicas of a component must (not only should) run on different nodes. False when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_default_pod_anti_affinity_term: Option<bool>,
    /// Security context of all containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kubernetes::<SecurityContext>")]
    pub security_context: Option<SecurityContext>,
    /// One image pull secret. Kept for old manifests; use `additionalImagePullSecrets`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images_pull_secret: Option<String>,
    /// Names of image pull secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_image_pull_secrets: Vec<String>,
    /// Node labels that all components need.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations of all components.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::<Vec<Toleration>>")]
    pub tolerations: Vec<Toleration>,
    /// More tolerations, for what runs on every node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::<Vec<Toleration>>")]
    pub daemonsets_tolerations: Vec<Toleration>,
    /// `PriorityClass` of all components.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Replicas of components that say nothing themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_count: Option<i32>,
    /// Label by which pods name their queue. `kai.scheduler/queue` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_label_key: Option<String>,
    /// Scheduler name by which pods ask for this system. `kai-scheduler` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// Label that divides nodes, queues and groups among shards. `kai.scheduler/node-pool` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_pool_label_key: Option<String>,
    /// Labels of the namespaces whose pods are looked at.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub namespace_label_selector: BTreeMap<String, String>,
    /// Labels of the pods that are looked at.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_label_selector: BTreeMap<String, String>,
    /// Whether logs are JSON. False when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json_log: Option<bool>,
}
