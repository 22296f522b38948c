//! What a case stands on: a namespace, queues and nodes of its own, and the questions it asks.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use kai_api::{
    BindRequest, Queue,
    names::{annotations, labels, namespaces, objects},
};
use kai_tests::{
    cluster::{Cluster, PATIENCE},
    wait,
};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::fleet::CASE;

/// How long "nothing happens" is watched.
pub const STILL: Duration = Duration::from_secs(3);

/// The ground of one case.
pub struct Stage<'a> {
    pub cluster: &'a Cluster,
    /// The value of the nodes' label.
    pub nodes: &'static str,
    pub namespace: String,
    pub queue: String,
    pub pods: Api<Pod>,
}

impl<'a> Stage<'a> {
    /// A namespace, and a queue without limits under a parent of its own.
    pub async fn set(cluster: &'a Cluster, nodes: &'static str) -> Result<Self> {
        Self::named(cluster, nodes, nodes).await
    }

    /// The same for a second case on the same nodes.
    pub async fn named(cluster: &'a Cluster, nodes: &'static str, purpose: &str) -> Result<Self> {
        let namespace = cluster.namespace(purpose).await?;
        let parent = format!("{namespace}-top");
        queue(cluster, &parent, None, -1).await?;
        let queue_name = format!("{namespace}-queue");
        queue(cluster, &queue_name, Some(&parent), -1).await?;
        let pods = Api::namespaced(cluster.client(), &namespace);
        Ok(Self { cluster, nodes, namespace, queue: queue_name, pods })
    }

    /// A pod of our scheduler on the case's nodes that runs for ever.
    pub fn pod(&self, name: &str, annotations: &Value, limits: &Value) -> Value {
        json!({
            "metadata": { "name": name, "labels": { labels::QUEUE: self.queue }, "annotations": annotations },
            "spec": self.pod_spec(limits),
        })
    }

    /// What such a pod has as its spec.
    pub fn pod_spec(&self, limits: &Value) -> Value {
        json!({
            "schedulerName": objects::SCHEDULER,
            "nodeSelector": { CASE: self.nodes },
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "main", "image": "example/work:1", "resources": { "limits": limits } }],
        })
    }

    /// Creates a pod.
    pub async fn create(&self, pod: Value) -> Result<Pod> {
        Ok(self.pods.create(&PostParams::default(), &from_json(pod)?).await?)
    }

    /// A pod with a part of a GPU.
    pub async fn create_fraction(&self, name: &str, fraction: &str) -> Result<Pod> {
        self.create(self.pod(name, &json!({ annotations::GPU_FRACTION: fraction }), &json!({}))).await
    }

    /// Waits until a pod runs and is ready.
    pub async fn running(&self, name: &str) -> Result<Pod> {
        let pod =
            wait::for_object(&self.pods, name, "running", PATIENCE, |pod: Option<&Pod>| pod.is_some_and(is_running));
        pod.await?.context("the pod is gone")
    }

    /// Waits until the scheduler says of a pod why it waits, in words that contain all of `parts`; gives the words.
    pub async fn waiting(&self, name: &str, parts: &[&str]) -> Result<String> {
        let says = |pod: Option<&Pod>| {
            pod.and_then(why_pending).is_some_and(|why| parts.iter().all(|part| why.contains(part)))
        };
        let what = format!("pending because of {parts:?}");
        let pod = wait::for_object(&self.pods, name, &what, PATIENCE, says).await?.context("the pod is gone")?;
        why_pending(&pod).context("the pod no longer waits")
    }

    /// Waits for an event about an object whose message contains all of `parts`; gives the message.
    pub async fn event(&self, kind: &str, name: &str, parts: &[&str]) -> Result<String> {
        event(self.cluster, &self.namespace, kind, name, parts).await
    }

    /// The pods of the namespace, by name.
    pub async fn all(&self) -> Result<BTreeMap<String, Pod>> {
        let pods = self.pods.list(&ListParams::default()).await?.items;
        Ok(pods.into_iter().map(|pod| (pod.name_any(), pod)).collect())
    }

    /// The reservation pods on the case's nodes.
    pub async fn reservations(&self) -> Result<Vec<Pod>> {
        let all: Api<Pod> = Api::namespaced(self.cluster.client(), namespaces::RESERVATION);
        let mut pods = all.list(&ListParams::default()).await?.items;
        let prefix = format!("{}-", self.nodes);
        pods.retain(|pod| node_of(pod).is_some_and(|node| node.starts_with(&prefix)));
        Ok(pods)
    }

    /// The reservation pod that holds a shared GPU for a pod of the case; there must be exactly one.
    pub async fn reservation_of(&self, pod: &Pod) -> Result<Pod> {
        let group =
            pod.labels().get(labels::GPU_GROUP).with_context(|| format!("`{}` shares no GPU", pod.name_any()))?;
        self.reservation_for(group).await
    }

    /// The one reservation pod of a shared GPU.
    pub async fn reservation_for(&self, group: &str) -> Result<Pod> {
        let mut found = self.reservations().await?;
        found.retain(|pod| pod.labels().get(labels::GPU_GROUP).is_some_and(|label| label == group));
        ensure!(found.len() == 1, "group `{group}` has {} reservation pods", found.len());
        found.pop().context("one was counted")
    }

    /// The environment that the container `main` of a running pod was given.
    pub fn told(&self, name: &str) -> Result<BTreeMap<String, String>> {
        let told = self.cluster.environment_of(&self.namespace, name, "main");
        told.with_context(|| format!("`{name}` runs no container `main`"))
    }

    /// What binds pods in the namespace.
    pub fn bind_requests(&self) -> Api<BindRequest> {
        Api::namespaced(self.cluster.client(), &self.namespace)
    }

    /// Ends the case: its pods go, and with them their reservations.
    pub async fn clear(self) -> Result<()> {
        self.cluster.forget_namespace(&self.namespace).await
    }
}

/// Waits for an event of a namespace.
pub async fn event(cluster: &Cluster, namespace: &str, kind: &str, name: &str, parts: &[&str]) -> Result<String> {
    let events: Api<Event> = Api::namespaced(cluster.client(), namespace);
    let fields = ListParams::default().fields(&format!("involvedObject.kind={kind},involvedObject.name={name}"));
    let mut seen = Vec::new();
    let what = format!("an event of {kind} `{name}` with {parts:?}");
    let found = wait::until(&what, PATIENCE, async || {
        seen = events.list(&fields).await?.items.into_iter().filter_map(|event| event.message).collect::<Vec<_>>();
        Ok(seen.iter().find(|message| parts.iter().all(|part| message.contains(part))).cloned())
    })
    .await;
    found.with_context(|| format!("the events are {seen:#?}"))
}

/// Creates a queue with so many guaranteed GPUs (-1: all) and nothing else limited.
pub async fn queue(cluster: &Cluster, name: &str, parent: Option<&str>, gpus: i32) -> Result<()> {
    let amount = |quota: i32| json!({ "quota": quota, "limit": -1, "overQuotaWeight": 1 });
    let mut spec = json!({ "resources": { "gpu": amount(gpus), "cpu": amount(-1), "memory": amount(-1) } });
    if let Some(parent) = parent {
        spec["parentQueue"] = json!(parent);
    }
    let queue: Queue = from_json(json!({ "metadata": { "name": name }, "spec": spec }))?;
    Api::all(cluster.client()).create(&PostParams::default(), &queue).await?;
    Ok(())
}

/// Whether a pod runs and is ready.
pub fn is_running(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    phase == Some("Running") && ready && pod.metadata.deletion_timestamp.is_none()
}

/// What the scheduler says of a pod that waits.
pub fn why_pending(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_ == "PodScheduled")?;
    (condition.status == "False").then(|| condition.message.clone().unwrap_or_default())
}

/// The node of a pod.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// The UUID that a reservation pod found.
pub fn reserved(pod: &Pod) -> Option<&String> {
    pod.annotations().get(annotations::RESERVED_GPU)
}

/// An object as its manifest shows it.
pub fn from_json<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).context("the test's own object")
}
