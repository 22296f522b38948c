//! Nodes and namespaces: what is there before any workload, and what goes after it.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Namespace, Pod},
};
use kai_tests::{
    case,
    cluster::{Cluster, PATIENCE},
    harness::{ALL, Case},
    real::node::is_ready,
    wait,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
    runtime::conditions,
};
use serde_json::json;

use crate::specimen::{forever, from_json};

pub const CASES: &[Case] =
    &[case!(nodes_register_and_are_ready, ALL), case!(a_deleted_namespace_takes_everything_along, ALL)];

async fn nodes_register_and_are_ready(cluster: &Cluster) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(cluster.client(), "kube-node-lease");
    let nodes = cluster.nodes().await?;
    ensure!(!nodes.is_empty(), "there is no node");
    for node in nodes {
        let name = node.name_any();
        ensure!(is_ready(&node), "node `{name}` is not ready");
        let status = node.status.context("the node has no status")?;
        let info = status.node_info.context("the node does not say what it is")?;
        ensure!(
            !info.kernel_version.is_empty() && !info.kubelet_version.is_empty(),
            "node `{name}` hides its versions"
        );
        for resource in ["cpu", "memory", "pods"] {
            let allocatable = status.allocatable.as_ref().is_some_and(|amounts| amounts.contains_key(resource));
            ensure!(allocatable, "node `{name}` offers no {resource}");
        }
        // A kubelet takes its lease a moment after it has registered.
        let is_held = |lease: Option<&Lease>| {
            let spec = lease.and_then(|lease| lease.spec.as_ref());
            spec.is_some_and(|spec| spec.holder_identity.as_ref() == Some(&name) && spec.renew_time.is_some())
        };
        wait::for_object(&leases, &name, "held by the node", PATIENCE, is_held).await?;
    }
    Ok(())
}

async fn a_deleted_namespace_takes_everything_along(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("doomed").await?;
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    let settings: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    settings.create(&PostParams::default(), &from_json(json!({"metadata": {"name": "settings"}}))?).await?;
    let pod: Pod = from_json(json!({"metadata": {"name": "server"}, "spec": forever(&cluster.any_node().await?)}))?;
    pods.create(&PostParams::default(), &pod).await?;
    wait::for_object(&pods, "server", "running", PATIENCE, conditions::is_pod_running()).await?;

    let answer = namespaces.delete(&namespace, &DeleteParams::default()).await?;
    let dying = answer.left().context("the answer is the namespace that is going")?;
    let phase = dying.status.and_then(|status| status.phase);
    ensure!(phase.as_deref() == Some("Terminating"), "the phase is {phase:?}");
    wait::for_absence(&namespaces, &namespace, PATIENCE).await?;
    ensure!(pods.list(&ListParams::default()).await?.items.is_empty(), "pods are left");
    let refused = settings.create(&PostParams::default(), &from_json(json!({"metadata": {"name": "late"}}))?).await;
    let missing = matches!(&refused, Err(kube::Error::Api(status)) if status.is_not_found());
    ensure!(missing, "a namespace that is gone takes nothing: {refused:?}");
    Ok(())
}
