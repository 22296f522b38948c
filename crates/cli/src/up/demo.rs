//! The demo workloads of `kai up`: the ordinary one shows queues, a gang and parts of a GPU; others are chosen with `--demo`.

use anyhow::Context as _;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Namespace, Node},
};
use kai_api::{
    Queue,
    names::{annotations, labels, node_labels, objects},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// The manifest of the seeds' own test on a Jetson Thor.
const MULTIUBUNTU: &str = include_str!("../../../../deploy/examples/multiubuntu.yaml");
/// What a Thor has, as its owners must label it by hand: NVML does not know.
const THOR_MEMORY: &str = "131072";

/// A demo by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Demo {
    /// Two teams' queues, a gang of four, and pods that share a GPU.
    Teams,
    /// Five pods with 30 GB of GPU memory each: on one Thor four run, the fifth waits.
    Multiubuntu,
}

/// Starts it and says what it is.
pub async fn start(client: &Client, demo: Demo) -> anyhow::Result<Vec<String>> {
    match demo {
        Demo::Teams => teams(client).await,
        Demo::Multiubuntu => multiubuntu(client).await,
    }
}

/// Makes the nodes ready for it, before anybody looks at them, and says how.
pub async fn prepare(client: &Client, demo: Demo) -> anyhow::Result<Vec<String>> {
    let mut told = Vec::new();
    if demo != Demo::Multiubuntu {
        return Ok(told);
    }
    let nodes: Api<Node> = Api::all(client.clone());
    for node in nodes.list(&ListParams::default()).await? {
        let thor = node.labels().get("nvidia.com/gpu.product").is_some_and(|product| product.contains("Thor"));
        if thor && !node.labels().contains_key(node_labels::GPU_MEMORY) {
            let (name, label) = (node.name_any(), node_labels::GPU_MEMORY);
            let patch = json!({ "metadata": { "labels": { label: THOR_MEMORY } } });
            nodes.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
            told.push(format!("kubectl label node {name} {label}={THOR_MEMORY}   # NVML on Thor does not tell"));
        }
    }
    Ok(told)
}

async fn multiubuntu(client: &Client) -> anyhow::Result<Vec<String>> {
    let deployment: Deployment = serde_saphyr::from_str(MULTIUBUNTU).context("the demo's own manifest")?;
    Api::default_namespaced(client.clone()).create(&PostParams::default(), &deployment).await?;
    let file = "deploy/examples/multiubuntu.yaml";
    Ok(vec![format!("kubectl apply -f {file}   # five pods with 30720 MiB of GPU memory each")])
}

async fn teams(client: &Client) -> anyhow::Result<Vec<String>> {
    let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": "demo" } }))?;
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    let queues: Api<Queue> = Api::all(client.clone());
    for (name, parent, gpus) in
        [("research", None, -1), ("team-a", Some("research"), 6), ("team-b", Some("research"), 4)]
    {
        let amount = |quota: i32| json!({ "quota": quota, "limit": -1, "overQuotaWeight": 1 });
        let queue: Queue = serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": {
                "parentQueue": parent,
                "resources": { "gpu": amount(gpus), "cpu": amount(-1), "memory": amount(-1) },
            },
        }))?;
        queues.create(&PostParams::default(), &queue).await?;
    }
    let gang: Job = serde_json::from_value(json!({
        "metadata": { "name": "train", "annotations": { annotations::BATCH_MIN_MEMBER: "4" }, "labels": { labels::QUEUE: "team-a" } },
        "spec": {
            "parallelism": 4,
            "completions": 4,
            "template": pod("team-a", json!({ "lab.kai/run-seconds": "3600" }), json!({ "nvidia.com/gpu": "2" }), Some("Never")),
        },
    }))?;
    Api::namespaced(client.clone(), "demo").create(&PostParams::default(), &gang).await?;
    let notebooks: Deployment = serde_json::from_value(json!({
        "metadata": { "name": "notebook", "labels": { labels::QUEUE: "team-b" } },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "app": "team-b" } },
            "template": pod("team-b", json!({ annotations::GPU_FRACTION: "0.5" }), json!({}), None),
        },
    }))?;
    Api::namespaced(client.clone(), "demo").create(&PostParams::default(), &notebooks).await?;
    Ok(vec![
        "demo: queue research with team-a (6 GPUs) and team-b (4 GPUs)".to_owned(),
        "demo: job demo/train of team-a, a gang of four with two GPUs each".to_owned(),
        "demo: deployment demo/notebook of team-b, three pods with half a GPU each".to_owned(),
    ])
}

fn pod(queue: &str, annotations: Value, limits: Value, restart: Option<&str>) -> Value {
    json!({
        "metadata": { "labels": { "app": queue, labels::QUEUE: queue }, "annotations": annotations },
        "spec": {
            "schedulerName": objects::SCHEDULER,
            "restartPolicy": restart,
            "containers": [{ "name": "main", "image": "example/work:1", "resources": { "limits": limits } }],
        },
    })
}
