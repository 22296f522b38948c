//! JSON, merge and strategic-merge patch.

use anyhow::{Result, ensure};
use http::Method;
use kai_tests::harness::Case;
use kai_tests::request::PatchKind::{Json, Merge, Strategic};
use serde_json::{Value, json};

use crate::conformance;
use crate::setting::{Setting, config_map, deployment, pod};

pub const CASES: &[Case] = conformance![
    json_patch_adds_replaces_and_removes,
    json_patch_test_guards_a_change,
    json_patch_of_a_missing_path_is_422,
    json_patch_that_is_no_list_is_400,
    merge_patch_sets_and_deletes,
    merge_patch_replaces_lists,
    strategic_patch_merges_containers_by_name,
    strategic_patch_deletes_a_list_element,
    strategic_patch_replaces_a_map_on_demand,
    strategic_patch_merges_finalizers,
    strategic_patch_retains_keys_of_a_strategy,
    strategic_patch_orders_list_elements,
    strategic_patch_without_merge_key_is_refused,
    a_patch_with_an_old_version_is_409,
    a_patch_that_changes_nothing_keeps_the_version,
    a_patch_of_a_missing_object_is_404,
    a_patch_cannot_rename,
    a_patch_of_status_leaves_spec_alone,
    a_patch_of_unknown_type_is_415,
    a_patch_to_an_invalid_object_is_422,
    a_dry_run_patch_changes_nothing,
    a_malformed_patch_is_400,
    env_variables_merge_by_name,
    volumes_merge_by_name_and_tolerations_are_replaced,
];

async fn json_patch_adds_replaces_and_removes(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let patch = json!([
        { "op": "add", "path": "/data/more", "value": "x" },
        { "op": "replace", "path": "/data/key", "value": "y" },
        { "op": "add", "path": "/metadata/labels", "value": { "a/b": "c" } },
    ]);
    let answer = s.server.patch(Json, &s.core("configmaps/a"), &patch).await?.expect(200)?;
    answer.expect_value("/data", json!({ "key": "y", "more": "x" }))?;
    let patch = json!([{ "op": "remove", "path": "/metadata/labels/a~1b" }]);
    s.server
        .patch(Json, &s.core("configmaps/a"), &patch)
        .await?
        .expect(200)?
        .expect_value("/metadata/labels", Value::Null)?;
    Ok(())
}

async fn json_patch_test_guards_a_change(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let patch =
        json!([{ "op": "test", "path": "/data/key", "value": "wrong" }, { "op": "remove", "path": "/data/key" }]);
    s.server.patch(Json, &s.core("configmaps/a"), &patch).await?.expect_failure(422, "Invalid")?;
    s.server.get(&s.core("configmaps/a")).await?.expect_value("/data/key", "value")?;
    Ok(())
}

async fn json_patch_of_a_missing_path_is_422(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let patch = json!([{ "op": "remove", "path": "/data/none" }]);
    s.server.patch(Json, &s.core("configmaps/a"), &patch).await?.expect_failure(422, "Invalid")?;
    Ok(())
}

async fn json_patch_that_is_no_list_is_400(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    s.server.patch(Json, &s.core("configmaps/a"), &json!({ "data": {} })).await?.expect_failure(400, "BadRequest")?;
    Ok(())
}

async fn merge_patch_sets_and_deletes(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let answer = s
        .server
        .patch(Merge, &s.core("configmaps/a"), &json!({ "data": { "key": null, "new": "x" } }))
        .await?
        .expect(200)?;
    answer.expect_value("/data", json!({ "new": "x" }))?;
    Ok(())
}

async fn merge_patch_replaces_lists(s: &Setting) -> Result<()> {
    let path = s.group("apps/v1", "deployments");
    s.server.post(&path, &deployment("a")).await?.expect(201)?;
    let patch = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "other", "image": "b:1" }] } } } });
    let answer = s.server.patch(Merge, &format!("{path}/a"), &patch).await?.expect(200)?;
    ensure!(answer.json["spec"]["template"]["spec"]["containers"].as_array().is_some_and(|list| list.len() == 1));
    answer.expect_value("/spec/template/spec/containers/0/name", "other")?;
    Ok(())
}

async fn patch_template(s: &Setting, patch: Value) -> Result<Value> {
    let path = s.group("apps/v1", "deployments");
    if s.server.get(&format!("{path}/a")).await?.status == 404 {
        let mut body = deployment("a");
        body["spec"]["template"]["spec"]["containers"] =
            json!([{ "name": "x", "image": "x:1" }, { "name": "y", "image": "y:1" }]);
        s.server.post(&path, &body).await?.expect(201)?;
    }
    let patch = json!({ "spec": { "template": { "spec": patch } } });
    Ok(s.server.patch(Strategic, &format!("{path}/a"), &patch).await?.expect(200)?.json["spec"]["template"]["spec"]
        .clone())
}

fn column(list: &Value, field: &str) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|item| item[field].as_str().map(str::to_owned)).collect()
}

async fn strategic_patch_merges_containers_by_name(s: &Setting) -> Result<()> {
    let spec =
        patch_template(s, json!({ "containers": [{ "name": "y", "image": "y:2" }, { "name": "z", "image": "z:1" }] }))
            .await?;
    let mut images = column(&spec["containers"], "image");
    images.sort();
    ensure!(images == ["x:1", "y:2", "z:1"], "{images:?}");
    Ok(())
}

async fn strategic_patch_deletes_a_list_element(s: &Setting) -> Result<()> {
    let spec = patch_template(s, json!({ "containers": [{ "name": "y", "$patch": "delete" }] })).await?;
    ensure!(column(&spec["containers"], "name") == ["x"]);
    Ok(())
}

async fn strategic_patch_replaces_a_map_on_demand(s: &Setting) -> Result<()> {
    patch_template(s, json!({ "nodeSelector": { "a": "1", "b": "2" } })).await?;
    let spec = patch_template(s, json!({ "nodeSelector": { "$patch": "replace", "c": "3" } })).await?;
    ensure!(spec["nodeSelector"] == json!({ "c": "3" }), "{}", spec["nodeSelector"]);
    Ok(())
}

async fn strategic_patch_merges_finalizers(s: &Setting) -> Result<()> {
    let mut body = config_map("a");
    body["metadata"]["finalizers"] = json!(["example.com/one"]);
    s.server.post(&s.core("configmaps"), &body).await?.expect(201)?;
    let patch = json!({ "metadata": { "finalizers": ["example.com/two"] } });
    let answer = s.server.patch(Strategic, &s.core("configmaps/a"), &patch).await?.expect(200)?;
    let mut finalizers: Vec<&str> =
        answer.json["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    finalizers.sort_unstable();
    ensure!(finalizers == ["example.com/one", "example.com/two"], "{finalizers:?}");
    let patch =
        json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.com/one", "example.com/two"] } });
    s.server
        .patch(Strategic, &s.core("configmaps/a"), &patch)
        .await?
        .expect(200)?
        .expect_value("/metadata/finalizers", Value::Null)?;
    Ok(())
}

async fn strategic_patch_retains_keys_of_a_strategy(s: &Setting) -> Result<()> {
    let path = s.group("apps/v1", "deployments");
    s.server.post(&path, &deployment("a")).await?.expect(201)?;
    let patch = json!({ "spec": { "strategy": { "$retainKeys": ["type"], "type": "Recreate" } } });
    let answer = s.server.patch(Strategic, &format!("{path}/a"), &patch).await?.expect(200)?;
    answer.expect_value("/spec/strategy", json!({ "type": "Recreate" }))?;
    Ok(())
}

async fn strategic_patch_orders_list_elements(s: &Setting) -> Result<()> {
    let patch = json!({
        "$setElementOrder/containers": [{ "name": "z" }, { "name": "y" }, { "name": "x" }],
        "containers": [{ "name": "z", "image": "z:1" }],
    });
    let spec = patch_template(s, patch).await?;
    ensure!(column(&spec["containers"], "name") == ["z", "y", "x"], "{}", spec["containers"]);
    Ok(())
}

async fn strategic_patch_without_merge_key_is_refused(s: &Setting) -> Result<()> {
    s.server.post(&s.core("pods"), &pod("a")).await?.expect(201)?;
    let patch = json!({ "spec": { "containers": [{ "image": "b:1" }] } });
    let answer = s.server.patch(Strategic, &s.core("pods/a"), &patch).await?;
    answer.expect_message("does not contain declared merge key: name")?;
    Ok(())
}

async fn a_patch_with_an_old_version_is_409(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let patch = json!({ "metadata": { "resourceVersion": "1" }, "data": { "key": "x" } });
    s.server
        .patch(Merge, &s.core("configmaps/a"), &patch)
        .await?
        .expect_failure(409, "Conflict")?
        .expect_message("the object has been modified")?;
    Ok(())
}

async fn a_patch_that_changes_nothing_keeps_the_version(s: &Setting) -> Result<()> {
    let created = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let answer =
        s.server.patch(Merge, &s.core("configmaps/a"), &json!({ "data": { "key": "value" } })).await?.expect(200)?;
    ensure!(answer.json == created.json, "{}", answer.text);
    Ok(())
}

async fn a_patch_of_a_missing_object_is_404(s: &Setting) -> Result<()> {
    s.server.patch(Merge, &s.core("configmaps/none"), &json!({})).await?.expect_failure(404, "NotFound")?;
    Ok(())
}

async fn a_patch_cannot_rename(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    s.server
        .patch(Merge, &s.core("configmaps/a"), &json!({ "metadata": { "name": "b" } }))
        .await?
        .expect_failure(400, "BadRequest")?;
    Ok(())
}

async fn a_patch_of_status_leaves_spec_alone(s: &Setting) -> Result<()> {
    s.server.post(&s.core("pods"), &pod("a")).await?.expect(201)?;
    let patch = json!({ "spec": { "containers": [{ "name": "main", "image": "other:1" }] }, "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    let answer = s.server.patch(Strategic, &s.core("pods/a/status"), &patch).await?.expect(200)?;
    answer
        .expect_value("/status/phase", "Running")?
        .expect_value("/spec/containers/0/image", "example/image:1")?
        .expect_value("/status/conditions/0/type", "Ready")?;
    Ok(())
}

async fn a_patch_of_unknown_type_is_415(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let answer = s
        .server
        .send(Method::PATCH, &s.core("configmaps/a"), &[("content-type", "application/json")], b"{}".to_vec())
        .await?;
    answer.expect_failure(415, "UnsupportedMediaType")?;
    Ok(())
}

async fn a_patch_to_an_invalid_object_is_422(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let patch = json!({ "metadata": { "labels": { "x": "not valid!" } } });
    s.server.patch(Merge, &s.core("configmaps/a"), &patch).await?.expect_failure(422, "Invalid")?;
    Ok(())
}

async fn a_dry_run_patch_changes_nothing(s: &Setting) -> Result<()> {
    let created = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let answer = s
        .server
        .patch(Merge, &s.core("configmaps/a?dryRun=All"), &json!({ "data": { "key": "x" } }))
        .await?
        .expect(200)?;
    answer.expect_value("/data/key", "x")?;
    ensure!(s.server.get(&s.core("configmaps/a")).await?.json == created.json);
    Ok(())
}

async fn a_malformed_patch_is_400(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    for media_type in
        ["application/merge-patch+json", "application/json-patch+json", "application/strategic-merge-patch+json"]
    {
        let answer = s
            .server
            .send(Method::PATCH, &s.core("configmaps/a"), &[("content-type", media_type)], b"{\"data\":".to_vec())
            .await?;
        answer.expect_failure(400, "BadRequest")?;
    }
    Ok(())
}

async fn env_variables_merge_by_name(s: &Setting) -> Result<()> {
    patch_template(s, json!({ "containers": [{ "name": "x", "env": [{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }] }] })).await?;
    let spec =
        patch_template(s, json!({ "containers": [{ "name": "x", "env": [{ "name": "B", "value": "3" }] }] })).await?;
    let env = spec["containers"].as_array().into_iter().flatten().find(|c| c["name"] == "x").map(|c| c["env"].clone());
    ensure!(
        env == Some(json!([{ "name": "A", "value": "1" }, { "name": "B", "value": "3" }]))
            || env == Some(json!([{ "name": "B", "value": "3" }, { "name": "A", "value": "1" }])),
        "{env:?}"
    );
    Ok(())
}

async fn volumes_merge_by_name_and_tolerations_are_replaced(s: &Setting) -> Result<()> {
    patch_template(
        s,
        json!({ "volumes": [{ "name": "v", "emptyDir": {} }], "tolerations": [{ "key": "a", "operator": "Exists" }] }),
    )
    .await?;
    let spec = patch_template(
        s,
        json!({ "volumes": [{ "name": "w", "emptyDir": {} }], "tolerations": [{ "key": "b", "operator": "Exists" }] }),
    )
    .await?;
    let mut volumes = column(&spec["volumes"], "name");
    volumes.sort();
    ensure!(volumes == ["v", "w"], "{volumes:?}");
    ensure!(column(&spec["tolerations"], "key") == ["b"], "{}", spec["tolerations"]);
    Ok(())
}
