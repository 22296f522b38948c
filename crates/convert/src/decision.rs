//! Decisions as objects: the BindRequest of a pod that was given a place.

use k8s_openapi::{
    api::{
        core::v1 as k8s,
        resource::v1::{
            AllocationResult, DeviceAllocationResult, DeviceRequest, DeviceRequestAllocationResult, ExactDeviceRequest,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, OwnerReference},
    },
};
use kai_api::{
    BindRequest, BindRequestSpec, ExtendedResourceClaimAllocation, NumaZonePlacement, ReceivedGpu,
    ResourceClaimAllocation,
    names::{labels, resource_types},
};
use kai_core::{
    Cluster,
    delta::{DeviceRef, Gpus},
    plan::Placed,
};

use crate::converter::Converter;

/// The longest value of a label.
const LONGEST_LABEL: usize = 63;

/// A BindRequest, and the devices whose place in it only the pod's containers tell: see [`complete`].
#[derive(Clone, Debug)]
pub struct Request {
    /// The object.
    pub object: BindRequest,
    /// Devices for extended resources: the resource, the class that serves it, the device.
    pub extended: Vec<(String, String, DeviceRef)>,
}

/// The BindRequest of a decision; `None` if the pod is no longer known.
#[must_use]
pub fn request(placed: &Placed, cluster: &Cluster, converter: &Converter) -> Option<Request> {
    let uid = cluster.pod_uid(placed.pod);
    let (namespace, name) = converter.pod_key(uid)?.split_once('/')?;
    let node = cluster.node_name(placed.node);
    let class = cluster.class_of(placed.pod);
    let (kind, count, portion) = match class.gpus {
        Gpus::Portion { devices, .. } | Gpus::Memory { devices, .. } => {
            (resource_types::FRACTION, i64::from(devices), portion(placed.portion))
        }
        Gpus::Whole(count) => (resource_types::REGULAR, i64::from(count), "1".to_owned()),
        Gpus::None if class.mig => (resource_types::MIG_INSTANCE, 0, "0".to_owned()),
        Gpus::None => (resource_types::REGULAR, 0, "0".to_owned()),
    };
    let uses = converter.claims_of(uid);
    let claims = placed.claims.iter().filter_map(|(claim, devices)| {
        let key = cluster.claim_key(*claim);
        let name = uses.iter().find(|(_, used)| used == key).map(|(name, _)| name.clone())?;
        let named = devices.iter().map(|(place, device)| (converter.claim_request(key, *place), device));
        Some(ResourceClaimAllocation { name: Some(name), allocation: Some(allocation(node, named)) })
    });
    let zones = converter.zone_names(node);
    let zones = placed.numa.iter().map(|share| {
        let zone = zones.get(share.zone as usize).cloned().unwrap_or_else(|| format!("node-{}", share.zone));
        let amount = share.amounts.iter().map(|(resource, amount)| {
            let text = if resource == "cpu" { format!("{amount}m") } else { amount.to_string() };
            (resource.clone(), Quantity(text))
        });
        NumaZonePlacement { zone, amount: amount.collect() }
    });
    let extended: Vec<(String, String, DeviceRef)> = placed
        .extended
        .iter()
        .map(|(resource, device)| {
            (resource.clone(), converter.class_serving(resource).unwrap_or_default().to_owned(), device.clone())
        })
        .collect();
    // Which devices is known at once, so that nobody else gets them; which container gets which, only when the pod was read.
    let taken = extended.iter().map(|(_, _, device)| (String::new(), device));
    let taken = ExtendedResourceClaimAllocation {
        allocation: Some(allocation(node, taken)),
        ..ExtendedResourceClaimAllocation::default()
    };
    let spec = BindRequestSpec {
        pod_name: Some(name.to_owned()),
        selected_node: Some(node.to_owned()),
        received_resource_type: Some(kind.to_owned()),
        received_gpu: Some(ReceivedGpu { count: Some(count), portion: Some(portion) }),
        selected_gpu_groups: placed.devices.clone(),
        resource_claim_allocations: claims.collect(),
        extended_resource_claim_allocation: Some(taken).filter(|_| !extended.is_empty()),
        predicted_numa_zones: zones.collect(),
        backoff_limit: None,
    };
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        labels: Some(converter.pool_label().into_iter().chain(node_label(node)).collect()),
        owner_references: Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            controller: None,
            block_owner_deletion: None,
        }]),
        ..ObjectMeta::default()
    };
    Some(Request { object: BindRequest { metadata, spec, status: None }, extended })
}

/// Says which container gets which of the devices for extended resources.
pub fn complete(request: &mut Request, pod: &k8s::Pod) {
    let mut left = std::mem::take(&mut request.extended);
    let node = request.object.spec.selected_node.clone().unwrap_or_default();
    let mut made = ExtendedResourceClaimAllocation::default();
    let mut results: Vec<(String, DeviceRef)> = Vec::new();
    for (index, container) in pod.spec.iter().flat_map(|spec| &spec.containers).enumerate() {
        let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
        for (number, (resource, quantity)) in limits.into_iter().flatten().enumerate() {
            let wanted: usize = quantity.0.parse().unwrap_or(0);
            let mut devices = Vec::new();
            while devices.len() < wanted
                && let Some(place) = left.iter().position(|(of, _, _)| of == resource)
            {
                devices.push(left.remove(place));
            }
            let Some((_, class, _)) = devices.first() else { continue };
            let name = format!("container-{index}-request-{number}");
            made.device_requests.push(DeviceRequest {
                name: name.clone(),
                exactly: Some(ExactDeviceRequest {
                    device_class_name: class.clone(),
                    count: i64::try_from(devices.len()).ok(),
                    allocation_mode: Some("ExactCount".to_owned()),
                    ..ExactDeviceRequest::default()
                }),
                first_available: None,
            });
            made.container_mappings.push(k8s::ContainerExtendedResourceRequest {
                container_name: container.name.clone(),
                request_name: name.clone(),
                resource_name: resource.clone(),
            });
            results.extend(devices.into_iter().map(|(_, _, device)| (name.clone(), device)));
        }
    }
    request.object.spec.extended_resource_claim_allocation = None;
    if !results.is_empty() {
        made.allocation = Some(allocation(&node, results.iter().map(|(name, device)| (name.clone(), device))));
        request.object.spec.extended_resource_claim_allocation = Some(made);
    }
}

fn node_label(node: &str) -> Option<(String, String)> {
    (node.len() <= LONGEST_LABEL).then(|| (labels::SELECTED_NODE.to_owned(), node.to_owned()))
}

fn allocation<'a>(node: &str, devices: impl Iterator<Item = (String, &'a DeviceRef)>) -> AllocationResult {
    let results = devices.map(|(request, device)| DeviceRequestAllocationResult {
        request,
        driver: device.driver.clone(),
        pool: device.pool.clone(),
        device: device.name.clone(),
        ..DeviceRequestAllocationResult::default()
    });
    let field = k8s::NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = k8s::NodeSelectorTerm { match_fields: Some(vec![field]), ..k8s::NodeSelectorTerm::default() };
    AllocationResult {
        devices: Some(DeviceAllocationResult { results: Some(results.collect()), config: None }),
        node_selector: Some(k8s::NodeSelector { node_selector_terms: vec![term] }),
        ..AllocationResult::default()
    }
}

/// Millionths as an exact decimal number.
fn portion(millionths: u32) -> String {
    let (whole, part) = (millionths / 1_000_000, millionths % 1_000_000);
    let digits = format!("{part:06}");
    let digits = digits.trim_end_matches('0');
    if digits.is_empty() { whole.to_string() } else { format!("{whole}.{digits}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_are_exact_decimals() {
        assert_eq!([300_000, 234_375, 1_000_000, 1].map(portion), ["0.3", "0.234375", "1", "0.000001"]);
    }
}
