//! Create, read, update, patch, delete.

use http::Method;
use serde_json::{Value, json};

use crate::support::{DEFINITIONS, MAPS, PODS, Server, WIDGETS, map, pod, widget, widgets};

#[tokio::test]
async fn a_created_object_has_identity_and_can_be_read() {
    let server = Server::start();
    let created = server.post(PODS, &pod("a")).await.expect(201);
    let metadata = &created["metadata"];
    assert_eq!(metadata["namespace"], "default");
    assert!(metadata["uid"].as_str().is_some_and(|uid| uid.len() == 36));
    assert!(metadata["resourceVersion"].as_str().is_some_and(|version| version.parse::<u64>().is_ok()));
    assert!(metadata["creationTimestamp"].as_str().is_some_and(|time| time.len() == 20));
    let read = server.get(&format!("{PODS}/a")).await.expect(200);
    assert_eq!(read, created);
}

#[tokio::test]
async fn a_second_object_of_the_same_name_is_refused() {
    let server = Server::start();
    server.post(PODS, &pod("a")).await.expect(201);
    let error = server.post(PODS, &pod("a")).await.expect(409);
    assert_eq!(error["reason"], "AlreadyExists");
    assert_eq!(error["message"], "pods \"a\" already exists");
}

#[tokio::test]
async fn generated_names_are_made_of_prefix_and_five_characters() {
    let server = Server::start();
    let mut body = pod("");
    body["metadata"] = json!({"generateName": "job-"});
    let created = server.post(PODS, &body).await.expect(201);
    let name = created["metadata"]["name"].as_str().expect("name");
    assert!(name.starts_with("job-") && name.len() == 9, "{name}");
}

#[tokio::test]
async fn an_object_of_another_namespace_or_kind_is_a_bad_request() {
    let server = Server::start();
    let mut body = pod("a");
    body["metadata"]["namespace"] = json!("other");
    let error = server.post(PODS, &body).await.expect(400);
    assert_eq!(
        error["message"],
        "the namespace of the provided object does not match the namespace sent on the request"
    );
    let mut body = pod("a");
    body["apiVersion"] = json!("v2");
    let error = server.post(PODS, &body).await.expect(400);
    let message = "the API version in the data (v2) does not match the expected API version (v1)";
    assert_eq!(error["message"], message);
    body["apiVersion"] = json!("v1");
    body["kind"] = json!("Chair");
    server.post(PODS, &body).await.expect(400);
}

#[tokio::test]
async fn missing_objects_namespaces_and_resources_are_not_found() {
    let server = Server::start();
    let error = server.get(&format!("{PODS}/none")).await.expect(404);
    assert_eq!(error["message"], "pods \"none\" not found");
    assert_eq!(error["details"], json!({"name": "none", "kind": "pods"}));
    server.post("/api/v1/namespaces/nowhere/pods", &pod("a")).await.expect(404);
    let error = server.get("/apis/apps/v1/chairs").await.expect(404);
    assert_eq!(error["message"], "the server could not find the requested resource");
    let text = server.get("/apis/example.com/v1/widgets").await.expect(404);
    assert_eq!(text, "404 page not found\n");
    server.get("/nothing").await.expect(404);
}

#[tokio::test]
async fn an_update_against_an_old_version_conflicts() {
    let server = Server::start();
    let first = server.post(MAPS, &map("a", &json!({}))).await.expect(201);
    let path = format!("{MAPS}/a");
    let mut second = first.clone();
    second["data"]["a"] = json!("2");
    let updated = server.put(&path, &second).await.expect(200);
    assert_ne!(updated["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let error = server.put(&path, &second).await.expect(409);
    assert_eq!(error["reason"], "Conflict");
    assert_eq!(
        error["message"],
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to \
         the latest version and try again"
    );
}

#[tokio::test]
async fn an_update_that_changes_nothing_keeps_the_resource_version() {
    let server = Server::start();
    let first = server.post(MAPS, &map("a", &json!({}))).await.expect(201);
    let again = server.put(&format!("{MAPS}/a"), &first).await.expect(200);
    assert_eq!(again, first);
    let patched = server.merge(&format!("{MAPS}/a"), &json!({"data": {"a": "1"}})).await.expect(200);
    assert_eq!(patched, first);
}

#[tokio::test]
async fn updates_must_name_the_object_of_the_path() {
    let server = Server::start();
    server.post(MAPS, &map("a", &json!({}))).await.expect(201);
    let error = server.put(&format!("{MAPS}/a"), &map("b", &json!({}))).await.expect(400);
    assert_eq!(error["message"], "the name of the object (b) does not match the name on the URL (a)");
    server.put(&format!("{MAPS}/b"), &map("b", &json!({}))).await.expect(404);
}

#[tokio::test]
async fn three_patch_types_change_an_object() {
    let server = Server::start();
    server.post(PODS, &pod("a")).await.expect(201);
    let path = format!("{PODS}/a");
    let merged = server.merge(&path, &json!({"metadata": {"labels": {"x": "1"}}})).await.expect(200);
    assert_eq!(merged["metadata"]["labels"], json!({"x": "1"}));
    let body = json!([{"op": "add", "path": "/metadata/labels/y", "value": "2"}]).to_string();
    let patched = server.send_as(Method::PATCH, &path, "application/json-patch+json", body).await.expect(200);
    assert_eq!(patched["metadata"]["labels"], json!({"x": "1", "y": "2"}));
    let body = json!({"metadata": {"labels": {"x": null}}}).to_string();
    let media = "application/strategic-merge-patch+json";
    let patched = server.send_as(Method::PATCH, &path, media, body).await.expect(200);
    assert_eq!(patched["metadata"]["labels"], json!({"y": "2"}));
    server.send_as(Method::PATCH, &path, "text/plain", "{}").await.expect(415);
}

#[tokio::test]
async fn a_patch_with_a_resource_version_is_conditional() {
    let server = Server::start();
    server.post(MAPS, &map("a", &json!({}))).await.expect(201);
    let patch = json!({"metadata": {"resourceVersion": "1"}, "data": {"a": "2"}});
    server.merge(&format!("{MAPS}/a"), &patch).await.expect(409);
}

#[tokio::test]
async fn apply_creates_what_is_not_there() {
    let server = Server::start();
    let body = map("a", &json!({})).to_string();
    let media = "application/apply-patch+yaml";
    let error = server.send_as(Method::PATCH, &format!("{MAPS}/a"), media, body.clone()).await.expect(422);
    assert!(error["message"].as_str().is_some_and(|text| text.contains("fieldManager: Required value")));
    let path = format!("{MAPS}/a?fieldManager=me");
    server.send_as(Method::PATCH, &path, media, body.clone()).await.expect(201);
    server.send_as(Method::PATCH, &path, media, body).await.expect(200);
}

#[tokio::test]
async fn unknown_fields_are_dropped_with_a_warning_or_refused() {
    let server = Server::start();
    let mut body = pod("a");
    body["spec"]["chair"] = json!(1);
    let answer = server.post(&format!("{PODS}?fieldValidation=Strict"), &body).await;
    let message =
        "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: unknown field \"spec.chair\"";
    assert_eq!(answer.expect(400)["message"], message);
    let answer = server.post(PODS, &body).await;
    assert_eq!(answer.warnings, ["299 - \"unknown field \\\"spec.chair\\\"\""]);
    assert!(answer.expect(201)["spec"].get("chair").is_none());
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let server = Server::start();
    server.post(&format!("{PODS}?dryRun=All"), &pod("a")).await.expect(201);
    server.get(&format!("{PODS}/a")).await.expect(404);
    server.post(PODS, &pod("a")).await.expect(201);
    let patch = json!({"metadata": {"labels": {"x": "1"}}});
    let rehearsed = server.merge(&format!("{PODS}/a?dryRun=All"), &patch).await.expect(200);
    assert_eq!(rehearsed["metadata"]["labels"]["x"], "1");
    server.delete(&format!("{PODS}/a?dryRun=All")).await.expect(200);
    let read = server.get(&format!("{PODS}/a")).await.expect(200);
    assert!(read["metadata"].get("labels").is_none() && read["metadata"].get("deletionTimestamp").is_none());
    server.post(&format!("{PODS}?dryRun=Maybe"), &pod("b")).await.expect(422);
}

#[tokio::test]
async fn yaml_bodies_are_read() {
    let server = Server::start();
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  a: \"1\"\n";
    let created = server.send_as(Method::POST, MAPS, "application/yaml", body).await.expect(201);
    assert_eq!(created["data"], json!({"a": "1"}));
}

#[tokio::test]
async fn bad_bodies_get_the_answers_of_a_real_server() {
    let server = Server::start();
    let error = server.send_as(Method::POST, PODS, "application/json", "{nope").await.expect(400);
    assert_eq!(error["reason"], "BadRequest");
    let error = server.send_as(Method::POST, PODS, "text/plain", "hello").await.expect(415);
    assert_eq!(error["reason"], "UnsupportedMediaType");
    let large = "x".repeat(3 * 1024 * 1024 + 1);
    let error = server.send_as(Method::POST, PODS, "application/json", large).await.expect(413);
    assert_eq!(error["reason"], "RequestEntityTooLarge");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("limit is 3145728")));
    server.get_as(PODS, "text/html").await.expect(406);
}

#[tokio::test]
async fn lists_are_ordered_selected_and_paged_consistently() {
    let server = Server::start();
    for (name, color) in [("c", "red"), ("a", "red"), ("b", "blue"), ("d", "red")] {
        server.post(MAPS, &map(name, &json!({"color": color}))).await.expect(201);
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().expect("items");
        items.iter().map(|item| item["metadata"]["name"].as_str().expect("name").to_owned()).collect()
    };
    let list = server.get(MAPS).await.expect(200);
    assert_eq!(names(&list), ["a", "b", "c", "d"]);
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    let red = server.get(&format!("{MAPS}?labelSelector=color%3Dred")).await.expect(200);
    assert_eq!(names(&red), ["a", "c", "d"]);
    let one = server.get(&format!("{MAPS}?fieldSelector=metadata.name%3Db")).await.expect(200);
    assert_eq!(names(&one), ["b"]);
    let error = server.get(&format!("{MAPS}?fieldSelector=spec.chair%3Db")).await.expect(400);
    assert_eq!(error["message"], "field label not supported: spec.chair");

    let first = server.get(&format!("{MAPS}?limit=2")).await.expect(200);
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    server.delete(&format!("{MAPS}/d")).await.expect(200);
    server.post(MAPS, &map("bb", &json!({}))).await.expect(201);
    let token = first["metadata"]["continue"].as_str().expect("token");
    let second = server.get(&format!("{MAPS}?limit=2&continue={token}")).await.expect(200);
    assert_eq!(names(&second), ["c", "d"]);
    assert!(second["metadata"].get("continue").is_none());
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let version = first["metadata"]["resourceVersion"].as_str().expect("version");
    let exact = server.get(&format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact")).await.expect(200);
    assert_eq!(names(&exact), ["a", "b", "c", "d"]);
    server.get(&format!("{MAPS}?continue=nonsense")).await.expect(400);
}

#[tokio::test]
async fn an_expired_continue_token_offers_an_inconsistent_one() {
    let server = Server::start_with(|options| options.watch_history = 2);
    for name in ["a", "b", "c"] {
        server.post(MAPS, &map(name, &json!({}))).await.expect(201);
    }
    let first = server.get(&format!("{MAPS}?limit=1")).await.expect(200);
    for name in ["d", "e", "f"] {
        server.post(MAPS, &map(name, &json!({}))).await.expect(201);
    }
    let token = first["metadata"]["continue"].as_str().expect("token");
    let error = server.get(&format!("{MAPS}?limit=1&continue={token}")).await.expect(410);
    assert_eq!(error["reason"], "Expired");
    let token = error["metadata"]["continue"].as_str().expect("token");
    let rest = server.get(&format!("{MAPS}?continue={token}")).await.expect(200);
    assert_eq!(rest["items"].as_array().expect("items").len(), 5);
}

#[tokio::test]
async fn custom_resources_are_served_as_soon_as_they_are_defined() {
    let server = Server::start();
    server.post(DEFINITIONS, &widgets()).await.expect(201);
    let created = server.post(WIDGETS, &widget("a")).await.expect(201);
    assert_eq!(created["apiVersion"], "example.com/v1");
    let other = server.get("/apis/example.com/v2/namespaces/default/widgets/a").await.expect(200);
    assert_eq!(other["apiVersion"], "example.com/v2");
    assert_eq!(other["spec"], created["spec"]);
    let list = server.get("/apis/example.com/v2/widgets").await.expect(200);
    assert_eq!(list["items"][0]["apiVersion"], "example.com/v2");
    let error = server.put(&format!("{WIDGETS}/a"), &widget("a")).await.expect(422);
    assert!(error["message"].as_str().is_some_and(|text| text.contains("must be specified for an update")));
    let media = "application/strategic-merge-patch+json";
    server.send_as(Method::PATCH, &format!("{WIDGETS}/a"), media, "{}").await.expect(415);
}

#[tokio::test]
async fn status_is_written_only_through_its_subresource() {
    let server = Server::start();
    server.post(DEFINITIONS, &widgets()).await.expect(201);
    let mut body = widget("a");
    body["status"] = json!({"ready": 1});
    let created = server.post(WIDGETS, &body).await.expect(201);
    assert!(created.get("status").is_none());
    let patch = json!({"spec": {"size": 5}, "status": {"ready": 2}});
    let patched = server.merge(&format!("{WIDGETS}/a/status"), &patch).await.expect(200);
    assert_eq!((&patched["status"]["ready"], &patched["spec"]["size"]), (&json!(2), &json!(1)));
    let patched =
        server.merge(&format!("{WIDGETS}/a"), &json!({"spec": {"size": 3}, "status": {"ready": 9}})).await.expect(200);
    assert_eq!((&patched["status"]["ready"], &patched["spec"]["size"]), (&json!(2), &json!(3)));
    assert_eq!(patched["metadata"]["generation"], 2);
}

#[tokio::test]
async fn methods_a_resource_does_not_have_are_refused() {
    let server = Server::start();
    let error = server.post("/api/v1/pods", &pod("a")).await.expect(405);
    assert_eq!(error["reason"], "MethodNotAllowed");
    server.send(Method::POST, &format!("{PODS}/a"), &pod("a")).await.expect(405);
}

#[tokio::test]
async fn tables_and_metadata_are_served_when_asked_for() {
    let server = Server::start();
    server.post(MAPS, &map("a", &json!({}))).await.expect(201);
    let accept = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json";
    let table = server.get_as(MAPS, accept).await.expect(200);
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["rows"][0]["cells"][0], "a");
    let table = server.get_as(&format!("{MAPS}/a"), accept).await.expect(200);
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = server.get_as(MAPS, accept).await.expect(200);
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert!(list["items"][0].get("data").is_none());
}

#[tokio::test]
async fn the_server_describes_itself() {
    let server = Server::start();
    assert_eq!(server.get("/healthz").await.expect(200), "ok");
    assert_eq!(server.get("/version").await.expect(200)["minor"], "34");
    assert_eq!(server.get("/api").await.expect(200)["kind"], "APIVersions");
    assert_eq!(server.get("/apis").await.expect(200)["kind"], "APIGroupList");
    assert_eq!(server.get("/api/v1").await.expect(200)["kind"], "APIResourceList");
    assert_eq!(server.get("/apis/apps/v1").await.expect(200)["groupVersion"], "apps/v1");
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    assert_eq!(server.get_as("/apis", accept).await.expect(200)["kind"], "APIGroupDiscoveryList");
}
