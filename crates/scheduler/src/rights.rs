//! What the scheduler may do: read what scheduling depends on, write decisions and what it says about them.

use kai_kit::rbac::Right;

/// The rights of the scheduler, whose leases are in `namespace`.
#[must_use]
pub fn rights(namespace: &str) -> Vec<Right> {
    const WATCH: &[&str] = &["list", "watch"];
    vec![
        Right::cluster("", "pods", &["get", "list", "watch", "delete"], "place pods and evict victims"),
        Right::cluster("", "pods/status", &["patch"], "say why a pod waits"),
        Right::cluster(
            "",
            "pods/binding",
            &["create"],
            "bind pods that need no preparation when many are placed at once",
        ),
        Right::cluster("", "nodes", WATCH, "know what nodes have"),
        Right::cluster("", "namespaces", WATCH, "resolve namespace selectors of affinities"),
        Right::cluster("", "configmaps", WATCH, "know which required ConfigMaps exist (metadata only)"),
        Right::cluster("", "persistentvolumeclaims", WATCH, "know where volumes can be"),
        Right::cluster("", "persistentvolumes", WATCH, "know where volumes can be"),
        Right::cluster("", "events", &["create", "patch"], "tell what was decided and why"),
        Right::cluster("storage.k8s.io", "storageclasses", WATCH, "know where volumes can be made"),
        Right::cluster("scheduling.k8s.io", "priorityclasses", WATCH, "know the priority of groups"),
        Right::cluster("resource.k8s.io", "resourceclaims", WATCH, "know which devices are taken"),
        Right::cluster("resource.k8s.io", "resourceslices", WATCH, "know the devices of DRA drivers"),
        Right::cluster("resource.k8s.io", "deviceclasses", WATCH, "know what claims ask for"),
        Right::cluster("topology.node.k8s.io", "noderesourcetopologies", WATCH, "know the NUMA zones of nodes"),
        Right::cluster("scheduling.run.ai", "queues", WATCH, "know who may have what"),
        Right::cluster(
            "scheduling.run.ai",
            "podgroups",
            &["list", "watch", "patch"],
            "know what belongs together, note starts",
        ),
        Right::cluster("scheduling.run.ai", "podgroups/status", &["patch"], "say why a group waits"),
        Right::cluster(
            "scheduling.run.ai",
            "bindrequests",
            &["get", "list", "watch", "create", "delete"],
            "hand decisions to the binder",
        ),
        Right::cluster("kai.scheduler", "topologies", WATCH, "know what is near to what"),
        Right::cluster("kai.scheduler", "schedulingshards", WATCH, "know how to decide"),
        Right::cluster("kai.scheduler", "configs", WATCH, "know the names of the scheduler and of labels"),
        Right::in_namespace(
            namespace,
            "coordination.k8s.io",
            "leases",
            &["get", "create", "update"],
            "agree with other replicas on who writes",
        ),
    ]
}
