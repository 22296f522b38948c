//! Everything that decisions are made from, as a scenario: `kai scenario run` of it decides the same.
//!
//! Objects are read when somebody asks: nothing is kept for it.

use std::net::{Ipv4Addr, SocketAddr};

use axum::{
    Router,
    http::{Request, StatusCode},
    routing::get,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kai_api::names::objects;
use kai_convert::{Object, Settings, policy};
use kai_core::policy::Policy;
use kai_kit::{Class, Process, classify};
use kube::{Api, Client, api::ListParams, core::PartialObjectMeta};
use serde_json::{Map, Value, json};
use tokio::{
    sync::{mpsc::UnboundedSender, oneshot},
    task::JoinSet,
};

use crate::{
    Error, Options,
    change::Change,
    reshape::Shape,
    setup::{Conclusion, File, Found},
};

/// The kinds that decisions depend on: path, API version, kind, whether the node pool divides them.
const KINDS: &[(&str, &str, &str, bool)] = &[
    ("/api/v1/nodes", "v1", "Node", true),
    ("/api/v1/namespaces", "v1", "Namespace", false),
    ("/api/v1/persistentvolumeclaims", "v1", "PersistentVolumeClaim", false),
    ("/api/v1/persistentvolumes", "v1", "PersistentVolume", false),
    ("/apis/storage.k8s.io/v1/storageclasses", "storage.k8s.io/v1", "StorageClass", false),
    ("/apis/scheduling.k8s.io/v1/priorityclasses", "scheduling.k8s.io/v1", "PriorityClass", false),
    ("/apis/resource.k8s.io/v1/resourceclaims", "resource.k8s.io/v1", "ResourceClaim", false),
    ("/apis/resource.k8s.io/v1/resourceslices", "resource.k8s.io/v1", "ResourceSlice", false),
    ("/apis/resource.k8s.io/v1/deviceclasses", "resource.k8s.io/v1", "DeviceClass", false),
    (
        "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
        "topology.node.k8s.io/v1alpha2",
        "NodeResourceTopology",
        false,
    ),
    ("/apis/scheduling.run.ai/v2/queues", "scheduling.run.ai/v2", "Queue", true),
    ("/apis/scheduling.run.ai/v2alpha2/podgroups", "scheduling.run.ai/v2alpha2", "PodGroup", true),
    ("/apis/scheduling.run.ai/v1alpha2/bindrequests", "scheduling.run.ai/v1alpha2", "BindRequest", false),
    ("/apis/kai.scheduler/v1alpha1/topologies", "kai.scheduler/v1alpha1", "Topology", false),
    ("/api/v1/pods", "v1", "Pod", false),
];

/// The cluster as a scenario in JSON, as a scheduler with these flags sees it. `now` is written as its time.
pub async fn snapshot(client: &Client, options: &Options, now: jiff::Timestamp) -> Result<String, kube::Error> {
    let file = options.scheduler_conf.as_deref().and_then(|path| File::read(path).ok());
    let Conclusion { setup, policy, .. } = Found::read(client).await?.conclude(options, file.as_ref());
    let settings = &setup.settings;
    let mut all: Vec<Value> = setup.shape.invented().into_iter().filter_map(|object| written(&object)).collect();
    for (path, version, kind, divided) in KINDS {
        for mut object in list(client, path).await? {
            if *divided && !in_pool(&object, settings) {
                continue;
            }
            prepare(&mut object, version, kind, settings);
            all.extend(seen(&setup.shape, object));
        }
    }
    all.extend(implied(&all, settings));
    let maps: Api<PartialObjectMeta<ConfigMap>> = Api::all(client.clone());
    for map in maps.list(&ListParams::default()).await? {
        // Only that they exist counts: what is in them is nobody's business.
        all.push(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": map.metadata.name, "namespace": map.metadata.namespace, "uid": map.metadata.uid}}));
    }
    let actions: Vec<&str> = policy.actions.iter().map(|action| policy::action_name(*action)).collect();
    let scenario = json!({
        "name": format!("captured at {now}"),
        "kind": "single-action",
        "action": actions.join(","),
        "now": now.to_string(),
        "config": config(&policy),
        "objects": all,
        "expect": {},
    });
    serde_json::to_string_pretty(&scenario).map_err(kube::Error::SerdeError)
}

/// The groups of pods that the pod-grouper has not made yet.
fn implied(all: &[Value], settings: &Settings) -> Vec<Value> {
    let is = |object: &Value, kind: &str| object["kind"] == kind;
    let name = |object: &Value| (object["metadata"]["namespace"].clone(), object["metadata"]["name"].clone());
    let there: Vec<_> = all.iter().filter(|object| is(object, "PodGroup")).map(name).collect();
    let label = settings.pool.as_ref().map(|pool| pool.label.as_str());
    let pods = all.iter().filter(|object| is(object, "Pod") && object["spec"]["schedulerName"] == objects::SCHEDULER);
    let pods = pods.filter(|_| settings.implied_groups).filter_map(|pod| serde_json::from_value(pod.clone()).ok());
    let groups = pods.filter_map(|pod| kai_api::implied_group(&pod, &settings.queue_label, label));
    let groups = groups.filter_map(|group| serde_json::to_value(group).ok());
    groups.filter(|group| in_pool(group, settings) && !there.contains(&name(group))).collect()
}

async fn list(client: &Client, path: &str) -> Result<Vec<Value>, kube::Error> {
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    match client.request::<Value>(request).await {
        Ok(mut list) => Ok(match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        }),
        // A kind that is not served has no objects.
        Err(error) if classify(&error) == Class::Gone => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn in_pool(object: &Value, settings: &Settings) -> bool {
    settings.pool.as_ref().is_none_or(|pool| {
        let value = object.pointer("/metadata/labels").and_then(|labels| labels.get(&pool.label));
        value.and_then(Value::as_str) == pool.value.as_deref()
    })
}

/// Makes an item of a list an object of its own, for a scheduler with the default name.
fn prepare(object: &mut Value, version: &str, kind: &str, settings: &Settings) {
    if let Value::Object(fields) = object {
        fields.insert("apiVersion".to_owned(), json!(version));
        fields.insert("kind".to_owned(), json!(kind));
    }
    if let Some(Value::Object(metadata)) = object.pointer_mut("/metadata") {
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
    }
    if let Some(name) = object.pointer_mut("/spec/schedulerName")
        && settings.scheduler != objects::SCHEDULER
    {
        if name.as_str() == Some(&settings.scheduler) {
            *name = json!(objects::SCHEDULER);
        } else if name.as_str() == Some(objects::SCHEDULER) {
            *name = json!("another-scheduler");
        }
    }
}

/// An object as the scheduler sees it.
fn seen(shape: &Shape, object: Value) -> Option<Value> {
    if *shape == Shape::default() {
        return Some(object);
    }
    match Object::read(&object) {
        Ok(Some(read @ (Object::Queue(_) | Object::Node(_) | Object::Pod(_)))) => written(&shape.see(read)?),
        Ok(_) | Err(_) => Some(object),
    }
}

/// The kinds that are seen otherwise than they are.
fn written(object: &Object) -> Option<Value> {
    let (mut value, version, kind) = match object {
        Object::Queue(queue) => (serde_json::to_value(queue), "scheduling.run.ai/v2", "Queue"),
        Object::Node(node) => (serde_json::to_value(node), "v1", "Node"),
        Object::Pod(pod) => (serde_json::to_value(pod), "v1", "Pod"),
        _ => return None,
    };
    if let Ok(Value::Object(fields)) = &mut value {
        fields.insert("apiVersion".to_owned(), json!(version));
        fields.insert("kind".to_owned(), json!(kind));
    }
    value.ok()
}

/// The policy in the words of scenarios.
fn config(policy: &Policy) -> Value {
    let plugins: Vec<Value> = policy::plugins_of(policy)
        .into_iter()
        .map(|plugin| json!({"name": plugin.name, "arguments": plugin.arguments}))
        .collect();
    let mut config = Map::new();
    let most = policy.max_consolidation_victims.map_or(-1, i64::from);
    config.insert("maxConsolidationPreemptees".to_owned(), json!(most));
    config.insert("allowConsolidatingReclaim".to_owned(), json!(policy.consolidating_reclaim));
    config.insert("defaultStalenessGracePeriod".to_owned(), json!(format!("{}ms", policy.staleness_grace.0)));
    config.insert("tiers".to_owned(), json!([{"plugins": plugins}]));
    Value::Object(config)
}

/// Serves `/get-snapshot` and `/get-job-order` on loopback.
pub(crate) async fn serve(
    process: &Process,
    options: &Options,
    changes: UnboundedSender<Change>,
    tasks: &mut JoinSet<()>,
) -> Result<(), Error> {
    let port = options.plugin_server_port;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = tokio::net::TcpListener::bind(address).await.map_err(|source| Error::Serve { port, source })?;
    let router = router(process.clone(), options.clone(), changes);
    let cancel = process.cancel.clone();
    tasks.spawn(async move {
        let server = axum::serve(listener, router).with_graceful_shutdown(cancel.cancelled_owned());
        if let Err(error) = server.await {
            tracing::warn!(%error, "snapshots are no longer served");
        }
    });
    Ok(())
}

/// The HTTP interface for people who want to know what is decided from.
pub(crate) fn router(process: Process, options: Options, changes: UnboundedSender<Change>) -> Router {
    const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
    const TEXT: [(&str, &str); 1] = [("content-type", "text/plain")];
    let picture = async move || match snapshot(&process.client, &options, process.now()).await {
        Ok(text) => (StatusCode::OK, JSON, text),
        Err(error) => (StatusCode::BAD_GATEWAY, TEXT, error.to_string()),
    };
    let order = async move || {
        let (ask, answer) = oneshot::channel();
        // If nobody takes the question nobody answers it.
        let _ = changes.send(Change::Asked(ask));
        match answer.await.ok().and_then(|order| serde_json::to_string_pretty(&order).ok()) {
            Some(text) => (StatusCode::OK, JSON, text),
            None => (StatusCode::SERVICE_UNAVAILABLE, TEXT, "the scheduler is ending".to_owned()),
        }
    };
    Router::new().route("/get-snapshot", get(picture)).route("/get-job-order", get(order))
}
