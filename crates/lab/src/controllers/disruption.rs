//! PodDisruptionBudget: how many of the selected pods may be evicted now.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::context::{Context, key_in};
use super::pod_template::{is_active, is_ready, selects};
use super::world::{Key, Work, controller_of};

/// How long an eviction that was granted may take to show, as in the real controller.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

/// Computes the status of one budget.
pub async fn reconcile(context: &mut Context, key: &Key) -> Result<(), kube::Error> {
    let Some(budget) = context.world.budgets.get(key).cloned() else { return Ok(()) };
    let Some(spec) = budget.spec.as_ref() else { return Ok(()) };
    let Some(selector) = spec.selector.as_ref() else { return Ok(()) };
    let now = context.now();
    let pods: Vec<Arc<Pod>> = context
        .world
        .pods
        .in_namespace(&key.namespace)
        .filter(|pod| selects(selector, pod.as_ref()))
        .cloned()
        .collect();
    let counted: Vec<&Arc<Pod>> = pods.iter().filter(|pod| is_active(pod)).collect();

    let mut disrupted: BTreeMap<String, Timestamp> = BTreeMap::new();
    for (name, granted) in budget.status.iter().filter_map(|status| status.disrupted_pods.as_ref()).flatten() {
        let due = granted.0.saturating_add(DELETION_TIMEOUT).unwrap_or(Timestamp::MAX);
        if due > now && counted.iter().any(|pod| pod.name_any() == *name) {
            disrupted.insert(name.clone(), granted.0);
            context.look_again(due, Work::DisruptionBudget(key.clone()));
        }
    }
    let healthy = counted.iter().filter(|pod| is_ready(pod) && !disrupted.contains_key(&pod.name_any())).count();
    let expected = expected_pods(context, &key.namespace, &counted, uses_scale(spec));
    let desired = match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => expected.saturating_sub(scaled_up(most, expected)),
        (None, Some(least)) => scaled_up(least, expected),
        (None, None) => 0,
    };
    let allowed = if expected == 0 { 0 } else { healthy.saturating_sub(desired) };
    let (word, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let unchanged = budget
        .status
        .iter()
        .filter_map(|s| s.conditions.as_ref())
        .flatten()
        .find(|c| c.type_ == "DisruptionAllowed" && c.status == word);
    let since = unchanged.map_or(now, |condition| condition.last_transition_time.0);
    // Removed names must be set to null in a merge patch.
    let mut map: BTreeMap<String, Value> =
        disrupted.iter().map(|(name, time)| (name.clone(), json!(time.to_string()))).collect();
    for name in budget.status.iter().filter_map(|s| s.disrupted_pods.as_ref()).flatten().map(|(name, _)| name) {
        map.entry(name.clone()).or_insert(Value::Null);
    }
    let status = json!({
        "expectedPods": expected,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "disruptedPods": if map.is_empty() { Value::Null } else { json!(map) },
        "observedGeneration": budget.metadata.generation,
        "conditions": [{
            "type": "DisruptionAllowed", "status": word, "reason": reason, "message": "",
            "lastTransitionTime": since.to_string(), "observedGeneration": budget.metadata.generation,
        }],
    });
    context.patch_status(budget.as_ref(), status).await
}

fn uses_scale(spec: &k8s_openapi::api::policy::v1::PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// Pods there should be: what their controllers want when the budget is relative, else the pods there are.
fn expected_pods(context: &Context, namespace: &str, pods: &[&Arc<Pod>], relative: bool) -> usize {
    if !relative {
        return pods.len();
    }
    let mut controllers: BTreeMap<String, usize> = BTreeMap::new();
    let mut bare = 0;
    for pod in pods {
        let Some(owner) = controller_of(pod.as_ref()) else {
            bare += 1;
            continue;
        };
        let key = key_in(namespace, &owner.name);
        let replicas = match owner.kind.as_str() {
            "ReplicaSet" => context.world.replica_sets.get(&key).and_then(|set| {
                let by_deployment = controller_of(set.as_ref())
                    .and_then(|owner| context.world.deployments.get(&key_in(namespace, &owner.name)))
                    .and_then(|deployment| deployment.spec.as_ref()?.replicas);
                by_deployment.or_else(|| set.spec.as_ref()?.replicas)
            }),
            "StatefulSet" => context.world.stateful_sets.get(&key).and_then(|set| set.spec.as_ref()?.replicas),
            _ => None,
        };
        match replicas {
            Some(replicas) => {
                controllers.insert(owner.uid.clone(), usize::try_from(replicas).unwrap_or(0));
            }
            None => bare += 1,
        }
    }
    controllers.values().sum::<usize>() + bare
}

fn scaled_up(value: &IntOrString, total: usize) -> usize {
    match value {
        IntOrString::Int(number) => usize::try_from(*number).unwrap_or(0),
        IntOrString::String(text) => {
            let percent: usize = text.trim_end_matches('%').parse().unwrap_or(0);
            (percent * total).div_ceil(100)
        }
    }
}
