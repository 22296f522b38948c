//! Resource names and amounts: what may be asked for, and how much.

use std::collections::BTreeMap;

use serde_json::Value;

use super::report::Report;
use crate::builtin::access::{Object, Read};
use crate::builtin::field_path::Path;
use crate::builtin::format::{dns_label, qualified_name};
use crate::builtin::quantity::Quantity;
use crate::status::FieldError;

const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

const INTEGER: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// `hugepages-2Mi` and the like.
pub(crate) fn is_hugepages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Without a prefix, or with one of Kubernetes.
pub(crate) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a container may request less than its limit.
pub(crate) fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_hugepages(name)
}

/// `nvidia.com/gpu` and the like.
pub(crate) fn is_extended(name: &str) -> bool {
    // it must still be a name when a quota puts `requests.` in front of it
    let fits = name.split_once('/').is_some_and(|(prefix, _)| prefix.len() + "requests.".len() <= 253);
    !is_native(name) && !name.starts_with("requests.") && fits && qualified_name(name).is_empty()
}

/// What can be asked for the pod as a whole.
pub(crate) fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_hugepages(name)
}

/// Whose names a resource list may have.
#[derive(Clone, Copy)]
pub(crate) enum NameRule {
    /// Any qualified or standard name.
    Any,
    /// What a container may have.
    Container,
    /// What a pod as a whole may have.
    Pod,
    /// What a quota may bound.
    Quota,
}

/// The name of a resource.
pub(crate) fn validate_name(report: &mut Report, path: Path<'_>, name: &str, rule: NameRule) {
    let complaints = qualified_name(name);
    let well_formed = complaints.is_empty();
    report.complain(path, name, complaints);
    let standard = STANDARD.contains(&name) || is_hugepages(name) || name.starts_with("requests.hugepages-");
    if well_formed && !name.contains('/') && !standard {
        report.invalid(path, name, "must be a standard resource type or fully qualified");
        if matches!(rule, NameRule::Pod) {
            return;
        }
    }
    match rule {
        NameRule::Any => {}
        NameRule::Container if !name.contains('/') => {
            if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_hugepages(name) {
                report.invalid(path, name, "must be a standard resource for containers");
            }
        }
        NameRule::Container => {
            if !is_native(name) && !is_extended(name) {
                report.invalid(path, name, "doesn't follow extended resource name standard");
            }
        }
        NameRule::Pod => {
            if well_formed && !is_pod_level(name) {
                report.unsupported(path, name, &["cpu", "hugepages-", "memory"]);
            }
        }
        NameRule::Quota => {
            if !name.contains('/') && (name == "storage" || !standard) {
                report.invalid(path, name, "must be a standard resource for quota");
            }
        }
    }
}

/// An amount: a quantity, not negative, whole where only whole ones exist.
pub(crate) fn validate_amount(report: &mut Report, path: Path<'_>, name: &str, value: &Value) -> Option<Quantity> {
    let quantity = match Quantity::from_value(value) {
        Ok(quantity) => quantity,
        Err(why) => {
            report.invalid(path, value.clone(), why);
            return None;
        }
    };
    if quantity.is_negative() {
        report.invalid(path, quantity.canonical(), "must be greater than or equal to 0");
    }
    if (INTEGER.contains(&name) || (!is_native(name) && is_extended(name))) && !quantity.is_integer() {
        report.invalid(path, quantity.canonical(), "must be an integer");
    }
    Some(quantity)
}

/// A list of resources, without relation to another.
pub(crate) fn validate_list(report: &mut Report, path: Path<'_>, list: &Object, rule: NameRule) {
    for (name, value) in list {
        validate_name(report, path.key(name), name, rule);
        validate_amount(report, path.key(name), name, value);
    }
}

/// Limits, requests and claims of a container or a pod.
pub(crate) fn validate_requirements(
    report: &mut Report,
    path: Path<'_>,
    resources: &Value,
    rule: NameRule,
    claim_names: &[&str],
) {
    let (limits, requests) = (resources.map("limits"), resources.map("requests"));
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    let (mut has_hugepages, mut has_compute) = (false, false);
    let mut look_at = |report: &mut Report, path: Path<'_>, name: &str, value: &Value| {
        // almost every container asks only for these two, whose names need no checking
        if matches!(name, "cpu" | "memory") {
            has_compute = true;
        } else {
            validate_name(report, path, name, rule);
        }
        let quantity = validate_amount(report, path, name, value);
        if is_hugepages(name) {
            has_hugepages = true;
            let page = Quantity::from_value(&Value::from(name.trim_start_matches("hugepages-")));
            if let Some(quantity) = quantity
                && !page.is_ok_and(|page| quantity.is_multiple_of(page))
            {
                let text = quantity.canonical();
                report.invalid(path, text.as_str(), format!("{text} is not positive integer multiple of {name}"));
            }
        }
        quantity
    };
    for (name, value) in limits {
        look_at(report, limits_path.key(name), name, value);
    }
    for (name, value) in requests {
        let Some(quantity) = look_at(report, requests_path.key(name), name, value) else { continue };
        match limits.get(name).map(Quantity::from_value) {
            Some(Ok(limit)) => {
                let text = || quantity.canonical();
                if quantity != limit && !is_overcommit_allowed(name) {
                    let why = format!("must be equal to {name} limit of {}", limit.canonical());
                    report.invalid(requests_path, text(), why);
                } else if quantity > limit {
                    let why = format!("must be less than or equal to {name} limit of {}", limit.canonical());
                    report.invalid(requests_path, text(), why);
                }
            }
            None if !is_overcommit_allowed(name) => {
                report.required(limits_path, "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
    }
    if has_hugepages && !has_compute {
        report.forbidden(path, "HugePages require cpu or memory");
    }
    validate_claims(report, path.child("claims"), resources.list("claims"), claim_names);
}

fn validate_claims(report: &mut Report, path: Path<'_>, claims: &[Value], known: &[&str]) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (index, claim) in claims.iter().enumerate() {
        let path = path.index(index);
        let (name, request) = (claim.text("name"), claim.text("request"));
        if name.is_empty() {
            report.required(path, "");
            continue;
        }
        if !request.is_empty() {
            report.complain(path.child("request"), request, dns_label(request));
        }
        let clash = seen
            .iter()
            .any(|(other, what)| *other == name && (what.is_empty() || request.is_empty() || *what == request));
        if clash {
            let key = if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") };
            report.duplicate(path, key);
        }
        seen.push((name, request));
        if !known.contains(&name) {
            let mut known = known.to_vec();
            known.sort_unstable();
            known.dedup();
            let list = if known.is_empty() { " which is empty".to_owned() } else { format!(": {}", known.join(", ")) };
            let why = format!("must be one of the names in pod.spec.resourceClaims{list}");
            report.push(FieldError::not_found(path, &name.into(), &why));
        }
    }
}

/// What all containers of a pod spec need together (`which` is `limits` or `requests`): the sum of the containers and side-cars,
/// or the largest init container with the side-cars started before it.
pub(crate) fn aggregate(spec: &Object, which: &str) -> BTreeMap<String, Quantity> {
    let mut total = BTreeMap::new();
    for container in spec.list("containers") {
        add(&mut total, container, which);
    }
    let mut side_cars = BTreeMap::new();
    let mut largest: BTreeMap<String, Quantity> = BTreeMap::new();
    for container in spec.list("initContainers") {
        let peak = if container.text("restartPolicy") == "Always" {
            add(&mut total, container, which);
            add(&mut side_cars, container, which);
            side_cars.clone()
        } else {
            let mut peak = side_cars.clone();
            add(&mut peak, container, which);
            peak
        };
        maximum(&mut largest, peak);
    }
    maximum(&mut total, largest);
    total
}

fn add(sum: &mut BTreeMap<String, Quantity>, container: &Value, which: &str) {
    for (name, value) in container.map("resources").map(which) {
        if let Ok(quantity) = Quantity::from_value(value) {
            sum.entry(name.clone()).and_modify(|sum| *sum = sum.plus(quantity)).or_insert(quantity);
        }
    }
}

fn maximum(into: &mut BTreeMap<String, Quantity>, other: BTreeMap<String, Quantity>) {
    for (name, quantity) in other {
        into.entry(name)
            .and_modify(|most| {
                if quantity > *most {
                    *most = quantity;
                }
            })
            .or_insert(quantity);
    }
}
