//! Nothing is left behind: ConfigMaps, bind requests, labels and groups belong to pods that are there and need them.

use std::collections::BTreeMap;

use kai_api::names::{annotations, bind_phases};
use kube::ResourceExt as _;

use super::facts::{Facts, PodFacts, State};

pub fn check(facts: &Facts) -> Vec<String> {
    let mut broken = Vec::new();
    let by_uid: BTreeMap<&str, &PodFacts> = facts.pods.iter().map(|pod| (pod.uid.as_str(), pod)).collect();
    for map in &facts.maps {
        let Some(owner) = map.owner_references().iter().find(|owner| owner.kind == "Pod") else { continue };
        match by_uid.get(owner.uid.as_str()) {
            None => {
                broken.push(format!("ConfigMap {} belongs to pod {}, which is no more", map.name_any(), owner.name));
            }
            Some(pod) if pod.state == State::Waits => {
                broken.push(format!("ConfigMap {} is there, but pod {} waits", map.name_any(), pod.name));
            }
            Some(_) => {}
        }
    }
    for request in &facts.requests {
        let name = request.name_any();
        let owner = request.owner_references().iter().find(|owner| owner.kind == "Pod");
        let Some(pod) = owner.and_then(|owner| by_uid.get(owner.uid.as_str())) else {
            broken.push(format!("request {name} is of a pod that is no more"));
            continue;
        };
        let status = request.status.clone().unwrap_or_default();
        let phase = status.phase.as_deref().unwrap_or_default();
        if pod.state == State::Waits {
            let vetoes = status.next_retry.as_ref().is_some_and(|time| time.0 > facts.now);
            if phase != bind_phases::FAILED || !vetoes {
                broken.push(format!("request {name} is {phase:?} ({:?}), and its pod waits", status.reason));
            }
        } else if pod.holds() && (phase != bind_phases::SUCCEEDED || request.spec.selected_node != pod.node) {
            let node = &request.spec.selected_node;
            broken.push(format!("request {name} to {node:?} is {phase:?}, and its pod is on {:?}", pod.node));
        }
    }
    for pod in facts.pods.iter().filter(|pod| pod.state == State::Waits) {
        if !pod.groups.is_empty() || pod.annotations.contains_key(annotations::GPU_DEVICES) {
            broken.push(format!("pod {} waits and still is in groups {:?}", pod.name, pod.groups));
        }
    }
    for (name, group) in &facts.groups {
        let owned = !group.owner_references().is_empty();
        if !facts.pods.iter().any(|pod| pod.group.as_ref() == Some(name)) && !owned {
            broken.push(format!("group {name} has neither pods nor an owner"));
        }
    }
    broken
}
