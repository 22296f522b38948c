//! Watches.

use http::Method;
use serde_json::json;

use crate::support::{DEFINITIONS, MAPS, Server, WIDGETS, map, widget, widgets};

#[tokio::test]
async fn a_watch_begins_with_what_is_there_and_goes_on() {
    let server = Server::start();
    server.post(MAPS, &map("a", &json!({}))).await.expect(201);
    let mut watch = server.watch(&format!("{MAPS}?watch=1")).await;
    assert_eq!(watch.next(1).await, ["ADDED a"]);
    server.post(MAPS, &map("b", &json!({}))).await.expect(201);
    server.merge(&format!("{MAPS}/b"), &json!({"data": {"a": "2"}})).await.expect(200);
    server.delete(&format!("{MAPS}/a")).await.expect(200);
    assert_eq!(watch.next(3).await, ["ADDED b", "MODIFIED b", "DELETED a"]);
}

#[tokio::test]
async fn a_deleted_object_is_announced_with_the_revision_of_its_deletion() {
    let server = Server::start();
    let created = server.post(MAPS, &map("a", &json!({}))).await.expect(201);
    let version = created["metadata"]["resourceVersion"].as_str().expect("version").to_owned();
    let mut watch = server.watch(&format!("{MAPS}?watch=1&resourceVersion={version}")).await;
    server.delete(&format!("{MAPS}/a")).await.expect(200);
    let event = watch.event().await.expect("event");
    let last: u64 =
        event["object"]["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).expect("number");
    assert!(last > version.parse::<u64>().expect("number"));
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection() {
    let server = Server::start();
    let mut watch = server.watch(&format!("{MAPS}?watch=1&labelSelector=color%3Dred")).await;
    server.post(MAPS, &map("a", &json!({"color": "blue"}))).await.expect(201);
    server.merge(&format!("{MAPS}/a"), &json!({"metadata": {"labels": {"color": "red"}}})).await.expect(200);
    server.merge(&format!("{MAPS}/a"), &json!({"data": {"a": "2"}})).await.expect(200);
    server.merge(&format!("{MAPS}/a"), &json!({"metadata": {"labels": {"color": "blue"}}})).await.expect(200);
    server.delete(&format!("{MAPS}/a")).await.expect(200);
    server.post(MAPS, &map("b", &json!({"color": "red"}))).await.expect(201);
    assert_eq!(watch.next(4).await, ["ADDED a", "MODIFIED a", "DELETED a", "ADDED b"]);
}

#[tokio::test]
async fn the_event_of_leaving_carries_the_last_matching_state() {
    let server = Server::start();
    server.post(MAPS, &map("a", &json!({"color": "red"}))).await.expect(201);
    let mut watch = server.watch(&format!("{MAPS}?watch=1&labelSelector=color%3Dred")).await;
    watch.next(1).await;
    let changed =
        server.merge(&format!("{MAPS}/a"), &json!({"metadata": {"labels": {"color": "blue"}}})).await.expect(200);
    let event = watch.event().await.expect("event");
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["labels"]["color"], "red");
    assert_eq!(event["object"]["metadata"]["resourceVersion"], changed["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn a_watch_resumes_where_another_ended() {
    let server = Server::start();
    let list = server.get(MAPS).await.expect(200);
    let version = list["metadata"]["resourceVersion"].as_str().expect("version");
    server.post(MAPS, &map("a", &json!({}))).await.expect(201);
    server.post(MAPS, &map("b", &json!({}))).await.expect(201);
    let mut watch = server.watch(&format!("{MAPS}?watch=1&resourceVersion={version}")).await;
    assert_eq!(watch.next(2).await, ["ADDED a", "ADDED b"]);
}

#[tokio::test]
async fn a_watch_from_a_forgotten_version_gets_410_and_ends() {
    let server = Server::start_with(|options| options.watch_history = 3);
    for name in ["a", "b", "c", "d", "e", "f"] {
        server.post(MAPS, &map(name, &json!({}))).await.expect(201);
    }
    let mut watch = server.watch(&format!("{MAPS}?watch=1&resourceVersion=1")).await;
    let event = watch.event().await.expect("event");
    assert_eq!(event["type"], "ERROR");
    assert_eq!((&event["object"]["code"], &event["object"]["reason"]), (&json!(410), &json!("Expired")));
    assert!(event["object"]["message"].as_str().is_some_and(|text| text.starts_with("too old resource version: 1 (")));
    assert!(watch.event().await.is_none());
}

#[tokio::test]
async fn a_slow_watcher_is_cut_off_instead_of_filling_memory() {
    let server = Server::start_with(|options| options.watch_history = 4);
    let mut watch = server.watch(&format!("{MAPS}?watch=1&resourceVersion=0")).await;
    server.post(MAPS, &map("a", &json!({}))).await.expect(201);
    assert_eq!(watch.next(1).await, ["ADDED a"]);
    for step in 0..20 {
        server.merge(&format!("{MAPS}/a"), &json!({"data": {"a": step.to_string()}})).await.expect(200);
    }
    assert_eq!(watch.event().await.expect("event")["object"]["code"], 410);
    assert!(watch.event().await.is_none());
}

#[tokio::test]
async fn initial_events_end_with_an_annotated_bookmark() {
    let server = Server::start();
    server.post(MAPS, &map("a", &json!({}))).await.expect(201);
    let query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut watch = server.watch(&format!("{MAPS}?{query}")).await;
    assert_eq!(watch.next(1).await, ["ADDED a"]);
    let bookmark = watch.event().await.expect("event");
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    server.post(MAPS, &map("b", &json!({}))).await.expect(201);
    assert_eq!(watch.next(1).await, ["ADDED b"]);
    server.get(&format!("{MAPS}?watch=1&sendInitialEvents=true")).await.expect(422);
    server.get(&format!("{MAPS}?watch=1&resourceVersionMatch=Exact")).await.expect(422);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_tell_idle_watchers_the_current_version() {
    let server = Server::start();
    let mut watch = server.watch(&format!("{MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=150")).await;
    watch.patience = std::time::Duration::from_mins(10);
    server.post("/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).await.expect(201);
    let current = server.get(MAPS).await.expect(200)["metadata"]["resourceVersion"].clone();
    for _ in 0..3 {
        let event = watch.event().await.expect("event");
        assert_eq!((&event["type"], &event["object"]["metadata"]["resourceVersion"]), (&json!("BOOKMARK"), &current));
    }
    assert!(watch.event().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_its_time_is_up() {
    let server = Server::start();
    let mut watch = server.watch(&format!("{MAPS}?watch=1&timeoutSeconds=5")).await;
    assert!(watch.event().await.is_none());
}

#[tokio::test]
async fn a_watch_of_another_form_sends_tables() {
    let server = Server::start();
    let accept = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json";
    let mut watch = server.watch_as(&format!("{MAPS}?watch=1"), accept).await;
    server.post(MAPS, &map("a", &json!({}))).await.expect(201);
    server.post(MAPS, &map("b", &json!({}))).await.expect(201);
    let first = watch.event().await.expect("event");
    assert_eq!(first["object"]["kind"], "Table");
    assert!(first["object"]["columnDefinitions"].is_array());
    assert!(watch.event().await.expect("event")["object"]["columnDefinitions"].is_null());
}

#[tokio::test]
async fn one_object_can_be_watched() {
    let server = Server::start();
    let mut watch = server.watch(&format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Db")).await;
    let mut named = server.watch(&format!("{MAPS}/b?watch=1")).await;
    server.post(MAPS, &map("a", &json!({}))).await.expect(201);
    server.post(MAPS, &map("b", &json!({}))).await.expect(201);
    assert_eq!(watch.next(1).await, ["ADDED b"]);
    assert_eq!(named.next(1).await, ["ADDED b"]);
}

#[tokio::test]
async fn watches_of_a_custom_resource_end_with_its_definition() {
    let server = Server::start();
    server.post(DEFINITIONS, &widgets()).await.expect(201);
    server.post(WIDGETS, &widget("a")).await.expect(201);
    let mut watch = server.watch(&format!("{WIDGETS}?watch=1")).await;
    assert_eq!(watch.next(1).await, ["ADDED a"]);
    server.send(Method::DELETE, &format!("{DEFINITIONS}/widgets.example.com"), &json!({})).await.expect(200);
    server.until(&format!("{DEFINITIONS}/widgets.example.com"), 404).await;
    server.get(WIDGETS).await.expect(404);
    assert_eq!(watch.next(2).await, ["DELETED a"]);
}

#[tokio::test]
async fn a_thousand_idle_watches_cost_little() {
    let server = Server::start();
    let mut watches = Vec::new();
    for _ in 0..1000 {
        watches.push(server.watch(&format!("{MAPS}?watch=1")).await);
    }
    server.post(MAPS, &map("a", &json!({}))).await.expect(201);
    for watch in &mut watches {
        assert_eq!(watch.next(1).await, ["ADDED a"]);
    }
}
