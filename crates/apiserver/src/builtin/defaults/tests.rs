//! Defaults beyond the recorded answers: what cannot be recorded because it needs two passes, or is about shape alone.

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn defaults_do_not_change_an_object_that_has_them() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../recorded.json")).expect("the file is JSON");
    for answer in cases.iter().map(|case| case.at("answer")).filter(|answer| answer.is_object()) {
        let (group, version) = answer.text("apiVersion").split_once('/').unwrap_or(("", answer.text("apiVersion")));
        let gvk = Gvk::new(group, version, answer.text("kind"));
        if group == "example.com" {
            continue;
        }
        let mut again = answer.clone();
        set_defaults(&gvk, &mut again);
        assert_eq!(&again, answer, "{}", gvk.kind);
    }
}

#[test]
fn a_job_without_labels_is_marked_until_its_uid_is_known() {
    let mut job = json!({"spec": {"template": {"metadata": {"labels": {"app": "a"}}}}});
    set_defaults(&Gvk::new("batch", "v1", "Job"), &mut job);
    assert!(take_shared_labels_mark(&mut job));
    assert!(!take_shared_labels_mark(&mut job));
    assert_eq!(job.at("metadata.labels"), &json!({"app": "a"}));
}

/// Any JSON, with the names that defaults look for, so that they find values of the wrong type.
pub(crate) fn any_object() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec![
        "metadata",
        "spec",
        "status",
        "template",
        "containers",
        "initContainers",
        "resources",
        "limits",
        "requests",
        "cpu",
        "nvidia.com/gpu",
        "volumes",
        "emptyDir",
        "projected",
        "sources",
        "ports",
        "env",
        "valueFrom",
        "fieldRef",
        "affinity",
        "nodeAffinity",
        "tolerations",
        "selector",
        "matchLabels",
        "matchExpressions",
        "labels",
        "annotations",
        "conditions",
        "ownerReferences",
        "finalizers",
        "strategy",
        "rollingUpdate",
        "maxSurge",
        "devices",
        "exactly",
        "firstAvailable",
        "jobTemplate",
        "schedule",
        "clusterIPs",
        "taints",
        "capacity",
        "livenessProbe",
        "httpGet",
        "data",
        "stringData",
        "webhooks",
        "rules",
        "clientConfig",
        "name",
        "type",
        "kind",
        "apiVersion",
        "podIPs",
        "schedulingGates",
        "uid",
        "volumeClaimTemplates",
        "completions",
        "managedFields",
        "securityContext",
        "topologySpreadConstraints",
        "addresses",
    ]);
    let text = prop::sample::select(vec![
        "",
        "x",
        "Always",
        "1",
        "-1",
        "25%",
        "1Gi",
        "a/b",
        "RollingUpdate",
        "Indexed",
        "ClusterIP",
        "é",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(7, 120, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..8)
                .prop_map(|map| map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Value>()),
        ]
    })
}
