//! ReplicaSet: keeps the wanted number of pods, adopts matching orphans and lets go of pods that no longer match.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;
use std::sync::Arc;

use super::context::{Context, EventKind};
use super::pod_template::{
    available_at, controller_reference, is_active, is_ready, phase, pod_from, ready_since, selects,
};
use super::world::{Key, Work, controller_of};

const CONTROLLER: &str = "replicaset-controller";

/// Brings one ReplicaSet closer to its spec.
pub async fn reconcile(context: &mut Context, key: &Key) -> Result<(), kube::Error> {
    let Some(set) = context.world.replica_sets.get(key).cloned() else { return Ok(()) };
    let Some(spec) = set.spec.as_ref() else { return Ok(()) };
    let uid = set.uid().unwrap_or_default();
    let deleting = set.metadata.deletion_timestamp.is_some();
    if !deleting {
        claim(context, &set).await?;
    }
    let pods: Vec<Arc<Pod>> = context.world.pods.controlled_by(&uid).into_iter().filter(|pod| is_active(pod)).collect();
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);

    let mut failure = None;
    if !deleting && pods.len() < wanted {
        for _ in pods.len()..wanted {
            if let Err(error) = create_pod(context, &set).await {
                failure = Some(error);
                break;
            }
        }
    } else if !deleting && pods.len() > wanted {
        let mut candidates = pods.clone();
        candidates.sort_by_key(|pod| deletion_rank(pod));
        for pod in candidates.iter().take(pods.len() - wanted) {
            context.delete(pod.as_ref()).await?;
            let message = format!("Deleted pod: {}", pod.name_any());
            context.event(set.as_ref(), CONTROLLER, EventKind::Normal, "SuccessfulDelete", message).await;
        }
    }
    report(context, &set, failure.as_ref().map(ToString::to_string)).await?;
    failure.map_or(Ok(()), Err)
}

async fn create_pod(context: &mut Context, set: &Arc<ReplicaSet>) -> Result<(), kube::Error> {
    let Some(template) = set.spec.as_ref().and_then(|spec| spec.template.as_ref()) else { return Ok(()) };
    let mut pod = pod_from(set.as_ref(), template);
    pod.metadata.generate_name = Some(format!("{}-", set.name_any()));
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

/// Adopts orphans that match the selector and releases pods that do not any more.
async fn claim(context: &mut Context, set: &Arc<ReplicaSet>) -> Result<(), kube::Error> {
    let Some(selector) = set.spec.as_ref().map(|spec| &spec.selector) else { return Ok(()) };
    let uid = set.uid().unwrap_or_default();
    let namespace = set.namespace().unwrap_or_default();
    let orphans: Vec<Arc<Pod>> = context
        .world
        .pods
        .in_namespace(&namespace)
        .filter(|pod| controller_of(pod.as_ref()).is_none() && is_active(pod) && selects(selector, pod.as_ref()))
        .cloned()
        .collect();
    for pod in orphans {
        let mut owners = pod.metadata.owner_references.clone().unwrap_or_default();
        owners.extend(controller_reference(set.as_ref()));
        let patch = json!({ "metadata": { "uid": pod.uid(), "ownerReferences": owners } });
        context.patch(pod.as_ref(), &patch).await?;
    }
    for pod in context.world.pods.controlled_by(&uid) {
        if pod.metadata.deletion_timestamp.is_none() && !selects(selector, pod.as_ref()) {
            let owners: Vec<_> = pod.owner_references().iter().filter(|owner| owner.uid != uid).collect();
            let patch = json!({ "metadata": { "uid": pod.uid(), "ownerReferences": owners } });
            context.patch(pod.as_ref(), &patch).await?;
        }
    }
    Ok(())
}

/// Smaller goes first, in the order of the real controller: unassigned, pending, not ready, cheap, young.
fn deletion_rank(
    pod: &Pod,
) -> (bool, u8, bool, i64, std::cmp::Reverse<jiff::Timestamp>, std::cmp::Reverse<jiff::Timestamp>, String) {
    let assigned = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let phase_rank = match phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let cost = pod.annotations().get("controller.kubernetes.io/pod-deletion-cost").and_then(|text| text.parse().ok());
    let ready = ready_since(pod).unwrap_or(jiff::Timestamp::MAX);
    let created = pod.creation_timestamp().map_or(jiff::Timestamp::MAX, |time| time.0);
    let young_first = std::cmp::Reverse;
    (assigned, phase_rank, is_ready(pod), cost.unwrap_or(0), young_first(ready), young_first(created), pod.name_any())
}

async fn report(context: &mut Context, set: &Arc<ReplicaSet>, failure: Option<String>) -> Result<(), kube::Error> {
    let Some(spec) = set.spec.as_ref() else { return Ok(()) };
    let now = context.now();
    let pods: Vec<Arc<Pod>> = context.world.pods.controlled_by(&set.uid().unwrap_or_default());
    let active: Vec<&Arc<Pod>> = pods.iter().filter(|pod| is_active(pod)).collect();
    let template_labels =
        spec.template.as_ref().and_then(|t| t.metadata.as_ref()).and_then(|m| m.labels.clone()).unwrap_or_default();
    let labeled = active
        .iter()
        .filter(|pod| template_labels.iter().all(|(name, value)| pod.labels().get(name) == Some(value)))
        .count();
    let mut available = 0;
    for pod in &active {
        match available_at(pod, spec.min_ready_seconds) {
            Some(due) if due <= now => available += 1,
            Some(due) => context.look_again(due, Work::ReplicaSet(Key::of(set.as_ref()))),
            None => {}
        }
    }
    let conditions = failure.map(|message| {
        json!([{
            "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message, "lastTransitionTime": now.to_string(),
        }])
    });
    let status = json!({
        "replicas": active.len(),
        "fullyLabeledReplicas": labeled,
        "readyReplicas": active.iter().filter(|pod| is_ready(pod)).count(),
        "availableReplicas": available,
        "observedGeneration": set.metadata.generation,
        "conditions": conditions,
    });
    // The set may have changed under our own writes; report on what is there now.
    match context.world.replica_sets.get(&Key::of(set.as_ref())).cloned() {
        Some(current) => context.patch_status(current.as_ref(), status).await,
        None => Ok(()),
    }
}
