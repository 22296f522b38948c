//! One of several replicas writes; another takes over at once. Two that both write do no harm.

use super::fixture::{Fixture, eventually, pause};
use crate::Options;

#[tokio::test(start_paused = true)]
async fn the_leader_writes_and_the_standby_takes_over() {
    let fixture = Fixture::new().await;
    fixture.node("a", 4).await;
    fixture.team().await;
    let options = Options { leader_elect: true, ..Options::default() };
    let first = fixture.start_with(options.clone(), kai_core::cycle::plan_watched, "first");
    pause(5_000).await;
    let second = fixture.start_with(options, kai_core::cycle::plan_watched, "second");
    pause(5_000).await;
    fixture.gang("one", "team", 1).await;
    eventually("it is placed", async || fixture.request("one-0").await.is_some()).await;
    let creates = |fixture: &Fixture| fixture.written().iter().filter(|write| write.contains("bindrequests")).count();
    assert_eq!(creates(&fixture), 1);
    assert!(second.process.health.unmet().is_empty(), "{:?}", second.process.health.unmet());
    // Without a goodbye: its lease must run out first.
    drop(first);
    fixture.gang("two", "team", 1).await;
    eventually("the standby places it", async || fixture.request("two-0").await.is_some()).await;
    assert_eq!(creates(&fixture), 2);
}

#[tokio::test(start_paused = true)]
async fn two_schedulers_that_both_write_place_every_pod_once() {
    let fixture = Fixture::new().await;
    for node in ["a", "b", "c"] {
        fixture.node(node, 2).await;
    }
    fixture.team().await;
    let _first = fixture.start_with(Options::default(), kai_core::cycle::plan_watched, "first");
    let _second = fixture.start_with(Options::default(), kai_core::cycle::plan_watched, "second");
    pause(1_000).await;
    for index in 0..6 {
        fixture.gang(&format!("job-{index}"), "team", 1).await;
    }
    eventually("all are placed", async || fixture.requests().await.len() == 6).await;
    pause(20_000).await;
    let mut by_node = std::collections::BTreeMap::new();
    for node in fixture.placed().await.into_values() {
        *by_node.entry(node).or_insert(0) += 1;
    }
    assert!(by_node.values().all(|pods| *pods <= 2), "{by_node:?}");
}
