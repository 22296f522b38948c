//! The work: sums of groups and queues into their statuses, and warnings about nodes. Every write is a merge patch of
//! our own fields,
//! made only if they differ.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kai_api::{PodGroup, Queue};
use kai_convert::gpu_labels::GpuLabels;
use kai_kit::{Class, Key, Next, Process, classify, errors::message, events::Kind, writes};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    Options,
    conditions::conditions,
    ledger::Ledger,
    metrics::QueueMetrics,
    sums::Sums,
    tree::{self, View},
    world::{CROWD_PAUSE, Job, World},
};

/// The shortest time between two writes of one queue: those near the top change with every group below.
const QUEUE_WRITES: Duration = Duration::from_millis(500);
/// How often a warning about a node is repeated.
const REMIND: Duration = Duration::from_mins(30);

/// Both controllers at work.
pub(crate) struct Work {
    process: Process,
    options: Options,
    world: World,
    metrics: QueueMetrics,
    ledger: Mutex<Ledger>,
    views: Mutex<Arc<BTreeMap<String, View>>>,
    written: Mutex<BTreeMap<String, Instant>>,
}

impl Work {
    pub(crate) fn new(process: Process, options: Options, world: World, metrics: QueueMetrics) -> Self {
        Self {
            process,
            options,
            world,
            metrics,
            ledger: Mutex::default(),
            views: Mutex::default(),
            written: Mutex::default(),
        }
    }

    /// Works until cancelled.
    pub(crate) async fn run(&self, cancel: CancellationToken) {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = self.world.ready() => {}
        }
        // All groups are added up before the first queue is written: a queue is never told half of the truth after a
        // start.
        for group in self.world.groups.all() {
            self.count(&group);
            self.world.jobs.add(Job::Group(Key::of(group.as_ref())));
        }
        for node in self.world.nodes.all() {
            self.world.jobs.add(Job::Node(node.name_any()));
        }
        self.world.jobs.add(Job::Tree);
        self.world.jobs.run(self.options.max_concurrent_reconciles, &cancel, |job| self.look(job)).await;
    }

    async fn look(&self, job: Job) -> Next {
        match job {
            Job::Group(key) => self.group(key).await,
            Job::Tree => self.tree(),
            Job::Queue(name) => self.queue(name).await,
            Job::Node(name) => self.node(&name),
        }
    }

    /// Adds a group up.
    fn count(&self, group: &PodGroup) -> Sums {
        let sums = self.world.sums(group);
        let queue = group.spec.queue.as_deref().unwrap_or_default();
        if self.ledger.lock().set(&Key::of(group), queue, &sums) {
            self.world.jobs.add_after(Job::Tree, self.options.queue_pause());
        }
        sums
    }

    async fn group(&self, key: Key) -> Next {
        let Some(group) = self.world.groups.get(&key) else {
            if self.ledger.lock().remove(&key) {
                self.world.jobs.add_after(Job::Tree, self.options.queue_pause());
            }
            return Next::Done;
        };
        let sums = self.count(&group);
        let Some(patch) = group_patch(&group, &sums) else { return Next::Done };
        if self.world.is_crowded() {
            return Next::After(CROWD_PAUSE);
        }
        let api: Api<PodGroup> = Api::namespaced(self.process.client.clone(), &key.namespace);
        match writes::merge_status(&api, self.process.component, &key.name, &patch).await {
            Ok(written) => {
                self.world.groups.saw(written);
                Next::Done
            }
            Err(error) => missed(&error),
        }
    }

    fn tree(&self) -> Next {
        let queues = self.world.queues.all();
        let parent = |queue: &Queue| queue.spec.parent_queue.clone().filter(|parent| !parent.is_empty());
        let parents: BTreeMap<String, Option<String>> =
            queues.iter().map(|queue| (queue.name_any(), parent(queue))).collect();
        let views = Arc::new(tree::views(&parents, self.ledger.lock().queues()));
        self.metrics.show(queues.iter().filter_map(|queue| Some((queue.as_ref(), views.get(&queue.name_any())?))));
        *self.views.lock() = Arc::clone(&views);
        self.written.lock().retain(|name, _| parents.contains_key(name));
        for queue in &queues {
            let name = queue.name_any();
            if views.get(&name).is_some_and(|view| self.queue_patch(queue, view).is_some()) {
                self.world.jobs.add(Job::Queue(name));
            }
        }
        Next::Done
    }

    async fn queue(&self, name: String) -> Next {
        let views = Arc::clone(&self.views.lock());
        let queue = self.world.queues.get(&Key::new("", name.as_str()));
        let Some((queue, view)) = queue.zip(views.get(&name)) else { return Next::Done };
        let Some(patch) = self.queue_patch(&queue, view) else { return Next::Done };
        let since = self.written.lock().get(&name).map_or(QUEUE_WRITES, Instant::elapsed);
        if since < QUEUE_WRITES {
            return Next::After(QUEUE_WRITES.saturating_sub(since));
        }
        self.written.lock().insert(name.clone(), Instant::now());
        let api: Api<Queue> = Api::all(self.process.client.clone());
        match writes::merge_status(&api, self.process.component, &name, &patch).await {
            Ok(written) => {
                self.world.queues.saw(written);
                Next::Done
            }
            Err(error) => missed(&error),
        }
    }

    fn queue_patch(&self, queue: &Queue, view: &View) -> Option<Value> {
        let old = queue.status.clone().unwrap_or_default();
        let mut status = Map::new();
        if old.child_queues != view.children {
            status.insert("childQueues".to_owned(), json!(view.children));
        }
        let wanted = conditions(queue, view, self.process.now());
        if old.conditions != wanted {
            status.insert("conditions".to_owned(), json!(wanted));
        }
        let sums = &view.sums;
        for (field, new, old) in [
            ("requested", &sums.requested, &old.requested),
            ("allocated", &sums.allocated, &old.allocated),
            ("allocatedNonPreemptible", &sums.non_preemptible, &old.allocated_non_preemptible),
        ] {
            if let Some(patch) = new.patch(old) {
                status.insert(field.to_owned(), patch);
            }
        }
        (!status.is_empty()).then(|| json!({ "status": status }))
    }

    fn node(&self, name: &str) -> Next {
        let Some(node) = self.world.nodes.get(&Key::new("", name)) else { return Next::Done };
        let complaints = GpuLabels::of(&node).complaints;
        if complaints.is_empty() {
            return Next::Done;
        }
        for complaint in complaints {
            self.process.events.tell(node.as_ref(), Kind::Warning, "GPULabels", complaint);
        }
        Next::After(REMIND)
    }
}

fn group_patch(group: &PodGroup, sums: &Sums) -> Option<Value> {
    let old = group.status.as_ref().and_then(|status| status.resources_status.clone()).unwrap_or_default();
    let mut status = Map::new();
    for (field, new, old) in [
        ("requested", &sums.requested, &old.requested),
        ("allocated", &sums.allocated, &old.allocated),
        ("allocatedNonPreemptible", &sums.non_preemptible, &old.allocated_non_preemptible),
    ] {
        if let Some(patch) = new.patch(old) {
            status.insert(field.to_owned(), patch);
        }
    }
    (!status.is_empty()).then(|| json!({ "status": { "resourcesStatus": status } }))
}

/// What a failed write means: an object that is gone needs no status, everything else is tried again.
fn missed(error: &kube::Error) -> Next {
    match classify(error) {
        Class::Gone => Next::Done,
        _ => Next::Failed(message(error)),
    }
}
