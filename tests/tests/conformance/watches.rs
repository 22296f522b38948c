//! Watch: order, selectors, bookmarks, resuming, expiry, streaming lists.

use std::time::Duration;

use anyhow::{Result, ensure};
use kai_tests::harness::Case;
use kai_tests::request::{PatchKind, Watch};
use serde_json::{Value, json};

use crate::conformance;
use crate::setting::{Setting, config_map, pod};

pub const CASES: &[Case] = conformance![
    a_watch_tells_of_additions_changes_and_deletions,
    a_watch_without_a_version_begins_with_what_is_there,
    a_watch_from_a_version_begins_after_it,
    a_watch_resumes_without_loss,
    a_watch_of_one_name_sees_only_that_object,
    a_watch_by_label_sees_objects_come_and_go,
    a_watch_by_field_sees_pods_of_a_node,
    a_deleted_object_is_shown_in_its_last_state,
    a_streaming_list_ends_with_a_bookmark,
    a_streaming_list_needs_its_companions,
    a_watch_ends_after_its_timeout,
    events_of_a_watch_carry_kind_and_version,
    versions_of_a_watch_only_grow,
    a_watch_of_tables_sends_tables,
    a_watch_of_metadata_sends_metadata,
    a_watch_over_all_namespaces_sees_this_one,
    a_no_op_update_is_no_event,
    a_dry_run_is_no_event,
    a_finalized_object_is_modified_then_deleted,
    a_bad_watch_version_is_refused,
    a_watch_at_a_future_version_waits_quietly,
];

async fn version(s: &Setting) -> Result<String> {
    s.server.get(&s.core("configmaps")).await?.expect(200)?.string("/metadata/resourceVersion")
}

async fn watch_from_now(s: &Setting, more: &str) -> Result<Watch> {
    let version = version(s).await?;
    s.server.watch(&s.core(&format!("configmaps?watch=true&resourceVersion={version}{more}"))).await
}

async fn expect(watch: &mut Watch, kind: &str, name: &str) -> Result<Value> {
    let event = watch.next_change().await?;
    ensure!(
        event["type"] == kind && event["object"]["metadata"]["name"] == name,
        "expected {kind} {name}, got {event}"
    );
    Ok(event["object"].clone())
}

async fn create(s: &Setting, name: &str) -> Result<Value> {
    Ok(s.server.post(&s.core("configmaps"), &config_map(name)).await?.expect(201)?.json)
}

async fn a_watch_tells_of_additions_changes_and_deletions(s: &Setting) -> Result<()> {
    let mut watch = watch_from_now(s, "").await?;
    create(s, "a").await?;
    let patch = json!({ "data": { "key": "other" } });
    s.server.patch(PatchKind::Merge, &s.core("configmaps/a"), &patch).await?.expect(200)?;
    s.server.delete(&s.core("configmaps/a"), &Value::Null).await?.expect(200)?;
    expect(&mut watch, "ADDED", "a").await?;
    ensure!(expect(&mut watch, "MODIFIED", "a").await?["data"]["key"] == "other");
    expect(&mut watch, "DELETED", "a").await?;
    Ok(())
}

async fn a_watch_without_a_version_begins_with_what_is_there(s: &Setting) -> Result<()> {
    create(s, "a").await?;
    let mut watch = s.server.watch(&s.core("configmaps?watch=true&fieldSelector=metadata.name%3Da")).await?;
    expect(&mut watch, "ADDED", "a").await?;
    Ok(())
}

async fn a_watch_from_a_version_begins_after_it(s: &Setting) -> Result<()> {
    create(s, "before").await?;
    let mut watch = watch_from_now(s, "").await?;
    create(s, "after").await?;
    expect(&mut watch, "ADDED", "after").await?;
    Ok(())
}

async fn a_watch_resumes_without_loss(s: &Setting) -> Result<()> {
    let mut watch = watch_from_now(s, "").await?;
    create(s, "a").await?;
    let seen = expect(&mut watch, "ADDED", "a").await?;
    drop(watch);
    create(s, "b").await?;
    create(s, "c").await?;
    let version = seen["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let mut watch = s.server.watch(&s.core(&format!("configmaps?watch=true&resourceVersion={version}"))).await?;
    expect(&mut watch, "ADDED", "b").await?;
    expect(&mut watch, "ADDED", "c").await?;
    Ok(())
}

async fn a_watch_of_one_name_sees_only_that_object(s: &Setting) -> Result<()> {
    let mut watch = watch_from_now(s, "&fieldSelector=metadata.name%3Db").await?;
    create(s, "a").await?;
    create(s, "b").await?;
    expect(&mut watch, "ADDED", "b").await?;
    Ok(())
}

async fn a_watch_by_label_sees_objects_come_and_go(s: &Setting) -> Result<()> {
    let mut watch = watch_from_now(s, "&labelSelector=shown%3Dyes").await?;
    create(s, "a").await?;
    let label = |value: &'static str| async move {
        let patch = json!({ "metadata": { "labels": { "shown": value } } });
        s.server.patch(PatchKind::Merge, &s.core("configmaps/a"), &patch).await?.expect(200)
    };
    label("yes").await?;
    expect(&mut watch, "ADDED", "a").await?;
    let patch = json!({ "data": { "key": "other" } });
    s.server.patch(PatchKind::Merge, &s.core("configmaps/a"), &patch).await?.expect(200)?;
    expect(&mut watch, "MODIFIED", "a").await?;
    let last = label("no").await?;
    let gone = expect(&mut watch, "DELETED", "a").await?;
    // It still shows the labels it had while it matched, and the version at which it stopped.
    ensure!(gone["metadata"]["labels"]["shown"] == "yes", "{gone}");
    ensure!(gone["metadata"]["resourceVersion"] == last.json["metadata"]["resourceVersion"], "{gone}");
    Ok(())
}

async fn a_watch_by_field_sees_pods_of_a_node(s: &Setting) -> Result<()> {
    let version = s.server.get(&s.core("pods")).await?.string("/metadata/resourceVersion")?;
    let path = s.core(&format!("pods?watch=true&resourceVersion={version}&fieldSelector=spec.nodeName%3Dlost-node"));
    let mut watch = s.server.watch(&path).await?;
    s.server.post(&s.core("pods"), &pod("a")).await?.expect(201)?;
    let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "a" }, "target": { "kind": "Node", "name": "lost-node" } });
    s.server.post(&s.core("pods/a/binding"), &binding).await?.expect(201)?;
    let seen = expect(&mut watch, "ADDED", "a").await?;
    ensure!(seen["spec"]["nodeName"] == "lost-node");
    s.server.delete(&s.core("pods/a"), &json!({ "gracePeriodSeconds": 0 })).await?.expect(200)?;
    Ok(())
}

async fn a_deleted_object_is_shown_in_its_last_state(s: &Setting) -> Result<()> {
    let created = create(s, "a").await?;
    let mut watch = watch_from_now(s, "").await?;
    s.server.delete(&s.core("configmaps/a"), &Value::Null).await?.expect(200)?;
    let gone = expect(&mut watch, "DELETED", "a").await?;
    ensure!(gone["data"] == created["data"] && gone["metadata"]["uid"] == created["metadata"]["uid"]);
    let versions = [&gone, &created]
        .map(|object| object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok()));
    ensure!(versions[0] > versions[1], "{versions:?}");
    Ok(())
}

async fn a_streaming_list_ends_with_a_bookmark(s: &Setting) -> Result<()> {
    create(s, "a").await?;
    create(s, "b").await?;
    let query = "configmaps?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&labelSelector=!absent";
    let mut watch = s.server.watch(&s.core(query)).await?;
    let mut names = Vec::new();
    loop {
        let event = watch.next().await?;
        if event["type"] == "BOOKMARK" {
            let metadata = &event["object"]["metadata"];
            ensure!(metadata["annotations"]["k8s.io/initial-events-end"] == "true", "{event}");
            ensure!(event["object"]["kind"] == "ConfigMap", "{event}");
            break;
        }
        ensure!(event["type"] == "ADDED", "{event}");
        names.push(event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned());
    }
    names.retain(|name| name.len() == 1);
    names.sort();
    ensure!(names == ["a", "b"], "{names:?}");
    create(s, "c").await?;
    expect(&mut watch, "ADDED", "c").await?;
    Ok(())
}

async fn a_streaming_list_needs_its_companions(s: &Setting) -> Result<()> {
    let answer = s.server.get(&s.core("configmaps?watch=true&sendInitialEvents=true&allowWatchBookmarks=true")).await?;
    answer
        .expect_failure(422, "Invalid")?
        .expect_message("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")?;
    let answer = s.server.get(&s.core("configmaps?sendInitialEvents=true&resourceVersionMatch=NotOlderThan")).await?;
    answer.expect_failure(422, "Invalid")?.expect_message("sendInitialEvents is forbidden for list")?;
    Ok(())
}

async fn a_watch_ends_after_its_timeout(s: &Setting) -> Result<()> {
    let mut watch = watch_from_now(s, "&timeoutSeconds=1").await?;
    while watch.next_or_end().await?.is_some() {}
    Ok(())
}

async fn events_of_a_watch_carry_kind_and_version(s: &Setting) -> Result<()> {
    let mut watch = watch_from_now(s, "").await?;
    create(s, "a").await?;
    let object = expect(&mut watch, "ADDED", "a").await?;
    ensure!(object["kind"] == "ConfigMap" && object["apiVersion"] == "v1", "{object}");
    Ok(())
}

async fn versions_of_a_watch_only_grow(s: &Setting) -> Result<()> {
    let mut watch = watch_from_now(s, "").await?;
    for name in ["a", "b", "c"] {
        create(s, name).await?;
    }
    let mut last = 0;
    for name in ["a", "b", "c"] {
        let object = expect(&mut watch, "ADDED", name).await?;
        let version: u64 = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse()?;
        ensure!(version > last);
        last = version;
    }
    Ok(())
}

async fn a_watch_of_tables_sends_tables(s: &Setting) -> Result<()> {
    let version = version(s).await?;
    let path = s.core(&format!("configmaps?watch=true&resourceVersion={version}"));
    let mut watch = s.server.watch_as(&path, "application/json;as=Table;v=v1;g=meta.k8s.io").await?;
    create(s, "a").await?;
    create(s, "b").await?;
    let first = watch.next_change().await?;
    ensure!(first["object"]["kind"] == "Table" && first["object"]["rows"][0]["cells"][0] == "a", "{first}");
    ensure!(first["object"]["columnDefinitions"].as_array().is_some_and(|columns| !columns.is_empty()), "{first}");
    let second = watch.next_change().await?;
    ensure!(second["object"]["rows"][0]["cells"][0] == "b", "{second}");
    // Columns are sent once.
    ensure!(second["object"]["columnDefinitions"].as_array().is_none_or(Vec::is_empty), "{second}");
    Ok(())
}

async fn a_watch_of_metadata_sends_metadata(s: &Setting) -> Result<()> {
    let version = version(s).await?;
    let path = s.core(&format!("configmaps?watch=true&resourceVersion={version}"));
    let mut watch = s.server.watch_as(&path, "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").await?;
    create(s, "a").await?;
    let object = expect(&mut watch, "ADDED", "a").await?;
    ensure!(object["kind"] == "PartialObjectMetadata" && object.get("data").is_none(), "{object}");
    Ok(())
}

async fn a_watch_over_all_namespaces_sees_this_one(s: &Setting) -> Result<()> {
    let version = version(s).await?;
    let name = format!("seen-{}", s.namespace);
    let mut watch = s
        .server
        .watch(&format!("/api/v1/configmaps?watch=true&resourceVersion={version}&fieldSelector=metadata.name%3D{name}"))
        .await?;
    create(s, &name).await?;
    ensure!(expect(&mut watch, "ADDED", &name).await?["metadata"]["namespace"] == s.namespace.as_str());
    Ok(())
}

async fn a_no_op_update_is_no_event(s: &Setting) -> Result<()> {
    let created = create(s, "a").await?;
    let mut watch = watch_from_now(s, "").await?;
    s.server.put(&s.core("configmaps/a"), &created).await?.expect(200)?;
    watch.expect_nothing(Duration::from_millis(300)).await
}

async fn a_dry_run_is_no_event(s: &Setting) -> Result<()> {
    let mut watch = watch_from_now(s, "").await?;
    s.server.post(&s.core("configmaps?dryRun=All"), &config_map("a")).await?.expect(201)?;
    watch.expect_nothing(Duration::from_millis(300)).await
}

async fn a_finalized_object_is_modified_then_deleted(s: &Setting) -> Result<()> {
    let mut body = config_map("a");
    body["metadata"]["finalizers"] = json!(["example.com/wait"]);
    s.server.post(&s.core("configmaps"), &body).await?.expect(201)?;
    let mut watch = watch_from_now(s, "").await?;
    s.server.delete(&s.core("configmaps/a"), &Value::Null).await?.expect(200)?;
    ensure!(expect(&mut watch, "MODIFIED", "a").await?["metadata"].get("deletionTimestamp").is_some());
    let patch = json!({ "metadata": { "finalizers": null } });
    s.server.patch(PatchKind::Merge, &s.core("configmaps/a"), &patch).await?.expect(200)?;
    expect(&mut watch, "DELETED", "a").await?;
    Ok(())
}

async fn a_bad_watch_version_is_refused(s: &Setting) -> Result<()> {
    let answer = s.server.get(&s.core("configmaps?watch=true&resourceVersion=soon")).await?;
    answer.expect(500)?.expect_message("resourceVersion: Invalid value: \"soon\"")?;
    Ok(())
}

async fn a_watch_at_a_future_version_waits_quietly(s: &Setting) -> Result<()> {
    let now: u64 = version(s).await?.parse()?;
    let path = s.core(&format!("configmaps?watch=true&timeoutSeconds=1&resourceVersion={}", now + 1_000_000));
    let mut watch = s.server.watch(&path).await?;
    create(s, "a").await?;
    ensure!(watch.next_or_end().await?.is_none(), "an event of a version that has not come");
    Ok(())
}
