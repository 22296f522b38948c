//! An embedded cluster with a pod-grouper whose calls are counted and can fail.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::body::Body;
use http::Request;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{Event, Namespace, Pod},
        scheduling::v1::PriorityClass,
    },
};
use kai_api::PodGroup;
use kai_clock::Clock;
use kai_kit::Process;
use kai_lab::{
    cluster::{Lab, LabOptions},
    faults::{ApiEffect, ApiFault, Call, FaultLayer, Trigger},
    fleet::Fleet,
    seed::Seed,
};
use kai_podgrouper::{Error, Options};
use kube::{
    Api, Client, Resource,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::{Layer as _, ServiceExt as _};

/// How often each (verb, resource) was called.
pub type Calls = BTreeMap<(String, String), u64>;

pub struct Cluster {
    pub lab: Lab,
    pub faults: FaultLayer,
    calls: Arc<Mutex<Calls>>,
    running: Option<(CancellationToken, JoinHandle<Result<(), Error>>)>,
    pub options: Options,
}

impl Cluster {
    /// A cluster with CRDs, a pod-grouper not yet running.
    pub async fn new(fleet: &str) -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let lab = Lab::start(LabOptions::new(Fleet::parse(fleet).unwrap(), clock));
        lab.ready().await;
        let client = lab.client();
        for crd in kai_api::crds() {
            Api::all(client.clone()).create(&PostParams::default(), &crd).await.unwrap();
        }
        let cluster = Self {
            lab,
            faults: FaultLayer::new(Seed(7), Vec::new()),
            calls: Arc::default(),
            running: None,
            options: Options::default(),
        };
        let namespace: Namespace = from(json!({"metadata": {"name": "kai-scheduler"}}));
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        for (name, value) in [("train", 50), ("build", 100), ("inference", 125)] {
            cluster.priority_class(name, value).await;
        }
        cluster
    }

    /// The same with the pod-grouper at work.
    pub async fn start() -> Self {
        let mut cluster = Self::new("cpu*2").await;
        cluster.run();
        cluster
    }

    pub fn run(&mut self) {
        let cancel = CancellationToken::new();
        let process = Process::new(
            "pod-grouper",
            self.grouper_client(),
            self.lab.clock(),
            cancel.clone(),
            "kai-scheduler",
            "grouper-0",
        );
        let running = tokio::spawn(kai_podgrouper::run(process, self.options.clone()));
        self.running = Some((cancel, running));
    }

    /// Ends the pod-grouper without a goodbye.
    pub async fn kill(&mut self) {
        if let Some((cancel, running)) = self.running.take() {
            running.abort();
            let _ = running.await;
            cancel.cancel();
        }
    }

    fn grouper_client(&self) -> Client {
        let calls = Arc::clone(&self.calls);
        let transport = self.lab.router().map_request(move |request: Request<kube::client::Body>| {
            let call = Call::of(request.method(), request.uri());
            *calls.lock().entry((call.verb.to_owned(), call.resource)).or_default() += 1;
            request.map(Body::new)
        });
        Client::new(self.faults.layer(transport), "default")
    }

    /// Calls of the pod-grouper that arrived at the server.
    pub fn calls(&self) -> Calls {
        self.calls.lock().clone()
    }

    pub fn called(&self, verb: &str, resource: &str) -> u64 {
        self.calls().get(&(verb.to_owned(), resource.to_owned())).copied().unwrap_or(0)
    }

    pub fn fail(&self, verb: &str, resource: &str, trigger: Trigger, effect: ApiEffect) {
        self.faults.set(vec![fault(verb, resource, trigger, effect)]);
    }

    pub async fn priority_class(&self, name: &str, value: i32) {
        let class: PriorityClass = from(json!({"metadata": {"name": name}, "value": value}));
        Api::all(self.lab.client()).create(&PostParams::default(), &class).await.unwrap();
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.lab.client(), "default")
    }

    pub async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        self.api::<K>().create(&PostParams::default(), &from::<K>(object)).await.unwrap()
    }

    pub async fn patch<K>(&self, name: &str, patch: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    pub async fn pods(&self) -> Vec<Pod> {
        self.api::<Pod>().list(&ListParams::default()).await.unwrap().items
    }

    pub async fn groups(&self) -> Vec<PodGroup> {
        self.api::<PodGroup>().list(&ListParams::default()).await.unwrap().items
    }

    /// Waits until so many pods are there and all are in a group.
    pub async fn grouped(&self, count: usize) -> Vec<Pod> {
        until(&format!("{count} pods in groups"), || async {
            let pods = self.pods().await;
            let all = pods.len() == count && pods.iter().all(|pod| group(pod).is_some());
            all.then_some(pods)
        })
        .await
    }

    /// Waits until a pod is in a group, and gives the group.
    pub async fn group_of(&self, pod: &str) -> PodGroup {
        let what = format!("a group of pod {pod}");
        let name = until(&what, || async { group(&self.api::<Pod>().get(pod).await.unwrap()) }).await;
        self.api().get(&name).await.unwrap()
    }

    /// Waits for a warning about a pod.
    pub async fn warning(&self, pod: &str, words: &str) -> String {
        until(&format!("a warning about {pod} with `{words}`"), || async {
            let fields = ListParams::default().fields(&format!("involvedObject.name={pod},reason=PodGrouperWarning"));
            let events = self.api::<Event>().list(&fields).await.unwrap().items;
            events.into_iter().filter_map(|event| event.message).find(|message| message.contains(words))
        })
        .await
    }

    pub async fn end(mut self) {
        self.kill().await;
        self.lab.shutdown().await;
    }
}

pub fn fault(verb: &str, resource: &str, trigger: Trigger, effect: ApiEffect) -> ApiFault {
    ApiFault { verb: Some(verb.to_owned()), resource: Some(resource.to_owned()), trigger, effect }
}

pub fn from<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// The group a pod says it is in.
pub fn group(pod: &Pod) -> Option<String> {
    pod.metadata.annotations.as_ref()?.get("pod-group-name").cloned()
}

/// The spec of a pod of ours.
pub fn spec() -> Value {
    json!({"schedulerName": "kai-scheduler", "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "app:1"}]})
}

/// A pod of ours.
pub fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec()})
}

/// A Job of so many pods, with these annotations.
pub fn job(name: &str, pods: u32, annotations: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": spec()}},
    })
}

/// A workload of the `apps` group with these labels.
pub fn app(name: &str, replicas: Option<u32>, labels: Value) -> Value {
    let mut template = spec();
    template["restartPolicy"] = json!("Always");
    let mut object = json!({
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template},
        },
    });
    if let Some(replicas) = replicas {
        object["spec"]["replicas"] = json!(replicas);
    }
    object
}

/// Waits for a state in virtual time.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    for _ in 0..5_000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("waited in vain: {what}");
}
