//! One pod: find its workload, see to the group, tie the pod to it.
//!
//! Every write is one that may have been made before, by an earlier attempt whose answer was lost, by another replica
//! or by KAI. The oldest living pod of a group speaks for it: pods that say different things do not overwrite each
//! other's words in turns.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::SignedDuration;
use k8s_openapi::api::{
    core::v1::{Namespace, Pod},
    scheduling::v1::PriorityClass,
};
use kai_api::{PodGroup, is_alone, named_group, names::annotations};
use kai_kit::{Class, Index, Key, Mirror, Next, Process, WorkQueue, classify, errors::message, events::Kind, writes};
use kube::Api;
use parking_lot::RwLock;

use crate::{
    apply,
    crowd::{Crowd, LATER},
    error::Trouble,
    kinds,
    metrics::Numbers,
    options::Options,
    owner::{Workload, entry},
    rules::Rules,
    run::Selector,
    turnstile::Turnstile,
    type_defaults::TypeDefaults,
    walk::{Chain, Owners},
    wanted::Wanted,
};

/// Reason of events about what is wrong.
const WARNING: &str = "PodGrouperWarning";
/// How many objects a kind may ask for.
const MOST_OBJECTS: usize = 8;
/// A bound pod is looked at again this many times later than a waiting one.
const CALM: u32 = 10;

/// The group of a pod that is older than this is not put off.
const LATEST: SignedDuration = SignedDuration::from_secs(30);

/// Everything that working on a pod takes.
pub(crate) struct Grouper {
    pub process: Process,
    pub options: Options,
    pub queue: WorkQueue<Key>,
    pub turnstile: Turnstile,
    pub crowd: Crowd,
    pub owners: Arc<Owners>,
    pub pods: Mirror<Pod>,
    pub pods_by_group: Index,
    pub groups: Mirror<PodGroup>,
    pub classes: Mirror<PriorityClass>,
    /// Only if namespaces are selected by label.
    pub namespaces: Option<(Mirror<Namespace>, Selector)>,
    pub defaults: Arc<RwLock<TypeDefaults>>,
    pub numbers: Numbers,
}

impl Grouper {
    /// Works on one pod.
    pub(crate) async fn reconcile(&self, key: Key) -> Next {
        let Some(pod) = self.pods.get(&key).filter(|pod| self.is_ours(pod, &key)) else { return Next::Done };
        match self.attempt(&pod, &key).await {
            Ok(Outcome::Grouped) => Next::After(self.pause(&pod)),
            Ok(Outcome::PutOff) => Next::After(LATER),
            Ok(Outcome::LeftAlone) | Err(Trouble::Parked) => Next::Done,
            // What it belongs to goes before it; it is about to follow.
            Err(_) if pod.metadata.deletion_timestamp.is_some() => Next::Done,
            Err(Trouble::Unsettled(_)) if named_group(&pod).is_some() => Next::After(self.pause(&pod)),
            Err(trouble) => {
                self.numbers.troubles.inc();
                if self.queue.failures(&key) >= trouble.patience() {
                    self.process.events.tell(pod.as_ref(), Kind::Warning, WARNING, trouble.to_string());
                }
                Next::Failed(trouble.to_string())
            }
        }
    }

    async fn attempt(&self, pod: &Pod, key: &Key) -> Result<Outcome, Trouble> {
        if self.is_put_off(pod, key) {
            return Ok(Outcome::PutOff);
        }
        let chain = self.owners.chain(pod, key).await?;
        if chain.owners.iter().any(|owner| is_skipped(Some(&owner.annotations))) {
            return Ok(Outcome::LeftAlone);
        }
        let mut wanted = self.wanted(pod, key, &chain).await?;
        let alone = is_alone(pod);
        if alone && named_group(pod).is_some_and(|present| present != wanted.name) {
            // Somebody put it into a group of their own.
            return Ok(Outcome::LeftAlone);
        }
        let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        if alone
            && bound
            && let Some(live) = self.groups.get(&Key::new(&wanted.namespace, &wanted.name))
        {
            // Kubelets and networks write on running pods, each time once per pod; a group is not told of it.
            wanted.annotations.retain(|name, _| entry(live.metadata.annotations.as_ref(), name).is_some());
        }
        self.see_to_group(&wanted, key).await?;
        self.tie(pod, &wanted, key).await?;
        for warning in chain.unreadable.iter().chain(&wanted.warnings) {
            self.process.events.tell(pod, Kind::Warning, WARNING, warning.clone());
        }
        Ok(Outcome::Grouped)
    }

    async fn wanted(&self, pod: &Pod, key: &Key, chain: &Chain) -> Result<Wanted, Trouble> {
        let mut objects = BTreeMap::new();
        let top =
            chain.owners.last().map(AsRef::as_ref).ok_or_else(|| Trouble::Server("the pod has no uid".to_owned()))?;
        let kind = kinds::of(&top.reference);
        loop {
            let workload = Workload { pod, owners: &chain.owners, top, objects: &objects };
            let Some(reference) = kind.needs(&workload).filter(|_| objects.len() < MOST_OBJECTS) else {
                let defaults = self.defaults.read();
                let rules = Rules {
                    queue_label: &self.options.queue_label_key,
                    node_pool_label: &self.options.nodepool_label_key,
                    class_exists: &|class| self.classes.get(&Key::new("", class)).is_some(),
                    group_exists: &|name| self.groups.get(&Key::new(&key.namespace, name)).is_some(),
                    keep_legacy: self.options.search_legacy_pg,
                    defaults: &defaults,
                };
                return kind.group(&workload, &rules);
            };
            let object = self.owners.object(&reference, key).await?;
            objects.insert(reference, object);
        }
    }

    /// Makes the group what it should be.
    async fn see_to_group(&self, wanted: &Wanted, key: &Key) -> Result<(), Trouble> {
        let group = Key::new(&wanted.namespace, &wanted.name);
        let live = match self.groups.get(&group) {
            Some(live) => live,
            None => self.create(wanted, &group, key).await?,
        };
        let (queue, pool) = (&self.options.queue_label_key, &self.options.nodepool_label_key);
        let Some(patch) = apply::group_patch(&live, wanted, queue, pool) else { return Ok(()) };
        if let Some(speaker) = self.speaker(&group).filter(|speaker| speaker != key) {
            self.queue.add(speaker);
            return Ok(());
        }
        let api: Api<PodGroup> = Api::namespaced(self.process.client.clone(), &group.namespace);
        match writes::merge(&api, self.process.component, &group.name, &patch).await {
            Ok(live) => {
                self.groups.saw(live);
                self.numbers.groups_patched.inc();
                Ok(())
            }
            Err(error) => Err(refusal(&error, &format!("PodGroup `{}` not changed", group.name))),
        }
    }

    async fn create(&self, wanted: &Wanted, group: &Key, key: &Key) -> Result<Arc<PodGroup>, Trouble> {
        let Some(_pass) = self.turnstile.enter(format!("group {group}"), key) else { return Err(Trouble::Parked) };
        let api: Api<PodGroup> = Api::namespaced(self.process.client.clone(), &group.namespace);
        let fresh = wanted.to_pod_group(&self.options.queue_label_key, &self.options.nodepool_label_key);
        let live = match writes::create(&api, self.process.component, &fresh).await {
            Ok(live) => {
                self.numbers.groups_created.inc();
                live
            }
            // An earlier attempt, or another replica: the watch is about to tell.
            Err(error) if classify(&error) == Class::Exists => return Err(Trouble::Server(message(&error))),
            Err(error) => return Err(refusal(&error, &format!("PodGroup `{}` not created", group.name))),
        };
        self.groups.saw(live.clone());
        Ok(self.groups.get(group).unwrap_or_else(|| Arc::new(live)))
    }

    /// Tells the pod its group.
    async fn tie(&self, pod: &Pod, wanted: &Wanted, key: &Key) -> Result<(), Trouble> {
        let Some(patch) = apply::pod_patch(pod, wanted) else { return Ok(()) };
        let api: Api<Pod> = Api::namespaced(self.process.client.clone(), &key.namespace);
        match writes::merge(&api, self.process.component, &key.name, &patch).await {
            Ok(pod) => {
                self.pods.saw(pod);
                self.numbers.pods_tied.inc();
                Ok(())
            }
            // It is gone; the watch will say so.
            Err(error) if classify(&error) == Class::Gone => Ok(()),
            Err(error) => Err(refusal(&error, "the pod was not told its group")),
        }
    }

    /// The oldest living pod of a group.
    fn speaker(&self, group: &Key) -> Option<Key> {
        let pods = self.pods.find(self.pods_by_group, &group.to_string());
        let living = pods.iter().filter(|pod| {
            let going = is_over(pod) || pod.metadata.deletion_timestamp.is_some();
            !going && !is_skipped(pod.metadata.annotations.as_ref())
        });
        let oldest = living.min_by_key(|pod| {
            (pod.metadata.creation_timestamp.as_ref().map(|time| time.0), pod.metadata.name.clone())
        })?;
        Some(Key::of(oldest.as_ref()))
    }

    fn is_ours(&self, pod: &Pod, key: &Key) -> bool {
        let scheduler = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
        let selected = self.namespaces.as_ref().is_none_or(|(namespaces, selector)| {
            let namespace = namespaces.get(&Key::new("", &key.namespace));
            namespace.is_some_and(|namespace| selector.matches(namespace.metadata.labels.as_ref()))
        });
        let skipped = is_skipped(pod.metadata.annotations.as_ref());
        scheduler == Some(&self.options.scheduler_name) && selected && !skipped && !is_over(pod)
    }

    /// Whether others come first, and its group is not there yet.
    fn is_put_off(&self, pod: &Pod, key: &Key) -> bool {
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let is_new = created.is_some_and(|created| self.process.now().duration_since(created) < LATEST);
        let group = kai_api::group_of(pod).filter(|_| is_new && self.crowd.comes_first(pod));
        group.is_some_and(|group| self.groups.get(&Key::new(&key.namespace, &group)).is_none())
    }

    fn pause(&self, pod: &Pod) -> Duration {
        let pause = Duration::from_secs(self.options.resync_seconds.max(1));
        let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        if bound { pause.saturating_mul(CALM) } else { pause }
    }
}

enum Outcome {
    Grouped,
    PutOff,
    LeftAlone,
}

/// Whether a pod has ended.
pub(crate) fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_skipped(notes: Option<&BTreeMap<String, String>>) -> bool {
    entry(notes, annotations::SKIP_POD_GROUPER) == Some("true")
}

fn refusal(error: &kube::Error, what: &str) -> Trouble {
    let text = format!("{what}: {}", message(error));
    match classify(error) {
        Class::Refused => Trouble::Input(text),
        Class::Gone | Class::Conflict | Class::Exists => Trouble::Unsettled(text),
        Class::Unauthorized | Class::Transient => Trouble::Server(text),
    }
}
