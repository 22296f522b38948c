//! StatefulSet: pods with ordinals, made and replaced one after the other (or all at once with `Parallel`).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, Volume};
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::json;

use super::context::{Context, EventKind};
use super::pod_template::{available_at, is_finished, is_ready, pod_from};
use super::revision::{self, REVISION_LABEL, Revision};
use super::world::{Key, Work};

const CONTROLLER: &str = "statefulset-controller";

/// Brings one StatefulSet closer to its spec.
pub async fn reconcile(context: &mut Context, key: &Key) -> Result<(), kube::Error> {
    let Some(set) = context.world.stateful_sets.get(key).cloned() else { return Ok(()) };
    let Some(spec) = set.spec.as_ref() else { return Ok(()) };
    if set.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let labels = spec.selector.match_labels.clone().unwrap_or_default();
    let revision = revision::ensure(context, set.as_ref(), &spec.template, labels).await?;
    let previous =
        set.status.as_ref().and_then(|status| status.current_revision.clone()).unwrap_or_else(|| revision.name.clone());
    let first = spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0);
    let wanted = first..first + spec.replicas.unwrap_or(1).max(0);
    let parallel = spec.pod_management_policy.as_deref() == Some("Parallel");

    if settle_replicas(context, &set, spec, &revision, &previous, wanted.clone(), parallel).await? {
        update(context, &set, spec, &revision, wanted).await?;
    }
    report(context, key, spec, &revision, previous).await?;
    let used: Vec<String> =
        owned(context, &set).values().filter_map(|pod| pod.labels().get(REVISION_LABEL).cloned()).collect();
    revision::trim(context, &revision, &used, spec.revision_history_limit).await
}

/// Pods of the set by ordinal.
fn owned(context: &Context, set: &StatefulSet) -> BTreeMap<i32, Arc<Pod>> {
    let prefix = format!("{}-", set.name_any());
    let pods = context.world.pods.controlled_by(&set.uid().unwrap_or_default());
    pods.into_iter().filter_map(|pod| Some((pod.name_any().strip_prefix(&prefix)?.parse().ok()?, pod))).collect()
}

/// Makes missing pods in order and removes surplus ones from the top. True when nothing is left to do or wait for.
async fn settle_replicas(
    context: &mut Context,
    set: &Arc<StatefulSet>,
    spec: &StatefulSetSpec,
    revision: &Revision,
    previous: &str,
    wanted: std::ops::Range<i32>,
    parallel: bool,
) -> Result<bool, kube::Error> {
    let partition =
        spec.update_strategy.as_ref().and_then(|s| s.rolling_update.as_ref()).and_then(|r| r.partition).unwrap_or(0);
    for ordinal in wanted.clone() {
        match owned(context, set).get(&ordinal) {
            Some(pod) if is_finished(pod) => {
                let pod = pod.clone();
                context.delete(pod.as_ref()).await?;
                return Ok(false);
            }
            Some(pod) if pod.metadata.deletion_timestamp.is_some() => {
                if !parallel {
                    return Ok(false);
                }
            }
            Some(pod) if !is_ready(pod) && !parallel => return Ok(false),
            Some(_) => {}
            None => {
                // Below the partition a lost pod comes back in its old version.
                let name = if ordinal < partition { previous } else { revision.name.as_str() };
                create(context, set, spec, ordinal, name).await?;
                if !parallel {
                    return Ok(false);
                }
            }
        }
    }
    let surplus: Vec<Arc<Pod>> = owned(context, set)
        .into_iter()
        .rev()
        .filter(|(ordinal, _)| !wanted.contains(ordinal))
        .map(|(_, pod)| pod)
        .collect();
    for pod in surplus {
        if pod.metadata.deletion_timestamp.is_none() {
            context.delete(pod.as_ref()).await?;
            let message = format!("delete Pod {} in StatefulSet {} successful", pod.name_any(), set.name_any());
            context.event(set.as_ref(), CONTROLLER, EventKind::Normal, "SuccessfulDelete", message).await;
        }
        if !parallel {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Replaces one outdated pod, from the highest ordinal down to the partition.
async fn update(
    context: &mut Context,
    set: &Arc<StatefulSet>,
    spec: &StatefulSetSpec,
    revision: &Revision,
    wanted: std::ops::Range<i32>,
) -> Result<(), kube::Error> {
    let strategy = spec.update_strategy.as_ref();
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
        return Ok(());
    }
    let partition = strategy.and_then(|s| s.rolling_update.as_ref()).and_then(|r| r.partition).unwrap_or(0);
    for (ordinal, pod) in owned(context, set).into_iter().rev() {
        if ordinal < partition.max(wanted.start) {
            break;
        }
        if pod.labels().get(REVISION_LABEL) != Some(&revision.name) && pod.metadata.deletion_timestamp.is_none() {
            return context.delete(pod.as_ref()).await;
        }
        if !is_ready(&pod) {
            break;
        }
    }
    Ok(())
}

async fn create(
    context: &mut Context,
    set: &Arc<StatefulSet>,
    spec: &StatefulSetSpec,
    ordinal: i32,
    revision: &str,
) -> Result<(), kube::Error> {
    let name = format!("{}-{ordinal}", set.name_any());
    let template = template_of(context, set, spec, revision);
    let mut pod = pod_from(set.as_ref(), &template);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert("statefulset.kubernetes.io/pod-name".to_owned(), name.clone());
    labels.insert("apps.kubernetes.io/pod-index".to_owned(), ordinal.to_string());
    labels.insert(REVISION_LABEL.to_owned(), revision.to_owned());
    pod.metadata.name = Some(name.clone());
    for claim in spec.volume_claim_templates.iter().flatten() {
        let claim_name = format!("{}-{name}", claim.name_any());
        create_claim(context, set, claim, &claim_name).await?;
        let volumes = pod.spec.get_or_insert_default().volumes.get_or_insert_default();
        volumes.retain(|volume| volume.name != claim.name_any());
        volumes.push(Volume {
            name: claim.name_any(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource { claim_name, read_only: None }),
            ..Volume::default()
        });
    }
    let pod_spec = pod.spec.get_or_insert_default();
    pod_spec.hostname = Some(name.clone());
    pod_spec.subdomain.clone_from(&spec.service_name);
    match context.create(&pod).await {
        Ok(_) => {
            let message = format!("create Pod {name} in StatefulSet {} successful", set.name_any());
            context.event(set.as_ref(), CONTROLLER, EventKind::Normal, "SuccessfulCreate", message).await;
            Ok(())
        }
        Err(error) => {
            let message = format!("create Pod {name} in StatefulSet {} failed error: {error}", set.name_any());
            context.event(set.as_ref(), CONTROLLER, EventKind::Warning, "FailedCreate", message).await;
            Err(error)
        }
    }
}

/// The template of a revision: the set's own for the newest, else the one kept in history.
fn template_of(
    context: &Context,
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    revision: &str,
) -> k8s_openapi::api::core::v1::PodTemplateSpec {
    let history = context.world.revisions.controlled_by(&set.uid().unwrap_or_default());
    let kept = history
        .iter()
        .find(|kept| kept.name_any() == revision)
        .and_then(|kept| serde_json::from_value(kept.data.as_ref()?.0.pointer("/spec/template")?.clone()).ok());
    kept.unwrap_or_else(|| spec.template.clone())
}

async fn create_claim(
    context: &Context,
    set: &StatefulSet,
    template: &PersistentVolumeClaim,
    name: &str,
) -> Result<(), kube::Error> {
    let mut claim = template.clone();
    claim.metadata.name = Some(name.to_owned());
    claim.metadata.namespace = set.namespace();
    claim.metadata.labels = set.spec.as_ref().and_then(|spec| spec.selector.match_labels.clone());
    claim.status = None;
    let api = context.api::<PersistentVolumeClaim>(set.namespace().as_deref());
    match api.create(&PostParams::default(), &claim).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error),
    }
}

async fn report(
    context: &mut Context,
    key: &Key,
    spec: &StatefulSetSpec,
    revision: &Revision,
    previous: String,
) -> Result<(), kube::Error> {
    let Some(set) = context.world.stateful_sets.get(key).cloned() else { return Ok(()) };
    let now = context.now();
    let pods = owned(context, &set);
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    let of_revision = |name: &str| {
        pods.values().filter(|pod| pod.labels().get(REVISION_LABEL).is_some_and(|label| label == name)).count()
    };
    let updated = of_revision(&revision.name);
    let ready = pods.values().filter(|pod| is_ready(pod)).count();
    let mut available = 0;
    for pod in pods.values() {
        match available_at(pod, spec.min_ready_seconds) {
            Some(due) if due <= now => available += 1,
            Some(due) => context.look_again(due, Work::StatefulSet(key.clone())),
            None => {}
        }
    }
    // A finished update makes the new revision the current one.
    let done = updated == wanted && ready == wanted && pods.len() == wanted;
    let current = if done { revision.name.clone() } else { previous };
    let status = json!({
        "replicas": pods.len(),
        "readyReplicas": ready,
        "availableReplicas": available,
        "currentReplicas": of_revision(&current),
        "updatedReplicas": updated,
        "currentRevision": current,
        "updateRevision": revision.name,
        "collisionCount": 0,
        "observedGeneration": set.metadata.generation,
    });
    context.patch_status(set.as_ref(), status).await
}
