//! Options and rights of the component.

use kai_api::names::{groups, labels, objects};
use kai_kit::rbac::Right;

/// Options of the pod-grouper.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Label that names the node pool of a pod
    #[arg(long, default_value = labels::NODE_POOL)]
    pub nodepool_label_key: String,

    /// Label that names the queue of a pod or workload
    #[arg(long, default_value = labels::QUEUE)]
    pub queue_label_key: String,

    /// Pods with this scheduler name are grouped
    #[arg(long, default_value = objects::SCHEDULER)]
    pub scheduler_name: String,

    /// How many pods are worked on at the same time
    #[arg(long, default_value_t = 16)]
    pub max_concurrent_reconciles: usize,

    /// While so many pods without an owner come or are bound within two seconds, the groups of those that say nothing special are made when the
    /// crowd is over, half a minute later at most: a scheduler with `--implied-groups` does not wait for them; 0: never
    #[arg(long, default_value_t = 32, value_name = "COUNT")]
    pub put_off_from: usize,

    /// Keep groups that older versions made for single pods of a Job
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1)]
    #[arg(default_missing_value = "true", require_equals = true)]
    pub search_legacy_pg: bool,

    /// Accepted for manifests written for KAI, without effect: this kind is grouped by its owner
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub knative_gang_schedule: Option<bool>,

    /// Accepted for manifests written for KAI, without effect: unknown kinds are grouped by their owner
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub generic_karta_fallback: Option<bool>,

    /// ConfigMap with priorities and preemptibility by kind of workload
    #[arg(long)]
    pub default_priorities_configmap_name: Option<String>,

    /// Namespace of that ConfigMap; without it, the namespace of the components
    #[arg(long)]
    pub default_priorities_configmap_namespace: Option<String>,

    /// Only pods with these labels are grouped (key=value,…)
    #[arg(long, default_value = "")]
    pub pod_label_selector: String,

    /// Only pods in namespaces with these labels are grouped (key=value,…)
    #[arg(long, default_value = "")]
    pub namespace_label_selector: String,

    /// Seconds after which a waiting pod is looked at again even if nothing was heard; a bound pod ten times later
    #[arg(long, default_value_t = 60)]
    pub resync_seconds: u64,

    /// Take turns with other replicas
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub leader_elect: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodepool_label_key: labels::NODE_POOL.to_owned(),
            queue_label_key: labels::QUEUE.to_owned(),
            scheduler_name: objects::SCHEDULER.to_owned(),
            max_concurrent_reconciles: 16,
            put_off_from: 32,
            search_legacy_pg: true,
            knative_gang_schedule: None,
            generic_karta_fallback: None,
            default_priorities_configmap_name: None,
            default_priorities_configmap_namespace: None,
            pod_label_selector: String::new(),
            namespace_label_selector: String::new(),
            resync_seconds: 60,
            leader_elect: false,
        }
    }
}

/// What a watch needs.
const WATCH: &[&str] = &["list", "watch"];
/// What an owner is read and followed with.
const OWNER: &[&str] = &["get", "list", "watch"];

/// What the component may do with its usual options.
pub fn rights(namespace: &str) -> Vec<Right> {
    Options::default().rights(namespace)
}

impl Options {
    /// Whether the groups of pods without an owner are what [`kai_api::implied_group`] says.
    pub fn groups_as_implied(&self) -> bool {
        let selects = [&self.pod_label_selector, &self.namespace_label_selector].iter().any(|text| !text.is_empty());
        !selects && self.default_priorities_configmap_name.is_none()
    }

    /// What the component may do with these options.
    pub fn rights(&self, namespace: &str) -> Vec<Right> {
        const WHY: &str = "the owner of a pod, its labels and annotations";
        let mut rights = vec![
            Right::cluster("", "pods", &["get", "list", "watch", "patch"], "pods to be grouped; owners of pods"),
            Right::cluster(
                groups::SCHEDULING,
                "podgroups",
                &["list", "watch", "create", "patch"],
                "one group per workload",
            ),
            Right::cluster("scheduling.k8s.io", "priorityclasses", WATCH, "which priority classes there are"),
            Right::cluster("apps", "deployments", OWNER, WHY),
            Right::cluster("apps", "replicasets", &["get"], WHY),
            Right::cluster("apps", "statefulsets", OWNER, WHY),
            Right::cluster("apps", "daemonsets", OWNER, WHY),
            Right::cluster("batch", "jobs", OWNER, WHY),
            Right::cluster("batch", "cronjobs", OWNER, WHY),
            Right::cluster("", "events", &["create", "patch"], "what is wrong with a workload"),
            Right::in_namespace(
                namespace,
                "coordination.k8s.io",
                "leases",
                &["get", "create", "update"],
                "which replica works",
            ),
        ];
        if self.default_priorities_configmap_name.is_some() {
            let home = self.default_priorities_configmap_namespace.as_deref().unwrap_or(namespace);
            rights.push(Right::in_namespace(home, "", "configmaps", WATCH, "priorities by kind of workload"));
        }
        if !self.namespace_label_selector.is_empty() {
            rights.push(Right::cluster("", "namespaces", WATCH, "which namespaces are selected"));
        }
        rights
    }
}
