//! What the binder knows of the cluster, in memory, and who is woken by which change.
//!
//! ```text
//!  BindRequests ──┐ its own request, and the node whose reservations it needs
//!  pods of ours ──┤ the request of the pod, and the node whose reservations it uses      ─▶ requests (queue by BindRequest)
//!  reservations ──┤ every request that waits for its group, and its node                 ─▶ nodes    (queue by node)
//!  nodes ─────────┘ requests and reservations of a node that went
//! ```

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{Node, NodeStatus, Pod, PodSpec};
use kai_api::{
    BindRequest,
    names::{annotations, bind_phases, resource_types},
};
use kai_kit::{
    Change, Index, Key, Mirror, Process, Selection, WorkQueue, backoff::Backoff, watch::only_status_differs,
};
use kube::{Api, runtime::watcher};
use parking_lot::Mutex;

use crate::{groups::groups_of, options::Options, outcome::bound_condition, settings::Current};

/// The mirrors, the queues and the surroundings. Shared by everything that works.
pub(crate) struct World {
    pub(crate) process: Process,
    pub(crate) settings: Current,
    pub(crate) namespace: String,
    /// The scheduler whose pods these are.
    pub(crate) scheduler: String,
    pub(crate) pods: Mirror<Pod>,
    pub(crate) nodes: Mirror<Node>,
    pub(crate) requests: Mirror<BindRequest>,
    pub(crate) reservations: Mirror<Pod>,
    pods_by_node: Index,
    requests_by_node: Index,
    reservations_by_node: Index,
    /// BindRequests to look at.
    pub(crate) request_queue: WorkQueue<Key>,
    /// Nodes whose reservations are to be looked at.
    pub(crate) node_queue: WorkQueue<String>,
    /// Whether changes are heard. A replica that only stands by collects no work: it begins with [`World::resync`].
    awake: Arc<AtomicBool>,
    /// Requests that were taken away, until what they left behind is cleaned.
    pub(crate) withdrawn: Arc<Mutex<BTreeMap<Key, Arc<BindRequest>>>>,
}

/// Whether a request shares GPUs.
pub(crate) fn is_fraction(request: &BindRequest) -> bool {
    request.spec.received_resource_type.as_deref() == Some(resource_types::FRACTION)
}

/// Whether nothing more happens with a request by itself: it succeeded, or failed and is not tried again.
pub(crate) fn is_finished(request: &BindRequest) -> bool {
    let status = request.status.as_ref();
    match status.and_then(|status| status.phase.as_deref()) {
        Some(bind_phases::SUCCEEDED) => true,
        Some(bind_phases::FAILED) => {
            let attempts = status.and_then(|status| status.failed_attempts).unwrap_or(0);
            request.spec.backoff_limit.is_none_or(|limit| attempts >= limit)
        }
        _ => false,
    }
}

/// The key of the pod that a request is about.
pub(crate) fn pod_key(request: &BindRequest) -> Key {
    let name = request.spec.pod_name.clone().filter(|name| !name.is_empty());
    let own = request.metadata.name.clone().unwrap_or_default();
    Key::new(request.metadata.namespace.clone().unwrap_or_default(), name.unwrap_or(own))
}

/// The node that a request chose.
pub(crate) fn node_of(request: &BindRequest) -> &str {
    request.spec.selected_node.as_deref().unwrap_or_default()
}

/// The node that a pod is on.
pub(crate) fn place(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).filter(|node| !node.is_empty())
}

/// Whether a pod has ended.
pub(crate) fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

impl World {
    /// Starts to watch. `namespace` is where reservation pods are.
    pub(crate) fn start(process: Process, options: &Options, settings: Current) -> Self {
        let namespace = settings.get().namespace.clone();
        let pauses = Backoff::new(
            Duration::from_secs(options.rate_limiter_base_delay.max(1)),
            Duration::from_secs(options.rate_limiter_max_delay.max(1)),
        );
        let request_queue = WorkQueue::new(pauses);
        let node_queue = WorkQueue::new(pauses);
        let withdrawn: Arc<Mutex<BTreeMap<Key, Arc<BindRequest>>>> = Arc::default();
        let awake = Arc::new(AtomicBool::new(false));
        let asleep = || {
            let awake = Arc::clone(&awake);
            move || !awake.load(Ordering::Relaxed)
        };
        let (client, health, cancel) = (&process.client, &process.health, &process.cancel);

        let mut requests = Mirror::<BindRequest>::builder();
        let requests_by_node = requests.index(|request| vec![node_of(request).to_owned()]);
        let requests_by_group = requests.index(|request| request.spec.selected_gpu_groups.clone());
        let requests_by_pod = requests.index(|request| vec![pod_key(request).to_string()]);
        let hear = {
            let (queue, nodes, withdrawn) = (request_queue.clone(), node_queue.clone(), Arc::clone(&withdrawn));
            let asleep = asleep();
            move |change: &Change<'_, BindRequest>| {
                if asleep() {
                    return;
                }
                let request = change.object();
                if let Change::Removed(old) = change
                    && !is_finished(old)
                {
                    withdrawn.lock().insert(Key::of(old.as_ref()), Arc::clone(old));
                }
                queue.add(Key::of(request.as_ref()));
                if is_fraction(request) {
                    nodes.add(node_of(request).to_owned());
                }
            }
        };
        let requests = requests.hear(hear).start(&process, Selection::all(), cancel);

        let mut pods = Mirror::<Pod>::builder().trim(trim_pod);
        let pods_by_node = pods.index(|pod| {
            let shares = !groups_of(pod).is_empty();
            place(pod).filter(|_| shares).map(str::to_owned).into_iter().collect()
        });
        let hear = {
            let (queue, nodes, requests) = (request_queue.clone(), node_queue.clone(), requests.clone());
            let asleep = asleep();
            move |change: &Change<'_, Pod>| {
                if asleep() {
                    return;
                }
                let pod = change.object();
                let of_note = match change {
                    Change::Changed(old, new) => {
                        place(old) != place(new)
                            || has_ended(old) != has_ended(new)
                            || old.metadata.deletion_timestamp.is_some() != new.metadata.deletion_timestamp.is_some()
                            || groups_of(old) != groups_of(new)
                    }
                    _ => true,
                };
                if !of_note {
                    return;
                }
                for request in requests.find(requests_by_pod, &Key::of(pod.as_ref()).to_string()) {
                    queue.add(Key::of(request.as_ref()));
                }
                if let Some(node) = place(pod)
                    && !groups_of(pod).is_empty()
                {
                    nodes.add(node.to_owned());
                }
            }
        };
        let ours = Selection::of_scheduler(&options.scheduler_name).passing_over(is_same).foretelling(|_, _| true);
        let pods = pods.hear(hear).start(&process, ours, cancel);

        let mut reservations = Mirror::<Pod>::builder();
        let reservations_by_node = reservations.index(|pod| place(pod).map(str::to_owned).into_iter().collect());
        let hear = {
            let (queue, nodes, requests) = (request_queue.clone(), node_queue.clone(), requests.clone());
            let asleep = asleep();
            move |change: &Change<'_, Pod>| {
                if asleep() {
                    return;
                }
                let pod = change.object();
                if let Some(node) = place(pod) {
                    nodes.add(node.to_owned());
                }
                for group in groups_of(pod) {
                    for request in requests.find(requests_by_group, &group) {
                        queue.add(Key::of(request.as_ref()));
                    }
                }
            }
        };
        let app = format!("app={}", settings.get().app_label);
        let reservations = reservations.hear(hear).start_apart(
            "watch of reservations",
            Api::namespaced(client.clone(), &namespace),
            watcher::Config::default().labels(&app),
            health,
            cancel,
        );

        let hear = {
            let (queue, reservations_queue, requests) = (request_queue.clone(), node_queue.clone(), requests.clone());
            let asleep = asleep();
            move |change: &Change<'_, Node>| {
                if asleep() || matches!(change, Change::Changed(..)) {
                    return;
                }
                let name = change.object().metadata.name.clone().unwrap_or_default();
                for request in requests.find(requests_by_node, &name) {
                    queue.add(Key::of(request.as_ref()));
                }
                reservations_queue.add(name);
            }
        };
        let nodes = Mirror::<Node>::builder().trim(trim_node).hear(hear);
        let nodes = nodes.start(&process, Selection::all(), cancel);

        Self {
            process,
            settings,
            namespace,
            scheduler: options.scheduler_name.clone(),
            pods,
            nodes,
            requests,
            reservations,
            pods_by_node,
            requests_by_node,
            reservations_by_node,
            request_queue,
            node_queue,
            awake,
            withdrawn,
        }
    }

    /// Waits until everything has been listed.
    pub(crate) async fn ready(&self) {
        self.requests.ready().await;
        self.pods.ready().await;
        self.reservations.ready().await;
        self.nodes.ready().await;
    }

    /// The reservation pods on a node.
    pub(crate) fn reservations_on(&self, node: &str) -> Vec<Arc<Pod>> {
        self.reservations.find(self.reservations_by_node, node)
    }

    /// The pods on a node that are in groups.
    pub(crate) fn sharers_on(&self, node: &str) -> Vec<Arc<Pod>> {
        self.pods.find(self.pods_by_node, node)
    }

    /// The unfinished requests that will share GPUs of a node.
    pub(crate) fn fractions_for(&self, node: &str) -> Vec<Arc<BindRequest>> {
        let mut found = self.requests.find(self.requests_by_node, node);
        found.retain(|request| is_fraction(request) && !is_finished(request));
        found
    }

    /// From now on changes are heard, beginning with all there is.
    pub(crate) fn wake(&self) {
        self.awake.store(true, Ordering::Relaxed);
        self.resync();
    }

    /// From now on changes are not heard.
    pub(crate) fn rest(&self) {
        self.awake.store(false, Ordering::Relaxed);
    }

    /// Asks for everything that may have been missed.
    pub(crate) fn resync(&self) {
        for request in self.requests.all() {
            if !is_finished(&request) {
                self.request_queue.add(Key::of(request.as_ref()));
                if is_fraction(&request) {
                    self.node_queue.add(node_of(&request).to_owned());
                }
            }
        }
        for pod in self.reservations.all() {
            if let Some(node) = place(&pod) {
                self.node_queue.add(node.to_owned());
            }
        }
        for pod in self.pods.all() {
            if let Some(node) = place(&pod)
                && !groups_of(&pod).is_empty()
            {
                self.node_queue.add(node.to_owned());
            }
        }
    }

    /// The API of pods in a namespace.
    pub(crate) fn pod_api(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.process.client.clone(), namespace)
    }

    /// The API of reservation pods.
    pub(crate) fn reservation_api(&self) -> Api<Pod> {
        self.pod_api(&self.namespace)
    }
}

/// Whether nothing is new of a pod that anybody here reads.
fn is_same(old: &Pod, new: &Pod) -> bool {
    fn read(pod: &Pod) -> impl PartialEq {
        let status = pod.status.as_ref();
        let status = status
            .map(|status| (&status.phase, &status.resource_claim_statuses, &status.extended_resource_claim_status));
        (status, bound_condition(pod))
    }
    // Of pods that share GPUs it is asked whether their containers run.
    only_status_differs(old, new, annotations::may_be_read) && read(old) == read(new) && groups_of(new).is_empty()
}

/// Of pods that are bound and share nothing only the place matters.
fn trim_pod(pod: &mut Pod) {
    let Some(node) = place(pod).map(str::to_owned) else { return };
    if groups_of(pod).is_empty() {
        pod.spec = Some(PodSpec { node_name: Some(node), ..PodSpec::default() });
        pod.metadata.annotations = None;
        pod.metadata.labels = None;
    }
}

fn trim_node(node: &mut Node) {
    node.spec = None;
    node.metadata.annotations = None;
    if let Some(status) = node.status.take() {
        node.status = Some(NodeStatus { node_info: status.node_info, ..NodeStatus::default() });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_kubelets_write_is_passed_over_unless_the_pod_shares_gpus_or_the_binder_reads_it() {
        let bound = json!({"metadata": {"name": "p", "uid": "u", "generation": 1},
            "spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Pending"}});
        let mut sharing = bound.clone();
        sharing["metadata"]["labels"] = json!({"runai-gpu-group": "g"});
        let read = |value: &Value| serde_json::from_value::<Pod>(value.clone()).expect("a pod");
        let runs = json!([{"name": "c", "ready": true, "restartCount": 0, "image": "i", "imageID": "",
            "state": {"running": {}}}]);
        for (before, field, value, expected) in [
            (&bound, "containerStatuses", runs.clone(), true),
            (&sharing, "containerStatuses", runs, false),
            (&bound, "phase", json!("Running"), false),
            (&bound, "conditions", json!([{"type": "PodBound", "status": "False"}]), false),
            (&bound, "conditions", json!([{"type": "Ready", "status": "True"}]), true),
            (&bound, "resourceClaimStatuses", json!([{"name": "d", "resourceClaimName": "p-d"}]), false),
        ] {
            let mut after = before.clone();
            after["status"][field] = value;
            assert_eq!(is_same(&read(before), &read(&after)), expected, "{field}");
        }
    }
}
