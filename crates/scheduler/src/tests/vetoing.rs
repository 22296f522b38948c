//! A node that refused a pod is avoided for a while, and then tried again.

use kai_api::BindRequest;
use serde_json::json;

use super::fixture::{Fixture, eventually, pause};

async fn refuse(fixture: &Fixture, pod: &str, attempts: i32, until: &str) {
    let status = json!({"phase": "Failed", "errorClass": "Refused", "reason": "the policy webhook says no",
        "failedAttempts": attempts, "nextRetry": until});
    fixture.patch_status::<BindRequest>(pod, json!({"status": status})).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_bind_vetoes_the_node_until_its_time_comes() {
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.team().await;
    fixture.gang("job", "team", 1).await;
    let _running = fixture.start();
    eventually("it is placed", async || fixture.request("job-0").await.is_some()).await;
    let first = fixture.request("job-0").await.expect("a request").metadata.uid;
    let until = fixture.clock.now() + jiff::SignedDuration::from_secs(40);
    refuse(&fixture, "job-0", 1, &until.to_string()).await;
    eventually("it is told", async || fixture.reason("job-0").await.is_some()).await;
    let reason = fixture.reason("job-0").await.expect("a reason");
    assert!(
        reason.contains("refused the pod: a: the policy webhook says no, tried again at 2026-01-01T12:"),
        "{reason}"
    );
    pause(30_000).await;
    assert_eq!(fixture.request("job-0").await.expect("a request").metadata.uid, first, "too early");
    eventually("it is tried again", async || {
        fixture.request("job-0").await.is_some_and(|request| request.metadata.uid != first)
    })
    .await;
    assert!(fixture.clock.now() >= until);
    let request = fixture.request("job-0").await.expect("a request");
    let attempts = &request.metadata.annotations.as_ref().expect("annotations")["kai.scheduler/bind-attempts"];
    assert_eq!(attempts, "{\"a\":1}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_bind_goes_to_another_node_which_knows_of_the_refusal() {
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.node("b", 1).await;
    fixture.team().await;
    fixture.gang("job", "team", 1).await;
    let _running = fixture.start();
    eventually("it is placed", async || fixture.request("job-0").await.is_some()).await;
    let refused = fixture.placed().await["job-0"].clone();
    let until = fixture.clock.now() + jiff::SignedDuration::from_secs(600);
    refuse(&fixture, "job-0", 3, &until.to_string()).await;
    eventually("it is elsewhere", async || fixture.placed().await.get("job-0").is_some_and(|node| *node != refused))
        .await;
    let other = fixture.placed().await["job-0"].clone();
    let notes = fixture.request("job-0").await.expect("a request").metadata.annotations.expect("annotations");
    assert_eq!(notes["kai.scheduler/bind-attempts"], format!("{{\"{refused}\":3}}"));
    assert!(notes["kai.scheduler/bind-vetoes"].contains(&refused));
    // The other refuses too: both are avoided, and nothing is tried again and again.
    refuse(&fixture, "job-0", 1, &until.to_string()).await;
    eventually("it is told", async || fixture.reason("job-0").await.is_some()).await;
    let reason = fixture.reason("job-0").await.expect("a reason");
    assert!(reason.contains(&format!(": {refused}: ")) && reason.contains(&format!(": {other}: ")), "{reason}");
    let before = fixture.written();
    pause(120_000).await;
    assert_eq!(fixture.written(), before);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_server_refuses_is_no_hot_loop() {
    use kai_lab::faults::{ApiEffect, ApiFault, Trigger};
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.team().await;
    fixture.gang("job", "team", 1).await;
    fixture.faults.set(vec![ApiFault {
        verb: Some("create".into()),
        resource: Some("bindrequests".into()),
        trigger: Trigger::Always,
        effect: ApiEffect::Error(403),
    }]);
    let _running = fixture.start();
    pause(120_000).await;
    assert!((2..=6).contains(&fixture.faults.struck()), "{}", fixture.faults.struck());
    fixture.faults.set(Vec::new());
    eventually("it is placed in the end", async || fixture.request("job-0").await.is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn a_binder_that_does_not_say_when_to_try_again_is_given_growing_pauses() {
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.team().await;
    fixture.gang("job", "team", 1).await;
    let _running = fixture.start();
    let mut pauses = Vec::new();
    let mut last = fixture.clock.now();
    let mut seen = None;
    for _ in 0..4 {
        eventually("it is placed", async || {
            fixture.request("job-0").await.is_some_and(|request| request.metadata.uid != seen)
        })
        .await;
        seen = fixture.request("job-0").await.expect("a request").metadata.uid;
        pauses.push(fixture.clock.now().duration_since(last).as_secs());
        last = fixture.clock.now();
        let status = json!({"phase": "Failed", "reason": "no", "failedAttempts": 1});
        fixture.patch_status::<BindRequest>("job-0", json!({"status": status})).await;
    }
    assert_eq!(pauses, [0, 5, 10, 20]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_a_refusal_when_it_has_ended_and_the_pod_still_waits() {
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.team().await;
    fixture.gang("job", "team", 1).await;
    let _running = fixture.start();
    eventually("it is placed", async || fixture.request("job-0").await.is_some()).await;
    let until = fixture.clock.now() + jiff::SignedDuration::from_secs(40);
    refuse(&fixture, "job-0", 1, &until.to_string()).await;
    // Somebody else has the node by the time that it may be tried again.
    fixture.gang("other", "team", 1).await;
    eventually("the other is placed", async || fixture.request("other-0").await.is_some()).await;
    fixture.run_placed().await;
    pause(30_000).await;
    assert!(fixture.request("job-0").await.is_some(), "it holds");
    eventually("it is gone", async || fixture.request("job-0").await.is_none()).await;
    assert!(fixture.clock.now() >= until);
    fixture.delete::<k8s_openapi::api::core::v1::Pod>("other-0").await;
    eventually("it is placed after all", async || fixture.request("job-0").await.is_some()).await;
}
