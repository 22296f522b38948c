//! The published schemas.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{document, index};
use crate::resource::Resource;
use crate::{builtin, crd};

fn with_queue() -> Vec<Arc<Resource>> {
    let mut definition = json!({
        "metadata": {"name": "queues.scheduling.example.com"},
        "spec": {"group": "scheduling.example.com", "scope": "Namespaced", "names": {"plural": "queues", "kind": "Queue"},
            "versions": [{"name": "v2", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
                "description": "Queue shares resources.", "type": "object", "properties": {"metadata": {"type": "object"},
                    "spec": {"type": "object", "description": "What it shares.", "properties": {"parent": {"type": "string"}}}}}}}]}});
    crd::prepare(&mut definition);
    crd::establish(&mut definition, &[], "2026-01-01T00:00:00Z");
    let mut resources = builtin::resources().to_vec();
    resources.extend(crd::resources(&definition).into_iter().map(Arc::new));
    resources
}

#[test]
fn the_index_has_every_group_version_and_a_hash_that_depends_on_its_content() {
    let resources = with_queue();
    let all = index(&resources);
    let url = |index: &Value, path: &str| index["paths"][path]["serverRelativeURL"].as_str().map(str::to_owned);
    assert!(url(&all, "api/v1").unwrap().starts_with("/openapi/v3/api/v1?hash="));
    assert!(url(&all, "apis/scheduling.example.com/v2").is_some());
    let fewer: Vec<_> = resources.iter().filter(|r| r.plural != "pods").cloned().collect();
    let fewer = index(&fewer);
    assert_ne!(url(&fewer, "api/v1"), url(&all, "api/v1"));
    assert_eq!(url(&fewer, "apis/apps/v1"), url(&all, "apis/apps/v1"));
}

#[test]
fn every_reference_in_every_document_is_answered() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    match value.as_str() {
                        Some(target) if key == "$ref" => found.push(target.to_owned()),
                        _ => references(value, found),
                    }
                }
            }
            Value::Array(list) => list.iter().for_each(|v| references(v, found)),
            _ => {}
        }
    }
    let resources = with_queue();
    for path in index(&resources)["paths"].as_object().unwrap().keys() {
        let document = document(path, &resources).unwrap();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for target in found {
            let name = target.strip_prefix("#/components/schemas/").unwrap();
            assert!(document["components"]["schemas"].get(name).is_some(), "{path}: {target}");
        }
    }
    assert!(document("apis/nowhere/v1", &resources).is_none());
}

#[test]
fn kubectl_finds_field_validation_at_the_patch_of_a_kind() {
    let resources = with_queue();
    for (path, kind) in [
        ("apis/apps/v1", json!({"group": "apps", "version": "v1", "kind": "Deployment"})),
        (
            "apis/scheduling.example.com/v2",
            json!({"group": "scheduling.example.com", "version": "v2", "kind": "Queue"}),
        ),
    ] {
        let document = document(path, &resources).unwrap();
        let patches: Vec<&Value> = document["paths"]
            .as_object()
            .unwrap()
            .values()
            .filter_map(|item| item.get("patch"))
            .filter(|patch| patch["x-kubernetes-group-version-kind"] == kind)
            .collect();
        assert!(!patches.is_empty());
        for patch in patches {
            for wanted in ["fieldValidation", "dryRun", "fieldManager"] {
                assert!(
                    patch["parameters"].as_array().unwrap().iter().any(|p| p["name"] == wanted && p["in"] == "query")
                );
            }
        }
    }
}

#[test]
fn custom_kinds_are_explained_with_their_own_words() {
    let document = document("apis/scheduling.example.com/v2", &with_queue()).unwrap();
    let queue = &document["components"]["schemas"]["com.example.scheduling.v2.Queue"];
    assert_eq!(queue["description"], "Queue shares resources.");
    assert_eq!(queue["properties"]["spec"]["description"], "What it shares.");
    assert_eq!(
        queue["properties"]["metadata"]["allOf"][0]["$ref"],
        "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    assert_eq!(
        queue["x-kubernetes-group-version-kind"],
        json!([{"group": "scheduling.example.com", "version": "v2", "kind": "Queue"}])
    );
    assert!(
        document["paths"].get("/apis/scheduling.example.com/v2/namespaces/{namespace}/queues/{name}/status").is_some()
    );
    assert!(document["components"]["schemas"].get("com.example.scheduling.v2.QueueList").is_some());
}
