//! A server with nodes, queues, groups and pods made by hand, and a scheduler on it whose writes are counted.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{body::Body, http::Request};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, Node, Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kai_api::{BindRequest, PodGroup, Queue};
use kai_apiserver::ApiServer;
use kai_clock::Clock;
use kai_kit::Process;
use kai_lab::{
    client::client_for,
    faults::{ApiFault, FaultLayer},
    seed::Seed,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::{Options, Planner};

/// A cluster and what was written to it by schedulers.
pub(super) struct Fixture {
    pub(super) server: ApiServer,
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) writes: Arc<Mutex<Vec<String>>>,
    pub(super) faults: FaultLayer,
}

/// A running scheduler.
pub(super) struct Running {
    pub(super) process: Process,
    pub(super) task: tokio::task::JoinHandle<Result<(), crate::Error>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.process.cancel.cancel();
        self.task.abort();
    }
}

impl Fixture {
    pub(super) async fn new() -> Self {
        let clock = Clock::starting_at("2026-01-01T12:00:00Z".parse::<Timestamp>().expect("a time"));
        let options = kai_apiserver::Options { seed: Some(1), ..kai_apiserver::Options::new(clock) };
        let server = ApiServer::start(options);
        let client = client_for(server.router());
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in kai_api::crds() {
            definitions.create(&PostParams::default(), &definition).await.expect("a definition");
        }
        let faults = FaultLayer::new(Seed(1), Vec::<ApiFault>::new());
        Self { server, client, clock, writes: Arc::default(), faults }
    }

    /// A client that counts writes and meets the faults.
    fn watched_client(&self) -> Client {
        let writes = Arc::clone(&self.writes);
        let transport = self.server.router().map_request(move |request: Request<kube::client::Body>| {
            if request.method() != "GET" && !request.uri().path().contains("/leases") {
                writes.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
            }
            request.map(Body::new)
        });
        Client::new(tower::Layer::layer(&self.faults, transport), "default")
    }

    pub(super) fn process(&self, identity: &str) -> Process {
        let cancel = CancellationToken::new();
        Process::new("scheduler", self.watched_client(), self.clock, cancel, "default", identity)
    }

    pub(super) fn start(&self) -> Running {
        self.start_with(Options::default(), kai_core::cycle::plan_watched, "one")
    }

    pub(super) fn start_with(&self, options: Options, planner: Planner, identity: &str) -> Running {
        let process = self.process(identity);
        let task = tokio::spawn(crate::scheduler::run(process.clone(), options, planner));
        Running { process, task }
    }

    /// Writes of schedulers so far, without events.
    pub(super) fn written(&self) -> Vec<String> {
        let writes = self.writes.lock().unwrap();
        writes.iter().filter(|write| !write.contains("/events")).cloned().collect()
    }

    pub(super) async fn create(&self, object: Value) {
        let path = path_of(&object);
        let request = Request::post(&path)
            .header("content-type", "application/json")
            .body(serde_json::to_vec(&object).expect("JSON"))
            .expect("a request");
        let made: Value = self.client.request(request).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        if object.get("status").is_some() {
            let name = object.pointer("/metadata/name").and_then(Value::as_str).expect("a name");
            let patch = json!({"status": object["status"]});
            let request = Request::patch(format!("{path}/{name}/status"))
                .header("content-type", "application/merge-patch+json")
                .body(serde_json::to_vec(&patch).expect("JSON"))
                .expect("a request");
            let _: Value = self.client.request(request).await.unwrap_or_else(|error| panic!("{path}: {error} {made}"));
        }
    }

    /// A node with GPUs of 81920 MiB.
    pub(super) async fn node(&self, name: &str, gpus: u32) {
        self.node_with(name, gpus, 81920, &[]).await;
    }

    pub(super) async fn node_with(&self, name: &str, gpus: u32, memory: u32, labels: &[(&str, &str)]) {
        let amounts = json!({"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": gpus.to_string()});
        let mut all: BTreeMap<&str, String> = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        all.insert("nvidia.com/gpu.count", gpus.to_string());
        all.insert("nvidia.com/gpu.memory", memory.to_string());
        all.insert("kubernetes.io/hostname", name.to_owned());
        self.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": all},
            "status": {"allocatable": amounts, "capacity": amounts,
                "conditions": [{"type": "Ready", "status": "True"}]}}))
            .await;
    }

    /// A queue with a quota of GPUs below `top`, or at the top.
    pub(super) async fn queue(&self, name: &str, parent: Option<&str>, quota: i64) {
        let any = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        let gpu = json!({"quota": quota, "limit": -1, "overQuotaWeight": 1});
        self.create(json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name},
            "spec": {"parentQueue": parent.unwrap_or_default(), "resources": {"cpu": any, "memory": any, "gpu": gpu}}}))
            .await;
    }

    /// The queues `top` and `team`.
    pub(super) async fn team(&self) {
        self.queue("top", None, -1).await;
        self.queue("team", Some("top"), -1).await;
    }

    pub(super) async fn group(&self, name: &str, queue: &str, least: u32) {
        self.create(json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"queue": queue, "minMember": least}}))
            .await;
    }

    /// A pod of a group that asks for whole GPUs.
    pub(super) async fn pod(&self, name: &str, group: &str, gpus: u32) {
        self.pod_with(name, group, json!({"nvidia.com/gpu": gpus.to_string()}), json!({})).await;
    }

    pub(super) async fn pod_with(&self, name: &str, group: &str, limits: Value, notes: Value) {
        let mut annotations = notes;
        annotations["pod-group-name"] = json!(group);
        self.create(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {"schedulerName": "kai-scheduler",
                "containers": [{"name": "main", "image": "busybox", "resources": {"limits": limits, "requests": limits}}]}}))
            .await;
    }

    /// A group with pods of one GPU each that must run together.
    pub(super) async fn gang(&self, name: &str, queue: &str, pods: u32) {
        self.group(name, queue, pods).await;
        for index in 0..pods {
            self.pod(&format!("{name}-{index}"), name, 1).await;
        }
    }

    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(super) async fn requests(&self) -> Vec<BindRequest> {
        self.api::<BindRequest>().list(&ListParams::default()).await.expect("requests").items
    }

    pub(super) async fn request(&self, pod: &str) -> Option<BindRequest> {
        self.api::<BindRequest>().get_opt(pod).await.expect("an answer")
    }

    /// Pods with their nodes as BindRequests say.
    pub(super) async fn placed(&self) -> BTreeMap<String, String> {
        let one = |request: BindRequest| (request.name_any(), request.spec.selected_node.clone().unwrap_or_default());
        self.requests().await.into_iter().map(one).collect()
    }

    /// Does what the binder and the kubelet do: the pods of all open requests run.
    pub(super) async fn run_placed(&self) {
        for request in self.requests().await {
            let phase = request.status.as_ref().and_then(|status| status.phase.as_deref());
            if matches!(phase, Some("Succeeded" | "Failed")) {
                continue;
            }
            let name = request.name_any();
            let node = request.spec.selected_node.clone().expect("a node");
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
            let path = format!("/api/v1/namespaces/default/pods/{name}/binding");
            let call = Request::post(path)
                .header("content-type", "application/json")
                .body(serde_json::to_vec(&binding).expect("JSON"))
                .expect("a request");
            let _: Value = self.client.request(call).await.expect("bound");
            self.patch_status::<Pod>(&name, json!({"status": {"phase": "Running"}})).await;
            self.patch_status::<BindRequest>(&name, json!({"status": {"phase": "Succeeded"}})).await;
        }
    }

    pub(super) async fn patch_status<K>(&self, name: &str, patch: Value)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        self.api::<K>().patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    }

    pub(super) async fn delete<K>(&self, name: &str)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        self.api::<K>().delete(name, &DeleteParams::default().grace_period(0)).await.expect("deleted");
    }

    pub(super) async fn delete_node(&self, name: &str) {
        Api::<Node>::all(self.client.clone()).delete(name, &DeleteParams::default()).await.expect("deleted");
    }

    /// The message of a pod's condition, if it says that the pod waits.
    pub(super) async fn reason(&self, pod: &str) -> Option<String> {
        let pod = self.api::<Pod>().get(pod).await.expect("a pod");
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let waits = conditions.into_iter().find(|one| one.type_ == "PodScheduled" && one.status == "False");
        waits.and_then(|condition| condition.message)
    }

    pub(super) async fn group_messages(&self, group: &str) -> Vec<String> {
        let group = self.api::<PodGroup>().get(group).await.expect("a group");
        let conditions = group.status.map(|status| status.scheduling_conditions).unwrap_or_default();
        conditions.into_iter().filter_map(|condition| condition.message).collect()
    }

    /// Reasons and messages of events about an object.
    pub(super) async fn events(&self, about: &str) -> Vec<(String, String)> {
        let all = Api::<Event>::all(self.client.clone()).list(&ListParams::default()).await.expect("events");
        let about = all.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(about));
        about.map(|event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default())).collect()
    }

    pub(super) async fn queue_object(&self, name: &str) -> Queue {
        Api::<Queue>::all(self.client.clone()).get(name).await.expect("a queue")
    }
}

/// Waits until something holds, for at most a minute of virtual time.
pub(super) async fn eventually<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    for _ in 0..600 {
        if holds().await {
            return;
        }
        pause(100).await;
    }
    panic!("never: {what}");
}

/// Lets virtual time pass.
pub(super) async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

fn path_of(object: &Value) -> String {
    let version = object["apiVersion"].as_str().expect("a version");
    let kind = object["kind"].as_str().expect("a kind");
    let plural = match kind {
        "StorageClass" | "PriorityClass" | "DeviceClass" => format!("{}es", kind.to_lowercase()),
        "Topology" => "topologies".to_owned(),
        _ => format!("{}s", kind.to_lowercase()),
    };
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    match object.pointer("/metadata/namespace").and_then(Value::as_str) {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{plural}"),
    }
}
