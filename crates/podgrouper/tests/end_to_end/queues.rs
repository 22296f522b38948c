//! Which queue a group is in, from its first writing on.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job, core::v1::Pod};
use kai_api::PodGroup;
use serde_json::json;

use crate::harness::{Cluster, app, job, pod, until};

async fn in_queue(cluster: &Cluster, queue: &str) {
    until(&format!("all groups in {queue}"), || async {
        let groups = cluster.groups().await;
        (!groups.is_empty() && groups.iter().all(|group| group.spec.queue.as_deref() == Some(queue))).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn groups_follow_their_workload_to_another_queue_within_seconds() {
    let cluster = Cluster::start().await;
    cluster.create::<Deployment>(app("web", Some(3), json!({"kai.scheduler/queue": "team-a"}))).await;
    cluster.grouped(3).await;
    in_queue(&cluster, "team-a").await;
    let begin = cluster.lab.clock().now();
    cluster.patch::<Deployment>("web", json!({"metadata": {"labels": {"kai.scheduler/queue": "team-b"}}})).await;
    in_queue(&cluster, "team-b").await;
    assert!(cluster.lab.clock().now().duration_since(begin).as_secs() < 2);
    let labels = cluster.groups().await.remove(0).metadata.labels.unwrap();
    assert_eq!(labels["kai.scheduler/queue"], "team-b");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_set_on_the_group_by_hand_stays() {
    let cluster = Cluster::start().await;
    cluster.create::<Job>(job("train", 2, json!({}))).await;
    cluster.grouped(2).await;
    in_queue(&cluster, "default-queue").await;
    let name = cluster.groups().await.remove(0).metadata.name.unwrap();
    cluster.patch::<PodGroup>(&name, json!({"spec": {"queue": "by-hand"}})).await;
    cluster.patch::<Job>("train", json!({"metadata": {"labels": {"kai.scheduler/queue": "team-b"}}})).await;
    tokio::time::sleep(Duration::from_mins(30)).await;
    in_queue(&cluster, "by-hand").await;
    // Given back to the workload, it follows again.
    cluster.patch::<PodGroup>(&name, json!({"spec": {"queue": "default-queue"}})).await;
    in_queue(&cluster, "team-b").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_owner_moves_with_its_own_label() {
    let cluster = Cluster::start().await;
    cluster.create::<Pod>(pod("alone")).await;
    cluster.grouped(1).await;
    cluster.patch::<Pod>("alone", json!({"metadata": {"labels": {"kai.scheduler/queue": "team-b"}}})).await;
    in_queue(&cluster, "team-b").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_one_group_that_name_different_queues_do_not_fight() {
    let cluster = Cluster::start().await;
    cluster.create::<Job>(job("train", 3, json!({}))).await;
    let pods = cluster.grouped(3).await;
    for (index, pod) in pods.iter().enumerate() {
        let name = pod.metadata.name.as_deref().unwrap();
        let queue = format!("team-{index}");
        cluster.patch::<Pod>(name, json!({"metadata": {"labels": {"kai.scheduler/queue": queue}}})).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let settled = cluster.groups().await.remove(0);
    let calls = cluster.called("patch", "podgroups");
    assert!(calls <= 2, "{calls}");
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(cluster.groups().await.remove(0).metadata.resource_version, settled.metadata.resource_version);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_priority_class_that_comes_later_counts_from_then_on() {
    let cluster = Cluster::start().await;
    let mut object = pod("urgent");
    object["metadata"]["labels"] = json!({"priorityClassName": "urgent"});
    cluster.create::<Pod>(object).await;
    assert_eq!(cluster.group_of("urgent").await.spec.priority_class_name.as_deref(), Some("train"));
    let warning = cluster.warning("urgent", "PriorityClass `urgent`").await;
    assert!(
        warning.starts_with("Pod `urgent`: label priorityClassName") && warning.contains("create the class"),
        "{warning}"
    );
    cluster.priority_class("urgent", 200).await;
    until("the class", || async {
        (cluster.group_of("urgent").await.spec.priority_class_name.as_deref() == Some("urgent")).then_some(())
    })
    .await;
    cluster.end().await;
}
