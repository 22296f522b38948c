//! A cluster that KAI has scheduled until now: what it left is found at the start and taken over without touching a pod.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use kai_api::{
    BindRequest, PodGroup, Queue,
    names::{annotations, labels, namespaces, objects},
};
use kai_tests::{
    case,
    cluster::{Cluster, PATIENCE},
    harness::{Case, SIMULATED_NODES},
    wait,
};
use kube::{Api, Client, ResourceExt as _, api::PostParams};
use serde_json::{Value, json};

use crate::{
    fleet::CASE,
    stage::{Stage, from_json, is_running, reserved},
};

pub const CASES: &[Case] = &[case!(what_kai_left_is_taken_over_without_touching_a_pod, SIMULATED_NODES)];

const NAMESPACE: &str = "left-by-kai";
const NODE: &str = "takeover-0";
/// KAI makes its groups' names of random UUIDs.
const GROUP: &str = "7c1f5a52-9c0e-4b35-8a57-1f9a0c4e2b11";
const MAP: &str = "veteran-shared-gpu";

/// Leaves behind what KAI leaves: a reservation with a random name, a pod that runs on a part of its GPU, and one whose binding has
/// been decided but not done. The control plane does not run yet.
pub async fn prepare(client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    wait::for_object(&nodes, NODE, "there", PATIENCE, |node: Option<&Node>| node.is_some()).await?;
    let create = PostParams::default();
    let namespace: Namespace = from_json(json!({ "metadata": { "name": NAMESPACE } }))?;
    Api::all(client.clone()).create(&create, &namespace).await?;
    let amount = json!({ "quota": -1, "limit": -1, "overQuotaWeight": 1 });
    let resources = json!({ "gpu": amount, "cpu": amount, "memory": amount });
    let queues: Api<Queue> = Api::all(client.clone());
    queues
        .create(&create, &from_json(json!({ "metadata": { "name": "kai-top" }, "spec": { "resources": resources } }))?)
        .await?;
    let leaf =
        json!({ "metadata": { "name": "kai-leaf" }, "spec": { "parentQueue": "kai-top", "resources": resources } });
    queues.create(&create, &from_json(leaf)?).await?;

    let reservations: Api<Pod> = Api::namespaced(client.clone(), namespaces::RESERVATION);
    let name = format!("gpu-reservation-{NODE}-x7k2p");
    reservations.create(&create, &from_json(reservation(&name))?).await?;
    let told = |pod: Option<&Pod>| pod.and_then(reserved).is_some();
    let holder =
        wait::for_object(&reservations, &name, "holding a GPU", PATIENCE, told).await?.context("it is gone")?;
    let uuid = reserved(&holder).context("it holds one")?;

    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    for (suffix, data) in [
        (
            "0",
            json!({ "NVIDIA_VISIBLE_DEVICES": uuid, "RUNAI-VISIBLE-DEVICES": uuid, "RUNAI_NUM_OF_GPUS": "0.5", "GPU_PORTION": "0.5" }),
        ),
        ("0-evar", json!({ "NVIDIA_VISIBLE_DEVICES": uuid })),
    ] {
        let map = json!({ "metadata": { "name": format!("{MAP}-{suffix}") }, "data": data });
        maps.create(&create, &from_json(map)?).await?;
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    for name in ["veteran", "recruit"] {
        let mut pod = json!({
            "metadata": {
                "name": name,
                "labels": { labels::QUEUE: "kai-leaf" },
                "annotations": {
                    annotations::GPU_FRACTION: if name == "veteran" { "0.5" } else { "0.25" },
                    annotations::POD_GROUP: format!("pg-{name}"),
                    annotations::SHARED_GPU_CONFIG_MAP: if name == "veteran" { MAP } else { "recruit-shared-gpu" },
                },
            },
            "spec": {
                "schedulerName": objects::SCHEDULER,
                "terminationGracePeriodSeconds": 1,
                "runtimeClassName": "nvidia",
                "containers": [{ "name": "main", "image": "example/work:1" }],
            },
        });
        if name == "veteran" {
            pod["metadata"]["labels"][labels::GPU_GROUP] = json!(GROUP);
            pod["metadata"]["annotations"][annotations::RECEIVED_RESOURCE_TYPE] = json!("Fraction");
            pod["spec"]["nodeName"] = json!(NODE);
        }
        let pod = pods.create(&create, &from_json(pod)?).await?;
        let uid = pod.uid().context("a pod has a uid")?;
        let groups: Api<PodGroup> = Api::namespaced(client.clone(), NAMESPACE);
        let group = json!({
            "metadata": { "name": format!("pg-{name}"), "ownerReferences": [owner(name, &uid)] },
            "spec": { "minMember": 1, "queue": "kai-leaf", "priorityClassName": "train" },
        });
        groups.create(&create, &from_json(group)?).await?;
        if name == "recruit" {
            let requests: Api<BindRequest> = Api::namespaced(client.clone(), NAMESPACE);
            let request = json!({
                "metadata": { "name": name, "labels": { labels::SELECTED_NODE: NODE }, "ownerReferences": [owner(name, &uid)] },
                "spec": {
                    "podName": name,
                    "selectedNode": NODE,
                    "receivedResourceType": "Fraction",
                    "receivedGPU": { "count": 1, "portion": "0.25" },
                    "selectedGPUGroups": [GROUP],
                },
            });
            requests.create(&create, &from_json(request)?).await?;
        }
    }
    let veteran =
        wait::for_object(&pods, "veteran", "running", PATIENCE, |pod: Option<&Pod>| pod.is_some_and(is_running));
    let veteran = veteran.await?.context("it is gone")?;
    let record = json!({
        "metadata": { "name": "record" },
        "data": { "veteran": fingerprint(&veteran), "reservation": holder.uid().unwrap_or_default() },
    });
    maps.create(&create, &from_json(record)?).await?;
    Ok(())
}

fn reservation(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "namespace": namespaces::RESERVATION,
            "labels": { labels::APP: namespaces::RESERVATION, labels::GPU_GROUP: GROUP },
        },
        "spec": {
            "nodeName": NODE,
            "serviceAccountName": namespaces::RESERVATION,
            "runtimeClassName": "nvidia",
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "resource-reservation",
                "image": "kai/resource-reservation:v0.9",
                "resources": { "limits": { "nvidia.com/gpu": "1" } },
                "env": [
                    { "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
                    { "name": "POD_NAMESPACE", "valueFrom": { "fieldRef": { "fieldPath": "metadata.namespace" } } },
                ],
            }],
        },
    })
}

fn owner(name: &str, uid: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid })
}

/// Everything of a pod that somebody other than its kubelet could touch.
fn fingerprint(pod: &Pod) -> String {
    let metadata = json!({ "uid": pod.uid(), "labels": pod.labels(), "annotations": pod.annotations() });
    json!({ "metadata": metadata, "spec": pod.spec }).to_string()
}

async fn what_kai_left_is_taken_over_without_touching_a_pod(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "takeover").await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    let running = |pod: Option<&Pod>| pod.is_some_and(is_running);
    // The decision that KAI had made is carried out.
    let recruit = wait::for_object(&pods, "recruit", "running", PATIENCE, running).await?.context("it is gone")?;
    ensure!(recruit.labels().get(labels::GPU_GROUP).is_some_and(|group| group == GROUP), "it shares another GPU");
    // A new pod that fits beside them knows that they are there: half and a quarter are taken.
    for (name, part) in [("quarter", "0.25"), ("half", "0.5")] {
        let mut pod = stage.pod(name, &json!({ annotations::GPU_FRACTION: part }), &json!({}));
        pod["spec"]["nodeSelector"] = json!({ CASE: "takeover" });
        stage.create(pod).await?;
        stage.running(name).await?;
    }
    let quarter = stage.running("quarter").await?;
    ensure!(quarter.labels().get(labels::GPU_GROUP).is_some_and(|group| group == GROUP), "it does not fill the GPU up");
    let half = stage.running("half").await?;
    ensure!(half.labels().get(labels::GPU_GROUP).is_some_and(|group| group != GROUP), "the GPU holds 125 %");

    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), NAMESPACE);
    let record = maps.get("record").await?.data.context("the record has data")?;
    let veteran = pods.get("veteran").await?;
    ensure!(fingerprint(&veteran) == record["veteran"], "the pod was touched: {veteran:#?}");
    ensure!(is_running(&veteran), "the pod no longer runs");
    let holder = stage.reservation_for(GROUP).await?;
    ensure!(holder.uid().as_ref() == record.get("reservation"), "the reservation is another one");
    cluster.forget_namespace(NAMESPACE).await?;
    stage.clear().await
}
