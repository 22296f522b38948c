//! What the controllers know of the cluster, and which work a change concerns.
//!
//! A [`Cache`] per kind, fed by watches and by the answers to our own writes: so a pod that was just created is counted at once
//! and never created twice. An older version of an object never replaces a newer one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Namespace (empty for cluster-scoped kinds) and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// The key of an object.
    pub fn of(object: &impl ResourceExt) -> Self {
        Self { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }
}

/// One thing to reconcile. The order of the variants is the order of work: owners before what they own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// The default service account of a namespace.
    ServiceAccount(String),
    /// A CronJob.
    CronJob(Key),
    /// A Deployment.
    Deployment(Key),
    /// A ReplicaSet.
    ReplicaSet(Key),
    /// A StatefulSet.
    StatefulSet(Key),
    /// A DaemonSet.
    DaemonSet(Key),
    /// A Job.
    Job(Key),
    /// A pod whose Job is no more.
    Orphan(Key),
    /// A PodDisruptionBudget.
    DisruptionBudget(Key),
}

/// A kind the controllers watch.
pub trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Its cache.
    fn cache(world: &mut World) -> &mut Cache<Self>;

    /// The work that a change of this object may concern.
    fn concerns(&self, world: &World) -> Vec<Work>;
}

/// All caches.
#[derive(Default)]
pub struct World {
    /// Namespaces.
    pub namespaces: Cache<Namespace>,
    /// Service accounts.
    pub service_accounts: Cache<ServiceAccount>,
    /// Nodes.
    pub nodes: Cache<Node>,
    /// Deployments.
    pub deployments: Cache<Deployment>,
    /// Replica sets.
    pub replica_sets: Cache<ReplicaSet>,
    /// Stateful sets.
    pub stateful_sets: Cache<StatefulSet>,
    /// Daemon sets.
    pub daemon_sets: Cache<DaemonSet>,
    /// Template history of stateful and daemon sets.
    pub revisions: Cache<ControllerRevision>,
    /// Jobs.
    pub jobs: Cache<Job>,
    /// Cron jobs.
    pub cron_jobs: Cache<CronJob>,
    /// Disruption budgets.
    pub budgets: Cache<PodDisruptionBudget>,
    /// Pods.
    pub pods: Cache<Pod>,
}

/// A change seen by a watch, to be applied to the [`World`]; yields the work it concerns.
pub struct Change(Box<Apply>);

type Apply = dyn FnOnce(&mut World) -> Vec<Work> + Send;

impl Change {
    /// Wraps a watch event.
    pub fn new<K: Watched>(event: Event<K>) -> Self {
        Self(Box::new(move |world| match event {
            Event::Init => {
                K::cache(world).listing = Some(BTreeSet::new());
                Vec::new()
            }
            Event::InitApply(object) | Event::Apply(object) => world.seen(object),
            Event::Delete(object) => world.gone(&object),
            Event::InitDone => world.forget_unlisted::<K>(),
        }))
    }

    /// Applies the change.
    pub fn apply(self, world: &mut World) -> Vec<Work> {
        (self.0)(world)
    }
}

impl World {
    /// Takes in an object and says what it concerns, before and after.
    pub fn seen<K: Watched>(&mut self, object: K) -> Vec<Work> {
        let key = Key::of(&object);
        // What we wrote after a list began may not be in it.
        if let Some(listed) = &mut K::cache(self).listing {
            listed.insert(key.clone());
        }
        if K::cache(self).knows(&key, &object) {
            return Vec::new();
        }
        let object = Arc::new(object);
        let old = K::cache(self).insert(key, object.clone());
        let mut work = object.concerns(self);
        if let Some(old) = old {
            work.extend(old.concerns(self));
        }
        work
    }

    /// Drops an object and says what that concerns.
    pub fn gone<K: Watched>(&mut self, object: &K) -> Vec<Work> {
        let key = Key::of(object);
        match K::cache(self).get(&key) {
            // A successor of the same name is not the object that went.
            Some(current) if current.meta().uid != object.meta().uid => Vec::new(),
            Some(_) => {
                K::cache(self).remove(&key);
                object.concerns(self)
            }
            None => Vec::new(),
        }
    }

    /// Whether a pod belongs to a Job that is not there; one of the same name made later is another.
    pub fn lost_its_job(&self, pod: &Pod) -> bool {
        let Some(owner) = controller_of(pod).filter(|owner| owner.kind == "Job") else { return false };
        let key = Key { namespace: pod.namespace().unwrap_or_default(), name: owner.name.clone() };
        self.jobs.get(&key).is_none_or(|job| job.metadata.uid.as_ref() != Some(&owner.uid))
    }

    fn forget_unlisted<K: Watched>(&mut self) -> Vec<Work> {
        let Some(listed) = K::cache(self).listing.take() else { return Vec::new() };
        let gone: Vec<Arc<K>> =
            K::cache(self).objects.iter().filter(|(key, _)| !listed.contains(key)).map(|(_, o)| o.clone()).collect();
        gone.iter().flat_map(|object| self.gone(object.as_ref())).collect()
    }
}

/// The objects of one kind, by key and by the uid of their controller.
pub struct Cache<K> {
    objects: BTreeMap<Key, Arc<K>>,
    by_controller: BTreeMap<String, BTreeSet<Key>>,
    listing: Option<BTreeSet<Key>>,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), by_controller: BTreeMap::new(), listing: None }
    }
}

impl<K: Resource<DynamicType = ()>> Cache<K> {
    /// The object of this key.
    pub fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    /// All objects of a namespace, by name.
    pub fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<K>> {
        let first = Key { namespace: namespace.to_owned(), name: String::new() };
        self.objects.range(first..).take_while(move |(key, _)| key.namespace == namespace).map(|(_, object)| object)
    }

    /// All objects, by namespace and name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    /// The objects whose controller has this uid, by name.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        let keys = self.by_controller.get(uid).into_iter().flatten();
        keys.filter_map(|key| self.objects.get(key).cloned()).collect()
    }

    /// Whether this very version of an object, or a newer one, is here.
    fn knows(&self, key: &Key, object: &K) -> bool {
        self.objects.get(key).is_some_and(|current| {
            current.meta().uid == object.meta().uid && revision(current.as_ref()) >= revision(object)
        })
    }

    /// Puts an object in; the old version comes back.
    fn insert(&mut self, key: Key, object: Arc<K>) -> Option<Arc<K>> {
        let old = self.remove(&key);
        if let Some(controller) = controller_of(object.as_ref()) {
            self.by_controller.entry(controller.uid.clone()).or_default().insert(key.clone());
        }
        self.objects.insert(key, object);
        old
    }

    /// Takes an object out.
    pub fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let old = self.objects.remove(key)?;
        if let Some(controller) = controller_of(old.as_ref())
            && let Some(siblings) = self.by_controller.get_mut(&controller.uid)
        {
            siblings.remove(key);
            if siblings.is_empty() {
                self.by_controller.remove(&controller.uid);
            }
        }
        Some(old)
    }
}

fn revision(object: &impl Resource) -> u64 {
    object.meta().resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The owner reference that controls an object.
pub fn controller_of(object: &impl Resource) -> Option<&OwnerReference> {
    object.meta().owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

fn owner_work(object: &impl ResourceExt) -> Option<Work> {
    let owner = controller_of(object)?;
    let key = Key { namespace: object.namespace().unwrap_or_default(), name: owner.name.clone() };
    match owner.kind.as_str() {
        "ReplicaSet" => Some(Work::ReplicaSet(key)),
        "Deployment" => Some(Work::Deployment(key)),
        "StatefulSet" => Some(Work::StatefulSet(key)),
        "DaemonSet" => Some(Work::DaemonSet(key)),
        "Job" => Some(Work::Job(key)),
        "CronJob" => Some(Work::CronJob(key)),
        _ => None,
    }
}

impl Watched for Namespace {
    fn cache(world: &mut World) -> &mut Cache<Self> {
        &mut world.namespaces
    }

    fn concerns(&self, _: &World) -> Vec<Work> {
        vec![Work::ServiceAccount(self.name_any())]
    }
}

impl Watched for ServiceAccount {
    fn cache(world: &mut World) -> &mut Cache<Self> {
        &mut world.service_accounts
    }

    fn concerns(&self, _: &World) -> Vec<Work> {
        vec![Work::ServiceAccount(self.namespace().unwrap_or_default())]
    }
}

impl Watched for Node {
    fn cache(world: &mut World) -> &mut Cache<Self> {
        &mut world.nodes
    }

    fn concerns(&self, world: &World) -> Vec<Work> {
        world.daemon_sets.all().map(|set| Work::DaemonSet(Key::of(set.as_ref()))).collect()
    }
}

impl Watched for Deployment {
    fn cache(world: &mut World) -> &mut Cache<Self> {
        &mut world.deployments
    }

    fn concerns(&self, _: &World) -> Vec<Work> {
        vec![Work::Deployment(Key::of(self))]
    }
}

impl Watched for ReplicaSet {
    fn cache(world: &mut World) -> &mut Cache<Self> {
        &mut world.replica_sets
    }

    fn concerns(&self, world: &World) -> Vec<Work> {
        let mut work = vec![Work::ReplicaSet(Key::of(self))];
        if let Some(owner) = owner_work(self) {
            work.push(owner);
        } else {
            // An orphan may be adopted by any deployment of its namespace.
            let namespace = self.namespace().unwrap_or_default();
            work.extend(world.deployments.in_namespace(&namespace).map(|d| Work::Deployment(Key::of(d.as_ref()))));
        }
        work
    }
}

impl Watched for StatefulSet {
    fn cache(world: &mut World) -> &mut Cache<Self> {
        &mut world.stateful_sets
    }

    fn concerns(&self, _: &World) -> Vec<Work> {
        vec![Work::StatefulSet(Key::of(self))]
    }
}

impl Watched for DaemonSet {
    fn cache(world: &mut World) -> &mut Cache<Self> {
        &mut world.daemon_sets
    }

    fn concerns(&self, _: &World) -> Vec<Work> {
        vec![Work::DaemonSet(Key::of(self))]
    }
}

impl Watched for ControllerRevision {
    fn cache(world: &mut World) -> &mut Cache<Self> {
        &mut world.revisions
    }

    fn concerns(&self, _: &World) -> Vec<Work> {
        owner_work(self).into_iter().collect()
    }
}

impl Watched for Job {
    fn cache(world: &mut World) -> &mut Cache<Self> {
        &mut world.jobs
    }

    fn concerns(&self, world: &World) -> Vec<Work> {
        let mut work = vec![Work::Job(Key::of(self))];
        work.extend(owner_work(self));
        let pods = world.pods.controlled_by(self.metadata.uid.as_deref().unwrap_or_default());
        let orphans = pods.into_iter().filter(|pod| world.lost_its_job(pod));
        work.extend(orphans.map(|pod| Work::Orphan(Key::of(pod.as_ref()))));
        work
    }
}

impl Watched for CronJob {
    fn cache(world: &mut World) -> &mut Cache<Self> {
        &mut world.cron_jobs
    }

    fn concerns(&self, _: &World) -> Vec<Work> {
        vec![Work::CronJob(Key::of(self))]
    }
}

impl Watched for PodDisruptionBudget {
    fn cache(world: &mut World) -> &mut Cache<Self> {
        &mut world.budgets
    }

    fn concerns(&self, _: &World) -> Vec<Work> {
        vec![Work::DisruptionBudget(Key::of(self))]
    }
}

impl Watched for Pod {
    fn cache(world: &mut World) -> &mut Cache<Self> {
        &mut world.pods
    }

    fn concerns(&self, world: &World) -> Vec<Work> {
        let namespace = self.namespace().unwrap_or_default();
        let mut work: Vec<Work> = owner_work(self).into_iter().collect();
        if world.lost_its_job(self) {
            work.push(Work::Orphan(Key::of(self)));
        }
        if controller_of(self).is_none() && !self.labels().is_empty() {
            // An orphan may be adopted by a replica set of its namespace.
            work.extend(world.replica_sets.in_namespace(&namespace).map(|s| Work::ReplicaSet(Key::of(s.as_ref()))));
        }
        // A deployment that waits for its old pods to go counts pods, not only replica sets.
        if let Some(Work::ReplicaSet(key)) = work.first()
            && let Some(set) = world.replica_sets.get(key)
        {
            work.extend(owner_work(set.as_ref()));
        }
        work.extend(world.budgets.in_namespace(&namespace).map(|b| Work::DisruptionBudget(Key::of(b.as_ref()))));
        work
    }
}
