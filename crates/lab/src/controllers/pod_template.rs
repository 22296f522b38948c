//! Pods made from templates, and the facts about pods that every controller counts.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};

/// A pod of `owner` made from its template; the caller sets the name or generate-name.
pub fn pod_from<K>(owner: &K, template: &PodTemplateSpec) -> Pod
where
    K: Resource<DynamicType = ()>,
{
    let mut metadata = ObjectMeta { namespace: owner.namespace(), ..ObjectMeta::default() };
    if let Some(of_template) = &template.metadata {
        metadata.labels.clone_from(&of_template.labels);
        metadata.annotations.clone_from(&of_template.annotations);
        metadata.finalizers.clone_from(&of_template.finalizers);
    }
    metadata.owner_references = controller_reference(owner).map(|reference| vec![reference]);
    Pod { metadata, spec: template.spec.clone(), status: None }
}

/// The owner reference that makes `owner` the controller.
pub fn controller_reference<K>(owner: &K) -> Option<OwnerReference>
where
    K: Resource<DynamicType = ()>,
{
    owner.controller_owner_ref(&()).map(|reference| OwnerReference { block_owner_deletion: Some(true), ..reference })
}

/// The phase, `Pending` when none is reported.
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Whether a pod still counts as a replica: not finished and not being deleted.
pub fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether a pod has ended.
pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// When a pod became ready, if it is.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|c| c.type_ == "Ready" && c.status == "True")?;
    Some(ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}

/// Whether a pod is ready.
pub fn is_ready(pod: &Pod) -> bool {
    ready_since(pod).is_some()
}

/// When a pod counts as available: ready for `min_ready_seconds`.
pub fn available_at(pod: &Pod, min_ready_seconds: Option<i32>) -> Option<Timestamp> {
    let wait = SignedDuration::from_secs(i64::from(min_ready_seconds.unwrap_or(0)));
    ready_since(pod).map(|since| since.saturating_add(wait).unwrap_or(Timestamp::MAX))
}

/// Whether a label selector matches an object. An empty selector matches everything.
pub fn selects(selector: &LabelSelector, object: &impl ResourceExt) -> bool {
    let labels = object.labels();
    let exact = selector.match_labels.iter().flatten().all(|(name, value)| labels.get(name) == Some(value));
    exact
        && selector.match_expressions.iter().flatten().all(|requirement| {
            let value = labels.get(&requirement.key);
            let listed = || value.is_some_and(|value| requirement.values.iter().flatten().any(|v| v == value));
            match requirement.operator.as_str() {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// A short stable name for a template: the same template gives the same hash.
pub fn template_hash(template: &PodTemplateSpec, collision_count: i32) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    // FNV-1a over the JSON text; object keys are in a fixed order.
    let text = serde_json::to_vec(template).unwrap_or_default();
    let seeded = text.iter().copied().chain(collision_count.to_be_bytes());
    let mut hash =
        seeded.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mut name = String::with_capacity(10);
    for _ in 0..10 {
        name.push(char::from(ALPHABET[usize::try_from(hash % ALPHABET.len() as u64).unwrap_or(0)]));
        hash /= ALPHABET.len() as u64;
    }
    name
}
