//! Deployment: one ReplicaSet per template, scaled so that a rollout never has too few or too many pods.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::context::{Context, EventKind, key_in};
use super::pod_template::{controller_reference, is_finished, selects, template_hash};
use super::world::{Key, Work, controller_of};

const CONTROLLER: &str = "deployment-controller";
const HASH_LABEL: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";

/// Brings one Deployment closer to its spec.
pub async fn reconcile(context: &mut Context, key: &Key) -> Result<(), kube::Error> {
    let Some(deployment) = context.world.deployments.get(key).cloned() else { return Ok(()) };
    let Some(spec) = deployment.spec.as_ref() else { return Ok(()) };
    if deployment.metadata.deletion_timestamp.is_some() {
        return report(context, key).await;
    }
    adopt(context, &deployment, spec).await?;
    let paused = spec.paused == Some(true);
    let current = match current_set(context, &deployment, spec) {
        Some(set) => Some(set),
        None if paused => None,
        None => create_set(context, &deployment, spec).await?,
    };
    if let Some(set) = &current {
        bump_revision(context, &deployment, set).await?;
    }
    let sets = owned_sets(context, &deployment);
    let old: Vec<Arc<ReplicaSet>> =
        sets.iter().filter(|set| current.as_ref().is_none_or(|new| new.uid() != set.uid())).cloned().collect();
    let wanted = spec.replicas.unwrap_or(1).max(0);
    if paused {
        if let [only] = sets.iter().filter(|set| replicas(set) > 0).collect::<Vec<_>>().as_slice() {
            scale(context, &deployment, only, wanted).await?;
        }
    } else if let Some(new) = &current {
        if spec.strategy.as_ref().and_then(|s| s.type_.as_deref()) == Some("Recreate") {
            recreate(context, &deployment, new, &old, wanted).await?;
        } else {
            roll(context, &deployment, spec, new, &old, wanted).await?;
        }
        forget_history(context, spec, &old).await?;
    }
    report(context, key).await
}

fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

fn owned_sets(context: &Context, deployment: &Deployment) -> Vec<Arc<ReplicaSet>> {
    let mut sets = context.world.replica_sets.controlled_by(&deployment.uid().unwrap_or_default());
    sets.retain(|set| set.metadata.deletion_timestamp.is_none());
    sets.sort_by_key(|set| (set.creation_timestamp().map(|time| time.0), set.name_any()));
    sets
}

/// The set whose template is the deployment's, apart from the hash label.
fn current_set(context: &Context, deployment: &Deployment, spec: &DeploymentSpec) -> Option<Arc<ReplicaSet>> {
    owned_sets(context, deployment).into_iter().find(|set| {
        let Some(template) = set.spec.as_ref().and_then(|spec| spec.template.as_ref()) else { return false };
        without_hash(template) == without_hash(&spec.template)
    })
}

fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(labels) = template.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut()) {
        labels.remove(HASH_LABEL);
    }
    template
}

async fn create_set(
    context: &mut Context,
    deployment: &Arc<Deployment>,
    spec: &DeploymentSpec,
) -> Result<Option<Arc<ReplicaSet>>, kube::Error> {
    let mut collisions = deployment.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0);
    loop {
        let hash = template_hash(&spec.template, collisions);
        let name = format!("{}-{hash}", deployment.name_any());
        let set = new_set(deployment, spec, &name, &hash, next_revision(context, deployment));
        match context.create(&set).await {
            Ok(created) => {
                let message = format!("Scaled up replica set {name} from 0 to {}", replicas(&created));
                if replicas(&created) > 0 {
                    context
                        .event(deployment.as_ref(), CONTROLLER, EventKind::Normal, "ScalingReplicaSet", message)
                        .await;
                }
                return Ok(context.world.replica_sets.get(&Key::of(&created)).cloned());
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                // Ours but not yet seen: the watch will bring it. Somebody else's: another name.
                let key = key_in(&deployment.namespace().unwrap_or_default(), &name);
                let ours = context.world.replica_sets.get(&key).is_none_or(|set| {
                    controller_of(set.as_ref()).is_some_and(|owner| Some(&owner.uid) == deployment.uid().as_ref())
                });
                if ours {
                    return Ok(None);
                }
                collisions += 1;
                context.patch_status(deployment.as_ref(), json!({ "collisionCount": collisions })).await?;
            }
            Err(error) => return Err(error),
        }
    }
}

fn new_set(deployment: &Deployment, spec: &DeploymentSpec, name: &str, hash: &str, revision: i64) -> ReplicaSet {
    let mut template = spec.template.clone();
    template
        .metadata
        .get_or_insert_default()
        .labels
        .get_or_insert_default()
        .insert(HASH_LABEL.to_owned(), hash.to_owned());
    let mut selector = spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.to_owned());
    let mut annotations = deployment.metadata.annotations.clone().unwrap_or_default();
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    annotations.insert(REVISION.to_owned(), revision.to_string());
    let wanted = spec.replicas.unwrap_or(1);
    annotations.insert("deployment.kubernetes.io/desired-replicas".to_owned(), wanted.to_string());
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: deployment.namespace(),
            labels: template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()),
            annotations: Some(annotations),
            owner_references: controller_reference(deployment).map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            // The rollout decides how many; a fresh set starts empty.
            replicas: Some(0),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        }),
        status: None,
    }
}

fn revision_of(set: &ReplicaSet) -> i64 {
    set.annotations().get(REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn next_revision(context: &Context, deployment: &Deployment) -> i64 {
    owned_sets(context, deployment).iter().map(|set| revision_of(set)).max().unwrap_or(0) + 1
}

/// The current set carries the highest revision (also after a rollback), and the deployment repeats it.
async fn bump_revision(
    context: &mut Context,
    deployment: &Arc<Deployment>,
    set: &Arc<ReplicaSet>,
) -> Result<(), kube::Error> {
    let highest_other = owned_sets(context, deployment)
        .iter()
        .filter(|other| other.uid() != set.uid())
        .map(|other| revision_of(other))
        .max();
    let mut revision = revision_of(set);
    if highest_other.is_some_and(|other| other >= revision) {
        revision = highest_other.unwrap_or(0) + 1;
        context
            .patch(set.as_ref(), &json!({ "metadata": { "annotations": { REVISION: revision.to_string() } } }))
            .await?;
    }
    let text = revision.to_string();
    if deployment.annotations().get(REVISION) != Some(&text) {
        // By way of the status, which leaves the generation alone: annotations of a Deployment count for it otherwise.
        context
            .patch_with_status(deployment.as_ref(), &json!({ "metadata": { "annotations": { REVISION: text } } }))
            .await?;
    }
    Ok(())
}

/// Orphaned sets that match the selector become ours again (as after `delete --cascade=orphan`).
async fn adopt(context: &mut Context, deployment: &Arc<Deployment>, spec: &DeploymentSpec) -> Result<(), kube::Error> {
    let namespace = deployment.namespace().unwrap_or_default();
    let orphans: Vec<Arc<ReplicaSet>> = context
        .world
        .replica_sets
        .in_namespace(&namespace)
        .filter(|set| {
            controller_of(set.as_ref()).is_none()
                && set.metadata.deletion_timestamp.is_none()
                && selects(&spec.selector, set.as_ref())
        })
        .cloned()
        .collect();
    for set in orphans {
        let mut owners = set.metadata.owner_references.clone().unwrap_or_default();
        owners.extend(controller_reference(deployment.as_ref()));
        context.patch(set.as_ref(), &json!({ "metadata": { "uid": set.uid(), "ownerReferences": owners } })).await?;
    }
    Ok(())
}

async fn recreate(
    context: &mut Context,
    deployment: &Arc<Deployment>,
    new: &Arc<ReplicaSet>,
    old: &[Arc<ReplicaSet>],
    wanted: i32,
) -> Result<(), kube::Error> {
    for set in old.iter().filter(|set| replicas(set) > 0) {
        scale(context, deployment, set, 0).await?;
    }
    let old_pods_left = old.iter().any(|set| {
        context.world.pods.controlled_by(&set.uid().unwrap_or_default()).iter().any(|pod| !is_finished(pod))
    });
    if old_pods_left { Ok(()) } else { scale(context, deployment, new, wanted).await }
}

async fn roll(
    context: &mut Context,
    deployment: &Arc<Deployment>,
    spec: &DeploymentSpec,
    new: &Arc<ReplicaSet>,
    old: &[Arc<ReplicaSet>],
    wanted: i32,
) -> Result<(), kube::Error> {
    let (surge, unavailable) = rollout_limits(spec, wanted);
    let total: i32 = replicas(new) + old.iter().map(|set| replicas(set)).sum::<i32>();
    if replicas(new) > wanted {
        scale(context, deployment, new, wanted).await?;
    } else if replicas(new) < wanted {
        let room = (wanted + surge - total).max(0);
        scale(context, deployment, new, (replicas(new) + room).min(wanted)).await?;
    }
    let Some(new) = context.world.replica_sets.get(&Key::of(new.as_ref())).cloned() else { return Ok(()) };

    // Old pods may go as long as enough pods stay available; those that never came up go first.
    let total: i32 = replicas(&new) + old.iter().map(|set| replicas(set)).sum::<i32>();
    let least = wanted - unavailable;
    let not_yet_available = replicas(&new) - available(&new);
    let mut may_go = (total - least - not_yet_available).max(0);
    let mut sizes: Vec<i32> = old.iter().map(|set| replicas(set)).collect();
    for (set, size) in old.iter().zip(&mut sizes) {
        let unhealthy = (*size - available(set)).clamp(0, may_go.min(*size));
        *size -= unhealthy;
        may_go -= unhealthy;
    }
    let all_available: i32 = available(&new) + old.iter().map(|set| available(set)).sum::<i32>();
    may_go = may_go.min((all_available - least).max(0));
    for size in &mut sizes {
        let healthy = (*size).min(may_go);
        *size -= healthy;
        may_go -= healthy;
    }
    for (set, size) in old.iter().zip(sizes) {
        scale(context, deployment, set, size).await?;
    }
    Ok(())
}

/// How many pods above and below the wanted number a rollout may have.
fn rollout_limits(spec: &DeploymentSpec, wanted: i32) -> (i32, i32) {
    let rolling = spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let part = |value: Option<&IntOrString>, up: bool| match value {
        Some(IntOrString::Int(number)) => (*number).max(0),
        Some(IntOrString::String(text)) => {
            let percent = i64::from(text.trim_end_matches('%').parse::<i32>().unwrap_or(0)) * i64::from(wanted);
            i32::try_from(if up { (percent + 99) / 100 } else { percent / 100 }).unwrap_or(i32::MAX)
        }
        None => 0,
    };
    let surge = part(rolling.and_then(|r| r.max_surge.as_ref()), true);
    let unavailable = part(rolling.and_then(|r| r.max_unavailable.as_ref()), false);
    // Both zero (after rounding) would stand still.
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable.min(wanted)) }
}

async fn scale(
    context: &mut Context,
    deployment: &Arc<Deployment>,
    set: &Arc<ReplicaSet>,
    to: i32,
) -> Result<(), kube::Error> {
    let from = replicas(set);
    if from == to {
        return Ok(());
    }
    context.patch(set.as_ref(), &json!({ "spec": { "replicas": to } })).await?;
    let direction = if to > from { "up" } else { "down" };
    let message = format!("Scaled {direction} replica set {} from {from} to {to}", set.name_any());
    context.event(deployment.as_ref(), CONTROLLER, EventKind::Normal, "ScalingReplicaSet", message).await;
    Ok(())
}

async fn forget_history(
    context: &mut Context,
    spec: &DeploymentSpec,
    old: &[Arc<ReplicaSet>],
) -> Result<(), kube::Error> {
    let keep = usize::try_from(spec.revision_history_limit.unwrap_or(10)).unwrap_or(0);
    let mut empty: Vec<&Arc<ReplicaSet>> = old
        .iter()
        .filter(|set| replicas(set) == 0 && set.status.as_ref().is_none_or(|status| status.replicas == 0))
        .collect();
    empty.sort_by_key(|set| revision_of(set));
    let surplus = empty.len().saturating_sub(keep);
    for set in empty.into_iter().take(surplus) {
        context.delete(set.as_ref()).await?;
    }
    Ok(())
}

async fn report(context: &mut Context, key: &Key) -> Result<(), kube::Error> {
    let Some(deployment) = context.world.deployments.get(key).cloned() else { return Ok(()) };
    let Some(spec) = deployment.spec.as_ref() else { return Ok(()) };
    let sets = owned_sets(context, &deployment);
    let new = current_set(context, &deployment, spec);
    let sum = |count: fn(&ReplicaSet) -> i32| sets.iter().map(|set| count(set)).sum::<i32>();
    let status_count = |set: &ReplicaSet| set.status.as_ref().map_or(0, |status| status.replicas);
    let total = sets.iter().map(|set| status_count(set)).sum::<i32>();
    let updated = new.as_ref().map_or(0, |set| status_count(set));
    let ready = sum(|set| set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0));
    let available_pods = sum(available);
    let wanted = spec.replicas.unwrap_or(1).max(0);
    let (_, unavailable) = rollout_limits(spec, wanted);
    let now = context.now();

    let mut conditions = Conditions { old: &deployment, now, list: Vec::new() };
    if available_pods >= wanted - unavailable {
        conditions.set("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.");
    } else {
        conditions.set(
            "Available",
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        );
    }
    let complete = updated == wanted && total == wanted && available_pods == wanted;
    let name = new.as_ref().map(|set| set.name_any()).unwrap_or_default();
    if complete && !name.is_empty() {
        let message = format!("ReplicaSet \"{name}\" has successfully progressed.");
        conditions.set("Progressing", "True", "NewReplicaSetAvailable", &message);
    } else if !name.is_empty() {
        let deadline = SignedDuration::from_secs(i64::from(spec.progress_deadline_seconds.unwrap_or(600)));
        let was = deployment.status.as_ref();
        let moved = was.is_none_or(|was| {
            was.updated_replicas.unwrap_or(0) != updated
                || was.ready_replicas.unwrap_or(0) != ready
                || was.available_replicas.unwrap_or(0) != available_pods
                || was.replicas.unwrap_or(0) != total
        });
        let due = conditions
            .updated("Progressing")
            .filter(|_| !moved)
            .unwrap_or(now)
            .saturating_add(deadline)
            .unwrap_or(Timestamp::MAX);
        if due <= now {
            let message = format!("ReplicaSet \"{name}\" has timed out progressing.");
            conditions.set("Progressing", "False", "ProgressDeadlineExceeded", &message);
        } else {
            let message = format!("ReplicaSet \"{name}\" is progressing.");
            conditions.set("Progressing", "True", "ReplicaSetUpdated", &message);
            if moved {
                conditions.touch("Progressing");
            }
            context.look_again(due, Work::Deployment(key.clone()));
        }
    }
    let status = json!({
        "replicas": total,
        "updatedReplicas": updated,
        "readyReplicas": ready,
        "availableReplicas": available_pods,
        "unavailableReplicas": (wanted.max(total) - available_pods).max(0),
        "observedGeneration": deployment.metadata.generation,
        "conditions": conditions.list,
    });
    context.patch_status(deployment.as_ref(), status).await
}

/// Builds the condition list, keeping the times of what did not change.
struct Conditions<'a> {
    old: &'a Deployment,
    now: Timestamp,
    list: Vec<Value>,
}

impl Conditions<'_> {
    fn previous(&self, kind: &str) -> Option<&k8s_openapi::api::apps::v1::DeploymentCondition> {
        self.old.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
    }

    fn updated(&self, kind: &str) -> Option<Timestamp> {
        self.previous(kind)?.last_update_time.as_ref().map(|time| time.0)
    }

    fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let previous = self.previous(kind);
        let same_status = previous.filter(|p| p.status == status);
        let same = same_status.filter(|p| p.reason.as_deref() == Some(reason) && p.message.as_deref() == Some(message));
        let now = self.now;
        let transition = same_status.and_then(|p| p.last_transition_time.as_ref()).map_or(now, |time| time.0);
        let update = same.and_then(|p| p.last_update_time.as_ref()).map_or(now, |time| time.0);
        self.list.push(json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": transition.to_string(), "lastUpdateTime": update.to_string(),
        }));
    }

    fn touch(&mut self, kind: &str) {
        for condition in self.list.iter_mut().filter(|condition| condition["type"] == kind) {
            condition["lastUpdateTime"] = json!(self.now.to_string());
        }
    }
}
