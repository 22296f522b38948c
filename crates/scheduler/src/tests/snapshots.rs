//! A snapshot of the cluster is a scenario that decides the same.

use kai_convert::scenario::{self, Explain};
use serde_json::Value;

use super::fixture::{Fixture, eventually};
use crate::Options;

#[tokio::test(start_paused = true)]
async fn a_snapshot_replays_to_the_decision_that_was_made() {
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.node("b", 2).await;
    fixture.team().await;
    fixture.gang("pair", "team", 2).await;
    fixture.gang("large", "team", 4).await;
    let text = crate::snapshot(&fixture.client, &Options::default(), fixture.clock.now()).await.expect("text");
    let _running = fixture.start();
    eventually("the pair is placed", async || fixture.requests().await.len() == 2).await;
    // What really happened is what the scenario must say.
    let mut scenario: Value = serde_json::from_str(&text).expect("JSON");
    for (pod, node) in fixture.placed().await {
        scenario["expect"]["pods"][&pod] = serde_json::json!({"status": "Binding", "node": node});
    }
    scenario["expect"]["pods"]["large-0"] = serde_json::json!({"status": "Pending"});
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("captured.json");
    std::fs::write(&path, scenario.to_string()).expect("written");
    let report = scenario::run(&[path], Explain::Yes);
    assert!(report.failed == 0 && report.passed == 1, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_served_over_http() {
    use tower::ServiceExt as _;
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    let router =
        crate::snapshot::router(fixture.process("one"), Options::default(), tokio::sync::mpsc::unbounded_channel().0);
    let request = http::Request::get("/get-snapshot").body(axum::body::Body::empty()).expect("a request");
    let answer = router.oneshot(request).await.expect("an answer");
    assert_eq!(answer.status(), 200);
    let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.expect("a body");
    let scenario: Value = serde_json::from_slice(&body).expect("JSON");
    assert!(scenario["objects"].as_array().expect("objects").iter().any(|object| object["kind"] == "Node"));
}
