//! The controllers on the embedded cluster, in virtual time: what a user reads in statuses, events and gauges.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Event, Node, Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::api::resource::Quantity,
};
use kai_api::{PodGroup, Queue};
use kai_clock::Clock;
use kai_controllers::Options;
use kai_kit::{Lean, Process, watch, watch::News};
use kai_lab::{
    cluster::{Lab, LabOptions},
    faults::{ApiEffect, ApiFault, Trigger},
    fleet::Fleet,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::watcher,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

struct World {
    lab: Lab,
    client: Client,
    process: Process,
    controllers: JoinHandle<Result<(), kai_controllers::Error>>,
}

fn controllers(lab: &Lab, leader_elect: bool) -> (Process, JoinHandle<Result<(), kai_controllers::Error>>) {
    let cancel = CancellationToken::new();
    let client = lab.faulty_client();
    let process = Process::new("controllers", client, lab.clock(), cancel, "default", "replica");
    let options = Options { leader_elect, ..Options::default() };
    (process.clone(), tokio::spawn(kai_controllers::run(process, options)))
}

async fn world(fleet: &str, leader_elect: bool) -> World {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let lab = Lab::start(LabOptions::new(Fleet::parse(fleet).unwrap(), clock));
    lab.ready().await;
    let client = lab.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in kai_api::crds() {
        definitions.create(&PostParams::default(), &definition).await.unwrap();
    }
    let (process, controllers) = controllers(&lab, leader_elect);
    World { lab, client, process, controllers }
}

impl World {
    async fn end(self) {
        self.process.cancel.cancel();
        self.controllers.await.unwrap().unwrap();
        self.lab.shutdown().await;
    }

    async fn queue(&self, name: &str, parent: &str, gpus: f64) {
        let resource = json!({"quota": gpus, "limit": -1, "overQuotaWeight": 1});
        let any = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        let mut spec = json!({"resources": {"gpu": resource, "cpu": any, "memory": any}});
        if !parent.is_empty() {
            spec["parentQueue"] = json!(parent);
        }
        let object =
            json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec});
        create::<Queue>(&Api::all(self.client.clone()), object).await;
    }

    async fn group(&self, name: &str, queue: &str, more: Value) {
        let mut spec = json!({"queue": queue, "minMember": 1});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let object = json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec});
        create::<PodGroup>(&self.groups(), object).await;
    }

    async fn pod(&self, name: &str, group: &str, node: &str, notes: Value, requests: Value) {
        let mut notes = notes;
        notes["pod-group-name"] = json!(group);
        if notes.get("lab.kai/run-seconds").is_none() {
            notes["lab.kai/run-seconds"] = json!("1000000");
        }
        let mut spec = json!({"schedulerName": "kai-scheduler", "terminationGracePeriodSeconds": 0, "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "app:1", "resources": {"requests": requests, "limits": requests}}]});
        if !node.is_empty() {
            spec["nodeName"] = json!(node);
        }
        let object = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "annotations": notes}, "spec": spec});
        create::<Pod>(&self.pods(), object).await;
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn groups(&self) -> Api<PodGroup> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn queues(&self) -> Api<Queue> {
        Api::all(self.client.clone())
    }

    /// Waits until a group has this in its status.
    async fn group_has(&self, name: &str, what: &str, expected: &[(&str, &str)]) {
        let mut last = None;
        for _ in 0..600 {
            let status = self.groups().get(name).await.unwrap().status.unwrap_or_default();
            let found = status.resources_status.unwrap_or_default();
            let found = match what {
                "requested" => found.requested,
                "allocated" => found.allocated,
                _ => found.allocated_non_preemptible,
            };
            if texts(&found) == named(expected) {
                return;
            }
            last = Some(found);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{what} of group {name}: {last:?}, not {expected:?}");
    }

    /// Waits until a queue has allocated this.
    async fn queue_has(&self, name: &str, expected: &[(&str, &str)]) -> Queue {
        let mut last = None;
        for _ in 0..600 {
            let queue = self.queues().get(name).await.unwrap();
            let found = queue.status.clone().unwrap_or_default().allocated;
            if texts(&found) == named(expected) {
                return queue;
            }
            last = Some(found);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("queue {name} has {last:?}, not {expected:?}");
    }

    /// Waits until a queue's condition is so, and returns reason and message.
    async fn condition(&self, queue: &str, condition: &str, status: &str) -> (String, String) {
        let mut last = None;
        for _ in 0..600 {
            let found = self.queues().get(queue).await.unwrap().status.unwrap_or_default().conditions;
            let found = found.into_iter().find(|one| one.type_ == condition);
            if let Some(found) = found.clone().filter(|found| found.status == status) {
                return (found.reason.unwrap(), found.message.unwrap());
            }
            last = found;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{condition} of queue {queue}: {last:?}, not {status}");
    }

    /// Counts the writes of a kind from now on.
    async fn count_writes<K>(&self) -> Arc<AtomicUsize>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        let tell = move |news: News<Arc<K>>| {
            if matches!(news, News::Applied(_)) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        };
        let api: Api<Lean<K>> = Api::all(self.client.clone());
        let (health, cancel) = (kai_kit::Health::default(), self.process.cancel.clone());
        tokio::spawn(watch::run(api, watcher::Config::default(), "count".into(), health, cancel, tell));
        tokio::time::sleep(Duration::from_secs(1)).await;
        count
    }
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn merge<K>(api: &Api<K>, name: &str, patch: Value)
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

fn texts(found: &BTreeMap<String, Quantity>) -> BTreeMap<String, String> {
    found.iter().map(|(name, quantity)| (name.clone(), quantity.0.clone())).collect()
}

fn named(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn statuses_follow_pods_from_waiting_to_running_to_gone() {
    let world = world("dgx-h100", false).await;
    world.queue("top", "", 1.0).await;
    world.queue("middle", "top", 1.0).await;
    world.queue("team", "middle", 1.0).await;
    world.group("g", "team", json!({})).await;
    let gpus = |count: &str| json!({"cpu": "1", "nvidia.com/gpu": count});
    world.pod("waits", "g", "", json!({}), gpus("1")).await;
    world.group_has("g", "requested", &[("cpu", "1"), ("nvidia.com/gpu", "1")]).await;
    world.group_has("g", "allocated", &[]).await;
    world.pod("runs", "g", "dgx-h100-0", json!({}), gpus("2")).await;
    world.group_has("g", "requested", &[("cpu", "2"), ("nvidia.com/gpu", "3")]).await;
    world.group_has("g", "allocated", &[("cpu", "1"), ("nvidia.com/gpu", "2")]).await;
    world.group_has("g", "non-preemptible", &[]).await;
    for queue in ["team", "middle", "top"] {
        world.queue_has(queue, &[("cpu", "1"), ("nvidia.com/gpu", "2")]).await;
    }
    assert_eq!(world.queues().get("top").await.unwrap().status.unwrap().child_queues, ["middle"]);
    let (_, message) = world.condition("top", "OverQuota", "True").await;
    assert!(message.contains("2 GPUs with a quota of 1"), "{message}");
    let gauge = "kai_queue_allocated_gpus{queue_name=\"top\",queue_metadata_name=\"top\",queue_display_name=\"\"} 2.0";
    assert!(world.process.metrics.text().contains(gauge), "{}", world.process.metrics.text());

    world.pods().delete("runs", &DeleteParams::default()).await.unwrap();
    world.group_has("g", "allocated", &[]).await;
    world.queue_has("top", &[]).await;
    world.condition("top", "OverQuota", "False").await;
    world.queues().delete("top", &DeleteParams::default()).await.unwrap();
    let (reason, message) = world.condition("middle", "Orphan", "True").await;
    assert_eq!(reason, "ParentMissing");
    assert!(message.contains("`top`"), "{message}");
    assert!(!world.process.metrics.text().contains("queue_name=\"top\""));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ended_holds_and_asks_for_nothing() {
    let world = world("cpu", false).await;
    world.queue("team", "", 0.0).await;
    world.group("g", "team", json!({})).await;
    world.pod("p", "g", "cpu-0", json!({"lab.kai/run-seconds": "20"}), json!({"cpu": "1"})).await;
    world.group_has("g", "allocated", &[("cpu", "1")]).await;
    world.group_has("g", "allocated", &[]).await;
    world.group_has("g", "requested", &[]).await;
    assert_eq!(world.pods().get("p").await.unwrap().status.unwrap().phase.as_deref(), Some("Succeeded"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_that_becomes_preemptible_holds_nothing_that_is_not() {
    let world = world("dgx-h100", false).await;
    world.queue("team", "", 8.0).await;
    world.group("g", "team", json!({"preemptibility": "non-preemptible"})).await;
    world
        .pod("p", "g", "dgx-h100-0", json!({"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}), json!({}))
        .await;
    world.group_has("g", "non-preemptible", &[("nvidia.com/gpu", "500m")]).await;
    merge(&world.groups(), "g", json!({"spec": {"preemptibility": "preemptible"}})).await;
    world.group_has("g", "non-preemptible", &[]).await;
    world.group_has("g", "allocated", &[("nvidia.com/gpu", "500m")]).await;
    merge(&world.groups(), "g", json!({"spec": {"preemptibility": null, "priorityClassName": "build"}})).await;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "build"}, "value": 100});
    create::<k8s_openapi::api::scheduling::v1::PriorityClass>(&Api::all(world.client.clone()), class).await;
    world.group_has("g", "non-preemptible", &[("nvidia.com/gpu", "500m")]).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn rings_of_queues_are_told_and_mended() {
    let world = world("cpu", false).await;
    world.queue("a", "b", 0.0).await;
    world.queue("b", "c", 0.0).await;
    world.queue("c", "a", 0.0).await;
    world.queue("below", "a", 0.0).await;
    world.group("g", "below", json!({})).await;
    world.pod("p", "g", "cpu-0", json!({}), json!({"cpu": "1"})).await;
    let (reason, message) = world.condition("b", "Orphan", "True").await;
    assert_eq!(reason, "Cycle");
    assert!(message.contains("`b` -> `c` -> `a` -> `b`"), "{message}");
    assert_eq!(world.condition("below", "Orphan", "True").await.0, "AncestorOrphan");
    world.queue_has("a", &[("cpu", "1")]).await;
    world.queue_has("b", &[]).await;
    merge(&world.queues(), "c", json!({"spec": {"parentQueue": null}})).await;
    for queue in ["a", "b", "c", "below"] {
        world.condition(queue, "Orphan", "False").await;
        world.queue_has(queue, &[("cpu", "1")]).await;
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_pods_cause_few_writes_and_rest_causes_none() {
    let world = world("dgx-h100", false).await;
    world.queue("top", "", 8.0).await;
    world.queue("team", "top", 8.0).await;
    world.group("g", "team", json!({})).await;
    let groups = world.count_writes::<PodGroup>().await;
    let queues = world.count_writes::<Queue>().await;
    for index in 0..100 {
        world.pod(&format!("p{index}"), "g", "dgx-h100-0", json!({}), json!({"cpu": "100m"})).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.group_has("g", "allocated", &[("cpu", "10")]).await;
    world.queue_has("top", &[("cpu", "10")]).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let written = (groups.load(Ordering::Relaxed), queues.load(Ordering::Relaxed));
    assert!(written.0 <= 6 && written.1 <= 10, "{written:?}");
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(written, (groups.load(Ordering::Relaxed), queues.load(Ordering::Relaxed)));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_schedulers_part_of_a_status_stays() {
    let world = world("cpu", false).await;
    world.queue("team", "", 0.0).await;
    world.group("g", "team", json!({})).await;
    let theirs =
        json!({"status": {"schedulingConditions": [{"type": "UnschedulableOnNodePool", "nodePool": "default"}]}});
    world.groups().patch_status("g", &PatchParams::default(), &Patch::Merge(theirs)).await.unwrap();
    world.pod("p", "g", "cpu-0", json!({}), json!({"cpu": "1"})).await;
    world.group_has("g", "allocated", &[("cpu", "1")]).await;
    let status = world.groups().get("g").await.unwrap().status.unwrap();
    assert_eq!(status.scheduling_conditions[0].node_pool.as_deref(), Some("default"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn lost_answers_errors_and_a_restart_leave_the_truth() {
    let mut world = world("dgx-h100", true).await;
    let fault = |effect, trigger| ApiFault { verb: Some("patch".into()), resource: None, trigger, effect };
    world.lab.faults().set(vec![
        fault(ApiEffect::LostAnswer, Trigger::Nth(1)),
        fault(ApiEffect::Error(503), Trigger::Probability(0.3)),
        fault(ApiEffect::Error(409), Trigger::Probability(0.2)),
    ]);
    world.queue("team", "", 8.0).await;
    world.group("g", "team", json!({})).await;
    for index in 0..5 {
        world.pod(&format!("p{index}"), "g", "dgx-h100-0", json!({"gpu-fraction": "0.5"}), json!({})).await;
    }
    world.group_has("g", "allocated", &[("nvidia.com/gpu", "2500m")]).await;
    world.queue_has("team", &[("nvidia.com/gpu", "2500m")]).await;
    world.process.cancel.cancel();
    (&mut world.controllers).await.unwrap().unwrap();
    world.pods().delete("p0", &DeleteParams::default()).await.unwrap();
    (world.process, world.controllers) = controllers(&world.lab, true);
    world.group_has("g", "allocated", &[("nvidia.com/gpu", "2")]).await;
    world.queue_has("team", &[("nvidia.com/gpu", "2")]).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn memory_counts_by_the_nodes_label_and_a_label_that_says_nothing_is_warned_of() {
    let world = world("thor:replicas=100", false).await;
    world.queue("team", "", 8.0).await;
    world.group("g", "team", json!({})).await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    merge(
        &nodes,
        "thor-0",
        json!({"metadata": {"labels": {"nvidia.com/gpu.memory": "lots", "nvidia.com/gpu.count": null}}}),
    )
    .await;
    world.pod("p", "g", "thor-0", json!({"gpu-memory": "30720"}), json!({})).await;
    world.group_has("g", "allocated", &[("run.ai/gpu.memory", "30720")]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let events: Api<Event> = Api::namespaced(world.client.clone(), "default");
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let warnings: Vec<&Event> = events.iter().filter(|event| event.reason.as_deref() == Some("GPULabels")).collect();
    let messages: Vec<&str> = warnings.iter().filter_map(|event| event.message.as_deref()).collect();
    assert!(warnings.iter().all(|event| event.involved_object.name.as_deref() == Some("thor-0")), "{messages:?}");
    let has = |words: &str| messages.iter().any(|message| message.contains(words));
    assert!(has("`nvidia.com/gpu.memory=lots` is not a number of MiB"), "{messages:?}");
    assert!(has("assumes 1 GPU of the 100 advertised"), "{messages:?}");
    merge(&nodes, "thor-0", json!({"metadata": {"labels": {"nvidia.com/gpu.memory": "131072"}}})).await;
    world.group_has("g", "allocated", &[("nvidia.com/gpu", "234375u")]).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn devices_of_claims_count_for_their_group() {
    let world = world("dgx-h100", false).await;
    world.queue("team", "", 8.0).await;
    world.group("g", "team", json!({})).await;
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "two", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}]}}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "annotations": {"pod-group-name": "g"}},
        "spec": {"schedulerName": "kai-scheduler", "resourceClaims": [{"name": "gpus", "resourceClaimName": "two"}],
            "containers": [{"name": "main", "image": "app:1"}]}});
    create::<Pod>(&world.pods(), pod).await;
    // The claim comes later than the pod that needs it.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let claims: Api<k8s_openapi::api::resource::v1::ResourceClaim> = Api::namespaced(world.client.clone(), "default");
    create(&claims, claim).await;
    world.group_has("g", "requested", &[("gpu.nvidia.com", "2")]).await;
    world.end().await;
}
