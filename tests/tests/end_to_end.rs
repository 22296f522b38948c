//! The end-to-end suite: what a user of a cluster relies on, shown on each tier through nothing but the Kubernetes API.
//!
//! Written once; where the tiers disagree, the simulated part is wrong. Pods name their node, because nothing here schedules.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{ConfigMap, Namespace, Pod},
};
use kai_tests::{
    case,
    cluster::{Cluster, PATIENCE},
    harness::{self, ALL, REAL_NODE, SIMULATED_NODES},
    real::node::{IMAGE, is_ready},
    wait,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams},
    runtime::conditions,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn main() -> ExitCode {
    harness::main(&[
        case!(nodes_register_and_are_ready, ALL),
        case!(a_pod_that_ends_well_is_succeeded, ALL),
        case!(a_pod_that_ends_badly_is_failed_with_its_exit_code, ALL),
        case!(a_deployment_rolls_out_scales_and_rolls_over, ALL),
        case!(a_job_completes, ALL),
        case!(a_deleted_pod_has_its_grace_period_and_is_then_gone, ALL),
        case!(a_deleted_namespace_takes_everything_along, ALL),
        case!(a_pod_that_asks_for_more_gpus_than_the_node_has_is_refused, SIMULATED_NODES),
        case!(a_container_writes_its_log_on_the_node, REAL_NODE),
    ])
}

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

async fn a_deployment_rolls_out_scales_and_rolls_over(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("deployment").await?;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), &namespace);
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    let template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": forever(&cluster.any_node().await?),
    });
    let deployment: Deployment = from_json(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }))?;
    deployments.create(&PostParams::default(), &deployment).await?;
    wait_for_rollout(&deployments, "web", 2).await?;

    let scale = json!({"spec": {"replicas": 3}});
    deployments.patch_scale("web", &PatchParams::default(), &Patch::Merge(scale)).await?;
    wait_for_rollout(&deployments, "web", 3).await?;

    let change = json!({"spec": {"template": {"metadata": {"labels": {"generation": "second"}}}}});
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(change)).await?;
    wait_for_rollout(&deployments, "web", 3).await?;
    let sets: Api<ReplicaSet> = Api::namespaced(cluster.client(), &namespace);
    let mut sizes: Vec<_> = sets.list(&ListParams::default()).await?.iter().map(replicas_wanted).collect();
    sizes.sort_unstable();
    ensure!(sizes == [0, 3], "the old replica set is kept and empty, the new one is full: {sizes:?}");

    deployments.delete("web", &DeleteParams::foreground()).await?;
    wait::for_absence(&deployments, "web", PATIENCE).await?;
    let left = pods.list(&ListParams::default()).await?.items;
    ensure!(left.is_empty(), "foreground deletion left {} pods", left.len());
    cluster.forget_namespace(&namespace).await
}

async fn a_job_completes(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("job").await?;
    let jobs: Api<Job> = Api::namespaced(cluster.client(), &namespace);
    let pod = once(cluster, "unused", 0).await?;
    let template = json!({"metadata": {"annotations": pod.metadata.annotations}, "spec": pod.spec});
    let job: Job = from_json(json!({
        "metadata": {"name": "train"},
        "spec": {"completions": 3, "parallelism": 2, "backoffLimit": 0, "template": template},
    }))?;
    jobs.create(&PostParams::default(), &job).await?;
    let job = wait::for_object(&jobs, "train", "completed", PATIENCE, conditions::is_job_completed()).await?;
    let status = job.and_then(|job| job.status).context("the job has no status")?;
    ensure!(status.succeeded == Some(3), "three pods succeeded: {:?}", status.succeeded);
    ensure!(status.completion_time.is_some(), "the job says when it was done");
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

/// A pod whose only container ends at once with `code`. The annotations tell a simulated kubelet what a real one finds out.
async fn once(cluster: &Cluster, name: &str, code: i32) -> Result<Pod> {
    let mut spec = forever(&cluster.any_node().await?);
    spec["restartPolicy"] = json!("Never");
    spec["containers"][0]["command"] = json!(["sh", "-c", format!("exit {code}")]);
    let annotations = json!({"lab.kai/run-seconds": "0.2", "lab.kai/exit-code": code.to_string()});
    from_json(json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec}))
}

/// The spec of a pod on `node` that runs until it is told to stop.
fn forever(node: &str) -> Value {
    // A shell does not die of SIGTERM by itself when it is the first process of a container.
    let command = ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1 & wait $!; done"];
    json!({
        "nodeName": node,
        "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": command}],
    })
}

async fn gpu_node(cluster: &Cluster) -> Result<String> {
    let nodes = cluster.nodes().await?;
    let has_eight = |node: &&k8s_openapi::api::core::v1::Node| {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        allocatable.and_then(|amounts| amounts.get("nvidia.com/gpu")).is_some_and(|amount| amount.0 == "8")
    };
    Ok(nodes.iter().find(has_eight).context("no node has eight GPUs")?.name_any())
}

async fn wait_for_phase(pods: &Api<Pod>, name: &str, phase: &str) -> Result<Pod> {
    let has_phase = |pod: Option<&Pod>| {
        pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.phase.as_deref()) == Some(phase)
    };
    wait::for_object(pods, name, phase, PATIENCE, has_phase).await?.context("the pod is gone")
}

async fn wait_for_rollout(deployments: &Api<Deployment>, name: &str, replicas: i32) -> Result<()> {
    let is_done = |deployment: Option<&Deployment>| {
        deployment.is_some_and(|deployment| {
            let status = deployment.status.clone().unwrap_or_default();
            status.observed_generation >= deployment.metadata.generation
                && [status.replicas, status.updated_replicas, status.available_replicas] == [Some(replicas); 3]
        })
    };
    wait::for_object(deployments, name, "rolled out", Duration::from_secs(90), is_done).await.map(drop)
}

fn replicas_wanted(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

fn exit_code(pod: &Pod) -> Option<i32> {
    let container = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    Some(container.state.as_ref()?.terminated.as_ref()?.exit_code)
}

fn from_json<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).context("the test's own object")
}
