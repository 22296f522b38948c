//! List: selectors, paging, resource versions, metadata-only and table answers.

use anyhow::{Context as _, Result, ensure};
use http::Method;
use kai_tests::harness::Case;
use kai_tests::request::Answer;
use serde_json::{Value, json};

use crate::conformance;
use crate::setting::{Setting, config_map, pod};

pub const CASES: &[Case] = conformance![
    a_list_has_the_kind_and_a_version,
    items_of_a_list_are_sorted_by_name,
    items_of_a_list_of_core_kinds_carry_no_kind,
    a_list_over_all_namespaces_sees_them_all,
    label_selectors_by_equality,
    label_selectors_by_set,
    label_selectors_by_existence,
    a_bad_label_selector_is_400,
    field_selectors_by_name,
    pods_are_selected_by_node_and_phase,
    a_field_that_cannot_be_selected_is_400,
    a_bad_field_selector_is_400,
    paging_returns_everything_once,
    paging_shows_the_first_page_s_moment,
    paging_counts_the_rest,
    a_bad_continue_token_is_400,
    a_list_at_version_zero_is_answered,
    a_list_at_a_future_version_waits_and_fails,
    an_exact_list_needs_a_version,
    a_table_has_columns_and_rows,
    a_pod_table_has_the_columns_of_kubectl,
    a_table_row_carries_metadata_only,
    metadata_only_lists_leave_out_the_rest,
    an_unknown_accept_header_is_406,
    protobuf_or_json_is_answered,
    selected_events_of_one_object,
];

/// Makes config maps `a`…`e`, alternately red and blue, in another order.
async fn five(s: &Setting) -> Result<()> {
    for (name, colour) in [("d", "blue"), ("a", "red"), ("c", "red"), ("b", "blue"), ("e", "red")] {
        let mut body = config_map(name);
        body["metadata"]["labels"] = json!({ "colour": colour, name: "yes", "set": "five" });
        s.server.post(&s.core("configmaps"), &body).await?.expect(201)?;
    }
    Ok(())
}

fn names(answer: &Answer) -> Vec<String> {
    let items = answer.json["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

async fn selected(s: &Setting, query: &str) -> Result<String> {
    let answer = s.server.get(&s.core(&format!("configmaps?{query}"))).await?.expect(200)?;
    Ok(names(&answer).into_iter().filter(|name| name.len() == 1).collect::<String>())
}

async fn a_list_has_the_kind_and_a_version(s: &Setting) -> Result<()> {
    let answer = s.server.get(&s.core("pods")).await?.expect(200)?;
    ensure!(answer.string("/metadata/resourceVersion")?.parse::<u64>()? > 0);
    answer.expect_value("/kind", "PodList")?.expect_value("/apiVersion", "v1")?.expect_value("/items", json!([]))?;
    Ok(())
}

async fn items_of_a_list_are_sorted_by_name(s: &Setting) -> Result<()> {
    five(s).await?;
    ensure!(selected(s, "").await? == "abcde");
    Ok(())
}

async fn items_of_a_list_of_core_kinds_carry_no_kind(s: &Setting) -> Result<()> {
    five(s).await?;
    let answer = s.server.get(&s.core("configmaps")).await?.expect(200)?;
    answer.expect_value("/items/0/kind", Value::Null)?.expect_value("/items/0/apiVersion", Value::Null)?;
    Ok(())
}

async fn a_list_over_all_namespaces_sees_them_all(s: &Setting) -> Result<()> {
    five(s).await?;
    let answer = s.server.get("/api/v1/configmaps?labelSelector=set%3Dfive").await?.expect(200)?;
    let here = answer.json["items"]
        .as_array()
        .context("items")?
        .iter()
        .filter(|item| item["metadata"]["namespace"] == s.namespace.as_str());
    ensure!(here.count() == 5);
    Ok(())
}

async fn label_selectors_by_equality(s: &Setting) -> Result<()> {
    five(s).await?;
    ensure!(selected(s, "labelSelector=colour%3Dred").await? == "ace");
    ensure!(selected(s, "labelSelector=colour%3D%3Dred,a%3Dyes").await? == "a");
    ensure!(selected(s, "labelSelector=colour!%3Dred,set%3Dfive").await? == "bd");
    Ok(())
}

async fn label_selectors_by_set(s: &Setting) -> Result<()> {
    five(s).await?;
    ensure!(selected(s, "labelSelector=colour%20in%20(blue,green)").await? == "bd");
    ensure!(selected(s, "labelSelector=set%3Dfive,colour%20notin%20(blue,green)").await? == "ace");
    Ok(())
}

async fn label_selectors_by_existence(s: &Setting) -> Result<()> {
    five(s).await?;
    ensure!(selected(s, "labelSelector=b").await? == "b");
    ensure!(selected(s, "labelSelector=set,!b").await? == "acde");
    Ok(())
}

async fn a_bad_label_selector_is_400(s: &Setting) -> Result<()> {
    for selector in ["a%20in%20", "%3D%3D", "a%3Db%3Dc", "a%20in%20(", "-bad-%3Dx"] {
        let answer = s.server.get(&s.core(&format!("configmaps?labelSelector={selector}"))).await?;
        answer.expect_failure(400, "BadRequest").with_context(|| selector.to_owned())?;
    }
    Ok(())
}

async fn field_selectors_by_name(s: &Setting) -> Result<()> {
    five(s).await?;
    ensure!(selected(s, "fieldSelector=metadata.name%3Dc").await? == "c");
    ensure!(selected(s, "fieldSelector=metadata.name!%3Dc&labelSelector=set%3Dfive").await? == "abde");
    Ok(())
}

async fn pods_are_selected_by_node_and_phase(s: &Setting) -> Result<()> {
    let mut placed = pod("placed");
    placed["spec"]["nodeName"] = json!("lost-node");
    s.server.post(&s.core("pods"), &placed).await?.expect(201)?;
    s.server.post(&s.core("pods"), &pod("free")).await?.expect(201)?;
    let of = |query: &'static str| async move { anyhow::Ok(names(&s.server.get(&s.core(query)).await?.expect(200)?)) };
    ensure!(of("pods?fieldSelector=spec.nodeName%3Dlost-node").await? == ["placed"]);
    ensure!(of("pods?fieldSelector=spec.nodeName%3D").await? == ["free"]);
    ensure!(of("pods?fieldSelector=status.phase%3DPending").await? == ["free", "placed"]);
    ensure!(of("pods?fieldSelector=status.phase!%3DPending").await?.is_empty());
    s.server.delete(&s.core("pods/placed"), &json!({ "gracePeriodSeconds": 0 })).await?.expect(200)?;
    Ok(())
}

async fn a_field_that_cannot_be_selected_is_400(s: &Setting) -> Result<()> {
    let answer =
        s.server.get(&s.core("pods?fieldSelector=spec.hostname%3Dx")).await?.expect_failure(400, "BadRequest")?;
    answer.expect_message("field label not supported: spec.hostname")?;
    Ok(())
}

async fn a_bad_field_selector_is_400(s: &Setting) -> Result<()> {
    s.server.get(&s.core("pods?fieldSelector=metadata.name")).await?.expect_failure(400, "BadRequest")?;
    Ok(())
}

async fn paging_returns_everything_once(s: &Setting) -> Result<()> {
    five(s).await?;
    let mut seen = Vec::new();
    let mut token = String::new();
    for _ in 0..10 {
        let answer = s
            .server
            .get(&s.core(&format!("configmaps?limit=2&labelSelector=set&continue={token}")))
            .await?
            .expect(200)?;
        seen.extend(names(&answer));
        answer.json["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
        if token.is_empty() {
            break;
        }
    }
    ensure!(seen == ["a", "b", "c", "d", "e"], "{seen:?}");
    Ok(())
}

async fn paging_shows_the_first_page_s_moment(s: &Setting) -> Result<()> {
    five(s).await?;
    let first = s.server.get(&s.core("configmaps?limit=2&labelSelector=set")).await?.expect(200)?;
    let mut late = config_map("cc");
    late["metadata"]["labels"] = json!({ "set": "five" });
    s.server.post(&s.core("configmaps"), &late).await?.expect(201)?;
    s.server.delete(&s.core("configmaps/d"), &Value::Null).await?.expect(200)?;
    let token = first.string("/metadata/continue")?;
    let rest = s
        .server
        .get(&s.core(&format!("configmaps?limit=100&labelSelector=set&continue={token}")))
        .await?
        .expect(200)?;
    ensure!(names(&rest) == ["c", "d", "e"], "{:?}", names(&rest));
    ensure!(rest.string("/metadata/resourceVersion")? == first.string("/metadata/resourceVersion")?);
    Ok(())
}

async fn paging_counts_the_rest(s: &Setting) -> Result<()> {
    five(s).await?;
    let all = names(&s.server.get(&s.core("configmaps")).await?.expect(200)?).len();
    let page = s.server.get(&s.core("configmaps?limit=2")).await?.expect(200)?;
    page.expect_value("/metadata/remainingItemCount", all - 2)?;
    Ok(())
}

async fn a_bad_continue_token_is_400(s: &Setting) -> Result<()> {
    s.server
        .get(&s.core("configmaps?limit=2&continue=nonsense"))
        .await?
        .expect_failure(400, "BadRequest")?
        .expect_message("continue key is not valid")?;
    Ok(())
}

async fn a_list_at_version_zero_is_answered(s: &Setting) -> Result<()> {
    s.server.get(&s.core("configmaps?resourceVersion=0")).await?.expect(200)?.expect_value("/kind", "ConfigMapList")?;
    Ok(())
}

async fn a_list_at_a_future_version_waits_and_fails(s: &Setting) -> Result<()> {
    let now: u64 = s.server.get(&s.core("configmaps")).await?.string("/metadata/resourceVersion")?.parse()?;
    let answer = s.server.get(&s.core(&format!("configmaps?resourceVersion={}", now + 1_000_000))).await?;
    answer.expect_failure(504, "Timeout")?.expect_message("Too large resource version")?;
    Ok(())
}

async fn an_exact_list_needs_a_version(s: &Setting) -> Result<()> {
    let answer =
        s.server.get(&s.core("configmaps?resourceVersionMatch=Exact")).await?.expect_failure(422, "Invalid")?;
    answer.expect_message("resourceVersionMatch is forbidden unless resourceVersion is provided")?;
    Ok(())
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

async fn get_as(s: &Setting, path: &str, accept: &str) -> Result<Answer> {
    s.server.send(Method::GET, path, &[("accept", accept)], Vec::new()).await
}

async fn a_table_has_columns_and_rows(s: &Setting) -> Result<()> {
    five(s).await?;
    let answer = get_as(s, &s.core("configmaps?labelSelector=set"), TABLE).await?.expect(200)?;
    ensure!(answer.json["rows"].as_array().is_some_and(|rows| rows.len() == 5));
    answer
        .expect_value("/kind", "Table")?
        .expect_value("/apiVersion", "meta.k8s.io/v1")?
        .expect_value("/columnDefinitions/0/name", "Name")?
        .expect_value("/columnDefinitions/1/name", "Data")?
        .expect_value("/rows/0/cells/0", "a")?
        .expect_value("/rows/0/cells/1", 1)?;
    Ok(())
}

async fn a_pod_table_has_the_columns_of_kubectl(s: &Setting) -> Result<()> {
    s.server.post(&s.core("pods"), &pod("a")).await?.expect(201)?;
    let answer = get_as(s, &s.core("pods"), TABLE).await?.expect(200)?;
    let columns: Vec<&str> = answer.json["columnDefinitions"]
        .as_array()
        .context("columns")?
        .iter()
        .filter_map(|column| column["name"].as_str())
        .collect();
    ensure!(
        columns == ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"],
        "{columns:?}"
    );
    let cells = &answer.json["rows"][0]["cells"];
    ensure!(cells[1] == "0/1" && cells[2] == "Pending" && cells[6] == "<none>", "{cells}");
    Ok(())
}

async fn a_table_row_carries_metadata_only(s: &Setting) -> Result<()> {
    s.server.post(&s.core("pods"), &pod("a")).await?.expect(201)?;
    let answer = get_as(s, &s.core("pods"), TABLE).await?.expect(200)?;
    let answer = answer
        .expect_value("/rows/0/object/kind", "PartialObjectMetadata")?
        .expect_value("/rows/0/object/metadata/name", "a")?;
    answer.expect_value("/rows/0/object/spec", Value::Null)?;
    let whole = get_as(s, &s.core("pods?includeObject=Object"), TABLE).await?.expect(200)?;
    whole.expect_value("/rows/0/object/kind", "Pod")?.expect_value("/rows/0/object/spec/restartPolicy", "Always")?;
    let bare = get_as(s, &s.core("pods?includeObject=None"), TABLE).await?.expect(200)?;
    bare.expect_value("/rows/0/object", Value::Null)?;
    Ok(())
}

async fn metadata_only_lists_leave_out_the_rest(s: &Setting) -> Result<()> {
    s.server.post(&s.core("pods"), &pod("a")).await?.expect(201)?;
    let answer = get_as(s, &s.core("pods"), "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
        .await?
        .expect(200)?;
    answer
        .expect_value("/kind", "PartialObjectMetadataList")?
        .expect_value("/items/0/metadata/name", "a")?
        .expect_value("/items/0/spec", Value::Null)?;
    let one = get_as(s, &s.core("pods/a"), "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
        .await?
        .expect(200)?;
    one.expect_value("/kind", "PartialObjectMetadata")?
        .expect_value("/metadata/labels/app", "a")?
        .expect_value("/status", Value::Null)?;
    Ok(())
}

async fn an_unknown_accept_header_is_406(s: &Setting) -> Result<()> {
    let answer = get_as(s, &s.core("pods"), "text/csv").await?.expect_failure(406, "NotAcceptable")?;
    answer.expect_message("406: Not Acceptable\n\nAvailable representations: application/json, application/yaml")?;
    Ok(())
}

async fn protobuf_or_json_is_answered(s: &Setting) -> Result<()> {
    // A Go client asks for protobuf first; the answer may be either, and says which.
    let answer =
        get_as(s, &s.core("pods"), "application/vnd.kubernetes.protobuf,application/json").await?.expect(200)?;
    let content_type = answer.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    ensure!(["application/json", "application/vnd.kubernetes.protobuf"].contains(&content_type), "{content_type}");
    Ok(())
}

async fn selected_events_of_one_object(s: &Setting) -> Result<()> {
    for name in ["a", "b"] {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": format!("{name}.1") },
            "involvedObject": { "kind": "Pod", "namespace": s.namespace, "name": name }, "reason": "Test", "message": "hello", "type": "Normal",
        });
        s.server.post(&s.core("events"), &event).await?.expect(201)?;
    }
    let query = "events?fieldSelector=involvedObject.name%3Da,involvedObject.kind%3DPod";
    let answer = s.server.get(&s.core(query)).await?.expect(200)?;
    ensure!(names(&answer) == ["a.1"], "{:?}", names(&answer));
    // The same events under their newer name.
    let newer = s.server.get(&s.group("events.k8s.io/v1", "events/a.1")).await?.expect(200)?;
    newer.expect_value("/regarding/name", "a")?.expect_value("/note", "hello")?.expect_value("/reason", "Test")?;
    Ok(())
}
