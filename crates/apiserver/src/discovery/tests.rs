//! What discovery tells of kinds that are there and of those that come and go.

use super::*;
use crate::resource::Origin;

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> Resource {
    Resource {
        gvk: Gvk::new(group, version, kind),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        list_kind: format!("{kind}List"),
        short_names: Vec::new(),
        categories: Vec::new(),
        scope: Scope::Namespaced,
        verbs: vec!["get".to_owned(), "list".to_owned()],
        subresources: Vec::new(),
        schema: None,
        origin: Origin::BuiltIn,
    }
}

fn served() -> Vec<Arc<Resource>> {
    let subresource = |name: &str, group: &str, version: &str, kind: &str| Subresource {
        name: name.to_owned(),
        kind: Gvk::new(group, version, kind),
        verbs: vec!["get".to_owned()],
    };
    let pods = Resource {
        short_names: vec!["po".to_owned()],
        categories: vec!["all".to_owned()],
        subresources: vec![subresource("status", "", "v1", "Pod"), subresource("eviction", "policy", "v1", "Eviction")],
        ..resource("", "v1", "Pod", "pods")
    };
    let nodes = Resource { scope: Scope::Cluster, ..resource("", "v1", "Node", "nodes") };
    vec![
        resource("zebra.dev", "v1beta1", "Queue", "queues"),
        resource("zebra.dev", "v1", "Queue", "queues"),
        resource("ant.dev", "v1alpha1", "Ant", "ants"),
        resource("events.k8s.io", "v1", "Event", "events"),
        resource("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims"),
        resource("apps", "v1", "Deployment", "deployments"),
        pods,
        nodes,
        resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
    ]
    .into_iter()
    .map(Arc::new)
    .collect()
}

fn names(items: &Value, path: &str) -> Vec<String> {
    let items = items.as_array().unwrap().iter();
    items.map(|item| item.pointer(path).unwrap().as_str().unwrap().to_owned()).collect()
}

#[test]
fn groups_come_in_the_order_of_a_real_server_and_custom_ones_last() {
    let document = aggregated(&served(), Root::Apis);
    let expected = ["apps", "events.k8s.io", "discovery.k8s.io", "resource.k8s.io", "ant.dev", "zebra.dev"];
    assert_eq!(names(&document["items"], "/metadata/name"), expected);
    assert_eq!(names(&api_group_list(&served())["groups"], "/name"), expected);
}

#[test]
fn the_preferred_version_of_a_group_is_its_most_stable() {
    let document = aggregated(&served(), Root::Apis);
    assert_eq!(names(&document["items"][5]["versions"], "/version"), ["v1", "v1beta1"]);
    let group = api_group("zebra.dev", &served());
    assert_eq!(group["preferredVersion"], json!({"groupVersion": "zebra.dev/v1", "version": "v1"}));
    assert_eq!(names(&group["versions"], "/groupVersion"), ["zebra.dev/v1", "zebra.dev/v1beta1"]);
}

#[test]
fn the_aggregated_core_document_describes_resources_with_their_subresources() {
    let document = aggregated(&served(), Root::Api);
    assert_eq!(document["apiVersion"], "apidiscovery.k8s.io/v2");
    let version = &document["items"][0]["versions"][0];
    assert_eq!(version["freshness"], "Current");
    assert_eq!(
        version["resources"],
        json!([
            {
                "resource": "nodes", "responseKind": {"group": "", "version": "", "kind": "Node"}, "scope": "Cluster",
                "singularResource": "node", "verbs": ["get", "list"],
            },
            {
                "resource": "pods", "responseKind": {"group": "", "version": "", "kind": "Pod"}, "scope": "Namespaced",
                "singularResource": "pod", "verbs": ["get", "list"], "shortNames": ["po"], "categories": ["all"],
                "subresources": [
                    {"subresource": "eviction", "responseKind": {"group": "policy", "version": "v1", "kind": "Eviction"}, "verbs": ["get"]},
                    {"subresource": "status", "responseKind": {"group": "", "version": "", "kind": "Pod"}, "verbs": ["get"]},
                ],
            },
        ])
    );
}

#[test]
fn old_clients_find_subresources_in_the_list_of_resources() {
    let document = api_resource_list("", "v1", &served());
    assert_eq!(document["groupVersion"], "v1");
    assert_eq!(names(&document["resources"], "/name"), ["nodes", "pods", "pods/eviction", "pods/status"]);
    assert_eq!(document["resources"][1]["shortNames"], json!(["po"]));
    assert_eq!(document["resources"][2]["group"], "policy");
    assert_eq!(document["resources"][3].get("group"), None);
    assert_eq!(api_resource_list("apps", "v1", &served())["groupVersion"], "apps/v1");
}

#[test]
fn the_core_group_is_listed_apart() {
    assert_eq!(api_versions(&served())["versions"], json!(["v1"]));
    assert_eq!(api_versions(&served())["kind"], "APIVersions");
}
