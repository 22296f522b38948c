//! What the controllers see: mirrors of small things, the book of pods, and the work that each change asks for.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    core::v1::{Node, Pod},
    resource::v1::ResourceClaim,
    scheduling::v1::PriorityClass,
};
use kai_api::{PodGroup, PodGroupStatus, Queue, names::annotations};
use kai_convert::{Priorities, gpu_labels::GpuLabels};
use kai_kit::{Change, Class, Key, Mirror, Pace, Process, Selection, WorkQueue, backoff::Backoff, classify, watch};
use kube::ResourceExt;
use parking_lot::{Mutex, RwLock};
use tokio::{sync::watch as latest, time::Instant};

use crate::{
    Options,
    amounts::Amounts,
    pod_book::PodBook,
    sums::{self, Sums, Surroundings},
};

const PAUSES: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
/// How long a node is left alone after it changed: labels come a moment after the devices.
const NODE_PAUSE: Duration = Duration::from_secs(1);

/// So many changed pods within two seconds are a crowd.
const CROWD: usize = 32;
/// After this it is seen whether a crowd is over.
pub(crate) const CROWD_PAUSE: Duration = Duration::from_millis(2500);
/// So long at most the statuses of groups give way to a crowd.
const LONGEST_CROWD: Duration = Duration::from_secs(30);

/// Whether many pods change: then the statuses of their groups wait, for nobody waits for them, and most are written once instead of at each
/// step of their pods.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    pace: Pace,
    /// When it began.
    since: Option<Instant>,
}

impl Crowd {
    /// Some pods changed; whether there is a crowd now that others should give way to.
    fn count(&mut self, pods: usize) -> bool {
        if self.pace.count(pods) < CROWD {
            self.since = None;
            return false;
        }
        self.since.get_or_insert_with(Instant::now).elapsed() < LONGEST_CROWD
    }
}

/// Something to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Job {
    /// A group's sums and status.
    Group(Key),
    /// The sums of all queues.
    Tree,
    /// A queue's status.
    Queue(String),
    /// A node's labels.
    Node(String),
}

/// Everything that is known.
pub(crate) struct World {
    pub(crate) groups: Mirror<PodGroup>,
    pub(crate) queues: Mirror<Queue>,
    pub(crate) nodes: Mirror<Node>,
    classes: Mirror<PriorityClass>,
    claims: Option<Mirror<ResourceClaim>>,
    book: Arc<Mutex<PodBook>>,
    crowd: Arc<Mutex<Crowd>>,
    pods_complete: latest::Receiver<bool>,
    priorities: Arc<RwLock<Priorities>>,
    pub(crate) jobs: WorkQueue<Job>,
}

impl World {
    /// Starts all watches. Nothing if the process ended meanwhile.
    pub(crate) async fn start(process: &Process, options: &Options) -> Option<Self> {
        let with_claims = has_claims(process).await?;
        let jobs = WorkQueue::new(PAUSES);
        let book = Arc::new(Mutex::new(PodBook::default()));
        let group_pause = options.group_pause();
        let groups = mirror_groups(process, &jobs, group_pause);
        let queues = mirror_queues(process, &jobs, options.queue_pause());
        let nodes = mirror_nodes(process, &jobs, &book, group_pause);
        let priorities = Arc::new(RwLock::new(Priorities::default()));
        let classes = mirror_classes(process, &jobs, &groups, &priorities, group_pause);
        let claims = with_claims.then(|| mirror_claims(process, &jobs, &book, group_pause));
        let crowd = Arc::default();
        let pods_complete = watch_pods(process, options, &jobs, &book, &crowd);
        Some(Self { groups, queues, nodes, classes, claims, book, crowd, pods_complete, priorities, jobs })
    }

    /// Whether there is a crowd that the statuses of groups should give way to.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowd.lock().count(0)
    }

    /// Waits until everything was listed once.
    pub(crate) async fn ready(&self) {
        self.groups.ready().await;
        self.queues.ready().await;
        self.nodes.ready().await;
        self.classes.ready().await;
        if let Some(claims) = &self.claims {
            claims.ready().await;
        }
        // The sender lives as long as the watch.
        let _ = self.pods_complete.clone().wait_for(|complete| *complete).await;
    }

    /// What a group has now.
    pub(crate) fn sums(&self, group: &PodGroup) -> Sums {
        let preemptible = self.priorities.read().preemptible(&group.spec);
        let book = self.book.lock();
        sums::of_group(book.of_group(&Key::of(group)), preemptible, self)
    }
}

impl Surroundings for World {
    fn gpu_memory(&self, node: &str) -> Option<u64> {
        GpuLabels::of(self.nodes.get(&Key::new("", node))?.as_ref()).memory
    }

    fn devices(&self, claim: &str) -> Amounts {
        let key = claim.split_once('/').map(|(namespace, name)| Key::new(namespace, name));
        let found = self.claims.as_ref().zip(key).and_then(|(claims, key)| claims.get(&key));
        found.map(|claim| sums::devices_of(&claim)).unwrap_or_default()
    }
}

/// Whether the cluster knows claims on devices. Nothing if the process ends before the server has answered.
async fn has_claims(process: &Process) -> Option<bool> {
    loop {
        match process.client.list_api_group_resources("resource.k8s.io/v1").await {
            Ok(list) => return Some(list.resources.iter().any(|resource| resource.name == "resourceclaims")),
            Err(error) if classify(&error) == Class::Gone => return Some(false),
            Err(error) => {
                process.health.not_ready("discovery", error.to_string());
                tracing::debug!(%error, "which resources there are is not known yet");
            }
        }
        if !process.sleep(Duration::from_secs(1)).await {
            return None;
        }
        process.health.ready("discovery");
    }
}

fn mirror_groups(process: &Process, jobs: &WorkQueue<Job>, pause: Duration) -> Mirror<PodGroup> {
    let jobs = jobs.clone();
    let builder = Mirror::<PodGroup>::builder()
        .trim(|group| {
            group.metadata.annotations = None;
            group.metadata.labels = None;
            group.metadata.owner_references = None;
            group.spec.sub_groups = Vec::new();
            group.status = counts(group);
        })
        .hear(move |change| {
            // The scheduler writes its part of the status often.
            let same =
                matches!(change, Change::Changed(old, new) if old.spec == new.spec && counts(old) == counts(new));
            if !same {
                jobs.add_after(Job::Group(Key::of(change.object().as_ref())), pause);
            }
        });
    builder.start(process, Selection::all(), &process.cancel)
}

/// The status without the scheduler's part.
fn counts(group: &PodGroup) -> Option<PodGroupStatus> {
    let status = group.status.as_ref()?;
    let (conditions, scheduling_conditions) = (Vec::new(), Vec::new());
    Some(PodGroupStatus { conditions, scheduling_conditions, ..status.clone() })
}

fn mirror_queues(process: &Process, jobs: &WorkQueue<Job>, pause: Duration) -> Mirror<Queue> {
    let jobs = jobs.clone();
    let builder = Mirror::<Queue>::builder().trim(|queue| queue.metadata.annotations = None).hear(move |change| {
        let name = change.object().name_any();
        match change {
            Change::Changed(old, new) if old.spec == new.spec && old.metadata.labels == new.metadata.labels => {
                if old.status != new.status {
                    jobs.add_after(Job::Queue(name), pause);
                }
            }
            _ => jobs.add_after(Job::Tree, pause),
        }
    });
    builder.start(process, Selection::all(), &process.cancel)
}

fn mirror_nodes(
    process: &Process,
    jobs: &WorkQueue<Job>,
    book: &Arc<Mutex<PodBook>>,
    group_pause: Duration,
) -> Mirror<Node> {
    let (jobs, book) = (jobs.clone(), Arc::clone(book));
    let builder = Mirror::<Node>::builder().trim(trim_node).hear(move |change| {
        let read = |node: &Node| GpuLabels::of(node);
        let now = read(change.object());
        if let Change::Changed(old, _) = change {
            let old = read(old);
            if old == now {
                return;
            }
            if old.memory == now.memory {
                jobs.add_after(Job::Node(change.object().name_any()), NODE_PAUSE);
                return;
            }
        }
        let name = change.object().name_any();
        for group in book.lock().groups_by_memory(&name) {
            jobs.add_after(Job::Group(group), group_pause);
        }
        jobs.add_after(Job::Node(name), NODE_PAUSE);
    });
    builder.start(process, Selection::all(), &process.cancel)
}

/// Only what tells of GPUs stays.
fn trim_node(node: &mut Node) {
    node.metadata.annotations = None;
    node.spec = None;
    if let Some(labels) = &mut node.metadata.labels {
        labels.retain(|name, _| name.starts_with("nvidia.com/gpu."));
    }
    if let Some(status) = &mut node.status {
        let (allocatable, capacity) = (status.allocatable.take(), status.capacity.take());
        let info = status.node_info.take();
        *status =
            k8s_openapi::api::core::v1::NodeStatus { allocatable, capacity, node_info: info, ..Default::default() };
    }
}

fn mirror_classes(
    process: &Process,
    jobs: &WorkQueue<Job>,
    groups: &Mirror<PodGroup>,
    priorities: &Arc<RwLock<Priorities>>,
    pause: Duration,
) -> Mirror<PriorityClass> {
    let (jobs, groups, priorities) = (jobs.clone(), groups.clone(), Arc::clone(priorities));
    let builder = Mirror::<PriorityClass>::builder().hear(move |change| {
        let class = change.object();
        match change {
            Change::Removed(_) => priorities.write().remove(&class.name_any()),
            _ => priorities.write().insert(class.name_any(), class.value, class.global_default.unwrap_or(false)),
        }
        for group in groups.all() {
            jobs.add_after(Job::Group(Key::of(group.as_ref())), pause);
        }
    });
    builder.start(process, Selection::all(), &process.cancel)
}

fn mirror_claims(
    process: &Process,
    jobs: &WorkQueue<Job>,
    book: &Arc<Mutex<PodBook>>,
    pause: Duration,
) -> Mirror<ResourceClaim> {
    let (jobs, book) = (jobs.clone(), Arc::clone(book));
    let builder = Mirror::<ResourceClaim>::builder()
        .trim(|claim| {
            claim.metadata.annotations = None;
            claim.metadata.labels = None;
        })
        .hear(move |change| {
            let key = Key::of(change.object().as_ref());
            for group in book.lock().groups_with_claim(&key.to_string()) {
                jobs.add_after(Job::Group(group), pause);
            }
        });
    builder.start(process, Selection::all(), &process.cancel)
}

/// Whether nothing is new of a pod that anybody here reads.
fn is_same(old: &Pod, new: &Pod) -> bool {
    fn read(pod: &Pod) -> impl PartialEq {
        pod.status.as_ref().map(|status| (&status.phase, &status.resource_claim_statuses))
    }
    watch::only_status_differs(old, new, annotations::may_be_read) && read(old) == read(new)
}

fn watch_pods(
    process: &Process,
    options: &Options,
    jobs: &WorkQueue<Job>,
    book: &Arc<Mutex<PodBook>>,
    crowd: &Arc<Mutex<Crowd>>,
) -> latest::Receiver<bool> {
    let (complete, receiver) = latest::channel(false);
    let (jobs, book, crowd, pause) = (jobs.clone(), Arc::clone(book), Arc::clone(crowd), options.group_pause());
    let ours = Selection::of_scheduler(&options.scheduler_name).passing_over(is_same).foretelling(|_, _| true);
    let tell = move |news| {
        let (touched, listed) = {
            let mut book = book.lock();
            (book.take(news), book.is_complete())
        };
        let crowded = crowd.lock().count(touched.len());
        for group in touched {
            jobs.add_after(Job::Group(group), if crowded { pause.max(CROWD_PAUSE) } else { pause });
        }
        complete.send_if_modified(|known| std::mem::replace(known, listed) != listed);
    };
    let name = "watch of pods".to_owned();
    tokio::spawn(watch::follow(process.clone(), ours, name, process.cancel.clone(), tell));
    receiver
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod_facts::PodFacts;

    #[tokio::test(start_paused = true)]
    async fn groups_give_way_to_a_crowd_until_it_is_over_or_lasts_too_long() {
        let mut crowd = Crowd::default();
        assert!(!crowd.count(CROWD - 1) && crowd.count(1));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!crowd.count(0), "it is over");
        for second in 0..40 {
            assert_eq!(crowd.count(CROWD), second < LONGEST_CROWD.as_secs(), "after {second} s");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!crowd.count(0) && crowd.count(CROWD), "another begins");
    }

    #[test]
    fn a_pod_is_passed_over_only_if_it_counts_as_before() {
        let bound = json!({"metadata": {"name": "p", "uid": "u", "generation": 1, "annotations": {"pod-group-name": "g"}},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                "resourceClaims": [{"name": "d", "resourceClaimTemplateName": "t"}]},
            "status": {"phase": "Pending"}});
        let read = |value: &Value| serde_json::from_value::<Pod>(value.clone()).expect("a pod");
        for (place, value, expected) in [
            ("/status/hostIP", json!("10.0.0.1"), true),
            ("/status/phase", json!("Running"), false),
            ("/status/phase", json!("Failed"), false),
            ("/status/resourceClaimStatuses", json!([{"name": "d", "resourceClaimName": "p-d"}]), false),
            ("/metadata/annotations", json!({"pod-group-name": "h"}), false),
            ("/metadata/generation", json!(2), false),
            ("/spec/nodeName", json!("m"), false),
        ] {
            let mut after = bound.clone();
            let (parent, field) = place.rsplit_once('/').expect("a path");
            after.pointer_mut(parent).expect("an object")[field] = value;
            let (old, new) = (read(&bound), read(&after));
            assert_eq!(is_same(&old, &new), expected, "{place}");
            assert!(!expected || PodFacts::of(&old) == PodFacts::of(&new), "{place}");
        }
    }
}
