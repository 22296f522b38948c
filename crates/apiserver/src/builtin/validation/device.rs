//! Dynamic resource allocation: claims, classes and slices of devices.

use serde_json::Value;

use super::report::Report;
use super::resources::is_extended;
use super::scheduling::validate_node_selector;
use crate::builtin::access::Read;
use crate::builtin::field_path::Path;
use crate::builtin::format::{dns_label, dns_subdomain};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::Name("spec");
const STATUS: Path<'static> = Path::Name("status");

/// The spec of a claim.
pub(super) fn validate_claim_spec(report: &mut Report, path: Path<'_>, spec: &Value) {
    let devices = path.child("devices");
    let requests = devices.child("requests");
    let mut names: Vec<&str> = Vec::new();
    limit_length(report, requests, spec.list("devices.requests"), 32);
    for (index, request) in spec.list("devices.requests").iter().enumerate() {
        let path = requests.index(index);
        let name = request.text("name");
        report.complain(path.child("name"), name, dns_label(name));
        if names.contains(&name) {
            report.duplicate(path.child("name"), name);
        }
        names.push(name);
        validate_request(report, path, request);
    }
    let constraints = devices.child("constraints");
    limit_length(report, constraints, spec.list("devices.constraints"), 32);
    for (index, constraint) in spec.list("devices.constraints").iter().enumerate() {
        let path = constraints.index(index);
        validate_request_references(report, path.child("requests"), constraint.list("requests"), spec);
        if !constraint.has("matchAttribute") && !constraint.has("distinctAttribute") {
            report.required(path.child("matchAttribute"), "");
        }
    }
    let config = devices.child("config");
    limit_length(report, config, spec.list("devices.config"), 32);
    for (index, entry) in spec.list("devices.config").iter().enumerate() {
        let path = config.index(index);
        validate_request_references(report, path.child("requests"), entry.list("requests"), spec);
        validate_configuration(report, path, entry);
    }
}

fn limit_length(report: &mut Report, path: Path<'_>, list: &[Value], limit: usize) {
    if list.len() > limit {
        report.push(FieldError::too_many(path, list.len(), limit));
    }
}

fn validate_request(report: &mut Report, path: Path<'_>, request: &Value) {
    let alternatives = request.list("firstAvailable");
    let alternatives_path = path.child("firstAvailable");
    limit_length(report, alternatives_path, alternatives, 8);
    for (index, alternative) in alternatives.iter().enumerate() {
        let path = alternatives_path.index(index);
        let name = alternative.text("name");
        report.complain(path.child("name"), name, dns_label(name));
        if alternatives.iter().take(index).any(|other| other.text("name") == name) {
            report.duplicate(path.child("name"), name);
        }
        validate_exact(report, path, alternative);
    }
    if request.has("exactly") {
        validate_exact(report, path.child("exactly"), request.at("exactly"));
    }
    match (request.has("exactly"), alternatives.is_empty()) {
        (false, true) => report.required(path, "exactly one of `exactly` or `firstAvailable` is required"),
        (true, false) => {
            let why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            report.invalid(path, Value::Null, why);
        }
        _ => {}
    }
}

fn validate_exact(report: &mut Report, path: Path<'_>, request: &Value) {
    let class = request.text("deviceClassName");
    if class.is_empty() {
        report.required(path.child("deviceClassName"), "");
    } else {
        report.complain(path.child("deviceClassName"), class, dns_subdomain(class));
    }
    validate_selectors(report, path.child("selectors"), request.list("selectors"));
    let count = request.count("count");
    match request.text("allocationMode") {
        "All" => {
            if count != 0 {
                report.invalid(path.child("count"), count, "must not be specified when allocationMode is 'All'");
            }
        }
        "ExactCount" => report.positive(path.child("count"), count),
        mode => report.unsupported(path.child("allocationMode"), mode, &["All", "ExactCount"]),
    }
}

fn validate_selectors(report: &mut Report, path: Path<'_>, selectors: &[Value]) {
    limit_length(report, path, selectors, 32);
    for (index, selector) in selectors.iter().enumerate() {
        let path = path.index(index);
        if !selector.has("cel") {
            report.required(path.child("cel"), "");
            continue;
        }
        let expression = selector.text("cel.expression");
        let path = path.child("cel.expression");
        if expression.len() > 10 * 1024 {
            report.push(FieldError::too_long(path, 10 * 1024));
        } else if let Err(problem) = cel::Program::compile(expression) {
            report.invalid(path, expression, format!("compilation failed: {problem}"));
        }
    }
}

fn validate_request_references(report: &mut Report, path: Path<'_>, names: &[Value], spec: &Value) {
    const WHY: &str =
        "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    for (index, name) in names.iter().enumerate() {
        let name = name.as_str().unwrap_or("");
        let (request, alternative) = name.split_once('/').map_or((name, None), |(name, rest)| (name, Some(rest)));
        let known = spec.list("devices.requests").iter().any(|candidate| {
            candidate.text("name") == request
                && alternative.is_none_or(|alternative| {
                    candidate.list("firstAvailable").iter().any(|sub| sub.text("name") == alternative)
                })
        });
        if !known {
            report.invalid(path.index(index), name, WHY);
        }
    }
}

fn validate_configuration(report: &mut Report, path: Path<'_>, entry: &Value) {
    if !entry.has("opaque") {
        report.required(path.child("opaque"), "");
        return;
    }
    let path = path.child("opaque");
    validate_driver(report, path.child("driver"), entry.text("opaque.driver"));
    if !entry.at("opaque").has("parameters") {
        report.required(path.child("parameters"), "");
    }
}

/// The name of a driver, of devices or of volumes.
pub(super) fn validate_driver(report: &mut Report, path: Path<'_>, name: &str) {
    if name.is_empty() {
        report.required(path, "");
    }
    if name.len() > 63 {
        report.push(FieldError::too_long(path, 63));
    }
    report.complain(path, name, dns_subdomain(&name.to_lowercase()));
}

/// An update of a claim or of a template for claims: the spec stays.
pub(super) fn validate_spec_update(report: &mut Report, object: &Value, old: &Value) {
    report.immutable(SPEC, object.at("spec"), old.at("spec"));
}

/// An update of the status of a claim.
pub(super) fn validate_claim_status(report: &mut Report, claim: &Value, old: &Value) {
    let reserved = claim.list("status.reservedFor");
    let path = STATUS.child("reservedFor");
    limit_length(report, path, reserved, 256);
    for (index, consumer) in reserved.iter().enumerate() {
        let path = path.index(index);
        for name in ["resource", "name", "uid"] {
            if consumer.text(name).is_empty() {
                report.required(path.child(name), "");
            }
        }
        if reserved.iter().take(index).any(|other| other.text("uid") == consumer.text("uid")) {
            report.duplicate(path.child("uid"), consumer.text("uid"));
        }
    }
    let (new, before) = (claim.at("status.allocation"), old.at("status.allocation"));
    if !reserved.is_empty() {
        if new.is_null() {
            report.forbidden(path, "may not be specified when `allocated` is not set");
        } else if claim.has("metadata.deletionTimestamp") {
            let before = old.list("status.reservedFor");
            if reserved.iter().any(|consumer| !before.contains(consumer)) {
                let why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
                report.forbidden(path, why);
            }
        }
    }
    if !new.is_null() && !before.is_null() {
        report.immutable(STATUS.child("allocation"), new, before);
    } else if !new.is_null() {
        validate_allocation(report, STATUS.child("allocation"), new, claim.at("spec"));
    }
}

fn validate_allocation(report: &mut Report, path: Path<'_>, allocation: &Value, spec: &Value) {
    let results = path.child("devices.results");
    limit_length(report, results, allocation.list("devices.results"), 32);
    for (index, result) in allocation.list("devices.results").iter().enumerate() {
        let path = results.index(index);
        validate_request_references(report, path.child("request"), std::slice::from_ref(result.at("request")), spec);
        validate_driver(report, path.child("driver"), result.text("driver"));
        validate_pool_name(report, path.child("pool"), result.text("pool"));
        report.complain(path.child("device"), result.text("device"), dns_label(result.text("device")));
    }
    if allocation.has("nodeSelector") {
        validate_node_selector(report, path.child("nodeSelector"), allocation.at("nodeSelector"));
    }
}

fn validate_pool_name(report: &mut Report, path: Path<'_>, name: &str) {
    if name.is_empty() {
        report.required(path, "");
        return;
    }
    if name.len() > 253 {
        report.push(FieldError::too_long(path, 253));
    }
    for part in name.split('/') {
        report.complain(path, part, dns_subdomain(part));
    }
}

/// A class of devices.
pub(super) fn validate_class(report: &mut Report, class: &Value) {
    validate_selectors(report, SPEC.child("selectors"), class.list("spec.selectors"));
    let config = SPEC.child("config");
    limit_length(report, config, class.list("spec.config"), 32);
    for (index, entry) in class.list("spec.config").iter().enumerate() {
        validate_configuration(report, config.index(index), entry);
    }
    if let Some(name) = class.at("spec.extendedResourceName").as_str()
        && !is_extended(name)
    {
        report.invalid(SPEC.child("extendedResourceName"), name, "must be a valid extended resource name");
    }
}

/// Devices that a driver offers; `old` is `null` on create.
pub(super) fn validate_slice(report: &mut Report, slice: &Value, old: &Value) {
    let spec = slice.at("spec");
    validate_driver(report, SPEC.child("driver"), spec.text("driver"));
    let pool = SPEC.child("pool");
    validate_pool_name(report, pool.child("name"), spec.text("pool.name"));
    report.positive(pool.child("resourceSliceCount"), spec.count("pool.resourceSliceCount"));
    if spec.count("pool.generation") < 0 {
        let why = "must be greater than or equal to zero";
        report.invalid(pool.child("generation"), spec.count("pool.generation"), why);
    }
    if old.is_object() {
        for path in ["pool.name", "driver", "nodeName"] {
            report.immutable(SPEC.child(path), spec.at(path), old.at("spec").at(path));
        }
    }
    validate_slice_nodes(report, spec);
    let devices = SPEC.child("devices");
    limit_length(report, devices, spec.list("devices"), 128);
    for (index, device) in spec.list("devices").iter().enumerate() {
        let path = devices.index(index);
        let name = device.text("name");
        report.complain(path.child("name"), name, dns_label(name));
        if spec.list("devices").iter().take(index).any(|other| other.text("name") == name) {
            report.duplicate(path.child("name"), name);
        }
        let count = device.map("attributes").len() + device.map("capacity").len();
        if count > 32 {
            let why = "the total number of attributes and capacities must not exceed 32";
            report.invalid(path, count, why);
        }
    }
}

fn validate_slice_nodes(report: &mut Report, spec: &Value) {
    let mut given = Vec::new();
    if spec.has("nodeName") {
        let name = spec.text("nodeName");
        if name.is_empty() {
            report.invalid(SPEC.child("nodeName"), "", "must be either unset or set to a non-empty string");
        } else {
            given.push("`nodeName`");
            report.complain(SPEC.child("nodeName"), name, dns_subdomain(name));
        }
    }
    if spec.has("nodeSelector") {
        given.push("`nodeSelector`");
        validate_node_selector(report, SPEC.child("nodeSelector"), spec.at("nodeSelector"));
    }
    for (name, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")] {
        match spec.at(name).as_bool() {
            Some(true) => given.push(shown),
            Some(false) => report.invalid(SPEC.child(name), false, "must be either unset or set to true"),
            None => {}
        }
    }
    let rule = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match given.len() {
        0 => report.required(SPEC, rule),
        1 => {}
        _ => report.invalid(SPEC, format!("{{{}}}", given.join(", ")), format!("{rule}, but multiple fields are set")),
    }
}
