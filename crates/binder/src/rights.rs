//! What the binder may do: exactly what it calls.

use kai_api::names::{groups, namespaces};
use kai_kit::rbac::{READ, Right};

/// The rights of the binder whose leases are in `namespace`.
#[must_use]
pub fn rights(namespace: &str) -> Vec<Right> {
    let reservations = namespaces::RESERVATION;
    vec![
        Right::cluster(
            "",
            "pods",
            &["get", "list", "watch", "patch"],
            "know pods and label them with their GPU groups",
        ),
        Right::cluster("", "pods/binding", &["create"], "bind pods"),
        Right::cluster("", "pods/status", &["patch"], "say why a pod could not be bound"),
        Right::in_namespace(reservations, "", "pods", &["create", "delete"], "make and remove reservation pods"),
        Right::cluster("", "nodes", READ, "know which nodes there are and what boards they are"),
        Right::cluster("", "configmaps", &["get", "create", "patch", "delete"], "tell containers their GPUs"),
        Right::cluster("", "events", &["create", "patch"], "tell users what happened"),
        Right::cluster("", "persistentvolumeclaims", &["get", "patch"], "choose the node of volumes that wait for one"),
        Right::cluster("", "persistentvolumes", &["list", "patch"], "give existing volumes to claims"),
        Right::cluster("storage.k8s.io", "storageclasses", &["get", "list"], "know which claims wait for a node"),
        Right::cluster(
            "resource.k8s.io",
            "resourceclaims",
            &["get", "create", "patch", "delete"],
            "allocate devices and make claims for extended resources",
        ),
        Right::cluster("resource.k8s.io", "resourceclaims/status", &["patch"], "allocate devices"),
        Right::cluster("node.k8s.io", "runtimeclasses", &["get"], "know whether there is a class for GPUs"),
        Right::cluster("nvidia.com", "clusterpolicies", &["list"], "know whether containers get GPUs through CDI"),
        Right::cluster(groups::KAI, "configs", &["get"], "read the configuration"),
        Right::cluster(groups::SCHEDULING, "bindrequests", &["list", "watch", "delete"], "carry out decisions"),
        Right::cluster(groups::SCHEDULING, "bindrequests/status", &["patch"], "say how far they are"),
        Right::in_namespace(
            namespace,
            "coordination.k8s.io",
            "leases",
            &["get", "create", "update"],
            "work one at a time",
        ),
    ]
}
