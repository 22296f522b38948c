//! Each kind of workload from its object to the groups of its pods.

use std::{collections::BTreeSet, time::Instant};

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::{Binding, Pod},
};
use kube::{api::PostParams, core::Status};
use serde_json::json;

use crate::harness::{Cluster, app, from, group, job, pod, spec, until};

#[tokio::test(start_paused = true)]
async fn a_pod_without_owner_gets_a_group_of_its_own() {
    let cluster = Cluster::start().await;
    let mut object = pod("alone");
    object["metadata"]["labels"] = json!({"user": "ada"});
    let created: Pod = cluster.create(object).await;
    let group = cluster.group_of("alone").await;
    assert_eq!(group.metadata.name, Some(format!("pg-alone-{}", created.metadata.uid.as_ref().unwrap())));
    assert_eq!(group.metadata.owner_references.unwrap()[0].uid, created.metadata.uid.unwrap());
    assert_eq!(group.spec.queue.as_deref(), Some("default-queue"));
    assert_eq!(group.spec.priority_class_name.as_deref(), Some("train"));
    assert_eq!(group.spec.min_member, Some(1));
    assert_eq!(group.metadata.labels.unwrap()["user"], "ada");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn each_pod_of_a_deployment_has_its_own_group_with_the_deployments_queue() {
    let cluster = Cluster::start().await;
    cluster.create::<Deployment>(app("web", Some(5), json!({"kai.scheduler/queue": "team-a"}))).await;
    let pods = cluster.grouped(5).await;
    let names: BTreeSet<String> = pods.iter().filter_map(group).collect();
    assert_eq!(names.len(), 5);
    for group in cluster.groups().await {
        assert_eq!(group.spec.queue.as_deref(), Some("team-a"));
        assert_eq!(group.spec.priority_class_name.as_deref(), Some("inference"));
        assert_eq!(group.metadata.owner_references.unwrap()[0].kind, "Pod");
        assert!(group.metadata.annotations.unwrap()["kai.scheduler/top-owner-metadata"].contains("kind: Deployment\n"));
    }
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_is_one_gang_of_the_size_it_asks_for() {
    let cluster = Cluster::start().await;
    cluster.create::<Job>(job("train", 4, json!({"kai.scheduler/batch-min-member": "4"}))).await;
    let pods = cluster.grouped(4).await;
    let names: BTreeSet<String> = pods.iter().filter_map(group).collect();
    assert_eq!(names.len(), 1);
    let groups = cluster.groups().await;
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].spec.min_member, Some(4));
    assert_eq!(groups[0].metadata.owner_references.as_ref().unwrap()[0].kind, "Job");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn each_run_of_a_cron_job_is_a_gang_of_its_own() {
    let cluster = Cluster::start().await;
    cluster
        .create::<CronJob>(json!({
            "metadata": {
                "name": "nightly", "namespace": "default",
                "labels": {"kai.scheduler/queue": "team-n"},
                "annotations": {"kai.scheduler/batch-min-member": "2"},
            },
            "spec": {"schedule": "* * * * *",
                "jobTemplate": {"spec": {"parallelism": 2, "completions": 2, "template": {"spec": spec()}}}},
        }))
        .await;
    until("two runs", || async { (cluster.groups().await.len() >= 2).then_some(()) }).await;
    for group in cluster.groups().await {
        assert_eq!(group.spec.min_member, Some(2));
        assert_eq!(group.spec.queue.as_deref(), Some("team-n"));
        assert_eq!(group.metadata.owner_references.unwrap()[0].kind, "Job");
    }
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn sets_share_a_group_and_daemons_do_not() {
    let cluster = Cluster::start().await;
    cluster.create::<StatefulSet>(app("store", Some(1), json!({"priorityClassName": "build"}))).await;
    cluster.create::<ReplicaSet>(app("bare", Some(3), json!({}))).await;
    cluster.create::<DaemonSet>(app("agent", None, json!({}))).await;
    let pods = cluster.grouped(1 + 3 + 2).await;
    let count = |prefix: &str| {
        pods.iter().filter_map(group).filter(|name| name.starts_with(prefix)).collect::<BTreeSet<_>>().len()
    };
    assert_eq!((count("pg-store-"), count("pg-bare-"), count("pg-agent-")), (1, 1, 2));
    let stored = cluster.group_of("store-0").await;
    assert_eq!(stored.spec.priority_class_name.as_deref(), Some("build"));
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn five_hundred_pods_of_a_job_cost_one_group_and_one_patch_each() {
    let mut cluster = Cluster::new("cpu").await;
    cluster.create::<Job>(job("big", 512, json!({"kai.scheduler/batch-min-member": "512"}))).await;
    until("pods", || async { (cluster.pods().await.len() == 512).then_some(()) }).await;
    let begin = Instant::now();
    cluster.run();
    until("patches", || async { (cluster.called("patch", "pods") >= 512).then_some(()) }).await;
    println!("512 pods grouped in {:?}", begin.elapsed());
    cluster.grouped(512).await;
    assert_eq!(cluster.called("create", "podgroups"), 1);
    assert_eq!(cluster.called("patch", "podgroups"), 0);
    assert_eq!(cluster.called("patch", "pods"), 512);
    assert!(cluster.called("get", "jobs") <= 2, "{:?}", cluster.calls());
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn in_a_crowd_the_groups_of_pods_without_owner_are_made_when_it_is_over() {
    const CROWD: usize = 50;
    let cluster = Cluster::start().await;
    for number in 0..CROWD {
        let _: Pod = cluster.create(pod(&format!("one-of-many-{number:02}"))).await;
    }
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(cluster.groups().await.len(), 0, "nobody waits for the groups of a crowd, not even for the first ones");
    // Nobody places them here: then they are tied all the same.
    for pod in cluster.grouped(CROWD).await {
        assert_eq!(group(&pod), kai_api::group_of(&pod));
    }
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_groups_of_a_crowd_wait_until_its_pods_are_bound() {
    const CROWD: usize = 100;
    let cluster = Cluster::start().await;
    for number in 0..CROWD {
        let mut object = pod(&format!("one-of-many-{number:03}"));
        object["metadata"]["annotations"] = json!({"lab.kai/run-seconds": "forever"});
        let _: Pod = cluster.create(object).await;
    }
    // Somebody binds them, twenty a second: longer than a crowd of pods that only came would last.
    for number in 0..CROWD {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let name = format!("one-of-many-{number:03}");
        let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "cpu-0"}});
        let binding: Binding = from(binding);
        let parameters = PostParams::default();
        cluster
            .api::<Pod>()
            .create_subresource::<Binding, Status>("binding", &name, &parameters, &binding)
            .await
            .unwrap();
    }
    assert_eq!(cluster.groups().await.len(), 0);
    cluster.grouped(CROWD).await;
    cluster.end().await;
}
