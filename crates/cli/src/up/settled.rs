//! When a cluster has settled: nodes are ready, every pod runs, has ended, or waits for a reason that is known, and nothing moves.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::Context;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kai_api::names::objects;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::time::Instant;

/// Quiet for this long counts as settled: controllers and scheduler react to a change within milliseconds.
const QUIET: Duration = Duration::from_secs(2);
/// A pod that is on its way without a change for so long is stuck.
const STUCK: Duration = Duration::from_mins(1);

/// Waits until all of `names` are ready.
pub async fn nodes_ready(client: &Client, names: &[String]) -> anyhow::Result<()> {
    let mut waiting: BTreeSet<&str> = names.iter().map(String::as_str).collect();
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

/// Where a pod stands, as far as settling is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Standing {
    name: String,
    /// Phase, node, readiness and the scheduler's words: a change of anything else is no news.
    facts: String,
    moving: bool,
}

/// Waits until nothing moves any more. An error names the pods that are on their way and do not get on.
pub async fn wait(client: Client) -> anyhow::Result<()> {
    let mut pods: BTreeMap<String, Standing> = BTreeMap::new();
    let mut listed = false;
    let mut changed = Instant::now();
    let mut events = std::pin::pin!(watcher(Api::<Pod>::all(client), watcher::Config::default()));
    loop {
        let moving = pods.values().any(|pod| pod.moving) || !listed;
        let patience = if moving { STUCK } else { QUIET };
        match tokio::time::timeout_at(changed + patience, events.try_next()).await {
            Ok(event) => match event?.context("the watch of pods ended")? {
                watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => {
                    let standing = standing(&pod);
                    let before = pods.insert(pod.uid().unwrap_or_default(), standing.clone());
                    if before.as_ref() != Some(&standing) {
                        changed = Instant::now();
                    }
                }
                watcher::Event::Delete(pod) => {
                    pods.remove(&pod.uid().unwrap_or_default());
                    changed = Instant::now();
                }
                watcher::Event::Init => {}
                watcher::Event::InitDone => listed = true,
            },
            Err(_) if moving => {
                let stuck: Vec<&str> = pods.values().filter(|pod| pod.moving).map(|pod| pod.name.as_str()).collect();
                anyhow::bail!(
                    "nothing has moved for {} s, but not all is settled: {}",
                    STUCK.as_secs(),
                    stuck.join(", ")
                )
            }
            Err(_) => return Ok(()),
        }
    }
}

fn standing(pod: &Pod) -> Standing {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    let ours = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref()) == Some(objects::SCHEDULER);
    let leaving = pod.metadata.deletion_timestamp.is_some();
    let why = reason(pod);
    let ready = condition(pod, "Ready").is_some_and(|(status, _)| status == "True");
    let moving = leaving
        || match (phase, node) {
            ("Running", _) => !ready,
            ("Pending", Some(_)) => true,
            // Nobody places the pods of other schedulers here.
            ("Pending", None) => ours && why.is_none(),
            _ => false,
        };
    let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    Standing { name, facts: format!("{phase} {node:?} {ready} {why:?}"), moving }
}

/// What the scheduler says of a pod that waits.
pub fn reason(pod: &Pod) -> Option<String> {
    let (status, message) = condition(pod, "PodScheduled")?;
    (status == "False").then_some(message)
}

fn condition(pod: &Pod, kind: &str) -> Option<(String, String)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((found.status.clone(), found.message.clone().unwrap_or_default()))
}
