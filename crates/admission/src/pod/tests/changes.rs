//! What is put into pods.

use super::*;

fn env<'a>(pod: &'a Value, path: &str, name: &str) -> Vec<&'a Value> {
    let list = pod.pointer(path).and_then(Value::as_array).unwrap();
    list.iter().filter(|variable| variable["name"] == name).collect()
}

#[test]
fn a_part_of_a_gpu_comes_with_references_volume_and_runtime_class() {
    let done = mutate(&Settings::default(), &pod(&json!({"gpu-fraction": "0.5"}))).unwrap();
    let prefix = done["metadata"]["annotations"]["runai/shared-gpu-configmap"].as_str().unwrap();
    assert!(prefix.starts_with("p-") && prefix.ends_with("-shared-gpu"), "{prefix}");
    for name in ["NVIDIA_VISIBLE_DEVICES", "RUNAI_NUM_OF_GPUS", "GPU_PORTION"] {
        let found = env(&done, "/spec/containers/0/env", name);
        let reference = json!({"configMapKeyRef": {"name": format!("{prefix}-0"), "key": name}});
        assert_eq!(found, [&json!({"name": name, "valueFrom": reference})]);
    }
    assert_eq!(
        done["spec"]["containers"][0]["envFrom"],
        json!([{"configMapRef": {"name": format!("{prefix}-0-evar")}}])
    );
    let volume =
        json!([{"name": format!("{prefix}-0-vol"), "configMap": {"name": format!("{prefix}-0"), "defaultMode": 420}}]);
    assert_eq!(done["spec"]["volumes"], volume);
    assert_eq!(done["spec"]["runtimeClassName"], "nvidia");
    assert_eq!(done["metadata"]["annotations"]["gpu-fraction-container-name"], "main");
}

#[test]
fn a_second_look_changes_nothing() {
    let mut written = pod(&json!({"gpu-memory": "1024"}));
    written["spec"]["containers"][0]["env"] = json!([
        {"name": "A", "value": "1"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "B", "value": "$(A)"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}
    ]);
    written["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    let settings = Settings { block_visible_devices: true, hami_core: true, ..Settings::default() };
    let once = mutate(&settings, &written).unwrap();
    assert_eq!(mutate(&settings, &once).unwrap(), once);
    let names: Vec<_> = once["spec"]["containers"][0]["env"].as_array().unwrap().iter().map(|v| &v["name"]).collect();
    let expected = ["A", "NVIDIA_VISIBLE_DEVICES", "B", "RUNAI_NUM_OF_GPUS", "GPU_PORTION", "CUDA_DEVICE_MEMORY_LIMIT"];
    assert_eq!(names, expected);
    assert!(once["spec"]["containers"][0]["env"][1].get("value").is_none());
    let limit = &once["spec"]["containers"][0]["env"][5]["valueFrom"]["configMapKeyRef"];
    assert_eq!(limit["optional"], true);
}

#[test]
fn a_prefix_that_the_pod_brings_is_replaced_with_all_that_it_named() {
    let settings = Settings::default();
    let first = mutate(&settings, &pod(&json!({"gpu-fraction": "0.5"}))).unwrap();
    // Asked again under another request, with a sidecar before the container.
    let mut again = first.clone();
    let main = again["spec"]["containers"][0].clone();
    again["spec"]["containers"] = json!([{"name": "sidecar"}, main]);
    let mut other = request("CREATE", "alice", &Value::Null, &again);
    other.uid = "another".to_owned();
    let consent = crate::pod::mutate(&settings, &other).unwrap();
    assert_eq!(consent.warnings, Vec::<String>::new());
    json_patch::patch(&mut again, &consent.patch.unwrap()).unwrap();
    let old = first["metadata"]["annotations"]["runai/shared-gpu-configmap"].as_str().unwrap();
    let new = again["metadata"]["annotations"]["runai/shared-gpu-configmap"].as_str().unwrap();
    assert_ne!(old, new);
    assert!(!again.to_string().contains(old), "{again}");
    assert_eq!(again["spec"]["containers"][0], json!({"name": "sidecar"}));
    assert_eq!(again["spec"]["containers"][1]["env"].as_array().unwrap().len(), 3);
    let volume =
        json!([{"name": format!("{new}-1-vol"), "configMap": {"name": format!("{new}-1"), "defaultMode": 420}}]);
    assert_eq!(again["spec"]["volumes"], volume);
    // One that a user made up.
    let taken = pod(&json!({"gpu-fraction": "0.5", "runai/shared-gpu-configmap": "passwords"}));
    let consent = crate::pod::mutate(&settings, &request("CREATE", "alice", &Value::Null, &taken)).unwrap();
    assert!(consent.warnings[0].contains("`passwords` is replaced"), "{:?}", consent.warnings);
    let done = mutate(&settings, &taken).unwrap();
    assert_ne!(done["metadata"]["annotations"]["runai/shared-gpu-configmap"], "passwords");
}

#[test]
fn names_stay_short_enough() {
    for (owner, generated) in [("a.very-long.name.", "x"), ("n", "y-"), ("..", "")] {
        for count in [1_usize, 12, 120] {
            let mut long = pod(&json!({"gpu-fraction": "0.5", "gpu-fraction-container-name": "last"}));
            let name = owner.repeat(30).chars().take(200).collect::<String>();
            let reference = json!({"apiVersion": "v1", "kind": "Job", "uid": "u", "name": name});
            long["metadata"]["ownerReferences"] = json!([reference]);
            long["metadata"]["generateName"] = json!(generated);
            let mut containers: Vec<Value> = (1..count).map(|n| json!({"name": format!("c{n}")})).collect();
            containers.push(json!({"name": "last"}));
            long["spec"]["initContainers"] = json!(containers);
            let done = mutate(&Settings::default(), &long).unwrap();
            let container = &done["spec"]["initContainers"][count - 1];
            let map = container["envFrom"][0]["configMapRef"]["name"].as_str().unwrap();
            assert!(map.len() <= 63 && map.ends_with(&format!("-shared-gpu-i{}-evar", count - 1)), "{map}");
            let volume = done["spec"]["volumes"][0]["name"].as_str().unwrap();
            assert!(volume.len() <= 63 && !volume.contains('.'), "{volume}");
            assert!(!map.contains(".-") && !map.contains("--"), "{map}");
        }
    }
}

#[test]
fn a_runtime_class_of_its_own_is_kept_and_empty_means_none() {
    let mut own = pod(&json!({"gpu-fraction": "0.5"}));
    own["spec"]["runtimeClassName"] = json!("mine");
    assert_eq!(mutate(&Settings::default(), &own).unwrap()["spec"]["runtimeClassName"], "mine");
    let off = Settings { runtime_class: String::new(), ..Settings::default() };
    let done = mutate(&off, &pod(&json!({"gpu-fraction": "0.5"}))).unwrap();
    assert!(done["spec"].get("runtimeClassName").is_none());
    let whole = pod(&json!({}));
    assert_eq!(mutate(&Settings::default(), &whole).unwrap(), whole);
}

#[test]
fn devices_are_hidden_from_who_asked_for_none() {
    let settings = Settings { block_visible_devices: true, ..Settings::default() };
    let mut mixed = pod(&json!({}));
    let gpu = json!({"limits": {"nvidia.com/gpu": "1"}});
    let from = json!({"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
    mixed["spec"]["containers"] = json!([{"name": "gpu", "resources": gpu}, {"name": "cpu", "env": [from]}]);
    mixed["spec"]["ephemeralContainers"] = json!([{"name": "debug"}]);
    let done = mutate(&settings, &mixed).unwrap();
    let hidden = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]);
    assert_eq!(done["spec"]["containers"], json!([{"name": "gpu", "resources": gpu}, {"name": "cpu", "env": hidden}]));
    assert_eq!(done["spec"]["ephemeralContainers"], json!([{"name": "debug", "env": hidden}]));
    assert_eq!(validate(&settings, &done), Ok(Vec::new()));
}

#[test]
fn bad_requests_are_refused_before_anything_is_made_of_them() {
    let error = mutate(&Settings::default(), &pod(&json!({"gpu-fraction": "1.5"}))).unwrap_err();
    assert!(error.contains("must be a positive number smaller than 1.0"), "{error}");
    let mut elsewhere = pod(&json!({}));
    elsewhere["metadata"]["namespace"] = json!("other");
    assert!(mutate(&Settings::default(), &elsewhere).unwrap_err().contains("metadata.namespace"));
}
