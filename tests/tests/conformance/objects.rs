//! Create, get, update: names, versions, generations, conflicts, defaults, validation.

use anyhow::{Result, ensure};
use kai_tests::harness::Case;
use serde_json::{Value, json};

use crate::conformance;
use crate::setting::{Setting, config_map, deployment, pod};

pub const CASES: &[Case] = conformance![
    create_answers_201_with_uid_version_and_creation_time,
    get_returns_what_was_created,
    get_of_a_missing_object_is_404_not_found,
    create_twice_is_409_already_exists,
    create_without_a_name_is_422,
    create_with_generate_name_appends_five_characters,
    create_with_both_names_keeps_the_name,
    create_with_a_name_of_capitals_is_422_invalid,
    create_with_a_resource_version_is_refused,
    create_in_a_missing_namespace_is_404,
    create_in_a_namespace_other_than_the_path_is_400,
    create_of_another_kind_than_the_path_is_400,
    update_changes_the_resource_version,
    update_without_change_keeps_the_resource_version,
    update_with_an_old_version_is_409_conflict,
    update_without_a_version_of_a_config_map_wins,
    update_of_a_missing_object_is_404,
    update_with_another_name_is_400,
    update_with_another_uid_is_409,
    update_cannot_change_the_creation_time,
    generation_starts_at_one_and_follows_the_spec,
    generation_ignores_labels,
    update_of_the_main_resource_ignores_status,
    update_of_status_ignores_spec,
    status_of_a_new_object_is_dropped_on_create,
    pods_get_the_defaults_of_a_pod_spec,
    image_pull_policy_follows_the_tag,
    requests_default_to_limits,
    deployments_get_the_defaults_of_a_rollout,
    a_pod_without_containers_is_422,
    a_pod_with_two_containers_of_one_name_is_422,
    a_pod_with_a_bad_quantity_is_400,
    a_pod_with_more_requests_than_limits_is_422,
    gpu_requests_must_equal_limits,
    a_pod_spec_cannot_be_changed_later,
    a_pod_image_can_be_changed_later,
    a_deployment_selector_cannot_be_changed_later,
    a_selector_that_misses_the_template_is_422,
    a_bad_label_value_is_422,
    secrets_take_string_data,
    namespaces_carry_their_name_as_a_label,
    priority_class_gives_the_pod_its_priority,
    a_missing_priority_class_is_403,
    runtime_class_adds_its_overhead,
    a_missing_runtime_class_is_403,
];

async fn create_answers_201_with_uid_version_and_creation_time(s: &Setting) -> Result<()> {
    let answer = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    ensure!(!answer.string("/metadata/uid")?.is_empty());
    ensure!(answer.string("/metadata/resourceVersion")?.parse::<u64>()? > 0);
    ensure!(answer.string("/metadata/creationTimestamp")?.ends_with('Z'));
    answer
        .expect_value("/kind", "ConfigMap")?
        .expect_value("/apiVersion", "v1")?
        .expect_value("/metadata/namespace", s.namespace.as_str())?;
    Ok(())
}

async fn get_returns_what_was_created(s: &Setting) -> Result<()> {
    let created = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let read = s.server.get(&s.core("configmaps/a")).await?.expect(200)?;
    ensure!(created.json == read.json, "created {}\nread {}", created.json, read.json);
    Ok(())
}

async fn get_of_a_missing_object_is_404_not_found(s: &Setting) -> Result<()> {
    let answer = s.server.get(&s.core("configmaps/none")).await?.expect_failure(404, "NotFound")?;
    answer
        .expect_message("configmaps \"none\" not found")?
        .expect_value("/details/name", "none")?
        .expect_value("/details/kind", "configmaps")?;
    s.server
        .get(&s.group("apps/v1", "deployments/none"))
        .await?
        .expect_failure(404, "NotFound")?
        .expect_message("deployments.apps \"none\" not found")?
        .expect_value("/details/group", "apps")?;
    Ok(())
}

async fn create_twice_is_409_already_exists(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let answer = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect_failure(409, "AlreadyExists")?;
    answer.expect_message("configmaps \"a\" already exists")?;
    Ok(())
}

async fn create_without_a_name_is_422(s: &Setting) -> Result<()> {
    let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {} });
    let answer = s.server.post(&s.core("configmaps"), &body).await?.expect_failure(422, "Invalid")?;
    answer
        .expect_message("name or generateName is required")?
        .expect_value("/details/causes/0/field", "metadata.name")?;
    Ok(())
}

async fn create_with_generate_name_appends_five_characters(s: &Setting) -> Result<()> {
    let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "generateName": "job-" } });
    let first = s.server.post(&s.core("configmaps"), &body).await?.expect(201)?;
    let second = s.server.post(&s.core("configmaps"), &body).await?.expect(201)?;
    let name = first.string("/metadata/name")?;
    ensure!(name.starts_with("job-") && name.len() == 9, "{name}");
    ensure!(name != second.string("/metadata/name")?);
    first.expect_value("/metadata/generateName", "job-")?;
    Ok(())
}

async fn create_with_both_names_keeps_the_name(s: &Setting) -> Result<()> {
    let body =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "generateName": "job-", "name": "mine" } });
    s.server.post(&s.core("configmaps"), &body).await?.expect(201)?.expect_value("/metadata/name", "mine")?;
    Ok(())
}

async fn create_with_a_name_of_capitals_is_422_invalid(s: &Setting) -> Result<()> {
    let answer = s.server.post(&s.core("configmaps"), &config_map("Bad_Name")).await?.expect_failure(422, "Invalid")?;
    answer
        .expect_message("ConfigMap \"Bad_Name\" is invalid: metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 subdomain")?
        .expect_value("/details/causes/0/reason", "FieldValueInvalid")?
        .expect_value("/details/causes/0/field", "metadata.name")?;
    Ok(())
}

async fn create_with_a_resource_version_is_refused(s: &Setting) -> Result<()> {
    let mut body = config_map("a");
    body["metadata"]["resourceVersion"] = json!("12");
    let answer = s.server.post(&s.core("configmaps"), &body).await?;
    answer.expect(500)?.expect_message("resourceVersion should not be set on objects to be created")?;
    Ok(())
}

async fn create_in_a_missing_namespace_is_404(s: &Setting) -> Result<()> {
    let answer = s.server.post("/api/v1/namespaces/nowhere-to-be-found/configmaps", &config_map("a")).await?;
    answer.expect_failure(404, "NotFound")?.expect_message("namespaces \"nowhere-to-be-found\" not found")?;
    Ok(())
}

async fn create_in_a_namespace_other_than_the_path_is_400(s: &Setting) -> Result<()> {
    let mut body = config_map("a");
    body["metadata"]["namespace"] = json!("default");
    let answer = s.server.post(&s.core("configmaps"), &body).await?.expect_failure(400, "BadRequest")?;
    answer.expect_message("the namespace of the provided object does not match the namespace sent on the request")?;
    Ok(())
}

async fn create_of_another_kind_than_the_path_is_400(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &pod("a")).await?.expect_failure(400, "BadRequest")?;
    Ok(())
}

async fn update_changes_the_resource_version(s: &Setting) -> Result<()> {
    let created = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let mut body = created.json.clone();
    body["data"]["key"] = json!("other");
    let updated = s.server.put(&s.core("configmaps/a"), &body).await?.expect(200)?;
    ensure!(updated.string("/metadata/resourceVersion")? != created.string("/metadata/resourceVersion")?);
    ensure!(updated.string("/metadata/uid")? == created.string("/metadata/uid")?);
    updated.expect_value("/data/key", "other")?;
    Ok(())
}

async fn update_without_change_keeps_the_resource_version(s: &Setting) -> Result<()> {
    let created = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let updated = s.server.put(&s.core("configmaps/a"), &created.json).await?.expect(200)?;
    ensure!(updated.json == created.json, "{}", updated.json);
    Ok(())
}

async fn update_with_an_old_version_is_409_conflict(s: &Setting) -> Result<()> {
    let created = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let mut body = created.json.clone();
    body["data"]["key"] = json!("first");
    s.server.put(&s.core("configmaps/a"), &body).await?.expect(200)?;
    body["data"]["key"] = json!("second");
    let answer = s.server.put(&s.core("configmaps/a"), &body).await?.expect_failure(409, "Conflict")?;
    answer.expect_message("Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again")?;
    Ok(())
}

async fn update_without_a_version_of_a_config_map_wins(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let mut body = config_map("a");
    body["data"] = json!({ "other": "x" });
    s.server.put(&s.core("configmaps/a"), &body).await?.expect(200)?.expect_value("/data", json!({ "other": "x" }))?;
    Ok(())
}

async fn update_of_a_missing_object_is_404(s: &Setting) -> Result<()> {
    s.server.put(&s.core("configmaps/a"), &config_map("a")).await?.expect_failure(404, "NotFound")?;
    Ok(())
}

async fn update_with_another_name_is_400(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let answer = s.server.put(&s.core("configmaps/a"), &config_map("b")).await?.expect_failure(400, "BadRequest")?;
    answer.expect_message("the name of the object (b) does not match the name on the URL (a)")?;
    Ok(())
}

async fn update_with_another_uid_is_409(s: &Setting) -> Result<()> {
    let mut body = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?.json;
    body["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000001");
    s.server
        .put(&s.core("configmaps/a"), &body)
        .await?
        .expect_failure(409, "Conflict")?
        .expect_message("Precondition failed: UID in precondition")?;
    Ok(())
}

async fn update_cannot_change_the_creation_time(s: &Setting) -> Result<()> {
    let created = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let mut body = created.json.clone();
    body["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    let updated = s.server.put(&s.core("configmaps/a"), &body).await?.expect(200)?;
    ensure!(updated.string("/metadata/creationTimestamp")? == created.string("/metadata/creationTimestamp")?);
    Ok(())
}

/// A kind that no controller touches: one writes a revision on a Deployment, which counts as a change.
fn replica_set(name: &str) -> Value {
    let mut body = deployment(name);
    body["kind"] = json!("ReplicaSet");
    body
}

async fn generation_starts_at_one_and_follows_the_spec(s: &Setting) -> Result<()> {
    let path = s.group("apps/v1", "replicasets");
    let mut body =
        s.server.post(&path, &replica_set("a")).await?.expect(201)?.expect_value("/metadata/generation", 1)?.json;
    body["spec"]["minReadySeconds"] = json!(3);
    body["metadata"].as_object_mut().map(|metadata| metadata.remove("resourceVersion"));
    s.server.put(&format!("{path}/a"), &body).await?.expect(200)?.expect_value("/metadata/generation", 2)?;
    Ok(())
}

async fn generation_ignores_labels(s: &Setting) -> Result<()> {
    let path = s.group("apps/v1", "replicasets");
    let mut body = s.server.post(&path, &replica_set("a")).await?.expect(201)?.json;
    body["metadata"]["labels"] = json!({ "x": "y" });
    body["metadata"].as_object_mut().map(|metadata| metadata.remove("resourceVersion"));
    s.server.put(&format!("{path}/a"), &body).await?.expect(200)?.expect_value("/metadata/generation", 1)?;
    Ok(())
}

async fn update_of_the_main_resource_ignores_status(s: &Setting) -> Result<()> {
    let mut body = s.server.post(&s.core("pods"), &pod("a")).await?.expect(201)?.json;
    body["status"]["message"] = json!("mine");
    body["metadata"]["labels"]["x"] = json!("y");
    s.server
        .put(&s.core("pods/a"), &body)
        .await?
        .expect(200)?
        .expect_value("/status/message", Value::Null)?
        .expect_value("/metadata/labels/x", "y")?;
    Ok(())
}

async fn update_of_status_ignores_spec(s: &Setting) -> Result<()> {
    let mut body = s.server.post(&s.core("pods"), &pod("a")).await?.expect(201)?.json;
    body["status"]["message"] = json!("mine");
    body["spec"]["containers"][0]["image"] = json!("other:2");
    let answer = s.server.put(&s.core("pods/a/status"), &body).await?.expect(200)?;
    answer.expect_value("/status/message", "mine")?.expect_value("/spec/containers/0/image", "example/image:1")?;
    Ok(())
}

async fn status_of_a_new_object_is_dropped_on_create(s: &Setting) -> Result<()> {
    let mut body = pod("a");
    body["status"] = json!({ "phase": "Running", "message": "mine" });
    let answer = s.server.post(&s.core("pods"), &body).await?.expect(201)?;
    answer.expect_value("/status/phase", "Pending")?.expect_value("/status/message", Value::Null)?;
    Ok(())
}

async fn pods_get_the_defaults_of_a_pod_spec(s: &Setting) -> Result<()> {
    let answer = s.server.post(&s.core("pods"), &pod("a")).await?.expect(201)?;
    answer
        .expect_value("/spec/restartPolicy", "Always")?
        .expect_value("/spec/dnsPolicy", "ClusterFirst")?
        .expect_value("/spec/schedulerName", "default-scheduler")?
        .expect_value("/spec/terminationGracePeriodSeconds", 30)?
        .expect_value("/spec/enableServiceLinks", true)?
        .expect_value("/spec/preemptionPolicy", "PreemptLowerPriority")?
        .expect_value("/spec/priority", 0)?
        .expect_value("/spec/serviceAccountName", "default")?
        .expect_value("/spec/securityContext", json!({}))?
        .expect_value("/spec/containers/0/terminationMessagePath", "/dev/termination-log")?
        .expect_value("/spec/containers/0/terminationMessagePolicy", "File")?
        .expect_value("/spec/containers/0/resources", json!({}))?
        .expect_value("/status/qosClass", "BestEffort")?
        .expect_value("/spec/tolerations/0/key", "node.kubernetes.io/not-ready")?
        .expect_value("/spec/tolerations/0/tolerationSeconds", 300)?;
    Ok(())
}

async fn image_pull_policy_follows_the_tag(s: &Setting) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["containers"] = json!([
        { "name": "tagged", "image": "a/b:1" }, { "name": "latest", "image": "a/b:latest" }, { "name": "bare", "image": "a/b" },
    ]);
    let answer = s.server.post(&s.core("pods"), &body).await?.expect(201)?;
    answer
        .expect_value("/spec/containers/0/imagePullPolicy", "IfNotPresent")?
        .expect_value("/spec/containers/1/imagePullPolicy", "Always")?
        .expect_value("/spec/containers/2/imagePullPolicy", "Always")?;
    Ok(())
}

async fn requests_default_to_limits(s: &Setting) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["containers"][0]["resources"] =
        json!({ "limits": { "cpu": "500m", "nvidia.com/gpu": "1", "memory": "1Gi" } });
    let answer = s.server.post(&s.core("pods"), &body).await?.expect(201)?;
    answer
        .expect_value(
            "/spec/containers/0/resources/requests",
            json!({ "cpu": "500m", "nvidia.com/gpu": "1", "memory": "1Gi" }),
        )?
        .expect_value("/status/qosClass", "Guaranteed")?;
    Ok(())
}

async fn deployments_get_the_defaults_of_a_rollout(s: &Setting) -> Result<()> {
    let mut body = deployment("a");
    body["spec"].as_object_mut().map(|spec| spec.remove("replicas"));
    let answer =
        s.server.post(&format!("{}?dryRun=All", s.group("apps/v1", "deployments")), &body).await?.expect(201)?;
    answer
        .expect_value("/spec/replicas", 1)?
        .expect_value("/spec/revisionHistoryLimit", 10)?
        .expect_value("/spec/progressDeadlineSeconds", 600)?
        .expect_value(
            "/spec/strategy",
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } }),
        )?
        .expect_value("/spec/template/spec/restartPolicy", "Always")?;
    Ok(())
}

async fn a_pod_without_containers_is_422(s: &Setting) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["containers"] = json!([]);
    let answer = s.server.post(&s.core("pods"), &body).await?.expect_failure(422, "Invalid")?;
    answer
        .expect_message("spec.containers: Required value")?
        .expect_value("/details/causes/0/reason", "FieldValueRequired")?;
    Ok(())
}

async fn a_pod_with_two_containers_of_one_name_is_422(s: &Setting) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["containers"] = json!([{ "name": "x", "image": "a:1" }, { "name": "x", "image": "a:1" }]);
    let answer = s.server.post(&s.core("pods"), &body).await?.expect_failure(422, "Invalid")?;
    answer.expect_message("spec.containers[1].name: Duplicate value: \"x\"")?;
    Ok(())
}

async fn a_pod_with_a_bad_quantity_is_400(s: &Setting) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["containers"][0]["resources"] = json!({ "limits": { "cpu": "many" } });
    let answer = s.server.post(&s.core("pods"), &body).await?.expect_failure(400, "BadRequest")?;
    answer.expect_message("quantities must match the regular expression")?;
    Ok(())
}

async fn a_pod_with_more_requests_than_limits_is_422(s: &Setting) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["containers"][0]["resources"] = json!({ "limits": { "cpu": "1" }, "requests": { "cpu": "2" } });
    let answer = s.server.post(&s.core("pods"), &body).await?.expect_failure(422, "Invalid")?;
    answer.expect_message(
        "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
    )?;
    Ok(())
}

async fn gpu_requests_must_equal_limits(s: &Setting) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["containers"][0]["resources"] =
        json!({ "limits": { "nvidia.com/gpu": "2" }, "requests": { "nvidia.com/gpu": "1" } });
    s.server
        .post(&s.core("pods"), &body)
        .await?
        .expect_failure(422, "Invalid")?
        .expect_message("must be equal to nvidia.com/gpu limit of 2")?;
    body["spec"]["containers"][0]["resources"] = json!({ "requests": { "nvidia.com/gpu": "1" } });
    s.server
        .post(&s.core("pods"), &body)
        .await?
        .expect_failure(422, "Invalid")?
        .expect_message("Limit must be set for non overcommitable resources")?;
    body["spec"]["containers"][0]["resources"] = json!({ "limits": { "nvidia.com/gpu": "500m" } });
    s.server
        .post(&s.core("pods"), &body)
        .await?
        .expect_failure(422, "Invalid")?
        .expect_message("must be an integer")?;
    Ok(())
}

async fn a_pod_spec_cannot_be_changed_later(s: &Setting) -> Result<()> {
    let mut body = s.server.post(&s.core("pods"), &pod("a")).await?.expect(201)?.json;
    body["spec"]["hostname"] = json!("other");
    let answer = s.server.put(&s.core("pods/a"), &body).await?.expect_failure(422, "Invalid")?;
    answer.expect_message("spec: Forbidden: pod updates may not change fields other than")?;
    Ok(())
}

async fn a_pod_image_can_be_changed_later(s: &Setting) -> Result<()> {
    let mut body = s.server.post(&s.core("pods"), &pod("a")).await?.expect(201)?.json;
    body["spec"]["containers"][0]["image"] = json!("example/image:2");
    s.server
        .put(&s.core("pods/a"), &body)
        .await?
        .expect(200)?
        .expect_value("/spec/containers/0/image", "example/image:2")?;
    Ok(())
}

async fn a_deployment_selector_cannot_be_changed_later(s: &Setting) -> Result<()> {
    let path = s.group("apps/v1", "deployments");
    s.server.post(&path, &deployment("a")).await?.expect(201)?;
    let mut body = deployment("a");
    body["spec"]["selector"]["matchLabels"] = json!({ "app": "other" });
    body["spec"]["template"]["metadata"]["labels"] = json!({ "app": "other" });
    let answer = s.server.put(&format!("{path}/a"), &body).await?.expect_failure(422, "Invalid")?;
    answer.expect_message("field is immutable")?.expect_value("/details/causes/0/field", "spec.selector")?;
    Ok(())
}

async fn a_selector_that_misses_the_template_is_422(s: &Setting) -> Result<()> {
    let mut body = deployment("a");
    body["spec"]["template"]["metadata"]["labels"] = json!({ "app": "other" });
    let answer = s.server.post(&s.group("apps/v1", "deployments"), &body).await?.expect_failure(422, "Invalid")?;
    answer
        .expect_message("`selector` does not match template `labels`")?
        .expect_value("/details/causes/0/field", "spec.template.metadata.labels")?;
    Ok(())
}

async fn a_bad_label_value_is_422(s: &Setting) -> Result<()> {
    let mut body = config_map("a");
    body["metadata"]["labels"] = json!({ "x": "not valid!" });
    let answer = s.server.post(&s.core("configmaps"), &body).await?.expect_failure(422, "Invalid")?;
    answer.expect_message("metadata.labels: Invalid value: \"not valid!\"")?;
    Ok(())
}

async fn secrets_take_string_data(s: &Setting) -> Result<()> {
    let body = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" }, "stringData": { "password": "pw" } });
    let answer = s.server.post(&s.core("secrets"), &body).await?.expect(201)?;
    answer
        .expect_value("/data/password", "cHc=")?
        .expect_value("/type", "Opaque")?
        .expect_value("/stringData", Value::Null)?;
    Ok(())
}

async fn namespaces_carry_their_name_as_a_label(s: &Setting) -> Result<()> {
    let answer = s.server.get(&format!("/api/v1/namespaces/{}", s.namespace)).await?.expect(200)?;
    answer
        .expect_value("/metadata/labels/kubernetes.io~1metadata.name", s.namespace.as_str())?
        .expect_value("/status/phase", "Active")?
        .expect_value("/spec/finalizers", json!(["kubernetes"]))?;
    Ok(())
}

async fn priority_class_gives_the_pod_its_priority(s: &Setting) -> Result<()> {
    let class = format!("class-{}", s.namespace);
    let body = json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": class }, "value": 75, "preemptionPolicy": "Never" });
    s.server.post("/apis/scheduling.k8s.io/v1/priorityclasses", &body).await?.expect(201)?;
    let mut body = pod("a");
    body["spec"]["priorityClassName"] = json!(class);
    let answer = s.server.post(&s.core("pods"), &body).await?.expect(201)?;
    answer.expect_value("/spec/priority", 75)?.expect_value("/spec/preemptionPolicy", "Never")?;
    s.server.delete(&format!("/apis/scheduling.k8s.io/v1/priorityclasses/{class}"), &Value::Null).await?.expect(200)?;
    Ok(())
}

async fn a_missing_priority_class_is_403(s: &Setting) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["priorityClassName"] = json!("nope");
    let answer = s.server.post(&s.core("pods"), &body).await?.expect_failure(403, "Forbidden")?;
    answer.expect_message("pods \"a\" is forbidden: no PriorityClass with name nope was found")?;
    Ok(())
}

async fn runtime_class_adds_its_overhead(s: &Setting) -> Result<()> {
    let class = format!("class-{}", s.namespace);
    let body = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": { "name": class }, "handler": "nvidia",
        "overhead": { "podFixed": { "cpu": "250m" } }, "scheduling": { "nodeSelector": { "gpu": "yes" } },
    });
    s.server.post("/apis/node.k8s.io/v1/runtimeclasses", &body).await?.expect(201)?;
    let mut body = pod("a");
    body["spec"]["runtimeClassName"] = json!(class);
    let answer = s.server.post(&s.core("pods"), &body).await?.expect(201)?;
    answer
        .expect_value("/spec/overhead", json!({ "cpu": "250m" }))?
        .expect_value("/spec/nodeSelector", json!({ "gpu": "yes" }))?;
    s.server.delete(&format!("/apis/node.k8s.io/v1/runtimeclasses/{class}"), &Value::Null).await?.expect(200)?;
    Ok(())
}

async fn a_missing_runtime_class_is_403(s: &Setting) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["runtimeClassName"] = json!("nope");
    let answer = s.server.post(&s.core("pods"), &body).await?.expect_failure(403, "Forbidden")?;
    answer.expect_message("pod rejected: RuntimeClass \"nope\" not found")?;
    Ok(())
}
