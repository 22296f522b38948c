//! What becomes of single pods.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    api::core::v1::{Binding, Pod},
    apimachinery::pkg::apis::meta::v1::Status,
};
use kai_tests::{
    case,
    cluster::{Cluster, PATIENCE},
    harness::{ALL, Case, REAL_NODE, SIMULATED_NODES},
    wait,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, LogParams, PostParams},
    runtime::conditions,
};
use serde_json::json;

use crate::specimen::{exit_code, forever, from_json, once, wait_for_phase};

pub const CASES: &[Case] = &[
    case!(a_pod_that_ends_well_is_succeeded, ALL),
    case!(a_pod_that_ends_badly_is_failed_with_its_exit_code, ALL),
    case!(a_container_that_fails_is_started_again, ALL),
    case!(init_containers_have_ended_when_the_others_start, ALL),
    case!(a_pod_without_a_node_waits_until_it_is_bound, ALL),
    case!(a_deleted_pod_has_its_grace_period_and_is_then_gone, ALL),
    case!(a_pod_that_asks_for_more_gpus_than_the_node_has_is_refused, SIMULATED_NODES),
    case!(a_container_writes_its_log_on_the_node, REAL_NODE),
];

async fn a_pod_that_ends_well_is_succeeded(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("succeeds").await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    pods.create(&PostParams::default(), &once(cluster, "well", 0).await?).await?;
    let pod = wait_for_phase(&pods, "well", "Succeeded").await?;
    ensure!(exit_code(&pod) == Some(0), "the container did not end with 0");
    ensure!(pod.status.and_then(|status| status.start_time).is_some(), "the pod does not say when it was started");
    cluster.forget_namespace(&namespace).await
}

async fn a_pod_that_ends_badly_is_failed_with_its_exit_code(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("fails").await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    pods.create(&PostParams::default(), &once(cluster, "badly", 7).await?).await?;
    let pod = wait_for_phase(&pods, "badly", "Failed").await?;
    ensure!(exit_code(&pod) == Some(7), "the container did not end with 7: {:?}", exit_code(&pod));
    cluster.forget_namespace(&namespace).await
}

async fn a_container_that_fails_is_started_again(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("restarts").await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    let mut pod = once(cluster, "stumbles", 3).await?;
    pod.spec.as_mut().context("the test's pod has a spec")?.restart_policy = Some("Always".into());
    pods.create(&PostParams::default(), &pod).await?;
    let was_restarted = |pod: Option<&Pod>| {
        let status = pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.container_statuses.as_ref());
        status.and_then(|containers| containers.first()).is_some_and(|container| {
            let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
            container.restart_count >= 1 && last.is_some_and(|last| last.exit_code == 3)
        })
    };
    let pod = wait::for_object(&pods, "stumbles", "started again", PATIENCE, was_restarted).await?;
    let phase = pod.and_then(|pod| pod.status).and_then(|status| status.phase);
    ensure!(phase.as_deref() == Some("Running"), "a pod that is to run for ever has not failed: {phase:?}");
    cluster.forget_namespace(&namespace).await
}

async fn init_containers_have_ended_when_the_others_start(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("init").await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    let mut spec = forever(&cluster.any_node().await?);
    let mut prepare = spec["containers"][0].clone();
    prepare["name"] = json!("prepare");
    prepare["command"] = json!(["true"]);
    spec["initContainers"] = json!([prepare]);
    pods.create(&PostParams::default(), &from_json(json!({"metadata": {"name": "prepared"}, "spec": spec}))?).await?;
    let pod = wait::for_object(&pods, "prepared", "running", PATIENCE, conditions::is_pod_running()).await?;
    let status = pod.and_then(|pod| pod.status).context("the pod has no status")?;
    let prepared = status.init_container_statuses.unwrap_or_default();
    let ended = prepared.first().and_then(|container| container.state.as_ref()?.terminated.as_ref());
    ensure!(ended.is_some_and(|ended| ended.exit_code == 0), "the init container has not ended: {prepared:?}");
    cluster.forget_namespace(&namespace).await
}

async fn a_pod_without_a_node_waits_until_it_is_bound(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("binding").await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    let node = cluster.any_node().await?;
    let mut spec = forever(&node);
    spec["schedulerName"] = json!("kai-scheduler");
    spec.as_object_mut().context("a spec is an object")?.remove("nodeName");
    let created =
        pods.create(&PostParams::default(), &from_json(json!({"metadata": {"name": "bound"}, "spec": spec}))?).await?;
    let phase = created.status.and_then(|status| status.phase);
    ensure!(phase.as_deref() == Some("Pending"), "a new pod is {phase:?}");

    let target = json!({"apiVersion": "v1", "kind": "Node", "name": node});
    let binding: Binding = from_json(json!({"metadata": {"name": "bound"}, "target": target}))?;
    pods.create_subresource::<Binding, Status>("binding", "bound", &PostParams::default(), &binding).await?;
    let pod = wait::for_object(&pods, "bound", "running", PATIENCE, conditions::is_pod_running()).await?;
    let pod = pod.context("the pod is gone")?;
    ensure!(pod.spec.and_then(|spec| spec.node_name) == Some(node), "the pod runs elsewhere");
    let again = pods.create_subresource::<Binding, Status>("binding", "bound", &PostParams::default(), &binding).await;
    let conflict = matches!(&again, Err(kube::Error::Api(status)) if status.code == 409);
    ensure!(conflict, "a pod is bound once: {again:?}");
    cluster.forget_namespace(&namespace).await
}

async fn a_deleted_pod_has_its_grace_period_and_is_then_gone(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("grace").await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    let pod: Pod = from_json(json!({"metadata": {"name": "server"}, "spec": forever(&cluster.any_node().await?)}))?;
    pods.create(&PostParams::default(), &pod).await?;
    wait::for_object(&pods, "server", "running", PATIENCE, conditions::is_pod_running()).await?;

    let answer = pods.delete("server", &DeleteParams::default().grace_period(3)).await?;
    let dying = answer.left().context("the answer to a graceful deletion is the pod")?;
    ensure!(dying.metadata.deletion_timestamp.is_some(), "the pod does not know that it must go");
    ensure!(dying.metadata.deletion_grace_period_seconds == Some(3), "the grace period is not the one asked for");
    wait::for_absence(&pods, "server", PATIENCE).await?;
    cluster.forget_namespace(&namespace).await
}

async fn a_pod_that_asks_for_more_gpus_than_the_node_has_is_refused(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("greedy").await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    let node = gpu_node(cluster).await?;
    let mut spec = forever(&node);
    spec["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "9"}});
    pods.create(&PostParams::default(), &from_json(json!({"metadata": {"name": "greedy"}, "spec": spec}))?).await?;
    let pod = wait_for_phase(&pods, "greedy", "Failed").await?;
    let status = pod.status.context("the pod has no status")?;
    // The kubelet asks its device manager before it adds up resources, so that is who refuses.
    ensure!(status.reason.as_deref() == Some("UnexpectedAdmissionError"), "the reason is {:?}", status.reason);
    ensure!(
        status.message.as_deref().is_some_and(|message| message.contains("nvidia.com/gpu")),
        "the message does not name the resource: {:?}",
        status.message
    );

    spec = forever(&node);
    spec["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "8"}});
    pods.create(&PostParams::default(), &from_json(json!({"metadata": {"name": "modest"}, "spec": spec}))?).await?;
    wait::for_object(&pods, "modest", "running", PATIENCE, conditions::is_pod_running()).await?;
    cluster.forget_namespace(&namespace).await
}

async fn a_container_writes_its_log_on_the_node(cluster: &Cluster) -> Result<()> {
    let node = cluster.node().context("this tier has no real node")?;
    let namespace = cluster.namespace("log").await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    let mut spec = forever(&cluster.any_node().await?);
    spec["restartPolicy"] = json!("Never");
    spec["containers"][0]["command"] = json!(["sh", "-c", "echo hello from $HOSTNAME; ls /bin/busybox"]);
    pods.create(&PostParams::default(), &from_json(json!({"metadata": {"name": "hello"}, "spec": spec}))?).await?;
    let pod = wait_for_phase(&pods, "hello", "Succeeded").await?;
    let expected = "hello from hello\n/bin/busybox";
    let log = node.log(&pod, "main")?;
    ensure!(log == expected, "the node's file says {log:?}");
    let log = pods.logs("hello", &LogParams::default()).await?;
    ensure!(log.trim_end() == expected, "the API server says {log:?}");
    cluster.forget_namespace(&namespace).await
}

async fn gpu_node(cluster: &Cluster) -> Result<String> {
    let nodes = cluster.nodes().await?;
    let has_eight = |node: &&k8s_openapi::api::core::v1::Node| {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        allocatable.and_then(|amounts| amounts.get("nvidia.com/gpu")).is_some_and(|amount| amount.0 == "8")
    };
    Ok(nodes.iter().find(has_eight).context("no node has eight GPUs")?.name_any())
}
