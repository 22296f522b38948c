//! Webhooks: who is asked, in which order, and what their answers do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{MUTATING, VALIDATING};
use crate::admission::tests::{Cluster, request, resource};
use crate::admission::{Admission, Attributes, Operation};
use crate::resource::{Origin, Resource};
use crate::status::ApiError;

/// A webhook of the service `hooks` that is asked about pods, changed by `more`.
fn configuration(name: &str, more: &Value) -> Value {
    static REVISION: AtomicU64 = AtomicU64::new(1);
    let mut webhook = json!({
        "name": format!("{name}.example.com"),
        "clientConfig": {"service": {"namespace": "system", "name": "hooks", "path": format!("/{name}")}},
        "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
    });
    webhook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let revision = REVISION.fetch_add(1, Ordering::Relaxed).to_string();
    json!({"metadata": {"name": name, "resourceVersion": revision}, "webhooks": [webhook]})
}

/// Reviews that webhooks were asked about, in order.
type Log = Arc<Mutex<Vec<Value>>>;

/// A webhook that answers every review with what `answer` makes of the request; `uid` is filled in.
fn webhook(log: &Log, answer: impl Fn(&Value) -> Value + Clone + Send + Sync + 'static) -> axum::routing::MethodRouter {
    let log = Arc::clone(log);
    post(move |body: Bytes| async move {
        let review: Value = serde_json::from_slice(&body).unwrap();
        let mut response = answer(&review["request"]);
        if response.get("uid").is_none() {
            response["uid"] = review["request"]["uid"].clone();
        }
        let api_version = review["apiVersion"].clone();
        log.lock().push(review);
        axum::response::Response::new(axum::body::Body::from(
            json!({"apiVersion": api_version, "kind": "AdmissionReview", "response": response}).to_string(),
        ))
    })
}

fn patch(operations: &Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string())})
}

fn label(name: &str) -> Value {
    patch(&json!([{"op": "add", "path": format!("/metadata/labels/{name}"), "value": "yes"}]))
}

fn team() -> Cluster {
    Cluster::default().with("namespaces", json!({"metadata": {"name": "team", "labels": {"kai": "on"}}}))
}

fn a_pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"app": "x"}}, "spec": {"schedulerName": "kai"}})
}

fn with_router(router: Router) -> Admission {
    let admission = Admission::new(None);
    admission.register_service("system", "hooks", router);
    admission
}

async fn mutate(admission: &Admission, cluster: &Cluster, mut object: Value) -> Result<(Value, Vec<String>), ApiError> {
    let pods = resource("v1", "Pod", "pods");
    let attributes = Attributes { name: "p", ..request(&pods, Operation::Create, Some("team")) };
    let warnings = admission.mutate(&attributes, &mut object, cluster).await?;
    Ok((object, warnings))
}

async fn validate(admission: &Admission, cluster: &Cluster) -> Result<Vec<String>, ApiError> {
    let pods = resource("v1", "Pod", "pods");
    let attributes = Attributes { name: "p", ..request(&pods, Operation::Create, Some("team")) };
    admission.validate(&attributes, Some(&a_pod()), cluster).await
}

#[tokio::test]
async fn a_webhook_sees_the_whole_request_and_may_patch() {
    let log = Log::default();
    let answer = |_: &Value| {
        let mut answer = label("touched");
        answer["warnings"] = json!(["think twice"]);
        answer
    };
    let admission = with_router(Router::new().route("/a", webhook(&log, answer)));
    let cluster = team().with(MUTATING, configuration("a", &json!({})));
    let (object, warnings) = mutate(&admission, &cluster, a_pod()).await.unwrap();
    assert_eq!(object["metadata"]["labels"], json!({"app": "x", "touched": "yes"}));
    assert_eq!(warnings, ["think twice"]);
    let mut review = log.lock()[0].clone();
    assert!(review["request"]["uid"].is_string());
    assert_eq!(review["request"]["object"]["spec"]["priority"], 0);
    review["request"]["uid"] = json!("");
    review["request"]["object"] = json!({});
    assert_eq!(
        review,
        json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "", "name": "p", "namespace": "team", "operation": "CREATE", "dryRun": false,
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
                "requestResource": {"group": "", "version": "v1", "resource": "pods"},
                "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
                "object": {}, "oldObject": null, "options": {"kind": "CreateOptions"},
            },
        })
    );
}

#[tokio::test]
async fn a_refusal_is_worded_after_the_webhook() {
    let refuse = |status: Value| async move {
        let answer = move |_: &Value| json!({"allowed": false, "status": status});
        let admission = with_router(Router::new().route("/a", webhook(&Log::default(), answer)));
        let cluster = team().with(VALIDATING, configuration("a", &json!({"failurePolicy": "Ignore"})));
        validate(&admission, &cluster).await.unwrap_err()
    };
    let error = refuse(json!({"code": 403, "reason": "Forbidden", "message": "no GPUs today"})).await;
    assert_eq!((error.code, error.reason), (403, "Forbidden"));
    assert_eq!(error.message, "admission webhook \"a.example.com\" denied the request: no GPUs today");
    let error = refuse(json!({"reason": "Because"})).await;
    assert_eq!(error.code, 400);
    assert_eq!(error.message, "admission webhook \"a.example.com\" denied the request: Because");
    let error = refuse(json!(null)).await;
    assert_eq!(error.message, "admission webhook \"a.example.com\" denied the request without explanation");
}

#[tokio::test]
async fn webhooks_are_asked_in_the_order_of_their_configurations() {
    let log = Log::default();
    let router = Router::new().route("/a", webhook(&log, |_| label("a"))).route(
        "/b",
        webhook(&log, |request| {
            label(if request["object"]["metadata"]["labels"]["a"] == "yes" { "b" } else { "early" })
        }),
    );
    let cluster = team().with(MUTATING, configuration("b", &json!({}))).with(MUTATING, configuration("a", &json!({})));
    let (object, _) = mutate(&with_router(router), &cluster, a_pod()).await.unwrap();
    assert_eq!(object["metadata"]["labels"], json!({"app": "x", "a": "yes", "b": "yes"}));
    assert_eq!(log.lock().len(), 2);
}

#[tokio::test]
async fn a_webhook_that_wants_to_is_asked_again_after_later_changes() {
    let log = Log::default();
    let router = Router::new().route("/a", webhook(&log, |_| label("a"))).route("/b", webhook(&log, |_| label("b")));
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let cluster = team().with(MUTATING, configuration("a", &again)).with(MUTATING, configuration("b", &again));
    mutate(&with_router(router), &cluster, a_pod()).await.unwrap();
    let seen: Vec<bool> =
        log.lock().iter().map(|review| review["request"]["object"]["metadata"]["labels"]["b"] == "yes").collect();
    assert_eq!(seen, [false, false, true], "a, b, and a again with the change of b");
}

#[tokio::test]
async fn rules_selectors_and_conditions_decide_who_is_asked() {
    let asked = |more: Value| async move {
        let log = Log::default();
        let admission = with_router(Router::new().route("/a", webhook(&log, |_| json!({"allowed": true}))));
        validate(&admission, &team().with(VALIDATING, configuration("a", &more))).await.unwrap();
        let asked = log.lock().len();
        asked == 1
    };
    let rule = |operations: &[&str], group: &str, version: &str, resource: &str, scope: &str| json!({"rules": [{"operations": operations, "apiGroups": [group], "apiVersions": [version], "resources": [resource], "scope": scope}]});
    for (more, expected) in [
        (json!({}), true),
        (rule(&["*"], "*", "*", "*/*", "*"), true),
        (rule(&["CREATE"], "", "v1", "pods/*", "Namespaced"), true),
        (rule(&["CREATE"], "", "v1", "*", "*"), true),
        (rule(&["CREATE"], "", "v1", "pods", "Cluster"), false),
        (rule(&["CREATE"], "", "v1", "pods/status", "*"), false),
        (rule(&["DELETE"], "", "v1", "pods", "*"), false),
        (rule(&["CREATE"], "apps", "v1", "pods", "*"), false),
        (rule(&["CREATE"], "", "v2", "pods", "*"), false),
        (json!({"namespaceSelector": {"matchLabels": {"kai": "on"}}}), true),
        (json!({"namespaceSelector": {"matchLabels": {"kai": "off"}}}), false),
        (json!({"objectSelector": {"matchLabels": {"app": "x"}}}), true),
        (json!({"objectSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}), false),
        (json!({"matchConditions": [{"name": "ours", "expression": "object.spec.schedulerName == 'kai'"}]}), true),
        (json!({"matchConditions": [{"name": "ours", "expression": "request.operation == 'DELETE'"}]}), false),
        (
            json!({"failurePolicy": "Ignore", "matchConditions": [{"name": "bad", "expression": "object.nowhere"}]}),
            false,
        ),
    ] {
        assert_eq!(asked(more.clone()).await, expected, "{more}");
    }
}

#[tokio::test]
async fn conditions_that_cannot_be_evaluated_fail_closed() {
    let more = json!({"matchConditions": [{"name": "bad", "expression": "object.nowhere == 1"}]});
    let error = validate(&Admission::new(None), &team().with(VALIDATING, configuration("a", &more))).await.unwrap_err();
    assert_eq!(error.code, 403);
    assert_eq!(
        error.message,
        "pods \"p\" is forbidden: expression 'object.nowhere == 1' resulted in error: no such key: nowhere"
    );
}

async fn broken() {
    panic!("webhook");
}

#[tokio::test]
async fn a_call_without_a_verdict_follows_the_failure_policy() {
    let router = Router::new()
        .route("/text", post(|| async { "hello" }))
        .route("/error", post(|| async { (http::StatusCode::INTERNAL_SERVER_ERROR, "out of order") }))
        .route("/panic", post(broken))
        .route("/uid", webhook(&Log::default(), |_| json!({"allowed": true, "uid": "other"})))
        .route("/patch", webhook(&Log::default(), |_| patch(&json!([]))));
    let admission = with_router(router);
    for (path, expected) in [
        (
            "error",
            "failed to call webhook: an error on the server (\"out of order\") has prevented the request from succeeding",
        ),
        ("nowhere", "failed to call webhook: the server could not find the requested resource"),
        ("panic", "failed to call webhook: Post \"https://hooks.system.svc:443/panic?timeout=10s\": EOF"),
        ("text", "failed to call webhook: couldn't get version/kind; json parse error: "),
        ("uid", "received invalid webhook response: expected response.uid="),
        ("patch", "received invalid webhook response: validating webhook may not return response.patch"),
    ] {
        let cluster = team().with(VALIDATING, configuration(path, &json!({})));
        let error = validate(&admission, &cluster).await.unwrap_err();
        assert_eq!((error.code, error.reason), (500, "InternalError"));
        let expected = format!("Internal error occurred: failed calling webhook \"{path}.example.com\": {expected}");
        assert!(error.message.starts_with(&expected), "{}", error.message);
        let cluster = team().with(VALIDATING, configuration(path, &json!({"failurePolicy": "Ignore"})));
        assert!(validate(&admission, &cluster).await.is_ok(), "{path}");
    }
}

#[tokio::test]
async fn a_service_that_nobody_registered_is_named() {
    let cluster = team().with(VALIDATING, configuration("a", &json!({})));
    let error = validate(&Admission::new(None), &cluster).await.unwrap_err();
    assert_eq!(
        error.message,
        "Internal error occurred: failed calling webhook \"a.example.com\": failed to call webhook: Post \
         \"https://hooks.system.svc:443/a?timeout=10s\": service \"hooks\" not found"
    );
    let cluster = cluster.with("services", json!({"metadata": {"namespace": "system", "name": "hooks"}}));
    let error = validate(&Admission::new(None), &cluster).await.unwrap_err();
    assert!(error.message.ends_with("no endpoints available for service \"hooks\""), "{}", error.message);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_does_not_answer_in_time_fails() {
    let slow = post(|| async { tokio::time::sleep(Duration::from_hours(1)).await });
    let admission = with_router(Router::new().route("/a", slow));
    let cluster = team().with(VALIDATING, configuration("a", &json!({"timeoutSeconds": 2})));
    let started = tokio::time::Instant::now();
    let error = validate(&admission, &cluster).await.unwrap_err();
    assert!(error.message.ends_with("?timeout=2s\": context deadline exceeded"), "{}", error.message);
    assert_eq!(started.elapsed().as_secs(), 2);
}

#[tokio::test]
async fn dry_runs_do_not_reach_webhooks_with_side_effects() {
    let admission = with_router(Router::new().route("/a", webhook(&Log::default(), |_| json!({"allowed": true}))));
    let pods = resource("v1", "Pod", "pods");
    let attributes = Attributes { dry_run: true, ..request(&pods, Operation::Create, Some("team")) };
    let cluster =
        team().with(VALIDATING, configuration("a", &json!({"sideEffects": "Some", "failurePolicy": "Ignore"})));
    let error = admission.validate(&attributes, Some(&a_pod()), &cluster).await.unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (400, "admission webhook \"a.example.com\" does not support dry run")
    );
    let cluster = team().with(VALIDATING, configuration("a", &json!({"sideEffects": "NoneOnDryRun"})));
    assert!(admission.validate(&attributes, Some(&a_pod()), &cluster).await.is_ok());
}

#[tokio::test]
async fn configurations_themselves_are_never_sent() {
    let more =
        json!({"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]});
    let cluster = team().with(VALIDATING, configuration("a", &more)).with(MUTATING, configuration("a", &more));
    let kind = resource(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    );
    let attributes = Attributes { name: "a", ..request(&kind, Operation::Update, None) };
    let mut object = json!({"metadata": {"name": "a"}});
    Admission::new(None).mutate(&attributes, &mut object, &cluster).await.unwrap();
    Admission::new(None).validate(&attributes, Some(&object), &cluster).await.unwrap();
}

#[tokio::test]
async fn a_webhook_for_another_version_of_a_custom_resource_is_asked_in_its_version() {
    let log = Log::default();
    let admission = with_router(Router::new().route("/a", webhook(&log, |_| label("a"))));
    let rules = json!({"rules": [{"operations": ["CREATE"], "apiGroups": ["kai.dev"], "apiVersions": ["v1"], "resources": ["queues"]}]});
    let definition = json!({"metadata": {"name": "queues.kai.dev"}, "spec": {"versions": [{"name": "v2", "served": true}, {"name": "v1", "served": true}]}});
    let cluster = |more: &Value| {
        let key = "customresourcedefinitions.apiextensions.k8s.io";
        team().with(key, definition.clone()).with(MUTATING, configuration("a", more))
    };
    let origin = Origin::Custom {
        definition: "queues.kai.dev".to_owned(),
        scale: None,
        columns: Vec::new(),
        selectable_fields: Vec::new(),
        deprecation: None,
    };
    let queues = Resource { origin, ..resource("kai.dev/v2", "Queue", "queues") };
    let attributes = Attributes { name: "q", ..request(&queues, Operation::Create, Some("team")) };
    let mut object = json!({"apiVersion": "kai.dev/v2", "kind": "Queue", "metadata": {"name": "q", "labels": {}}});
    admission.mutate(&attributes, &mut object, &cluster(&rules)).await.unwrap();
    assert_eq!((&object["apiVersion"], &object["metadata"]["labels"]["a"]), (&json!("kai.dev/v2"), &json!("yes")));
    {
        let log = log.lock();
        assert_eq!(log[0]["request"]["object"]["apiVersion"], "kai.dev/v1");
        assert_eq!(log[0]["request"]["kind"]["version"], "v1");
        assert_eq!(log[0]["request"]["requestKind"]["version"], "v2");
    }
    let mut exact = rules.clone();
    exact["matchPolicy"] = json!("Exact");
    admission.mutate(&attributes, &mut object, &cluster(&exact)).await.unwrap();
    assert_eq!(log.lock().len(), 1);
}

#[tokio::test]
async fn a_changed_configuration_counts_at_once() {
    let admission = with_router(Router::new().route("/a", webhook(&Log::default(), |_| json!({"allowed": false}))));
    let cluster = team().with(VALIDATING, configuration("a", &json!({})));
    assert!(validate(&admission, &cluster).await.is_err());
    let changed = configuration("a", &json!({"rules": []}));
    assert!(validate(&admission, &cluster.with(VALIDATING, changed)).await.is_ok());
    assert!(validate(&admission, &team()).await.is_ok());
}

#[tokio::test]
async fn a_patch_that_does_not_fit_is_an_error() {
    let answer = |_: &Value| patch(&json!([{"op": "remove", "path": "/spec/nowhere"}]));
    let admission = with_router(Router::new().route("/a", webhook(&Log::default(), answer)));
    let cluster = team().with(MUTATING, configuration("a", &json!({})));
    let error = mutate(&admission, &cluster, a_pod()).await.unwrap_err();
    assert_eq!(error.code, 500);
    assert!(error.message.starts_with("Internal error occurred: "), "{}", error.message);
}

/// Serves a router over TLS with a certificate made for `localhost`; returns the port and the certificate in PEM.
async fn serve_https(router: Router) -> (u16, String) {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, router) = (acceptor.clone(), router.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = hyper_util::service::TowerToHyperService::new(router);
                let stream = hyper_util::rt::TokioIo::new(stream);
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await;
            });
        }
    });
    (port, certified.cert.pem())
}

#[tokio::test]
async fn a_webhook_elsewhere_is_asked_over_https_if_its_certificate_is_trusted() {
    let log = Log::default();
    let (port, certificate) = serve_https(Router::new().route("/hook", webhook(&log, |_| label("far")))).await;
    let at = |scheme: &str, bundle: &str| {
        let url = format!("{scheme}://localhost:{port}/hook");
        team().with(
            MUTATING,
            configuration("a", &json!({"clientConfig": {"url": url, "caBundle": STANDARD.encode(bundle)}})),
        )
    };
    let admission = Admission::new(None);
    for _ in 0..2 {
        let (object, _) = mutate(&admission, &at("https", &certificate), a_pod()).await.unwrap();
        assert_eq!(object["metadata"]["labels"]["far"], "yes");
    }
    let stranger = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap().cert.pem();
    let error = mutate(&admission, &at("https", &stranger), a_pod()).await.unwrap_err();
    assert!(
        error
            .message
            .contains(&format!("failed to call webhook: Post \"https://localhost:{port}/hook?timeout=10s\": ")),
        "{}",
        error.message
    );
    let error = mutate(&admission, &at("https", "no certificate"), a_pod()).await.unwrap_err();
    assert!(error.message.ends_with("unable to load root certificates"), "{}", error.message);
    let error = mutate(&admission, &at("http", &certificate), a_pod()).await.unwrap_err();
    assert!(error.message.ends_with("'https' is the only allowed URL scheme"), "{}", error.message);
    assert_eq!(log.lock().len(), 2);
}
