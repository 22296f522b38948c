//! The short form against the objects it stands for.

use serde_json::Value;

use crate::scenario::Scenario;

fn objects(short: &str) -> Vec<Value> {
    let text = format!("name: x\nexpect: {{}}\nshort:\n{short}");
    Scenario::parse(&text, false).expect("a scenario").objects
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name} among {objects:?}"))
}

#[test]
fn nodes_have_their_defaults_and_what_is_said() {
    let made = objects(
        "  nodes:\n    n: {gpus: 2, replicas: 4, gpuMemory: 81559, taints: ['a=b:NoSchedule', 'c:NoExecute'], mig: {strategy: mixed, 1g.5gb: 3}, labels: {rack: r1}, conditions: {Ready: 'False'}}",
    );
    let node = named(&made, "Node", "n");
    assert_eq!(node["status"]["allocatable"]["nvidia.com/gpu"], "8");
    assert_eq!(node["metadata"]["labels"]["nvidia.com/gpu.count"], "2");
    assert_eq!(node["status"]["allocatable"]["nvidia.com/mig-1g.5gb"], "3");
    assert_eq!(node["status"]["allocatable"]["memory"], "256Gi");
    assert_eq!(node["spec"]["taints"][1]["effect"], "NoExecute");
    assert_eq!(node["status"]["conditions"][0]["status"], "False");
}

#[test]
fn queues_are_as_old_as_they_are_written() {
    let made = objects("  queues:\n    z: {quota: 1}\n    a: {parent: d}\n    d: {}");
    let born = |name: &str| named(&made, "Queue", name)["metadata"]["creationTimestamp"].clone();
    assert_eq!(born("z"), "2025-12-31T12:00:00Z");
    assert_eq!(born("a"), "2025-12-31T12:01:00Z");
    assert_eq!(named(&made, "Queue", "z")["spec"]["parentQueue"], "default");
    assert_eq!(named(&made, "Queue", "d")["spec"].get("parentQueue"), None);
    assert_eq!(named(&made, "Queue", "default")["spec"]["resources"]["gpu"]["quota"], -1.0);
}

#[test]
fn jobs_are_a_group_and_its_pods() {
    let made = objects(
        "  jobs:\n    - {name: a, queue: q, pods: 3, gpu: 1, running: [n0, null], gated: 1, taskPriority: [2, 1]}\n    - {name: b, queue: q, namespace: other, priority: 100, fraction: 0.29}",
    );
    assert_eq!(named(&made, "PodGroup", "a")["spec"]["minMember"], 3);
    assert_eq!(named(&made, "PodGroup", "a")["metadata"]["creationTimestamp"], "2026-01-01T11:58:00Z");
    assert_eq!(
        named(&made, "PodGroup", "a")["metadata"]["annotations"]["kai.scheduler/last-start-timestamp"],
        "2026-01-01T11:59:00Z"
    );
    assert_eq!(named(&made, "Pod", "a-0")["spec"]["nodeName"], "n0");
    assert_eq!(named(&made, "Pod", "a-0")["metadata"]["labels"]["kai.scheduler/task-priority"], "2");
    assert_eq!(named(&made, "Pod", "a-1")["status"]["phase"], "Pending");
    assert_eq!(named(&made, "Pod", "a-1")["spec"].get("schedulingGates"), None);
    assert_eq!(named(&made, "Pod", "a-2")["spec"]["schedulingGates"][0]["name"], "scenario");
    assert_eq!(named(&made, "Pod", "b-0")["metadata"]["annotations"]["gpu-fraction"], "0.29");
    assert_eq!(named(&made, "Pod", "b-0")["metadata"]["uid"], "other-b-0");
    assert_eq!(named(&made, "PriorityClass", "p100")["value"], 100);
}

#[test]
fn the_narrowest_field_wins() {
    let made = objects(
        "  jobs:\n    - name: a\n      queue: q\n      gpu: 1\n      subgroups:\n        - {name: s, min: 1, each: [{gpu: 2}, {}]}\n        - {name: t, gpu: 3, running: n0}",
    );
    let gpus = |pod: &str| {
        named(&made, "Pod", pod)["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"].clone()
    };
    assert_eq!((gpus("a-s-0"), gpus("a-s-1"), gpus("a-t-0")), ("2".into(), "1".into(), "3".into()));
    let group = named(&made, "PodGroup", "a");
    assert_eq!((group["spec"].get("minMember"), &group["spec"]["subGroups"][0]["minMember"]), (None, &Value::from(1)));
    assert_eq!(named(&made, "Pod", "a-t-0")["metadata"]["labels"]["kai.scheduler/subgroup-name"], "t");
}

#[test]
fn several_gpu_groups_come_with_a_bind_request() {
    let made =
        objects("  jobs:\n    - {name: a, queue: q, fraction: 0.5, devices: 2, running: n0, groups: [[g0, g1]]}");
    assert_eq!(named(&made, "Pod", "a-0")["metadata"]["labels"]["runai-gpu-group/g1"], "g1");
    assert_eq!(named(&made, "BindRequest", "a-0")["status"]["phase"], "Succeeded");
}

#[test]
fn what_is_not_known_is_told_with_its_place() {
    let refused = |short: &str| {
        let text = format!("name: x\nexpect: {{}}\nshort:\n{short}");
        Scenario::parse(&text, false).expect_err("refused").to_string()
    };
    let error = refused("  jobs:\n    - {name: a, queue: q, gpus: 1}");
    assert!(error.contains("short.jobs[0]") && error.contains("`gpus`"), "{error}");
    let error = refused("  nodes:\n    n: {gpu: 1}");
    assert!(error.contains("short.nodes") && error.contains("`gpu`"), "{error}");
    assert!(refused("  jobs:\n    - {name: a}").contains("short.jobs[0].queue"));
}
