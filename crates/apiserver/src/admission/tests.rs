//! The chain of admission: plugins, their order and their words.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::resource::{Gvk, Origin, Scope};

/// Objects by storage key, namespace and name.
#[derive(Default)]
pub(super) struct Cluster {
    objects: BTreeMap<(String, String, String), Arc<Value>>,
}

impl Cluster {
    pub(super) fn with(mut self, storage_key: &str, object: Value) -> Self {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        self.objects.insert((storage_key.to_owned(), text("namespace"), text("name")), Arc::new(object));
        self
    }

    pub(super) fn with_namespace(self, name: &str) -> Self {
        self.with("namespaces", json!({"metadata": {"name": name}, "status": {"phase": "Active"}}))
    }
}

impl ClusterReader for Cluster {
    fn get(&self, storage_key: &str, namespace: Option<&str>, name: &str) -> Option<Arc<Value>> {
        let key = (storage_key.to_owned(), namespace.unwrap_or_default().to_owned(), name.to_owned());
        self.objects.get(&key).cloned()
    }

    fn list(&self, storage_key: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let wanted = self
            .objects
            .iter()
            .filter(|((key, found, _), _)| key == storage_key && namespace.is_none_or(|namespace| namespace == found));
        wanted.map(|(_, object)| Arc::clone(object)).collect()
    }
}

pub(super) fn resource(api_version: &str, kind: &str, plural: &str) -> Resource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Resource {
        gvk: Gvk::new(group, version, kind),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        list_kind: format!("{kind}List"),
        short_names: Vec::new(),
        categories: Vec::new(),
        scope: Scope::Namespaced,
        verbs: Vec::new(),
        subresources: Vec::new(),
        schema: None,
        origin: Origin::BuiltIn,
    }
}

/// A request; the options and the user live as long as the test.
pub(super) fn request<'a>(resource: &'a Resource, operation: Operation, namespace: Option<&'a str>) -> Attributes<'a> {
    static OPTIONS: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| json!({"kind": "CreateOptions"}));
    static USER: std::sync::LazyLock<UserInfo> = std::sync::LazyLock::new(|| UserInfo {
        username: "alice".to_owned(),
        groups: vec!["system:authenticated".to_owned()],
    });
    Attributes {
        resource,
        subresource: None,
        namespace,
        name: "",
        operation,
        old: None,
        options: &OPTIONS,
        dry_run: false,
        user: &USER,
    }
}

/// Handlers of a server move between threads.
fn sendable<T: Send>(future: T) -> T {
    future
}

/// Creates an object through both halves of admission.
async fn create(
    resource: &Resource,
    namespace: Option<&str>,
    mut object: Value,
    cluster: &Cluster,
) -> Result<Value, ApiError> {
    let admission = Admission::new(None);
    let attributes = request(resource, Operation::Create, namespace);
    sendable(admission.mutate(&attributes, &mut object, cluster)).await?;
    sendable(admission.validate(&attributes, Some(&object), cluster)).await?;
    Ok(object)
}

async fn create_pod(pod: Value, cluster: &Cluster) -> Result<Value, ApiError> {
    create(&resource("v1", "Pod", "pods"), Some("team"), pod, cluster).await
}

fn pod(spec: &Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": spec})
}

fn team() -> Cluster {
    Cluster::default().with_namespace("team")
}

#[tokio::test]
async fn a_plain_pod_gets_what_a_real_server_adds() {
    let created = create_pod(pod(&json!({"containers": []})), &team()).await.unwrap();
    assert_eq!(
        created["spec"],
        json!({
            "containers": [],
            "serviceAccount": "default",
            "serviceAccountName": "default",
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
        })
    );
}

#[tokio::test]
async fn tolerations_and_service_account_of_the_pod_win() {
    let spec = json!({
        "serviceAccountName": "robot",
        "tolerations": [{"operator": "Exists"}],
    });
    let created = create_pod(pod(&spec), &team()).await.unwrap();
    assert_eq!(created["spec"]["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!(created["spec"]["serviceAccount"], "robot");
}

#[tokio::test]
async fn nothing_is_created_without_a_namespace() {
    let error = create_pod(pod(&json!({})), &Cluster::default()).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (404, "namespaces \"team\" not found"));
}

#[tokio::test]
async fn nothing_is_created_in_a_namespace_that_goes_away() {
    let cluster = Cluster::default()
        .with("namespaces", json!({"metadata": {"name": "team"}, "status": {"phase": "Terminating"}}));
    let pod = json!({"metadata": {"generateName": "p-"}, "spec": {}});
    let error = create_pod(pod, &cluster).await.unwrap_err();
    assert_eq!(
        error.message,
        "pods \"p-\" is forbidden: unable to create new content in namespace team because it is being terminated"
    );
    assert_eq!(error.reason, "Forbidden");
    assert_eq!(error.details.unwrap()["causes"][0]["reason"], "NamespaceTerminating");
}

#[tokio::test]
async fn namespaces_of_the_system_cannot_be_deleted() {
    let namespaces = resource("v1", "Namespace", "namespaces");
    let delete = |name| Attributes { name, ..request(&namespaces, Operation::Delete, None) };
    let admission = Admission::new(None);
    let error = admission.validate(&delete("kube-system"), None, &team()).await.unwrap_err();
    assert_eq!(error.message, "namespaces \"kube-system\" is forbidden: this namespace may not be deleted");
    assert!(admission.validate(&delete("team"), None, &team()).await.is_ok());
}

fn class(name: &str, value: i64, more: &Value) -> Value {
    let mut class = json!({"metadata": {"name": name}, "value": value});
    class.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    class
}

const CLASSES: &str = "priorityclasses.scheduling.k8s.io";

#[tokio::test]
async fn pods_get_the_priority_of_their_class() {
    let cluster = team()
        .with(CLASSES, class("train", 50, &json!({"preemptionPolicy": "Never"})))
        .with(CLASSES, class("usual", 7, &json!({"globalDefault": true, "preemptionPolicy": "PreemptLowerPriority"})));
    let created = create_pod(pod(&json!({"priorityClassName": "train"})), &cluster).await.unwrap();
    assert_eq!((&created["spec"]["priority"], &created["spec"]["preemptionPolicy"]), (&json!(50), &json!("Never")));
    let created = create_pod(pod(&json!({"priority": 7})), &cluster).await.unwrap();
    assert_eq!(created["spec"]["priorityClassName"], "usual");
}

#[tokio::test]
async fn priorities_that_contradict_the_class_are_refused() {
    let cluster = team().with(CLASSES, class("train", 50, &json!({"preemptionPolicy": "Never"})));
    for (spec, why) in [
        (json!({"priorityClassName": "x"}), "no PriorityClass with name x was found"),
        (
            json!({"priorityClassName": "train", "priority": 3}),
            "the integer value of priority (3) must not be provided in pod spec; priority admission controller computed \
             50 from the given PriorityClass name",
        ),
        (
            json!({"priorityClassName": "train", "preemptionPolicy": "PreemptLowerPriority"}),
            "the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod spec; priority \
             admission controller computed Never from the given PriorityClass name",
        ),
    ] {
        let error = create_pod(pod(&spec), &cluster).await.unwrap_err();
        assert_eq!((error.code, error.message), (403, format!("pods \"p\" is forbidden: {why}")));
    }
}

#[tokio::test]
async fn updates_keep_the_priority() {
    let pods = resource("v1", "Pod", "pods");
    let old = pod(&json!({"priority": 9, "preemptionPolicy": "Never"}));
    let attributes = Attributes { old: Some(&old), ..request(&pods, Operation::Update, Some("team")) };
    let mut object = pod(&json!({}));
    Admission::new(None).mutate(&attributes, &mut object, &team()).await.unwrap();
    assert_eq!((&object["spec"]["priority"], &object["spec"]["preemptionPolicy"]), (&json!(9), &json!("Never")));
}

#[tokio::test]
async fn priority_classes_of_the_system_and_second_defaults_are_refused() {
    let classes = resource("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses");
    let cluster = Cluster::default().with(CLASSES, class("first", 1, &json!({"globalDefault": true})));
    let admit = |object: Value| create(&classes, None, object, &cluster);
    assert!(admit(class("second", 2, &json!({}))).await.is_ok());
    assert!(admit(class("system-node-critical", 2_000_001_000, &json!({}))).await.is_ok());
    for (object, code, message) in [
        (
            class("second", 2, &json!({"globalDefault": true})),
            403,
            "priorityclasses.scheduling.k8s.io \"second\" is forbidden: PriorityClass first is already marked as \
             default. Only one default can exist",
        ),
        (
            class("system-mine", 2, &json!({})),
            422,
            "PriorityClass.scheduling.k8s.io \"system-mine\" is invalid: metadata.name: Forbidden: priority class names \
             with 'system-' prefix are reserved for system use only. error: system-mine is not a known system priority \
             class",
        ),
        (
            class("huge", 1_000_000_001, &json!({})),
            422,
            "PriorityClass.scheduling.k8s.io \"huge\" is invalid: value: Forbidden: maximum allowed value of a user \
             defined priority is 1000000000",
        ),
    ] {
        let error = admit(object).await.unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (code, message));
    }
}

fn runtime_class(more: &Value) -> Cluster {
    let mut class = json!({"metadata": {"name": "nvidia"}, "handler": "nvidia"});
    class.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    team().with("runtimeclasses.node.k8s.io", class)
}

#[tokio::test]
async fn pods_get_overhead_and_scheduling_of_their_runtime_class() {
    let cluster = runtime_class(&json!({
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"gpu": "yes"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]},
    }));
    let spec = json!({
        "runtimeClassName": "nvidia", "nodeSelector": {"zone": "a"}, "overhead": {"cpu": "0.25"},
        "tolerations": [{"key": "gpu", "operator": "Equal", "value": "a"}],
    });
    let created = create_pod(pod(&spec), &cluster).await.unwrap();
    assert_eq!(created["spec"]["overhead"], json!({"cpu": "250m"}));
    assert_eq!(created["spec"]["nodeSelector"], json!({"gpu": "yes", "zone": "a"}));
    let keys: Vec<&str> =
        created["spec"]["tolerations"].as_array().unwrap().iter().map(|t| t["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "gpu"]);
    assert_eq!(created["spec"]["tolerations"][2]["operator"], "Exists");
}

#[tokio::test]
async fn pods_that_contradict_their_runtime_class_are_refused() {
    let cluster = runtime_class(&json!({
        "overhead": {"podFixed": {"cpu": "250m"}}, "scheduling": {"nodeSelector": {"gpu": "yes"}},
    }));
    for (spec, why) in [
        (json!({"runtimeClassName": "kata"}), "pod rejected: RuntimeClass \"kata\" not found"),
        (
            json!({"runtimeClassName": "nvidia", "overhead": {"cpu": "1"}}),
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            json!({"overhead": {"cpu": "1"}}),
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
        (
            json!({"runtimeClassName": "nvidia", "nodeSelector": {"gpu": "no"}}),
            "conflict: runtimeClass.scheduling.nodeSelector[gpu] = yes; pod.spec.nodeSelector[gpu] = no",
        ),
    ] {
        let error = create_pod(pod(&spec), &cluster).await.unwrap_err();
        assert_eq!(error.message, format!("pods \"p\" is forbidden: {why}"));
    }
}

fn limits(limit: &Value) -> Cluster {
    team().with("limitranges", json!({"metadata": {"name": "l", "namespace": "team"}, "spec": {"limits": [limit]}}))
}

#[tokio::test]
async fn containers_get_default_requests_and_limits() {
    let cluster = limits(&json!({
        "type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"},
    }));
    let spec = json!({
        "containers": [{"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": "2", "memory": "2Gi"}, "requests": {"cpu": "1"}}}],
        "initContainers": [{"name": "i", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}],
    });
    let created = create_pod(pod(&spec), &cluster).await.unwrap();
    assert_eq!(
        created["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}})
    );
    assert_eq!(created["spec"]["containers"][1]["resources"]["limits"]["cpu"], "2");
    assert_eq!(
        created["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container a; cpu, memory limit for container a; memory limit for init \
         container i"
    );
}

#[tokio::test]
async fn containers_outside_the_bounds_are_refused() {
    let spec = json!({"containers": [
        {"name": "a", "resources": {"limits": {"cpu": "3"}, "requests": {"cpu": "1500m"}}},
        {"name": "b", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "10m"}}},
    ]});
    for (limit, why) in [
        (json!({"type": "Container", "max": {"cpu": "4"}, "min": {"cpu": "10m"}}), None),
        (
            json!({"type": "Container", "max": {"cpu": "2"}}),
            Some("maximum cpu usage per Container is 2, but limit is 3"),
        ),
        (
            json!({"type": "Container", "min": {"cpu": "20m"}}),
            Some("minimum cpu usage per Container is 20m, but request is 10m"),
        ),
        (
            json!({"type": "Container", "max": {"memory": "1Gi"}}),
            Some("maximum memory usage per Container is 1Gi.  No limit is specified"),
        ),
        (
            json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "4"}}),
            Some("cpu max limit to request ratio per Container is 4, but provided ratio is 100.000000"),
        ),
        (json!({"type": "Pod", "max": {"cpu": "3500m"}}), Some("maximum cpu usage per Pod is 3500m, but limit is 4")),
        (
            json!({"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}}),
            Some(
                "[minimum cpu usage per Pod is 2, but request is 1510m, maximum cpu usage per Pod is 1, but limit is 4]",
            ),
        ),
    ] {
        let result = create_pod(pod(&spec), &limits(&limit)).await;
        let message = result.err().map(|error| error.message);
        assert_eq!(message, why.map(|why| format!("pods \"p\" is forbidden: {why}")), "{limit}");
    }
}

#[tokio::test]
async fn claims_outside_the_bounds_are_refused() {
    let claims = resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims");
    let cluster = limits(&json!({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}));
    let claim = |size: &str| json!({"metadata": {"name": "c"}, "spec": {"resources": {"requests": {"storage": size}}}});
    assert!(create(&claims, Some("team"), claim("1Gi"), &cluster).await.is_ok());
    let error = create(&claims, Some("team"), claim("2Gi"), &cluster).await.unwrap_err();
    assert_eq!(
        error.message,
        "persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but request \
         is 2Gi"
    );
}

#[tokio::test]
async fn objects_of_no_sensible_shape_harm_nobody() {
    let cluster = limits(&json!({"type": "Container", "default": {"cpu": "1"}}));
    for object in [
        json!({}),
        json!(null),
        json!([]),
        json!({"spec": 3}),
        json!({"metadata": 1, "spec": {"containers": [1, {"resources": 2}], "tolerations": 4}}),
    ] {
        let _ = create_pod(object, &cluster).await;
    }
}
