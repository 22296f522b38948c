//! What surrounds the values of custom objects: status, scale, columns, versions, selectors, apply.

use anyhow::{Context as _, Result, ensure};
use http::Method;
use kai_tests::harness::Case;
use kai_tests::request::{
    Answer,
    PatchKind::{Merge, Strategic},
};
use serde_json::{Value, json};

use crate::conformance;
use crate::setting::Setting;
use crate::widget::{Kind, properties, sized, widgets};

pub const CASES: &[Case] = conformance![
    status_of_a_custom_object_is_its_own_resource,
    without_the_subresource_status_is_a_plain_field,
    generation_of_a_custom_object_follows_everything_but_metadata_and_status,
    the_scale_of_a_custom_object_reads_and_writes_its_paths,
    a_scale_without_replicas_is_an_error,
    a_negative_scale_is_422,
    a_table_has_the_columns_of_the_definition,
    without_columns_a_table_has_the_age,
    every_served_version_shows_the_object,
    a_version_that_is_not_served_is_404,
    a_deprecated_version_warns,
    selectable_fields_select,
    a_custom_list_has_its_list_kind,
    strategic_patch_of_a_custom_object_is_415,
    another_kind_at_a_custom_path_is_422,
    apply_merges_custom_lists_by_their_keys,
    apply_of_an_unknown_custom_field_is_refused,
    a_cluster_scoped_kind_has_no_namespace,
];

async fn status_of_a_custom_object_is_its_own_resource(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let mut body = kind.object("a", &json!({ "size": 1 }));
    body["status"] = json!({ "phase": "Early" });
    s.server.post(&kind.path(s), &body).await?.expect(201)?.expect_value("/status", Value::Null)?;
    let path = format!("{}/a", kind.path(s));
    let both = json!({
        "spec": { "size": 5 }, "status": { "phase": "Done" }, "metadata": { "labels": { "x": "y" } },
    });
    s.server
        .patch(Merge, &format!("{path}/status"), &both)
        .await?
        .expect(200)?
        .expect_value("/spec/size", 1)?
        .expect_value("/status/phase", "Done")?
        .expect_value("/metadata/labels", Value::Null)?
        .expect_value("/metadata/generation", 1)?;
    let other = json!({ "spec": { "size": 6 }, "status": { "phase": "Ignored" } });
    s.server
        .patch(Merge, &path, &other)
        .await?
        .expect(200)?
        .expect_value("/spec/size", 6)?
        .expect_value("/status/phase", "Done")?
        .expect_value("/metadata/generation", 2)?;
    Ok(())
}

async fn without_the_subresource_status_is_a_plain_field(s: &Setting) -> Result<()> {
    let kind = Kind::new(s, &sized(&properties())).serve(s).await?;
    let mut body = kind.object("a", &json!({ "size": 1 }));
    body["status"] = json!({ "phase": "Early" });
    s.server.post(&kind.path(s), &body).await?.expect(201)?.expect_value("/status/phase", "Early")?;
    s.server.get(&format!("{}/a/status", kind.path(s))).await?.expect(404)?;
    let patch = json!({ "status": { "phase": "Late" } });
    let patched = s.server.patch(Merge, &format!("{}/a", kind.path(s)), &patch).await?.expect(200)?;
    patched.expect_value("/status/phase", "Late")?.expect_value("/metadata/generation", 2)?;
    Ok(())
}

async fn generation_of_a_custom_object_follows_everything_but_metadata_and_status(s: &Setting) -> Result<()> {
    let schema =
        json!({ "type": "object", "properties": { "other": { "type": "string" }, "spec": { "type": "object" } } });
    let kind = Kind::new(s, &schema).with("subresources", json!({ "status": {} })).serve(s).await?;
    kind.create(s, json!({})).await?.expect(201)?.expect_value("/metadata/generation", 1)?;
    let path = format!("{}/a", kind.path(s));
    let labels = json!({ "metadata": { "labels": { "x": "y" } } });
    s.server.patch(Merge, &path, &labels).await?.expect(200)?.expect_value("/metadata/generation", 1)?;
    let other = json!({ "other": "changed" });
    s.server.patch(Merge, &path, &other).await?.expect(200)?.expect_value("/metadata/generation", 2)?;
    Ok(())
}

async fn scaled(s: &Setting) -> Result<Kind> {
    let subresources = json!({
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    });
    Kind::new(s, &sized(&properties())).with("subresources", subresources).serve(s).await
}

async fn the_scale_of_a_custom_object_reads_and_writes_its_paths(s: &Setting) -> Result<()> {
    let kind = scaled(s).await?;
    kind.create(s, json!({ "size": 1, "replicas": 2 })).await?.expect(201)?;
    let path = format!("{}/a", kind.path(s));
    let status = json!({ "status": { "replicas": 1, "selector": "a=b" } });
    let object = s.server.patch(Merge, &format!("{path}/status"), &status).await?.expect(200)?;
    let scale = s.server.get(&format!("{path}/scale")).await?.expect(200)?;
    let mut body = scale
        .expect_value("/kind", "Scale")?
        .expect_value("/apiVersion", "autoscaling/v1")?
        .expect_value("/metadata/name", "a")?
        .expect_value("/metadata/uid", object.string("/metadata/uid")?)?
        .expect_value("/spec", json!({ "replicas": 2 }))?
        .expect_value("/status", json!({ "replicas": 1, "selector": "a=b" }))?
        .json;
    body["spec"]["replicas"] = json!(4);
    let written = s.server.put(&format!("{path}/scale"), &body).await?.expect(200)?;
    written.expect_value("/spec/replicas", 4)?;
    let patch = json!({ "spec": { "replicas": 5 } });
    s.server.patch(Merge, &format!("{path}/scale"), &patch).await?.expect(200)?.expect_value("/spec/replicas", 5)?;
    let read = s.server.get(&path).await?;
    read.expect_value("/spec/replicas", 5)?.expect_value("/metadata/generation", 3)?;
    Ok(())
}

async fn a_scale_without_replicas_is_an_error(s: &Setting) -> Result<()> {
    let kind = scaled(s).await?;
    kind.create(s, json!({ "size": 1 })).await?.expect(201)?;
    let answer = s.server.get(&format!("{}/a/scale", kind.path(s))).await?.expect_failure(500, "InternalError")?;
    answer.expect_message("the spec replicas field \".spec.replicas\" does not exist")?;
    Ok(())
}

async fn a_negative_scale_is_422(s: &Setting) -> Result<()> {
    let kind = scaled(s).await?;
    kind.create(s, json!({ "size": 1, "replicas": 1 })).await?.expect(201)?;
    let patch = json!({ "spec": { "replicas": -1 } });
    let answer = s.server.patch(Merge, &format!("{}/a/scale", kind.path(s)), &patch).await?;
    answer.expect_invalid(
        "FieldValueInvalid",
        ".spec.replicas",
        "Invalid value: -1: should be a non-negative integer",
    )?;
    Ok(())
}

async fn table(s: &Setting, kind: &Kind) -> Result<Answer> {
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    s.server.send(Method::GET, &kind.path(s), &accept, Vec::new()).await?.expect(200)
}

fn column_names(table: &Answer) -> Vec<&str> {
    let columns = table.json["columnDefinitions"].as_array().into_iter().flatten();
    columns.filter_map(|column| column["name"].as_str()).collect()
}

async fn a_table_has_the_columns_of_the_definition(s: &Setting) -> Result<()> {
    let columns = json!([
        { "name": "Size", "type": "integer", "jsonPath": ".spec.size" },
        { "name": "Tag", "type": "string", "jsonPath": ".spec.tags.a", "priority": 1, "description": "the tag" },
        { "name": "Phase", "type": "string", "jsonPath": ".status.phase" },
    ]);
    let kind = Kind::new(s, &sized(&properties())).with("additionalPrinterColumns", columns).serve(s).await?;
    kind.create(s, json!({ "size": 3, "tags": { "a": 5 } })).await?.expect(201)?;
    let table = table(s, &kind).await?;
    ensure!(column_names(&table) == ["Name", "Size", "Tag", "Phase"], "{:?}", column_names(&table));
    table
        .expect_value("/columnDefinitions/0/format", "name")?
        .expect_value("/columnDefinitions/1/type", "integer")?
        .expect_value("/columnDefinitions/1/priority", 0)?
        .expect_value("/columnDefinitions/2/priority", 1)?
        .expect_value("/columnDefinitions/2/description", "the tag")?
        .expect_value("/rows/0/cells/0", "a")?
        .expect_value("/rows/0/cells/1", 3)?
        .expect_value("/rows/0/cells/2", "5")?
        .expect_value("/rows/0/cells/3", Value::Null)?
        .expect_value("/rows/0/object/kind", "PartialObjectMetadata")?;
    Ok(())
}

async fn without_columns_a_table_has_the_age(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": 3 })).await?.expect(201)?;
    let table = table(s, &kind).await?;
    ensure!(column_names(&table) == ["Name", "Age"], "{:?}", column_names(&table));
    Ok(())
}

async fn versions(s: &Setting) -> Result<Kind> {
    let mut kind = Kind::new(s, &sized(&properties()));
    let first = kind.definition["spec"]["versions"][0].clone();
    let mut add = |name: &str, served: bool, deprecated: bool| {
        let mut version = first.clone();
        version["name"] = json!(name);
        version["served"] = json!(served);
        version["storage"] = json!(false);
        version["deprecated"] = json!(deprecated);
        if let Some(versions) = kind.definition["spec"]["versions"].as_array_mut() {
            versions.push(version);
        }
    };
    add("v2", true, false);
    add("v1beta1", false, false);
    add("v1alpha1", true, true);
    kind.serve(s).await
}

async fn every_served_version_shows_the_object(s: &Setting) -> Result<()> {
    let kind = versions(s).await?;
    kind.create(s, json!({ "size": 1 })).await?.expect(201)?;
    let path = s.group(&format!("{}/v2", kind.group), "widgets/a");
    s.server
        .get(&path)
        .await?
        .expect(200)?
        .expect_value("/apiVersion", format!("{}/v2", kind.group))?
        .expect_value("/spec/size", 1)?;
    let patch = json!({ "spec": { "size": 2 } });
    s.server.patch(Merge, &format!("{path}?fieldManager=second"), &patch).await?.expect(200)?;
    let read = s.server.get(&format!("{}/a", kind.path(s))).await?.expect_value("/spec/size", 2)?;
    let managers = read.json["metadata"]["managedFields"].as_array().context("managed fields")?;
    let second = managers.iter().find(|entry| entry["manager"] == "second").context("the second manager")?;
    ensure!(second["apiVersion"] == format!("{}/v2", kind.group), "{second}");
    let group = s.server.get(&format!("/apis/{}", kind.group)).await?.expect(200)?;
    let names: Vec<&str> =
        group.json["versions"].as_array().into_iter().flatten().filter_map(|v| v["version"].as_str()).collect();
    ensure!(names == ["v2", "v1", "v1alpha1"], "{names:?}");
    group.expect_value("/preferredVersion/version", "v2")?;
    Ok(())
}

async fn a_version_that_is_not_served_is_404(s: &Setting) -> Result<()> {
    let kind = versions(s).await?;
    kind.create(s, json!({ "size": 1 })).await?.expect(201)?;
    s.server.get(&s.group(&format!("{}/v1beta1", kind.group), "widgets/a")).await?.expect(404)?;
    Ok(())
}

async fn a_deprecated_version_warns(s: &Setting) -> Result<()> {
    let kind = versions(s).await?;
    kind.create(s, json!({ "size": 1 })).await?.expect(201)?;
    let answer = s.server.get(&s.group(&format!("{}/v1alpha1", kind.group), "widgets/a")).await?.expect(200)?;
    let group = &kind.group;
    let wanted = format!("299 - \"{group}/v1alpha1 Widget is deprecated; use {group}/v2 Widget\"");
    ensure!(answer.warnings() == [wanted], "{:?}", answer.warnings());
    Ok(())
}

async fn selectable_fields_select(s: &Setting) -> Result<()> {
    let fields = json!([{ "jsonPath": ".spec.mode" }, { "jsonPath": ".spec.size" }]);
    let kind = Kind::new(s, &sized(&properties())).with("selectableFields", fields).serve(s).await?;
    for (name, size) in [("a", 1), ("b", 2), ("c", 2)] {
        s.server.post(&kind.path(s), &kind.object(name, &json!({ "size": size }))).await?.expect(201)?;
    }
    let count = |answer: &Answer| answer.json["items"].as_array().map_or(0, Vec::len);
    let two = s.server.get(&format!("{}?fieldSelector=spec.size%3D2", kind.path(s))).await?.expect(200)?;
    ensure!(count(&two) == 2, "{}", two.text);
    let one = s.server.get(&format!("{}?fieldSelector=spec.size%3D2,metadata.name%3Db", kind.path(s))).await?;
    ensure!(count(&one) == 1, "{}", one.text);
    let all = s.server.get(&format!("{}?fieldSelector=spec.mode%3Da", kind.path(s))).await?;
    ensure!(count(&all) == 3, "{}", all.text);
    let bad = s.server.get(&format!("{}?fieldSelector=spec.name%3Da", kind.path(s))).await?;
    bad.expect_failure(400, "BadRequest")?.expect_message("field label not supported: spec.name")?;
    Ok(())
}

async fn a_custom_list_has_its_list_kind(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": 1 })).await?.expect(201)?;
    let list = s.server.get(&kind.path(s)).await?.expect(200)?;
    list.expect_value("/kind", "WidgetList")?
        .expect_value("/apiVersion", format!("{}/v1", kind.group))?
        .expect_value("/items/0/kind", "Widget")?
        .expect_value("/items/0/metadata/name", "a")?;
    Ok(())
}

async fn strategic_patch_of_a_custom_object_is_415(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    kind.create(s, json!({ "size": 1 })).await?.expect(201)?;
    let answer = s.server.patch(Strategic, &format!("{}/a", kind.path(s)), &json!({ "spec": { "size": 2 } })).await?;
    answer.expect_failure(415, "UnsupportedMediaType")?.expect_message(
        "accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
    )?;
    Ok(())
}

async fn another_kind_at_a_custom_path_is_422(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let mut body = kind.object("a", &json!({ "size": 1 }));
    body["kind"] = json!("Gadget");
    let answer = s.server.post(&kind.path(s), &body).await?;
    answer.expect_invalid("FieldValueInvalid", "kind", "kind: Invalid value: \"Gadget\": must be Widget")?;
    body["kind"] = json!("Widget");
    body["apiVersion"] = json!(format!("{}/v9", kind.group));
    let answer = s.server.post(&kind.path(s), &body).await?.expect_failure(400, "BadRequest")?;
    answer.expect_message("does not match the expected API version")?;
    Ok(())
}

async fn apply_merges_custom_lists_by_their_keys(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let path = format!("{}/a", kind.path(s));
    let body = |id: &str, member: &str| {
        kind.object("a", &json!({ "size": 1, "items": [{ "id": id, "value": 1 }], "set": [member] }))
    };
    let created = s.apply(&path, "one", &body("a", "x")).await?.expect(201)?;
    created.expect_value(
        "/metadata/managedFields/0/fieldsV1/f:spec",
        json!({
            "f:size": {},
            "f:items": { "k:{\"id\":\"a\"}": { ".": {}, "f:id": {}, "f:value": {} } },
            "f:set": { "v:\"x\"": {} },
        }),
    )?;
    let merged = s.apply(&path, "two", &body("b", "y")).await?.expect(200)?;
    merged
        .expect_value("/spec/items", json!([{ "id": "a", "value": 1 }, { "id": "b", "value": 1 }]))?
        .expect_value("/spec/set", json!(["x", "y"]))?;
    let answer = s.apply(&path, "two", &kind.object("a", &json!({ "size": 2 }))).await?;
    answer
        .expect_failure(409, "Conflict")?
        .expect_value("/message", "Apply failed with 1 conflict: conflict with \"one\": .spec.size")?;
    Ok(())
}

async fn apply_of_an_unknown_custom_field_is_refused(s: &Setting) -> Result<()> {
    let kind = widgets(s).await?;
    let body = kind.object("a", &json!({ "size": 1, "junk": 1 }));
    let answer = s.apply(&format!("{}/a", kind.path(s)), "one", &body).await?.expect(500)?;
    answer.expect_message(".spec.junk: field not declared in schema")?;
    Ok(())
}

async fn a_cluster_scoped_kind_has_no_namespace(s: &Setting) -> Result<()> {
    let mut kind = Kind::new(s, &sized(&properties()));
    kind.definition["spec"]["scope"] = json!("Cluster");
    let kind = kind.serve(s).await?;
    let path = format!("/apis/{}/v1/widgets", kind.group);
    let answer = s.server.post(&path, &kind.object("a", &json!({ "size": 1 }))).await?.expect(201)?;
    answer.expect_value("/metadata/namespace", Value::Null)?;
    s.server.get(&format!("{path}/a")).await?.expect(200)?;
    s.server.get(&kind.path(s)).await?.expect(404)?;
    Ok(())
}
