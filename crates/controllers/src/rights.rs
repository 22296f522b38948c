//! What the controllers may do.

use kai_api::names::groups;
use kai_kit::rbac::Right;

const WATCH: &[&str] = &["list", "watch"];

/// Exactly what the controllers call.
#[must_use]
pub fn rights(namespace: &str) -> Vec<Right> {
    vec![
        Right::cluster("", "pods", WATCH, "what groups ask for and hold"),
        Right::cluster("", "nodes", WATCH, "the memory of a GPU, and labels to warn of"),
        Right::cluster("scheduling.k8s.io", "priorityclasses", WATCH, "which groups can be preempted"),
        Right::cluster("resource.k8s.io", "resourceclaims", WATCH, "devices of claims"),
        Right::cluster(groups::SCHEDULING, "podgroups", WATCH, "the groups"),
        Right::cluster(groups::SCHEDULING, "podgroups/status", &["patch"], "what they ask for and hold"),
        Right::cluster(groups::SCHEDULING, "queues", WATCH, "the queues"),
        Right::cluster(groups::SCHEDULING, "queues/status", &["patch"], "what they ask for and hold"),
        Right::cluster("", "events", &["create", "patch"], "warnings about nodes"),
        Right::in_namespace(
            namespace,
            "coordination.k8s.io",
            "leases",
            &["get", "create", "update"],
            "which replica works",
        ),
    ]
}
