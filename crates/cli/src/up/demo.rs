//! The demo workload of a bare `kai up`: a Deployment that trains on the first GPU node, to have something to look at.

use anyhow::Context;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

const GPU: &str = "nvidia.com/gpu";

/// Starts it and says what it is.
pub async fn start(client: &Client) -> anyhow::Result<String> {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    let with_gpus = nodes.items.iter().find(|node| {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        allocatable.and_then(|resources| resources.get(GPU)).is_some_and(|gpus| gpus.0 != "0")
    });
    let node = with_gpus.context("the default fleet has a GPU node")?.name_any();
    let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": "demo" } }))?;
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": { "name": "trainer" },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "app": "trainer" } },
            "template": {
                "metadata": { "labels": { "app": "trainer" } },
                "spec": {
                    "nodeName": node,
                    "containers": [{ "name": "train", "image": "example/trainer:1", "resources": { "limits": { GPU: "1" } } }],
                },
            },
        },
    }))?;
    Api::namespaced(client.clone(), "demo").create(&PostParams::default(), &deployment).await?;
    Ok(format!("demo: deployment demo/trainer, three pods with one GPU each on {node}"))
}
