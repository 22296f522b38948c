//! Pods that wait are told why, once.

use serde_json::json;

use super::fixture::{Fixture, eventually, pause};

#[tokio::test(start_paused = true)]
async fn a_gang_of_four_on_room_for_three_waits_and_a_node_more_starts_all() {
    let fixture = Fixture::new().await;
    for node in ["a", "b", "c"] {
        fixture.node(node, 1).await;
    }
    fixture.team().await;
    fixture.gang("job", "team", 4).await;
    let _running = fixture.start();
    eventually("it is told", async || fixture.reason("job-0").await.is_some()).await;
    let reason = fixture.reason("job-0").await.expect("a reason");
    assert!(reason.contains("Resources were found for 3 pods while 4 are required for gang scheduling"), "{reason}");
    assert!(reason.contains("3 node(s) didn't have enough resources: GPUs"), "{reason}");
    assert_eq!(fixture.group_messages("job").await, [reason]);
    eventually("events", async || {
        let told = |events: Vec<(String, String)>| events.iter().any(|(reason, _)| reason == "Unschedulable");
        told(fixture.events("job-3").await) && told(fixture.events("job").await)
    })
    .await;
    assert!(fixture.requests().await.is_empty());
    let before = fixture.written();
    pause(60_000).await;
    assert_eq!(fixture.written(), before, "nothing changed, so nothing is written");
    fixture.node("d", 1).await;
    eventually("all four", async || fixture.requests().await.len() == 4).await;
    fixture.run_placed().await;
    eventually("cleared", async || fixture.group_messages("job").await.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_shared_gpu_is_told_in_one_sentence_with_its_holders_and_numbers() {
    let fixture = Fixture::new().await;
    fixture.node_with("thor-0", 1, 131_072, &[]).await;
    fixture.team().await;
    for index in 0..5 {
        let name = format!("ubuntu-{index}");
        fixture.group(&name, "team", 1).await;
        fixture.pod_with(&name, &name, json!({}), json!({"gpu-memory": "30720"})).await;
        pause(1000).await;
    }
    let _running = fixture.start();
    eventually("four are placed", async || fixture.requests().await.len() == 4).await;
    eventually("the fifth is told", async || fixture.reason("ubuntu-4").await.is_some()).await;
    let reason = fixture.reason("ubuntu-4").await.expect("a reason");
    let sentence = "the GPU with most room, on node thor-0, has 131072 MiB, of which 122880 MiB are held by default/ubuntu-0, \
                    default/ubuntu-1, default/ubuntu-2, default/ubuntu-3, and 30720 MiB were asked for";
    assert!(reason.contains(sentence), "{reason}");
    fixture.run_placed().await;
    pause(30_000).await;
    assert_eq!(fixture.reason("ubuntu-4").await, Some(reason));
}

#[tokio::test(start_paused = true)]
async fn queues_that_are_missing_not_a_leaf_or_in_a_ring_are_named_on_their_groups_only() {
    let fixture = Fixture::new().await;
    fixture.node("a", 4).await;
    fixture.team().await;
    fixture.queue("left", Some("right"), 1).await;
    fixture.queue("right", Some("left"), 1).await;
    for (group, queue) in [("nowhere", "absent"), ("inner", "top"), ("ring", "left"), ("good", "team")] {
        fixture.gang(group, queue, 1).await;
    }
    let _running = fixture.start();
    for (group, part) in [("nowhere", "absent"), ("inner", "top"), ("ring", "left")] {
        let pod = format!("{group}-0");
        eventually("it is told", async || fixture.reason(&pod).await.is_some()).await;
        let reason = fixture.reason(&pod).await.expect("a reason");
        assert!(reason.contains(part), "{group}: {reason}");
        assert!(fixture.group_messages(group).await.iter().any(|message| message.contains(part)), "{group}");
    }
    eventually("the good one is placed", async || fixture.request("good-0").await.is_some()).await;
    assert_eq!(fixture.requests().await.len(), 1);
    assert!(fixture.queue_object("team").await.metadata.uid.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_read_is_told_field_and_remedy_and_holds_up_nobody() {
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.team().await;
    for (name, fraction) in [("bad", "abc"), ("good", "0.5")] {
        fixture.group(name, "team", 1).await;
        fixture.pod_with(name, name, json!({}), json!({"gpu-fraction": fraction})).await;
    }
    let _running = fixture.start();
    eventually("the good one is placed", async || fixture.request("good").await.is_some()).await;
    eventually("the bad one is told", async || fixture.reason("bad").await.is_some()).await;
    let reason = fixture.reason("bad").await.expect("a reason");
    assert!(reason.contains("gpu-fraction") && reason.contains("abc") && reason.contains("hint"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_of_a_shard_uses_its_nodes_queues_groups_and_policy_only() {
    let fixture = Fixture::new().await;
    fixture.node("plain", 1).await;
    for node in ["blue-a", "blue-b"] {
        fixture.node_with(node, 2, 81920, &[("kai.scheduler/node-pool", "blue")]).await;
    }
    fixture
        .create(json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": "blue"},
        "spec": {"partitionLabelValue": "blue", "placementStrategy": {"gpu": "spread", "cpu": "spread"}}}))
        .await;
    let labels = json!({"kai.scheduler/node-pool": "blue"});
    for (name, parent) in [("top", ""), ("team", "top")] {
        fixture.create(json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue",
            "metadata": {"name": name, "labels": labels}, "spec": {"parentQueue": parent, "resources":
                {"cpu": {"quota": -1, "limit": -1}, "memory": {"quota": -1, "limit": -1}, "gpu": {"quota": -1, "limit": -1}}}}))
            .await;
    }
    fixture.create(json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": "mine", "namespace": "default", "labels": labels}, "spec": {"queue": "team", "minMember": 2}}))
        .await;
    fixture.pod("mine-0", "mine", 1).await;
    fixture.pod("mine-1", "mine", 1).await;
    fixture.gang("other", "team", 1).await;
    let options = crate::Options { partition_label_value: "blue".to_owned(), ..crate::Options::default() };
    let _running = fixture.start_with(options, kai_core::cycle::plan_watched, "blue");
    eventually("mine are placed", async || fixture.requests().await.len() == 2).await;
    let nodes: std::collections::BTreeSet<String> = fixture.placed().await.into_values().collect();
    assert_eq!(nodes.into_iter().collect::<Vec<_>>(), ["blue-a", "blue-b"], "spread, and only over the pool");
    let request = fixture.request("mine-0").await.expect("a request");
    assert_eq!(request.metadata.labels.expect("labels")["kai.scheduler/node-pool"], "blue");
    pause(30_000).await;
    assert_eq!((fixture.requests().await.len(), fixture.reason("other-0").await), (2, None));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_told_too_late_that_it_waits_says_in_the_end_that_it_has_its_place() {
    use kai_lab::{
        faults::{ApiEffect, ApiFault, Trigger},
        fleet::Span,
    };
    let fixture = Fixture::new().await;
    fixture.team().await;
    fixture.gang("job", "team", 1).await;
    let late = ApiFault {
        verb: Some("patch".into()),
        resource: Some("pods/status".into()),
        trigger: Trigger::Nth(1),
        effect: ApiEffect::Delay(Span::fixed(std::time::Duration::from_secs(20))),
    };
    fixture.faults.set(vec![late]);
    let _running = fixture.start();
    eventually("it is about to be told", async || fixture.faults.struck() == 1).await;
    fixture.node("a", 1).await;
    eventually("it is placed", async || fixture.requests().await.len() == 1).await;
    fixture.run_placed().await;
    let told = || fixture.written().iter().filter(|write| write.ends_with("/pods/job-0/status")).count();
    eventually("it is told, too late, and corrected", async || told() == 2).await;
    let pod = fixture.api::<k8s_openapi::api::core::v1::Pod>().get("job-0").await.expect("a pod");
    let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
    let placed = conditions.iter().find(|one| one.type_ == "PodScheduled").expect("a condition");
    assert_eq!((placed.status.as_str(), placed.reason.as_deref(), placed.message.as_deref()), ("True", None, None));
}
