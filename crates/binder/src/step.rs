//! From what is to what is done next: the whole logic of a BindRequest as one function without effects.
//!
//! ```text
//!  Reserving ──▶ Preparing ──▶ Binding ──▶ Bound
//!      │ every shared GPU        │ labels, volumes, claims, ConfigMaps, then the binding; repeated from the start after a crash
//!      └ waits for reservation pods; no worker does
//! ```

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kai_api::BindRequest;

use crate::{
    failure::Failure,
    reservation::Hold,
    world::{has_ended, is_finished, is_fraction, node_of, place, pod_key},
};

/// Everything a decision depends on. What the mirrors do not have was asked for.
pub(crate) struct View<'a> {
    pub(crate) request: &'a BindRequest,
    pub(crate) pod: Option<&'a Pod>,
    pub(crate) node: Option<&'a Node>,
    /// The device of each group of the request, in its order; for whole GPUs what stands in the way of any being handed out.
    pub(crate) holds: &'a [Hold],
    pub(crate) now: Timestamp,
}

/// What is done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing.
    Nothing,
    /// The request is deleted, for the pod it is about is gone.
    Discard,
    /// Nothing before this time has passed.
    Later(Duration),
    /// Reservations are waited for, this is what is missing.
    Await(String),
    /// The pod is prepared and bound, with these devices.
    Bind(Vec<String>),
    /// The pod is where it should be.
    Succeed,
    /// It failed.
    Fail(Failure),
}

/// Decides.
pub(crate) fn step(view: &View<'_>) -> Action {
    let request = view.request;
    if request.metadata.deletion_timestamp.is_some() || is_finished(request) {
        return Action::Nothing;
    }
    let Some(pod) = view.pod else { return Action::Discard };
    if owner(request).is_some_and(|uid| Some(uid) != pod.metadata.uid.as_deref()) {
        return Action::Discard;
    }
    let (key, selected) = (pod_key(request), node_of(request));
    match place(pod) {
        Some(node) if node == selected => return Action::Succeed,
        Some(node) => {
            let text = format!("pod {key} is already on node {node}, not on node {selected} which was chosen for it");
            return Action::Fail(Failure::Gone(text));
        }
        None => {}
    }
    if pod.metadata.deletion_timestamp.is_some() || has_ended(pod) {
        return Action::Fail(Failure::Gone(format!("pod {key} is being deleted or has ended")));
    }
    if let Some(pause) = pause(request, view.now) {
        return Action::Later(pause);
    }
    if selected.is_empty() {
        let text = "the BindRequest names no node in spec.selectedNode; delete it and the scheduler makes a new one";
        return Action::Fail(Failure::Refused(text.to_owned()));
    }
    if view.node.is_none() {
        return Action::Fail(Failure::Gone(format!("node {selected} is gone")));
    }
    if !is_fraction(request) {
        let missing = view.holds.iter().find_map(|hold| if let Hold::Waiting(what) = hold { Some(what) } else { None });
        return missing.map_or(Action::Bind(Vec::new()), |what| Action::Await(format!("waits for {what}")));
    }
    if request.spec.selected_gpu_groups.is_empty() {
        let text = "the BindRequest shares GPUs but names none in spec.selectedGPUGroups; \
                    delete it and the scheduler makes a new one";
        return Action::Fail(Failure::Refused(text.to_owned()));
    }
    let mut devices = Vec::new();
    let mut missing = None;
    for hold in view.holds {
        match hold {
            Hold::Ready(device) => devices.push(device.clone()),
            Hold::Waiting(what) => missing = missing.or(Some(what)),
            Hold::Broken(why) => {
                return Action::Fail(Failure::Refused(format!("no shared GPU on node {selected}: {why}")));
            }
        }
    }
    match missing {
        Some(what) => Action::Await(format!("waits for {what}")),
        None => Action::Bind(devices),
    }
}

/// The uid of the pod that a request belongs to.
pub(crate) fn owner(request: &BindRequest) -> Option<&str> {
    let owners = request.metadata.owner_references.iter().flatten();
    owners.filter(|owner| owner.kind == "Pod").map(|owner| owner.uid.as_str()).next()
}

/// How long until the next attempt.
fn pause(request: &BindRequest, now: Timestamp) -> Option<Duration> {
    let until = request.status.as_ref()?.next_retry.as_ref()?.0;
    Duration::try_from(until.duration_since(now)).ok().filter(|pause| !pause.is_zero())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn act(request: Value, pod: impl Into<Option<Value>>, holds: &[Hold]) -> Action {
        let mut object = json!({"metadata": {"name": "p", "namespace": "team",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]},
            "spec": {"podName": "p", "selectedNode": "n"}});
        for (field, value) in request.as_object().expect("an object") {
            for (key, inner) in value.as_object().expect("an object") {
                object[field][key] = inner.clone();
            }
        }
        let request = serde_json::from_value(object).expect("a request");
        let pod = pod.into().map(|pod| serde_json::from_value(pod).expect("a pod"));
        let node = Node::default();
        let now = NOW.parse().expect("a time");
        step(&View { request: &request, pod: pod.as_ref(), node: Some(&node), holds, now })
    }

    fn pod(node: Option<&str>) -> Value {
        json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"nodeName": node, "containers": []}})
    }

    #[test]
    fn a_whole_gpu_is_bound_at_once_and_known_when_it_is_bound() {
        assert_eq!(act(json!({}), pod(None), &[]), Action::Bind(vec![]));
        assert_eq!(act(json!({}), pod(Some("n")), &[]), Action::Succeed);
        assert_eq!(act(json!({"status": {"phase": "Succeeded"}}), pod(None), &[]), Action::Nothing);
        let unguarded = [Hold::Waiting("it".to_owned())];
        assert_eq!(act(json!({}), pod(None), &unguarded), Action::Await("waits for it".to_owned()));
    }

    #[test]
    fn a_pod_on_another_node_is_not_a_success() {
        let Action::Fail(failure) = act(json!({}), pod(Some("m")), &[]) else { panic!("not a failure") };
        assert_eq!(failure.text(), "pod team/p is already on node m, not on node n which was chosen for it");
    }

    #[test]
    fn a_request_of_a_pod_that_went_is_discarded() {
        assert_eq!(act(json!({}), None, &[]), Action::Discard);
        let replaced = json!({"metadata": {"name": "p", "uid": "other"}, "spec": {"containers": []}});
        assert_eq!(act(json!({}), Some(replaced), &[]), Action::Discard);
    }

    #[test]
    fn the_next_attempt_waits_for_its_time() {
        let status = json!({"phase": "Pending", "nextRetry": "2026-01-01T00:00:07Z"});
        assert_eq!(act(json!({"status": status}), pod(None), &[]), Action::Later(Duration::from_secs(7)));
        let status = json!({"phase": "Failed", "failedAttempts": 1});
        assert_eq!(act(json!({"status": status}), pod(None), &[]), Action::Nothing);
        assert_eq!(act(json!({"status": status, "spec": {"backoffLimit": 2}}), pod(None), &[]), Action::Bind(vec![]));
    }

    #[test]
    fn shared_gpus_are_bound_when_all_are_known_and_refused_when_one_is_broken() {
        let spec = json!({"spec": {"receivedResourceType": "Fraction", "selectedGPUGroups": ["a", "b"]}});
        let ready = |name: &str| Hold::Ready(name.to_owned());
        let both = [ready("GPU-1"), ready("GPU-2")];
        assert_eq!(act(spec.clone(), pod(None), &both), Action::Bind(vec!["GPU-1".into(), "GPU-2".into()]));
        let one = [ready("GPU-1"), Hold::Waiting("it".to_owned())];
        assert_eq!(act(spec.clone(), pod(None), &one), Action::Await("waits for it".to_owned()));
        let broken = [Hold::Waiting("it".to_owned()), Hold::Broken("no".to_owned())];
        assert!(matches!(act(spec, pod(None), &broken), Action::Fail(Failure::Refused(_))));
        let none = json!({"spec": {"receivedResourceType": "Fraction"}});
        assert!(matches!(act(none, pod(None), &[]), Action::Fail(Failure::Refused(_))));
    }
}
