//! Deletion: grace, finalizers, preconditions, dependents, namespaces, definitions, expiry.

use serde_json::{Value, json};

use crate::support::{DEFINITIONS, MAPS, PODS, Server, WIDGETS, map, pod, widget, widgets};

fn owned(name: &str, owner: &Value, blocks: bool) -> Value {
    let mut object = map(name, &json!({}));
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks}]);
    object
}

fn on_node(name: &str) -> Value {
    let mut object = pod(name);
    object["spec"]["nodeName"] = json!("node");
    object
}

#[tokio::test]
async fn a_pod_on_a_node_is_given_its_grace_period() {
    let server = Server::start();
    server.post(PODS, &on_node("a")).await.expect(201);
    let path = format!("{PODS}/a");
    let marked = server.delete(&path).await.expect(200);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    let same = server.delete_with(&path, &json!({"gracePeriodSeconds": 60})).await.expect(200);
    assert_eq!(same["metadata"], marked["metadata"]);
    let shorter = server.delete_with(&path, &json!({"gracePeriodSeconds": 5})).await.expect(200);
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    assert!(shorter["metadata"]["deletionTimestamp"].as_str() < marked["metadata"]["deletionTimestamp"].as_str());
    server.delete_with(&path, &json!({"gracePeriodSeconds": 0})).await.expect(200);
    server.get(&path).await.expect(404);
}

#[tokio::test]
async fn pods_that_run_nowhere_are_deleted_at_once() {
    let server = Server::start();
    server.post(PODS, &pod("a")).await.expect(201);
    let gone = server.delete(&format!("{PODS}/a")).await.expect(200);
    assert_eq!(gone["kind"], "Pod");
    server.get(&format!("{PODS}/a")).await.expect(404);
    server.post(PODS, &on_node("b")).await.expect(201);
    server.merge(&format!("{PODS}/b/status"), &json!({"status": {"phase": "Succeeded"}})).await.expect(200);
    server.delete(&format!("{PODS}/b")).await.expect(200);
    server.get(&format!("{PODS}/b")).await.expect(404);
}

#[tokio::test]
async fn an_object_with_finalizers_stays_until_the_last_is_removed() {
    let server = Server::start();
    let mut body = map("a", &json!({}));
    body["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    server.post(MAPS, &body).await.expect(201);
    let path = format!("{MAPS}/a");
    let marked = server.delete(&path).await.expect(200);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    let mut watch = server.watch(&format!("{MAPS}?watch=1")).await;
    assert_eq!(watch.next(1).await, ["ADDED a"]);
    server.merge(&path, &json!({"metadata": {"finalizers": ["example.com/b"]}})).await.expect(200);
    server.merge(&path, &json!({"metadata": {"finalizers": null}})).await.expect(200);
    server.get(&path).await.expect(404);
    assert_eq!(watch.next(2).await, ["MODIFIED a", "DELETED a"]);
}

#[tokio::test]
async fn preconditions_protect_from_deleting_another_object() {
    let server = Server::start();
    server.post(MAPS, &map("a", &json!({}))).await.expect(201);
    let path = format!("{MAPS}/a");
    let error = server.delete_with(&path, &json!({"preconditions": {"uid": "x"}})).await.expect(409);
    assert!(
        error["message"].as_str().is_some_and(|text| text.contains("the UID in the precondition (x) does not match"))
    );
    server.delete_with(&path, &json!({"preconditions": {"resourceVersion": "1"}})).await.expect(409);
    server.delete_with(&path, &json!({"propagationPolicy": "Sideways"})).await.expect(422);
    let done = server.delete(&path).await.expect(200);
    assert_eq!((&done["kind"], &done["status"]), (&json!("Status"), &json!("Success")));
    server.delete(&path).await.expect(404);
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let server = Server::start();
    server.post(MAPS, &map("a", &json!({"color": "red"}))).await.expect(201);
    server.post(MAPS, &map("b", &json!({"color": "blue"}))).await.expect(201);
    server.delete(&format!("{MAPS}?labelSelector=color%3Dred")).await.expect(200);
    server.get(&format!("{MAPS}/a")).await.expect(404);
    server.get(&format!("{MAPS}/b")).await.expect(200);
}

#[tokio::test]
async fn dependents_go_after_their_owner() {
    let server = Server::start();
    let owner = server.post(MAPS, &map("owner", &json!({}))).await.expect(201);
    let child = server.post(MAPS, &owned("child", &owner, false)).await.expect(201);
    server.post(MAPS, &owned("grandchild", &child, false)).await.expect(201);
    server.delete(&format!("{MAPS}/owner")).await.expect(200);
    server.until(&format!("{MAPS}/child"), 404).await;
    server.until(&format!("{MAPS}/grandchild"), 404).await;
}

#[tokio::test]
async fn a_dependent_with_another_owner_stays_and_forgets_the_gone_one() {
    let server = Server::start();
    let one = server.post(MAPS, &map("one", &json!({}))).await.expect(201);
    let two = server.post(MAPS, &map("two", &json!({}))).await.expect(201);
    let mut child = owned("child", &one, false);
    let second = owned("x", &two, false)["metadata"]["ownerReferences"][0].clone();
    child["metadata"]["ownerReferences"].as_array_mut().expect("list").push(second);
    server.post(MAPS, &child).await.expect(201);
    let mut watch = server.watch(&format!("{MAPS}/child?watch=1")).await;
    watch.next(1).await;
    server.delete(&format!("{MAPS}/one")).await.expect(200);
    let event = watch.event().await.expect("event");
    assert_eq!(event["type"], "MODIFIED");
    assert_eq!(event["object"]["metadata"]["ownerReferences"][0]["name"], "two");
    assert_eq!(event["object"]["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn an_object_whose_owner_never_existed_is_collected() {
    let server = Server::start();
    let ghost = json!({"metadata": {"name": "ghost", "uid": "00000000-0000-4000-8000-000000000000"}});
    server.post(MAPS, &owned("child", &ghost, false)).await.expect(201);
    server.until(&format!("{MAPS}/child"), 404).await;
}

#[tokio::test]
async fn foreground_deletion_waits_for_blocking_dependents() {
    let server = Server::start();
    let owner = server.post(MAPS, &map("owner", &json!({}))).await.expect(201);
    let mut child = owned("child", &owner, true);
    child["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(MAPS, &child).await.expect(201);
    let path = format!("{MAPS}/owner");
    let marked = server.delete_with(&path, &json!({"propagationPolicy": "Foreground"})).await.expect(200);
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let mut watch = server.watch(&format!("{MAPS}/child?watch=1")).await;
    loop {
        let event = watch.event().await.expect("event");
        if event["object"]["metadata"].get("deletionTimestamp").is_some() {
            break;
        }
    }
    server.get(&path).await.expect(200);
    server.merge(&format!("{MAPS}/child"), &json!({"metadata": {"finalizers": null}})).await.expect(200);
    server.until(&path, 404).await;
    server.get(&format!("{MAPS}/child")).await.expect(404);
}

#[tokio::test]
async fn orphaned_dependents_stay_and_lose_their_owner() {
    let server = Server::start();
    let owner = server.post(MAPS, &map("owner", &json!({}))).await.expect(201);
    server.post(MAPS, &owned("child", &owner, false)).await.expect(201);
    server.delete_with(&format!("{MAPS}/owner"), &json!({"propagationPolicy": "Orphan"})).await.expect(200);
    server.until(&format!("{MAPS}/owner"), 404).await;
    let child = server.get(&format!("{MAPS}/child")).await.expect(200);
    assert!(child["metadata"].get("ownerReferences").is_none());
}

#[tokio::test]
async fn a_namespace_goes_with_everything_in_it() {
    let server = Server::start();
    server.post("/api/v1/namespaces", &json!({"metadata": {"name": "work"}})).await.expect(201);
    let path = "/api/v1/namespaces/work";
    let mut held = map("held", &json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(&format!("{path}/configmaps"), &held).await.expect(201);
    server.post(&format!("{path}/configmaps"), &map("free", &json!({}))).await.expect(201);
    let ending = server.delete(path).await.expect(200);
    assert_eq!(ending["status"]["phase"], "Terminating");
    server.until(&format!("{path}/configmaps/free"), 404).await;
    server.get(path).await.expect(200);
    let error = server.post(&format!("{path}/configmaps"), &map("late", &json!({}))).await.expect(403);
    assert!(error["message"].as_str().is_some_and(|text| text.contains("because it is being terminated")));
    server.merge(&format!("{path}/configmaps/held"), &json!({"metadata": {"finalizers": null}})).await.expect(200);
    server.until(path, 404).await;
}

#[tokio::test]
async fn a_definition_goes_with_its_objects() {
    let server = Server::start();
    server.post(DEFINITIONS, &widgets()).await.expect(201);
    server.post(WIDGETS, &widget("a")).await.expect(201);
    server.delete(&format!("{DEFINITIONS}/widgets.example.com")).await.expect(200);
    server.until(&format!("{DEFINITIONS}/widgets.example.com"), 404).await;
    server.get(WIDGETS).await.expect(404);
    server.post(DEFINITIONS, &widgets()).await.expect(201);
    let list = server.get(WIDGETS).await.expect(200);
    assert_eq!(list["items"], json!([]));
    server.post(WIDGETS, &widget("a")).await.expect(201);
}

#[tokio::test(start_paused = true)]
async fn events_expire_after_an_hour() {
    let server = Server::start();
    let path = "/api/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "e"}, "reason": "Started", "message": "hello", "type": "Normal",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"}});
    server.post(path, &event).await.expect(201);
    let other = server.get("/apis/events.k8s.io/v1/namespaces/default/events/e").await.expect(200);
    assert_eq!((&other["note"], &other["apiVersion"]), (&json!("hello"), &json!("events.k8s.io/v1")));
    tokio::time::sleep(std::time::Duration::from_secs(3500)).await;
    server.get(&format!("{path}/e")).await.expect(200);
    tokio::time::sleep(std::time::Duration::from_secs(200)).await;
    server.get(&format!("{path}/e")).await.expect(404);
}

#[tokio::test]
async fn the_server_ends_open_watches_when_it_is_cancelled() {
    let cancel = tokio_util::sync::CancellationToken::new();
    let server = Server::start_with(|options| options.cancel = cancel.clone());
    let mut watch = server.watch(&format!("{MAPS}?watch=1")).await;
    cancel.cancel();
    assert!(watch.event().await.is_none());
}
