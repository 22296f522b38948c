//! Devices asked for by claim (`resource.k8s.io`): claims, templates, classes, slices.

use anyhow::{Result, ensure};
use kai_tests::harness::Case;
use kai_tests::request::PatchKind::Merge;
use serde_json::{Value, json};

use crate::conformance;
use crate::kinds::object;
use crate::setting::Setting;

pub const CASES: &[Case] = conformance![
    a_resource_claim_asks_for_one_device,
    a_resource_claim_asks_for_something,
    the_spec_of_a_resource_claim_is_fixed,
    a_resource_claim_template_gets_the_same_defaults,
    a_device_class_checks_its_expression,
    a_resource_slice_belongs_to_a_node,
    a_pod_can_use_only_its_own_claims,
];

const RESOURCE: &str = "resource.k8s.io/v1";

fn resource_claim(request: &Value) -> Value {
    object(RESOURCE, "ResourceClaim", "a", json!({ "spec": { "devices": { "requests": [request] } } }))
}

async fn a_resource_claim_asks_for_one_device(s: &Setting) -> Result<()> {
    let path = s.group(RESOURCE, "resourceclaims");
    let body = resource_claim(&json!({ "name": "r", "exactly": { "deviceClassName": "gpu.example.com" } }));
    let wanted = json!({ "deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1 });
    let answer = s.server.post(&path, &body).await?.expect(201)?;
    answer.expect_value("/spec/devices/requests/0/exactly", wanted)?.expect_value("/status", json!({}))?;
    let first = json!([{ "name": "x", "deviceClassName": "gpu.example.com" }]);
    let mut body = resource_claim(&json!({ "name": "r", "firstAvailable": first }));
    body["metadata"]["name"] = json!("b");
    let answer = s.server.post(&path, &body).await?.expect(201)?;
    answer
        .expect_value("/spec/devices/requests/0/firstAvailable/0/allocationMode", "ExactCount")?
        .expect_value("/spec/devices/requests/0/firstAvailable/0/count", 1)?;
    Ok(())
}

async fn a_resource_claim_asks_for_something(s: &Setting) -> Result<()> {
    let path = s.group(RESOURCE, "resourceclaims");
    let answer = s.server.post(&path, &resource_claim(&json!({ "name": "r" }))).await?;
    answer.expect_invalid(
        "FieldValueRequired",
        "spec.devices.requests[0]",
        "exactly one of `exactly` or `firstAvailable` is required",
    )?;
    let all = json!({ "deviceClassName": "gpu.example.com", "allocationMode": "All", "count": 2 });
    let answer = s.server.post(&path, &resource_claim(&json!({ "name": "r", "exactly": all }))).await?;
    answer.expect_invalid(
        "FieldValueInvalid",
        "spec.devices.requests[0].exactly.count",
        "must not be specified when allocationMode is 'All'",
    )?;
    Ok(())
}

async fn the_spec_of_a_resource_claim_is_fixed(s: &Setting) -> Result<()> {
    let body = resource_claim(&json!({ "name": "r", "exactly": { "deviceClassName": "gpu.example.com" } }));
    s.server.post(&s.group(RESOURCE, "resourceclaims"), &body).await?.expect(201)?;
    let request = json!({ "name": "other", "exactly": { "deviceClassName": "gpu.example.com" } });
    let patch = json!({ "spec": { "devices": { "requests": [request] } } });
    let answer = s.server.patch(Merge, &s.group(RESOURCE, "resourceclaims/a"), &patch).await?;
    answer.expect_invalid("FieldValueInvalid", "spec", "field is immutable")?;
    Ok(())
}

async fn a_resource_claim_template_gets_the_same_defaults(s: &Setting) -> Result<()> {
    let request = json!({ "name": "r", "exactly": { "deviceClassName": "gpu.example.com" } });
    let spec = json!({ "spec": { "spec": { "devices": { "requests": [request] } } } });
    let body = object(RESOURCE, "ResourceClaimTemplate", "a", spec);
    let answer = s.server.post(&s.group(RESOURCE, "resourceclaimtemplates"), &body).await?.expect(201)?;
    answer
        .expect_value("/spec/spec/devices/requests/0/exactly/count", 1)?
        .expect_value("/spec/spec/devices/requests/0/exactly/allocationMode", "ExactCount")?
        .expect_value("/spec/metadata", json!({}))?;
    Ok(())
}

async fn a_device_class_checks_its_expression(s: &Setting) -> Result<()> {
    let path = format!("/apis/{RESOURCE}/deviceclasses");
    let body = |expression: &str| {
        let selectors = json!({ "selectors": [{ "cel": { "expression": expression } }] });
        object(RESOURCE, "DeviceClass", &format!("{}.example.com", s.namespace), json!({ "spec": selectors }))
    };
    let answer = s.server.post(&path, &body("device.driver ==")).await?;
    answer.expect_invalid("FieldValueInvalid", "spec.selectors[0].cel.expression", "compilation failed")?;
    let answer = s.server.post(&path, &body("device.driver == 'gpu.example.com'")).await?.expect(201)?;
    answer.expect_value("/metadata/generation", 1)?;
    Ok(())
}

async fn a_resource_slice_belongs_to_a_node(s: &Setting) -> Result<()> {
    let path = format!("/apis/{RESOURCE}/resourceslices");
    let body = |spec: Value| object(RESOURCE, "ResourceSlice", &s.namespace, json!({ "spec": spec }));
    let pool = json!({ "name": "p", "generation": 1, "resourceSliceCount": 1 });
    let answer = s.server.post(&path, &body(json!({ "driver": "gpu.example.com", "pool": pool }))).await?;
    answer.expect_invalid(
        "FieldValueRequired",
        "spec",
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
    )?;
    let empty = json!({ "name": "p", "generation": 1, "resourceSliceCount": 0 });
    let spec = json!({ "driver": "gpu.example.com", "nodeName": "n", "pool": empty });
    let answer = s.server.post(&path, &body(spec)).await?;
    answer.expect_invalid("FieldValueInvalid", "spec.pool.resourceSliceCount", "must be greater than zero")?;
    let device = json!({
        "name": "gpu-0", "attributes": { "model": { "string": "T4" } }, "capacity": { "memory": { "value": "16384Mi" } },
    });
    let spec = json!({ "driver": "gpu.example.com", "nodeName": "n", "pool": pool, "devices": [device] });
    let answer = s.server.post(&path, &body(spec)).await?.expect(201)?;
    answer.expect_value("/spec/devices/0/capacity/memory/value", "16Gi")?.expect_value("/metadata/generation", 1)?;
    let list = s.server.get(&format!("{path}?fieldSelector=spec.nodeName%3Dn,spec.driver%3Dgpu.example.com")).await?;
    ensure!(list.expect(200)?.json["items"].as_array().is_some_and(|items| !items.is_empty()));
    Ok(())
}

async fn a_pod_can_use_only_its_own_claims(s: &Setting) -> Result<()> {
    let container = json!({ "name": "main", "image": "i:1", "resources": { "claims": [{ "name": "gpu" }] } });
    let mut body = object("v1", "Pod", "a", json!({ "spec": { "containers": [container] } }));
    let answer = s.server.post(&s.core("pods"), &body).await?;
    answer.expect_invalid(
        "FieldValueNotFound",
        "spec.containers[0].resources.claims[0]",
        "must be one of the names in pod.spec.resourceClaims which is empty",
    )?;
    body["spec"]["resourceClaims"] = json!([{ "name": "gpu", "resourceClaimName": "a" }]);
    let answer = s.server.post(&s.core("pods"), &body).await?.expect(201)?;
    answer.expect_value("/spec/resourceClaims/0/resourceClaimName", "a")?;
    Ok(())
}
