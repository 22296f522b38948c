//! The objects that cases send, and waiting for what becomes of them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kai_tests::{
    cluster::{Cluster, PATIENCE},
    real::node::IMAGE,
    wait,
};
use kube::Api;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A pod whose only container ends at once with `code`. The annotations tell a simulated kubelet what a real one finds out.
pub async fn once(cluster: &Cluster, name: &str, code: i32) -> Result<Pod> {
    let mut spec = forever(&cluster.any_node().await?);
    spec["restartPolicy"] = json!("Never");
    spec["containers"][0]["command"] = json!(["sh", "-c", format!("exit {code}")]);
    let annotations = json!({"lab.kai/run-seconds": "0.2", "lab.kai/exit-code": code.to_string()});
    from_json(json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec}))
}

/// The spec of a pod on `node` that runs until it is told to stop.
pub fn forever(node: &str) -> Value {
    // A shell does not die of SIGTERM by itself when it is the first process of a container.
    let command = ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1 & wait $!; done"];
    json!({
        "nodeName": node,
        "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": command}],
    })
}

/// Waits until a pod is in a phase, and gives it.
pub async fn wait_for_phase(pods: &Api<Pod>, name: &str, phase: &str) -> Result<Pod> {
    let has_phase = |pod: Option<&Pod>| {
        pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.phase.as_deref()) == Some(phase)
    };
    wait::for_object(pods, name, phase, PATIENCE, has_phase).await?.context("the pod is gone")
}

/// Waits until a deployment has exactly this many replicas, all of the latest template and available.
pub async fn wait_for_rollout(deployments: &Api<Deployment>, name: &str, replicas: i32) -> Result<()> {
    let is_done = |deployment: Option<&Deployment>| {
        deployment.is_some_and(|deployment| {
            let status = deployment.status.clone().unwrap_or_default();
            status.observed_generation >= deployment.metadata.generation
                && [status.replicas, status.updated_replicas, status.available_replicas] == [Some(replicas); 3]
        })
    };
    wait::for_object(deployments, name, "rolled out", Duration::from_secs(90), is_done).await.map(drop)
}

/// How the first container of a pod has ended.
pub fn exit_code(pod: &Pod) -> Option<i32> {
    let container = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    Some(container.state.as_ref()?.terminated.as_ref()?.exit_code)
}

/// An object as its manifest shows it.
pub fn from_json<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).context("the test's own object")
}
