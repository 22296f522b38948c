//! Where many pods get a place at once, those that need no preparation are bound without a BindRequest.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kai_lab::faults::{ApiEffect, ApiFault, Trigger};
use kube::{ResourceExt as _, api::ListParams};
use serde_json::json;

use super::fixture::{Fixture, Running, eventually, pause};
use crate::Options;

fn start(fixture: &Fixture, direct_binds_from: usize) -> Running {
    let options = Options { direct_binds_from, ..Options::default() };
    fixture.start_with(options, kai_core::cycle::plan_watched, "one")
}

/// Pods with the nodes they are on.
async fn bound(fixture: &Fixture) -> BTreeMap<String, String> {
    let pods = fixture.api::<Pod>().list(&ListParams::default()).await.expect("pods").items;
    let place = |pod: Pod| Some((pod.name_any(), pod.spec?.node_name?));
    pods.into_iter().filter_map(place).collect()
}

fn binding_meets(effect: ApiEffect) -> Vec<ApiFault> {
    let (verb, resource) = (Some("create".into()), Some("pods/binding".into()));
    vec![ApiFault { verb, resource, trigger: Trigger::Nth(1), effect }]
}

#[tokio::test(start_paused = true)]
async fn a_gang_of_512_is_one_write_per_pod() {
    let fixture = Fixture::new().await;
    for index in 0..512 {
        fixture.node(&format!("node-{index:03}"), 1).await;
    }
    fixture.team().await;
    fixture.gang("job", "team", 512).await;
    let _running = fixture.start();
    eventually("all are bound", async || bound(&fixture).await.len() == 512).await;
    let nodes: std::collections::BTreeSet<String> = bound(&fixture).await.into_values().collect();
    assert_eq!(nodes.len(), 512);
    let writes = fixture.written().iter().filter(|write| write.contains("/pods/")).count();
    assert_eq!((writes, fixture.requests().await.len()), (512, 0));
    eventually("said so", async || fixture.events("job-0").await.iter().any(|(reason, _)| reason == "Scheduled")).await;
    let pod = fixture.api::<Pod>().get("job-0").await.expect("a pod");
    assert_eq!(pod.annotations()["received-resource-type"], "Regular");
}

#[tokio::test(start_paused = true)]
async fn in_a_crowd_a_part_of_a_gpu_and_a_claimed_volume_still_go_through_the_binder() {
    let fixture = Fixture::new().await;
    fixture.node("a", 2).await;
    fixture.team().await;
    fixture.gang("plain", "team", 2).await;
    fixture.node("b", 1).await;
    fixture.group("part", "team", 1).await;
    fixture.pod_with("part", "part", json!({}), json!({"gpu-fraction": "0.5"})).await;
    fixture.group("stored", "team", 1).await;
    let volume = json!({"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "stored-scratch", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "disk", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound"}});
    let disk = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"},
            "claimRef": {"namespace": "default", "name": "stored-scratch"}}});
    fixture.create(disk).await;
    fixture
        .create(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "stored", "namespace": "default", "annotations": {"pod-group-name": "stored"}},
        "spec": {"schedulerName": "kai-scheduler", "volumes": [volume], "containers": [{"name": "main", "image": "x"}]}}))
        .await;
    let uid = fixture.api::<Pod>().get("stored").await.expect("a pod").metadata.uid;
    let mut claim = claim;
    claim["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "stored", "uid": uid, "controller": true}]);
    fixture.create(claim).await;
    let _running = start(&fixture, 1);
    eventually("two are bound", async || bound(&fixture).await.len() == 2).await;
    eventually("two wait for the binder", async || fixture.requests().await.len() == 2).await;
    assert!(bound(&fixture).await.keys().all(|name| name.starts_with("plain")));
    assert_eq!(fixture.placed().await.into_keys().collect::<Vec<_>>(), ["part", "stored"]);
}

#[tokio::test(start_paused = true)]
async fn in_a_crowd_a_whole_gpu_beside_shared_ones_goes_through_the_binder() {
    let fixture = Fixture::new().await;
    fixture.node("a", 2).await;
    fixture.team().await;
    fixture.group("part", "team", 1).await;
    fixture.pod_with("part", "part", json!({}), json!({"gpu-fraction": "0.5"})).await;
    let _running = start(&fixture, 1);
    eventually("it shares", async || fixture.requests().await.len() == 1).await;
    fixture.gang("whole", "team", 1).await;
    eventually("the binder is asked", async || fixture.requests().await.len() == 2).await;
    assert!(bound(&fixture).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_bind_whose_answer_is_lost_is_left_to_the_binder_and_nothing_is_given_twice() {
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.team().await;
    fixture.gang("one", "team", 1).await;
    fixture.gang("two", "team", 1).await;
    fixture.faults.set(binding_meets(ApiEffect::LostAnswer));
    let _running = start(&fixture, 1);
    eventually("one is bound", async || bound(&fixture).await.len() == 1).await;
    eventually("the binder is asked", async || fixture.requests().await.len() == 1).await;
    assert_eq!(bound(&fixture).await, fixture.placed().await);
    pause(60_000).await;
    assert_eq!((bound(&fixture).await.len(), fixture.requests().await.len()), (1, 1));
    assert_eq!(fixture.faults.struck(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_bind_that_the_server_refuses_is_left_to_the_binder_which_says_why() {
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.team().await;
    fixture.gang("job", "team", 1).await;
    fixture.faults.set(binding_meets(ApiEffect::Error(403)));
    let _running = start(&fixture, 1);
    eventually("the binder is asked", async || fixture.requests().await.len() == 1).await;
    assert!(bound(&fixture).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_gpu_that_a_direct_bind_gave_away_is_free_again_when_its_pod_is_gone() {
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.team().await;
    fixture.gang("one", "team", 1).await;
    let _running = start(&fixture, 1);
    eventually("it is bound", async || bound(&fixture).await.len() == 1).await;
    fixture.gang("two", "team", 1).await;
    pause(30_000).await;
    assert_eq!(bound(&fixture).await.into_keys().collect::<Vec<_>>(), ["one-0"]);
    fixture.delete::<Pod>("one-0").await;
    eventually("the other is bound", async || bound(&fixture).await.contains_key("two-0")).await;
    // The same name again is another pod.
    fixture.delete::<Pod>("two-0").await;
    fixture.pod("two-0", "two", 1).await;
    eventually("it is bound too", async || bound(&fixture).await.contains_key("two-0")).await;
}

/// A pod of no group, with these labels.
async fn lone(fixture: &Fixture, labels: serde_json::Value) -> String {
    let limits = json!({"nvidia.com/gpu": "1"});
    let metadata = json!({"name": "alone", "namespace": "default", "labels": labels});
    let container = json!({"name": "main", "image": "x", "resources": {"limits": limits, "requests": limits}});
    let spec = json!({"schedulerName": "kai-scheduler", "containers": [container]});
    fixture.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).await;
    let uid = fixture.api::<Pod>().get("alone").await.expect("a pod").metadata.uid.expect("a uid");
    kai_api::group_name("alone", &uid)
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_an_owner_that_has_wishes_is_placed_as_soon_as_its_group_is_there() {
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.team().await;
    let group =
        lone(&fixture, json!({"kai.scheduler/queue": "team", "kai.scheduler/preemptibility": "preemptible"})).await;
    let _running = start(&fixture, 1);
    pause(5_000).await;
    assert!(bound(&fixture).await.is_empty(), "placed without a group");
    fixture.group(&group, "team", 1).await;
    eventually("it is bound", async || bound(&fixture).await.len() == 1).await;
    let pod = fixture.api::<Pod>().get("alone").await.expect("a pod");
    assert_eq!(pod.annotations()["pod-group-name"], group);
}

#[tokio::test(start_paused = true)]
async fn a_plain_pod_without_an_owner_is_placed_before_its_group_is_there_and_the_group_is_told_later_when_it_started()
{
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.team().await;
    let group = lone(&fixture, json!({"kai.scheduler/queue": "team"})).await;
    let _running = start(&fixture, 1);
    eventually("it is bound", async || bound(&fixture).await.len() == 1).await;
    let pod = fixture.api::<Pod>().get("alone").await.expect("a pod");
    assert_eq!(pod.annotations()["pod-group-name"], group);
    fixture.patch_status::<Pod>("alone", json!({"status": {"phase": "Running"}})).await;
    pause(30_000).await;
    fixture.group(&group, "team", 1).await;
    let started = async || {
        let group = fixture.api::<kai_api::PodGroup>().get(&group).await.expect("a group");
        group.annotations().contains_key("kai.scheduler/last-start-timestamp")
    };
    eventually("the group says since when", started).await;
}
