//! What groups ask for and hold, by kind of request.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;

struct Around;

impl Surroundings for Around {
    fn gpu_memory(&self, node: &str) -> Option<u64> {
        (node == "thor").then_some(131_072)
    }

    fn devices(&self, claim: &str) -> Amounts {
        let mut devices = Amounts::default();
        if claim == "team/two" {
            devices.add("gpu.nvidia.com", 2 * NANO);
        }
        devices
    }
}

fn facts(notes: Value, spec: Value, phase: &str) -> Option<PodFacts> {
    let mut notes = notes;
    notes["pod-group-name"] = json!("g");
    let object = json!({"metadata": {"name": "p", "namespace": "team", "annotations": notes}, "spec": spec,
        "status": {"phase": phase}});
    PodFacts::of(&serde_json::from_value::<Pod>(object).expect("a pod"))
}

fn container(requests: Value) -> Value {
    json!({"name": "c", "resources": {"requests": requests}})
}

fn bare(node: &str) -> Value {
    json!({"nodeName": node, "containers": [container(json!({}))]})
}

fn sums(pods: &[Option<PodFacts>], preemptible: bool) -> Sums {
    of_group(pods.iter().flatten(), preemptible, &Around)
}

fn texts(amounts: &Amounts) -> BTreeMap<String, String> {
    amounts.quantities().into_iter().map(|(name, quantity)| (name, quantity.0)).collect()
}

fn named(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn init_containers_sidecars_overhead_and_pod_level_resources_count() {
    let mut sidecar = container(json!({"cpu": "1", "memory": "1Gi"}));
    sidecar["restartPolicy"] = json!("Always");
    let spec = json!({"nodeName": "n", "containers": [container(json!({"cpu": "1", "memory": "1Gi"}))],
        "initContainers": [sidecar, container(json!({"cpu": "3"}))], "overhead": {"cpu": "250m"}});
    let leveled = json!({"containers": [container(json!({"cpu": "1"}))], "resources": {"requests": {"cpu": "6"}}});
    let found = sums(&[facts(json!({}), spec, "Running"), facts(json!({}), leveled, "Pending")], true);
    assert_eq!(texts(&found.allocated), named(&[("cpu", "4250m"), ("memory", "2Gi")]));
    assert_eq!(texts(&found.requested), named(&[("cpu", "10250m"), ("memory", "2Gi")]));
    assert!(found.non_preemptible.is_empty());
}

#[test]
fn parts_of_several_devices_count_once_for_each() {
    let notes = json!({"gpu-fraction": "0.25", "gpu-fraction-num-devices": "3"});
    let found = sums(&[facts(notes, bare("n"), "Running")], false);
    assert_eq!(texts(&found.allocated), named(&[("nvidia.com/gpu", "750m")]));
    assert_eq!((&found.requested, &found.non_preemptible), (&found.allocated, &found.allocated));
}

#[test]
fn memory_is_asked_for_in_mib_and_held_as_a_share_of_the_nodes_devices() {
    let notes = json!({"gpu-memory": "30720"});
    let found = sums(&[facts(notes.clone(), bare("thor"), "Running"), facts(notes.clone(), bare(""), "Pending")], true);
    assert_eq!(texts(&found.requested), named(&[("run.ai/gpu.memory", "61440")]));
    assert_eq!(texts(&found.allocated), named(&[("nvidia.com/gpu", "234375u")]));
    let unlabelled = sums(&[facts(notes, bare("other"), "Running")], true);
    assert_eq!(texts(&unlabelled.allocated), named(&[("run.ai/gpu.memory", "30720")]));
}

#[test]
fn pods_that_ended_count_nothing_and_shared_claims_count_once() {
    let claim = json!([{"name": "gpu", "resourceClaimName": "two"}]);
    let spec = json!({"nodeName": "n", "containers": [container(json!({}))], "resourceClaims": claim});
    let pods = [
        facts(json!({}), spec.clone(), "Running"),
        facts(json!({}), spec.clone(), "Running"),
        facts(json!({}), spec, "Succeeded"),
    ];
    let found = sums(&pods, true);
    assert_eq!(texts(&found.allocated), named(&[("gpu.nvidia.com", "2")]));
    assert_eq!(found.requested, found.allocated);
}

#[test]
fn profiles_keep_their_names() {
    let spec = json!({"nodeName": "n", "containers": [container(json!({"nvidia.com/mig-1g.5gb": "2"}))]});
    assert_eq!(
        texts(&sums(&[facts(json!({}), spec, "Running")], true).allocated),
        named(&[("nvidia.com/mig-1g.5gb", "2")])
    );
}

#[test]
fn claims_count_what_they_ask_for_and_then_what_they_have() {
    let read = |spec: Value, status: Value| {
        let object = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": spec}}, "status": status});
        texts(&devices_of(&serde_json::from_value(object).expect("a claim")))
    };
    let exactly = json!([{"name": "a", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}},
        {"name": "b", "exactly": {"deviceClassName": "nic.example.com"}}]);
    assert_eq!(read(exactly, json!({})), named(&[("gpu.nvidia.com", "2")]));
    let every = json!([{"name": "a", "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All"}}]);
    assert_eq!(read(every.clone(), json!({})), named(&[("gpu.nvidia.com", "1")]));
    let result =
        |request: &str, device: &str| json!({"request": request, "driver": "d", "pool": "p", "device": device});
    let given = json!({"allocation": {"devices": {"results": [result("a", "0"), result("a", "1"), result("a", "2")]}}});
    assert_eq!(read(every, given), named(&[("gpu.nvidia.com", "3")]));
    let either = json!([{"name": "a", "firstAvailable": [{"name": "x", "deviceClassName": "big-gpu"},
        {"name": "y", "deviceClassName": "small-gpu", "count": 2}]}]);
    assert_eq!(read(either.clone(), json!({})), named(&[("big-gpu", "1")]));
    let given = json!({"allocation": {"devices": {"results": [result("a/y", "0"), result("a/y", "1")]}}});
    assert_eq!(read(either, given), named(&[("small-gpu", "2")]));
}
