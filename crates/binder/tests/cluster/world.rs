//! An embedded cluster with a binder whose writes are counted and can be broken, and a program that reports GPUs.

use std::{
    future::Future,
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Method, StatusCode},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Event, Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kai_api::BindRequest;
use kai_binder::Options;
use kai_clock::Clock;
use kai_kit::Process;
use kai_lab::{
    client::client_for,
    cluster::{Lab, LabOptions},
    fleet::Fleet,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub const RESERVATIONS: &str = "kai-resource-reservation";

/// What happens to a write of the binder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breakage {
    /// The process dies before the write arrives.
    DieBefore,
    /// The process dies when the write is done.
    DieAfter,
    /// The write is done, the answer is lost.
    LoseAnswer,
    /// The server has no time.
    Refuse,
}

#[derive(Default)]
pub struct Wire {
    log: Mutex<Vec<String>>,
    breakage: Mutex<Option<(usize, Breakage)>>,
    /// State of a generator that breaks one write in six; off if none.
    storm: Mutex<Option<u64>>,
    died: Notify,
}

impl Wire {
    /// The writes so far, without events and leases.
    pub fn writes(&self) -> Vec<String> {
        self.log.lock().clone()
    }

    /// How many writes of this kind there were.
    pub fn count(&self, text: &str) -> usize {
        self.log.lock().iter().filter(|line| line.contains(text)).count()
    }

    /// Breaks one write in six from now on, or none any more.
    pub fn storm(&self, seed: Option<u64>) {
        *self.storm.lock() = seed;
    }

    fn struck(&self) -> Option<Breakage> {
        let mut storm = self.storm.lock();
        let state = storm.as_mut()?;
        // SplitMix64.
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        match (mixed ^ (mixed >> 31)) % 12 {
            0 => Some(Breakage::LoseAnswer),
            1 => Some(Breakage::Refuse),
            _ => None,
        }
    }

    /// Breaks the n-th write from the beginning, counted from 1.
    pub fn break_at(&self, number: usize, breakage: Breakage) {
        *self.breakage.lock() = Some((number, breakage));
    }
}

async fn through_wire(State(wire): State<Arc<Wire>>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    if request.method() == Method::GET || path.contains("/events") || path.contains("/leases") {
        return next.run(request).await;
    }
    let number = {
        let mut log = wire.log.lock();
        log.push(format!("{} {path}", request.method()));
        log.len()
    };
    let breakage = wire.breakage.lock().filter(|(at, _)| *at == number).map(|(_, breakage)| breakage);
    let breakage = breakage.or_else(|| wire.struck());
    let unavailable = || {
        let text = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no time", "reason": "ServiceUnavailable",
            "code": 503});
        let mut response = Response::new(Body::from(text.to_string()));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response
    };
    match breakage {
        None => next.run(request).await,
        Some(Breakage::Refuse) => unavailable(),
        Some(Breakage::LoseAnswer) => {
            next.run(request).await;
            unavailable()
        }
        Some(death) => {
            if death == Breakage::DieAfter {
                next.run(request).await;
            }
            wire.died.notify_one();
            std::future::pending().await
        }
    }
}

pub struct Cluster {
    pub lab: Arc<Lab>,
    pub client: Client,
    pub wire: Arc<Wire>,
    binder: Mutex<Option<(CancellationToken, tokio::task::JoinHandle<()>)>>,
    program: CancellationToken,
    binders: AtomicU64,
}

impl Cluster {
    /// A cluster with these nodes and a running binder.
    pub async fn start(fleet: &str) -> Self {
        let cluster = Self::without_binder(fleet).await;
        cluster.start_binder();
        cluster
    }

    /// A cluster whose binder is yet to be started.
    pub async fn without_binder(fleet: &str) -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let lab = Arc::new(Lab::start(LabOptions::new(Fleet::parse(fleet).unwrap(), clock)));
        lab.ready().await;
        let client = lab.client();
        let cluster = Self {
            lab,
            client,
            wire: Arc::default(),
            binder: Mutex::default(),
            program: CancellationToken::new(),
            binders: AtomicU64::new(0),
        };
        cluster.define("BindRequest").await;
        for name in [RESERVATIONS, "kai-scheduler", "team"] {
            cluster.create("v1", "Namespace", json!({"metadata": {"name": name}})).await;
        }
        let class = json!({"metadata": {"name": "nvidia"}, "handler": "nvidia"});
        cluster.create("node.k8s.io/v1", "RuntimeClass", class).await;
        tokio::spawn(report_devices(Arc::clone(&cluster.lab), cluster.program.clone()));
        cluster
    }

    /// Starts a binder; the one before must be dead.
    pub fn start_binder(&self) {
        let running = self.binder_with(Options::default());
        *self.binder.lock() = Some(running);
    }

    /// Starts a binder beside others.
    pub fn binder_with(&self, options: Options) -> (CancellationToken, tokio::task::JoinHandle<()>) {
        let router = self.lab.router().layer(from_fn_with_state(Arc::clone(&self.wire), through_wire));
        let cancel = CancellationToken::new();
        let number = self.binders.fetch_add(1, Ordering::Relaxed);
        let identity = format!("binder-{number}");
        let client = client_for(router);
        let process = Process::new("binder", client, self.lab.clock(), cancel.clone(), "kai-scheduler", identity);
        let task = tokio::spawn(async move { kai_binder::run(process, options).await.unwrap() });
        (cancel, task)
    }

    /// Kills the binder without a goodbye.
    pub async fn kill_binder(&self) {
        let running = self.binder.lock().take();
        if let Some((cancel, task)) = running {
            task.abort();
            let _ = task.await;
            cancel.cancel();
        }
    }

    /// Waits until a breakage has killed the binder, or this long; then kills it for good. Whether it had died.
    pub async fn death(&self, patience: Duration) -> bool {
        let died = tokio::time::timeout(patience, self.wire.died.notified()).await.is_ok();
        if died {
            self.kill_binder().await;
        }
        died
    }

    /// No reservation pod reports its GPU any more.
    pub fn stop_reporting(&self) {
        self.program.cancel();
    }

    pub fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub fn dynamic(&self, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Creates any object.
    pub async fn create(&self, version: &str, kind: &str, object: Value) -> DynamicObject {
        let mut object = object;
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
        let api = self.dynamic(version, kind, namespace.as_deref());
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    /// Makes a pod with a spec and annotations, and no node.
    pub async fn pod(&self, name: &str, container: Value, annotations: Value) -> Pod {
        let mut main = json!({"name": "main", "image": "app:1"});
        main.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        let pod = json!({
            "metadata": {"name": name, "namespace": "team", "annotations": annotations},
            "spec": {"schedulerName": "kai-scheduler", "containers": [main]},
        });
        self.pods("team").create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    /// Makes a pod with part of a GPU, as admission leaves it.
    pub async fn fraction(&self, name: &str) -> Pod {
        let prefix = format!("{name}-abc-shared-gpu");
        let variable = |key: &str| json!({"name": key, "valueFrom": {"configMapKeyRef": {"name": format!("{prefix}-0"), "key": key}}});
        let env = ["NVIDIA_VISIBLE_DEVICES", "RUNAI_NUM_OF_GPUS", "GPU_PORTION"].map(variable);
        let container = json!({"env": env, "envFrom": [{"configMapRef": {"name": format!("{prefix}-0-evar")}}]});
        self.pod(name, container, json!({"gpu-fraction": "0.333", "runai/shared-gpu-configmap": prefix})).await
    }

    /// Makes a request for a pod, with more in its spec.
    pub async fn request(&self, pod: &Pod, node: &str, more: Value) -> BindRequest {
        let mut spec = json!({"podName": pod.name_any(), "selectedNode": node, "receivedResourceType": "Regular"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.uid()});
        let request = json!({
            "apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest",
            "metadata": {"name": pod.name_any(), "namespace": "team", "ownerReferences": [owner],
                "labels": {"selected-node": node}},
            "spec": spec,
        });
        self.requests().create(&PostParams::default(), &serde_json::from_value(request).unwrap()).await.unwrap()
    }

    /// Makes a request for parts of GPUs.
    pub async fn share(&self, pod: &Pod, node: &str, groups: &[&str]) -> BindRequest {
        let gpu = json!({"count": groups.len(), "portion": "0.333"});
        let more = json!({"receivedResourceType": "Fraction", "selectedGPUGroups": groups, "receivedGPU": gpu});
        self.request(pod, node, more).await
    }

    pub fn requests(&self) -> Api<BindRequest> {
        Api::namespaced(self.client.clone(), "team")
    }

    /// Waits until a request has this phase.
    pub async fn phase(&self, name: &str, phase: &str) -> BindRequest {
        let api = self.requests();
        until(&format!("request {name} is {phase}"), || async {
            let request = api.get_opt(name).await.unwrap()?;
            (request.status.as_ref()?.phase.as_deref() == Some(phase)).then_some(request)
        })
        .await
    }

    /// Waits until a pod runs.
    pub async fn running(&self, name: &str) -> Pod {
        let api = self.pods("team");
        until(&format!("pod {name} runs"), || async {
            let pod = api.get_opt(name).await.unwrap()?;
            (pod.status.as_ref()?.phase.as_deref() == Some("Running")).then_some(pod)
        })
        .await
    }

    pub async fn reservations(&self) -> Vec<Pod> {
        self.pods(RESERVATIONS).list(&ListParams::default()).await.unwrap().items
    }

    /// Waits until there are so many reservation pods, all with a GPU, and none is on its way out.
    pub async fn held(&self, number: usize) -> Vec<Pod> {
        until(&format!("{number} reservations"), || async {
            let pods = self.reservations().await;
            let settled = pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_none() && !uuid(pod).is_empty());
            (pods.len() == number && settled).then_some(pods)
        })
        .await
    }

    pub async fn config_map(&self, name: &str) -> Value {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), "team");
        api.get_opt(name).await.unwrap().map_or(Value::Null, |map| json!(map.data.unwrap_or_default()))
    }

    pub async fn config_maps(&self) -> Vec<String> {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), "team");
        let maps = api.list(&ListParams::default()).await.unwrap().items;
        maps.iter().map(ResourceExt::name_any).filter(|name| name.contains("shared-gpu")).collect()
    }

    /// Messages of events with a reason about an object.
    pub async fn events(&self, namespace: &str, about: &str, reason: &str) -> Vec<String> {
        let events =
            Api::<Event>::namespaced(self.client.clone(), namespace).list(&ListParams::default()).await.unwrap();
        let fits = |event: &&Event| {
            event.involved_object.name.as_deref() == Some(about) && event.reason.as_deref() == Some(reason)
        };
        events.items.iter().filter(fits).filter_map(|event| event.message.clone()).collect()
    }

    pub async fn delete_pod(&self, namespace: &str, name: &str) {
        self.pods(namespace).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Makes one of our kinds known; others stay unknown, as tests are quicker without.
    async fn define(&self, kind: &str) {
        let definitions = Api::<CustomResourceDefinition>::all(self.client.clone());
        for crd in kai_api::crds().iter().filter(|crd| crd.spec.names.kind == kind) {
            definitions.create(&PostParams::default(), crd).await.unwrap();
        }
    }

    /// Sets the binder's part of the `Config`.
    pub async fn configure(&self, binder: Value) {
        self.define("Config").await;
        let config = json!({"metadata": {"name": "kai-config"}, "spec": {"binder": binder}});
        self.create("kai.scheduler/v1", "Config", config).await;
    }
}

/// The GPU that a reservation pod reported.
pub fn uuid(pod: &Pod) -> String {
    pod.annotations().get("run.ai/reserve_for_gpu_index").cloned().unwrap_or_default()
}

/// Waits for a state in virtual time.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    for _ in 0..6_000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("waited in vain: {what}");
}

pub async fn sleep(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// What the program in reservation pods does: it tells which device the kubelet gave it.
async fn report_devices(lab: Arc<Lab>, cancel: CancellationToken) {
    let api = Api::<Pod>::namespaced(lab.client(), RESERVATIONS);
    while !cancel.is_cancelled() {
        tokio::time::sleep(Duration::from_millis(500)).await;
        for pod in api.list(&ListParams::default()).await.unwrap().items {
            let runs = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
            if !runs || !uuid(&pod).is_empty() || pod.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let devices = lab.devices_of(RESERVATIONS, &pod.name_any());
            let device = devices.into_values().flat_map(|by_resource| by_resource.into_values().flatten()).next();
            let Some(device) = device else { continue };
            let device = device.split("::").next().unwrap_or_default().to_owned();
            let patch = json!({"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": device}}});
            let _ = api.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
        }
    }
}
