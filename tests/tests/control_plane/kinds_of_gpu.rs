//! The other ways to have a GPU: by memory, parts of several, MIG devices, DRA claims.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{DeviceClass, ResourceClaim},
};
use kai_api::names::{annotations, labels};
use kai_tests::{
    case,
    cluster::{Cluster, PATIENCE},
    harness::{Case, SIMULATED_NODES},
    wait,
};
use kube::{Api, ResourceExt as _, api::PostParams};
use serde_json::json;

use crate::stage::{Stage, from_json, node_of, reserved};

pub const CASES: &[Case] = &[
    case!(memory_of_a_gpu_is_asked_for_in_mib, SIMULATED_NODES),
    case!(parts_of_several_gpus_are_parts_of_different_gpus, SIMULATED_NODES),
    case!(a_mig_device_is_given_to_its_pod, SIMULATED_NODES),
    case!(a_claim_is_allocated_for_its_pod, SIMULATED_NODES),
];

async fn memory_of_a_gpu_is_asked_for_in_mib(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "memory").await?;
    // A T4 has 15360 MiB: two of these fill one, the third needs another.
    for name in ["first", "second", "third"] {
        stage.create(stage.pod(name, &json!({ annotations::GPU_MEMORY: "7680" }), &json!({}))).await?;
    }
    let mut groups: Vec<String> = Vec::new();
    for name in ["first", "second", "third"] {
        let pod = stage.running(name).await?;
        let reservation = stage.reservation_of(&pod).await?;
        let told = stage.told(name)?;
        ensure!(told.get("NVIDIA_VISIBLE_DEVICES") == reserved(&reservation), "`{name}` was told {told:?}");
        groups.push(pod.labels()[labels::GPU_GROUP].clone());
    }
    let distinct: BTreeSet<&String> = groups.iter().collect();
    ensure!(distinct.len() == 2, "three halves of a GPU are on {distinct:?}");
    stage.clear().await
}

async fn parts_of_several_gpus_are_parts_of_different_gpus(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "several").await?;
    let asked = json!({ annotations::GPU_FRACTION: "0.5", annotations::GPU_FRACTION_DEVICES: "2" });
    stage.create(stage.pod("wide", &asked, &json!({}))).await?;
    let pod = stage.running("wide").await?;
    let groups: Vec<&String> = pod
        .labels()
        .iter()
        .filter(|(key, _)| key.starts_with(labels::GPU_GROUP_PREFIX))
        .map(|(_, group)| group)
        .collect();
    ensure!(groups.len() == 2, "its labels are {:?}", pod.labels());
    let mut uuids = BTreeSet::new();
    for group in groups {
        let reservation = stage.reservation_for(group).await?;
        uuids.insert(reserved(&reservation).context("the reservation names no GPU")?.clone());
    }
    ensure!(uuids.len() == 2, "both parts are of {uuids:?}");
    let told = stage.told("wide")?;
    let told: BTreeSet<String> =
        told.get("NVIDIA_VISIBLE_DEVICES").context("it was told nothing")?.split(',').map(str::to_owned).collect();
    ensure!(told == uuids, "it was told {told:?}, the GPUs are {uuids:?}");
    stage.clear().await
}

async fn a_mig_device_is_given_to_its_pod(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "mig").await?;
    stage.create(stage.pod("slice", &json!({}), &json!({ "nvidia.com/mig-3g.20gb": "1" }))).await?;
    stage.running("slice").await?;
    let held = cluster.devices_of(&stage.namespace, "slice");
    let held: Vec<&String> = held.values().flat_map(|devices| devices.values()).flatten().collect();
    ensure!(held.len() == 1 && held[0].starts_with("MIG-"), "it holds {held:?}");
    // Eight GPUs have eight such devices: nine pods are one too many.
    stage.create(stage.pod("greedy", &json!({}), &json!({ "nvidia.com/mig-3g.20gb": "8" }))).await?;
    stage.waiting("greedy", &["mig-3g.20gb"]).await?;
    stage.clear().await
}

async fn a_claim_is_allocated_for_its_pod(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "claim").await?;
    let class: DeviceClass = from_json(json!({
        "metadata": { "name": "gpu.nvidia.com" },
        "spec": { "selectors": [{ "cel": { "expression": "device.driver == 'gpu.nvidia.com'" } }] },
    }))?;
    Api::all(cluster.client()).create(&PostParams::default(), &class).await?;
    let claims: Api<ResourceClaim> = Api::namespaced(cluster.client(), &stage.namespace);
    let request = json!({ "name": "gpu", "exactly": { "deviceClassName": "gpu.nvidia.com" } });
    let claim = json!({ "metadata": { "name": "one-gpu" }, "spec": { "devices": { "requests": [request] } } });
    claims.create(&PostParams::default(), &from_json(claim)?).await?;

    let mut pod = stage.pod("claimant", &json!({}), &json!({}));
    pod["spec"]["resourceClaims"] = json!([{ "name": "gpu", "resourceClaimName": "one-gpu" }]);
    pod["spec"]["containers"][0]["resources"] = json!({ "claims": [{ "name": "gpu" }] });
    stage.create(pod).await?;
    let pod = stage.running("claimant").await?;
    let claim = claims.get("one-gpu").await?;
    let status = claim.status.context("the claim has no status")?;
    let devices = status.allocation.and_then(|allocation| allocation.devices).context("the claim is not allocated")?;
    let results = devices.results.unwrap_or_default();
    let node = node_of(&pod).context("it runs somewhere")?;
    ensure!(results.len() == 1 && results[0].driver == "gpu.nvidia.com", "allocated: {results:?}");
    ensure!(results[0].pool.contains(node), "the device is of pool {}, the pod on {node}", results[0].pool);
    let consumers = status.reserved_for.unwrap_or_default();
    ensure!(consumers.iter().any(|consumer| Some(&consumer.uid) == pod.metadata.uid.as_ref()), "{consumers:?}");
    wait::until("the claim to be its pod's alone", PATIENCE, async || {
        let pods: Vec<Pod> = stage.all().await?.into_values().collect();
        Ok((pods.len() == 1).then_some(()))
    })
    .await?;
    stage.clear().await
}
