//! What kube-controller-manager does about nodes, for the embedded cluster: kubelets that fell silent, taints that follow from
//! conditions, pods that must leave tainted nodes, pods of nodes that are no more.
//!
//! Times are those of the real controllers: a look every 5 s, patience of 50 s, pods of a vanished node after 40 s. Silence is
//! measured on the heartbeats of the kubelets in this process; leases of other nodes are not looked at.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    time::Duration,
};

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Node, Pod, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kai_clock::Clock;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    affinity,
    kubelet::{Heartbeats, WatchBackoff},
    node::seconds,
};

const LOOK_EVERY: Duration = Duration::from_secs(5);
const PATIENCE: SignedDuration = SignedDuration::from_secs(50);
const ORPHANED_AFTER: SignedDuration = SignedDuration::from_secs(40);

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Taints that only this controller sets and removes.
const MANAGED: [&str; 3] = [UNREACHABLE, NOT_READY, UNSCHEDULABLE];

/// Runs until `cancel` fires.
pub(crate) async fn run(client: Client, clock: Clock, heartbeats: Heartbeats, cancel: CancellationToken) {
    let api = Api::<Node>::all(client.clone());
    let mut events = pin!(watcher(api, watcher::Config::default()).backoff(WatchBackoff::new()));
    let mut monitor = Monitor { client, clock, heartbeats, nodes: BTreeMap::new(), missing: BTreeMap::new() };
    let mut tick = tokio::time::interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            Some(event) = events.next() => match event {
                Ok(event) => monitor.observe(event).await,
                Err(error) => tracing::debug!(%error, "node watch broke; trying again"),
            },
            _ = tick.tick() => monitor.look().await,
        }
    }
}

struct Monitor {
    client: Client,
    clock: Clock,
    heartbeats: Heartbeats,
    nodes: BTreeMap<String, Node>,
    /// Nodes that went away, and when.
    missing: BTreeMap<String, Timestamp>,
}

impl Monitor {
    async fn observe(&mut self, event: Event<Node>) {
        match event {
            Event::Init | Event::InitDone => {}
            Event::InitApply(node) | Event::Apply(node) => {
                let Some(name) = node.metadata.name.clone() else { return };
                self.missing.remove(&name);
                let changed =
                    self.nodes.get(&name).is_none_or(|old| old.spec != node.spec || ready(old) != ready(&node));
                self.nodes.insert(name.clone(), node);
                if changed {
                    self.settle(&name).await;
                }
            }
            Event::Delete(node) => {
                if let Some(name) = node.metadata.name {
                    self.nodes.remove(&name);
                    self.missing.insert(name, self.clock.now());
                }
            }
        }
    }

    async fn look(&mut self) {
        let now = self.clock.now();
        let silent: BTreeSet<String> = {
            let heartbeats = self.heartbeats.lock();
            let silent = heartbeats.iter().filter(|(_, last)| now.duration_since(**last) > PATIENCE);
            silent.map(|(name, _)| name.clone()).collect()
        };
        for name in silent {
            if self.nodes.get(&name).is_some_and(|node| ready(node) != Some("Unknown")) {
                self.give_up_on(&name).await;
            }
        }
        let tainted = self.nodes.iter().filter(|(_, node)| no_execute(node).next().is_some());
        for name in tainted.map(|(name, _)| name.clone()).collect::<Vec<String>>() {
            self.evict(&name).await;
        }
        let orphaned = self.missing.iter().filter(|(_, since)| now.duration_since(**since) > ORPHANED_AFTER);
        for name in orphaned.map(|(name, _)| name.clone()).collect::<Vec<String>>() {
            if self.bury_pods_of(&name).await {
                self.missing.remove(&name);
            }
        }
    }

    /// The kubelet has not been heard of for too long.
    async fn give_up_on(&mut self, name: &str) {
        let now = seconds(self.clock.now());
        let conditions: Vec<serde_json::Value> = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"]
            .into_iter()
            .map(|kind| {
                json!({"type": kind, "status": "Unknown", "reason": "NodeStatusUnknown",
                    "message": "Kubelet stopped posting node status.", "lastTransitionTime": now})
            })
            .collect();
        let patch = json!({"status": {"conditions": conditions}});
        let api = Api::<Node>::all(self.client.clone());
        if let Err(error) = api.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            tracing::debug!(node = name, %error, "node not marked; next look tries again");
            return;
        }
        self.mark_pods_unready(name).await;
    }

    /// Makes the taints say what conditions and `unschedulable` say, then lets pods leave that must.
    async fn settle(&mut self, name: &str) {
        let Some(node) = self.nodes.get(name) else { return };
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let wanted = wanted_taints(node, &taints, self.clock.now());
        if wanted != taints {
            // The version makes sure that nobody else's taint is lost.
            let patch =
                json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": wanted}});
            let api = Api::<Node>::all(self.client.clone());
            match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(node) => {
                    self.nodes.insert(name.to_owned(), node);
                }
                // The change that was in the way arrives by watch and brings us back here.
                Err(error) => tracing::debug!(node = name, %error, "taints not written"),
            }
        }
        if self.nodes.get(name).is_some_and(|node| no_execute(node).next().is_some()) {
            self.evict(name).await;
        }
    }

    /// Deletes the pods that do not tolerate a `NoExecute` taint, or no longer.
    async fn evict(&self, name: &str) {
        let Some(node) = self.nodes.get(name) else { return };
        let now = self.clock.now();
        let taints: Vec<&Taint> = no_execute(node).collect();
        for pod in self.pods_of(name).await {
            if pod.metadata.deletion_timestamp.is_some() || !must_leave(&pod, &taints, now) {
                continue;
            }
            let (Some(namespace), Some(pod_name)) = (&pod.metadata.namespace, &pod.metadata.name) else { continue };
            let api = Api::<Pod>::namespaced(self.client.clone(), namespace);
            let condition = json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True",
                "reason": "DeletionByTaintManager", "message": "Taint manager: deleting due to NoExecute taint",
                "lastTransitionTime": seconds(now)}]}});
            let marked = api.patch_status(pod_name, &PatchParams::default(), &Patch::Strategic(condition)).await;
            let deleted = api.delete(pod_name, &with_uid(&pod)).await;
            if let Some(error) = marked.err().or(deleted.err()) {
                tracing::debug!(pod = pod_name, %error, "eviction failed; next look tries again");
            }
        }
    }

    /// Deletes the pods of a node that is no more. False if it must be tried again.
    async fn bury_pods_of(&self, name: &str) -> bool {
        let mut done = true;
        for pod in self.pods_of(name).await {
            let (Some(namespace), Some(pod_name)) = (&pod.metadata.namespace, &pod.metadata.name) else { continue };
            let api = Api::<Pod>::namespaced(self.client.clone(), namespace);
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if !matches!(phase, Some("Succeeded" | "Failed")) {
                let status = json!({"status": {"phase": "Failed", "conditions": [{"type": "DisruptionTarget",
                    "status": "True", "reason": "DeletionByPodGC", "message": "PodGC: node no longer exists",
                    "lastTransitionTime": seconds(self.clock.now())}]}});
                done &= api.patch_status(pod_name, &PatchParams::default(), &Patch::Strategic(status)).await.is_ok();
            }
            done &= api.delete(pod_name, &with_uid(&pod).grace_period(0)).await.is_ok();
        }
        done
    }

    async fn mark_pods_unready(&self, name: &str) {
        let now = seconds(self.clock.now());
        for pod in self.pods_of(name).await {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let was_ready =
                conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
            let (Some(namespace), Some(pod_name)) = (&pod.metadata.namespace, &pod.metadata.name) else { continue };
            if was_ready {
                let patch = json!({"status": {"conditions":
                    [{"type": "Ready", "status": "False", "lastTransitionTime": now}]}});
                let api = Api::<Pod>::namespaced(self.client.clone(), namespace);
                if let Err(error) = api.patch_status(pod_name, &PatchParams::default(), &Patch::Strategic(patch)).await
                {
                    tracing::debug!(pod = pod_name, %error, "pod not marked unready");
                }
            }
        }
    }

    async fn pods_of(&self, node: &str) -> Vec<Pod> {
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        match Api::<Pod>::all(self.client.clone()).list(&params).await {
            Ok(pods) => pods.items,
            Err(error) => {
                tracing::debug!(node, %error, "pods not listed");
                Vec::new()
            }
        }
    }
}

fn with_uid(pod: &Pod) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions { uid: pod.metadata.uid.clone(), resource_version: None }),
        ..DeleteParams::default()
    }
}

fn ready(node: &Node) -> Option<&str> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready").map(|condition| condition.status.as_str())
}

fn no_execute(node: &Node) -> impl Iterator<Item = &Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "NoExecute")
}

/// The taints as they should be: foreign ones in place, ours according to the node's state; times are kept.
fn wanted_taints(node: &Node, current: &[Taint], now: Timestamp) -> Vec<Taint> {
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    match ready(node) {
        Some("Unknown") => wanted.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
        Some("False") => wanted.extend([(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
        _ => {}
    }
    if node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let is_wanted = |taint: &Taint| wanted.contains(&(taint.key.as_str(), taint.effect.as_str()));
    let mut taints: Vec<Taint> =
        current.iter().filter(|taint| !MANAGED.contains(&taint.key.as_str()) || is_wanted(taint)).cloned().collect();
    for (key, effect) in wanted {
        if !taints.iter().any(|taint| taint.key == key && taint.effect == effect) {
            // Second precision, as the API keeps it: otherwise the list would differ for ever.
            let time = Timestamp::from_second(now.as_second()).unwrap_or(now);
            taints.push(Taint {
                key: key.to_owned(),
                value: None,
                effect: effect.to_owned(),
                time_added: Some(Time(time)),
            });
        }
    }
    taints
}

/// Whether a taint is not tolerated, or was tolerated for a time that is over.
fn must_leave(pod: &Pod, taints: &[&Taint], now: Timestamp) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| {
        let matching = tolerations.iter().filter(|toleration| affinity::tolerates(toleration, taint));
        let times: Vec<Option<i64>> = matching.map(|toleration| toleration.toleration_seconds).collect();
        if times.is_empty() {
            return true;
        }
        let Some(shortest) = times.into_iter().flatten().min() else { return false };
        let since = taint.time_added.as_ref().map_or(now, |time| time.0);
        now.duration_since(since) >= SignedDuration::from_secs(shortest.max(0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ready: &str, unschedulable: bool) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n"},
            "spec": {"unschedulable": unschedulable},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    fn keys(taints: &[Taint]) -> Vec<String> {
        taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect()
    }

    #[test]
    fn taints_follow_conditions_and_leave_foreign_ones_alone() {
        let foreign = Taint { key: "mine".into(), value: None, effect: "NoSchedule".into(), time_added: None };
        let now = Timestamp::UNIX_EPOCH;
        let lost = wanted_taints(&node("Unknown", true), std::slice::from_ref(&foreign), now);
        assert_eq!(
            keys(&lost),
            [
                "mine:NoSchedule",
                "node.kubernetes.io/unreachable:NoSchedule",
                "node.kubernetes.io/unreachable:NoExecute",
                "node.kubernetes.io/unschedulable:NoSchedule"
            ]
        );
        let later = now + SignedDuration::from_secs(9);
        assert_eq!(wanted_taints(&node("Unknown", true), &lost, later), lost);
        assert_eq!(wanted_taints(&node("True", false), &lost, later), [foreign]);
    }

    #[test]
    fn pods_leave_when_their_toleration_runs_out() {
        let taint = Taint {
            key: UNREACHABLE.into(),
            value: None,
            effect: "NoExecute".into(),
            time_added: Some(Time(Timestamp::UNIX_EPOCH)),
        };
        let pod = |tolerations: serde_json::Value| -> Pod {
            serde_json::from_value(json!({"metadata": {}, "spec": {"containers": [], "tolerations": tolerations}}))
                .unwrap()
        };
        let leaves =
            |tolerations, seconds| must_leave(&pod(tolerations), &[&taint], Timestamp::from_second(seconds).unwrap());
        let for_a_while = json!([{"key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": 300}]);
        assert!(leaves(json!([]), 0));
        assert!(!leaves(for_a_while.clone(), 299));
        assert!(leaves(for_a_while, 300));
        assert!(!leaves(json!([{"operator": "Exists"}]), 1_000_000));
    }
}
