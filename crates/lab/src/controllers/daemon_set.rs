//! DaemonSet: one pod on every node that its template fits.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint,
    Toleration,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use serde_json::json;

use super::context::{Context, EventKind};
use super::pod_template::{available_at, is_active, is_finished, is_ready, pod_from};
use super::revision::{self, REVISION_LABEL};
use super::world::{Key, Work};

const CONTROLLER: &str = "daemonset-controller";

/// Brings one DaemonSet closer to its spec.
pub async fn reconcile(context: &mut Context, key: &Key) -> Result<(), kube::Error> {
    let Some(set) = context.world.daemon_sets.get(key).cloned() else { return Ok(()) };
    let Some(spec) = set.spec.as_ref() else { return Ok(()) };
    if set.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let labels = spec.selector.match_labels.clone().unwrap_or_default();
    let revision = revision::ensure(context, set.as_ref(), &spec.template, labels).await?;
    let pod_spec = with_daemon_tolerations(spec.template.spec.clone().unwrap_or_default());
    let eligible: Vec<String> =
        context.world.nodes.all().filter(|node| fits(&pod_spec, node)).map(|node| node.name_any()).collect();

    let mut by_node = pods_by_node(context, &set);
    for node in &eligible {
        let pods = by_node.remove(node).unwrap_or_default();
        for finished in pods.iter().filter(|pod| is_finished(pod) && pod.metadata.deletion_timestamp.is_none()) {
            context.delete(finished.as_ref()).await?;
        }
        let mut alive = pods.iter().filter(|pod| is_active(pod));
        if alive.next().is_none() {
            if pods.is_empty() {
                create(context, &set, spec, &pod_spec, &revision.hash, node).await?;
            }
        } else {
            for double in alive {
                context.delete(double.as_ref()).await?;
            }
        }
    }
    for pod in by_node.values().flatten().filter(|pod| is_active(pod)) {
        context.delete(pod.as_ref()).await?;
    }
    roll(context, &set, spec, &revision.hash, eligible.len()).await?;
    report(context, key, spec, &revision.hash, &eligible).await?;
    let used: Vec<String> = pods_by_node(context, &set)
        .values()
        .flatten()
        .filter_map(|pod| pod.labels().get(REVISION_LABEL).cloned())
        .collect();
    revision::trim(context, &revision, &used, spec.revision_history_limit).await
}

/// The node a daemon pod is for: where it runs, or where its affinity pins it.
fn target(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    if let Some(node) = &spec.node_name {
        return Some(node.clone());
    }
    let required =
        spec.affinity.as_ref()?.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()?;
    let fields = required.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    fields.filter(|field| field.key == "metadata.name").find_map(|field| field.values.as_ref()?.first().cloned())
}

fn pods_by_node(context: &Context, set: &DaemonSet) -> BTreeMap<String, Vec<Arc<Pod>>> {
    let mut by_node: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in context.world.pods.controlled_by(&set.uid().unwrap_or_default()) {
        by_node.entry(target(&pod).unwrap_or_default()).or_default().push(pod);
    }
    by_node
}

async fn create(
    context: &mut Context,
    set: &Arc<DaemonSet>,
    spec: &DaemonSetSpec,
    pod_spec: &PodSpec,
    hash: &str,
    node: &str,
) -> Result<(), kube::Error> {
    let mut pod = pod_from(set.as_ref(), &spec.template);
    pod.metadata.generate_name = Some(format!("{}-", set.name_any()));
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(REVISION_LABEL.to_owned(), hash.to_owned());
    labels.insert("pod-template-generation".to_owned(), set.metadata.generation.unwrap_or(1).to_string());
    let mut pod_spec = pod_spec.clone();
    pin_to(&mut pod_spec, node);
    pod.spec = Some(pod_spec);
    match context.create(&pod).await {
        Ok(created) => {
            let message = format!("Created pod: {}", created.name_any());
            context.event(set.as_ref(), CONTROLLER, EventKind::Normal, "SuccessfulCreate", message).await;
            Ok(())
        }
        Err(error) => {
            let message = format!("Error creating: {error}");
            context.event(set.as_ref(), CONTROLLER, EventKind::Warning, "FailedCreate", message).await;
            Err(error)
        }
    }
}

/// Binding is the scheduler's work; the affinity leaves it one choice.
fn pin_to(spec: &mut PodSpec, node: &str) {
    let by_name = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let affinity =
        spec.affinity.get_or_insert_with(Affinity::default).node_affinity.get_or_insert_with(NodeAffinity::default);
    let required =
        affinity.required_during_scheduling_ignored_during_execution.get_or_insert_with(NodeSelector::default);
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_fields = Some(vec![by_name.clone()]);
    }
}

/// Daemons stay on nodes that others must leave.
fn with_daemon_tolerations(mut spec: PodSpec) -> PodSpec {
    let tolerations = spec.tolerations.get_or_insert_default();
    let mut tolerate = |key: &str, effect: &str| {
        tolerations.push(Toleration {
            key: Some(format!("node.kubernetes.io/{key}")),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        });
    };
    for key in ["not-ready", "unreachable"] {
        tolerate(key, "NoExecute");
    }
    for key in ["disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"] {
        tolerate(key, "NoSchedule");
    }
    if spec.host_network == Some(true) {
        tolerate("network-unavailable", "NoSchedule");
    }
    spec
}

fn fits(spec: &PodSpec, node: &Node) -> bool {
    if spec.node_name.as_ref().is_some_and(|name| *name != node.name_any()) {
        return false;
    }
    let labels = node.labels();
    let selected = spec.node_selector.iter().flatten().all(|(name, value)| labels.get(name) == Some(value));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let wanted =
        required.is_none_or(|required| required.node_selector_terms.iter().any(|term| term_matches(term, node)));
    let taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten();
    let tolerated = taints
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .all(|taint| spec.tolerations.iter().flatten().any(|toleration| tolerates(toleration, taint)));
    selected && wanted && tolerated
}

fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let name = node.name_any();
    let matches = |requirement: &NodeSelectorRequirement, value: Option<&String>| {
        let values = || requirement.values.iter().flatten();
        let number = |text: &String| text.parse::<i64>().ok();
        let compare = |order| {
            value.and_then(number).zip(values().next().and_then(number)).is_some_and(|(a, b)| a.cmp(&b) == order)
        };
        match requirement.operator.as_str() {
            "In" => value.is_some_and(|value| values().any(|v| v == value)),
            "NotIn" => value.is_none_or(|value| values().all(|v| v != value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compare(std::cmp::Ordering::Greater),
            "Lt" => compare(std::cmp::Ordering::Less),
            _ => false,
        }
    };
    let expressions = term.match_expressions.iter().flatten();
    let fields = term.match_fields.iter().flatten();
    // A term without any requirement matches nothing.
    if expressions.clone().next().is_none() && fields.clone().next().is_none() {
        return false;
    }
    expressions.into_iter().all(|r| matches(r, node.labels().get(&r.key)))
        && fields.into_iter().all(|r| r.key == "metadata.name" && matches(r, Some(&name)))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().is_none_or(|effect| effect.is_empty() || effect == taint.effect);
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let value = exists || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
    effect && (if key.is_empty() { exists } else { key == taint.key && value })
}

/// Replaces outdated pods, as many at a time as may be unavailable.
async fn roll(
    context: &mut Context,
    set: &Arc<DaemonSet>,
    spec: &DaemonSetSpec,
    hash: &str,
    desired: usize,
) -> Result<(), kube::Error> {
    let strategy = spec.update_strategy.as_ref();
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
        return Ok(());
    }
    let most = match strategy.and_then(|s| s.rolling_update.as_ref()).and_then(|r| r.max_unavailable.as_ref()) {
        Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap_or(0),
        Some(IntOrString::String(text)) => {
            (text.trim_end_matches('%').parse::<usize>().unwrap_or(0) * desired).div_ceil(100)
        }
        None => 1,
    }
    .max(1);
    let pods: Vec<Arc<Pod>> = pods_by_node(context, set).into_values().flatten().collect();
    let outdated =
        |pod: &&Arc<Pod>| pod.labels().get(REVISION_LABEL).is_none_or(|label| label != hash) && is_active(pod);
    let unavailable = desired.saturating_sub(pods.iter().filter(|pod| is_active(pod) && is_ready(pod)).count());
    // Pods that are down anyway cost nothing to replace.
    for pod in pods.iter().filter(outdated).filter(|pod| !is_ready(pod)) {
        context.delete(pod.as_ref()).await?;
    }
    for pod in pods.iter().filter(outdated).filter(|pod| is_ready(pod)).take(most.saturating_sub(unavailable)) {
        context.delete(pod.as_ref()).await?;
    }
    Ok(())
}

async fn report(
    context: &mut Context,
    key: &Key,
    spec: &DaemonSetSpec,
    hash: &str,
    eligible: &[String],
) -> Result<(), kube::Error> {
    let Some(set) = context.world.daemon_sets.get(key).cloned() else { return Ok(()) };
    let now = context.now();
    let by_node = pods_by_node(context, &set);
    let (mut current, mut ready, mut available, mut updated) = (0, 0, 0, 0);
    for node in eligible {
        let Some(pod) = by_node.get(node).and_then(|pods| pods.iter().find(|pod| is_active(pod))) else { continue };
        current += 1;
        ready += i32::from(is_ready(pod));
        updated += i32::from(pod.labels().get(REVISION_LABEL).is_some_and(|label| label == hash));
        match available_at(pod, spec.min_ready_seconds) {
            Some(due) if due <= now => available += 1,
            Some(due) => context.look_again(due, Work::DaemonSet(key.clone())),
            None => {}
        }
    }
    let misplaced =
        by_node.iter().filter(|(node, pods)| !eligible.contains(node) && pods.iter().any(|pod| is_active(pod))).count();
    let desired = i32::try_from(eligible.len()).unwrap_or(i32::MAX);
    let status = json!({
        "desiredNumberScheduled": desired,
        "currentNumberScheduled": current,
        "numberMisscheduled": misplaced,
        "numberReady": ready,
        "numberAvailable": available,
        "numberUnavailable": desired - available,
        "updatedNumberScheduled": updated,
        "observedGeneration": set.metadata.generation,
    });
    context.patch_status(set.as_ref(), status).await
}
