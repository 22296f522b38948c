//! Gangs and topologies: all pods of a group or none, and where they stand together.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Node, Pod},
};
use kai_api::{
    Topology,
    names::{annotations, labels},
};
use kai_lab::faults::NodeAction;
use kai_tests::{
    case,
    cluster::{Cluster, PATIENCE},
    harness::{Case, SIMULATED_NODES},
    real::node::is_ready,
    wait,
};
use kube::{Api, ResourceExt as _, api::PostParams};
use serde_json::{Value, json};

use crate::{
    fleet::RACK,
    stage::{STILL, Stage, from_json, is_running, node_of, why_pending},
};

pub const CASES: &[Case] = &[
    case!(a_gang_of_four_waits_for_room_for_all_four, SIMULATED_NODES),
    case!(a_group_that_must_be_near_each_other_shares_a_rack, SIMULATED_NODES),
];

/// A Job whose pods start together or not at all, each on a node of its own.
fn gang(stage: &Stage<'_>, name: &str, size: usize, more: &Value) -> Value {
    let mut annotations = json!({ annotations::BATCH_MIN_MEMBER: size.to_string() });
    for (key, value) in more.as_object().into_iter().flatten() {
        annotations[key] = value.clone();
    }
    let mut spec = stage.pod_spec(&json!({ "nvidia.com/gpu": "4" }));
    spec["restartPolicy"] = json!("Never");
    let template = json!({
        "metadata": {
            "labels": { labels::QUEUE: stage.queue, "gang": name },
            "annotations": { "lab.kai/run-seconds": "3600" },
        },
        "spec": spec,
    });
    json!({
        "metadata": { "name": name, "labels": { labels::QUEUE: stage.queue }, "annotations": annotations },
        "spec": { "parallelism": size, "completions": size, "template": template },
    })
}

async fn a_gang_of_four_waits_for_room_for_all_four(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "gang").await?;
    let nodes: Api<Node> = Api::all(cluster.client());
    cluster.inject("gang-3", NodeAction::Vanish)?;
    wait::for_absence(&nodes, "gang-3", PATIENCE).await?;

    let jobs: Api<Job> = Api::namespaced(cluster.client(), &stage.namespace);
    jobs.create(&PostParams::default(), &from_json(gang(&stage, "four", 4, &json!({})))?).await?;
    let pods = wait::until("each of four pods to be told why it waits", PATIENCE, async || {
        let pods: Vec<Pod> = stage.all().await?.into_values().collect();
        Ok((pods.len() == 4 && pods.iter().all(|pod| why_pending(pod).is_some())).then_some(pods))
    })
    .await?;
    let why = why_pending(&pods[0]).context("it said so")?;
    ensure!(why.contains('3') && why.contains('4'), "the reason does not tell of three and four: {why}");
    tokio::time::sleep(STILL).await;
    let pods = stage.all().await?;
    ensure!(pods.values().all(|pod| node_of(pod).is_none()), "a part of the gang was bound");
    ensure!(
        stage.bind_requests().list(&kube::api::ListParams::default()).await?.items.is_empty(),
        "bind requests exist"
    );

    cluster.inject("gang-3", NodeAction::Resume)?;
    wait::for_object(&nodes, "gang-3", "ready", PATIENCE, |node: Option<&Node>| node.is_some_and(is_ready)).await?;
    wait::until("all four to run", PATIENCE, async || {
        let pods = stage.all().await?;
        Ok((pods.len() == 4 && pods.values().all(is_running)).then_some(()))
    })
    .await?;
    stage.clear().await
}

async fn a_group_that_must_be_near_each_other_shares_a_rack(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "racks").await?;
    let topology: Topology = from_json(json!({
        "metadata": { "name": "machine-room" },
        "spec": { "levels": [{ "nodeLabel": RACK }, { "nodeLabel": "kubernetes.io/hostname" }] },
    }))?;
    Api::all(cluster.client()).create(&PostParams::default(), &topology).await?;
    // One node of the north rack is taken: two free nodes side by side are only in the south.
    let mut pod = stage.pod("tenant", &json!({}), &json!({ "nvidia.com/gpu": "4" }));
    pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] = json!("racks-0");
    stage.create(pod).await?;
    stage.running("tenant").await?;

    let near = json!({ annotations::TOPOLOGY: "machine-room", annotations::TOPOLOGY_REQUIRED: RACK });
    let jobs: Api<Job> = Api::namespaced(cluster.client(), &stage.namespace);
    jobs.create(&PostParams::default(), &from_json(gang(&stage, "pair", 2, &near))?).await?;
    let pair = wait::until("the pair to run", PATIENCE, async || {
        let pods = stage.all().await?;
        let pair: Vec<Pod> = pods.into_values().filter(|pod| pod.labels().contains_key("gang")).collect();
        Ok((pair.len() == 2 && pair.iter().all(is_running)).then_some(pair))
    })
    .await?;
    let mut places: Vec<&str> = pair.iter().filter_map(node_of).collect();
    places.sort_unstable();
    ensure!(places == ["racks-2", "racks-3"], "the pair is on {places:?}");
    stage.clear().await
}
