//! Victims end, are told why with the numbers, and then nothing moves any more.

use k8s_openapi::api::core::v1::Pod;

use super::fixture::{Fixture, eventually, pause};

#[tokio::test(start_paused = true)]
async fn a_team_takes_back_what_another_borrowed_and_then_nothing_moves() {
    let fixture = Fixture::new().await;
    fixture.node("a", 4).await;
    fixture.queue("top", None, -1).await;
    fixture.queue("team-a", Some("top"), 2).await;
    fixture.queue("team-b", Some("top"), 2).await;
    for index in 0..4 {
        fixture.gang(&format!("borrower-{index}"), "team-a", 1).await;
    }
    let running = fixture.start();
    eventually("team-a borrows", async || fixture.requests().await.len() == 4).await;
    fixture.run_placed().await;
    pause(1000).await;
    fixture.gang("owner", "team-b", 2).await;
    // No kubelet: deleted pods stay until they are removed by hand, as long as containers would run on.
    let leaving = async || {
        let pods = fixture.api::<Pod>().list(&kube::api::ListParams::default()).await.expect("pods");
        pods.into_iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_some())
            .filter_map(|pod| pod.metadata.name)
            .collect::<Vec<String>>()
    };
    eventually("two leave", async || leaving().await.len() == 2).await;
    let victims = leaving().await;
    let deletes = |fixture: &Fixture| fixture.written().iter().filter(|write| write.contains("DELETE")).count();
    assert_eq!(deletes(&fixture), 2, "{:?}", fixture.written());
    let numbers = running.process.metrics.text();
    let solved = r#"scenario_search_jobs_total{action="reclaim",result="solved",reduced_budget="false"} 1"#;
    assert!(numbers.contains(solved), "{numbers}");
    for victim in &victims {
        let group = victim.trim_end_matches("-0");
        for about in [victim.as_str(), group] {
            eventually("told", async || fixture.events(about).await.iter().any(|(reason, _)| reason == "Evict")).await;
            let events = fixture.events(about).await;
            let (_, text) = events.iter().find(|(reason, _)| reason == "Evict").expect("an event");
            assert!(text.contains("was reclaimed by workload default/owner"), "{text}");
            assert!(text.contains("queue team-b (uses 0 GPUs, quota 2, fair share 2)"), "{text}");
            assert!(text.contains("takes back from queue team-a (uses 4 GPUs, quota 2, fair share 2)"), "{text}");
        }
        let group = fixture.api::<kai_api::PodGroup>().get(group).await.expect("a group");
        let notes = group.metadata.annotations.expect("annotations");
        assert!(notes.contains_key("kai.scheduler/last-eviction-timestamp"), "{notes:?}");
    }
    pause(15_000).await;
    assert_eq!(deletes(&fixture), 2, "the room is on its way");
    for victim in &victims {
        fixture.delete::<Pod>(victim).await;
    }
    eventually("team-b is placed", async || {
        let placed = fixture.placed().await;
        placed.contains_key("owner-0") && placed.contains_key("owner-1")
    })
    .await;
    fixture.run_placed().await;
    pause(5_000).await;
    let before = fixture.written();
    pause(60_000).await;
    assert_eq!(fixture.written(), before, "stable");
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_the_server_refuses_is_taken_back() {
    use kai_lab::faults::{ApiEffect, ApiFault, Trigger};
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.queue("top", None, -1).await;
    fixture.queue("team-a", Some("top"), 0).await;
    fixture.queue("team-b", Some("top"), 1).await;
    fixture.gang("borrower", "team-a", 1).await;
    let _running = fixture.start();
    eventually("team-a borrows", async || fixture.requests().await.len() == 1).await;
    fixture.run_placed().await;
    pause(1000).await;
    let refuse = ApiFault {
        verb: Some("delete".into()),
        resource: Some("pods".into()),
        trigger: Trigger::Nth(1),
        effect: ApiEffect::Error(403),
    };
    fixture.faults.set(vec![refuse]);
    fixture.gang("owner", "team-b", 1).await;
    eventually("it is tried again", async || {
        fixture.api::<Pod>().get("borrower-0").await.expect("a pod").metadata.deletion_timestamp.is_some()
    })
    .await;
    assert_eq!(fixture.faults.struck(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_victim_knows_who_took_its_place_even_if_the_scheduler_dies_with_the_delete() {
    use kai_lab::faults::{ApiEffect, ApiFault, Trigger};
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.queue("top", None, -1).await;
    fixture.queue("team-a", Some("top"), 0).await;
    fixture.queue("team-b", Some("top"), 1).await;
    fixture.gang("borrower", "team-a", 1).await;
    let running = fixture.start();
    eventually("team-a borrows", async || fixture.requests().await.len() == 1).await;
    fixture.run_placed().await;
    pause(1000).await;
    let kill = ApiFault {
        verb: Some("delete".into()),
        resource: Some("pods".into()),
        trigger: Trigger::Nth(1),
        effect: ApiEffect::KillAfter,
    };
    fixture.faults.set(vec![kill]);
    fixture.gang("owner", "team-b", 1).await;
    fixture.faults.killed().cancelled().await;
    drop(running);
    for about in ["borrower-0", "borrower"] {
        let events = fixture.events(about).await;
        let told = events.iter().any(|(_, text)| text.contains("was reclaimed by workload default/owner"));
        assert!(told, "{about}: {events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_victim_that_was_not_bound_yet_and_goes_at_once_leaves_its_place() {
    let fixture = Fixture::new().await;
    fixture.node("a", 1).await;
    fixture.queue("top", None, -1).await;
    fixture.queue("team-a", Some("top"), 0).await;
    fixture.queue("team-b", Some("top"), 1).await;
    fixture.gang("borrower", "team-a", 1).await;
    let _running = fixture.start();
    eventually("team-a borrows", async || fixture.requests().await.len() == 1).await;
    // No binder: the pod never gets to its node, so the server deletes it without waiting for a kubelet.
    fixture.gang("owner", "team-b", 1).await;
    eventually("the borrower is gone", async || {
        fixture.api::<Pod>().get_opt("borrower-0").await.expect("an answer").is_none()
    })
    .await;
    eventually("the owner is placed", async || fixture.request("owner-0").await.is_some()).await;
}
