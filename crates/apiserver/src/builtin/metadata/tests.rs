//! Names per kind, and what cannot be recorded because it is large.

use serde_json::json;

use super::*;
use crate::builtin::recorded::resource;

fn complaints(kind: &str, metadata: &Value) -> Vec<String> {
    let api_version = if kind == "Role" { "rbac.authorization.k8s.io/v1" } else { "v1" };
    let scope = if kind == "Namespace" { Scope::Cluster } else { Scope::Namespaced };
    let errors = validate_metadata(&resource(api_version, kind, scope), &json!({ "metadata": metadata }));
    errors.into_iter().map(|error| error.field).collect()
}

#[test]
fn each_kind_has_its_rule_for_names() {
    for (kind, name, fine) in [
        ("Pod", "a.b", true),
        ("Pod", "A", false),
        ("Service", "a1", true),
        ("Service", "1a", false),
        ("Service", "a.b", false),
        ("Role", "system:node", true),
        ("Role", "a/b", false),
    ] {
        assert_eq!(complaints(kind, &json!({"name": name, "namespace": "n"})).is_empty(), fine, "{kind} {name}");
    }
    assert_eq!(complaints("Namespace", &json!({"name": "a.b"})), ["metadata.name"]);
    assert_eq!(complaints("Namespace", &json!({"name": "a", "namespace": "b"})), ["metadata.namespace"]);
}

#[test]
fn a_generated_name_needs_a_good_beginning() {
    assert!(complaints("Pod", &json!({"generateName": "job-", "name": "job-x", "namespace": "n"})).is_empty());
    let bad = complaints("Pod", &json!({"generateName": "Job-", "name": "job-x", "namespace": "n"}));
    assert_eq!(bad, ["metadata.generateName"]);
    assert_eq!(complaints("Pod", &json!({"namespace": "n"})), ["metadata.name"]);
}

#[test]
fn annotations_together_have_a_limit() {
    let metadata = json!({"name": "a", "namespace": "n", "annotations": {"a": "x".repeat(256 * 1024)}});
    assert_eq!(complaints("Pod", &metadata), ["metadata.annotations"]);
}
