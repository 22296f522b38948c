//! Services and the endpoints behind them.

use serde_json::{Value, json};

use super::container::validate_port;
use super::report::Report;
use super::selector::validate_labels;
use crate::builtin::access::Read;
use crate::builtin::field_path::Path;
use crate::builtin::format::{
    cidr, dns_label, dns_subdomain, endpoint_address, ip_address, parse_ipv4, port_number, qualified_name,
};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::Name("spec");
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

fn is_headless(service: &Value) -> bool {
    service.list("spec.clusterIPs").first().is_some_and(|address| address == "None")
}

/// A service.
pub(super) fn validate_service(report: &mut Report, service: &Value) {
    let spec = service.at("spec");
    let kind = spec.text("type");
    let ports = spec.list("ports");
    if ports.is_empty() && !is_headless(service) && kind != "ExternalName" {
        report.required(SPEC.child("ports"), "");
    }
    if matches!(kind, "LoadBalancer" | "NodePort") && is_headless(service) {
        let path = SPEC.child("clusterIPs");
        report.invalid(path.index(0), "None", format!("may not be set to 'None' for {kind} services"));
    }
    if kind == "ExternalName" {
        validate_external_name(report, spec);
    }
    validate_ports(report, spec, kind);
    validate_labels(report, SPEC.child("selector"), spec.map("selector"));
    report.one_of(SPEC.child("sessionAffinity"), spec.text("sessionAffinity"), &["ClientIP", "None"]);
    if spec.text("sessionAffinity") == "ClientIP" {
        let seconds = spec.count("sessionAffinityConfig.clientIP.timeoutSeconds");
        if !(1..=86400).contains(&seconds) {
            let path = SPEC.child("sessionAffinityConfig.clientIP.timeoutSeconds");
            report.invalid(path, seconds, "must be greater than 0 and less than 86400");
        }
    }
    if kind != "ExternalName" {
        validate_cluster_addresses(report, spec);
    }
    let external = SPEC.child("externalIPs");
    for (index, address) in spec.list("externalIPs").iter().enumerate() {
        let address = address.as_str().unwrap_or("");
        report.complain(external.index(index), address, endpoint_address(address));
    }
    let kinds = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    report.one_of(SPEC.child("type"), kind, kinds);
    let ranges = SPEC.child("LoadBalancerSourceRanges");
    if !spec.list("loadBalancerSourceRanges").is_empty() && kind != "LoadBalancer" {
        report.forbidden(ranges, "may only be used when `type` is 'LoadBalancer'");
    }
    for (index, range) in spec.list("loadBalancerSourceRanges").iter().enumerate() {
        let range = range.as_str().unwrap_or("").trim();
        report.complain(ranges.index(index), range, cidr(range));
    }
    if spec.has("allocateLoadBalancerNodePorts") && kind != "LoadBalancer" {
        let path = SPEC.child("allocateLoadBalancerNodePorts");
        report.forbidden(path, "may only be used when `type` is 'LoadBalancer'");
    }
    validate_policies(report, spec, kind);
}

fn validate_external_name(report: &mut Report, spec: &Value) {
    for name in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if spec.has(name) {
            report.forbidden(SPEC.child(name), "may not be set for ExternalName services");
        }
    }
    let name = spec.text("externalName").trim_end_matches('.');
    if name.is_empty() {
        report.required(SPEC.child("externalName"), "");
    } else {
        report.complain(SPEC.child("externalName"), name, dns_subdomain(name));
    }
}

fn validate_ports(report: &mut Report, spec: &Value, kind: &str) {
    let ports = spec.list("ports");
    let path = SPEC.child("ports");
    let mut names: Vec<&str> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = port.text("name");
        if name.is_empty() && ports.len() > 1 {
            report.required(path.child("name"), "");
        } else if !name.is_empty() {
            report.complain(path.child("name"), name, dns_label(name));
            if names.contains(&name) {
                report.duplicate(path.child("name"), name);
            }
            names.push(name);
        }
        let number = port.count("port");
        report.complain_number(path.child("port"), number, port_number(number));
        report.one_of(path.child("protocol"), port.text("protocol"), PROTOCOLS);
        validate_port(report, path.child("targetPort"), port.at("targetPort"));
        if let Some(protocol) = port.at("appProtocol").as_str() {
            report.complain(path.child("appProtocol"), protocol, qualified_name(protocol));
        }
        let node_port = port.count("nodePort");
        if kind == "ClusterIP" && node_port != 0 {
            report.forbidden(path.child("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
        let earlier = |field: &str, value: i64| {
            let protocol = port.text("protocol");
            ports.iter().take(index).any(|other| other.text("protocol") == protocol && other.count(field) == value)
        };
        if node_port != 0 && earlier("nodePort", node_port) {
            report.duplicate(path.child("nodePort"), node_port);
        }
        if earlier("port", number) {
            let key = json!({"port": number, "protocol": port.text("protocol"), "targetPort": 0});
            report.push(FieldError::duplicate(path, &key));
        }
    }
}

fn validate_cluster_addresses(report: &mut Report, spec: &Value) {
    let path = SPEC.child("clusterIPs");
    let (first, all) = (spec.text("clusterIP"), spec.list("clusterIPs"));
    let value = || spec.at("clusterIPs").clone();
    match (first, all.first().and_then(Value::as_str)) {
        ("", Some(_)) => report.invalid(path, value(), "must be empty when `clusterIP` is not specified"),
        ("", None) => {}
        (_, None) => report.required(path, ""),
        (first, Some(other)) if first != other => report.invalid(path, value(), "first value must match `clusterIP`"),
        _ => {}
    }
    let families = SPEC.child("ipFamilies");
    for (index, family) in spec.list("ipFamilies").iter().enumerate() {
        report.optional_one_of(families.index(index), family, &["IPv4", "IPv6"]);
    }
    let policies = &["PreferDualStack", "RequireDualStack", "SingleStack"];
    report.optional_one_of(SPEC.child("ipFamilyPolicy"), spec.at("ipFamilyPolicy"), policies);
    for (index, address) in all.iter().enumerate() {
        let address = address.as_str().unwrap_or("");
        if index == 0 && address == "None" {
            if all.len() > 1 {
                report.invalid(path, value(), "'None' must be the first and only value");
            }
            continue;
        }
        report.complain(path.index(index), address, ip_address(address));
    }
    if all.len() > 2 {
        report.invalid(path, value(), "may only hold up to 2 values");
    }
}

fn validate_policies(report: &mut Report, spec: &Value, kind: &str) {
    let external = spec.text("externalTrafficPolicy");
    let reachable =
        matches!(kind, "LoadBalancer" | "NodePort") || (kind == "ClusterIP" && !spec.list("externalIPs").is_empty());
    if reachable {
        report.one_of(SPEC.child("externalTrafficPolicy"), external, &["Cluster", "Local"]);
    } else if !external.is_empty() {
        let path = SPEC.child("externalTrafficPolicy");
        report.invalid(path, external, "may only be set for externally-accessible services");
    }
    let port = spec.count("healthCheckNodePort");
    if port != 0 && !(kind == "LoadBalancer" && external == "Local") {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        report.invalid(SPEC.child("healthCheckNodePort"), port, why);
    }
    report.optional_one_of(
        SPEC.child("internalTrafficPolicy"),
        spec.at("internalTrafficPolicy"),
        &["Cluster", "Local"],
    );
    let distributions = &["PreferClose", "PreferSameZone", "PreferSameNode"];
    report.optional_one_of(SPEC.child("trafficDistribution"), spec.at("trafficDistribution"), distributions);
}

/// An update of a service: its first address stays.
pub(super) fn validate_service_update(report: &mut Report, service: &Value, old: &Value) {
    let is_name = |service: &Value| service.text("spec.type") == "ExternalName";
    if is_name(service) || is_name(old) || (is_headless(service) && is_headless(old)) {
        return;
    }
    let path = SPEC.child("clusterIPs");
    let (new, before) = (service.list("spec.clusterIPs"), old.list("spec.clusterIPs"));
    let value = || service.at("spec.clusterIPs").clone();
    match (new.first(), before.first()) {
        (None, Some(_)) => report.invalid(path.index(0), value(), "primary clusterIP can not be unset"),
        (Some(new), Some(old)) if new != old => report.invalid(path.index(0), value(), "may not change once set"),
        _ => {}
    }
}

/// An endpoint slice.
pub(super) fn validate_endpoint_slice(report: &mut Report, slice: &Value) {
    let kind = slice.text("addressType");
    report.one_of(Path::Name("addressType"), kind, &["FQDN", "IPv4", "IPv6"]);
    let ports = Path::Name("ports");
    let mut names: Vec<&str> = Vec::new();
    for (index, port) in slice.list("ports").iter().enumerate() {
        let (name, path) = (port.text("name"), ports.index(index));
        if !name.is_empty() {
            report.complain(path.child("name"), name, dns_label(name));
        }
        if names.contains(&name) {
            report.duplicate(path.child("name"), name);
        }
        names.push(name);
        report.one_of(path.child("protocol"), port.text("protocol"), PROTOCOLS);
    }
    let endpoints = Path::Name("endpoints");
    if slice.list("endpoints").len() > 1000 {
        report.push(FieldError::too_many(endpoints, slice.list("endpoints").len(), 1000));
        return;
    }
    for (index, endpoint) in slice.list("endpoints").iter().enumerate() {
        let path = endpoints.index(index);
        let addresses = path.child("addresses");
        if endpoint.list("addresses").is_empty() {
            report.required(addresses, "must contain at least 1 address");
        }
        for (index, address) in endpoint.list("addresses").iter().enumerate() {
            let address = address.as_str().unwrap_or("");
            match kind {
                "IPv4" | "IPv6" => {
                    let is_address = ip_address(address).is_empty();
                    let is_v4 = parse_ipv4(address).is_some();
                    if is_address && is_v4 != (kind == "IPv4") {
                        report.invalid(addresses, address, format!("must be an {kind} address"));
                    }
                    report.complain(addresses.index(index), address, endpoint_address(address));
                }
                _ => {}
            }
        }
        let node = endpoint.text("nodeName");
        if !node.is_empty() {
            report.complain(path.child("nodeName"), node, dns_subdomain(node));
        }
        let hostname = endpoint.text("hostname");
        if !hostname.is_empty() {
            report.complain(path.child("hostname"), hostname, dns_label(hostname));
        }
    }
}
