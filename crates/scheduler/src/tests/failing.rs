//! A defect in deciding about one group costs that group its turn, not the others theirs.

use kai_core::{Cluster, cycle::Watch, plan::Plan, policy::Policy, time::Time};

use super::fixture::{Fixture, eventually, pause};
use crate::Options;

/// Decides, but panics where a group whose name has `boom` in it waits and is not left out.
fn brittle(cluster: &mut Cluster, now: Time, policy: &Policy, watch: Watch<'_>) -> Plan {
    let plan = kai_core::cycle::plan_watched(cluster, now, policy, watch);
    let touched = cluster.groups.iter().find(|group| {
        group.exists && group.key.contains("boom") && group.rare().invalid.is_none() && !group.podsets.is_empty()
    });
    assert!(touched.is_none(), "injected defect");
    plan
}

/// Panics whoever is left out.
fn broken(_: &mut Cluster, _: Time, _: &Policy, _: Watch<'_>) -> Plan {
    panic!("nothing works")
}

#[tokio::test(start_paused = true)]
async fn a_panic_leaves_out_its_group_and_the_others_are_scheduled() {
    let fixture = Fixture::new().await;
    fixture.node("a", 8).await;
    fixture.team().await;
    for group in ["alpha", "boom-1", "gamma", "late-boom", "omega"] {
        fixture.gang(group, "team", 1).await;
    }
    let running = fixture.start_with(Options::default(), brittle, "one");
    eventually("the others are placed", async || fixture.requests().await.len() == 3).await;
    for group in ["boom-1", "late-boom"] {
        let pod = format!("{group}-0");
        eventually("it is told", async || fixture.reason(&pod).await.is_some()).await;
        let reason = fixture.reason(&pod).await.expect("a reason");
        assert!(reason.contains("internal error") && reason.contains("injected defect"), "{reason}");
        eventually("event", async || fixture.events(group).await.iter().any(|(reason, _)| reason == "InternalError"))
            .await;
    }
    // A group that comes later is served, and no further panic is needed for that.
    fixture.gang("next", "team", 1).await;
    eventually("it is placed", async || fixture.request("next-0").await.is_some()).await;
    assert!(running.process.metrics.text().contains("kai_scheduling_panics_total 1\n"));
    assert!(running.process.health.unmet().is_empty(), "{:?}", running.process.health.unmet());
}

#[tokio::test(start_paused = true)]
async fn a_defect_that_no_group_is_to_blame_for_makes_the_process_unready_and_is_no_hot_loop() {
    let fixture = Fixture::new().await;
    fixture.node("a", 8).await;
    fixture.team().await;
    fixture.gang("job", "team", 1).await;
    let running = fixture.start_with(Options::default(), broken, "one");
    pause(120_000).await;
    assert!(running.process.health.unmet().iter().any(|(name, _)| name == "cycle"));
    let text = running.process.metrics.text();
    let panics = text.lines().find_map(|line| line.strip_prefix("kai_scheduling_panics_total ")).expect("a counter");
    assert!(panics.parse::<u32>().expect("a number") <= 6, "{panics}");
}
