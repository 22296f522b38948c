//! The embedded cluster end to end, in virtual time: what a user of the API sees of simulated nodes.

use std::{collections::BTreeSet, time::Duration};

use http_body_util::BodyExt;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{Event, Node, Pod},
};
use kai_clock::Clock;
use kai_lab::{
    cluster::{Lab, LabOptions},
    faults::{ApiEffect, ApiFault, NodeAction, Trigger},
    fleet::Fleet,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};
use tower::ServiceExt;

async fn lab(fleet: &str) -> Lab {
    lab_of(Fleet::parse(fleet).unwrap()).await
}

async fn lab_of(fleet: Fleet) -> Lab {
    let lab = Lab::start(LabOptions::new(fleet, Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())));
    lab.ready().await;
    lab
}

fn pods(lab: &Lab) -> Api<Pod> {
    Api::namespaced(lab.client(), "default")
}

#[expect(clippy::needless_pass_by_value, reason = "a literal at every call")]
fn pod(name: &str, node: &str, spec: Value) -> Pod {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "app:1"}]},
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn gpus(count: u32) -> Value {
    let amount = json!({"nvidia.com/gpu": count.to_string()});
    json!({"containers": [{"name": "main", "image": "app:1", "resources": {"limits": amount}}]})
}

async fn create(lab: &Lab, pod: &Pod) {
    pods(lab).create(&PostParams::default(), pod).await.unwrap();
}

/// Waits for a state in virtual time.
async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    for _ in 0..20_000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("waited in vain: {what}");
}

async fn phase(lab: &Lab, name: &str, wanted: &str) -> Pod {
    let api = pods(lab);
    until(&format!("{name} is {wanted}"), || async {
        let pod = api.get_opt(name).await.unwrap()?;
        (pod.status.as_ref()?.phase.as_deref() == Some(wanted)).then_some(pod)
    })
    .await
}

async fn gone(lab: &Lab, name: &str) {
    let api = pods(lab);
    until(&format!("{name} is gone"), || async { api.get_opt(name).await.unwrap().is_none().then_some(()) }).await;
}

/// Asks a kubelet for a log, as the API server does.
async fn log(lab: &Lab, node: &str, container: &str) -> String {
    let request =
        http::Request::get(format!("/containerLogs/default/{container}")).body(axum::body::Body::empty()).unwrap();
    let response = lab.kubelet_router(node).unwrap().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> &'a str {
    let conditions = pod.status.as_ref().unwrap().conditions.as_ref().unwrap();
    conditions.iter().find(|condition| condition.type_ == kind).map_or("", |condition| condition.status.as_str())
}

fn ids(lab: &Lab, pod: &str) -> Vec<String> {
    lab.devices_of("default", pod).into_values().flat_map(|devices| devices.into_values().flatten()).collect()
}

#[tokio::test(start_paused = true)]
async fn nodes_register_with_devices_and_renew_their_leases() {
    let lab = lab("dgx-h100,thor:replicas=4,cpu").await;
    let nodes = Api::<Node>::all(lab.client()).list(&ListParams::default()).await.unwrap().items;
    let names: Vec<&str> = nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
    assert_eq!(names, ["cpu-0", "dgx-h100-0", "thor-0"]);
    let capacity = |node: &Node| {
        node.status.as_ref().unwrap().capacity.as_ref().unwrap().get("nvidia.com/gpu").map(|q| q.0.clone())
    };
    assert_eq!(nodes.iter().map(capacity).collect::<Vec<_>>(), [None, Some("8".into()), Some("4".into())]);
    let leases = Api::<Lease>::namespaced(lab.client(), "kube-node-lease");
    let renewed = || async { leases.get("thor-0").await.unwrap().spec.unwrap().renew_time.unwrap().0 };
    let first = renewed().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let age = lab.clock().now().duration_since(renewed().await);
    assert!(renewed().await > first && age.as_secs() <= 10, "{age:?}");
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_runs_with_its_own_device_prints_it_and_is_deleted() {
    let lab = lab("t4x4").await;
    create(&lab, &pod("train", "t4x4-0", gpus(2))).await;
    let running = phase(&lab, "train", "Running").await;
    assert_eq!(condition(&running, "Ready"), "True");
    let status = running.status.as_ref().unwrap();
    assert!(status.pod_ip.as_ref().unwrap().starts_with("10.64.0."));
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
    let ids = ids(&lab, "train");
    assert_eq!(ids.len(), 2);
    let log = log(&lab, "t4x4-0", "train/main").await;
    assert!(log.contains(&format!("NVIDIA_VISIBLE_DEVICES={}", ids.join(","))), "{log}");
    let events = Api::<Event>::namespaced(lab.client(), "default").list(&ListParams::default()).await.unwrap();
    let reasons: BTreeSet<String> = events
        .items
        .into_iter()
        .filter(|event| event.involved_object.name.as_deref() == Some("train"))
        .filter_map(|event| event.reason)
        .collect();
    assert_eq!(reasons, ["Created", "Pulled", "Started"].map(str::to_owned).into());
    pods(&lab).delete("train", &DeleteParams::default()).await.unwrap();
    gone(&lab, "train").await;
    assert!(lab.devices_of("default", "train").is_empty());
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_do_not_fit_are_refused_with_the_kubelets_words() {
    let lab = lab("thor").await;
    create(&lab, &pod("first", "thor-0", gpus(1))).await;
    phase(&lab, "first", "Running").await;
    create(&lab, &pod("second", "thor-0", gpus(1))).await;
    let refused = phase(&lab, "second", "Failed").await.status.unwrap();
    assert_eq!(refused.reason.as_deref(), Some("UnexpectedAdmissionError"));
    assert_eq!(
        refused.message.as_deref(),
        Some(
            "Pod was rejected: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. \
             Requested: 1, Available: 0, which is unexpected"
        )
    );
    let big = json!({"containers": [{"name": "main", "image": "a", "resources": {"requests": {"cpu": "15"}}}]});
    create(&lab, &pod("big", "thor-0", big)).await;
    assert_eq!(phase(&lab, "big", "Failed").await.status.unwrap().reason.as_deref(), Some("OutOfcpu"));
    create(&lab, &pod("elsewhere", "thor-0", json!({"nodeSelector": {"zone": "x"}}))).await;
    assert_eq!(phase(&lab, "elsewhere", "Failed").await.status.unwrap().reason.as_deref(), Some("NodeAffinity"));
    // The first one's device is free again once it has ended.
    pods(&lab).delete("first", &DeleteParams::default()).await.unwrap();
    gone(&lab, "first").await;
    create(&lab, &pod("third", "thor-0", gpus(1))).await;
    phase(&lab, "third", "Running").await;
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_never_restarts_succeeds_and_frees_its_device() {
    let lab = lab("thor").await;
    let mut spec = gpus(1);
    spec["restartPolicy"] = json!("Never");
    create(&lab, &pod("job", "thor-0", spec)).await;
    let done = phase(&lab, "job", "Succeeded").await;
    assert_eq!(condition(&done, "Ready"), "False");
    let states = done.status.unwrap().container_statuses.unwrap();
    assert_eq!(states[0].state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 0);
    create(&lab, &pod("next", "thor-0", gpus(1))).await;
    phase(&lab, "next", "Running").await;
    pods(&lab).delete("job", &DeleteParams::default()).await.unwrap();
    gone(&lab, "job").await;
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_deployment_rolls_out_on_a_named_node() {
    let lab = lab("cpu").await;
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"nodeName": "cpu-0", "containers": [{"name": "main", "image": "web:1"}]},
            },
        },
    }))
    .unwrap();
    let api = Api::<Deployment>::namespaced(lab.client(), "default");
    api.create(&PostParams::default(), &deployment).await.unwrap();
    until("three ready replicas", || async {
        (api.get("web").await.unwrap().status?.ready_replicas == Some(3)).then_some(())
    })
    .await;
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_kubelet_knows_who_holds_which_device() {
    let mut lab = lab("dgx-h100").await;
    for name in ["a", "b", "c"] {
        create(&lab, &pod(name, "dgx-h100-0", gpus(2))).await;
        phase(&lab, name, "Running").await;
    }
    pods(&lab).delete("a", &DeleteParams::default()).await.unwrap();
    gone(&lab, "a").await;
    let before = [ids(&lab, "b"), ids(&lab, "c")];
    let started = phase(&lab, "b", "Running").await.status.unwrap().start_time;
    lab.restart_kubelets().await;
    lab.ready().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!([ids(&lab, "b"), ids(&lab, "c")], before);
    assert_eq!(phase(&lab, "b", "Running").await.status.unwrap().start_time, started);
    create(&lab, &pod("d", "dgx-h100-0", gpus(4))).await;
    phase(&lab, "d", "Running").await;
    let all: BTreeSet<String> = ["b", "c", "d"].into_iter().flat_map(|name| ids(&lab, name)).collect();
    assert_eq!(all.len(), 8);
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_off_does_not_come_up_because_kubelets_start_again() {
    let mut lab = lab("t4x4*2").await;
    create(&lab, &pod("before", "t4x4-0", gpus(1))).await;
    create(&lab, &pod("stays", "t4x4-1", gpus(1))).await;
    phase(&lab, "before", "Running").await;
    phase(&lab, "stays", "Running").await;
    let old = ids(&lab, "before");
    lab.inject("t4x4-0", NodeAction::Reboot { down: Duration::from_mins(2), new_uuids: true });
    lab.inject("t4x4-1", NodeAction::Stop);
    tokio::time::sleep(Duration::from_secs(5)).await;
    lab.restart_kubelets().await;
    create(&lab, &pod("after", "t4x4-0", gpus(1))).await;
    create(&lab, &pod("never", "t4x4-1", gpus(1))).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(ids(&lab, "after").is_empty() && ids(&lab, "never").is_empty());
    // The devices have other names, and what ran before the reboot runs no more.
    phase(&lab, "before", "Failed").await;
    phase(&lab, "after", "Running").await;
    assert!(ids(&lab, "before").is_empty());
    assert_ne!(ids(&lab, "after"), old);
    let new = ids(&lab, "after");
    lab.restart_kubelets().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(ids(&lab, "after"), new, "the names are those of the machine");
    assert!(ids(&lab, "never").is_empty());
    lab.inject("t4x4-1", NodeAction::Resume);
    phase(&lab, "never", "Running").await;
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_gets_the_device_of_a_pod_that_outlived_a_reboot_during_which_kubelets_started_again() {
    let mut lab = lab("t4x4").await;
    create(&lab, &pod("old", "t4x4-0", gpus(1))).await;
    phase(&lab, "old", "Running").await;
    let before = ids(&lab, "old");
    lab.inject("t4x4-0", NodeAction::Reboot { down: Duration::from_mins(2), new_uuids: false });
    tokio::time::sleep(Duration::from_secs(5)).await;
    lab.restart_kubelets().await;
    // Comes before the old one by name, and asks for a device when the machine is up again.
    create(&lab, &pod("new", "t4x4-0", gpus(1))).await;
    phase(&lab, "new", "Running").await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(ids(&lab, "old"), before);
    assert_ne!(ids(&lab, "new"), before);
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_job_that_is_deleted_go_though_nobody_counts_them() {
    let lab = lab("cpu").await;
    let job = |name: &str| -> Job {
        let spec =
            json!({"nodeName": "cpu-0", "restartPolicy": "Never", "containers": [{"name": "main", "image": "a"}]});
        let template = json!({"metadata": {"annotations": {"lab.kai/run-seconds": "forever"}}, "spec": spec});
        let spec = json!({"completions": 2, "parallelism": 2, "template": template});
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    };
    let jobs: Api<Job> = Api::namespaced(lab.client(), "default");
    let count = |wanted: usize| {
        let pods = pods(&lab);
        async move {
            until(&format!("{wanted} pods"), || async {
                (pods.list(&ListParams::default()).await.unwrap().items.len() == wanted).then_some(())
            })
            .await;
        }
    };
    jobs.create(&PostParams::default(), &job("batch")).await.unwrap();
    count(2).await;
    jobs.delete("batch", &DeleteParams::background()).await.unwrap();
    count(0).await;
    jobs.create(&PostParams::default(), &job("batch")).await.unwrap();
    count(2).await;
    // Another one of the same name is not the one that they belong to.
    jobs.delete("batch", &DeleteParams::background()).await.unwrap();
    let mut second = job("batch");
    second.spec.as_mut().unwrap().parallelism = Some(1);
    jobs.create(&PostParams::default(), &second).await.unwrap();
    count(1).await;
    lab.shutdown().await;
}

fn ready_status(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready").map(|condition| condition.status.clone())
}

async fn node_ready(lab: &Lab, name: &str, wanted: &str) -> Node {
    let api = Api::<Node>::all(lab.client());
    until(&format!("{name} ready={wanted}"), || async {
        let node = api.get_opt(name).await.unwrap()?;
        (ready_status(&node).as_deref() == Some(wanted)).then_some(node)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_becomes_unknown_loses_its_pods_and_recovers() {
    let lab = lab("cpu*2").await;
    create(&lab, &pod("app", "cpu-0", json!({}))).await;
    phase(&lab, "app", "Running").await;
    assert!(lab.inject("cpu-0", NodeAction::Stop));
    assert!(!lab.inject("cpu-9", NodeAction::Stop));
    let begin = lab.clock().now();
    node_ready(&lab, "cpu-0", "Unknown").await;
    let silence = lab.clock().now().duration_since(begin).as_secs();
    assert!((40..=70).contains(&silence), "{silence}");
    let tainted = until("taints", || async {
        let node = Api::<Node>::all(lab.client()).get("cpu-0").await.unwrap();
        node.spec?.taints.filter(|taints| taints.len() == 2)
    })
    .await;
    assert!(tainted.iter().all(|taint| taint.key == "node.kubernetes.io/unreachable"));
    // The default toleration of 300 s runs out; with the kubelet away the pod stays as Terminating.
    until("deletion", || async { pods(&lab).get("app").await.unwrap().metadata.deletion_timestamp }).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(pods(&lab).get_opt("app").await.unwrap().is_some());
    lab.inject("cpu-0", NodeAction::Resume);
    gone(&lab, "app").await;
    node_ready(&lab, "cpu-0", "True").await;
    until("no taints", || async {
        let node = Api::<Node>::all(lab.client()).get("cpu-0").await.unwrap();
        node.spec.unwrap_or_default().taints.unwrap_or_default().is_empty().then_some(())
    })
    .await;
    node_ready(&lab, "cpu-1", "True").await;
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_vanished_node_are_removed_and_the_node_can_return() {
    let lab = lab("cpu").await;
    create(&lab, &pod("app", "cpu-0", json!({}))).await;
    phase(&lab, "app", "Running").await;
    lab.inject("cpu-0", NodeAction::Vanish);
    gone(&lab, "app").await;
    assert!(Api::<Node>::all(lab.client()).get_opt("cpu-0").await.unwrap().is_none());
    lab.inject("cpu-0", NodeAction::Resume);
    node_ready(&lab, "cpu-0", "True").await;
    create(&lab, &pod("app", "cpu-0", json!({}))).await;
    phase(&lab, "app", "Running").await;
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_registers_again() {
    let lab = lab("cpu").await;
    Api::<Node>::all(lab.client()).delete("cpu-0", &DeleteParams::default()).await.unwrap();
    node_ready(&lab, "cpu-0", "True").await;
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_device_leaves_allocatable_and_a_not_ready_node_is_tainted() {
    let lab = lab("t4x4").await;
    lab.inject("t4x4-0", NodeAction::DeviceUnhealthy { resource: "nvidia.com/gpu".into(), index: 1 });
    let api = Api::<Node>::all(lab.client());
    until("allocatable 3", || async {
        let status = api.get("t4x4-0").await.unwrap().status?;
        assert_eq!(status.capacity?["nvidia.com/gpu"].0, "4");
        (status.allocatable?["nvidia.com/gpu"].0 == "3").then_some(())
    })
    .await;
    create(&lab, &pod("four", "t4x4-0", gpus(4))).await;
    phase(&lab, "four", "Failed").await;
    lab.inject("t4x4-0", NodeAction::NotReady);
    node_ready(&lab, "t4x4-0", "False").await;
    lab.inject("t4x4-0", NodeAction::Ready);
    node_ready(&lab, "t4x4-0", "True").await;
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn kubelets_get_their_work_done_through_a_storm_of_faults() {
    let fault = |verb: Option<&str>, resource: &str, probability, effect| ApiFault {
        verb: verb.map(str::to_owned),
        resource: Some(resource.to_owned()),
        trigger: Trigger::Probability(probability),
        effect,
    };
    let mut fleet = Fleet::parse("t4x4*3").unwrap();
    fleet.api_faults = vec![
        fault(None, "pods/status", 0.3, ApiEffect::LostAnswer),
        fault(None, "pods/status", 0.3, ApiEffect::Error(500)),
        fault(Some("delete"), "pods", 0.5, ApiEffect::Reset),
        fault(None, "nodes", 0.4, ApiEffect::Error(503)),
        fault(None, "leases", 0.4, ApiEffect::LostAnswer),
        fault(Some("watch"), "pods", 0.3, ApiEffect::Error(429)),
    ];
    let lab = lab_of(fleet).await;
    for index in 0..12 {
        create(&lab, &pod(&format!("p{index}"), &format!("t4x4-{}", index % 3), gpus(1))).await;
    }
    for index in 0..12 {
        phase(&lab, &format!("p{index}"), "Running").await;
        pods(&lab).delete(&format!("p{index}"), &DeleteParams::default()).await.unwrap();
    }
    for index in 0..12 {
        gone(&lab, &format!("p{index}")).await;
    }
    assert!(lab.faults().struck() > 10);
    lab.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn repeated_failures_are_one_event_with_a_count() {
    let lab = lab("cpu").await;
    let mut crashing = pod("crash", "cpu-0", json!({}));
    crashing.metadata.annotations = Some(
        [("lab.kai/exit-code".to_owned(), "1".to_owned()), ("lab.kai/run-seconds".to_owned(), "1".to_owned())].into(),
    );
    create(&lab, &crashing).await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    let status = pods(&lab).get("crash").await.unwrap().status.unwrap().container_statuses.unwrap().remove(0);
    assert_eq!(status.restart_count, 5);
    assert_eq!(status.state.unwrap().waiting.unwrap().reason.as_deref(), Some("CrashLoopBackOff"));
    let fields = ListParams::default().fields("involvedObject.name=crash,reason=BackOff");
    let events = Api::<Event>::namespaced(lab.client(), "default").list(&fields).await.unwrap().items;
    assert_eq!(events.len(), 1);
    assert!(events[0].count.unwrap() > 3);
    assert!(log(&lab, "cpu-0", "crash/main?previous=true").await.contains("exits with code 1"));
    lab.shutdown().await;
}

async fn story(seed: u64) -> Vec<String> {
    let mut fleet = Fleet::parse("t4x4*10,cpu*10").unwrap();
    fleet.seed = kai_lab::seed::Seed(seed);
    fleet.api_faults = vec![ApiFault {
        verb: None,
        resource: Some("pods/status".into()),
        trigger: Trigger::Probability(0.1),
        effect: ApiEffect::LostAnswer,
    }];
    let lab = lab_of(fleet).await;
    let job: Job = serde_json::from_value(json!({
        "metadata": {"name": "batch", "namespace": "default"},
        "spec": {"completions": 20, "parallelism": 5, "template": {"spec": {"nodeName": "cpu-3", "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "a"}]}}},
    }))
    .unwrap();
    Api::namespaced(lab.client(), "default").create(&PostParams::default(), &job).await.unwrap();
    for index in 0..100 {
        let mut spec = gpus(1);
        spec["restartPolicy"] = json!(if index % 2 == 0 { "Never" } else { "Always" });
        create(&lab, &pod(&format!("p{index}"), &format!("t4x4-{}", index % 10), spec)).await;
    }
    lab.inject("t4x4-3", NodeAction::Stop);
    tokio::time::sleep(Duration::from_mins(15)).await;
    let lines = lab.event_log().iter().map(ToString::to_string).collect();
    lab.shutdown().await;
    lines
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_writes_the_same_event_log() {
    let first = story(1).await;
    assert!(first.len() > 200, "{}", first.len());
    assert_eq!(first, story(1).await);
    assert_ne!(first, story(2).await);
}
