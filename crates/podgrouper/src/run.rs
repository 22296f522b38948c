//! The component from start to end: watches, then work on pods.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Pod, PodSpec, PodStatus},
    scheduling::v1::PriorityClass,
};
use kai_api::{PodGroup, names::annotations};
use kai_kit::{
    Change, Key, Mirror, Process, Selection, WorkQueue,
    backoff::Backoff,
    events::Kind,
    lease::{self, Times},
    watch::only_status_differs,
};
use kube::{Api, ResourceExt as _, runtime::watcher};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use crate::{
    crowd::{Crowd, is_placed},
    error::Error,
    metrics::Numbers,
    options::Options,
    owner_watch,
    reconcile::{Grouper, is_over},
    rules::is_setting,
    turnstile::Turnstile,
    type_defaults::TypeDefaults,
    walk::Owners,
};

/// The lease by which replicas take turns; KAI's, so that the two never group at the same time.
const LEASE: &str = "54dff599.kai.scheduler";
/// Pauses after failures.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

/// How long after a group is gone its pods are looked at: by then it is known what else is gone.
const RESTORE: Duration = Duration::from_secs(1);

/// Groups pods until the process is told to end.
pub async fn run(process: Process, options: Options) -> Result<(), Error> {
    // Before any lease is taken: who cannot understand its options must not keep others from working.
    Selector::parse("pod-label-selector", &options.pod_label_selector)?;
    let namespaces = Selector::parse("namespace-label-selector", &options.namespace_label_selector)?;
    let numbers = Numbers::register(&process.metrics);
    if !options.leader_elect {
        let cancel = process.cancel.child_token();
        work(&process, options, namespaces, numbers, cancel).await;
        return Ok(());
    }
    while !process.cancel.is_cancelled() {
        let (options, namespaces, numbers) = (options.clone(), namespaces.clone(), numbers.clone());
        let lead = |token| work(&process, options, namespaces, numbers, token);
        lease::lead(&process, LEASE, Times::default(), lead).await;
    }
    Ok(())
}

async fn work(process: &Process, options: Options, selector: Selector, numbers: Numbers, cancel: CancellationToken) {
    // Whatever ends this also ends its watches.
    let _guard = cancel.clone().drop_guard();
    let queue = WorkQueue::new(PAUSES);
    let turnstile = Turnstile::new(queue.clone());
    let owners = Arc::new(Owners::new(process.client.clone(), turnstile.clone(), queue.clone(), numbers.clone()));

    let mut builder = Mirror::<Pod>::builder().trim(trim);
    let pods_by_group = builder.index(|pod| {
        let namespace = pod.namespace().unwrap_or_default();
        kai_api::named_group(pod).map(|group| Key::new(namespace, group).to_string()).into_iter().collect()
    });
    let ours = Selection::of_scheduler(&options.scheduler_name).labels(&options.pod_label_selector);
    let ours = ours.passing_over(is_same).foretelling(|_, _| true);
    let crowd = Crowd::new(&options);
    let hear = {
        let (queue, owners, crowd) = (queue.clone(), Arc::clone(&owners), crowd.clone());
        move |change: &Change<'_, Pod>| {
            crowd.see(change);
            hear_pod(change, &queue, &owners, &crowd);
        }
    };
    let pods = builder.hear(hear).start(process, ours, &cancel);

    let all_again = {
        let (pods, queue) = (pods.clone(), queue.clone());
        move || pods.all().iter().filter(|pod| !is_over(pod)).for_each(|pod| queue.add(Key::of(pod.as_ref())))
    };
    let hear = {
        let (pods, queue, owners) = (pods.clone(), queue.clone(), Arc::clone(&owners));
        move |change: &Change<'_, PodGroup>| {
            let Change::Removed(group) = change else { return };
            // It may have gone with its owner, which then must not get another one.
            owners.suspect(&group.metadata);
            for pod in pods.find(pods_by_group, &Key::of(group.as_ref()).to_string()) {
                queue.add_after(Key::of(pod.as_ref()), RESTORE);
            }
        }
    };
    let groups = Mirror::<PodGroup>::builder().trim(|group| group.status = None).hear(hear);
    let groups = groups.start(process, Selection::all(), &cancel);
    let again = all_again.clone();
    let classes = Mirror::<PriorityClass>::builder().hear(move |change| {
        if !matches!(change, Change::Changed(..)) {
            again();
        }
    });
    let classes = classes.start(process, Selection::all(), &cancel);
    let namespaces = (!selector.is_empty()).then(|| {
        let again = all_again.clone();
        let builder = Mirror::<Namespace>::builder().hear(move |_| again());
        (builder.start(process, Selection::all(), &cancel), selector)
    });
    let (defaults, maps) = watch_defaults(process, &options, &cancel, all_again);
    owner_watch::start(process, &owners, &cancel);

    let ready = async {
        pods.ready().await;
        groups.ready().await;
        classes.ready().await;
        if let Some((namespaces, _)) = &namespaces {
            namespaces.ready().await;
        }
        if let Some(maps) = &maps {
            maps.ready().await;
        }
    };
    tokio::select! {
        () = cancel.cancelled() => return,
        () = ready => {}
    }
    let workers = options.max_concurrent_reconciles;
    let grouper = Grouper {
        process: process.clone(),
        options,
        queue: queue.clone(),
        turnstile,
        crowd,
        owners,
        pods,
        pods_by_group,
        groups,
        classes,
        namespaces,
        defaults,
        numbers,
    };
    queue.run(workers, &cancel, |key| grouper.reconcile(key)).await;
}

/// A pod is worked on when it is new and when it says something else than before.
fn hear_pod(change: &Change<'_, Pod>, queue: &WorkQueue<Key>, owners: &Owners, crowd: &Crowd) {
    let key = Key::of(change.object().as_ref());
    let ask = |key, pod| match crowd.patience(pod) {
        Duration::ZERO => queue.add(key),
        pause => queue.add_after(key, pause),
    };
    match change {
        Change::Added(pod) => {
            if !is_over(pod) {
                ask(key, pod);
            }
        }
        Change::Changed(old, new) => {
            let (old_meta, new_meta) = (&old.metadata, &new.metadata);
            let followed = |pod| settings(pod).filter(|(name, _)| may_be_followed(name, new));
            let same = old_meta.labels == new_meta.labels
                && followed(old).eq(followed(new))
                && old_meta.owner_references == new_meta.owner_references;
            if is_over(new) {
                owners.forget(&key);
            } else if !same {
                ask(key, new);
            }
        }
        Change::Removed(_) => {
            owners.forget(&key);
            queue.forgive(&key);
        }
    }
}

/// What a binding writes on every pod; no group follows it.
const OF_BINDINGS: [&str; 2] = [annotations::RECEIVED_RESOURCE_TYPE, annotations::NUMA_PREDICTED];

/// The annotations that a group may follow.
fn settings(pod: &Pod) -> impl Iterator<Item = (&String, &String)> {
    let all = pod.metadata.annotations.iter().flatten();
    all.filter(|(key, value)| is_setting(key, value) && !OF_BINDINGS.contains(&key.as_str()))
}

/// Whether nothing is new of a pod that anybody here reads.
fn is_same(old: &Pod, new: &Pod) -> bool {
    only_status_differs(old, new, |name| may_be_followed(name, new)) && is_over(old) == is_over(new)
}

/// Whether the group of a pod follows a change of an annotation at once. A group has the annotations of its workload, whatever they mean; but
/// on a pod that has its node others write what happens to it, and a group that followed would be written for every pod.
fn may_be_followed(name: &str, pod: &Pod) -> bool {
    !is_placed(pod) || annotations::may_be_read(name)
}

/// Keeps what kinds of workloads look at.
fn trim(pod: &mut Pod) {
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.retain(|key, value| is_setting(key, value));
    }
    pod.spec = pod.spec.take().map(|spec| PodSpec {
        scheduler_name: spec.scheduler_name,
        priority_class_name: spec.priority_class_name,
        node_name: spec.node_name,
        ..PodSpec::default()
    });
    pod.status = pod.status.take().map(|status| PodStatus { phase: status.phase, ..PodStatus::default() });
}

/// The defaults by kind, kept up to date.
fn watch_defaults(
    process: &Process,
    options: &Options,
    cancel: &CancellationToken,
    again: impl Fn() + Send + Sync + 'static,
) -> (Arc<RwLock<TypeDefaults>>, Option<Mirror<ConfigMap>>) {
    let defaults = Arc::new(RwLock::new(TypeDefaults::default()));
    let Some(name) = &options.default_priorities_configmap_name else { return (defaults, None) };
    let namespace = options.default_priorities_configmap_namespace.as_deref().unwrap_or(&process.namespace);
    let (shared, events) = (Arc::clone(&defaults), process.events.clone());
    let hear = move |change: &Change<'_, ConfigMap>| {
        let read = match change {
            Change::Removed(_) => TypeDefaults::default(),
            Change::Added(map) | Change::Changed(_, map) => {
                let (read, warnings) = TypeDefaults::read(map);
                for warning in warnings {
                    events.tell(map.as_ref(), Kind::Warning, "PodGrouperWarning", warning);
                }
                read
            }
        };
        if *shared.read() != read {
            *shared.write() = read;
            again();
        }
    };
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let api = Api::namespaced(process.client.clone(), namespace);
    let maps = Mirror::<ConfigMap>::builder().hear(hear);
    let maps = maps.start_apart("watch of the defaults", api, config, &process.health, cancel);
    (defaults, Some(maps))
}

/// Labels that an object must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector(BTreeMap<String, String>);

impl Selector {
    fn parse(option: &'static str, text: &str) -> Result<Self, Error> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let pairs = parts.map(|part| {
            let (key, value) = part.split_once('=')?;
            let (key, value) = (key.trim(), value.trim_start_matches('=').trim());
            (!key.is_empty() && !key.ends_with('!')).then(|| (key.to_owned(), value.to_owned()))
        });
        let pairs: Option<BTreeMap<String, String>> = pairs.collect();
        pairs.map(Self).ok_or_else(|| Error::Selector { option, value: text.to_owned() })
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        self.0.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_a_network_plugin_writes_on_a_bound_pod_wakes_nobody_and_a_setting_does() {
        let waiting = json!({"metadata": {"name": "p", "uid": "u", "generation": 1}, "spec": {"containers": []},
            "status": {"phase": "Pending"}});
        let mut bound = waiting.clone();
        bound["spec"]["nodeName"] = json!("n");
        let plugin = json!({"annotations": {"cni.projectcalico.org/podIP": "10.0.0.1/32"}});
        let setting = json!({"annotations": {annotations::PREEMPTION_DELAY: "10s"}});
        let read = |value: &Value| serde_json::from_value::<Pod>(value.clone()).expect("a pod");
        for (before, part, value, expected) in [
            (&bound, "metadata", &plugin, true),
            (&waiting, "metadata", &plugin, false),
            (&bound, "metadata", &setting, false),
            (&bound, "metadata", &json!({"labels": {"a": "b"}}), false),
            (&bound, "status", &json!({"hostIP": "10.0.0.1"}), true),
            (&bound, "status", &json!({"phase": "Failed"}), false),
            (&waiting, "spec", &json!({"nodeName": "n"}), false),
        ] {
            let mut after = before.clone();
            let fields = value.as_object().expect("fields").clone();
            after[part].as_object_mut().expect("an object").extend(fields);
            assert_eq!(is_same(&read(before), &read(&after)), expected, "{part} {value}");
        }
    }
}
