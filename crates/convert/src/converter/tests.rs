//! Objects and what follows from them for others.

use kai_core::delta::{Gpus, Origin, Phase, Pod, PodGroup};
use serde_json::{Value, json};

use super::*;

fn apply(converter: &mut Converter, value: &Value) -> Vec<Delta> {
    converter.apply(&Object::read(value).expect("readable").expect("a known kind"))
}

fn pod(name: &str, extra: &Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}"), "annotations": {"pod-group-name": "g"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": []}, "status": {"phase": "Pending"}});
    merge(&mut object, extra);
    object
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn group(class: &str) -> Value {
    json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "g", "namespace": "team"},
        "spec": {"queue": "q", "priorityClassName": class}})
}

fn bind_request(extra: &Value) -> Value {
    let mut object = json!({"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest",
        "metadata": {"name": "p", "namespace": "team"},
        "spec": {"podName": "p", "selectedNode": "n", "selectedGPUGroups": ["x", "y"]}});
    merge(&mut object, extra);
    object
}

fn pods(deltas: &[Delta]) -> Vec<&Pod> {
    deltas.iter().filter_map(|delta| if let Delta::Pod(pod) = delta { Some(&**pod) } else { None }).collect()
}

fn groups(deltas: &[Delta]) -> Vec<&PodGroup> {
    deltas.iter().filter_map(|delta| if let Delta::PodGroup(group) = delta { Some(&**group) } else { None }).collect()
}

#[test]
fn a_pod_of_another_scheduler_that_says_it_shares_a_device_is_not_believed() {
    let says = json!({"metadata": {"annotations": {"gpu-fraction": "0.5"}, "labels": {"runai-gpu-group/x": "x", "runai-gpu-group": "x"}},
        "spec": {"nodeName": "n"}});
    let mut converter = Converter::default();
    let told = apply(&mut converter, &pod("ours", &says));
    assert_eq!(pods(&told)[0].placement.as_ref().unwrap().devices, ["x"]);
    let mut theirs = pod("theirs", &says);
    theirs["spec"]["schedulerName"] = json!("default-scheduler");
    let told = apply(&mut converter, &theirs);
    assert!(pods(&told)[0].placement.as_ref().unwrap().devices.is_empty());
}

#[test]
fn a_priority_class_is_followed_by_its_groups() {
    let mut converter = Converter::default();
    assert_eq!(groups(&apply(&mut converter, &group("high")))[0].priority, 50);
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 200});
    let told = apply(&mut converter, &class);
    assert_eq!((groups(&told)[0].priority, groups(&told)[0].preemptible), (200, false));
    assert_eq!(groups(&converter.remove(Kind::PriorityClass, "", "high"))[0].priority, 50);
}

#[test]
fn a_pod_belongs_to_the_group_of_its_own_namespace() {
    let told = apply(
        &mut Converter::default(),
        &pod("p", &json!({"metadata": {"labels": {"kai.scheduler/subgroup-name": "s"}}})),
    );
    let read = pods(&told)[0].clone();
    assert_eq!(
        (read.uid.as_str(), read.group.as_deref(), read.subgroup.as_deref()),
        ("uid-p", Some("team/g"), Some("s"))
    );
    assert_eq!((read.origin, read.phase, read.invalid), (Origin::Ours, Phase::Pending, None));
}

#[test]
fn a_pod_of_another_scheduler_is_foreign_and_helpers_are_utilities_without_gpus() {
    let mut converter = Converter::default();
    let told = apply(&mut converter, &pod("p", &json!({"spec": {"schedulerName": "default-scheduler"}})));
    assert_eq!((pods(&told)[0].origin, pods(&told)[0].group.clone()), (Origin::Foreign, None));
    let gpu = json!([{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "1m"}}}]);
    let helper = json!({"metadata": {"labels": {"app": "kai-resource-reservation"}}, "spec": {"containers": gpu}});
    let told = apply(&mut converter, &pod("r", &helper));
    assert_eq!(
        (pods(&told)[0].origin, pods(&told)[0].request.gpus, pods(&told)[0].request.cpu),
        (Origin::Utility, Gpus::None, 1)
    );
}

#[test]
fn phases_follow_the_pod() {
    let phase_of = |extra: Value| {
        let told = apply(&mut Converter::default(), &pod("p", &extra));
        (pods(&told)[0].phase, pods(&told)[0].placement.as_ref().map(|placement| placement.bound))
    };
    assert_eq!(phase_of(json!({"spec": {"schedulingGates": [{"name": "x"}]}})), (Phase::Gated, None));
    assert_eq!(phase_of(json!({"spec": {"nodeName": "n"}})), (Phase::Pending, Some(true)));
    assert_eq!(
        phase_of(json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}})),
        (Phase::Running, Some(true))
    );
    assert_eq!(
        phase_of(json!({"spec": {"nodeName": "n"}, "status": {"phase": "Succeeded"}})),
        (Phase::Succeeded, None)
    );
    assert_eq!(phase_of(json!({"spec": {"nodeName": "n"}, "status": {"phase": "Failed"}})), (Phase::Failed, None));
}

#[test]
fn gpu_groups_come_from_both_kinds_of_labels() {
    let half = json!({"metadata": {"annotations": {"gpu-fraction": "0.5"}, "labels": {"runai-gpu-group": "b"}}, "spec": {"nodeName": "n"}});
    let told = apply(&mut Converter::default(), &pod("p", &half));
    assert_eq!(pods(&told)[0].placement.as_ref().map(|p| p.devices.clone()), Some(vec!["b".to_owned()]));
    let two = json!({"metadata": {"annotations": {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"},
        "labels": {"runai-gpu-group/x": "x", "runai-gpu-group/a": "a"}}, "spec": {"nodeName": "n"}});
    let told = apply(&mut Converter::default(), &pod("p", &two));
    assert_eq!(
        pods(&told)[0].placement.as_ref().map(|p| p.devices.clone()),
        Some(vec!["a".to_owned(), "x".to_owned()])
    );
}

#[test]
fn a_bind_request_places_its_pod_until_it_fails() {
    let mut converter = Converter::default();
    let _ = apply(&mut converter, &bind_request(&json!({})));
    let half = json!({"metadata": {"annotations": {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}}});
    let told = apply(&mut converter, &pod("p", &half));
    let placement = pods(&told)[0].placement.clone().expect("on its way");
    assert_eq!((placement.node.as_str(), placement.devices.len(), placement.bound), ("n", 2, false));

    let told = apply(&mut converter, &bind_request(&json!({"status": {"phase": "Failed"}})));
    assert_eq!(pods(&told)[0].placement, None);
    let _ = apply(&mut converter, &bind_request(&json!({})));
    let told = converter.remove(Kind::BindRequest, "team", "p");
    assert_eq!(pods(&told)[0].placement, None);
}

#[test]
fn a_kept_bind_request_tells_the_devices_of_a_running_pod_without_labels() {
    let mut converter = Converter::default();
    let running = json!({"metadata": {"annotations": {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}},
        "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
    let told = apply(&mut converter, &pod("p", &running));
    assert_eq!(pods(&told)[0].placement.as_ref().map(|p| p.devices.len()), Some(0));
    let told = apply(&mut converter, &bind_request(&json!({"status": {"phase": "Succeeded"}})));
    assert_eq!(
        pods(&told)[0].placement.as_ref().map(|p| p.devices.clone()),
        Some(vec!["x".to_owned(), "y".to_owned()])
    );
}

#[test]
fn a_pod_by_memory_costs_its_queue_as_much_while_the_object_of_its_node_is_gone() {
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "labels": {"nvidia.com/gpu.memory": "16000"}},
        "status": {"allocatable": {"nvidia.com/gpu": "1"}}});
    let labels = json!({"runai-gpu-group": "x"});
    let by_memory = pod(
        "p",
        &json!({"metadata": {"labels": labels, "annotations": {"gpu-memory": "4000"}},
        "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}),
    );
    let request =
        bind_request(&json!({"spec": {"selectedGPUGroups": ["x"], "receivedGPU": {"count": 1, "portion": "0.25"}},
        "status": {"phase": "Succeeded"}}));
    let gpus = |deltas: &[Delta]| pods(deltas).last().map(|pod| pod.request.gpus);
    let (memory, part) = (Gpus::Memory { devices: 1, mib: 4000 }, Gpus::Portion { devices: 1, millionths: 250_000 });
    let mut converter = Converter::default();
    apply(&mut converter, &request);
    assert_eq!(gpus(&apply(&mut converter, &by_memory)), Some(part), "a scheduler that starts while the node is gone");
    assert_eq!(gpus(&apply(&mut converter, &node)), Some(memory));
    assert_eq!(gpus(&apply(&mut converter, &node)), None, "nothing new");
    assert_eq!(gpus(&converter.remove(Kind::Node, "", "n")), Some(part));
}

#[test]
fn a_bind_request_of_an_earlier_pod_of_the_same_name_is_not_this_pods() {
    let mut converter = Converter::default();
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "earlier"}]);
    let _ = apply(&mut converter, &bind_request(&json!({"metadata": {"ownerReferences": owner}})));
    let told = apply(&mut converter, &pod("p", &json!({})));
    assert_eq!(pods(&told)[0].placement, None);
}

#[test]
fn a_pod_made_anew_under_the_same_name_replaces_the_earlier_one() {
    let mut converter = Converter::default();
    let _ = apply(&mut converter, &pod("p", &json!({})));
    let told = apply(&mut converter, &pod("p", &json!({"metadata": {"uid": "second"}})));
    assert_eq!(told[0], Delta::PodGone("uid-p".to_owned()));
    assert_eq!(converter.pod_key("second"), Some("team/p"));
    assert_eq!((converter.pod_key("uid-p"), converter.pod_uid("team", "p")), (None, Some("second")));
    assert_eq!(converter.remove(Kind::Pod, "team", "p"), [Delta::PodGone("second".to_owned())]);
    assert!(converter.remove(Kind::Pod, "team", "p").is_empty());
}

#[test]
fn missing_objects_keep_a_pod_waiting_until_they_come() {
    let mut converter = Converter::default();
    let volumes = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "s", "configMap": {"name": "settings"}},
        {"name": "o", "configMap": {"name": "perhaps", "optional": true}}, {"name": "k", "configMap": {"name": "kube-root-ca.crt"}}]);
    let spec = json!({"spec": {"volumes": volumes, "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}});
    let told = apply(&mut converter, &pod("p", &spec));
    assert_eq!(pods(&told)[0].constraints.missing.len(), 3, "{:?}", pods(&told)[0].constraints.missing);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "team"}});
    assert_eq!(pods(&apply(&mut converter, &map))[0].constraints.missing.len(), 2);
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "team"}, "spec": {}});
    assert_eq!(pods(&apply(&mut converter, &claim))[0].constraints.missing.len(), 1);
    let data = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "team"}, "spec": {"volumeName": "v"}});
    assert_eq!(pods(&apply(&mut converter, &data))[0].constraints.missing.len(), 1);
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {}});
    let told = apply(&mut converter, &volume);
    assert_eq!((pods(&told)[0].constraints.missing.len(), pods(&told)[0].constraints.volumes.len()), (0, 1));
    assert_eq!(pods(&told)[0].claims, ["team/c"]);
    assert_eq!(pods(&converter.remove(Kind::ConfigMap, "team", "settings"))[0].constraints.missing.len(), 1);
}

#[test]
fn zones_and_slices_are_followed_by_their_node() {
    let mut converter = Converter::default();
    let zones = json!({"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": "n"},
        "zones": [{"name": "node-0", "type": "Node", "resources": []}, {"name": "node-1", "type": "Node", "resources": []}]});
    assert!(apply(&mut converter, &zones).is_empty());
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let told = apply(&mut converter, &node);
    assert!(matches!(&told[..], [Delta::Node(node)] if node.numa.as_ref().is_some_and(|numa| numa.zones.len() == 2)));
    let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {
        "driver": "gpu.nvidia.com", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "gpu-0"}]}});
    let told = apply(&mut converter, &slice);
    assert!(matches!(&told[..], [Delta::Node(node)] if node.devices.len() == 1 && node.devices[0].gpu));
    let told = converter.remove(Kind::ResourceSlice, "", "s");
    assert!(matches!(&told[..], [Delta::Node(node)] if node.devices.is_empty()));
    assert_eq!(converter.zone_names("n"), ["node-0", "node-1"]);
    assert_eq!(converter.remove(Kind::Node, "", "n"), [Delta::NodeGone("n".to_owned())]);
}

#[test]
fn zones_of_pods_are_found_again_when_the_node_reports_them() {
    let mut converter = Converter::default();
    let note = json!({"kai.scheduler/numa-placement-observed": r#"[{"zone":"socket-b","amount":{"cpu":"2"}}]"#});
    let running = json!({"metadata": {"annotations": note}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
    let told = apply(&mut converter, &pod("p", &running));
    assert_eq!(pods(&told)[0].placement.as_ref().map(|p| p.numa.len()), Some(0));
    let zones = json!({"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": "n"},
        "zones": [{"name": "socket-a"}, {"name": "socket-b"}]});
    let told = apply(&mut converter, &zones);
    assert_eq!(pods(&told)[0].placement.as_ref().map(|p| p.numa[0].zone), Some(1));
}

#[test]
fn a_claim_is_held_by_the_pod_that_is_being_bound_with_it() {
    let mut converter = Converter::default();
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "team"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}});
    let _ = apply(&mut converter, &claim);
    let _ = apply(
        &mut converter,
        &pod("p", &json!({"spec": {"resourceClaims": [{"name": "mine", "resourceClaimName": "c"}]}})),
    );
    let chosen = json!([{"name": "mine", "allocation": {"devices": {"results": [{"driver": "d", "pool": "n", "device": "x", "request": "r"}]}}}]);
    let told = apply(&mut converter, &bind_request(&json!({"spec": {"resourceClaimAllocations": chosen}})));
    assert!(matches!(&told[0], Delta::Claim(claim) if claim.allocation.is_some() && claim.reserved_for == ["uid-p"]));
    let told = converter.remove(Kind::BindRequest, "team", "p");
    assert!(matches!(&told[0], Delta::Claim(claim) if claim.allocation.is_none() && claim.reserved_for.is_empty()));
}

#[test]
fn namespaces_chosen_by_label_are_followed_by_pods() {
    let mut converter = Converter::default();
    let term =
        json!({"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {"matchLabels": {"tier": "gold"}}});
    let spec =
        json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}});
    let told = apply(&mut converter, &pod("p", &spec));
    assert_eq!(pods(&told)[0].constraints.pod_anti_affinity[0].namespaces, Some(Vec::new()));
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x", "labels": {"tier": "gold"}}});
    let told = apply(&mut converter, &namespace);
    assert_eq!(pods(&told)[0].constraints.pod_anti_affinity[0].namespaces, Some(vec!["x".to_owned()]));
    assert!(apply(&mut converter, &namespace).is_empty());
}

#[test]
fn objects_of_another_node_pool_do_not_exist() {
    let pool = NodePool { label: "kai.scheduler/node-pool".to_owned(), value: Some("a".to_owned()) };
    let mut converter = Converter::new(Settings { pool: Some(pool), ..Settings::default() });
    let node = |value: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"kai.scheduler/node-pool": value}}});
    assert!(apply(&mut converter, &node("b")).is_empty());
    assert_eq!(apply(&mut converter, &node("a")).len(), 1);
    assert_eq!(apply(&mut converter, &node("b")), [Delta::NodeGone("n".to_owned())]);
    assert!(apply(&mut converter, &group("x")).is_empty());
}

#[test]
fn a_pod_that_runs_and_depends_on_nothing_is_kept_as_its_uid() {
    let mut converter = Converter::default();
    let _ = apply(&mut converter, &pod("p", &json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}})));
    assert!(matches!(converter.pods.get("team/p"), Some(PodRecord::Settled(uid)) if uid == "uid-p"));
}

#[test]
fn a_request_that_changes_after_its_pod_runs_does_not_make_the_pod_forgotten() {
    let mut converter = Converter::default();
    let _ = apply(&mut converter, &bind_request(&json!({})));
    let _ = apply(&mut converter, &pod("p", &json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}})));
    assert!(apply(&mut converter, &bind_request(&json!({"status": {"phase": "Succeeded"}}))).is_empty());
    assert!(converter.remove(Kind::BindRequest, "team", "p").is_empty());
    assert_eq!(converter.remove(Kind::Pod, "team", "p"), [Delta::PodGone("uid-p".to_owned())]);
}

/// What the core knows in the end: the last delta of each object.
fn known(objects: &[&Value]) -> BTreeMap<String, Delta> {
    let mut converter = Converter::default();
    let mut last = BTreeMap::new();
    for object in objects {
        for delta in apply(&mut converter, object) {
            let key = match &delta {
                Delta::Node(node) => format!("node {}", node.name),
                Delta::Pod(pod) => format!("pod {}", pod.uid),
                Delta::PodGroup(group) => format!("group {}", group.key),
                Delta::Claim(claim) => format!("claim {}", claim.key),
                other => format!("{other:?}"),
            };
            last.insert(key, delta);
        }
    }
    last
}

#[test]
fn the_order_in_which_objects_come_does_not_matter() {
    let objects = [
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 200}),
        group("high"),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}}),
        json!({"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": "n"},
            "zones": [{"name": "socket-a"}, {"name": "socket-b"}]}),
        pod(
            "p",
            &json!({"spec": {"resourceClaims": [{"name": "mine", "resourceClaimName": "c"}], "volumes": [
                {"name": "d", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "s", "configMap": {"name": "settings"}}]}}),
        ),
        pod("q", &json!({"spec": {"volumes": [{"name": "s", "configMap": {"name": "settings"}}]}})),
        bind_request(&json!({"spec": {"predictedNUMAZones": [{"zone": "socket-b", "amount": {"cpu": "1"}}],
            "resourceClaimAllocations": [{"name": "mine", "allocation": {"devices": {"results": [
                {"driver": "d", "pool": "n", "device": "x", "request": "r"}]}}}]}})),
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "team"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "team"},
            "spec": {"volumeName": "v"}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "team"}}),
    ];
    let mut order: Vec<&Value> = objects.iter().collect();
    let expected = known(&order);
    assert!(matches!(expected.get("pod uid-q"), Some(Delta::Pod(pod)) if pod.constraints.missing.is_empty()));
    for turn in 0..objects.len() * 2 {
        order.rotate_left(1 + turn % 3);
        if turn % 2 == 1 {
            order.reverse();
        }
        assert_eq!(known(&order), expected, "in the order {:?}", order.iter().map(|o| &o["kind"]).collect::<Vec<_>>());
    }
}
