//! The rules in an embedded API server that calls them in its own process.

use std::sync::Arc;

use axum::Router;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    core::v1::{Namespace, Pod},
    node::v1::RuntimeClass,
};
use kai_admission::{Names, Place, Rules, Settings, configurations, router};
use kai_api::{PodGroup, Queue, Topology};
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use kai_kit::{Mirror, Process, Selection};
use kai_lab::client::client_for;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tower::ServiceExt as _;

const SERVICE: (&str, &str) = ("kai-scheduler", "admission");

struct Cluster {
    server: ApiServer,
    client: Client,
}

impl Cluster {
    /// A cluster with the webhooks registered; whether anybody answers is up to the test.
    async fn start(settings: &Settings) -> Self {
        let server = ApiServer::start(Options::new(Clock::real()));
        let client = client_for(server.router());
        let cluster = Self { server, client };
        for definition in kai_api::crds() {
            cluster.create(json!(definition)).await.unwrap();
        }
        for name in ["team", "kai-scheduler", "kai-resource-reservation"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            cluster.put::<Namespace>(&Api::all(cluster.client.clone()), namespace).await.unwrap();
        }
        let class = json!({"metadata": {"name": "nvidia"}, "handler": "nvidia"});
        cluster.put::<RuntimeClass>(&Api::all(cluster.client.clone()), class).await.unwrap();
        let place = Place::in_process(SERVICE.0, SERVICE.1);
        let (mutating, validating) = configurations(settings, &Names::default(), &place);
        let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client.clone());
        api.create(&PostParams::default(), &mutating).await.unwrap();
        let api: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client.clone());
        for configuration in validating {
            api.create(&PostParams::default(), &configuration).await.unwrap();
        }
        cluster
    }

    fn answer(&self, router: Router) {
        self.server.admission().register_service(SERVICE.0, SERVICE.1, router);
    }

    async fn create(&self, object: Value) -> Result<(), kube::Error> {
        use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
        self.put::<CustomResourceDefinition>(&Api::all(self.client.clone()), object).await.map(drop)
    }

    async fn put<K>(&self, api: &Api<K>, object: Value) -> Result<K, kube::Error>
    where
        K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
    {
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await
    }

    async fn pod(&self, object: Value) -> Result<Pod, String> {
        let api = Api::namespaced(self.client.clone(), "team");
        self.put(&api, object).await.map_err(|error| kai_kit::errors::message(&error))
    }

    /// The same cluster for somebody who is no administrator.
    fn as_user(&self, name: &'static str) -> Client {
        let router = self.server.router();
        let transport = router.map_request(move |request: http::Request<kube::client::Body>| {
            let mut request = request.map(axum::body::Body::new);
            request.headers_mut().insert("impersonate-user", http::HeaderValue::from_static(name));
            request
        });
        Client::new(transport, "default")
    }
}

fn pod(name: &str, scheduler: &str, notes: &Value) -> Value {
    json!({
        "metadata": {"name": name, "annotations": notes},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "main", "image": "cuda"}]},
    })
}

#[tokio::test]
async fn a_pod_with_a_part_of_a_gpu_is_completed_and_stored() {
    let cluster = Cluster::start(&Settings::default()).await;
    cluster.answer(router(Rules::default()));
    let stored = cluster.pod(pod("p", "kai-scheduler", &json!({"gpu-memory": "30720"}))).await.unwrap();
    let prefix = stored.metadata.annotations.as_ref().unwrap()["runai/shared-gpu-configmap"].clone();
    let spec = stored.spec.unwrap();
    assert_eq!(spec.runtime_class_name.as_deref(), Some("nvidia"));
    let container = &spec.containers[0];
    let visible = container.env.iter().flatten().find(|variable| variable.name == "NVIDIA_VISIBLE_DEVICES").unwrap();
    let reference = visible.value_from.as_ref().unwrap().config_map_key_ref.as_ref().unwrap();
    assert_eq!(reference.name, format!("{prefix}-0"));
    assert_eq!(
        container.env_from.as_ref().unwrap()[0].config_map_ref.as_ref().unwrap().name,
        format!("{prefix}-0-evar")
    );
    assert!(spec.volumes.iter().flatten().any(|volume| volume.name == format!("{prefix}-0-vol")));
}

#[tokio::test]
async fn bad_pods_are_refused_by_name_field_and_remedy() {
    let cluster = Cluster::start(&Settings::default()).await;
    cluster.answer(router(Rules::default()));
    for (notes, words) in [
        (json!({"gpu-fraction": "1.5"}), ["gpu-fraction", "`1.5`", "smaller than 1.0"]),
        (json!({"gpu-fraction": "abc"}), ["gpu-fraction", "`abc`", "decimal or scientific float"]),
        (json!({"gpu-fraction": "-0"}), ["gpu-fraction", "`-0`", "smaller than 1.0"]),
        (json!({"gpu-memory": "0"}), ["gpu-memory", "`0`", "greater than 0"]),
        (json!({"gpu-memory": "30GB"}), ["gpu-memory", "`30GB`", "`30720`"]),
        (json!({"gpu-memory": "9", "gpu-fraction": "0.5"}), ["gpu-memory", "both", "gpu-fraction"]),
        (
            json!({"gpu-fraction": "0.5", "gpu-fraction-container-name": "x"}),
            ["gpu-fraction-container-name", "`x` not found", "`main`"],
        ),
    ] {
        let error = cluster.pod(pod("p", "kai-scheduler", &notes)).await.unwrap_err();
        assert!(error.starts_with("admission webhook \"admission.kai.scheduler\" denied the request: "), "{error}");
        for word in ["pod `team/p`", "hint"].iter().chain(&words) {
            assert!(error.contains(word), "no `{word}` in: {error}");
        }
    }
    assert!(cluster.pod(pod("p", "kai-scheduler", &json!({"gpu-fraction": "0.3333333333"}))).await.is_ok());
}

#[tokio::test]
async fn without_an_answer_only_pods_of_ours_that_the_rules_are_about_wait() {
    let cluster = Cluster::start(&Settings::default()).await;
    let foreign = cluster.pod(pod("foreign", "default-scheduler", &json!({"gpu-fraction": "0.5"}))).await;
    assert!(foreign.is_ok(), "{foreign:?}");
    // Not even one that looks like ours: that webhook is only advice while nobody answers.
    let mut labelled = pod("labelled", "default-scheduler", &json!({}));
    labelled["metadata"]["labels"] = json!({"app": "kai-resource-reservation"});
    assert!(cluster.pod(labelled).await.is_ok());
    // A plain pod of ours is nobody's business, one that asks for a part of a GPU or passes itself off as bound is.
    assert!(cluster.pod(pod("plain", "kai-scheduler", &json!({"team": "blue"}))).await.is_ok());
    let half = pod("ours", "kai-scheduler", &json!({"gpu-fraction": "0.5"}));
    let received = pod("received", "kai-scheduler", &json!({"received-resource-type": "Fraction"}));
    let mut grouped = pod("grouped", "kai-scheduler", &json!({}));
    grouped["metadata"]["labels"] = json!({"runai-gpu-group": "mine"});
    for asking in [&half, &received, &grouped] {
        let error = cluster.pod(asking.clone()).await.unwrap_err();
        assert!(
            error.contains("failed calling webhook \"admission.kai.scheduler\"") && error.contains("not found"),
            "{error}"
        );
    }
    // The components' own namespaces are not asked about.
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), "kai-resource-reservation");
    let mut own = pod("own", "kai-scheduler", &json!({}));
    own["metadata"]["labels"] = json!({"app": "kai-resource-reservation"});
    assert!(cluster.put(&api, own).await.is_ok());
    // Groups go on, too.
    let api: Api<PodGroup> = Api::namespaced(cluster.client.clone(), "team");
    assert!(cluster.put(&api, group(&json!({}))).await.is_ok());
    cluster.answer(router(Rules::default()));
    assert!(cluster.pod(half).await.is_ok());
}

#[tokio::test]
async fn users_cannot_write_what_the_binder_writes() {
    let cluster = Cluster::start(&Settings::default()).await;
    cluster.answer(router(Rules::default()));
    cluster.pod(pod("p", "kai-scheduler", &json!({"gpu-fraction": "0.5"}))).await.unwrap();
    let alice: Api<Pod> = Api::namespaced(cluster.as_user("alice"), "team");
    let binder: Api<Pod> = Api::namespaced(cluster.as_user("system:serviceaccount:kai-scheduler:binder"), "team");
    let patch = |patch: Value| Patch::Merge(patch);
    let none = PatchParams::default();
    let notes = json!({"received-resource-type": "Fraction"});
    let group = json!({"metadata": {"labels": {"runai-gpu-group": "g"}, "annotations": notes}});
    let error = alice.patch("p", &none, &patch(group.clone())).await.unwrap_err().to_string();
    assert!(error.contains("label `runai-gpu-group`") && error.contains("user `alice`"), "{error}");
    binder.patch("p", &none, &patch(group)).await.unwrap();
    let error = alice.patch("p", &none, &patch(json!({"metadata": {"labels": {"runai-gpu-group": null}}}))).await;
    assert!(error.unwrap_err().to_string().contains("label `runai-gpu-group`"));
    alice.patch("p", &none, &patch(json!({"metadata": {"labels": {"mine": "x"}}}))).await.unwrap();
    // Nor in new pods: who completes them judges them.
    for (field, value) in
        [("annotations", json!({"received-resource-type": "Fraction"})), ("labels", json!({"runai-gpu-group/g": "g"}))]
    {
        let mut new = pod("new", "kai-scheduler", &json!({}));
        new["metadata"][field] = value;
        let error = cluster.put(&alice, new).await.unwrap_err().to_string();
        assert!(error.contains("in a new pod or template, remove it"), "{error}");
    }
    // Nor on pods of other schedulers.
    let mut labelled = pod("impostor", "default-scheduler", &json!({}));
    labelled["metadata"]["labels"] = json!({"app": "kai-resource-reservation"});
    let error = cluster.put(&alice, labelled).await.unwrap_err().to_string();
    assert!(error.contains("label `app`"), "{error}");
    let mut labelled = pod("impostor", "default-scheduler", &json!({}));
    labelled["metadata"]["labels"] = json!({"runai-gpu-group": "g"});
    let error = cluster.put(&alice, labelled).await.unwrap_err().to_string();
    assert!(error.contains("label `runai-gpu-group`"), "{error}");
    let mut plain = pod("plain", "default-scheduler", &json!({}));
    plain["metadata"]["labels"] = json!({"app": "web"});
    cluster.put(&alice, plain).await.unwrap();
    let error = alice.patch("plain", &none, &patch(json!({"metadata": {"labels": {"runai-gpu-group/g": "g"}}}))).await;
    assert!(error.unwrap_err().to_string().contains("runai-gpu-group/g"));
}

#[tokio::test]
async fn debug_containers_see_no_gpu_where_that_is_switched_on() {
    let settings = Settings { block_visible_devices: true, ..Settings::default() };
    let cluster = Cluster::start(&settings).await;
    cluster.answer(router(Rules::new(settings)));
    let stored = cluster.pod(pod("p", "kai-scheduler", &json!({}))).await.unwrap();
    assert_eq!(stored.spec.unwrap().containers[0].env.as_ref().unwrap()[0].value.as_deref(), Some("void"));
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), "team");
    let all = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]);
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox", "env": all}]}});
    let (none, debug) = (PatchParams::default(), Patch::Strategic(debug));
    let patched: Pod = api.patch_subresource("ephemeralcontainers", "p", &none, &debug).await.unwrap();
    let spec = patched.spec.unwrap();
    assert_eq!(spec.ephemeral_containers.unwrap()[0].env.as_ref().unwrap()[0].value.as_deref(), Some("void"));
}

fn group(spec: &Value) -> Value {
    let version = "scheduling.run.ai/v2alpha2";
    json!({"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec})
}

fn queue(name: &str, parent: Option<&str>) -> Value {
    let amount = json!({"quota": -1, "overQuotaWeight": 1, "limit": -1});
    let resources = json!({"gpu": amount, "cpu": amount, "memory": amount});
    let spec = json!({"parentQueue": parent, "resources": resources});
    json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn queues_groups_and_topologies_are_judged() {
    let cluster = Cluster::start(&Settings::default()).await;
    let queues = Api::<Queue>::all(cluster.client.clone());
    let cancel = tokio_util::sync::CancellationToken::new();
    let process = Process::new("admission", cluster.client.clone(), Clock::real(), cancel.clone(), "kai", "a");
    let mirror = Mirror::<Queue>::builder().start(&process, Selection::all(), &cancel);
    mirror.ready().await;
    cluster.answer(router(Rules::default().with_queues(mirror.clone())));
    cluster.put(&queues, queue("top", None)).await.unwrap();
    cluster.put(&queues, queue("team", Some("top"))).await.unwrap();
    while mirror.len() < 2 {
        tokio::task::yield_now().await;
    }
    let mut empty = queue("empty", None);
    empty["spec"]["resources"] = Value::Null;
    assert!(cluster.put(&queues, empty).await.unwrap_err().to_string().contains("resources must be specified"));
    let none = PatchParams::default();
    let turned = queues.patch("top", &none, &Patch::Merge(json!({"spec": {"parentQueue": "team"}}))).await;
    assert!(turned.unwrap_err().to_string().contains("cycle detected: `top` -> `team` -> `top`"));
    let error = queues.delete("top", &DeleteParams::default()).await.unwrap_err().to_string();
    assert!(error.contains("cannot be deleted while it has 1 child queues: `team`"), "{error}");
    queues.delete("team", &DeleteParams::default()).await.unwrap();
    queues.delete("top", &DeleteParams::default()).await.unwrap();
    cancel.cancel();

    let groups = Api::<PodGroup>::namespaced(cluster.client.clone(), "team");
    let error = cluster.put(&groups, group(&json!({"minMember": 1, "minSubGroup": 1}))).await.unwrap_err().to_string();
    assert!(error.contains("mutually exclusive"), "{error}");
    cluster.put(&groups, group(&json!({"minMember": 1}))).await.unwrap();

    let topologies = Api::<Topology>::all(cluster.client.clone());
    let levels = json!([{"nodeLabel": "zone", "alias": "rack"}, {"nodeLabel": "rack"}]);
    let (version, spec) = ("kai.scheduler/v1alpha1", json!({"levels": levels}));
    let topology = json!({"apiVersion": version, "kind": "Topology", "metadata": {"name": "t"}, "spec": spec});
    let error = cluster.put(&topologies, topology).await.unwrap_err().to_string();
    assert!(error.contains("invalid topology aliases: collisions with node labels `rack`"), "{error}");
}

#[tokio::test]
async fn groups_and_queues_whose_meaning_stays_are_not_even_asked_about() {
    let cluster = Cluster::start(&Settings::default()).await;
    cluster.answer(router(Rules::default()));
    let queues = Api::<Queue>::all(cluster.client.clone());
    cluster.put(&queues, queue("top", None)).await.unwrap();
    let asked = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = Arc::clone(&asked);
    cluster.answer(Router::new().fallback(move || {
        let count = Arc::clone(&count);
        async move {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            http::StatusCode::INTERNAL_SERVER_ERROR
        }
    }));
    let none = PatchParams::default();
    queues.patch("top", &none, &Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}))).await.unwrap();
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 0);
    assert!(queues.patch("top", &none, &Patch::Merge(json!({"spec": {"priority": 7}}))).await.is_err());
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1);
}
