//! What a client can learn before it knows anything: versions, groups, resources, OpenAPI, health, and who it is.

use anyhow::{Context as _, Result, ensure};
use http::Method;
use kai_tests::harness::Case;
use kai_tests::request::Answer;
use serde_json::{Value, json};

use crate::conformance;
use crate::setting::Setting;

pub const CASES: &[Case] = conformance![
    version_names_the_release,
    the_core_group_has_one_version,
    every_group_is_listed_with_its_preferred_version,
    a_group_shows_its_versions,
    an_unknown_group_of_discovery_is_404,
    an_unknown_version_of_discovery_is_404,
    core_resources_have_verbs_and_short_names,
    pods_have_their_subresources,
    workload_resources_have_verbs_and_categories,
    resources_of_other_groups_are_listed,
    aggregated_discovery_has_every_group,
    aggregated_discovery_of_the_core_group,
    openapi_lists_its_documents,
    openapi_describes_deployments,
    openapi_of_an_unknown_group_is_404,
    health_is_ok,
    an_unknown_path_is_404_in_plain_text,
    a_trailing_slash_is_ignored,
    head_is_405,
    access_reviews_of_oneself_are_answered,
    an_access_review_needs_attributes,
    rule_reviews_need_a_namespace,
    a_user_can_ask_who_it_is,
    reviews_cannot_be_read,
];

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

async fn version_names_the_release(s: &Setting) -> Result<()> {
    let answer = s.server.get("/version").await?.expect(200)?;
    for field in ["gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"] {
        answer.string(&format!("/{field}"))?;
    }
    ensure!(answer.string("/gitVersion")?.starts_with("v1.34."), "{}", answer.text);
    answer.expect_value("/major", "1")?.expect_value("/minor", "34")?;
    Ok(())
}

async fn the_core_group_has_one_version(s: &Setting) -> Result<()> {
    let answer = s.server.get("/api").await?.expect(200)?;
    answer.expect_value("/kind", "APIVersions")?.expect_value("/versions", json!(["v1"]))?;
    Ok(())
}

async fn every_group_is_listed_with_its_preferred_version(s: &Setting) -> Result<()> {
    let answer = s.server.get("/apis").await?.expect(200)?;
    let groups = answer.json["groups"].as_array().context("groups")?;
    for (name, version) in [
        ("apps", "apps/v1"),
        ("batch", "batch/v1"),
        ("coordination.k8s.io", "coordination.k8s.io/v1"),
        ("events.k8s.io", "events.k8s.io/v1"),
        ("policy", "policy/v1"),
        ("rbac.authorization.k8s.io", "rbac.authorization.k8s.io/v1"),
        ("scheduling.k8s.io", "scheduling.k8s.io/v1"),
        ("node.k8s.io", "node.k8s.io/v1"),
        ("storage.k8s.io", "storage.k8s.io/v1"),
        ("resource.k8s.io", "resource.k8s.io/v1"),
        ("discovery.k8s.io", "discovery.k8s.io/v1"),
        ("admissionregistration.k8s.io", "admissionregistration.k8s.io/v1"),
        ("apiextensions.k8s.io", "apiextensions.k8s.io/v1"),
        ("authorization.k8s.io", "authorization.k8s.io/v1"),
    ] {
        let group = groups.iter().find(|group| group["name"] == name).with_context(|| format!("no group {name}"))?;
        ensure!(group["preferredVersion"]["groupVersion"] == version, "{group}");
    }
    answer.expect_value("/kind", "APIGroupList")?.expect_value("/apiVersion", "v1")?;
    Ok(())
}

async fn a_group_shows_its_versions(s: &Setting) -> Result<()> {
    let version = json!({ "groupVersion": "apps/v1", "version": "v1" });
    let wanted = json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": "apps", "versions": [version], "preferredVersion": version,
    });
    let answer = s.server.get("/apis/apps").await?.expect(200)?;
    ensure!(answer.json == wanted, "{}", answer.text);
    Ok(())
}

async fn an_unknown_group_of_discovery_is_404(s: &Setting) -> Result<()> {
    let answer = s.server.get("/apis/nothing.example.com").await?.expect(404)?;
    ensure!(answer.text == "404 page not found\n", "{:?}", answer.text);
    Ok(())
}

async fn an_unknown_version_of_discovery_is_404(s: &Setting) -> Result<()> {
    for path in ["/apis/apps/v9", "/api/v2", "/api/v1/nothing"] {
        let answer = s.server.get(path).await?.expect_failure(404, "NotFound")?;
        answer.expect_value("/message", "the server could not find the requested resource")?;
    }
    Ok(())
}

/// The entry of one resource in a resource list, without what only some clusters have.
fn resource(list: &Answer, name: &str) -> Result<Value> {
    let mut resources = list.json["resources"].as_array().into_iter().flatten();
    let found = resources.find(|resource| resource["name"] == name).with_context(|| format!("no resource {name}"))?;
    let mut found = found.clone();
    if let Some(entry) = found.as_object_mut() {
        entry.remove("storageVersionHash");
    }
    Ok(found)
}

const ALL_VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

async fn core_resources_have_verbs_and_short_names(s: &Setting) -> Result<()> {
    let list = s.server.get("/api/v1").await?.expect(200)?.expect_value("/kind", "APIResourceList")?;
    let list = list.expect_value("/groupVersion", "v1")?;
    for (plural, singular, kind, short, namespaced) in [
        ("configmaps", "configmap", "ConfigMap", "cm", true),
        ("nodes", "node", "Node", "no", false),
        ("persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim", "pvc", true),
        ("persistentvolumes", "persistentvolume", "PersistentVolume", "pv", false),
        ("serviceaccounts", "serviceaccount", "ServiceAccount", "sa", true),
        ("events", "event", "Event", "ev", true),
        ("limitranges", "limitrange", "LimitRange", "limits", true),
        ("resourcequotas", "resourcequota", "ResourceQuota", "quota", true),
    ] {
        let wanted = json!({
            "name": plural, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": ALL_VERBS,
            "shortNames": [short],
        });
        let found = resource(&list, plural)?;
        ensure!(found == wanted, "expected {wanted}, got {found}");
    }
    let namespaces = resource(&list, "namespaces")?;
    ensure!(
        namespaces["verbs"] == json!(["create", "delete", "get", "list", "patch", "update", "watch"]),
        "{namespaces}"
    );
    let pods = resource(&list, "pods")?;
    ensure!(pods["categories"] == json!(["all"]) && pods["shortNames"] == json!(["po"]), "{pods}");
    Ok(())
}

async fn pods_have_their_subresources(s: &Setting) -> Result<()> {
    let list = s.server.get("/api/v1").await?.expect(200)?;
    for (name, kind, verbs) in [
        ("pods/binding", "Binding", json!(["create"])),
        ("pods/log", "Pod", json!(["get"])),
        ("pods/status", "Pod", json!(["get", "patch", "update"])),
        ("pods/ephemeralcontainers", "Pod", json!(["get", "patch", "update"])),
        ("bindings", "Binding", json!(["create"])),
        ("namespaces/finalize", "Namespace", json!(["update"])),
        ("nodes/status", "Node", json!(["get", "patch", "update"])),
    ] {
        let found = resource(&list, name)?;
        ensure!(found["kind"] == kind && found["verbs"] == verbs, "{found}");
    }
    let wanted = json!({
        "name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy", "version": "v1",
        "kind": "Eviction", "verbs": ["create"],
    });
    let found = resource(&list, "pods/eviction")?;
    ensure!(found == wanted, "{found}");
    Ok(())
}

async fn workload_resources_have_verbs_and_categories(s: &Setting) -> Result<()> {
    let list = s.server.get("/apis/apps/v1").await?.expect(200)?.expect_value("/groupVersion", "apps/v1")?;
    for (plural, kind, short) in [
        ("deployments", "Deployment", "deploy"),
        ("replicasets", "ReplicaSet", "rs"),
        ("statefulsets", "StatefulSet", "sts"),
        ("daemonsets", "DaemonSet", "ds"),
    ] {
        let found = resource(&list, plural)?;
        ensure!(found["kind"] == kind && found["shortNames"] == json!([short]), "{found}");
        ensure!(found["categories"] == json!(["all"]) && found["verbs"] == json!(ALL_VERBS), "{found}");
        let status = resource(&list, &format!("{plural}/status"))?;
        ensure!(status["verbs"] == json!(["get", "patch", "update"]), "{status}");
    }
    let scale = resource(&list, "deployments/scale")?;
    ensure!(scale["group"] == "autoscaling" && scale["version"] == "v1" && scale["kind"] == "Scale", "{scale}");
    resource(&list, "controllerrevisions")?;
    Ok(())
}

async fn resources_of_other_groups_are_listed(s: &Setting) -> Result<()> {
    for (group, plural, kind, namespaced, short) in [
        ("batch", "jobs", "Job", true, None),
        ("batch", "cronjobs", "CronJob", true, Some("cj")),
        ("policy", "poddisruptionbudgets", "PodDisruptionBudget", true, Some("pdb")),
        ("coordination.k8s.io", "leases", "Lease", true, None),
        ("events.k8s.io", "events", "Event", true, Some("ev")),
        ("scheduling.k8s.io", "priorityclasses", "PriorityClass", false, Some("pc")),
        ("node.k8s.io", "runtimeclasses", "RuntimeClass", false, None),
        ("storage.k8s.io", "storageclasses", "StorageClass", false, Some("sc")),
        ("storage.k8s.io", "csinodes", "CSINode", false, None),
        ("discovery.k8s.io", "endpointslices", "EndpointSlice", true, None),
        ("resource.k8s.io", "resourceclaims", "ResourceClaim", true, None),
        ("resource.k8s.io", "resourceclaimtemplates", "ResourceClaimTemplate", true, None),
        ("resource.k8s.io", "deviceclasses", "DeviceClass", false, None),
        ("resource.k8s.io", "resourceslices", "ResourceSlice", false, None),
        ("rbac.authorization.k8s.io", "roles", "Role", true, None),
        ("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding", false, None),
        ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", false, Some("crd")),
    ] {
        let list = s.server.get(&format!("/apis/{group}/v1")).await?.expect(200)?;
        let found = resource(&list, plural)?;
        ensure!(found["kind"] == kind && found["namespaced"] == namespaced, "{found}");
        ensure!(found["verbs"] == json!(ALL_VERBS), "{found}");
        ensure!(found["shortNames"][0].as_str() == short, "{found}");
    }
    Ok(())
}

async fn aggregated(s: &Setting, path: &str) -> Result<Answer> {
    let answer = s.server.send(Method::GET, path, &[("accept", AGGREGATED)], Vec::new()).await?.expect(200)?;
    let content_type = answer.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    ensure!(content_type == AGGREGATED, "{content_type}");
    answer.expect_value("/kind", "APIGroupDiscoveryList")?.expect_value("/apiVersion", "apidiscovery.k8s.io/v2")
}

async fn aggregated_discovery_has_every_group(s: &Setting) -> Result<()> {
    let answer = aggregated(s, "/apis").await?;
    let groups = answer.json["items"].as_array().context("items")?;
    let apps = groups.iter().find(|group| group["metadata"]["name"] == "apps").context("no group apps")?;
    let version = &apps["versions"][0];
    ensure!(version["version"] == "v1" && version["freshness"] == "Current", "{version}");
    let resources = version["resources"].as_array().context("resources")?;
    let deployments = resources.iter().find(|resource| resource["resource"] == "deployments").context("deployments")?;
    let kind = |kind: &str| json!({ "group": "", "version": "", "kind": kind });
    ensure!(deployments["responseKind"] == kind("Deployment"), "{deployments}");
    ensure!(deployments["scope"] == "Namespaced" && deployments["singularResource"] == "deployment", "{deployments}");
    ensure!(deployments["verbs"] == json!(ALL_VERBS), "{deployments}");
    let subresources = deployments["subresources"].as_array().context("subresources")?;
    let scale = subresources.iter().find(|subresource| subresource["subresource"] == "scale").context("scale")?;
    let wanted = json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" });
    ensure!(scale["responseKind"] == wanted && scale["verbs"] == json!(["get", "patch", "update"]), "{scale}");
    for name in ["batch", "policy", "rbac.authorization.k8s.io", "resource.k8s.io", "apiextensions.k8s.io"] {
        ensure!(groups.iter().any(|group| group["metadata"]["name"] == name), "no group {name}");
    }
    Ok(())
}

async fn aggregated_discovery_of_the_core_group(s: &Setting) -> Result<()> {
    let answer = aggregated(s, "/api").await?;
    let answer =
        answer.expect_value("/items/0/metadata", json!({}))?.expect_value("/items/0/versions/0/version", "v1")?;
    let resources = answer.json["items"][0]["versions"][0]["resources"].as_array().context("resources")?;
    let nodes = resources.iter().find(|resource| resource["resource"] == "nodes").context("no nodes")?;
    ensure!(nodes["scope"] == "Cluster" && nodes["shortNames"] == json!(["no"]), "{nodes}");
    Ok(())
}

async fn openapi_lists_its_documents(s: &Setting) -> Result<()> {
    let answer = s.server.get("/openapi/v3").await?.expect(200)?;
    for path in ["api/v1", "apis/apps/v1", "apis/batch/v1", "apis/resource.k8s.io/v1"] {
        let url = answer.json["paths"][path]["serverRelativeURL"].as_str().with_context(|| format!("no {path}"))?;
        ensure!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{url}");
    }
    let url = answer.string("/paths/apis~1apps~1v1/serverRelativeURL")?;
    let document = s.server.get(&url).await?.expect(200)?;
    ensure!(document.string("/openapi")?.starts_with("3."));
    Ok(())
}

async fn openapi_describes_deployments(s: &Setting) -> Result<()> {
    let document = s.server.get("/openapi/v3/apis/apps/v1").await?.expect(200)?;
    let schemas = &document.json["components"]["schemas"];
    let deployment = &schemas["io.k8s.api.apps.v1.Deployment"];
    let wanted = json!([{ "group": "apps", "kind": "Deployment", "version": "v1" }]);
    ensure!(deployment["x-kubernetes-group-version-kind"] == wanted, "{deployment}");
    let specification = "#/components/schemas/io.k8s.api.apps.v1.DeploymentSpec";
    ensure!(deployment["properties"]["spec"]["allOf"][0]["$ref"] == specification, "{deployment}");
    let replicas = &schemas["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["replicas"];
    ensure!(replicas["type"] == "integer" && replicas["format"] == "int32", "{replicas}");
    ensure!(replicas["description"].as_str().is_some_and(|text| text.contains("Number of desired pods")), "{replicas}");
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    ensure!(containers["x-kubernetes-patch-merge-key"] == "name", "{containers}");
    ensure!(containers["x-kubernetes-patch-strategy"] == "merge", "{containers}");
    ensure!(containers["x-kubernetes-list-map-keys"] == json!(["name"]), "{containers}");
    let path = &document.json["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"];
    let kind = json!({ "group": "apps", "kind": "Deployment", "version": "v1" });
    ensure!(path["patch"]["x-kubernetes-group-version-kind"] == kind, "{path}");
    Ok(())
}

async fn openapi_of_an_unknown_group_is_404(s: &Setting) -> Result<()> {
    s.server.get("/openapi/v3/apis/nothing.example.com/v1").await?.expect(404)?;
    Ok(())
}

async fn health_is_ok(s: &Setting) -> Result<()> {
    for path in ["/healthz", "/livez", "/readyz", "/livez/ping"] {
        let answer = s.server.get(path).await?.expect(200)?;
        ensure!(answer.text == "ok", "{path}: {}", answer.text);
    }
    Ok(())
}

async fn an_unknown_path_is_404_in_plain_text(s: &Setting) -> Result<()> {
    let answer = s.server.get("/nothing").await?.expect(404)?;
    ensure!(answer.text == "404 page not found\n", "{:?}", answer.text);
    Ok(())
}

async fn a_trailing_slash_is_ignored(s: &Setting) -> Result<()> {
    s.server.get("/api/").await?.expect(200)?.expect_value("/kind", "APIVersions")?;
    s.server.get("/apis/apps/v1/").await?.expect(200)?.expect_value("/kind", "APIResourceList")?;
    let path = format!("/api/v1/namespaces/{}/", s.namespace);
    s.server.get(&path).await?.expect(200)?.expect_value("/kind", "Namespace")?;
    Ok(())
}

async fn head_is_405(s: &Setting) -> Result<()> {
    let path = format!("/api/v1/namespaces/{}", s.namespace);
    s.server.send(Method::HEAD, &path, &[], Vec::new()).await?.expect(405)?;
    Ok(())
}

fn review(kind: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec })
}

const ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

async fn access_reviews_of_oneself_are_answered(s: &Setting) -> Result<()> {
    for spec in [
        json!({ "resourceAttributes": { "verb": "list", "resource": "pods", "namespace": s.namespace } }),
        json!({ "nonResourceAttributes": { "verb": "get", "path": "/healthz" } }),
    ] {
        let answer = s.server.post(ACCESS, &review("SelfSubjectAccessReview", &spec)).await?.expect(201)?;
        answer.expect_value("/kind", "SelfSubjectAccessReview")?.expect_value("/status/allowed", true)?;
    }
    Ok(())
}

async fn an_access_review_needs_attributes(s: &Setting) -> Result<()> {
    let answer = s.server.post(ACCESS, &review("SelfSubjectAccessReview", &json!({}))).await?;
    answer.expect_invalid(
        "FieldValueInvalid",
        "spec.resourceAttributes",
        "exactly one of nonResourceAttributes or resourceAttributes must be specified",
    )?;
    Ok(())
}

async fn rule_reviews_need_a_namespace(s: &Setting) -> Result<()> {
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let answer = s.server.post(path, &review("SelfSubjectRulesReview", &json!({}))).await?;
    answer.expect_failure(400, "BadRequest")?.expect_value("/message", "no namespace on request")?;
    let body = review("SelfSubjectRulesReview", &json!({ "namespace": s.namespace }));
    let answer = s.server.post(path, &body).await?.expect(201)?.expect_value("/status/incomplete", false)?;
    let all = json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] });
    ensure!(
        answer.json["status"]["resourceRules"].as_array().is_some_and(|rules| rules.contains(&all)),
        "{}",
        answer.text
    );
    Ok(())
}

async fn a_user_can_ask_who_it_is(s: &Setting) -> Result<()> {
    let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let answer = s.server.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &body).await?.expect(201)?;
    ensure!(!answer.string("/status/userInfo/username")?.is_empty());
    let groups: Vec<String> = serde_json::from_value(answer.json["status"]["userInfo"]["groups"].clone())?;
    ensure!(groups.iter().any(|group| group == "system:masters"), "{groups:?}");
    ensure!(groups.iter().any(|group| group == "system:authenticated"), "{groups:?}");
    Ok(())
}

async fn reviews_cannot_be_read(s: &Setting) -> Result<()> {
    s.server.get(ACCESS).await?.expect_failure(405, "MethodNotAllowed")?;
    Ok(())
}
