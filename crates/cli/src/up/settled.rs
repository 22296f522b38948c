//! When a cluster has settled: its nodes are ready and no pod is on its way.

use std::time::Duration;

use anyhow::Context;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, ResourceExt};
use std::collections::BTreeMap;

/// Quiet for this long counts as settled: controllers react to a change within milliseconds.
const QUIET: Duration = Duration::from_millis(1500);

/// Waits until all of `names` are ready.
pub async fn nodes_ready(client: &Client, names: &[String]) -> anyhow::Result<()> {
    let mut waiting: std::collections::BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let mut events = std::pin::pin!(watcher(Api::<Node>::all(client.clone()), watcher::Config::default()));
    while !waiting.is_empty() {
        let event = events.try_next().await?.context("the watch of nodes ended")?;
        if let watcher::Event::Apply(node) | watcher::Event::InitApply(node) = event {
            let conditions = node.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
            if conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True") {
                waiting.remove(node.name_any().as_str());
            }
        }
    }
    Ok(())
}

/// Waits until every pod that has a node runs or has ended, and nothing moves any more.
pub async fn wait(client: Client) -> anyhow::Result<()> {
    let mut moving: BTreeMap<String, bool> = BTreeMap::new();
    let mut events = std::pin::pin!(watcher(Api::<Pod>::all(client), watcher::Config::default()));
    loop {
        match tokio::time::timeout(QUIET, events.try_next()).await {
            Ok(event) => match event?.context("the watch of pods ended")? {
                watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => {
                    moving.insert(pod.uid().unwrap_or_default(), is_moving(&pod));
                }
                watcher::Event::Delete(pod) => {
                    moving.remove(&pod.uid().unwrap_or_default());
                }
                watcher::Event::Init | watcher::Event::InitDone => {}
            },
            Err(_) if moving.values().any(|moving| *moving) => {}
            Err(_) => return Ok(()),
        }
    }
}

fn is_moving(pod: &Pod) -> bool {
    let placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    pod.metadata.deletion_timestamp.is_some() || (placed && phase == "Pending")
}
