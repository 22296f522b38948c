//! A team takes back what another has borrowed; the victims are told by whom, under which rule and with which numbers.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kai_api::names::labels;
use kai_tests::{
    case,
    cluster::{Cluster, PATIENCE},
    harness::{Case, SIMULATED_NODES},
    wait,
};
use kube::ResourceExt as _;
use serde_json::json;

use crate::stage::{STILL, Stage, is_running, queue};

pub const CASES: &[Case] = &[case!(a_team_takes_back_what_another_borrowed_and_then_nothing_moves, SIMULATED_NODES)];

async fn a_team_takes_back_what_another_borrowed_and_then_nothing_moves(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "reclaim").await?;
    let top = format!("{}-top", stage.namespace);
    let (team_a, team_b) = (format!("{}-team-a", stage.namespace), format!("{}-team-b", stage.namespace));
    queue(cluster, &team_a, Some(&top), 2).await?;
    queue(cluster, &team_b, Some(&top), 2).await?;
    let pod = |name: &str, queue: &str| {
        let mut pod = stage.pod(name, &json!({}), &json!({ "nvidia.com/gpu": "1" }));
        pod["metadata"]["labels"][labels::QUEUE] = json!(queue);
        pod
    };
    // Four GPUs: two are team-a's own, two are borrowed.
    let lent = ["a-0", "a-1", "a-2", "a-3"];
    for name in lent {
        stage.create(pod(name, &team_a)).await?;
    }
    for name in lent {
        stage.running(name).await?;
    }
    for name in ["b-0", "b-1"] {
        stage.create(pod(name, &team_b)).await?;
    }
    for name in ["b-0", "b-1"] {
        stage.running(name).await?;
    }
    let left = wait::until("two pods of team-a to be left", PATIENCE, async || {
        let pods = stage.all().await?;
        let left = pods.keys().filter(|name| name.starts_with("a-")).count();
        Ok((left == 2 && pods.values().all(is_running)).then_some(pods))
    })
    .await?;
    let victims: Vec<&str> = lent.into_iter().filter(|name| !left.contains_key(*name)).collect();
    for victim in victims {
        let text = stage.event("Pod", victim, &[team_a.as_str(), team_b.as_str()]).await?;
        ensure!(text.to_lowercase().contains("reclaim"), "the rule is not named: {text}");
        ensure!(text.contains('2') && (text.contains('3') || text.contains('4')), "the numbers are missing: {text}");
    }

    let before = versions(&left);
    tokio::time::sleep(STILL).await;
    let after = versions(&stage.all().await?);
    ensure!(before == after, "pods moved: {before:?} became {after:?}");
    stage.clear().await
}

/// Who is there: by name and uid.
fn versions(pods: &BTreeMap<String, Pod>) -> BTreeMap<String, Option<String>> {
    pods.iter().map(|(name, pod)| (name.clone(), pod.uid())).collect()
}
