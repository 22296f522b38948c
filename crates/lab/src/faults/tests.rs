//! Tests of fault injection over a transport that counts what arrives.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::{Router, routing::any};
use kube::Client;
use tower::ServiceExt;

use super::*;
use crate::client::client_with_faults;

fn call(method: &str, uri: &str) -> (String, String) {
    let call = Call::of(&method.parse().unwrap(), &uri.parse().unwrap());
    (call.verb.to_owned(), call.resource)
}

#[test]
fn requests_are_read_as_verb_and_resource() {
    let cases = [
        ("GET", "/api/v1/pods?watch=true", "watch", "pods"),
        ("GET", "/api/v1/namespaces/a/pods/b", "get", "pods"),
        ("GET", "/api/v1/namespaces/a/pods", "list", "pods"),
        ("POST", "/api/v1/namespaces/a/pods/b/binding", "create", "pods/binding"),
        ("PATCH", "/apis/scheduling.run.ai/v2/queues/q/status", "patch", "queues/status"),
        ("GET", "/api/v1/namespaces/a", "get", "namespaces"),
        ("PUT", "/api/v1/namespaces/a/finalize", "update", "namespaces/finalize"),
        ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection", "pods"),
        ("GET", "/version", "list", ""),
    ];
    for (method, uri, verb, resource) in cases {
        assert_eq!(call(method, uri), (verb.to_owned(), resource.to_owned()), "{method} {uri}");
    }
}

fn counting(faults: Vec<ApiFault>) -> (Client, FaultLayer, Arc<AtomicUsize>) {
    let arrived = Arc::new(AtomicUsize::new(0));
    let counter = arrived.clone();
    let router = Router::new().fallback(any(move || {
        counter.fetch_add(1, Ordering::SeqCst);
        async { "{}" }
    }));
    let layer = FaultLayer::new(Seed(3), faults);
    (client_with_faults(router, &layer), layer, arrived)
}

async fn get(client: &Client) -> Result<String, kube::Error> {
    client.request_text(Request::get("/api/v1/namespaces/a/pods/b").body(Vec::new()).unwrap()).await
}

fn fault(trigger: Trigger, effect: ApiEffect) -> ApiFault {
    ApiFault { verb: Some("get".to_owned()), resource: Some("pods".to_owned()), trigger, effect }
}

#[tokio::test]
async fn the_nth_call_fails_and_never_arrives() {
    let (client, layer, arrived) = counting(vec![fault(Trigger::Nth(2), ApiEffect::Error(429))]);
    assert!(get(&client).await.is_ok());
    let error = get(&client).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 429), "{error:?}");
    assert!(get(&client).await.is_ok());
    assert_eq!((arrived.load(Ordering::SeqCst), layer.struck()), (2, 1));
}

#[tokio::test]
async fn a_lost_answer_arrives_but_the_caller_sees_a_broken_connection() {
    let (client, _, arrived) = counting(vec![fault(Trigger::Always, ApiEffect::LostAnswer)]);
    assert!(matches!(get(&client).await, Err(kube::Error::Service(_))));
    assert_eq!(arrived.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_reset_never_arrives() {
    let (client, layer, arrived) = counting(vec![fault(Trigger::Always, ApiEffect::Reset)]);
    assert!(matches!(get(&client).await, Err(kube::Error::Service(_))));
    layer.set(Vec::new());
    assert!(get(&client).await.is_ok());
    assert_eq!(arrived.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delay_waits_in_virtual_time() {
    let span = Span { from: Duration::from_secs(5), to: Duration::from_secs(9) };
    let (client, _, _) = counting(vec![fault(Trigger::Always, ApiEffect::Delay(span))]);
    let before = tokio::time::Instant::now();
    get(&client).await.unwrap();
    assert!(before.elapsed() >= span.from);
}

#[tokio::test]
async fn the_same_seed_hits_the_same_calls() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let (client, _, _) = counting(vec![fault(Trigger::Probability(0.4), ApiEffect::Error(500))]);
        let mut answers = Vec::new();
        for _ in 0..50 {
            answers.push(get(&client).await.is_ok());
        }
        runs.push(answers);
    }
    assert_eq!(runs[0], runs[1]);
    assert!(runs[0].contains(&true) && runs[0].contains(&false));
}

#[tokio::test]
async fn the_layer_wraps_a_bare_router() {
    let layer = FaultLayer::new(Seed(1), vec![fault(Trigger::Always, ApiEffect::Error(503))]);
    let service = layer.layer(Router::new());
    let request = Request::get("/api/v1/namespaces/a/pods/b").body(axum::body::Body::empty()).unwrap();
    assert_eq!(service.oneshot(request).await.unwrap().status(), 503);
}

async fn create(client: &Client) -> Result<String, kube::Error> {
    client.request_text(Request::post("/api/v1/namespaces/a/pods").body(Vec::new()).unwrap()).await
}

async fn patch(client: &Client) -> Result<String, kube::Error> {
    client.request_text(Request::patch("/api/v1/namespaces/a/pods/b/status").body(Vec::new()).unwrap()).await
}

fn kill(nth: u64, effect: ApiEffect) -> ApiFault {
    ApiFault { verb: Some("write".to_owned()), resource: None, trigger: Trigger::Nth(nth), effect }
}

#[tokio::test]
async fn writes_are_counted_and_described_and_reads_are_not() {
    let (client, layer, _) = counting(Vec::new());
    create(&client).await.unwrap();
    layer.keep_writes();
    get(&client).await.unwrap();
    patch(&client).await.unwrap();
    let written: Vec<String> = layer.writes().iter().map(ToString::to_string).collect();
    assert_eq!((layer.write_count(), written), (2, vec!["patch pods/status a/b".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_process_dies_before_or_after_its_nth_write_and_says_nothing_more() {
    for (effect, arrives) in [(ApiEffect::KillBefore, 2), (ApiEffect::KillAfter, 3)] {
        let (client, layer, arrived) = counting(vec![kill(2, effect)]);
        create(&client).await.unwrap();
        get(&client).await.unwrap();
        assert!(!layer.killed().is_cancelled());
        let wait = Duration::from_secs(100);
        assert!(tokio::time::timeout(wait, patch(&client)).await.is_err(), "{effect:?} answered");
        assert!(layer.killed().is_cancelled());
        assert!(tokio::time::timeout(wait, get(&client)).await.is_err(), "the dead are answered");
        assert_eq!(arrived.load(Ordering::SeqCst), arrives, "{effect:?}");
    }
}
