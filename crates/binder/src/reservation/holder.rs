//! A reservation pod as a fact: which group it stands for, which device it got, and what is wrong with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kai_api::names::annotations;
use kube::ResourceExt;

use crate::{
    groups::groups_of,
    world::{has_ended, place},
};

/// How much longer than a running one a reservation pod may take that is still being started: images are large.
const STARTING: i32 = 15;
/// Reasons of waiting containers that tell of an error, not of work.
const ERRORS: [&str; 8] = [
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerError",
    "CreateContainerConfigError",
    "RunContainerError",
];

/// A reservation pod.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) pod: Arc<Pod>,
    pub(crate) name: String,
    pub(crate) node: String,
    /// Empty if its label is missing.
    pub(crate) group: String,
    /// The device it got, as it says.
    pub(crate) device: Option<String>,
    /// The device it must have, because pods of its group already use that.
    pub(crate) expects: Option<String>,
    pub(crate) created: Timestamp,
    pub(crate) deleting: bool,
    /// Why it ended.
    pub(crate) ended: Option<String>,
    pub(crate) restarts: i32,
    /// Restarts when the device was last checked.
    pub(crate) checked: i32,
}

impl Holder {
    /// Reads a reservation pod.
    pub(crate) fn of(pod: &Arc<Pod>) -> Self {
        let annotation = |key: &str| pod.annotations().get(key).filter(|text| !text.is_empty()).cloned();
        let status = pod.status.clone().unwrap_or_default();
        let reason = [status.reason, status.message].into_iter().flatten().collect::<Vec<_>>().join(": ");
        Self {
            name: pod.name_any(),
            node: place(pod).unwrap_or_default().to_owned(),
            group: groups_of(pod).pop_first().unwrap_or_default(),
            device: annotation(annotations::RESERVED_GPU),
            expects: annotation(annotations::RESERVATION_EXPECTS),
            created: pod.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            ended: has_ended(pod).then(|| if reason.is_empty() { "it ended".to_owned() } else { reason }),
            restarts: container(pod).map_or(0, |container| container.restart_count),
            checked: annotation(annotations::RESERVATION_RESTARTS).and_then(|text| text.parse().ok()).unwrap_or(0),
            pod: Arc::clone(pod),
        }
    }

    /// Whether it stands for its group now.
    pub(crate) fn is_live(&self) -> bool {
        !self.deleting && self.ended.is_none()
    }

    /// Whether it got another device than the pods of its group use.
    pub(crate) fn has_wrong_device(&self) -> bool {
        matches!((&self.expects, &self.device), (Some(expected), Some(found)) if expected != found)
    }

    /// What keeps it from telling its device, if it should have done so by now.
    pub(crate) fn stuck(&self, now: Timestamp, timeout: Duration) -> Option<String> {
        let timeout = SignedDuration::try_from(timeout).unwrap_or(SignedDuration::MAX);
        let age = now.duration_since(self.created);
        let state = container(&self.pod).and_then(|container| container.state.clone()).unwrap_or_default();
        if let Some(waiting) = &state.waiting
            && let Some(reason) = waiting.reason.as_deref().filter(|reason| ERRORS.contains(reason))
        {
            let message = waiting.message.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
            return (age > timeout).then(|| format!("its container is in {reason}{message}"));
        }
        if let Some(started) = state.running.and_then(|running| running.started_at) {
            let runs = now.duration_since(started.0);
            return (runs > timeout)
                .then(|| format!("its container has run for {} s without an answer", runs.as_secs()));
        }
        (age > timeout.saturating_mul(STARTING)).then(|| format!("it has not started within {} s", age.as_secs()))
    }

    /// Which of several is to be kept: the one with a device, the older one, the first by name.
    pub(crate) fn rank(&self) -> (bool, Timestamp, &str) {
        (self.device.is_none(), self.created, &self.name)
    }
}

fn container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

/// What a request is told of a group's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Not yet known, what for.
    Waiting(String),
    /// The UUID.
    Ready(String),
    /// It will not come.
    Broken(String),
}

/// The device of a group on a node, given all reservation pods there and the trouble there was with this one.
pub(crate) fn hold(group: &str, on_node: &[Holder], trouble: Option<&str>, now: Timestamp, timeout: Duration) -> Hold {
    if let Some(trouble) = trouble {
        return Hold::Broken(trouble.to_owned());
    }
    let mut own: Vec<&Holder> = on_node.iter().filter(|holder| holder.group == group && holder.is_live()).collect();
    own.sort_by_key(|holder| (holder.has_wrong_device(), holder.rank()));
    let Some(holder) = own.first() else {
        return Hold::Waiting(format!("the reservation pod of GPU group {group}"));
    };
    let Some(device) = &holder.device else {
        return match holder.stuck(now, timeout) {
            Some(why) => Hold::Broken(format!("reservation pod {} did not report its GPU: {why}", holder.name)),
            None => Hold::Waiting(format!("the GPU of reservation pod {}", holder.name)),
        };
    };
    let twin =
        on_node.iter().find(|other| other.group != group && other.is_live() && other.device.as_ref() == Some(device));
    if let Some(twin) = twin {
        return Hold::Waiting(format!(
            "one of the reservation pods {} and {} to give up {device}",
            holder.name, twin.name
        ));
    }
    if holder.has_wrong_device() || holder.restarts != holder.checked {
        return Hold::Waiting(format!("the check of the GPU of reservation pod {}", holder.name));
    }
    Hold::Ready(device.clone())
}

/// What keeps whole GPUs of a node from being handed out: a group whose pods use a device that no holder keeps for them at the moment, so
/// that the kubelet might give it to somebody else. `told` are the devices by group; where they are not known by name, any will do.
pub(crate) fn unguarded(
    told: &BTreeMap<String, BTreeSet<String>>,
    by_name: bool,
    on_node: &[Holder],
    now: Timestamp,
    timeout: Duration,
) -> Option<String> {
    let is_open = |(group, devices): &(&String, &BTreeSet<String>)| {
        let own = || on_node.iter().filter(|holder| holder.group == **group && holder.is_live());
        let keeps = |holder: &Holder| holder.device.as_ref().is_some_and(|device| !by_name || devices.contains(device));
        // Who cannot be helped holds nobody up.
        !own().any(keeps) && !own().any(|holder| holder.stuck(now, timeout).is_some())
    };
    let (group, _) = told.iter().find(is_open)?;
    Some(format!("a reservation pod that keeps the GPU of group {group} for the pods that use it"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn holder(device: Option<&str>, metadata: &Value) -> Holder {
        let mut pod = json!({"metadata": {"name": "a", "labels": {"runai-gpu-group": "g"}, "annotations": {},
            "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"nodeName": "n", "containers": []}});
        if let Some(device) = device {
            pod["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"] = json!(device);
        }
        for (field, value) in metadata.as_object().into_iter().flatten() {
            pod["metadata"][field] = value.clone();
        }
        Holder::of(&Arc::new(serde_json::from_value(pod).expect("a pod")))
    }

    #[test]
    fn whole_gpus_wait_while_nobody_keeps_the_device_of_running_pods_for_them() {
        let told = BTreeMap::from([("g".to_owned(), BTreeSet::from(["GPU-1".to_owned()]))]);
        let open = |holders: &[Holder], by_name: bool, now: &str| {
            unguarded(&told, by_name, holders, now.parse().expect("a time"), Duration::from_secs(40)).is_some()
        };
        let soon = "2026-01-01T00:00:01Z";
        assert!(open(&[], true, soon));
        assert!(!open(&[holder(Some("GPU-1"), &json!({}))], true, soon));
        assert!(open(&[holder(Some("GPU-1"), &json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}))], true, soon));
        assert!(open(&[holder(Some("GPU-2"), &json!({}))], true, soon));
        assert!(!open(&[holder(Some("GPU-2"), &json!({}))], false, soon), "on a Jetson there is but one");
        assert!(open(&[holder(None, &json!({}))], true, soon));
        assert!(!open(&[holder(None, &json!({}))], true, "2026-01-01T01:00:00Z"), "one that never starts");
    }
}
