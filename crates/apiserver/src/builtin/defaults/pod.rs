//! Defaults of pods and pod templates.

use serde_json::{Value, json};

use super::rules::{Constant, Rule, When, apply};
use crate::builtin::access::{Object, Read, Write};
use crate::builtin::quantity::Quantity;
use crate::builtin::validation::resources::{aggregate, is_hugepages, is_overcommit_allowed, is_pod_level};

use Constant::{EmptyObject, Flag, Number, Text};
use When::{Missing, Zero};

/// Where a kind keeps pod templates.
pub(super) fn templates(group: &str, kind: &str) -> &'static [&'static str] {
    match (group, kind) {
        ("", "PodTemplate") => &["template"],
        ("", "ReplicationController")
        | ("apps", "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet")
        | ("batch", "Job") => &["spec.template"],
        ("batch", "CronJob") => &["spec.jobTemplate.spec.template"],
        _ => &[],
    }
}

/// Defaults of the template at a path. A template that is missing where it is required gets the empty metadata and spec that Go
/// would encode, so that validation complains of what is missing in it.
pub(super) fn template_defaults(object: &mut Value, path: &str) {
    if let Some(template) = object.object_at(path) {
        template.object_at("metadata");
        if let Some(spec) = template.object_at("spec") {
            pod_spec(spec);
        }
    }
}

/// Defaults of a pod: those of its spec, and some that templates do not get.
pub(super) fn pod_defaults(object: &mut Value) {
    let Some(spec) = object.object_at("spec") else { return };
    pod_spec(spec);
    spec.set_if_missing("enableServiceLinks", true);
    let host_network = spec.flag("hostNetwork");
    for list in ["containers", "initContainers"] {
        for container in spec.elements(list) {
            requests_from_limits(container);
            if host_network {
                host_ports(container);
            }
        }
    }
    pod_level_resources(spec);
    pod_addresses(object);
}

/// Defaults of one source of a volume, by the name of the source.
fn volume_rules(source: &str) -> &'static [Rule] {
    match source {
        "secret" | "configMap" => &[("defaultMode", Missing, Number(0o644))],
        "downwardAPI" => &[
            ("defaultMode", Missing, Number(0o644)),
            ("items[].fieldRef?.apiVersion", Zero, Text("v1")),
            ("items[].resourceFieldRef?.divisor", Missing, Text("0")),
        ],
        "projected" => &[
            ("defaultMode", Missing, Number(0o644)),
            ("sources[].downwardAPI?.items[].fieldRef?.apiVersion", Zero, Text("v1")),
            ("sources[].serviceAccountToken?.expirationSeconds", Missing, Number(3600)),
        ],
        "hostPath" => &[("type", Missing, Text(""))],
        "ephemeral" => &[
            ("volumeClaimTemplate?.metadata", Missing, EmptyObject),
            ("volumeClaimTemplate?.spec.volumeMode", Missing, Text("Filesystem")),
        ],
        "iscsi" => &[("iscsiInterface", Zero, Text("default"))],
        "rbd" => {
            &[("pool", Zero, Text("rbd")), ("user", Zero, Text("admin")), ("keyring", Zero, Text("/etc/ceph/keyring"))]
        }
        "azureDisk" => &[
            ("cachingMode", Missing, Text("ReadWrite")),
            ("fsType", Missing, Text("ext4")),
            ("readOnly", Missing, Flag(false)),
            ("kind", Missing, Text("Shared")),
        ],
        "scaleIO" => &[("storageMode", Zero, Text("ThinProvisioned")), ("fsType", Zero, Text("xfs"))],
        _ => &[],
    }
}

const PROBE: &[Rule] = &[
    ("timeoutSeconds", Zero, Number(1)),
    ("periodSeconds", Zero, Number(10)),
    ("successThreshold", Zero, Number(1)),
    ("failureThreshold", Zero, Number(3)),
    ("httpGet?.path", Zero, Text("/")),
    ("httpGet?.scheme", Zero, Text("HTTP")),
    ("grpc?.service", Missing, Text("")),
];

const LIFECYCLE: &[Rule] = &[
    ("postStart?.httpGet?.path", Zero, Text("/")),
    ("postStart?.httpGet?.scheme", Zero, Text("HTTP")),
    ("preStop?.httpGet?.path", Zero, Text("/")),
    ("preStop?.httpGet?.scheme", Zero, Text("HTTP")),
];

fn pod_spec(spec: &mut Object) {
    spec.set_if_zero("dnsPolicy", "ClusterFirst");
    spec.set_if_zero("restartPolicy", "Always");
    spec.set_if_zero("schedulerName", "default-scheduler");
    spec.object_at("securityContext");
    spec.set_if_missing("terminationGracePeriodSeconds", 30);
    service_account(spec);
    for volume in spec.elements("volumes") {
        volume_defaults(volume);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in spec.elements(list) {
            container_defaults(container);
        }
    }
}

/// The old field `serviceAccount` and the new one always say the same.
fn service_account(spec: &mut Object) {
    let name = match spec.text("serviceAccountName") {
        "" => spec.text("serviceAccount"),
        name => name,
    };
    if !name.is_empty() {
        let name = name.to_owned();
        spec.set("serviceAccount", name.as_str());
        spec.set("serviceAccountName", name);
    }
}

fn volume_defaults(volume: &mut Value) {
    if volume.as_object().is_some_and(|volume| volume.keys().all(|key| key == "name")) {
        volume.set("emptyDir", json!({}));
    }
    let Some(volume) = volume.as_object_mut() else { return };
    for (name, source) in volume.iter_mut() {
        if source.is_object() {
            apply(volume_rules(name), source);
        }
    }
}

fn container_defaults(value: &mut Value) {
    let Some(container) = value.as_object_mut() else { return };
    if container.text("imagePullPolicy").is_empty() {
        let policy = pull_policy(container.text("image"));
        container.set_if_zero("imagePullPolicy", policy);
    }
    container.set_if_zero("terminationMessagePath", "/dev/termination-log");
    container.set_if_zero("terminationMessagePolicy", "File");
    container.object_at("resources");
    for port in container.elements("ports") {
        port.set_if_zero("protocol", "TCP");
    }
    for variable in container.elements("env") {
        if variable.has("valueFrom.fieldRef") {
            variable.set_if_zero("valueFrom.fieldRef.apiVersion", "v1");
        } else if variable.has("valueFrom.resourceFieldRef") {
            variable.set_if_missing("valueFrom.resourceFieldRef.divisor", "0");
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe).filter(|probe| probe.is_object()) {
            apply(PROBE, probe);
        }
    }
    if let Some(lifecycle) = container.get_mut("lifecycle").filter(|lifecycle| lifecycle.is_object()) {
        apply(LIFECYCLE, lifecycle);
    }
}

/// `Always` for the tag `latest`, also when it is only implied; a name that cannot be parsed has no tag.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last_slash = name.rfind('/').map_or(0, |slash| slash + 1);
    let (repository, tag) = match name.get(last_slash..).and_then(|last| last.rfind(':')) {
        Some(colon) => (name.get(..last_slash + colon).unwrap_or(""), name.get(last_slash + colon + 1..)),
        None => (name, None),
    };
    // the part before the first slash may be a host, where capitals are fine
    let path = repository.split_once('/').map_or(repository, |(_, path)| path);
    let parses = !repository.is_empty()
        && path.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-/".contains(&byte));
    match (parses, tag, digest) {
        (true, Some("latest"), _) | (true, None, None) => "Always",
        _ => "IfNotPresent",
    }
}

fn requests_from_limits(container: &mut Value) {
    let Some(resources) = container.existing("resources") else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if let Some(requests) = resources.object_at("requests") {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

fn host_ports(container: &mut Value) {
    for port in container.elements("ports") {
        if let Some(number) = port.integer("containerPort") {
            port.set_if_zero("hostPort", number);
        }
    }
}

/// Requests (and limits of huge pages) of the pod as a whole, only when some are given already.
fn pod_level_resources(spec: &mut Object) {
    if !spec.get("resources").is_some_and(Value::is_object) {
        return;
    }
    let quantities = |spec: &Object, which: &str| -> Vec<(String, Quantity)> {
        aggregate(spec, which).into_iter().filter(|(name, _)| is_pod_level(name)).collect()
    };
    let has_any = !spec.map("resources.limits").is_empty() || !spec.map("resources.requests").is_empty();
    if has_any {
        let limits = quantities(spec, "limits");
        let requested = spec.map("resources.requests").clone();
        fill(
            spec,
            "limits",
            limits.into_iter().filter(|(name, _)| is_hugepages(name) && !requested.contains_key(name)),
        );
    }
    let limits = spec.map("resources.limits").clone();
    if limits.is_empty() {
        return;
    }
    let requests = quantities(spec, "requests");
    fill(spec, "requests", requests.into_iter().filter(|(name, _)| is_overcommit_allowed(name)));
    let Some(requests) = spec.existing("resources").and_then(|resources| resources.object_at("requests")) else {
        return;
    };
    for (name, limit) in limits {
        if is_pod_level(&name) {
            requests.entry(name).or_insert(limit);
        }
    }
}

fn fill(spec: &mut Object, which: &str, quantities: impl Iterator<Item = (String, Quantity)>) {
    let mut quantities = quantities.peekable();
    if quantities.peek().is_none() {
        return;
    }
    let Some(list) = spec.existing("resources").and_then(|resources| resources.object_at(which)) else { return };
    for (name, quantity) in quantities {
        list.entry(name).or_insert_with(|| quantity.canonical().into());
    }
}

/// `podIP` is the first of `podIPs`, whichever of the two was written.
fn pod_addresses(object: &mut Value) {
    let address = object.text("status.podIP").to_owned();
    match object.list("status.podIPs").first() {
        None if !address.is_empty() => object.set("status.podIPs", json!([{ "ip": address }])),
        Some(first) => {
            let first = first.text("ip").to_owned();
            if !first.is_empty() && first != address {
                object.set("status.podIP", first);
            }
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pull_policy_follows_the_tag() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.27", "IfNotPresent"),
            ("registry.example:5000/team/app", "Always"),
            ("registry.example:5000/team/app:v1", "IfNotPresent"),
            ("nginx@sha256:0123", "IfNotPresent"),
            ("nginx:latest@sha256:0123", "Always"),
            ("Not A Name", "IfNotPresent"),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }
}
