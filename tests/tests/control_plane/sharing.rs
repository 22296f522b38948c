//! Pods that share a GPU: the seeds' own test, and that each container is told exactly its GPU.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kai_api::names::labels;
use kai_tests::{
    case,
    cluster::{Cluster, PATIENCE},
    harness::{Case, SIMULATED_NODES},
    wait,
};
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::{Value, json};

use crate::{
    fleet::CASE,
    stage::{Stage, event, is_running, node_of, reserved, why_pending},
};

const MULTIUBUNTU: &str = include_str!("../../../deploy/examples/multiubuntu.yaml");

pub const CASES: &[Case] = &[
    case!(four_of_five_ubuntus_run_on_a_thor_and_the_fifth_says_why_not, SIMULATED_NODES),
    case!(time_slicing_does_not_multiply_memory, SIMULATED_NODES),
    case!(without_a_count_of_gpus_memory_is_not_multiplied_and_the_node_is_warned, SIMULATED_NODES),
    case!(pods_with_fractions_share_the_gpu_that_they_are_told, SIMULATED_NODES),
];

async fn four_of_five_ubuntus_run_on_a_thor_and_the_fifth_says_why_not(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "ubuntu").await?;
    let runners = multiubuntu(&stage).await?;
    // On Tegra a container is told the index of the only GPU, never a UUID; the reservation knows the UUID.
    for pod in &runners {
        let told = stage.cluster.environment_of(&stage.namespace, &pod.name_any(), "ubuntu");
        let told = told.context("the container runs")?;
        ensure!(told.get("NVIDIA_VISIBLE_DEVICES").is_some_and(|devices| devices == "0"), "told {told:?}");
    }
    let reservation = stage.reservation_of(&runners[0]).await?;
    let uuid = reserved(&reservation).context("the reservation names no GPU")?;
    ensure!(uuid.starts_with("GPU-"), "the reservation holds {uuid}");
    let spec = serde_json::to_value(&reservation.spec)?;
    let paths: Vec<&str> = spec["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|volume| volume["hostPath"]["path"].as_str())
        .collect();
    ensure!(paths.contains(&"/usr/lib/aarch64-linux-gnu/nvidia") && paths.contains(&"/dev"), "it mounts {paths:?}");
    let container = &spec["containers"][0];
    let mounts = container["volumeMounts"].as_array().context("the container mounts something")?;
    let library = mounts.iter().find(|mount| mount["mountPath"] == "/usr/lib/aarch64-linux-gnu/nvidia");
    ensure!(library.is_some_and(|mount| mount["readOnly"] == true), "the libraries can be written: {mounts:?}");
    ensure!(container["securityContext"]["privileged"] == true, "it is not privileged");
    ensure!(variable(container, "NVIDIA_DRIVER_CAPABILITIES") == "utility", "{container}");
    ensure!(variable(container, "LD_LIBRARY_PATH") == "/usr/lib/aarch64-linux-gnu/nvidia", "{container}");
    stage.clear().await
}

async fn time_slicing_does_not_multiply_memory(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "sliced").await?;
    multiubuntu(&stage).await?;
    stage.clear().await
}

async fn without_a_count_of_gpus_memory_is_not_multiplied_and_the_node_is_warned(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "uncounted").await?;
    multiubuntu(&stage).await?;
    event(cluster, "default", "Node", "uncounted-0", &["nvidia.com/gpu.count", "kubectl label node uncounted-0"])
        .await?;
    stage.clear().await
}

/// Runs the seeds' Deployment on the case's node: four run on one GPU, the fifth says why not. Gives the four.
async fn multiubuntu(stage: &Stage<'_>) -> Result<Vec<Pod>> {
    let mut deployment: Deployment = serde_saphyr::from_str(MULTIUBUNTU)?;
    deployment.metadata.namespace = Some(stage.namespace.clone());
    let template = &mut deployment.spec.as_mut().context("it has a spec")?.template;
    let metadata = template.metadata.get_or_insert_default();
    metadata.labels.get_or_insert_default().insert(labels::QUEUE.to_owned(), stage.queue.clone());
    let spec = template.spec.as_mut().context("it has pods")?;
    spec.node_selector = Some([(CASE.to_owned(), stage.nodes.to_owned())].into());
    Api::namespaced(stage.cluster.client(), &stage.namespace).create(&PostParams::default(), &deployment).await?;

    let (runners, waiter) = wait::until("four pods to run and one to say why not", PATIENCE, async || {
        let pods = stage.all().await?;
        let (running, waiting): (Vec<Pod>, Vec<Pod>) = pods.into_values().partition(is_running);
        // The words are final when all holders are known.
        let final_words = |pod: &&Pod| why_pending(pod).is_some_and(|why| why.contains("122880"));
        let waiter = waiting.iter().find(final_words).cloned();
        Ok(waiter.filter(|_| running.len() == 4 && waiting.len() == 1).map(|waiter| (running, waiter)))
    })
    .await
    .with_context(|| format!("case `{}`", stage.nodes))?;
    let why = why_pending(&waiter).context("it said so")?;
    let mut parts = vec!["131072 MiB", "122880", "30720"];
    let names: Vec<String> = runners.iter().map(ResourceExt::name_any).collect();
    parts.extend(names.iter().map(String::as_str));
    let in_one_sentence = why.split(". ").any(|sentence| parts.iter().all(|part| sentence.contains(part)));
    ensure!(in_one_sentence, "no sentence has all of {parts:?}: {why}");
    stage.event("Pod", &waiter.name_any(), &parts).await?;
    let groups: std::collections::BTreeSet<_> = runners.iter().map(|pod| pod.labels().get(labels::GPU_GROUP)).collect();
    ensure!(groups.len() == 1 && !groups.contains(&None), "they share {groups:?}");
    ensure!(stage.reservations().await?.len() == 1, "one device, one reservation");
    Ok(runners)
}

async fn pods_with_fractions_share_the_gpu_that_they_are_told(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "fraction").await?;
    for name in ["left", "right"] {
        stage.create_fraction(name, "0.5").await?;
    }
    let (left, right) = (stage.running("left").await?, stage.running("right").await?);
    ensure!(left.labels().get(labels::GPU_GROUP) == right.labels().get(labels::GPU_GROUP), "they do not share");
    let reservation = stage.reservation_of(&left).await?;
    ensure!(node_of(&reservation) == node_of(&left), "the reservation is on another node");
    let uuid = reserved(&reservation).context("the reservation names no GPU")?;
    let held = cluster.devices_of("kai-resource-reservation", &reservation.name_any());
    let held: Vec<&String> = held.values().flat_map(|devices| devices.values()).flatten().collect();
    ensure!(held == [uuid], "the kubelet gave {held:?}, the reservation says {uuid}");
    for name in ["left", "right"] {
        let told = stage.told(name)?;
        ensure!(told.get("NVIDIA_VISIBLE_DEVICES") == Some(uuid), "`{name}` was told {told:?}, the GPU is {uuid}");
        ensure!(told.get("GPU_PORTION").is_some_and(|portion| portion == "0.5"), "`{name}` was told {told:?}");
    }
    let spec = serde_json::to_value(&reservation.spec)?;
    let volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    ensure!(volumes.iter().all(|volume| volume.get("hostPath").is_none()), "it mounts the node: {volumes:?}");
    let container = &spec["containers"][0];
    ensure!(container["securityContext"]["privileged"] != true, "it is privileged");
    ensure!(variable(container, "LD_LIBRARY_PATH").is_null(), "{container}");
    ensure!(spec["runtimeClassName"] == "nvidia", "its runtime class is {}", spec["runtimeClassName"]);

    // The last sharer takes the reservation along.
    for name in ["left", "right"] {
        stage.pods.delete(name, &kube::api::DeleteParams::default()).await?;
    }
    wait::until("the reservation to go", PATIENCE, async || Ok(stage.reservations().await?.is_empty().then_some(())))
        .await?;
    stage.clear().await
}

fn variable(container: &Value, name: &str) -> Value {
    let variables = container["env"].as_array().into_iter().flatten();
    variables
        .into_iter()
        .find(|variable| variable["name"] == name)
        .map_or(json!(null), |variable| variable["value"].clone())
}
