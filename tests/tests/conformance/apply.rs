//! Server-side apply: who owns which field, conflicts, and what the other writes leave in `managedFields`.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use http::Method;
use kai_tests::harness::Case;
use kai_tests::request::{
    Answer,
    PatchKind::{self, Merge},
};
use serde_json::{Value, json};

use crate::conformance;
use crate::setting::{Setting, config_map, deployment, pod};

pub const CASES: &[Case] = conformance![
    apply_creates_a_missing_object,
    apply_records_list_elements_by_their_keys,
    apply_again_without_change_keeps_the_version,
    apply_removes_a_field_that_is_left_out,
    apply_keeps_a_field_that_another_manager_owns_too,
    apply_against_another_owner_is_409,
    apply_names_every_conflict,
    a_forced_apply_takes_the_field,
    apply_merges_containers_by_name,
    apply_merges_ports_by_number_and_protocol,
    apply_merges_environment_variables_by_name,
    apply_merges_finalizers_as_a_set,
    apply_treats_arguments_as_one_value,
    apply_of_status_owns_only_status,
    apply_of_a_missing_status_is_404,
    apply_without_a_manager_is_422,
    apply_with_a_long_manager_is_422,
    apply_with_managed_fields_is_400,
    apply_with_an_old_version_is_409,
    apply_with_another_name_is_400,
    apply_without_a_kind_is_400,
    apply_of_an_unknown_field_is_refused,
    apply_of_two_elements_with_one_key_is_refused,
    apply_of_malformed_yaml_is_400,
    apply_takes_yaml,
    apply_takes_what_kubectl_generates,
    force_is_for_apply_only,
    a_dry_run_apply_changes_nothing,
    a_dry_run_apply_of_a_new_object_stores_nothing,
    apply_of_an_invalid_object_is_422,
    create_is_recorded_as_an_update_by_its_manager,
    the_manager_comes_from_the_user_agent,
    an_update_takes_ownership_from_an_applier,
    a_patch_shares_no_field_it_does_not_change,
    an_applier_may_change_what_it_set_by_update_only_by_force,
    managed_fields_can_be_reset,
    apply_after_a_reset_meets_an_older_owner,
    scaling_takes_the_replicas_from_an_applier,
    replicas_can_be_handed_over_to_the_scale,
];

/// What each manager owns, by `manager/operation` and `/subresource` where there is one.
fn owners(answer: &Answer) -> BTreeMap<String, Value> {
    let entries = answer.json["metadata"]["managedFields"].as_array().into_iter().flatten();
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    entries
        .map(|entry| {
            let name =
                format!("{}/{}/{}", text(entry, "manager"), text(entry, "operation"), text(entry, "subresource"));
            (name.trim_end_matches('/').to_owned(), entry["fieldsV1"].clone())
        })
        .collect()
}

fn expect_owners<const N: usize>(answer: &Answer, wanted: [(&str, Value); N]) -> Result<()> {
    let wanted: BTreeMap<String, Value> = wanted.into_iter().map(|(name, fields)| (name.to_owned(), fields)).collect();
    let found = owners(answer);
    ensure!(found == wanted, "expected the owners {wanted:?}, got {found:?}");
    Ok(())
}

fn data(name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

/// A deployment as one of several appliers writes it: only these fields of the pod's spec.
fn template(name: &str, pod_spec: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": pod_spec },
        },
    })
}

async fn apply_creates_a_missing_object(s: &Setting) -> Result<()> {
    let answer =
        s.apply(&s.core("configmaps/a"), "one", &data("a", &json!({ "k": "v", "l": "w" }))).await?.expect(201)?;
    answer.string("/metadata/managedFields/0/time")?;
    let answer = answer
        .expect_value("/data", json!({ "k": "v", "l": "w" }))?
        .expect_value("/metadata/managedFields/0/manager", "one")?
        .expect_value("/metadata/managedFields/0/operation", "Apply")?
        .expect_value("/metadata/managedFields/0/apiVersion", "v1")?
        .expect_value("/metadata/managedFields/0/fieldsType", "FieldsV1")?;
    expect_owners(&answer, [("one/Apply", json!({ "f:data": { "f:k": {}, "f:l": {} } }))])
}

async fn apply_records_list_elements_by_their_keys(s: &Setting) -> Result<()> {
    let body = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a", "labels": { "app": "a" } },
        "spec": { "containers": [{
            "name": "m", "image": "i:1", "command": ["a", "b"],
            "env": [{ "name": "A", "value": "1" }],
            "ports": [{ "containerPort": 80 }],
        }] },
    });
    let answer = s.apply(&s.core("pods/a"), "one", &body).await?.expect(201)?;
    let container = json!({
        ".": {}, "f:command": {}, "f:image": {}, "f:name": {},
        "f:env": { "k:{\"name\":\"A\"}": { ".": {}, "f:name": {}, "f:value": {} } },
        "f:ports": { "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:containerPort": {} } },
    });
    let fields = json!({
        "f:metadata": { "f:labels": { "f:app": {} } },
        "f:spec": { "f:containers": { "k:{\"name\":\"m\"}": container } },
    });
    expect_owners(&answer, [("one/Apply", fields)])
}

async fn apply_again_without_change_keeps_the_version(s: &Setting) -> Result<()> {
    let body = data("a", &json!({ "k": "v" }));
    let created = s.apply(&s.core("configmaps/a"), "one", &body).await?.expect(201)?;
    let again = s.apply(&s.core("configmaps/a"), "one", &body).await?.expect(200)?;
    ensure!(created.json == again.json, "{}\n{}", created.text, again.text);
    Ok(())
}

async fn apply_removes_a_field_that_is_left_out(s: &Setting) -> Result<()> {
    s.apply(&s.core("configmaps/a"), "one", &data("a", &json!({ "k": "v", "l": "w" }))).await?.expect(201)?;
    let answer = s.apply(&s.core("configmaps/a"), "one", &data("a", &json!({ "k": "v" }))).await?.expect(200)?;
    let answer = answer.expect_value("/data", json!({ "k": "v" }))?;
    expect_owners(&answer, [("one/Apply", json!({ "f:data": { "f:k": {} } }))])
}

async fn apply_keeps_a_field_that_another_manager_owns_too(s: &Setting) -> Result<()> {
    let path = s.core("configmaps/a");
    s.apply(&path, "one", &data("a", &json!({ "k": "v" }))).await?.expect(201)?;
    let shared = s.apply(&path, "two", &data("a", &json!({ "k": "v" }))).await?.expect(200)?;
    let owned = json!({ "f:data": { "f:k": {} } });
    expect_owners(&shared, [("one/Apply", owned.clone()), ("two/Apply", owned.clone())])?;
    let left = s.apply(&path, "one", &data("a", &json!({}))).await?.expect(200)?.expect_value("/data/k", "v")?;
    expect_owners(&left, [("one/Apply", json!({ "f:data": {} })), ("two/Apply", owned)])?;
    let gone = s.apply(&path, "two", &data("a", &json!({}))).await?.expect(200)?;
    gone.expect_value("/data/k", Value::Null)?;
    Ok(())
}

async fn apply_against_another_owner_is_409(s: &Setting) -> Result<()> {
    s.apply(&s.core("configmaps/a"), "one", &data("a", &json!({ "k": "v" }))).await?.expect(201)?;
    let answer = s.apply(&s.core("configmaps/a"), "two", &data("a", &json!({ "k": "other" }))).await?;
    answer
        .expect_failure(409, "Conflict")?
        .expect_value("/message", "Apply failed with 1 conflict: conflict with \"one\": .data.k")?
        .expect_value(
            "/details/causes",
            json!([{ "reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.k" }]),
        )?;
    s.server.get(&s.core("configmaps/a")).await?.expect_value("/data/k", "v")?;
    Ok(())
}

async fn apply_names_every_conflict(s: &Setting) -> Result<()> {
    s.apply(&s.core("configmaps/a"), "one", &data("a", &json!({ "k": "v", "l": "w" }))).await?.expect(201)?;
    let answer = s.apply(&s.core("configmaps/a"), "two", &data("a", &json!({ "k": "1", "l": "2" }))).await?;
    answer
        .expect_failure(409, "Conflict")?
        .expect_value("/message", "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.k\n- .data.l")?
        .expect_cause("FieldManagerConflict", ".data.k")?
        .expect_cause("FieldManagerConflict", ".data.l")?;
    Ok(())
}

async fn a_forced_apply_takes_the_field(s: &Setting) -> Result<()> {
    s.apply(&s.core("configmaps/a"), "one", &data("a", &json!({ "k": "v", "l": "w" }))).await?.expect(201)?;
    let answer =
        s.force_apply(&s.core("configmaps/a"), "two", &data("a", &json!({ "k": "other" }))).await?.expect(200)?;
    let answer = answer.expect_value("/data", json!({ "k": "other", "l": "w" }))?;
    expect_owners(
        &answer,
        [("one/Apply", json!({ "f:data": { "f:l": {} } })), ("two/Apply", json!({ "f:data": { "f:k": {} } }))],
    )
}

async fn apply_merges_containers_by_name(s: &Setting) -> Result<()> {
    let path = s.group("apps/v1", "deployments/a");
    let mut first = template("a", &json!({ "containers": [{ "name": "x", "image": "x:1" }] }));
    first["spec"]["replicas"] = json!(0);
    s.apply(&path, "one", &first).await?.expect(201)?;
    let second = template("a", &json!({ "containers": [{ "name": "y", "image": "y:1" }] }));
    let both = s.apply(&path, "two", &second).await?.expect(200)?;
    let names = |answer: &Answer| -> Vec<String> {
        let list = answer.json["spec"]["template"]["spec"]["containers"].as_array().into_iter().flatten();
        list.filter_map(|container| container["name"].as_str().map(str::to_owned)).collect()
    };
    ensure!(names(&both) == ["x", "y"], "{:?}", names(&both));
    let one = s.apply(&path, "two", &template("a", &json!({}))).await?.expect(200)?;
    ensure!(names(&one) == ["x"], "{:?}", names(&one));
    Ok(())
}

async fn apply_merges_ports_by_number_and_protocol(s: &Setting) -> Result<()> {
    let path = s.group("apps/v1", "deployments/a");
    let ports =
        |ports: Value| template("a", &json!({ "containers": [{ "name": "x", "image": "x:1", "ports": ports }] }));
    let mut first = ports(json!([{ "containerPort": 80, "name": "web" }]));
    first["spec"]["replicas"] = json!(0);
    s.apply(&path, "one", &first).await?.expect(201)?;
    let second = ports(json!([{ "containerPort": 80, "protocol": "UDP" }]));
    s.apply(&path, "two", &second).await?.expect(200)?.expect_value(
        "/spec/template/spec/containers/0/ports",
        json!([{ "containerPort": 80, "name": "web", "protocol": "TCP" }, { "containerPort": 80, "protocol": "UDP" }]),
    )?;
    Ok(())
}

async fn apply_merges_environment_variables_by_name(s: &Setting) -> Result<()> {
    let path = s.group("apps/v1", "deployments/a");
    let variables = |env: Value| template("a", &json!({ "containers": [{ "name": "x", "image": "x:1", "env": env }] }));
    let mut first = variables(json!([{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }]));
    first["spec"]["replicas"] = json!(0);
    s.apply(&path, "one", &first).await?.expect(201)?;
    s.apply(&path, "two", &variables(json!([{ "name": "B", "value": "3" }])))
        .await?
        .expect_failure(409, "Conflict")?
        .expect_cause("FieldManagerConflict", ".spec.template.spec.containers[name=\"x\"].env[name=\"B\"].value")?;
    let merged = s.apply(&path, "two", &variables(json!([{ "name": "C", "value": "3" }]))).await?.expect(200)?;
    merged.expect_value(
        "/spec/template/spec/containers/0/env",
        json!([{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }, { "name": "C", "value": "3" }]),
    )?;
    Ok(())
}

async fn apply_merges_finalizers_as_a_set(s: &Setting) -> Result<()> {
    let path = s.core("configmaps/a");
    let finalizers = |names: Value| {
        let mut body = config_map("a");
        body["metadata"]["finalizers"] = names;
        body
    };
    s.apply(&path, "one", &finalizers(json!(["example.com/one"]))).await?.expect(201)?;
    let both = s.apply(&path, "two", &finalizers(json!(["example.com/two"]))).await?.expect(200)?;
    let both = both.expect_value("/metadata/finalizers", json!(["example.com/one", "example.com/two"]))?;
    let fields = owners(&both);
    ensure!(
        fields["two/Apply"]["f:metadata"] == json!({ "f:finalizers": { "v:\"example.com/two\"": {} } }),
        "{fields:?}"
    );
    let one = s.apply(&path, "two", &config_map("a")).await?.expect(200)?;
    one.expect_value("/metadata/finalizers", json!(["example.com/one"]))?;
    s.force_apply(&path, "one", &config_map("a"))
        .await?
        .expect(200)?
        .expect_value("/metadata/finalizers", Value::Null)?;
    Ok(())
}

async fn apply_treats_arguments_as_one_value(s: &Setting) -> Result<()> {
    let path = s.group("apps/v1", "deployments/a");
    let arguments =
        |args: Value| template("a", &json!({ "containers": [{ "name": "x", "image": "x:1", "args": args }] }));
    let mut first = arguments(json!(["a", "b"]));
    first["spec"]["replicas"] = json!(0);
    s.apply(&path, "one", &first).await?.expect(201)?;
    s.apply(&path, "two", &arguments(json!(["c"])))
        .await?
        .expect_failure(409, "Conflict")?
        .expect_cause("FieldManagerConflict", ".spec.template.spec.containers[name=\"x\"].args")?;
    let forced = s.force_apply(&path, "two", &arguments(json!(["c"]))).await?.expect(200)?;
    forced.expect_value("/spec/template/spec/containers/0/args", json!(["c"]))?;
    Ok(())
}

async fn apply_of_status_owns_only_status(s: &Setting) -> Result<()> {
    s.server.post(&s.core("pods?fieldManager=maker"), &pod("a")).await?.expect(201)?;
    let body = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" },
        "spec": { "containers": [{ "name": "main", "image": "other:1" }] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    let answer = s.apply(&s.core("pods/a/status"), "reporter", &body).await?.expect(200)?;
    let answer = answer
        .expect_value("/status/phase", "Running")?
        .expect_value("/status/conditions/0/type", "Ready")?
        .expect_value("/spec/containers/0/image", "example/image:1")?;
    let fields = json!({ "f:status": {
        "f:phase": {},
        "f:conditions": { "k:{\"type\":\"Ready\"}": { ".": {}, "f:status": {}, "f:type": {} } },
    } });
    ensure!(owners(&answer)["reporter/Apply/status"] == fields, "{:?}", owners(&answer));
    Ok(())
}

async fn apply_of_a_missing_status_is_404(s: &Setting) -> Result<()> {
    let body =
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "none" }, "status": { "phase": "Failed" } });
    s.apply(&s.core("pods/none/status"), "one", &body).await?.expect_failure(404, "NotFound")?;
    Ok(())
}

async fn apply_without_a_manager_is_422(s: &Setting) -> Result<()> {
    let answer = s.server.patch(PatchKind::Apply, &s.core("configmaps/a"), &config_map("a")).await?;
    answer
        .expect_invalid(
            "FieldValueRequired",
            "fieldManager",
            "fieldManager: Required value: is required for apply patch",
        )?
        .expect_value("/details/kind", "PatchOptions")?
        .expect_value("/details/group", "meta.k8s.io")?;
    Ok(())
}

async fn apply_with_a_long_manager_is_422(s: &Setting) -> Result<()> {
    let answer = s.apply(&s.core("configmaps/a"), &"x".repeat(129), &config_map("a")).await?;
    answer.expect_invalid("FieldValueTooLong", "fieldManager", "Too long: may not be more than 128 bytes")?;
    Ok(())
}

async fn apply_with_managed_fields_is_400(s: &Setting) -> Result<()> {
    let created = s.apply(&s.core("configmaps/a"), "one", &config_map("a")).await?.expect(201)?;
    let mut body = config_map("a");
    body["metadata"]["managedFields"] = created.json["metadata"]["managedFields"].clone();
    let answer = s.apply(&s.core("configmaps/a"), "one", &body).await?;
    answer.expect_failure(400, "BadRequest")?.expect_value("/message", "metadata.managedFields must be nil")?;
    Ok(())
}

async fn apply_with_an_old_version_is_409(s: &Setting) -> Result<()> {
    s.apply(&s.core("configmaps/a"), "one", &config_map("a")).await?.expect(201)?;
    let mut body = data("a", &json!({ "key": "other" }));
    body["metadata"]["resourceVersion"] = json!("1");
    let answer = s.apply(&s.core("configmaps/a"), "one", &body).await?.expect_failure(409, "Conflict")?;
    answer.expect_message("the object has been modified")?;
    Ok(())
}

async fn apply_with_another_name_is_400(s: &Setting) -> Result<()> {
    let answer = s.apply(&s.core("configmaps/a"), "one", &config_map("b")).await?.expect_failure(400, "BadRequest")?;
    answer.expect_message("the name of the object (b) does not match the name on the URL (a)")?;
    Ok(())
}

async fn apply_without_a_kind_is_400(s: &Setting) -> Result<()> {
    let answer = s.apply(&s.core("configmaps/a"), "one", &json!({ "data": { "k": "v" } })).await?;
    answer.expect_failure(400, "BadRequest")?.expect_message("invalid object type")?;
    Ok(())
}

async fn apply_of_an_unknown_field_is_refused(s: &Setting) -> Result<()> {
    let mut body = config_map("a");
    body["bogus"] = json!(1);
    let answer = s.apply(&s.core("configmaps/a"), "one", &body).await?.expect(500)?;
    answer
        .expect_value("/reason", Value::Null)?
        .expect_message("failed to create typed patch object")?
        .expect_message(".bogus: field not declared in schema")?;
    s.server.get(&s.core("configmaps/a")).await?.expect(404)?;
    Ok(())
}

async fn apply_of_two_elements_with_one_key_is_refused(s: &Setting) -> Result<()> {
    let containers = json!({ "containers": [{ "name": "x", "image": "x:1" }, { "name": "x", "image": "x:2" }] });
    let answer =
        s.apply(&s.group("apps/v1", "deployments/a"), "one", &template("a", &containers)).await?.expect(500)?;
    answer.expect_message(".spec.template.spec.containers: duplicate entries for key [name=\"x\"]")?;
    Ok(())
}

async fn send_yaml(s: &Setting, path: &str, body: &str) -> Result<Answer> {
    let headers = [("content-type", "application/apply-patch+yaml")];
    s.server.send(Method::PATCH, &format!("{path}?fieldManager=one"), &headers, body.as_bytes().to_vec()).await
}

async fn apply_of_malformed_yaml_is_400(s: &Setting) -> Result<()> {
    let answer = send_yaml(s, &s.core("configmaps/a"), "data: {").await?.expect_failure(400, "BadRequest")?;
    answer.expect_message("error decoding YAML")?;
    Ok(())
}

async fn apply_takes_yaml(s: &Setting) -> Result<()> {
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  text: |\n    two\n    lines\n";
    let answer = send_yaml(s, &s.core("configmaps/a"), body).await?.expect(201)?;
    answer.expect_value("/data/text", "two\nlines\n")?;
    Ok(())
}

async fn apply_takes_what_kubectl_generates(s: &Setting) -> Result<()> {
    let mut body = template("a", &json!({ "containers": [{ "name": "x", "image": "x:1", "resources": {} }] }));
    body["metadata"]["creationTimestamp"] = Value::Null;
    body["spec"]["replicas"] = json!(0);
    body["spec"]["strategy"] = json!({});
    body["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
    body["status"] = json!({});
    let path = s.group("apps/v1", "deployments/a?fieldManager=one&dryRun=All");
    let answer = s.server.patch(PatchKind::Apply, &path, &body).await?.expect(201)?;
    answer.string("/metadata/creationTimestamp")?;
    answer
        .expect_value("/spec/template/metadata/creationTimestamp", Value::Null)?
        .expect_value("/spec/strategy/type", "RollingUpdate")?;
    Ok(())
}

async fn force_is_for_apply_only(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let answer = s.server.patch(Merge, &s.core("configmaps/a?force=true"), &json!({})).await?;
    answer.expect_invalid("FieldValueForbidden", "force", "may not be specified for non-apply patch")?;
    Ok(())
}

async fn a_dry_run_apply_changes_nothing(s: &Setting) -> Result<()> {
    let created = s.apply(&s.core("configmaps/a"), "one", &data("a", &json!({ "k": "v" }))).await?.expect(201)?;
    let path = s.core("configmaps/a?fieldManager=one&dryRun=All");
    let body = data("a", &json!({ "k": "other" }));
    let answer = s.server.patch(PatchKind::Apply, &path, &body).await?.expect(200)?;
    answer.expect_value("/data/k", "other")?;
    ensure!(s.server.get(&s.core("configmaps/a")).await?.json == created.json);
    Ok(())
}

async fn a_dry_run_apply_of_a_new_object_stores_nothing(s: &Setting) -> Result<()> {
    let path = s.core("configmaps/a?fieldManager=one&dryRun=All");
    let answer = s.server.patch(PatchKind::Apply, &path, &config_map("a")).await?.expect(201)?;
    ensure!(!answer.string("/metadata/uid")?.is_empty());
    answer.expect_value("/metadata/resourceVersion", Value::Null)?;
    s.server.get(&s.core("configmaps/a")).await?.expect(404)?;
    Ok(())
}

async fn apply_of_an_invalid_object_is_422(s: &Setting) -> Result<()> {
    let mut body = config_map("a");
    body["metadata"]["labels"] = json!({ "x": "not valid!" });
    s.apply(&s.core("configmaps/a"), "one", &body).await?.expect_failure(422, "Invalid")?;
    s.server.get(&s.core("configmaps/a")).await?.expect(404)?;
    Ok(())
}

async fn create_is_recorded_as_an_update_by_its_manager(s: &Setting) -> Result<()> {
    let mut body = config_map("a");
    body["metadata"]["labels"] = json!({ "x": "y" });
    let answer = s.server.post(&s.core("configmaps?fieldManager=maker"), &body).await?.expect(201)?;
    let fields = json!({
        "f:data": { ".": {}, "f:key": {} },
        "f:metadata": { "f:labels": { ".": {}, "f:x": {} } },
    });
    expect_owners(&answer, [("maker/Update", fields)])
}

async fn the_manager_comes_from_the_user_agent(s: &Setting) -> Result<()> {
    let headers = [("content-type", "application/json"), ("user-agent", "checker/1.2 (linux; amd64) something")];
    let body = config_map("a").to_string().into_bytes();
    let answer = s.server.send(Method::POST, &s.core("configmaps"), &headers, body).await?.expect(201)?;
    answer.expect_value("/metadata/managedFields/0/manager", "checker")?;
    Ok(())
}

async fn an_update_takes_ownership_from_an_applier(s: &Setting) -> Result<()> {
    let path = s.core("configmaps/a");
    let mut body = s.apply(&path, "one", &data("a", &json!({ "k": "v", "l": "w" }))).await?.expect(201)?.json;
    body["data"]["k"] = json!("other");
    let updated = s.server.put(&format!("{path}?fieldManager=two"), &body).await?.expect(200)?;
    expect_owners(
        &updated,
        [("one/Apply", json!({ "f:data": { "f:l": {} } })), ("two/Update", json!({ "f:data": { "f:k": {} } }))],
    )?;
    let answer = s.apply(&path, "one", &data("a", &json!({ "k": "v", "l": "w" }))).await?;
    answer
        .expect_failure(409, "Conflict")?
        .expect_value("/message", "Apply failed with 1 conflict: conflict with \"two\" using v1: .data.k")?;
    Ok(())
}

async fn a_patch_shares_no_field_it_does_not_change(s: &Setting) -> Result<()> {
    let path = s.core("configmaps/a");
    s.apply(&path, "one", &data("a", &json!({ "k": "v" }))).await?.expect(201)?;
    let patch = json!({ "data": { "k": "v", "new": "x" } });
    let answer = s.server.patch(Merge, &format!("{path}?fieldManager=two"), &patch).await?.expect(200)?;
    expect_owners(
        &answer,
        [("one/Apply", json!({ "f:data": { "f:k": {} } })), ("two/Update", json!({ "f:data": { "f:new": {} } }))],
    )
}

async fn an_applier_may_change_what_it_set_by_update_only_by_force(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps?fieldManager=one"), &data("a", &json!({ "k": "v" }))).await?.expect(201)?;
    let body = data("a", &json!({ "k": "other" }));
    let answer = s.apply(&s.core("configmaps/a"), "one", &body).await?.expect_failure(409, "Conflict")?;
    answer.expect_message("conflict with \"one\" using v1: .data.k")?;
    let forced = s.force_apply(&s.core("configmaps/a"), "one", &body).await?.expect(200)?;
    let fields = owners(&forced);
    ensure!(fields["one/Apply"] == json!({ "f:data": { "f:k": {} } }), "{fields:?}");
    ensure!(
        fields["one/Update"] == json!({ "f:data": {} }) || fields["one/Update"] == json!({ "f:data": { ".": {} } })
    );
    Ok(())
}

async fn managed_fields_can_be_reset(s: &Setting) -> Result<()> {
    s.apply(&s.core("configmaps/a"), "one", &config_map("a")).await?.expect(201)?;
    let patch = json!({ "metadata": { "managedFields": [{}] } });
    let answer = s.server.patch(Merge, &s.core("configmaps/a"), &patch).await?.expect(200)?;
    answer.expect_value("/metadata/managedFields", Value::Null)?;
    Ok(())
}

async fn apply_after_a_reset_meets_an_older_owner(s: &Setting) -> Result<()> {
    let path = s.core("configmaps/a");
    s.server.post(&s.core("configmaps"), &data("a", &json!({ "k": "v" }))).await?.expect(201)?;
    let patch = json!({ "metadata": { "managedFields": [{}] } });
    s.server.patch(Merge, &path, &patch).await?.expect(200)?;
    let answer = s.apply(&path, "one", &data("a", &json!({ "k": "other" }))).await?.expect_failure(409, "Conflict")?;
    answer.expect_message("conflict with \"before-first-apply\" using v1: .data.k")?;
    let same = s.apply(&path, "one", &data("a", &json!({ "k": "v" }))).await?.expect(200)?;
    expect_owners(
        &same,
        [
            ("before-first-apply/Update", json!({ "f:data": { ".": {}, "f:k": {} } })),
            ("one/Apply", json!({ "f:data": { "f:k": {} } })),
        ],
    )
}

fn scale(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": name }, "spec": { "replicas": replicas },
    })
}

async fn scaling_takes_the_replicas_from_an_applier(s: &Setting) -> Result<()> {
    let path = s.group("apps/v1", "replicasets/a");
    let mut body = deployment("a");
    body["kind"] = json!("ReplicaSet");
    s.apply(&path, "one", &body).await?.expect(201)?;
    s.server.put(&format!("{path}/scale?fieldManager=scaler"), &scale("a", 1)).await?.expect(200)?;
    let answer = s.apply(&path, "one", &body).await?.expect_failure(409, "Conflict")?;
    answer
        .expect_message("conflict with \"scaler\" with subresource \"scale\" using apps/v1: .spec.replicas")?
        .expect_cause("FieldManagerConflict", ".spec.replicas")?;
    Ok(())
}

/// A scale of no replicas is no owner of anything: the real server leaves the zero out.
async fn replicas_can_be_handed_over_to_the_scale(s: &Setting) -> Result<()> {
    let path = s.group("apps/v1", "replicasets/a");
    let mut body = deployment("a");
    body["kind"] = json!("ReplicaSet");
    body["spec"]["replicas"] = json!(1);
    s.apply(&path, "one", &body).await?.expect(201)?;
    s.apply(&format!("{path}/scale"), "scaler", &scale("a", 1)).await?.expect(200)?;
    body["spec"].as_object_mut().map(|spec| spec.remove("replicas"));
    let answer = s.apply(&path, "one", &body).await?.expect(200)?.expect_value("/spec/replicas", 1)?;
    let fields = owners(&answer);
    ensure!(fields["scaler/Apply/scale"] == json!({ "f:spec": { "f:replicas": {} } }), "{fields:?}");
    ensure!(fields["one/Apply"]["f:spec"]["f:replicas"].is_null(), "{fields:?}");
    let scaled = s.apply(&format!("{path}/scale"), "scaler", &scale("a", 2)).await?.expect(200)?;
    scaled.expect_value("/spec/replicas", 2)?;
    Ok(())
}
