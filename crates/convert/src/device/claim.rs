//! Claims on devices: what they ask for, and what the core cannot give.

use k8s_openapi::api::resource::v1 as dra;
use kai_api::names::labels;
use kai_core::delta::{ClaimAllocation, DeviceCount, DeviceRef};

use super::filter::expressions;
use crate::queue::key;

/// How many pods may hold one claim, by the Kubernetes API.
pub(super) const MOST_CONSUMERS: u32 = 256;

/// What is kept of a claim.
#[derive(Debug)]
pub(super) struct ClaimRecord {
    pub(super) key: String,
    pub(super) requests: Vec<RequestRecord>,
    pub(super) allocation: Option<ClaimAllocation>,
    pub(super) reserved_for: Vec<String>,
    pub(super) queue: Option<String>,
    pub(super) of_one_pod: bool,
    /// What of it is not supported.
    pub(super) unsupported: Option<String>,
}

/// What is kept of a request.
#[derive(Debug)]
pub(super) struct RequestRecord {
    pub(super) name: String,
    pub(super) class: String,
    pub(super) selectors: Vec<String>,
    pub(super) tolerations: Vec<dra::DeviceToleration>,
    pub(super) count: DeviceCount,
}

impl ClaimRecord {
    /// Reads the object.
    pub(super) fn of(object: &dra::ResourceClaim, queue_label: &str) -> Self {
        let devices = object.spec.devices.clone().unwrap_or_default();
        let status = object.status.clone().unwrap_or_default();
        let mut unsupported = None;
        let requests: Vec<RequestRecord> =
            devices.requests.iter().flatten().map(|r| request(r, &mut unsupported)).collect();
        let many = requests.iter().map(|request| match request.count {
            DeviceCount::Exactly(count) => count,
            DeviceCount::All => 2,
        });
        // A constraint compares devices: one alone always keeps it.
        let several = many.fold(0_u64, u64::saturating_add) > 1;
        if several && devices.constraints.as_ref().is_some_and(|all| !all.is_empty()) {
            unsupported.get_or_insert_with(|| refusal("spec.devices.constraints"));
        }
        let owners = object.metadata.owner_references.iter().flatten();
        let consumers = status.reserved_for.iter().flatten();
        let labelled =
            object.metadata.labels.as_ref().and_then(|all| all.get(queue_label).or_else(|| all.get(labels::QUEUE)));
        Self {
            key: key(&object.metadata),
            allocation: status.allocation.as_ref().map(|given| allocation(given, &requests)),
            requests,
            reserved_for: consumers.filter(|one| one.resource == "pods").map(|one| one.uid.clone()).collect(),
            queue: labelled.cloned(),
            of_one_pod: owners.into_iter().any(|owner| owner.kind == "Pod"),
            unsupported,
        }
    }
}

fn refusal(field: &str) -> String {
    format!("field `{field}` is not supported; hint: ask for devices with `exactly` and selectors")
}

fn request(given: &dra::DeviceRequest, unsupported: &mut Option<String>) -> RequestRecord {
    let exact = given.exactly.clone().unwrap_or_default();
    if given.first_available.as_ref().is_some_and(|all| !all.is_empty()) {
        unsupported.get_or_insert_with(|| refusal("spec.devices.requests[].firstAvailable"));
    }
    if exact.admin_access.unwrap_or(false) {
        unsupported.get_or_insert_with(|| refusal("spec.devices.requests[].exactly.adminAccess"));
    }
    if exact.capacity.as_ref().and_then(|capacity| capacity.requests.as_ref()).is_some_and(|all| !all.is_empty()) {
        unsupported.get_or_insert_with(|| refusal("spec.devices.requests[].exactly.capacity"));
    }
    let count = match exact.allocation_mode.as_deref() {
        Some("All") => DeviceCount::All,
        None | Some("ExactCount" | "") => {
            DeviceCount::Exactly(u64::try_from(exact.count.unwrap_or(1)).unwrap_or(0).max(1))
        }
        Some(_) => {
            unsupported.get_or_insert_with(|| refusal("spec.devices.requests[].exactly.allocationMode"));
            DeviceCount::Exactly(1)
        }
    };
    RequestRecord {
        name: given.name.clone(),
        class: exact.device_class_name,
        selectors: expressions(exact.selectors.as_ref()),
        tolerations: exact.tolerations.unwrap_or_default(),
        count,
    }
}

/// Devices that a claim has. The node is that of the node selector if it names one.
pub(super) fn allocation(given: &dra::AllocationResult, requests: &[RequestRecord]) -> ClaimAllocation {
    let results = given.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    let devices = results.filter(|result| !result.admin_access.unwrap_or(false)).map(|result| {
        let name = result.request.split('/').next().unwrap_or_default();
        let place = requests.iter().position(|request| request.name == name).unwrap_or(0);
        let device =
            DeviceRef { driver: result.driver.clone(), pool: result.pool.clone(), name: result.device.clone() };
        (u32::try_from(place).unwrap_or(0), device)
    });
    let terms = given.node_selector.iter().flat_map(|selector| &selector.node_selector_terms);
    let fields = terms.flat_map(|term| term.match_fields.iter().flatten());
    let mut names = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
    let node = names.find_map(|field| field.values.as_ref().and_then(|values| values.first().cloned()));
    ClaimAllocation { node, devices: devices.collect() }
}
