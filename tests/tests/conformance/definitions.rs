//! CustomResourceDefinitions themselves: when they are served, how discovery shows them, which are refused, how they go.

use anyhow::{Context as _, Result, ensure};
use http::Method;
use kai_tests::harness::Case;
use kai_tests::request::{Answer, PatchKind::Merge};
use kai_tests::{cluster::PATIENCE, wait};
use serde_json::{Value, json};

use crate::conformance;
use crate::setting::Setting;
use crate::widget::{DEFINITIONS, Kind, condition};

pub const CASES: &[Case] = conformance![
    a_definition_gets_its_defaults,
    a_definition_is_established_with_its_names,
    discovery_shows_a_custom_kind,
    aggregated_discovery_shows_a_custom_kind,
    openapi_describes_a_custom_kind,
    a_definition_must_be_named_after_its_kind,
    a_definition_needs_one_storage_version,
    a_definition_needs_unique_versions,
    a_definition_needs_a_schema,
    a_schema_needs_a_type_everywhere,
    a_list_map_needs_its_keys,
    a_default_must_fit_its_schema,
    a_pattern_must_be_a_regular_expression,
    a_rule_must_parse,
    a_rule_must_fit_the_types,
    a_scope_is_cluster_or_namespaced,
    a_group_needs_a_dot,
    a_protected_group_needs_approval,
    scale_paths_are_checked,
    printer_columns_are_checked,
    names_in_use_are_not_accepted,
    scope_and_kind_are_fixed_once_established,
    a_changed_schema_is_served,
    deleting_a_definition_deletes_its_objects,
];

fn plain() -> Value {
    json!({ "type": "object", "properties": { "spec": { "type": "object" } } })
}

/// A schema with one property `x`.
fn with_property(property: Value) -> Value {
    json!({ "type": "object", "properties": { "x": property } })
}

async fn refuse(s: &Setting, kind: &Kind) -> Result<Answer> {
    let answer = s.server.post(DEFINITIONS, &kind.definition).await?;
    s.server.get(&kind.definition_path()).await?.expect(404)?;
    Ok(answer)
}

async fn a_definition_gets_its_defaults(s: &Setting) -> Result<()> {
    let kind = Kind::new(s, &plain());
    let answer = s.server.post(DEFINITIONS, &kind.definition).await?.expect(201)?;
    answer
        .expect_value(
            "/spec/names",
            json!({ "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" }),
        )?
        .expect_value("/spec/conversion", json!({ "strategy": "None" }))?
        .expect_value("/status/storedVersions", json!(["v1"]))?
        .expect_value("/metadata/generation", 1)?;
    Ok(())
}

async fn a_definition_is_established_with_its_names(s: &Setting) -> Result<()> {
    let mut kind = Kind::new(s, &plain());
    kind.definition["spec"]["names"]["shortNames"] = json!(["wi"]);
    let kind = kind.serve(s).await?;
    let answer = s.server.get(&kind.definition_path()).await?.expect(200)?;
    let names = condition(&answer, "NamesAccepted").context("the condition NamesAccepted")?;
    ensure!(names["status"] == "True" && names["reason"] == "NoConflicts", "{names}");
    ensure!(names["message"] == "no conflicts found" && names["lastTransitionTime"].is_string(), "{names}");
    let established = condition(&answer, "Established").context("the condition Established")?;
    ensure!(established["reason"] == "InitialNamesAccepted", "{established}");
    ensure!(established["message"] == "the initial names have been accepted", "{established}");
    answer.expect_value(
        "/status/acceptedNames",
        json!({
            "plural": "widgets", "singular": "widget", "shortNames": ["wi"], "kind": "Widget", "listKind": "WidgetList",
        }),
    )?;
    Ok(())
}

async fn discovered(s: &Setting) -> Result<(Kind, Answer)> {
    let subresources = json!({
        "status": {}, "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" },
    });
    let mut kind = Kind::new(s, &plain()).with("subresources", subresources);
    kind.definition["spec"]["names"]["shortNames"] = json!(["wi"]);
    kind.definition["spec"]["names"]["categories"] = json!(["all", "gadgets"]);
    let kind = kind.serve(s).await?;
    let path = format!("/apis/{}/v1", kind.group);
    let list = wait::until("discovery to show the kind", PATIENCE, async || {
        let answer = s.server.get(&path).await?;
        Ok((answer.status == 200).then_some(answer))
    })
    .await?;
    Ok((kind, list))
}

async fn discovery_shows_a_custom_kind(s: &Setting) -> Result<()> {
    let (kind, list) = discovered(s).await?;
    let find = |name: &str| {
        let resources = list.json["resources"].as_array().into_iter().flatten();
        resources.clone().find(|resource| resource["name"] == name).cloned().unwrap_or_default()
    };
    let mut widgets = find("widgets");
    let mut verbs: Vec<String> = serde_json::from_value(widgets["verbs"].take())?;
    verbs.sort();
    ensure!(verbs == ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"], "{verbs:?}");
    ensure!(widgets["kind"] == "Widget" && widgets["singularName"] == "widget", "{widgets}");
    ensure!(widgets["namespaced"] == true && widgets["shortNames"] == json!(["wi"]), "{widgets}");
    ensure!(widgets["categories"] == json!(["all", "gadgets"]), "{widgets}");
    let status = find("widgets/status");
    ensure!(status["kind"] == "Widget" && status["verbs"] == json!(["get", "patch", "update"]), "{status}");
    let scale = find("widgets/scale");
    ensure!(scale["kind"] == "Scale" && scale["group"] == "autoscaling" && scale["version"] == "v1", "{scale}");
    let group = s.server.get(&format!("/apis/{}", kind.group)).await?.expect(200)?;
    group
        .expect_value("/kind", "APIGroup")?
        .expect_value("/name", kind.group.as_str())?
        .expect_value("/preferredVersion/groupVersion", format!("{}/v1", kind.group))?;
    let groups = s.server.get("/apis").await?.expect(200)?;
    let mut names = groups.json["groups"].as_array().into_iter().flatten();
    ensure!(names.any(|found| found["name"] == kind.group), "{} is not in /apis", kind.group);
    Ok(())
}

async fn aggregated_discovery_shows_a_custom_kind(s: &Setting) -> Result<()> {
    let (kind, _) = discovered(s).await?;
    let accept = [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    let version = wait::until("aggregated discovery to show the kind", PATIENCE, async || {
        let all = s.server.send(Method::GET, "/apis", &accept, Vec::new()).await?.expect(200)?;
        let mut groups = all.json["items"].as_array().into_iter().flatten();
        Ok(groups.find(|group| group["metadata"]["name"] == kind.group).map(|group| group["versions"][0].clone()))
    })
    .await?;
    ensure!(version["version"] == "v1" && version["freshness"] == "Current", "{version}");
    let resource = &version["resources"][0];
    ensure!(resource["resource"] == "widgets" && resource["scope"] == "Namespaced", "{resource}");
    ensure!(resource["responseKind"]["kind"] == "Widget" && resource["singularResource"] == "widget", "{resource}");
    ensure!(
        resource["shortNames"] == json!(["wi"]) && resource["categories"] == json!(["all", "gadgets"]),
        "{resource}"
    );
    let mut subresources: Vec<&str> = resource["subresources"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|subresource| subresource["subresource"].as_str())
        .collect();
    subresources.sort_unstable();
    ensure!(subresources == ["scale", "status"], "{resource}");
    Ok(())
}

async fn openapi_describes_a_custom_kind(s: &Setting) -> Result<()> {
    let schema = with_property(json!({ "type": "string", "description": "What x is." }));
    let kind = Kind::new(s, &schema).serve(s).await?;
    let document = wait::until("the OpenAPI document of the group", PATIENCE, async || {
        let answer = s.server.get(&format!("/openapi/v3/apis/{}/v1", kind.group)).await?;
        Ok((answer.status == 200).then_some(answer))
    })
    .await?;
    let schemas = document.json["components"]["schemas"].as_object().context("schemas")?;
    let wanted = json!([{ "group": kind.group, "version": "v1", "kind": "Widget" }]);
    let widget = schemas.values().find(|schema| schema["x-kubernetes-group-version-kind"] == wanted);
    let widget = widget.with_context(|| format!("no schema of the kind in {}", document.text))?;
    ensure!(widget["properties"]["x"]["description"] == "What x is.", "{widget}");
    ensure!(widget["properties"]["metadata"].is_object(), "{widget}");
    Ok(())
}

async fn a_definition_must_be_named_after_its_kind(s: &Setting) -> Result<()> {
    let mut kind = Kind::new(s, &plain());
    kind.definition["metadata"]["name"] = json!(format!("other.{}", kind.group));
    refuse(s, &kind).await?.expect_invalid(
        "FieldValueInvalid",
        "metadata.name",
        "must be spec.names.plural+\".\"+spec.group",
    )?;
    Ok(())
}

async fn a_definition_needs_one_storage_version(s: &Setting) -> Result<()> {
    let kind = Kind::new(s, &plain()).with("storage", json!(false));
    let answer = refuse(s, &kind).await?;
    answer.expect_invalid(
        "FieldValueInvalid",
        "spec.versions",
        "must have exactly one version marked as storage version",
    )?;
    Ok(())
}

async fn a_definition_needs_unique_versions(s: &Setting) -> Result<()> {
    let mut kind = Kind::new(s, &plain());
    let mut version = kind.definition["spec"]["versions"][0].clone();
    version["storage"] = json!(false);
    kind.definition["spec"]["versions"] = json!([kind.definition["spec"]["versions"][0], version]);
    let answer = refuse(s, &kind).await?;
    answer.expect_invalid("FieldValueInvalid", "spec.versions", "must contain unique version names")?;
    Ok(())
}

async fn a_definition_needs_a_schema(s: &Setting) -> Result<()> {
    let kind = Kind::new(s, &plain()).with("schema", Value::Null);
    let answer = refuse(s, &kind).await?;
    answer.expect_invalid("FieldValueRequired", "spec.versions[0].schema.openAPIV3Schema", "Required value")?;
    Ok(())
}

/// Where the real server says that the schema of the only version is: the schemas of several versions have other paths.
const X: &str = "spec.validation.openAPIV3Schema.properties[x]";

async fn a_schema_needs_a_type_everywhere(s: &Setting) -> Result<()> {
    let kind = Kind::new(s, &with_property(json!({})));
    refuse(s, &kind).await?.expect_invalid(
        "FieldValueRequired",
        &format!("{X}.type"),
        "must not be empty for specified object fields",
    )?;
    Ok(())
}

async fn a_list_map_needs_its_keys(s: &Setting) -> Result<()> {
    let items = json!({ "type": "object", "properties": { "id": { "type": "string" } } });
    let property = json!({ "type": "array", "x-kubernetes-list-type": "map", "items": items });
    let kind = Kind::new(s, &with_property(property));
    refuse(s, &kind).await?.expect_invalid(
        "FieldValueRequired",
        &format!("{X}.x-kubernetes-list-map-keys"),
        "must not be empty if x-kubernetes-list-type is map",
    )?;
    Ok(())
}

async fn a_default_must_fit_its_schema(s: &Setting) -> Result<()> {
    let kind = Kind::new(s, &with_property(json!({ "type": "string", "default": 1 })));
    let answer = refuse(s, &kind).await?;
    answer.expect_invalid("FieldValueTypeInvalid", &format!("{X}.default"), "must be of type string: \"integer\"")?;
    Ok(())
}

async fn a_pattern_must_be_a_regular_expression(s: &Setting) -> Result<()> {
    let kind = Kind::new(s, &with_property(json!({ "type": "string", "pattern": "[" })));
    let answer = refuse(s, &kind).await?;
    answer.expect_invalid(
        "FieldValueInvalid",
        &format!("{X}.pattern"),
        "must be a valid regular expression, but isn't",
    )?;
    Ok(())
}

fn ruled(rule: &str) -> Value {
    with_property(json!({ "type": "string", "x-kubernetes-validations": [{ "rule": rule }] }))
}

async fn a_rule_must_parse(s: &Setting) -> Result<()> {
    let kind = Kind::new(s, &ruled("self.size("));
    let field = format!("{X}.x-kubernetes-validations[0].rule");
    refuse(s, &kind).await?.expect_invalid("FieldValueInvalid", &field, "compilation failed")?;
    Ok(())
}

async fn a_rule_must_fit_the_types(s: &Setting) -> Result<()> {
    let field = format!("{X}.x-kubernetes-validations[0].rule");
    for rule in ["self.nothing == 'a'", "other == 'a'"] {
        let answer = refuse(s, &Kind::new(s, &ruled(rule))).await?;
        answer.expect_failure(422, "Invalid").with_context(|| rule)?.expect_cause("FieldValueInvalid", &field)?;
    }
    Ok(())
}

async fn a_scope_is_cluster_or_namespaced(s: &Setting) -> Result<()> {
    let mut kind = Kind::new(s, &plain());
    kind.definition["spec"]["scope"] = json!("Galactic");
    refuse(s, &kind).await?.expect_invalid(
        "FieldValueNotSupported",
        "spec.scope",
        "Unsupported value: \"Galactic\": supported values: \"Cluster\", \"Namespaced\"",
    )?;
    Ok(())
}

async fn a_group_needs_a_dot(s: &Setting) -> Result<()> {
    let mut kind = Kind::new(s, &plain());
    kind.definition["spec"]["group"] = json!("nodots");
    kind.definition["metadata"]["name"] = json!("widgets.nodots");
    let answer = refuse(s, &kind).await?;
    answer.expect_invalid("FieldValueInvalid", "spec.group", "should be a domain with at least one dot")?;
    Ok(())
}

async fn a_protected_group_needs_approval(s: &Setting) -> Result<()> {
    let mut kind = Kind::new(s, &plain());
    kind.definition["spec"]["group"] = json!("example.k8s.io");
    kind.definition["metadata"]["name"] = json!("widgets.example.k8s.io");
    refuse(s, &kind).await?.expect_invalid(
        "FieldValueRequired",
        "metadata.annotations[api-approved.kubernetes.io]",
        "protected groups must have approval annotation",
    )?;
    Ok(())
}

async fn scale_paths_are_checked(s: &Setting) -> Result<()> {
    let kind = Kind::new(s, &plain()).with("subresources", json!({ "scale": { "specReplicasPath": ".status.x" } }));
    refuse(s, &kind)
        .await?
        .expect_failure(422, "Invalid")?
        .expect_cause("FieldValueInvalid", "spec.subresources.scale.specReplicasPath")?
        .expect_cause("FieldValueRequired", "spec.subresources.scale.statusReplicasPath")?
        .expect_message("should be a json path under .spec")?;
    Ok(())
}

async fn printer_columns_are_checked(s: &Setting) -> Result<()> {
    let columns = json!([{ "name": "x", "type": "nope", "jsonPath": "spec" }]);
    let kind = Kind::new(s, &plain()).with("additionalPrinterColumns", columns);
    refuse(s, &kind)
        .await?
        .expect_failure(422, "Invalid")?
        .expect_cause("FieldValueInvalid", "spec.additionalPrinterColumns[0].type")?
        .expect_cause("FieldValueInvalid", "spec.additionalPrinterColumns[0].JSONPath")?
        .expect_message("must be one of boolean,date,integer,number,string")?;
    Ok(())
}

async fn names_in_use_are_not_accepted(s: &Setting) -> Result<()> {
    let kind = Kind::new(s, &plain()).serve(s).await?;
    let mut second = kind.definition.clone();
    let name = format!("gadgets.{}", kind.group);
    second["metadata"]["name"] = json!(name);
    second["spec"]["names"] = json!({ "plural": "gadgets", "kind": "Gadget", "singular": "widget" });
    s.server.post(DEFINITIONS, &second).await?.expect(201)?;
    let answer = wait::until("the names to be judged", PATIENCE, async || {
        let answer = s.server.get(&format!("{DEFINITIONS}/{name}")).await?.expect(200)?;
        Ok(condition(&answer, "NamesAccepted").is_some().then_some(answer))
    })
    .await?;
    let names = condition(&answer, "NamesAccepted").context("the condition NamesAccepted")?;
    ensure!(names["status"] == "False" && names["reason"] == "SingularConflict", "{names}");
    ensure!(names["message"] == "\"widget\" is already in use", "{names}");
    let established = condition(&answer, "Established").context("the condition Established")?;
    ensure!(established["status"] == "False" && established["reason"] == "NotAccepted", "{established}");
    ensure!(established["message"] == "not all names are accepted", "{established}");
    s.server.get(&format!("/apis/{}/v1/gadgets", kind.group)).await?.expect(404)?;
    Ok(())
}

async fn scope_and_kind_are_fixed_once_established(s: &Setting) -> Result<()> {
    let kind = Kind::new(s, &plain()).serve(s).await?;
    let path = kind.definition_path();
    let answer = s.server.patch(Merge, &path, &json!({ "spec": { "scope": "Cluster" } })).await?;
    answer.expect_invalid("FieldValueInvalid", "spec.scope", "field is immutable")?;
    let answer = s.server.patch(Merge, &path, &json!({ "spec": { "names": { "kind": "Gadget" } } })).await?;
    answer.expect_invalid("FieldValueInvalid", "spec.names.kind", "field is immutable")?;
    Ok(())
}

async fn a_changed_schema_is_served(s: &Setting) -> Result<()> {
    let kind = Kind::new(s, &plain()).serve(s).await?;
    kind.create(s, json!({ "size": 1 })).await?.expect(201)?.expect_value("/spec", json!({}))?;
    let mut definition = s.server.get(&kind.definition_path()).await?.expect(200)?.json;
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] =
        json!({ "size": { "type": "integer", "default": 7 } });
    let changed = s.server.put(&kind.definition_path(), &definition).await?.expect(200)?;
    changed.expect_value("/metadata/generation", 2)?;
    wait::until("the new schema to be served", PATIENCE, async || {
        let body = kind.object("b", &json!({}));
        let answer = s.server.post(&format!("{}?dryRun=All", kind.path(s)), &body).await?.expect(201)?;
        Ok((answer.json["spec"]["size"] == 7).then_some(()))
    })
    .await
}

async fn deleting_a_definition_deletes_its_objects(s: &Setting) -> Result<()> {
    let kind = Kind::new(s, &plain()).serve(s).await?;
    kind.create(s, json!({})).await?.expect(201)?;
    s.server.delete(&kind.definition_path(), &Value::Null).await?.expect(200)?;
    wait::until("the definition to go", PATIENCE, async || {
        Ok((s.server.get(&kind.definition_path()).await?.status == 404).then_some(()))
    })
    .await?;
    wait::until("its path to go", PATIENCE, async || {
        Ok((s.server.get(&kind.path(s)).await?.status == 404).then_some(()))
    })
    .await?;
    // A new definition of the same name begins without objects.
    let again = Kind::new(s, &plain()).serve(s).await?;
    let list = s.server.get(&again.path(s)).await?.expect(200)?;
    list.expect_value("/items", json!([]))?;
    Ok(())
}
