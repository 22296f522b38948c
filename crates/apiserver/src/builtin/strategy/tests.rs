//! Fields for selectors, and how long all steps of a create take.

use serde_json::json;

use super::*;
use crate::builtin::recorded::{create, resource};
use crate::resource::{Gvk, Scope};

#[test]
fn pods_can_be_selected_by_a_few_fields() {
    let gvk = Gvk::new("", "v1", "Pod");
    let pod = json!({"spec": {"nodeName": "n", "hostNetwork": true}, "status": {"phase": "Running"}});
    let fields = selectable_fields(&gvk, &pod);
    let value = |name: &str| fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.as_str());
    assert_eq!(value("spec.nodeName"), Some("n"));
    assert_eq!(value("spec.host"), Some("n"));
    assert_eq!(value("spec.hostNetwork"), Some("true"));
    assert_eq!(value("status.phase"), Some("Running"));
    assert_eq!(value("status.nominatedNodeName"), Some(""));
    assert!(!supports_field(&gvk, "spec.containers"));
    assert!(supports_field(&gvk, "metadata.namespace"));
    assert!(!supports_field(&Gvk::new("", "v1", "Node"), "metadata.namespace"));
    assert!(!supports_field(&Gvk::new("apps", "v1", "ReplicaSet"), "status.replicas"));
}

#[test]
fn events_can_be_selected_by_what_they_are_about() {
    let event = json!({"involvedObject": {"name": "p"}, "reportingComponent": "kubelet", "type": "Normal"});
    let fields = selectable_fields(&Gvk::new("", "v1", "Event"), &event);
    assert!(fields.contains(&("involvedObject.name", "p".to_owned())));
    assert!(fields.contains(&("source", "kubelet".to_owned())));
}

#[test]
fn services_get_addresses_of_the_service_range() {
    let service = resource("v1", "Service", Scope::Namespaced);
    let given = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"type": "NodePort", "ports": [{"port": 80}, {"port": 81, "name": "b"}]}});
    let mut object = given.clone();
    defaults::set_defaults(&service.gvk, &mut object);
    prepare_for_create(&service, &mut object);
    assert!(object.text("spec.clusterIP").starts_with("10."));
    let ports: Vec<i64> = object.list("spec.ports").iter().map(|port| port.count("nodePort")).collect();
    assert!(ports.iter().all(|port| (30000..32768).contains(port)) && ports[0] != ports[1], "{ports:?}");
}

#[test]
fn a_pod_is_defaulted_and_checked_quickly() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "train-0", "namespace": "team-a", "labels": {"app": "train", "kai.scheduler/queue": "team-a"}},
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{
                "name": "main", "image": "repo.example/train:v1", "args": ["--epochs", "10"],
                "env": [{"name": "A", "value": "1"}, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                "resources": {"limits": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": 1}},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        },
    });
    let pods = resource("v1", "Pod", Scope::Namespaced);
    let rounds = 2000;
    let start = std::time::Instant::now();
    for _ in 0..rounds {
        assert!(create(&pods, &pod, &json!({})).is_ok());
    }
    let each = start.elapsed() / rounds;
    println!("default, prepare and validate a pod: {each:?}");
    // generous, because tests run unoptimized and beside others: a step that became quadratic still shows
    assert!(each < std::time::Duration::from_millis(2), "{each:?}");
}
