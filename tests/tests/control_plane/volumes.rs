//! Volumes that are given to a claim only when its pod has a node.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kai_tests::{
    case,
    cluster::{Cluster, PATIENCE},
    harness::{Case, SIMULATED_NODES, Tier},
    wait,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::stage::{Stage, from_json};

pub const CASES: &[Case] = &[case!(a_local_volume_is_given_to_the_claim_of_the_pod_on_its_node, SIMULATED_NODES)];

async fn a_local_volume_is_given_to_the_claim_of_the_pod_on_its_node(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "volume").await?;
    let create = PostParams::default();
    let class: StorageClass = from_json(json!({
        "metadata": { "name": "local-disks" },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }))?;
    Api::all(cluster.client()).create(&create, &class).await?;
    let volumes: Api<PersistentVolume> = Api::all(cluster.client());
    let place =
        json!({ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["volume-0"] }] });
    let volume = json!({
        "metadata": { "name": "disk" },
        "spec": {
            "storageClassName": "local-disks",
            "capacity": { "storage": "10Gi" },
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": { "path": "/disk" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [place] } },
        },
    });
    volumes.create(&create, &from_json(volume)?).await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.client(), &stage.namespace);
    let resources = json!({ "requests": { "storage": "1Gi" } });
    let spec = json!({ "storageClassName": "local-disks", "accessModes": ["ReadWriteOnce"], "resources": resources });
    claims.create(&create, &from_json(json!({ "metadata": { "name": "data" }, "spec": spec }))?).await?;

    // A real cluster marks a volume that has a claim as available first, and both as bound later; the embedded one has nobody for it.
    let embedded = cluster.tier() == Tier::Embedded;
    if embedded {
        let available = json!({ "status": { "phase": "Available" } });
        volumes.patch_status("disk", &PatchParams::default(), &Patch::Merge(&available)).await?;
    }
    let available = |volume: Option<&PersistentVolume>| {
        volume.and_then(|volume| volume.status.as_ref()?.phase.as_deref()) == Some("Available")
    };
    wait::for_object(&volumes, "disk", "available", PATIENCE, available).await?;
    let mut pod = stage.pod("reader", &json!({}), &json!({ "nvidia.com/gpu": "1" }));
    pod["spec"]["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
    stage.create(pod).await?;
    let given = |volume: Option<&PersistentVolume>| {
        volume.and_then(|volume| volume.spec.as_ref()?.claim_ref.as_ref()?.name.as_deref()) == Some("data")
    };
    wait::for_object(&volumes, "disk", "given to the claim", PATIENCE, given).await?;
    if embedded {
        let bound = json!({ "status": { "phase": "Bound" } });
        let named = json!({
            "metadata": { "annotations": { "pv.kubernetes.io/bind-completed": "yes" } },
            "spec": { "volumeName": "disk" },
        });
        claims.patch("data", &PatchParams::default(), &Patch::Merge(&named)).await?;
        claims.patch_status("data", &PatchParams::default(), &Patch::Merge(&bound)).await?;
        volumes.patch_status("disk", &PatchParams::default(), &Patch::Merge(&bound)).await?;
    }
    stage.running("reader").await?;
    let claim = claims.get("data").await?;
    let volume = claim.spec.and_then(|spec| spec.volume_name).context("the claim has no volume")?;
    ensure!(volume == "disk", "the claim has {volume}");
    stage.clear().await
}
