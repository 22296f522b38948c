//! Carries out what should happen to the reservation pods of a node, and remembers what went wrong with them.
//!
//! One pass per node at a time; a pass looks, decides ([`super::plan`]), acts once and is repeated on every change. Before a holder
//! goes because nobody needs it, the server itself is asked: a cache that is late must not cost a pod its GPU.

mod create;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kai_api::{
    BindRequest,
    names::{annotations, labels},
};
use kai_kit::{
    Key, Next,
    errors::{Class, classify, message},
    events::Kind,
    writes,
};
use kube::{Api, api::ListParams};
use parking_lot::Mutex;
use serde_json::json;

use super::{
    holder::Holder,
    plan::{Deed, Scene, Sharer, Trouble, plan},
};
use crate::{
    groups::{groups_of, told},
    platform::{Platform, platform_of},
    sharing,
    world::{World, has_ended, is_finished, is_fraction, node_of, place},
};

/// Labels cannot have longer values; requests for nodes with longer names are found without.
const LONGEST_LABEL: usize = 63;
/// When to look again at what the server knows better than the mirrors.
const SOON: Duration = Duration::from_secs(1);

/// Keeps the reservations.
pub(crate) struct Keeper {
    world: Arc<World>,
    /// By node and group.
    troubles: Mutex<BTreeMap<String, BTreeMap<String, Trouble>>>,
}

impl Keeper {
    /// A keeper that knows the troubles which an earlier binder noted in the requests that still wait.
    pub(crate) fn new(world: Arc<World>) -> Self {
        let mut troubles: BTreeMap<String, BTreeMap<String, Trouble>> = BTreeMap::new();
        for request in world.requests.all().iter().filter(|request| is_fraction(request) && !is_finished(request)) {
            let Some(status) = &request.status else { continue };
            let times = status.failed_reservations.and_then(|times| u32::try_from(times).ok()).unwrap_or(0);
            for group in request.spec.selected_gpu_groups.iter().filter(|_| times > 0) {
                let of_node = troubles.entry(node_of(request).to_owned()).or_default();
                let known = of_node.entry(group.clone()).or_default();
                if known.times < times {
                    known.times = times;
                    known.last = status.reason.clone().unwrap_or_default();
                }
            }
        }
        Self { world, troubles: Mutex::new(troubles) }
    }

    /// Why requests need not wait for a group, if so.
    pub(crate) fn verdict(&self, node: &str, group: &str) -> Option<String> {
        let troubles = self.troubles.lock();
        troubles.get(node)?.get(group)?.verdict().map(str::to_owned)
    }

    /// How many holders of one of these groups have failed, and why the last one did.
    pub(crate) fn failures(&self, node: &str, groups: &[String]) -> Option<(u32, String)> {
        let troubles = self.troubles.lock();
        let own = troubles.get(node)?;
        let worst = groups.iter().filter_map(|group| own.get(group)).max_by_key(|trouble| trouble.times)?;
        Some((worst.times, worst.last.clone()))
    }

    /// Looks at the reservations of a node and does what is due.
    pub(crate) async fn pass(&self, node: String) -> Next {
        if node.is_empty() {
            return Next::Done;
        }
        match self.try_pass(&node).await {
            Ok(next) => next,
            Err(error) => Next::Failed(format!("reservations of node {node}: {}", message(&error))),
        }
    }

    async fn try_pass(&self, node: &str) -> Result<Next, kube::Error> {
        let world = &self.world;
        let now = world.process.now();
        let holders: Vec<Holder> = world.reservations_on(node).iter().map(Holder::of).collect();
        let requests: Vec<Arc<BindRequest>> = world.fractions_for(node);
        let wanted: BTreeSet<String> = requests.iter().flat_map(|r| r.spec.selected_gpu_groups.clone()).collect();
        let object = self.node(node).await?;
        let sharers = self.sharers(node, object.as_deref(), &holders).await?;
        if holders.is_empty() && wanted.is_empty() && sharers.is_empty() {
            self.troubles.lock().remove(node);
            return Ok(Next::Done);
        }
        let troubles = self.troubles_of(node, &wanted, &sharers);
        let scene = Scene {
            holders: &holders,
            sharers: &sharers,
            wanted: &wanted,
            troubles: &troubles,
            node_exists: object.is_some(),
            now,
        };
        let deeds = plan(&scene);
        let missing = deeds.iter().filter_map(|deed| if let Deed::Create(group) = deed { Some(group) } else { None });
        let object = object.as_deref();
        let creates = missing.filter_map(|group| Some(self.create(object?, group, &requests, &sharers, &holders)));
        let mut outcome = join_all(creates).await.into_iter().collect::<Result<Vec<()>, _>>().map(|_| ());
        let mut next = Next::Done;
        for deed in &deeds {
            match self.carry_out(node, deed, &holders, &sharers, object.is_some()).await {
                Ok(Some(pause)) => next = sooner(next, pause),
                Ok(None) => {}
                Err(error) => outcome = Err(error),
            }
        }
        outcome.map(|()| next)
    }

    /// The pods on a node that use groups, with the devices they were told.
    async fn sharers(&self, node: &str, object: Option<&Node>, holders: &[Holder]) -> Result<Vec<Sharer>, kube::Error> {
        let mut sharers = Vec::new();
        let mode = self.world.settings.get().tegra_mode();
        // On a Jetson containers are told a number, which stays the same whatever the GPU is called.
        let by_name = object.is_none_or(|object| platform_of(object, mode) != Platform::Tegra);
        for pod in self.world.sharers_on(node).iter().filter(|pod| !has_ended(pod)) {
            let groups = groups_of(pod);
            for group in &groups {
                let mut device = told(pod, group);
                let held = holders.iter().any(|holder| holder.group == *group && holder.is_live());
                if device.is_none() && !held && groups.len() == 1 {
                    // A pod that KAI bound: only its ConfigMap knows.
                    device = sharing::told_by_map(&self.world.process.client, pod).await?;
                }
                let own = holders.iter().filter(|holder| holder.group == *group && holder.is_live());
                let held: Vec<&str> = own.filter_map(|holder| holder.device.as_deref()).collect();
                let mut runs = by_name && sharing::runs(pod);
                if let Some(old) = device.as_deref()
                    && runs
                    && !held.is_empty()
                    && !held.contains(&old)
                {
                    // Whoever told it of another device may have died before its annotation said so, too.
                    let text = sharing::visible_by_map(&self.world.process.client, pod).await?.unwrap_or_default();
                    runs = text.contains(old) || !held.iter().any(|new| text.contains(new));
                }
                sharers.push(Sharer { pod: Key::of(pod.as_ref()), group: group.clone(), told: device, runs });
            }
        }
        Ok(sharers)
    }

    async fn node(&self, node: &str) -> Result<Option<Arc<Node>>, kube::Error> {
        if let Some(found) = self.world.nodes.get(&Key::new("", node)) {
            return Ok(Some(found));
        }
        Ok(Api::<Node>::all(self.world.process.client.clone()).get_opt(node).await?.map(Arc::new))
    }

    /// Forgets troubles of groups that nobody needs any more, gives the others.
    fn troubles_of(&self, node: &str, wanted: &BTreeSet<String>, sharers: &[Sharer]) -> BTreeMap<String, Trouble> {
        let mut troubles = self.troubles.lock();
        let Some(own) = troubles.get_mut(node) else { return BTreeMap::new() };
        own.retain(|group, _| wanted.contains(group) || sharers.iter().any(|sharer| sharer.group == *group));
        own.clone()
    }

    /// Notes trouble with a group and wakes the requests that wait for it.
    fn trouble(&self, node: &str, group: &str, change: impl FnOnce(&mut Trouble, Timestamp)) {
        let now = self.world.process.now();
        change(self.troubles.lock().entry(node.to_owned()).or_default().entry(group.to_owned()).or_default(), now);
        self.wake(node, group);
    }

    fn wake(&self, node: &str, group: &str) {
        for request in self.world.fractions_for(node) {
            if request.spec.selected_gpu_groups.iter().any(|other| other == group) {
                self.world.request_queue.add(Key::of(request.as_ref()));
            }
        }
    }

    /// Does one thing; says after which time to look again, if so.
    async fn carry_out(
        &self,
        node: &str,
        deed: &Deed,
        holders: &[Holder],
        sharers: &[Sharer],
        node_exists: bool,
    ) -> Result<Option<Duration>, kube::Error> {
        let find = |name: &str| holders.iter().find(|holder| holder.name == name);
        let api = self.world.reservation_api();
        match deed {
            Deed::Create(_) => {}
            Deed::Look(time) => {
                let pause = Duration::try_from(time.duration_since(self.world.process.now()));
                return Ok(Some(pause.unwrap_or(SOON).max(Duration::from_millis(1))));
            }
            Deed::Release(name) => {
                let Some(holder) = find(name) else { return Ok(None) };
                if node_exists && !holder.group.is_empty() && self.is_needed(node, &holder.group).await? {
                    return Ok(Some(SOON));
                }
                // A kubelet that is gone will never say that the pod has ended.
                let grace = if node_exists { None } else { Some(0) };
                writes::delete(&api, holder.pod.as_ref(), grace).await?;
            }
            Deed::Replace(name, why) => {
                let Some(holder) = find(name) else { return Ok(None) };
                if writes::delete(&api, holder.pod.as_ref(), None).await? {
                    let (why, uid) = (why.clone(), holder.pod.metadata.uid.clone());
                    self.trouble(node, &holder.group, |trouble, now| {
                        if trouble.replaced != uid {
                            trouble.add(why, now);
                            trouble.replaced = uid;
                        }
                    });
                }
            }
            Deed::Drop(name) => {
                let Some(holder) = find(name) else { return Ok(None) };
                writes::delete(&api, holder.pod.as_ref(), None).await?;
            }
            Deed::Ask(name, restarts) => self.note(find(name), *restarts, true).await?,
            Deed::Note(name, restarts) => self.note(find(name), *restarts, false).await?,
            Deed::Retell(key, group, device) => self.retell(key, group, device).await?,
            Deed::Expect(name, device) => self.expect(node, find(name), device).await?,
            Deed::Move(name, group, device) => self.transfer(node, find(name), group, device).await?,
            Deed::Settle(group) => self.settle(node, group),
            Deed::Close(group, why) => self.close(node, group, why, sharers),
        }
        Ok(None)
    }

    /// Whether a group is needed, as the server knows it now.
    async fn is_needed(&self, node: &str, group: &str) -> Result<bool, kube::Error> {
        let client = self.world.process.client.clone();
        let mut parameters = ListParams::default();
        if node.len() <= LONGEST_LABEL {
            parameters = parameters.labels(&format!("{}={node}", labels::SELECTED_NODE));
        }
        let requests = Api::<BindRequest>::all(client.clone()).list(&parameters).await?;
        let waits = |request: &BindRequest| {
            let groups = &request.spec.selected_gpu_groups;
            node_of(request) == node
                && is_fraction(request)
                && !is_finished(request)
                && groups.iter().any(|g| g == group)
        };
        if requests.items.iter().any(waits) {
            return Ok(true);
        }
        let selectors = [format!("{}={group}", labels::GPU_GROUP), format!("{}{group}", labels::GPU_GROUP_PREFIX)];
        // Whoever wants may write such labels on pods of other schedulers.
        let ours = ListParams::default().fields(&format!("spec.schedulerName={}", self.world.scheduler));
        for selector in selectors {
            let pods = Api::<Pod>::all(client.clone()).list(&ours.clone().labels(&selector)).await?;
            let uses = |pod: &Pod| {
                let elsewhere = pod.metadata.namespace.as_deref() != Some(self.world.namespace.as_str());
                elsewhere && place(pod) == Some(node) && !has_ended(pod)
            };
            if pods.items.iter().any(uses) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn note(&self, holder: Option<&Holder>, restarts: i32, forget: bool) -> Result<(), kube::Error> {
        let Some(holder) = holder else { return Ok(()) };
        let mut changes = json!({annotations::RESERVATION_RESTARTS: restarts.to_string()});
        if forget {
            changes[annotations::RESERVED_GPU] = json!(null);
            if !holder.has_wrong_device() {
                // It had the right one: if it has another now, so have its pods.
                changes[annotations::RESERVATION_EXPECTS] = json!(null);
            }
        }
        let patch = json!({"metadata": {"uid": holder.pod.metadata.uid, "annotations": changes}});
        let api = self.world.reservation_api();
        match writes::merge(&api, self.world.process.component, &holder.name, &patch).await {
            Ok(changed) => self.world.reservations.saw(changed),
            Err(error) if classify(&error) == Class::Gone => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn retell(&self, key: &Key, group: &str, device: &str) -> Result<(), kube::Error> {
        let Some(pod) = self.world.pods.get(key) else { return Ok(()) };
        let old = told(&pod, group).unwrap_or_default();
        if let Some(changed) = sharing::retell(&self.world, &pod, group, device).await? {
            self.world.pods.saw(changed);
            let text = format!(
                "the GPU of group {group} was {old} and is {device} since its node started again; containers that start from now on \
                 get the new one"
            );
            self.world.process.events.tell(pod.as_ref(), Kind::Warning, "GpuChanged", text);
        }
        Ok(())
    }

    /// Notes on a holder that its device is the right one, and forgets the trouble there was.
    async fn expect(&self, node: &str, holder: Option<&Holder>, device: &str) -> Result<(), kube::Error> {
        let Some(holder) = holder else { return Ok(()) };
        let annotations = json!({annotations::RESERVATION_EXPECTS: device});
        let patch = json!({"metadata": {"uid": holder.pod.metadata.uid, "annotations": annotations}});
        match writes::merge(&self.world.reservation_api(), self.world.process.component, &holder.name, &patch).await {
            Ok(changed) => self.world.reservations.saw(changed),
            Err(error) if classify(&error) == Class::Gone => return Ok(()),
            Err(error) => return Err(error),
        }
        self.settle(node, &holder.group);
        Ok(())
    }

    /// From now on a holder stands for the group whose pods use its device.
    async fn transfer(
        &self,
        node: &str,
        holder: Option<&Holder>,
        group: &str,
        device: &str,
    ) -> Result<(), kube::Error> {
        let Some(holder) = holder else { return Ok(()) };
        let (labels, annotations) =
            (json!({labels::GPU_GROUP: group}), json!({annotations::RESERVATION_EXPECTS: device}));
        let patch = json!({"metadata": {"uid": holder.pod.metadata.uid, "labels": labels, "annotations": annotations}});
        match writes::merge(&self.world.reservation_api(), self.world.process.component, &holder.name, &patch).await {
            Ok(changed) => self.world.reservations.saw(changed),
            Err(error) if classify(&error) == Class::Gone => return Ok(()),
            Err(error) => return Err(error),
        }
        if let Some(object) = self.world.nodes.get(&Key::new("", node)) {
            let text = format!(
                "reservation pod {} got {device}, which pods of GPU group {group} use: it stands for that group from now on",
                holder.name
            );
            self.world.process.events.tell(object.as_ref(), Kind::Normal, "ReservationMoved", text);
        }
        // The group that it stood for may need another one.
        self.world.node_queue.add(node.to_owned());
        Ok(())
    }

    /// Forgets the trouble there was with a group, and lets requests go on.
    fn settle(&self, node: &str, group: &str) {
        let known = self.troubles.lock().get_mut(node).and_then(|troubles| troubles.remove(group)).is_some();
        if known {
            self.wake(node, group);
        }
    }

    fn close(&self, node: &str, group: &str, why: &str, sharers: &[Sharer]) {
        let known = self.verdict(node, group).is_some_and(|verdict| verdict == why);
        if !known {
            self.trouble(node, group, |trouble, now| {
                trouble.add(why.to_owned(), now);
                // Beyond every limit: it stays so until the group is gone or all is well with it.
                trouble.times = trouble.times.max(u32::MAX / 2);
            });
        }
        let events = &self.world.process.events;
        let text = format!("{why}; no more pods join the group, restart its pods to mend it");
        if let Some(object) = self.world.nodes.get(&Key::new("", node)) {
            events.tell(object.as_ref(), Kind::Warning, "ReservationConflict", text.clone());
        }
        for sharer in sharers.iter().filter(|sharer| sharer.group == group) {
            if let Some(pod) = self.world.pods.get(&sharer.pod) {
                events.tell(pod.as_ref(), Kind::Warning, "ReservationConflict", text.clone());
            }
        }
    }
}

fn sooner(next: Next, pause: Duration) -> Next {
    match next {
        Next::After(known) => Next::After(known.min(pause)),
        _ => Next::After(pause),
    }
}
