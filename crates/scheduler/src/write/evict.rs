//! A delete per victim, by uid: a pod of the same name that came later is never hit. Who took its place is told first, so that a victim
//! knows it even if this process dies with the delete.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kai_kit::{Class, classify, errors::message, events::Kind};
use kube::{
    Api,
    api::{DeleteParams, Preconditions},
};
use serde_json::json;

use super::Surroundings;
use crate::outcome::Outcome;

/// How often it is tried.
const TRIES: u32 = 8;
/// The pause after a refusal.
const REFUSED: Duration = Duration::from_secs(10);

/// A pod to be deleted.
pub(crate) struct Evict {
    /// The pod.
    pub(crate) pod: ObjectReference,
    /// Its group.
    pub(crate) group: Option<ObjectReference>,
    /// Who took its place, under which rule, with the numbers.
    pub(crate) text: String,
    /// For programs, on the event about the group.
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Deletes the pod, and finds out whether it stays.
pub(crate) async fn write(around: Arc<Surroundings>, evict: Evict) -> Outcome {
    let uid = evict.pod.uid.clone().unwrap_or_default();
    let name = evict.pod.name.clone().unwrap_or_default();
    let namespace = evict.pod.namespace.clone().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(around.process.client.clone(), &namespace);
    let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    if *around.leads.borrow() {
        tell(&around, &evict).await;
        if around.disruption_condition {
            say_disrupted(&around, &api, &name, &evict.text).await;
        }
    }
    let mut why = String::new();
    for failures in 1..=TRIES {
        if !*around.leads.borrow() {
            break;
        }
        match api.delete(&name, &parameters).await {
            Ok(_) => return Outcome::Evicted { uid, stays: None },
            Err(error) => match classify(&error) {
                Class::Gone => return Outcome::Evicted { uid, stays: None },
                Class::Refused => {
                    why = format!(": {}", message(&error));
                    // The same victim would be chosen again at once.
                    around.process.sleep(REFUSED).await;
                    break;
                }
                // Another one has its name, or it was being changed. What is there now tells which.
                Class::Conflict => break,
                Class::Exists | Class::Unauthorized | Class::Transient => {}
            },
        }
        if !around.pause(failures).await {
            break;
        }
    }
    let outcome = find_out(&around, &api, &name, uid).await;
    if let Outcome::Evicted { stays: Some(_), .. } = &outcome {
        let text = format!("the pod was to be evicted and stays for now, for it could not be deleted{why}");
        around.process.events.tell_of(evict.pod, Kind::Warning, "EvictionFailed", text, BTreeMap::new());
    }
    outcome
}

/// Tells the pod and its group who takes the place.
async fn tell(around: &Surroundings, evict: &Evict) {
    let events = &around.process.events;
    let pod = events.tell_first(evict.pod.clone(), Kind::Normal, "Evict", evict.text.clone(), BTreeMap::new());
    match evict.group.clone() {
        Some(group) => {
            let group = events.tell_first(group, Kind::Normal, "Evict", evict.text.clone(), evict.annotations.clone());
            futures::future::join(pod, group).await;
        }
        None => pod.await,
    }
}

/// Finds out whether a pod is to be deleted, where what was heard last is older than what is known.
pub(crate) async fn look_again(around: Arc<Surroundings>, pod: ObjectReference) -> Outcome {
    let api: Api<Pod> = Api::namespaced(around.process.client.clone(), pod.namespace.as_deref().unwrap_or_default());
    let uid = pod.uid.unwrap_or_default();
    find_out(&around, &api, pod.name.as_deref().unwrap_or_default(), uid).await
}

/// Asks until there is an answer whether the pod is still there.
async fn find_out(around: &Surroundings, api: &Api<Pod>, name: &str, uid: String) -> Outcome {
    let mut failures = 0;
    loop {
        match api.get_opt(name).await {
            Ok(found) => {
                let same =
                    |pod: &Pod| pod.metadata.uid.as_ref() == Some(&uid) && pod.metadata.deletion_timestamp.is_none();
                let stays = found.filter(same).map(Arc::new);
                return Outcome::Evicted { uid, stays };
            }
            Err(_) => failures += 1,
        }
        if !around.pause(failures).await {
            return Outcome::Evicted { uid, stays: None };
        }
    }
}

async fn say_disrupted(around: &Surroundings, api: &Api<Pod>, name: &str, text: &str) {
    let now = around.process.now().to_string();
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": text, "lastTransitionTime": now});
    let patch = json!({"status": {"conditions": [condition]}});
    let parameters = kube::api::PatchParams::default();
    // Advice: the eviction does not depend on it.
    if let Err(error) = api.patch_status(name, &parameters, &kube::api::Patch::Strategic(patch)).await {
        tracing::debug!(%error, "condition not written");
    }
}
