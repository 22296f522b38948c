//! What was there before: groups of users, groups that KAI wrote, pods that want to be left alone.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::DaemonSet, batch::v1::Job, core::v1::Pod};
use kai_api::PodGroup;
use kube::api::DeleteParams;
use serde_json::json;

use crate::harness::{Cluster, app, group, job, pod, until};

#[tokio::test(start_paused = true)]
async fn pods_in_a_group_of_their_users_are_left_alone() {
    let cluster = Cluster::start().await;
    let mut object = pod("mine");
    object["metadata"]["annotations"] = json!({"pod-group-name": "my-group"});
    let before: Pod = cluster.create(object).await;
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(cluster.groups().await, Vec::new());
    assert_eq!(
        cluster.api::<Pod>().get("mine").await.unwrap().metadata.resource_version,
        before.metadata.resource_version
    );
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn pods_and_owners_can_ask_to_be_skipped() {
    let cluster = Cluster::start().await;
    let mut object = pod("skipped");
    object["metadata"]["annotations"] = json!({"kai.scheduler/skip-podgrouper": "true"});
    cluster.create::<Pod>(object).await;
    cluster.create::<Job>(job("quiet", 2, json!({"kai.scheduler/skip-podgrouper": "true"}))).await;
    cluster.create::<Pod>(pod("loud")).await;
    cluster.group_of("loud").await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    let pods = cluster.pods().await;
    assert_eq!((pods.len(), pods.iter().filter_map(group).count()), (4, 1));
    // Without the annotation they are grouped at once.
    cluster.patch::<Job>("quiet", json!({"metadata": {"annotations": {"kai.scheduler/skip-podgrouper": null}}})).await;
    until("groups", || async { (cluster.groups().await.len() == 2).then_some(()) }).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_that_kai_wrote_is_taken_over_without_touching_a_pod() {
    let mut cluster = Cluster::new("cpu*2").await;
    let job: Job = cluster.create(job("train", 2, json!({"kai.scheduler/batch-min-member": "2"}))).await;
    let uid = job.metadata.uid.unwrap();
    let name = format!("pg-train-{uid}");
    let notes = json!({
        "kai.scheduler/batch-min-member": "2",
        "kai.scheduler/top-owner-metadata": format!("name: train\nuid: {uid}\ngroup: batch\nversion: v1\nkind: Job\n"),
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    });
    cluster
        .create::<PodGroup>(json!({
            "metadata": {
                "name": name, "namespace": "default", "annotations": notes,
                "labels": {"kai.scheduler/node-pool": "gold"},
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid}],
            },
            "spec": {"minMember": 2, "queue": "moved-by-hand", "priorityClassName": "train",
                "markUnschedulable": false, "schedulingBackoff": 1},
        }))
        .await;
    until("pods", || async { (cluster.pods().await.len() == 2).then_some(()) }).await;
    for pod in cluster.pods().await {
        let name_of_pod = pod.metadata.name.unwrap();
        cluster.patch::<Pod>(&name_of_pod, json!({"metadata": {"annotations": {"pod-group-name": name}}})).await;
    }
    let before = cluster.groups().await;
    cluster.run();
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(cluster.called("patch", "pods"), 0);
    assert_eq!(cluster.groups().await, before);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn daemons_that_kai_put_into_one_group_stay_there() {
    let mut cluster = Cluster::new("cpu*2").await;
    let set: DaemonSet = cluster.create(app("agent", None, json!({}))).await;
    let name = format!("pg-agent-{}", set.metadata.uid.unwrap());
    cluster
        .create::<PodGroup>(json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": 1}}))
        .await;
    until("pods", || async { (cluster.pods().await.len() == 2).then_some(()) }).await;
    let first = cluster.pods().await.remove(0).metadata.name.unwrap();
    cluster.patch::<Pod>(&first, json!({"metadata": {"annotations": {"pod-group-name": name}}})).await;
    cluster.run();
    let pods = cluster.grouped(2).await;
    let names: Vec<String> = pods.iter().filter_map(group).collect();
    assert_eq!(names.iter().filter(|found| **found == name).count(), 1);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_deleted_by_hand_comes_back() {
    let cluster = Cluster::start().await;
    cluster.create::<Job>(job("train", 2, json!({}))).await;
    cluster.create::<Pod>(pod("alone")).await;
    cluster.grouped(3).await;
    for group in cluster.groups().await {
        let name = group.metadata.name.unwrap();
        cluster.api::<PodGroup>().delete(&name, &DeleteParams::default()).await.unwrap();
    }
    until("two groups", || async { (cluster.groups().await.len() == 2).then_some(()) }).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn groups_go_with_their_workload_and_nobody_is_warned() {
    let cluster = Cluster::start().await;
    cluster.create::<Job>(job("train", 3, json!({}))).await;
    cluster.grouped(3).await;
    cluster.api::<Job>().delete("train", &DeleteParams::foreground()).await.unwrap();
    until("nothing", || async { (cluster.pods().await.is_empty() && cluster.groups().await.is_empty()).then_some(()) })
        .await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(cluster.called("create", "events"), 0);
    assert_eq!(cluster.groups().await, Vec::new());
    cluster.end().await;
}
