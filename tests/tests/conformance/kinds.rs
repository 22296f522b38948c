//! The other kinds: services, claims, budgets, roles, leases, nodes, priorities, secrets.

use anyhow::{Result, ensure};
use kai_tests::harness::Case;
use kai_tests::request::PatchKind::{Merge, Strategic};
use serde_json::{Value, json};

use crate::conformance;
use crate::setting::Setting;

pub const CASES: &[Case] = conformance![
    a_service_gets_an_address_and_defaults,
    a_headless_service_has_no_address,
    a_service_needs_a_label_for_a_name,
    several_ports_of_a_service_need_names,
    a_service_needs_ports,
    the_address_of_a_service_is_fixed,
    a_volume_claim_waits_for_a_volume,
    a_volume_claim_needs_access_and_size,
    the_spec_of_a_volume_claim_is_fixed,
    a_budget_starts_at_zero,
    a_budget_has_one_measure,
    a_role_needs_verbs,
    a_role_takes_no_paths,
    a_role_binding_gets_its_groups,
    the_role_of_a_binding_is_fixed,
    a_lease_keeps_microseconds,
    a_lease_time_without_microseconds_is_400,
    a_lease_of_no_duration_is_422,
    a_node_offers_what_it_has,
    a_node_keeps_its_status_on_update,
    the_addresses_of_a_node_are_fixed,
    taints_are_checked,
    a_priority_class_gets_its_policy,
    a_priority_class_is_fixed,
    priorities_have_a_ceiling,
    system_priorities_are_reserved,
    an_immutable_config_map_stays,
    a_secret_keeps_its_type,
    a_secret_of_a_known_type_needs_its_keys,
    a_secret_that_is_no_base64_is_400,
    a_storage_class_gets_its_defaults,
    a_runtime_handler_is_fixed,
    a_resource_quota_starts_without_status,
    an_endpoint_slice_checks_its_addresses,
];

pub fn object(api_version: &str, kind: &str, name: &str, fields: Value) -> Value {
    let mut body = json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name } });
    if let (Value::Object(body), Value::Object(fields)) = (&mut body, fields) {
        body.extend(fields);
    }
    body
}

fn service(name: &str, spec: &Value) -> Value {
    object("v1", "Service", name, json!({ "spec": spec }))
}

async fn a_service_gets_an_address_and_defaults(s: &Setting) -> Result<()> {
    let body = service("a", &json!({ "selector": { "a": "b" }, "ports": [{ "port": 80 }] }));
    let answer = s.server.post(&s.core("services"), &body).await?.expect(201)?;
    let address = answer.string("/spec/clusterIP")?;
    ensure!(address.starts_with("10."), "{address}");
    answer
        .expect_value("/spec/clusterIPs", json!([address]))?
        .expect_value("/spec/ports", json!([{ "port": 80, "protocol": "TCP", "targetPort": 80 }]))?
        .expect_value("/spec/type", "ClusterIP")?
        .expect_value("/spec/sessionAffinity", "None")?
        .expect_value("/spec/ipFamilies", json!(["IPv4"]))?
        .expect_value("/spec/ipFamilyPolicy", "SingleStack")?
        .expect_value("/spec/internalTrafficPolicy", "Cluster")?
        .expect_value("/status", json!({ "loadBalancer": {} }))?;
    Ok(())
}

async fn a_headless_service_has_no_address(s: &Setting) -> Result<()> {
    let body = service("a", &json!({ "clusterIP": "None", "selector": { "a": "b" } }));
    let answer = s.server.post(&s.core("services"), &body).await?.expect(201)?;
    answer.expect_value("/spec/clusterIP", "None")?.expect_value("/spec/clusterIPs", json!(["None"]))?;
    Ok(())
}

async fn a_service_needs_a_label_for_a_name(s: &Setting) -> Result<()> {
    for name in ["Capital", "1-digit", "with.dot"] {
        let answer = s.server.post(&s.core("services"), &service(name, &json!({ "ports": [{ "port": 80 }] }))).await?;
        answer.expect_invalid("FieldValueInvalid", "metadata.name", "a DNS-1035 label must consist of")?;
    }
    Ok(())
}

async fn several_ports_of_a_service_need_names(s: &Setting) -> Result<()> {
    let body = service("a", &json!({ "ports": [{ "port": 80 }, { "port": 81 }] }));
    s.server
        .post(&s.core("services"), &body)
        .await?
        .expect_failure(422, "Invalid")?
        .expect_cause("FieldValueRequired", "spec.ports[0].name")?
        .expect_cause("FieldValueRequired", "spec.ports[1].name")?;
    Ok(())
}

async fn a_service_needs_ports(s: &Setting) -> Result<()> {
    let answer = s.server.post(&s.core("services"), &service("a", &json!({}))).await?;
    answer.expect_invalid("FieldValueRequired", "spec.ports", "Required value")?;
    let answer = s.server.post(&s.core("services"), &service("a", &json!({ "ports": [{ "port": 0 }] }))).await?;
    answer.expect_invalid("FieldValueInvalid", "spec.ports[0].port", "must be between 1 and 65535, inclusive")?;
    Ok(())
}

async fn the_address_of_a_service_is_fixed(s: &Setting) -> Result<()> {
    s.server.post(&s.core("services"), &service("a", &json!({ "ports": [{ "port": 80 }] }))).await?.expect(201)?;
    let patch = json!({ "spec": { "clusterIP": "10.0.0.9" } });
    let answer = s.server.patch(Merge, &s.core("services/a"), &patch).await?;
    answer.expect_invalid("FieldValueInvalid", "spec.clusterIPs[0]", "may not change once set")?;
    Ok(())
}

fn claim(spec: &Value) -> Value {
    object("v1", "PersistentVolumeClaim", "a", json!({ "spec": spec }))
}

async fn a_volume_claim_waits_for_a_volume(s: &Setting) -> Result<()> {
    let body = claim(&json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } }));
    let answer = s.server.post(&s.core("persistentvolumeclaims"), &body).await?.expect(201)?;
    answer.expect_value("/spec/volumeMode", "Filesystem")?.expect_value("/status", json!({ "phase": "Pending" }))?;
    Ok(())
}

async fn a_volume_claim_needs_access_and_size(s: &Setting) -> Result<()> {
    let path = s.core("persistentvolumeclaims");
    let answer = s.server.post(&path, &claim(&json!({ "resources": { "requests": { "storage": "1Gi" } } }))).await?;
    answer.expect_invalid("FieldValueRequired", "spec.accessModes", "at least 1 access mode is required")?;
    let answer = s.server.post(&path, &claim(&json!({ "accessModes": ["ReadWriteOnce"] }))).await?;
    answer.expect_invalid("FieldValueRequired", "spec.resources[storage]", "Required value")?;
    Ok(())
}

async fn the_spec_of_a_volume_claim_is_fixed(s: &Setting) -> Result<()> {
    let body = claim(&json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } }));
    s.server.post(&s.core("persistentvolumeclaims"), &body).await?.expect(201)?;
    let patch = json!({ "spec": { "accessModes": ["ReadWriteMany"] } });
    let answer = s.server.patch(Merge, &s.core("persistentvolumeclaims/a"), &patch).await?;
    answer.expect_invalid(
        "FieldValueForbidden",
        "spec",
        "spec is immutable after creation except resources.requests",
    )?;
    Ok(())
}

fn budget(spec: &Value) -> Value {
    object("policy/v1", "PodDisruptionBudget", "a", json!({ "spec": spec }))
}

async fn a_budget_starts_at_zero(s: &Setting) -> Result<()> {
    let body = budget(&json!({ "maxUnavailable": "30%", "selector": { "matchLabels": { "a": "b" } } }));
    let answer = s.server.post(&s.group("policy/v1", "poddisruptionbudgets"), &body).await?.expect(201)?;
    let status = json!({ "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0 });
    answer.expect_value("/status", status)?.expect_value("/metadata/generation", 1)?;
    Ok(())
}

async fn a_budget_has_one_measure(s: &Setting) -> Result<()> {
    let path = s.group("policy/v1", "poddisruptionbudgets");
    let both = budget(&json!({ "maxUnavailable": 1, "minAvailable": 1, "selector": {} }));
    let answer = s.server.post(&path, &both).await?;
    answer.expect_invalid("FieldValueInvalid", "spec", "minAvailable and maxUnavailable cannot be both set")?;
    let answer = s.server.post(&path, &budget(&json!({ "maxUnavailable": "200%", "selector": {} }))).await?;
    answer.expect_invalid("FieldValueInvalid", "spec.maxUnavailable", "must not be greater than 100%")?;
    let answer = s.server.post(&path, &budget(&json!({ "minAvailable": -1, "selector": {} }))).await?;
    answer.expect_invalid("FieldValueInvalid", "spec.minAvailable", "must be greater than or equal to 0")?;
    Ok(())
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

async fn a_role_needs_verbs(s: &Setting) -> Result<()> {
    let body = object(RBAC, "Role", "a", json!({ "rules": [{ "apiGroups": [""], "resources": ["pods"] }] }));
    let answer = s.server.post(&s.group(RBAC, "roles"), &body).await?;
    answer.expect_invalid("FieldValueRequired", "rules[0].verbs", "verbs must contain at least one value")?;
    Ok(())
}

async fn a_role_takes_no_paths(s: &Setting) -> Result<()> {
    let body = object(RBAC, "Role", "a", json!({ "rules": [{ "nonResourceURLs": ["/x"], "verbs": ["get"] }] }));
    let answer = s.server.post(&s.group(RBAC, "roles"), &body).await?;
    answer.expect_invalid(
        "FieldValueInvalid",
        "rules[0].nonResourceURLs",
        "namespaced rules cannot apply to non-resource URLs",
    )?;
    Ok(())
}

fn role_binding() -> Value {
    object(
        RBAC,
        "RoleBinding",
        "a",
        json!({
            "roleRef": { "kind": "Role", "name": "r" },
            "subjects": [
                { "kind": "ServiceAccount", "name": "default", "namespace": "default" },
                { "kind": "User", "name": "u" },
                { "kind": "Group", "name": "g" },
            ],
        }),
    )
}

async fn a_role_binding_gets_its_groups(s: &Setting) -> Result<()> {
    let answer = s.server.post(&s.group(RBAC, "rolebindings"), &role_binding()).await?.expect(201)?;
    answer
        .expect_value("/roleRef", json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r" }))?
        .expect_value("/subjects/0/apiGroup", Value::Null)?
        .expect_value("/subjects/1/apiGroup", "rbac.authorization.k8s.io")?
        .expect_value("/subjects/2/apiGroup", "rbac.authorization.k8s.io")?;
    let mut body = role_binding();
    body["metadata"]["name"] = json!("b");
    body["roleRef"]["kind"] = json!("Nothing");
    let answer = s.server.post(&s.group(RBAC, "rolebindings"), &body).await?;
    answer.expect_invalid(
        "FieldValueNotSupported",
        "roleRef.kind",
        "Unsupported value: \"Nothing\": supported values: \"Role\", \"ClusterRole\"",
    )?;
    Ok(())
}

async fn the_role_of_a_binding_is_fixed(s: &Setting) -> Result<()> {
    s.server.post(&s.group(RBAC, "rolebindings"), &role_binding()).await?.expect(201)?;
    let patch = json!({ "roleRef": { "name": "other" } });
    let answer = s.server.patch(Merge, &s.group(RBAC, "rolebindings/a"), &patch).await?;
    answer.expect_invalid("FieldValueInvalid", "roleRef", "cannot change roleRef")?;
    Ok(())
}

const COORDINATION: &str = "coordination.k8s.io/v1";

fn lease(spec: &Value) -> Value {
    object(COORDINATION, "Lease", "a", json!({ "spec": spec }))
}

async fn a_lease_keeps_microseconds(s: &Setting) -> Result<()> {
    let spec = json!({ "holderIdentity": "h", "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.000000Z" });
    let answer = s.server.post(&s.group(COORDINATION, "leases"), &lease(&spec)).await?.expect(201)?;
    answer.expect_value("/spec", spec)?;
    let patch = json!({ "spec": { "renewTime": "2026-01-02T03:04:05.123456Z" } });
    let patched = s.server.patch(Merge, &s.group(COORDINATION, "leases/a"), &patch).await?.expect(200)?;
    patched.expect_value("/spec/renewTime", "2026-01-02T03:04:05.123456Z")?;
    Ok(())
}

async fn a_lease_time_without_microseconds_is_400(s: &Setting) -> Result<()> {
    let body = lease(&json!({ "renewTime": "2026-01-02T03:04:05Z" }));
    let answer = s.server.post(&s.group(COORDINATION, "leases"), &body).await?.expect_failure(400, "BadRequest")?;
    answer.expect_message(
        "Lease in version \"v1\" cannot be handled as a Lease: parsing time \"2026-01-02T03:04:05Z\"",
    )?;
    Ok(())
}

async fn a_lease_of_no_duration_is_422(s: &Setting) -> Result<()> {
    let answer = s.server.post(&s.group(COORDINATION, "leases"), &lease(&json!({ "leaseDurationSeconds": 0 }))).await?;
    answer.expect_invalid("FieldValueInvalid", "spec.leaseDurationSeconds", "must be greater than 0")?;
    let answer = s.server.post(&s.group(COORDINATION, "leases"), &lease(&json!({ "leaseTransitions": -1 }))).await?;
    answer.expect_invalid("FieldValueInvalid", "spec.leaseTransitions", "must be greater than or equal to 0")?;
    Ok(())
}

/// A node that no kubelet keeps alive, closed to pods; the case deletes it.
async fn with_node(s: &Setting, body: impl AsyncFnOnce(&str) -> Result<()>) -> Result<()> {
    let node = object("v1", "Node", &s.namespace, json!({ "spec": { "unschedulable": true } }));
    s.server.post("/api/v1/nodes", &node).await?.expect(201)?;
    let path = format!("/api/v1/nodes/{}", s.namespace);
    let result = body(&path).await;
    s.server.delete(&path, &Value::Null).await?.expect(200)?;
    result
}

async fn a_node_offers_what_it_has(s: &Setting) -> Result<()> {
    with_node(s, async |path| {
        let status = json!({ "status": { "capacity": { "cpu": "4", "example.com/device": "2" } } });
        let answer = s.server.patch(Strategic, &format!("{path}/status"), &status).await?.expect(200)?;
        answer
            .expect_value("/status/capacity", json!({ "cpu": "4", "example.com/device": "2" }))?
            .expect_value("/status/allocatable", json!({ "cpu": "4", "example.com/device": "2" }))?
            .expect_value("/status/daemonEndpoints", json!({ "kubeletEndpoint": { "Port": 0 } }))?
            .expect_value("/status/nodeInfo/kubeletVersion", "")?;
        Ok(())
    })
    .await
}

async fn a_node_keeps_its_status_on_update(s: &Setting) -> Result<()> {
    with_node(s, async |path| {
        let status = json!({ "status": { "capacity": { "cpu": "4" } }, "spec": { "providerID": "ignored" } });
        let answer = s.server.patch(Strategic, &format!("{path}/status"), &status).await?.expect(200)?;
        answer.expect_value("/spec/providerID", Value::Null)?;
        let both = json!({ "status": { "capacity": { "cpu": "8" } }, "metadata": { "labels": { "x": "y" } } });
        let answer = s.server.patch(Merge, path, &both).await?.expect(200)?;
        answer.expect_value("/status/capacity/cpu", "4")?.expect_value("/metadata/labels/x", "y")?;
        Ok(())
    })
    .await
}

async fn the_addresses_of_a_node_are_fixed(s: &Setting) -> Result<()> {
    with_node(s, async |path| {
        let patch = json!({ "spec": { "podCIDR": "10.1.0.0/24", "providerID": "kai://one" } });
        let answer = s.server.patch(Merge, path, &patch).await?.expect(200)?;
        answer.expect_value("/spec/podCIDRs", json!(["10.1.0.0/24"]))?;
        let patch = json!({ "spec": { "podCIDR": "10.2.0.0/24", "podCIDRs": ["10.2.0.0/24"] } });
        let answer = s.server.patch(Merge, path, &patch).await?;
        answer.expect_invalid(
            "FieldValueForbidden",
            "spec.podCIDRs",
            "node updates may not change podCIDR except from \"\" to valid",
        )?;
        let answer = s.server.patch(Merge, path, &json!({ "spec": { "providerID": "kai://two" } })).await?;
        answer.expect_invalid(
            "FieldValueForbidden",
            "spec.providerID",
            "node updates may not change providerID except from \"\" to valid",
        )?;
        Ok(())
    })
    .await
}

async fn taints_are_checked(s: &Setting) -> Result<()> {
    with_node(s, async |path| {
        let patch = json!({ "spec": { "taints": [{ "key": "a", "effect": "Bogus" }] } });
        s.server.patch(Merge, path, &patch).await?.expect_invalid(
            "FieldValueNotSupported",
            "metadata.taints[0].effect",
            "supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
        )?;
        let taint = json!({ "key": "a", "effect": "NoSchedule" });
        let patch = json!({ "spec": { "taints": [taint, taint] } });
        s.server.patch(Merge, path, &patch).await?.expect_invalid(
            "FieldValueDuplicate",
            "metadata.taints[1]",
            "taints must be unique by key and effect pair",
        )?;
        Ok(())
    })
    .await
}

const PRIORITIES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

fn priority_class(name: &str, value: i64) -> Value {
    object("scheduling.k8s.io/v1", "PriorityClass", name, json!({ "value": value }))
}

async fn a_priority_class_gets_its_policy(s: &Setting) -> Result<()> {
    let answer = s.server.post(PRIORITIES, &priority_class(&s.namespace, 5)).await?.expect(201)?;
    answer
        .expect_value("/preemptionPolicy", "PreemptLowerPriority")?
        .expect_value("/globalDefault", Value::Null)?
        .expect_value("/metadata/generation", 1)?;
    Ok(())
}

async fn a_priority_class_is_fixed(s: &Setting) -> Result<()> {
    s.server.post(PRIORITIES, &priority_class(&s.namespace, 5)).await?.expect(201)?;
    let path = format!("{PRIORITIES}/{}", s.namespace);
    let answer = s.server.patch(Merge, &path, &json!({ "value": 6 })).await?;
    answer.expect_invalid("FieldValueForbidden", "value", "may not be changed in an update.")?;
    let answer = s.server.patch(Merge, &path, &json!({ "preemptionPolicy": "Never" })).await?;
    answer.expect_invalid("FieldValueInvalid", "preemptionPolicy", "field is immutable")?;
    s.server.patch(Merge, &path, &json!({ "description": "new" })).await?.expect(200)?;
    Ok(())
}

async fn priorities_have_a_ceiling(s: &Setting) -> Result<()> {
    let answer = s.server.post(PRIORITIES, &priority_class(&s.namespace, 1_000_000_001)).await?;
    answer.expect_invalid(
        "FieldValueForbidden",
        "value",
        "maximum allowed value of a user defined priority is 1000000000",
    )?;
    Ok(())
}

async fn system_priorities_are_reserved(s: &Setting) -> Result<()> {
    let answer = s.server.post(PRIORITIES, &priority_class("system-of-mine", 5)).await?;
    answer.expect_invalid(
        "FieldValueForbidden",
        "metadata.name",
        "priority class names with 'system-' prefix are reserved for system use only",
    )?;
    let critical = s.server.get(&format!("{PRIORITIES}/system-node-critical")).await?.expect(200)?;
    critical.expect_value("/value", 2_000_001_000)?;
    s.server.get(&format!("{PRIORITIES}/system-cluster-critical")).await?.expect_value("/value", 2_000_000_000)?;
    Ok(())
}

async fn an_immutable_config_map_stays(s: &Setting) -> Result<()> {
    let body = object("v1", "ConfigMap", "a", json!({ "immutable": true, "data": { "k": "v" } }));
    s.server.post(&s.core("configmaps"), &body).await?.expect(201)?;
    let path = s.core("configmaps/a");
    let message = "field is immutable when `immutable` is set";
    let answer = s.server.patch(Merge, &path, &json!({ "data": { "k": "w" } })).await?;
    answer.expect_invalid("FieldValueForbidden", "data", message)?;
    let answer = s.server.patch(Merge, &path, &json!({ "immutable": false })).await?;
    answer.expect_invalid("FieldValueForbidden", "immutable", message)?;
    s.server.patch(Merge, &path, &json!({ "metadata": { "labels": { "x": "y" } } })).await?.expect(200)?;
    Ok(())
}

async fn a_secret_keeps_its_type(s: &Setting) -> Result<()> {
    let body = object("v1", "Secret", "a", json!({ "data": { "k": "dg==" } }));
    s.server.post(&s.core("secrets"), &body).await?.expect(201)?.expect_value("/type", "Opaque")?;
    let answer = s.server.patch(Merge, &s.core("secrets/a"), &json!({ "type": "example.com/other" })).await?;
    answer.expect_invalid("FieldValueInvalid", "type", "field is immutable")?;
    Ok(())
}

async fn a_secret_of_a_known_type_needs_its_keys(s: &Setting) -> Result<()> {
    let body = object("v1", "Secret", "a", json!({ "type": "kubernetes.io/tls", "data": { "k": "dg==" } }));
    s.server
        .post(&s.core("secrets"), &body)
        .await?
        .expect_failure(422, "Invalid")?
        .expect_cause("FieldValueRequired", "data[tls.crt]")?
        .expect_cause("FieldValueRequired", "data[tls.key]")?;
    Ok(())
}

async fn a_secret_that_is_no_base64_is_400(s: &Setting) -> Result<()> {
    let body = object("v1", "Secret", "a", json!({ "data": { "k": "%%%" } }));
    let answer = s.server.post(&s.core("secrets"), &body).await?.expect_failure(400, "BadRequest")?;
    answer.expect_message(
        "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 0",
    )?;
    Ok(())
}

async fn a_storage_class_gets_its_defaults(s: &Setting) -> Result<()> {
    let body = object("storage.k8s.io/v1", "StorageClass", &s.namespace, json!({ "provisioner": "example.com/p" }));
    let answer = s.server.post("/apis/storage.k8s.io/v1/storageclasses", &body).await?.expect(201)?;
    answer.expect_value("/reclaimPolicy", "Delete")?.expect_value("/volumeBindingMode", "Immediate")?;
    Ok(())
}

async fn a_runtime_handler_is_fixed(s: &Setting) -> Result<()> {
    let path = "/apis/node.k8s.io/v1/runtimeclasses";
    let body = |handler: &str| object("node.k8s.io/v1", "RuntimeClass", &s.namespace, json!({ "handler": handler }));
    let answer = s.server.post(path, &body("BAD")).await?;
    answer.expect_invalid("FieldValueInvalid", "handler", "a lowercase RFC 1123 label must consist of")?;
    s.server.post(path, &body("one")).await?.expect(201)?;
    let answer = s.server.patch(Merge, &format!("{path}/{}", s.namespace), &json!({ "handler": "two" })).await?;
    answer.expect_invalid("FieldValueInvalid", "handler", "field is immutable")?;
    Ok(())
}

async fn a_resource_quota_starts_without_status(s: &Setting) -> Result<()> {
    let body = object("v1", "ResourceQuota", "a", json!({ "spec": { "hard": { "cpu": "1000m", "pods": "5" } } }));
    let answer = s.server.post(&s.core("resourcequotas"), &body).await?.expect(201)?;
    answer.expect_value("/spec/hard/cpu", "1")?.expect_value("/status", json!({}))?;
    Ok(())
}

async fn an_endpoint_slice_checks_its_addresses(s: &Setting) -> Result<()> {
    let body = |address: &str| {
        let fields = json!({
            "addressType": "IPv4", "endpoints": [{ "addresses": [address] }], "ports": [{ "port": 80 }],
        });
        object("discovery.k8s.io/v1", "EndpointSlice", "a", fields)
    };
    let path = s.group("discovery.k8s.io/v1", "endpointslices");
    let answer = s.server.post(&path, &body("nowhere")).await?.expect_failure(422, "Invalid")?;
    answer.expect_cause("FieldValueInvalid", "endpoints[0].addresses[0]")?;
    let answer = s.server.post(&path, &body("10.1.2.3")).await?.expect(201)?;
    answer
        .expect_value("/ports", json!([{ "name": "", "port": 80, "protocol": "TCP" }]))?
        .expect_value("/endpoints/0/addresses", json!(["10.1.2.3"]))?;
    Ok(())
}
