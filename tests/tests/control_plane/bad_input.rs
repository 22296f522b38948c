//! What users get wrong: each is refused, or told in an event or condition, with pod, field and remedy; nobody else is held up.

use anyhow::{Result, bail, ensure};
use kai_api::{
    Queue,
    names::{annotations, labels},
};
use kai_tests::{
    case,
    cluster::Cluster,
    harness::{Case, SIMULATED_NODES},
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::stage::{Stage, event, from_json, queue};

pub const CASES: &[Case] = &[
    case!(bad_requests_for_gpus_are_refused_with_pod_field_and_remedy, SIMULATED_NODES),
    case!(more_memory_than_any_gpu_has_is_told_with_the_numbers, SIMULATED_NODES),
    case!(queues_that_cannot_be_used_are_named, SIMULATED_NODES),
    case!(a_node_whose_memory_is_no_number_is_warned_and_holds_up_nobody, SIMULATED_NODES),
];

async fn bad_requests_for_gpus_are_refused_with_pod_field_and_remedy(cluster: &Cluster) -> Result<()> {
    let stage = Stage::named(cluster, "bad", "refused").await?;
    let fraction = |value: &str| json!({ annotations::GPU_FRACTION: value });
    let memory = |value: &str| json!({ annotations::GPU_MEMORY: value });
    let both = json!({ annotations::GPU_FRACTION: "0.5", annotations::GPU_MEMORY: "1024" });
    let unknown = json!({ annotations::GPU_FRACTION: "0.5", annotations::GPU_FRACTION_CONTAINER: "nobody" });
    let none = json!({});
    let whole = json!({ "nvidia.com/gpu": "1" });
    let bad: Vec<(&str, Value, &Value, Vec<&str>)> = vec![
        ("above-one", fraction("1.5"), &none, vec!["gpu-fraction", "1.5"]),
        ("a-word", fraction("abc"), &none, vec!["gpu-fraction", "abc"]),
        ("minus-nothing", fraction("-0"), &none, vec!["gpu-fraction", "-0"]),
        ("no-number", fraction("NaN"), &none, vec!["gpu-fraction", "NaN"]),
        ("no-memory", memory("0"), &none, vec!["gpu-memory", "0"]),
        ("with-unit", memory("30GB"), &none, vec!["gpu-memory", "30GB", "30720"]),
        ("both", both, &none, vec!["gpu-fraction", "gpu-memory"]),
        ("and-whole", fraction("0.5"), &whole, vec!["gpu-fraction"]),
        ("stranger", unknown, &none, vec!["gpu-fraction-container-name", "nobody"]),
    ];
    for (name, annotations, limits, parts) in bad {
        let refused = stage.create(stage.pod(name, &annotations, limits)).await;
        let Err(error) = refused else { bail!("`{name}` was accepted with {annotations}") };
        let text = format!("{error:#}");
        for part in parts.into_iter().chain([name]) {
            ensure!(text.contains(part), "`{part}` is missing in the refusal of `{name}`: {text}");
        }
    }
    // Too exact for the books, but a third is a fair wish.
    stage.create_fraction("third", "0.3333333333").await?;
    stage.running("third").await?;
    stage.clear().await
}

async fn more_memory_than_any_gpu_has_is_told_with_the_numbers(cluster: &Cluster) -> Result<()> {
    let stage = Stage::named(cluster, "bad", "huge").await?;
    stage.create(stage.pod("huge", &json!({ annotations::GPU_MEMORY: "999999" }), &json!({}))).await?;
    // The largest GPU of the suite is that of a Thor.
    let parts = ["huge", "gpu-memory", "999999 MiB", "131072 MiB"];
    stage.waiting("huge", &parts).await?;
    stage.event("Pod", "huge", &parts).await?;
    stage.create_fraction("modest", "0.2").await?;
    stage.running("modest").await?;
    stage.clear().await
}

async fn queues_that_cannot_be_used_are_named(cluster: &Cluster) -> Result<()> {
    let stage = Stage::named(cluster, "bad", "queues").await?;
    let in_queue = |name: &str, queue: &str| {
        let mut pod = stage.pod(name, &json!({ annotations::GPU_FRACTION: "0.1" }), &json!({}));
        pod["metadata"]["labels"][labels::QUEUE] = json!(queue);
        pod
    };
    let missing = format!("{}-missing", stage.namespace);
    stage.create(in_queue("lost", &missing)).await?;
    stage.waiting("lost", &[&missing]).await?;

    let parent = format!("{}-top", stage.namespace);
    stage.create(in_queue("too-high", &parent)).await?;
    stage.waiting("too-high", &[&parent]).await?;

    // A cycle is refused where it would close, or else told to whoever waits in it.
    let (hen, egg) = (format!("{}-hen", stage.namespace), format!("{}-egg", stage.namespace));
    queue(cluster, &hen, None, -1).await?;
    queue(cluster, &egg, Some(&hen), -1).await?;
    let queues: Api<Queue> = Api::all(cluster.client());
    let close = json!({ "spec": { "parentQueue": egg } });
    if let Err(error) = queues.patch(&hen, &PatchParams::default(), &Patch::Merge(&close)).await {
        let text = error.to_string();
        ensure!(text.contains(&hen) && text.contains(&egg), "the refusal does not name the queues: {text}");
    } else {
        stage.create(in_queue("dizzy", &egg)).await?;
        stage.waiting("dizzy", &[&egg]).await?;
    }
    stage.create_fraction("fine", "0.1").await?;
    stage.running("fine").await?;
    stage.clear().await
}

async fn a_node_whose_memory_is_no_number_is_warned_and_holds_up_nobody(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "lots").await?;
    event(cluster, "default", "Node", "lots-0", &["nvidia.com/gpu.memory", "lots", "kubectl label node lots-0"])
        .await?;
    // Memory cannot be counted there, fractions can.
    let pod = stage.pod("memory", &json!({ annotations::GPU_MEMORY: "1024" }), &json!({}));
    stage.pods.create(&PostParams::default(), &from_json(pod)?).await?;
    stage.waiting("memory", &["memory"]).await?;
    stage.create_fraction("fraction", "0.5").await?;
    stage.running("fraction").await?;
    stage.clear().await
}
