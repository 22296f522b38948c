//! Pods get BindRequests.

use kai_lab::faults::{ApiEffect, ApiFault, Trigger};
use serde_json::json;

use super::fixture::{Fixture, eventually, pause};

#[tokio::test(start_paused = true)]
async fn pods_of_a_group_get_a_bind_request_each_that_says_all_the_binder_needs() {
    let fixture = Fixture::new().await;
    fixture.node("a", 4).await;
    fixture.team().await;
    fixture.gang("job", "team", 2).await;
    let running = fixture.start();
    eventually("both are placed", async || fixture.requests().await.len() == 2).await;
    let request = fixture.request("job-0").await.expect("a request");
    let owner = &request.metadata.owner_references.as_ref().expect("owners")[0];
    let pod = fixture.api::<k8s_openapi::api::core::v1::Pod>().get("job-0").await.expect("a pod");
    assert_eq!((owner.kind.as_str(), Some(&owner.uid)), ("Pod", pod.metadata.uid.as_ref()));
    assert_eq!(request.metadata.labels.as_ref().expect("labels")["selected-node"], "a");
    let spec = serde_json::to_value(&request.spec).expect("JSON");
    assert_eq!(
        spec,
        json!({"podName": "job-0", "selectedNode": "a", "receivedResourceType": "Regular",
            "receivedGPU": {"count": 1, "portion": "1"}})
    );
    eventually("said so", async || fixture.events("job-0").await.iter().any(|(reason, _)| reason == "Scheduled")).await;
    eventually("started", async || {
        let group = fixture.api::<kai_api::PodGroup>().get("job").await.expect("a group");
        group.metadata.annotations.is_some_and(|all| all.contains_key("kai.scheduler/last-start-timestamp"))
    })
    .await;
    assert!(running.process.health.unmet().is_empty(), "{:?}", running.process.health.unmet());
    // Nothing more is written, however long it lasts.
    let before = fixture.written();
    fixture.run_placed().await;
    pause(120_000).await;
    assert_eq!(fixture.written(), before);
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_gpu_names_the_shared_device_and_the_exact_portion() {
    let fixture = Fixture::new().await;
    fixture.node_with("thor", 1, 131_072, &[]).await;
    fixture.team().await;
    for name in ["one", "two"] {
        fixture.group(name, "team", 1).await;
        fixture.pod_with(name, name, json!({}), json!({"gpu-memory": "30720"})).await;
    }
    let _running = fixture.start();
    eventually("both are placed", async || fixture.requests().await.len() == 2).await;
    let (one, two) = (fixture.request("one").await.expect("one"), fixture.request("two").await.expect("two"));
    assert_eq!(one.spec.received_resource_type.as_deref(), Some("Fraction"));
    assert_eq!(one.spec.received_gpu.as_ref().and_then(|gpu| gpu.portion.as_deref()), Some("0.234375"));
    assert_eq!(one.spec.selected_gpu_groups, two.spec.selected_gpu_groups);
    assert_eq!(one.spec.selected_gpu_groups.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_makes_no_second_request_and_no_second_decision() {
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.team().await;
    fixture.gang("job", "team", 1).await;
    fixture.faults.set(vec![ApiFault {
        verb: Some("create".into()),
        resource: Some("bindrequests".into()),
        trigger: Trigger::Nth(1),
        effect: ApiEffect::LostAnswer,
    }]);
    let _running = fixture.start();
    eventually("it is placed", async || fixture.requests().await.len() == 1).await;
    fixture.run_placed().await;
    pause(60_000).await;
    let creates =
        fixture.written().iter().filter(|write| write.contains("POST") && write.contains("bindrequests")).count();
    assert_eq!((creates, fixture.faults.struck()), (2, 1), "{:?}", fixture.written());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_for_a_while_loses_nothing() {
    let fixture = Fixture::new().await;
    fixture.node("a", 2).await;
    fixture.team().await;
    let _running = fixture.start();
    pause(1000).await;
    let away = ApiFault { verb: None, resource: None, trigger: Trigger::Always, effect: ApiEffect::Error(503) };
    fixture.gang("job", "team", 2).await;
    fixture.faults.set(vec![away]);
    pause(60_000).await;
    fixture.faults.set(Vec::new());
    eventually("both are placed", async || fixture.requests().await.len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_vanishes_frees_its_pods_for_other_nodes() {
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.team().await;
    fixture.gang("job", "team", 1).await;
    let _running = fixture.start();
    eventually("it is placed", async || fixture.requests().await.len() == 1).await;
    fixture.delete_node("a").await;
    fixture.node("b", 1).await;
    eventually("it is placed again", async || fixture.placed().await.get("job-0").is_some_and(|node| node == "b"))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_back_under_its_name_gets_a_request_of_its_own() {
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.team().await;
    fixture.gang("job", "team", 1).await;
    let _running = fixture.start();
    eventually("it is placed", async || fixture.requests().await.len() == 1).await;
    let first = fixture.request("job-0").await.expect("a request");
    fixture.delete::<k8s_openapi::api::core::v1::Pod>("job-0").await;
    fixture.pod("job-0", "job", 1).await;
    eventually("another request", async || {
        fixture.request("job-0").await.is_some_and(|request| request.metadata.uid != first.metadata.uid)
    })
    .await;
    let second = fixture.request("job-0").await.expect("a request");
    assert_ne!(first.metadata.owner_references, second.metadata.owner_references);
}

#[tokio::test(start_paused = true)]
async fn pods_that_ask_for_a_device_one_after_the_other_get_different_ones_before_the_binder_makes_their_claims() {
    let fixture = Fixture::new().await;
    fixture.node("a", 0).await;
    fixture.team().await;
    let devices = json!([{"name": "gpu-0"}, {"name": "gpu-1"}]);
    fixture
        .create(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "slice"},
            "spec": {"driver": "gpu.example.com", "nodeName": "a", "devices": devices,
                "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1}}}))
        .await;
    fixture
        .create(
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.example.com"},
            "spec": {"extendedResourceName": "example.com/gpu",
                "selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}}),
        )
        .await;
    let _running = fixture.start();
    for (count, name) in ["one", "two", "three"].into_iter().enumerate() {
        fixture.group(name, "team", 1).await;
        fixture.pod_with(name, name, json!({"example.com/gpu": "1"}), json!({})).await;
        if count < 2 {
            eventually("it is placed", async || fixture.requests().await.len() == count + 1).await;
        }
    }
    pause(30_000).await;
    let requests = fixture.requests().await;
    let device = |request: &kai_api::BindRequest| {
        let made = request.spec.extended_resource_claim_allocation.clone()?;
        let given = made.allocation?.devices?.results?;
        assert_eq!((given.len(), made.device_requests.len(), made.container_mappings.len()), (1, 1, 1));
        Some(given[0].device.clone())
    };
    let mut given: Vec<String> = requests.iter().filter_map(device).collect();
    given.sort();
    assert_eq!(given, ["gpu-0", "gpu-1"], "{requests:?}");
}
