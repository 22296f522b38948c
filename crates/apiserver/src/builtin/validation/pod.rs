//! Pods and pod templates as they are created.

use serde_json::Value;

use super::container::{Pod, validate_containers, validate_ephemeral_containers, validate_init_containers};
use super::report::Report;
use super::resources::{NameRule, aggregate, is_hugepages, validate_list, validate_requirements};
use super::scheduling::{validate_affinity, validate_spread, validate_tolerations};
use super::security;
use super::selector::validate_labels;
use super::volume::validate_volumes;
use crate::builtin::access::{Object, Read};
use crate::builtin::field_path::Path;
use crate::builtin::format::{dns_label, dns_subdomain, in_range, ip_address, qualified_name};
use crate::builtin::metadata::validate_annotations;
use crate::builtin::quantity::Quantity;

const SPEC: Path<'static> = Path::Name("spec");
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether a spec is that of a pod or of a template.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SpecOf {
    Pod,
    Template,
}

/// A new pod.
pub(super) fn validate_create(report: &mut Report, pod: &Value) {
    validate_pod(report, pod);
    if !pod.list("spec.ephemeralContainers").is_empty() {
        report.forbidden(SPEC.child("ephemeralContainers"), "cannot be set on create");
    }
    if !pod.text("spec.nodeName").is_empty() && !pod.list("spec.schedulingGates").is_empty() {
        report.forbidden(SPEC.child("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
}

/// What holds for pods at all times.
pub(super) fn validate_pod(report: &mut Report, pod: &Value) {
    let metadata = Path::Name("metadata");
    validate_pod_annotations(report, metadata.child("annotations"), pod.map("metadata.annotations"), pod.at("spec"));
    validate_spec(report, SPEC, pod.at("spec"), SpecOf::Pod);
    if pod.text("spec.serviceAccountName").is_empty() {
        validate_no_tokens(report, pod);
    }
    for list in ["containers", "initContainers"] {
        let path = SPEC.child(list);
        for (index, container) in pod.at("spec").list(list).iter().enumerate() {
            let image = container.text("image");
            if image.trim() != image {
                report.invalid(path.index(index).child("image"), image, "must not have leading or trailing whitespace");
            }
        }
    }
}

/// The template of a workload.
pub(super) fn validate_template(report: &mut Report, path: Path<'_>, template: &Value) {
    validate_labels(report, path.child("labels"), template.map("metadata.labels"));
    let annotations = template.map("metadata.annotations");
    validate_annotations(report, path.child("annotations"), annotations);
    validate_pod_annotations(report, path.child("annotations"), annotations, template.at("spec"));
    validate_spec(report, path.child("spec"), template.at("spec"), SpecOf::Template);
    if !template.list("spec.ephemeralContainers").is_empty() {
        report.forbidden(path.child("spec.ephemeralContainers"), "ephemeral containers not allowed in pod template");
    }
}

fn validate_pod_annotations(report: &mut Report, path: Path<'_>, annotations: &Object, spec: &Value) {
    if let Some(value) = annotations.get(MIRROR)
        && spec.text("nodeName").is_empty()
    {
        report.invalid(path.key(MIRROR), value.clone(), "must set spec.nodeName if mirror pod annotation is set");
    }
    if let Some(cost) = annotations.get(DELETION_COST).and_then(Value::as_str)
        && (cost.parse::<i32>().is_err() || cost.starts_with('+') || (cost.starts_with('0') && cost.len() > 1))
    {
        report.invalid(path.key(DELETION_COST), cost, "must be a 32bit integer");
    }
}

fn validate_no_tokens(report: &mut Report, pod: &Value) {
    let volumes = SPEC.child("volumes");
    for (index, volume) in pod.list("spec.volumes").iter().enumerate() {
        let volume_path = volumes.index(index);
        let sources = volume_path.child("projected.sources");
        for (index, source) in volume.list("projected.sources").iter().enumerate() {
            if source.has("serviceAccountToken") {
                let path = sources.index(index);
                let why = "must not be specified when serviceAccountName is not set";
                report.forbidden(path.child("serviceAccountToken"), why);
            }
        }
    }
}

/// The spec of a pod or template.
pub(super) fn validate_spec(report: &mut Report, path: Path<'_>, spec: &Value, of: SpecOf) {
    if !spec.has("terminationGracePeriodSeconds") {
        report.required(path.child("terminationGracePeriodSeconds"), "");
    }
    let volumes = validate_volumes(report, path.child("volumes"), spec.list("volumes"));
    validate_resource_claims(report, path.child("resourceClaims"), spec.list("resourceClaims"));
    let claims = spec.list("resourceClaims").iter().map(|claim| claim.text("name")).filter(|name| !name.is_empty());
    let pod = Pod { spec, volumes, claims: claims.collect() };
    validate_containers(report, path.child("containers"), &pod);
    validate_init_containers(report, path.child("initContainers"), &pod);
    validate_ephemeral_containers(report, path.child("ephemeralContainers"), &pod);
    validate_pod_resources(report, path.child("resources"), spec, &pod);
    validate_host_network(report, path.child("containers"), spec, of);
    let policies = &["Always", "OnFailure", "Never"];
    report.one_of(path.child("restartPolicy"), spec.text("restartPolicy"), policies);
    let policies = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    report.one_of(path.child("dnsPolicy"), spec.text("dnsPolicy"), policies);
    validate_labels(report, path.child("nodeSelector"), spec.map("nodeSelector"));
    security::validate_pod(report, path.child("securityContext"), spec);
    if spec.has("affinity") {
        validate_affinity(report, path.child("affinity"), spec.at("affinity"));
    }
    validate_dns(report, path.child("dnsConfig"), spec);
    validate_gates(report, path, spec);
    validate_spread(report, path.child("topologySpreadConstraints"), spec.list("topologySpreadConstraints"));
    validate_host_users(report, path, spec);
    validate_names(report, path, spec);
    validate_tolerations(report, path.child("tolerations"), spec.list("tolerations"));
    validate_host_aliases(report, path.child("hostAliases"), spec.list("hostAliases"));
    report.optional_one_of(
        path.child("preemptionPolicy"),
        spec.at("preemptionPolicy"),
        &["PreemptLowerPriority", "Never"],
    );
    validate_list(report, path.child("overhead.limits"), spec.map("overhead"), NameRule::Container);
    if spec.has("os") {
        match spec.text("os.name") {
            "" => report.required(path.child("os.name"), ""),
            "linux" | "windows" => {}
            name => report.unsupported(path.child("os"), name, &["linux", "windows"]),
        }
    }
}

fn validate_names(report: &mut Report, path: Path<'_>, spec: &Value) {
    let names = [
        ("serviceAccountName", dns_subdomain as fn(&str) -> Vec<String>),
        ("nodeName", dns_subdomain),
        ("hostname", dns_label),
        ("subdomain", dns_label),
        ("priorityClassName", dns_subdomain),
        ("runtimeClassName", dns_subdomain),
    ];
    for (field, rule) in names {
        let name = spec.text(field);
        if !name.is_empty() {
            report.complain(path.child(field), name, rule(name));
        }
    }
    if let Some(seconds) = spec.integer("activeDeadlineSeconds") {
        let complaints = in_range(seconds, 1, i64::from(i32::MAX));
        report.complain_number(path.child("activeDeadlineSeconds"), seconds, complaints);
    }
}

fn validate_resource_claims(report: &mut Report, path: Path<'_>, claims: &[Value]) {
    let mut names: Vec<&str> = Vec::new();
    for (index, claim) in claims.iter().enumerate() {
        let path = path.index(index);
        let name = claim.text("name");
        if name.is_empty() {
            report.required(path.child("name"), "");
        } else if names.contains(&name) {
            report.duplicate(path.child("name"), name);
        } else {
            report.complain(path.child("name"), name, dns_label(name));
            names.push(name);
        }
        match (claim.has("resourceClaimName"), claim.has("resourceClaimTemplateName")) {
            (true, true) => {
                let why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                report.invalid(path, claim.clone(), why);
            }
            (false, false) => {
                let why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                report.invalid(path, claim.clone(), why);
            }
            _ => {}
        }
        for field in ["resourceClaimName", "resourceClaimTemplateName"] {
            if claim.has(field) {
                report.complain(path.child(field), claim.text(field), dns_subdomain(claim.text(field)));
            }
        }
    }
}

fn validate_pod_resources(report: &mut Report, path: Path<'_>, spec: &Value, pod: &Pod<'_>) {
    let resources = spec.at("resources");
    let (true, Some(spec)) = (resources.is_object(), spec.as_object()) else { return };
    if resources.has("claims") {
        report.forbidden(path.child("claims"), "claims may not be set for Resources at pod-level");
    }
    validate_requirements(report, path, resources, NameRule::Pod, &pod.claims);
    for which in ["requests", "limits"] {
        let list = path.child(which);
        for (name, needed) in aggregate(spec, which) {
            let given = resources.at(which).get(&name).map(Quantity::from_value);
            if let Some(Ok(given)) = given
                && needed > given
                && (which == "requests" || is_hugepages(&name))
            {
                let why =
                    format!("must be greater than or equal to aggregate container {which} of {}", needed.canonical());
                report.invalid(list.key(&name), given.canonical(), why);
            }
        }
    }
    let containers = path.child("containers");
    for (index, container) in spec.list("containers").iter().enumerate() {
        let indexed = containers.index(index);
        for (name, value) in container.map("resources.limits") {
            let limit = Quantity::from_value(value);
            let bound = resources.at("limits").get(name).map(Quantity::from_value);
            if let (Ok(limit), Some(Ok(bound))) = (limit, bound)
                && limit > bound
            {
                let why = format!("must be less than or equal to pod limits of {}", bound.canonical());
                report.invalid(indexed.key(name).child("limits"), limit.canonical(), why);
            }
        }
    }
}

fn validate_host_network(report: &mut Report, path: Path<'_>, spec: &Value, of: SpecOf) {
    if !spec.flag("hostNetwork") {
        return;
    }
    for (index, container) in spec.list("containers").iter().enumerate() {
        let indexed = path.index(index);
        let ports = indexed.child("ports");
        for (index, port) in container.list("ports").iter().enumerate() {
            let (host, own) = (port.count("hostPort"), port.count("containerPort"));
            if (of == SpecOf::Pod || host != 0) && host != own {
                let why = "must match `containerPort` when `hostNetwork` is true";
                report.invalid(ports.index(index).child("hostPort"), host, why);
            }
        }
    }
}

fn validate_dns(report: &mut Report, path: Path<'_>, spec: &Value) {
    let config = spec.at("dnsConfig");
    if spec.text("dnsPolicy") == "None" {
        if !config.is_object() {
            report.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if config.list("nameservers").is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            report.required(path.child("nameservers"), why);
            return;
        }
    }
    let servers = path.child("nameservers");
    if config.list("nameservers").len() > 3 {
        report.invalid(servers, config.at("nameservers").clone(), "must not have more than 3 nameservers");
    }
    for (index, server) in config.list("nameservers").iter().enumerate() {
        let server = server.as_str().unwrap_or("");
        report.complain(servers.index(index), server, ip_address(server));
    }
    if config.list("searches").len() > 32 {
        report.invalid(
            path.child("searches"),
            config.at("searches").clone(),
            "must not have more than 32 search paths",
        );
    }
    let options = path.child("options");
    for (index, option) in config.list("options").iter().enumerate() {
        if option.text("name").is_empty() {
            report.required(options.index(index), "must not be empty");
        }
    }
}

fn validate_gates(report: &mut Report, path: Path<'_>, spec: &Value) {
    let readiness = path.child("readinessGates");
    for (index, gate) in spec.list("readinessGates").iter().enumerate() {
        let name = gate.text("conditionType");
        report.complain(readiness.index(index).child("conditionType"), name, qualified_name(name));
    }
    let scheduling = path.child("schedulingGates");
    let mut names: Vec<&str> = Vec::new();
    for (index, gate) in spec.list("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        report.complain(scheduling.index(index), name, qualified_name(name));
        if names.contains(&name) {
            report.duplicate(scheduling.index(index), name);
        }
        names.push(name);
    }
}

fn validate_host_users(report: &mut Report, path: Path<'_>, spec: &Value) {
    if spec.at("hostUsers").as_bool() != Some(false) {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.flag(field) {
            report.forbidden(path.child(shown), "when `hostUsers` is false");
        }
    }
}

fn validate_host_aliases(report: &mut Report, path: Path<'_>, aliases: &[Value]) {
    for (index, alias) in aliases.iter().enumerate() {
        let path = path.index(index);
        report.complain(path.child("ip"), alias.text("ip"), ip_address(alias.text("ip")));
        let names = path.child("hostnames");
        for (index, name) in alias.list("hostnames").iter().enumerate() {
            let name = name.as_str().unwrap_or("");
            report.complain(names.index(index), name, dns_subdomain(name));
        }
    }
}
