//! One BindRequest, carried on by one step: look, decide ([`crate::step`]), do, and look again later.
//!
//! Everything done here can be done twice: after a crash the next binder begins from what it sees.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::try_join;
use k8s_openapi::api::core::v1::{Binding, Node, Pod};
use kai_api::{BindRequest, names::annotations};
use kai_kit::{
    Key, Next,
    errors::{Class, classify, message},
    writes,
};
use kube::{Api, ResourceExt, api::PostParams, core::Status};
use serde_json::{Map, Value, json};

use crate::{
    claims, extended_claim,
    failure::Failure,
    groups,
    metrics::Metrics,
    outcome::Outcome,
    platform::{Platform, platform_of},
    reservation::{Hold, Holder, Keeper, hold, unguarded},
    rollback, sharing,
    step::{Action, View, owner, step},
    volumes,
    world::{World, has_ended, is_finished, is_fraction, node_of, place, pod_key},
};

/// When to look again at reservations, should no change wake the request.
const RESERVATIONS: Duration = Duration::from_secs(5);
/// When to look again at volumes and claims, whose changes nobody tells.
const VOLUMES: Duration = Duration::from_secs(1);

/// Carries out BindRequests.
pub(crate) struct Binder {
    pub(crate) world: Arc<World>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) metrics: Metrics,
}

impl Binder {
    /// Carries one request on.
    pub(crate) async fn work(&self, key: Key) -> Next {
        match self.try_work(&key).await {
            Ok(next) => next,
            Err(error) => Next::Failed(format!("BindRequest {key}: {}", message(&error))),
        }
    }

    async fn try_work(&self, key: &Key) -> Result<Next, kube::Error> {
        let world = &self.world;
        self.clean_withdrawn(key).await?;
        let Some(request) = world.requests.get(key).filter(|request| !is_finished(request)) else {
            return Ok(Next::Done);
        };
        let pod = self.pod(&request).await?;
        let node = self.node(node_of(&request)).await?;
        let holds = self.holds(&request, node.as_deref());
        let now = world.process.now();
        let action = step(&View { request: &request, pod: pod.as_deref(), node: node.as_deref(), holds: &holds, now });
        let outcome = Outcome::new(world, &request, pod.as_deref(), &self.metrics);
        let failure = match action {
            Action::Nothing => return Ok(Next::Done),
            Action::Later(pause) => return Ok(Next::After(pause)),
            Action::Discard => {
                let api = Api::<BindRequest>::namespaced(world.process.client.clone(), &key.namespace);
                writes::delete(&api, request.as_ref(), None).await?;
                return Ok(Next::Done);
            }
            Action::Succeed => return outcome.succeeded().await,
            Action::Await(what) => {
                world.node_queue.add(node_of(&request).to_owned());
                let failures = self.keeper.failures(node_of(&request), &request.spec.selected_gpu_groups);
                outcome.reserves(&what, failures).await?;
                return Ok(Next::After(RESERVATIONS));
            }
            Action::Fail(failure) => failure,
            Action::Bind(devices) => match (&pod, &node) {
                (Some(pod), Some(node)) => match self.bind(&request, pod, node, &devices).await {
                    Ok(()) => return outcome.succeeded().await,
                    Err(failure) => failure,
                },
                _ => return Ok(Next::Done),
            },
        };
        let failure = match failure {
            Failure::Waiting(what) => match self.patience(&request) {
                None => {
                    outcome.prepares(&what).await?;
                    return Ok(Next::After(VOLUMES));
                }
                Some(waited) => Failure::Refused(format!("not ready within {} s: {what}", waited.as_secs())),
            },
            other => other,
        };
        let verdict = outcome.judge(failure);
        if verdict.is_final() {
            // What the attempt wrote goes before it is called failed, so that a crash in between repeats the cleaning.
            rollback::undo(world, &request, pod.as_deref()).await?;
        }
        outcome.failed(verdict).await
    }

    /// How long a request has waited for volumes and claims, once that is too long. Since when it waits is in its status: binders
    /// that come and go wait no longer than one that stays.
    fn patience(&self, request: &BindRequest) -> Option<Duration> {
        let since = request.status.as_ref()?.waiting_since.as_ref()?;
        let timeout = self.world.settings.get().volume_timeout;
        let waited = self.world.process.now().duration_since(since.0);
        (Duration::try_from(waited).unwrap_or_default() >= timeout).then_some(timeout)
    }

    /// The pod of a request; asked for if the mirror has none or another one.
    async fn pod(&self, request: &BindRequest) -> Result<Option<Arc<Pod>>, kube::Error> {
        let key = pod_key(request);
        let uid = owner(request);
        if let Some(pod) = self.world.pods.get(&key)
            && uid.is_none_or(|uid| pod.metadata.uid.as_deref() == Some(uid))
        {
            return Ok(Some(pod));
        }
        Ok(self.world.pod_api(&key.namespace).get_opt(&key.name).await?.map(Arc::new))
    }

    async fn node(&self, name: &str) -> Result<Option<Arc<Node>>, kube::Error> {
        if name.is_empty() {
            return Ok(None);
        }
        if let Some(node) = self.world.nodes.get(&Key::new("", name)) {
            return Ok(Some(node));
        }
        Ok(Api::<Node>::all(self.world.process.client.clone()).get_opt(name).await?.map(Arc::new))
    }

    fn holds(&self, request: &BindRequest, object: Option<&Node>) -> Vec<Hold> {
        let node = node_of(request);
        let holders = || self.world.reservations_on(node).iter().map(Holder::of).collect::<Vec<Holder>>();
        let timeout = self.world.settings.get().allocation_timeout;
        let now = self.world.process.now();
        if !is_fraction(request) {
            let told = if takes_whole(request) { self.told_on(node) } else { BTreeMap::new() };
            if told.is_empty() {
                return Vec::new();
            }
            let mode = self.world.settings.get().tegra_mode();
            let by_name = object.is_none_or(|object| platform_of(object, mode) != Platform::Tegra);
            return unguarded(&told, by_name, &holders(), now, timeout).map(Hold::Waiting).into_iter().collect();
        }
        let holders = holders();
        let groups = request.spec.selected_gpu_groups.iter();
        let holds = groups.map(|group| {
            let hold = hold(group, &holders, self.keeper.verdict(node, group).as_deref(), now, timeout);
            match hold {
                Hold::Ready(device) if self.is_taken(node, group, &device) => {
                    Hold::Waiting(format!("another GPU than {device}, which pods of another group use"))
                }
                hold => hold,
            }
        });
        holds.collect()
    }

    /// The devices that pods on a node were told, by group, but for groups that cannot be helped.
    fn told_on(&self, node: &str) -> BTreeMap<String, BTreeSet<String>> {
        let mut told: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for pod in self.world.sharers_on(node).iter().filter(|pod| !has_ended(pod)) {
            for group in groups::groups_of(pod) {
                if let Some(device) = groups::told(pod, &group) {
                    told.entry(group).or_default().insert(device);
                }
            }
        }
        told.retain(|group, _| self.keeper.verdict(node, group).is_none());
        told
    }

    /// Whether pods of other groups were told a device, and none of this group.
    fn is_taken(&self, node: &str, group: &str, device: &str) -> bool {
        let sharers = self.world.sharers_on(node);
        let live = || sharers.iter().filter(|pod| !has_ended(pod));
        let uses = |pod: &Pod, group: &str| groups::told(pod, group).as_deref() == Some(device);
        let others = |pod: &Pod| groups::groups_of(pod).iter().any(|other| other != group && uses(pod, other));
        live().any(|pod| others(pod)) && !live().any(|pod| uses(pod, group))
    }

    /// Prepares a pod and binds it.
    async fn bind(&self, request: &BindRequest, pod: &Pod, node: &Node, devices: &[String]) -> Result<(), Failure> {
        let world = &self.world;
        let settings = world.settings.get();
        if settings.volumes {
            volumes::place(world, pod, node).await?;
        }
        if settings.claims {
            claims::allocate(world, request, pod, node).await?;
            extended_claim::allocate(world, request, pod).await?;
        }
        if !devices.is_empty() {
            let join = self.join_groups(request, pod, devices);
            let tell = async {
                if settings.sharing { sharing::tell(world, request, pod, node, devices).await } else { Ok(()) }
            };
            try_join(join, tell).await?;
        }
        self.post_binding(request, pod).await
    }

    async fn join_groups(&self, request: &BindRequest, pod: &Pod, devices: &[String]) -> Result<(), Failure> {
        let Some(patch) = groups::join(pod, &request.spec.selected_gpu_groups, devices) else { return Ok(()) };
        let api = self.world.pod_api(&pod.namespace().unwrap_or_default());
        match writes::merge(&api, self.world.process.component, &pod.name_any(), &patch).await {
            Ok(changed) => {
                self.world.pods.saw(changed);
                Ok(())
            }
            Err(error) => Err(Failure::of("label the pod with its GPU groups", &error)),
        }
    }

    async fn post_binding(&self, request: &BindRequest, pod: &Pod) -> Result<(), Failure> {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let node = node_of(request);
        let api = self.world.pod_api(&namespace);
        let body = json!({
            "metadata": {"name": name, "namespace": namespace, "uid": pod.metadata.uid, "annotations": told(request)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let binding: Binding = serde_json::from_value(body).map_err(|error| Failure::Refused(error.to_string()))?;
        let answer =
            api.create_subresource::<Binding, Status>("binding", &name, &PostParams::default(), &binding).await;
        let Err(error) = answer else { return Ok(()) };
        // The answer may have been lost, or somebody else was first: only the pod knows.
        match api.get_opt(&name).await {
            Ok(Some(found)) if found.metadata.uid == pod.metadata.uid => match place(&found) {
                Some(place) if place == node => return Ok(()),
                Some(place) => {
                    let text = format!("pod {namespace}/{name} is already on node {place}, not on node {node}");
                    return Err(Failure::Gone(text));
                }
                None if found.metadata.deletion_timestamp.is_some() => {
                    return Err(Failure::Gone(format!("pod {namespace}/{name} is being deleted")));
                }
                None => {}
            },
            Ok(_) => return Err(Failure::Gone(format!("pod {namespace}/{name} is gone"))),
            Err(_) => {}
        }
        Err(match classify(&error) {
            Class::Gone => Failure::Transient(format!("bind to node {node}: {}", message(&error))),
            _ => Failure::of(&format!("bind to node {node}"), &error),
        })
    }

    /// Cleans up after a request that was taken away before it was finished.
    async fn clean_withdrawn(&self, key: &Key) -> Result<(), kube::Error> {
        let old = self.world.withdrawn.lock().get(key).cloned();
        let Some(old) = old else { return Ok(()) };
        // A new request for the same node goes on with what the old one left.
        let goes_on = self.world.requests.get(key).is_some_and(|new| node_of(&new) == node_of(&old));
        if !goes_on {
            let pod = self.pod(&old).await?;
            let ours = pod.filter(|pod| owner(&old).is_none_or(|uid| pod.metadata.uid.as_deref() == Some(uid)));
            rollback::undo(&self.world, &old, ours.as_deref()).await?;
        }
        self.world.withdrawn.lock().remove(key);
        Ok(())
    }
}

/// Whether a request is for whole GPUs.
fn takes_whole(request: &BindRequest) -> bool {
    !is_fraction(request) && request.spec.received_gpu.as_ref().is_some_and(|gpu| gpu.count.unwrap_or(0) > 0)
}

/// What the binding writes on the pod.
fn told(request: &BindRequest) -> Map<String, Value> {
    let mut told = Map::new();
    if let Some(kind) = &request.spec.received_resource_type {
        told.insert(annotations::RECEIVED_RESOURCE_TYPE.to_owned(), json!(kind));
    }
    if !request.spec.predicted_numa_zones.is_empty() {
        let zones = json!(request.spec.predicted_numa_zones).to_string();
        told.insert(annotations::NUMA_PREDICTED.to_owned(), json!(zones));
    }
    told
}
