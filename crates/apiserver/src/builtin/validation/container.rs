//! Containers of a pod: names, images, ports, environment, mounts, probes.

use serde_json::Value;

use super::report::Report;
use super::resources::{NameRule, validate_requirements};
use super::security;
use super::volume::{contains_backstep, validate_descending_path};
use crate::builtin::access::{Read, is_empty};
use crate::builtin::field_path::Path;
use crate::builtin::format::{
    config_key, dns_label, dns_subdomain, environment_name, header_name, port_name, port_number, qualified_name,
};

/// What the containers of one pod share.
pub(super) struct Pod<'a> {
    /// The pod spec.
    pub(super) spec: &'a Value,
    /// Volumes that are valid, by name.
    pub(super) volumes: Vec<(&'a str, &'a Value)>,
    /// Names in `spec.resourceClaims`.
    pub(super) claims: Vec<&'a str>,
}

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const FIELD_PATHS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
/// Fields that only containers with a life of their own may have.
const NOT_EPHEMERAL: &[&str] = &[
    "ports",
    "resources",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "restartPolicy",
    "resizePolicy",
];

/// The main containers.
pub(super) fn validate_containers(report: &mut Report, path: Path<'_>, pod: &Pod<'_>) {
    let containers = pod.spec.list("containers");
    if containers.is_empty() {
        report.required(path, "");
        return;
    }
    let mut names: Vec<&str> = Vec::with_capacity(containers.len());
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        validate_common(report, path, container, pod);
        validate_unique_name(report, path, container, &mut names);
        validate_hooks(report, path, container, pod);
    }
    validate_host_ports(report, path, containers);
}

/// Init containers; those that are restarted always are side-cars and may have probes.
pub(super) fn validate_init_containers(report: &mut Report, path: Path<'_>, pod: &Pod<'_>) {
    let mut names: Vec<&str> = pod.spec.list("containers").iter().map(|container| container.text("name")).collect();
    for (index, container) in pod.spec.list("initContainers").iter().enumerate() {
        let indexed = path.index(index);
        validate_common(report, indexed, container, pod);
        validate_unique_name(report, indexed, container, &mut names);
        validate_host_ports(report, path, std::slice::from_ref(container));
        if container.text("restartPolicy") == "Always" {
            validate_hooks(report, indexed, container, pod);
            continue;
        }
        for hook in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.has(hook) {
                report
                    .forbidden(indexed.child(hook), "may not be set for init containers without restartPolicy=Always");
            }
        }
    }
}

/// Containers added to a running pod.
pub(super) fn validate_ephemeral_containers(report: &mut Report, path: Path<'_>, pod: &Pod<'_>) {
    let others = pod.spec.list("containers").iter().chain(pod.spec.list("initContainers"));
    let mut names: Vec<&str> = others.map(|container| container.text("name")).collect();
    let targets = names.clone();
    for (index, container) in pod.spec.list("ephemeralContainers").iter().enumerate() {
        let path = path.index(index);
        validate_common(report, path, container, pod);
        validate_unique_name(report, path, container, &mut names);
        let target = container.text("targetContainerName");
        if !target.is_empty() && !targets.contains(&target) {
            report.not_found(path.child("targetContainerName"), target, "");
        }
        for name in NOT_EPHEMERAL {
            if !is_empty(container.at(name)) {
                report.forbidden(path.child(name), "cannot be set for an Ephemeral Container");
            }
        }
        let mounts = path.child("volumeMounts");
        for (index, mount) in container.list("volumeMounts").iter().enumerate() {
            for name in ["subPath", "subPathExpr"] {
                if !mount.text(name).is_empty() {
                    report.forbidden(mounts.index(index).child(name), "cannot be set for an Ephemeral Container");
                }
            }
        }
    }
}

fn validate_unique_name<'a>(report: &mut Report, path: Path<'_>, container: &'a Value, names: &mut Vec<&'a str>) {
    let name = container.text("name");
    if names.contains(&name) {
        report.duplicate(path.child("name"), name);
    } else {
        names.push(name);
    }
}

fn validate_common(report: &mut Report, path: Path<'_>, container: &Value, pod: &Pod<'_>) {
    let name = container.text("name");
    if name.is_empty() {
        report.required(path.child("name"), "");
    } else {
        report.complain(path.child("name"), name, dns_label(name));
    }
    if container.text("image").is_empty() {
        report.required(path.child("image"), "");
    }
    let policy = container.text("terminationMessagePolicy");
    report.one_of(path.child("terminationMessagePolicy"), policy, &["File", "FallbackToLogsOnError"]);
    validate_ports(report, path.child("ports"), container.list("ports"));
    validate_environment(report, path, container);
    validate_mounts(report, path.child("volumeMounts"), container, pod);
    validate_devices(report, path.child("volumeDevices"), container, pod);
    let policy = container.text("imagePullPolicy");
    report.one_of(path.child("imagePullPolicy"), policy, &["Always", "IfNotPresent", "Never"]);
    let resources = container.at("resources");
    validate_requirements(report, path.child("resources"), resources, NameRule::Container, &pod.claims);
    validate_resize(report, path.child("resizePolicy"), container.list("resizePolicy"), pod);
    security::validate_container(report, path.child("securityContext"), container.at("securityContext"), pod.spec);
}

fn validate_resize(report: &mut Report, path: Path<'_>, policies: &[Value], pod: &Pod<'_>) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, policy) in policies.iter().enumerate() {
        let (resource, restart) = (policy.text("resourceName"), policy.text("restartPolicy"));
        if seen.contains(&resource) {
            report.duplicate(path.index(index), resource);
        }
        seen.push(resource);
        report.one_of(path, resource, &["cpu", "memory"]);
        report.one_of(path, restart, &["NotRequired", "RestartContainer"]);
        if pod.spec.text("restartPolicy") == "Never" && restart != "NotRequired" {
            report.invalid(path, restart, "must be 'NotRequired' when `restartPolicy` is 'Never'");
        }
    }
}

fn validate_ports(report: &mut Report, path: Path<'_>, ports: &[Value]) {
    let mut names: Vec<&str> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            let complaints = port_name(name);
            if !complaints.is_empty() {
                report.complain(path.child("name"), name, complaints);
            } else if names.contains(&name) {
                report.duplicate(path.child("name"), name);
            } else {
                names.push(name);
            }
        }
        match port.count("containerPort") {
            0 => report.required(path.child("containerPort"), ""),
            number => report.complain_number(path.child("containerPort"), number, port_number(number)),
        }
        let host_port = port.count("hostPort");
        if host_port != 0 {
            report.complain_number(path.child("hostPort"), host_port, port_number(host_port));
        }
        report.one_of(path.child("protocol"), port.text("protocol"), PROTOCOLS);
    }
}

/// Two containers of a pod cannot have one port of the host.
fn validate_host_ports(report: &mut Report, path: Path<'_>, containers: &[Value]) {
    let mut seen: Vec<(&str, &str, i64)> = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        let ports = path.child("ports");
        for (index, port) in container.list("ports").iter().enumerate() {
            let key = (port.text("protocol"), port.text("hostIP"), port.count("hostPort"));
            if key.2 == 0 {
                continue;
            }
            if seen.contains(&key) {
                report.duplicate(ports.index(index).child("hostPort"), format!("{}/{}/{}", key.0, key.1, key.2));
            } else {
                seen.push(key);
            }
        }
    }
}

fn validate_environment(report: &mut Report, path: Path<'_>, container: &Value) {
    let env = path.child("env");
    for (index, variable) in container.list("env").iter().enumerate() {
        let path = env.index(index);
        let name = variable.text("name");
        if name.is_empty() {
            report.required(path.child("name"), "");
        } else {
            report.complain(path.child("name"), name, environment_name(name));
        }
        if variable.has("valueFrom") {
            validate_value_from(report, path.child("valueFrom"), variable);
        }
    }
    let from = path.child("envFrom");
    for (index, source) in container.list("envFrom").iter().enumerate() {
        let path = from.index(index);
        let prefix = source.text("prefix");
        if !prefix.is_empty() {
            report.complain(path.child("prefix"), prefix, environment_name(prefix));
        }
        let mut sources = 0;
        for kind in ["configMapRef", "secretRef"] {
            if source.has(kind) {
                sources += 1;
                let name = source.at(kind).text("name");
                if name.is_empty() {
                    report.required(path.child(kind).child("name"), "");
                } else {
                    report.complain(path.child(kind).child("name"), name, dns_subdomain(name));
                }
            }
        }
        match sources {
            0 => report.invalid(from, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => report.invalid(from, "", "may not have more than one field specified at a time"),
        }
    }
}

fn validate_value_from(report: &mut Report, path: Path<'_>, variable: &Value) {
    let source = variable.at("valueFrom");
    let mut sources = 0;
    if source.has("fieldRef") {
        sources += 1;
        validate_field_ref(report, path.child("fieldRef"), source.at("fieldRef"), FIELD_PATHS);
    }
    if source.has("resourceFieldRef") {
        sources += 1;
        let resource = source.text("resourceFieldRef.resource");
        validate_resource_field(report, path.child("resourceFieldRef"), resource);
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        if source.has(kind) {
            sources += 1;
            let (reference, path) = (source.at(kind), path.child(kind));
            let (name, key) = (reference.text("name"), reference.text("key"));
            report.complain(path.child("name"), name, dns_subdomain(name));
            if key.is_empty() {
                report.required(path.child("key"), "");
            } else {
                report.complain(path.child("key"), key, config_key(key));
            }
        }
    }
    if sources == 0 {
        let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`";
        report.invalid(path, "", why);
    } else if !variable.text("value").is_empty() {
        report.invalid(path, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        report.invalid(path, "", "may not have more than one field specified at a time");
    }
}

/// A field of the pod that a container may read.
pub(super) fn validate_field_ref(report: &mut Report, path: Path<'_>, reference: &Value, supported: &[&str]) {
    let field = reference.text("fieldPath");
    if field.is_empty() {
        report.required(path.child("fieldPath"), "");
        return;
    }
    let subscript = field.split_once("['").and_then(|(base, rest)| Some((base, rest.strip_suffix("']")?)));
    match subscript {
        Some(("metadata.annotations", key)) => report.complain(path, key, qualified_name(&key.to_lowercase())),
        Some(("metadata.labels", key)) => report.complain(path, key, qualified_name(key)),
        Some(_) => {
            let why = format!("error converting fieldPath: field label does not support subscript: {field}");
            report.invalid(path.child("fieldPath"), field, why);
        }
        None if supported.contains(&field) => {}
        None if FIELD_PATHS.contains(&field) || matches!(field, "metadata.labels" | "metadata.annotations") => {
            report.unsupported(path.child("fieldPath"), field, supported);
        }
        None => {
            let why = format!("error converting fieldPath: field label not supported: {field}");
            report.invalid(path.child("fieldPath"), field, why);
        }
    }
}

/// A resource of a container that it may read.
pub(super) fn validate_resource_field(report: &mut Report, path: Path<'_>, resource: &str) {
    if resource.is_empty() {
        report.required(path.child("resource"), "");
    } else if !RESOURCE_FIELDS.contains(&resource)
        && !resource.starts_with("requests.hugepages-")
        && !resource.starts_with("limits.hugepages-")
    {
        report.unsupported(path.child("resource"), resource, RESOURCE_FIELDS);
    }
}

fn validate_mounts(report: &mut Report, path: Path<'_>, container: &Value, pod: &Pod<'_>) {
    let mut points: Vec<&str> = Vec::new();
    for (index, mount) in container.list("volumeMounts").iter().enumerate() {
        let indexed = path.index(index);
        let (name, point) = (mount.text("name"), mount.text("mountPath"));
        if name.is_empty() {
            report.required(indexed.child("name"), "");
        }
        if !pod.volumes.iter().any(|(volume, _)| *volume == name) {
            report.not_found(indexed.child("name"), name, "");
        }
        if point.is_empty() {
            report.required(indexed.child("mountPath"), "");
        }
        if points.contains(&point) {
            report.invalid(indexed.child("mountPath"), point, "must be unique");
        }
        points.push(point);
        let devices = container.list("volumeDevices");
        if devices.iter().any(|device| device.text("name") == name) {
            report.invalid(indexed.child("name"), name, "must not already exist in volumeDevices");
        }
        if devices.iter().any(|device| device.text("devicePath") == point) {
            report.invalid(indexed.child("mountPath"), point, "must not already exist as a path in volumeDevices");
        }
        let (sub_path, expression) = (mount.text("subPath"), mount.text("subPathExpr"));
        validate_descending_path(report, path.child("subPath"), sub_path);
        if !expression.is_empty() && !sub_path.is_empty() {
            report.invalid(indexed.child("subPathExpr"), expression, "subPathExpr and subPath are mutually exclusive");
        }
        validate_descending_path(report, path.child("subPathExpr"), expression);
        let propagation = mount.at("mountPropagation");
        let modes = &["Bidirectional", "HostToContainer", "None"];
        report.optional_one_of(path.child("mountPropagation"), propagation, modes);
        if propagation == "Bidirectional" && !container.flag("securityContext.privileged") {
            let why = "Bidirectional mount propagation is available only to privileged containers";
            report.forbidden(path.child("mountPropagation"), why);
        }
    }
}

fn validate_devices(report: &mut Report, path: Path<'_>, container: &Value, pod: &Pod<'_>) {
    let (mut names, mut points): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (index, device) in container.list("volumeDevices").iter().enumerate() {
        let path = path.index(index);
        let (name, point) = (device.text("name"), device.text("devicePath"));
        if name.is_empty() {
            report.required(path.child("name"), "");
        }
        if names.contains(&name) {
            report.invalid(path.child("name"), name, "must be unique");
        }
        match pod.volumes.iter().find(|(volume, _)| *volume == name) {
            None => report.not_found(path.child("name"), name, ""),
            Some((_, volume)) if !volume.has("persistentVolumeClaim") && !volume.has("ephemeral") => {
                let why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                report.invalid(path.child("name"), name, why);
            }
            Some(_) => {}
        }
        if point.is_empty() {
            report.required(path.child("devicePath"), "");
        }
        if points.contains(&point) {
            report.invalid(path.child("devicePath"), point, "must be unique");
        }
        if contains_backstep(point) {
            report.invalid(path.child("devicePath"), point, "can not contain backsteps ('..')");
        }
        points.push(point);
        names.push(name);
    }
}

fn validate_hooks(report: &mut Report, path: Path<'_>, container: &Value, pod: &Pod<'_>) {
    let lifecycle = container.at("lifecycle");
    for hook in ["postStart", "preStop"] {
        if lifecycle.has(hook) {
            let lifecycle_path = path.child("lifecycle");
            validate_handler(report, lifecycle_path.child(hook), lifecycle.at(hook), pod);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let (probe, path) = (container.at(name), path.child(name));
        if !probe.is_object() {
            continue;
        }
        validate_handler(report, path, probe, pod);
        for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            report.nonnegative(path.child(field), probe.integer(field));
        }
        let grace = probe.integer("terminationGracePeriodSeconds");
        if let Some(seconds) = grace.filter(|seconds| *seconds <= 0) {
            report.invalid(path.child("terminationGracePeriodSeconds"), seconds, "must be greater than 0");
        }
        match (name, grace) {
            ("readinessProbe", Some(seconds)) => {
                let why = "must not be set for readinessProbes";
                report.invalid(path.child("terminationGracePeriodSeconds"), seconds, why);
            }
            ("readinessProbe", None) => {}
            _ if probe.count("successThreshold") != 1 => {
                report.invalid(path.child("successThreshold"), probe.count("successThreshold"), "must be 1");
            }
            _ => {}
        }
    }
}

fn validate_handler(report: &mut Report, path: Path<'_>, handler: &Value, pod: &Pod<'_>) {
    let given: Vec<&str> =
        ["exec", "httpGet", "tcpSocket", "grpc", "sleep"].into_iter().filter(|kind| handler.has(kind)).collect();
    let Some((first, others)) = given.split_first() else {
        report.required(path, "must specify a handler type");
        return;
    };
    for other in others {
        report.forbidden(path.child(other), "may not specify more than 1 handler type");
    }
    let (action, path) = (handler.at(first), path.child(first));
    match *first {
        "exec" if action.list("command").is_empty() => report.required(path.child("command"), ""),
        "httpGet" => {
            if action.text("path").is_empty() {
                report.required(path.child("path"), "");
            }
            validate_port(report, path.child("port"), action.at("port"));
            if !matches!(action.text("scheme"), "HTTP" | "HTTPS") {
                report.unsupported(path.child("scheme"), action.text("scheme"), &["HTTP", "HTTPS"]);
            }
            for header in action.list("httpHeaders") {
                report.complain(path.child("httpHeaders"), header.text("name"), header_name(header.text("name")));
            }
        }
        "tcpSocket" | "grpc" => validate_port(report, path.child("port"), action.at("port")),
        "sleep" => {
            let (seconds, grace) = (action.count("seconds"), pod.spec.count("terminationGracePeriodSeconds"));
            if seconds < 0 || seconds > grace {
                let why = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                report.invalid(path, seconds, why);
            }
        }
        _ => {}
    }
}

/// A port by number or name.
pub(super) fn validate_port(report: &mut Report, path: Path<'_>, port: &Value) {
    if let Value::String(name) = port {
        report.complain(path, name, port_name(name));
    } else {
        let number = port.as_i64().unwrap_or(0);
        report.complain_number(path, number, port_number(number));
    }
}
