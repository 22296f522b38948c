//! Lost answers, deaths and bad input: one group afterwards, and nobody else held up.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, Pod},
};
use kai_lab::faults::{ApiEffect, Trigger};
use serde_json::{Value, json};

use crate::harness::{Cluster, app, fault, group, job, pod, until};

#[tokio::test(start_paused = true)]
async fn lost_answers_and_errors_leave_one_group_and_every_pod_in_it() {
    let mut cluster = Cluster::new("cpu").await;
    cluster.faults.set(vec![
        fault("create", "podgroups", Trigger::Nth(1), ApiEffect::LostAnswer),
        fault("create", "podgroups", Trigger::Nth(2), ApiEffect::Error(500)),
        fault("patch", "pods", Trigger::Probability(0.3), ApiEffect::LostAnswer),
        fault("patch", "pods", Trigger::Probability(0.3), ApiEffect::Error(503)),
        fault("get", "jobs", Trigger::Probability(0.5), ApiEffect::Error(500)),
        fault("watch", "pods", Trigger::Probability(0.5), ApiEffect::Reset),
    ]);
    cluster.run();
    cluster.create::<Job>(job("train", 40, json!({"kai.scheduler/batch-min-member": "40"}))).await;
    cluster.grouped(40).await;
    assert_eq!(cluster.groups().await.len(), 1);
    assert!(cluster.faults.struck() > 20, "{}", cluster.faults.struck());
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_death_at_any_write_leaves_one_group() {
    let mut struck = 0;
    for (verb, resource) in [("create", "podgroups"), ("patch", "pods"), ("get", "jobs")] {
        for nth in 1..=3 {
            let mut cluster = Cluster::new("cpu").await;
            cluster.fail(verb, resource, Trigger::Nth(nth), ApiEffect::LostAnswer);
            cluster.run();
            cluster.create::<Job>(job("train", 6, json!({}))).await;
            // Until the answer was lost, or everything is done without that call.
            until("the point", || async {
                let done = cluster.faults.struck() > 0 || cluster.pods().await.iter().filter_map(group).count() == 6;
                done.then_some(())
            })
            .await;
            struck += cluster.faults.struck();
            cluster.kill().await;
            cluster.faults.set(Vec::new());
            cluster.run();
            cluster.grouped(6).await;
            assert_eq!(cluster.groups().await.len(), 1, "{verb} {resource} {nth}");
            cluster.end().await;
        }
    }
    assert!(struck >= 4, "{struck}");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_may_not_be_read_ends_the_walk_below_it() {
    let cluster = Cluster::start().await;
    cluster.fail("get", "deployments", Trigger::Always, ApiEffect::Error(403));
    cluster.create::<Deployment>(app("web", Some(2), json!({}))).await;
    let pods = cluster.grouped(2).await;
    let groups = cluster.groups().await;
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].metadata.owner_references.as_ref().unwrap()[0].kind, "ReplicaSet");
    let warning = cluster.warning(pods[0].metadata.name.as_deref().unwrap(), "Deployment `web`").await;
    assert!(warning.contains("grant `get` on apps/v1 Deployment"), "{warning}");
    cluster.end().await;
}

/// A pod that belongs to others.
fn owned(name: &str, owners: &[Value]) -> Value {
    let mut object = pod(name);
    object["metadata"]["ownerReferences"] = json!(owners);
    object
}

fn reference(map: &ConfigMap) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": map.metadata.name, "uid": map.metadata.uid})
}

#[tokio::test(start_paused = true)]
async fn owners_in_a_circle_are_told_and_hold_up_nobody() {
    let cluster = Cluster::start().await;
    let one: ConfigMap = cluster.create(json!({"metadata": {"name": "one"}})).await;
    let two: ConfigMap =
        cluster.create(json!({"metadata": {"name": "two", "ownerReferences": [reference(&one)]}})).await;
    cluster.patch::<ConfigMap>("one", json!({"metadata": {"ownerReferences": [reference(&two)]}})).await;
    cluster.create::<Pod>(owned("round", &[reference(&one)])).await;
    cluster.create::<Pod>(pod("straight")).await;
    cluster.group_of("straight").await;
    let warning = cluster.warning("round", "circle").await;
    assert!(warning.contains("ConfigMap `one`, ConfigMap `two`") && warning.contains("remove"), "{warning}");
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(cluster.called("get", "configmaps") < 60, "{:?}", cluster.calls());
    cluster.patch::<ConfigMap>("one", json!({"metadata": {"ownerReferences": null}})).await;
    assert_eq!(cluster.group_of("round").await.metadata.owner_references.unwrap()[0].name, "one");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_of_another_uid_is_not_the_owner() {
    let cluster = Cluster::start().await;
    let map: ConfigMap = cluster.create(json!({"metadata": {"name": "map"}})).await;
    let mut wrong = reference(&map);
    wrong["uid"] = json!("00000000-0000-4000-8000-000000000000");
    wrong["controller"] = json!(true);
    // The kind of the second is not served, so the garbage collector decides nothing.
    let ghost = json!({"apiVersion": "ghosts.example.com/v1", "kind": "Ghost", "name": "g",
        "uid": "00000000-0000-4000-8000-000000000001"});
    cluster.create::<Pod>(owned("lost", &[ghost.clone(), wrong])).await;
    let warning = cluster.warning("lost", "another one").await;
    assert!(warning.contains("ConfigMap `map`") && warning.contains("ownerReferences"), "{warning}");
    assert_eq!(cluster.groups().await, Vec::new());
    let mut right = reference(&map);
    right["controller"] = json!(true);
    cluster.patch::<Pod>("lost", json!({"metadata": {"ownerReferences": [ghost, right]}})).await;
    assert_eq!(cluster.group_of("lost").await.metadata.owner_references.unwrap()[0].name, "map");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_told_with_its_remedy_and_mended_at_once() {
    let cluster = Cluster::start().await;
    cluster.create::<Job>(job("broken", 2, json!({"kai.scheduler/batch-min-member": "four"}))).await;
    cluster
        .create::<Job>(job(
            "small",
            2,
            json!({"kai.scheduler/batch-min-member": "3", "kai.scheduler/preemption-delay": "soon"}),
        ))
        .await;
    until("the small one", || async {
        (cluster.groups().await.len() == 1 && cluster.pods().await.len() == 4).then_some(())
    })
    .await;
    let names: BTreeSet<String> = cluster.pods().await.into_iter().filter_map(|pod| pod.metadata.name).collect();
    let named = |prefix: &str| names.iter().find(|name| name.starts_with(prefix)).cloned().unwrap();
    let broken = named("broken-");
    let warning = cluster.warning(&broken, "batch-min-member").await;
    assert!(warning.starts_with("Job `broken`: annotation kai.scheduler/batch-min-member is `four`"), "{warning}");
    let small = named("small-");
    assert!(cluster.warning(&small, "runs only 2 at once").await.contains("raise spec.parallelism"));
    assert!(cluster.warning(&small, "preemption-delay").await.contains("`soon`"));
    let begin = cluster.lab.clock().now();
    cluster.patch::<Job>("broken", json!({"metadata": {"annotations": {"kai.scheduler/batch-min-member": "2"}}})).await;
    cluster.grouped(4).await;
    assert!(cluster.lab.clock().now().duration_since(begin).as_secs() < 2);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn replicas_take_turns_and_the_next_one_goes_on() {
    let mut cluster = Cluster::new("cpu").await;
    cluster.options.leader_elect = true;
    cluster.run();
    cluster.create::<Pod>(pod("first")).await;
    cluster.group_of("first").await;
    cluster.kill().await;
    cluster.create::<Pod>(pod("second")).await;
    cluster.run();
    cluster.group_of("second").await;
    cluster.end().await;
}
