//! Resource claims: the devices that the scheduler chose are written into them, and taken out again if the pod is not bound.

use k8s_openapi::api::{
    core::v1::{Node, Pod},
    resource::v1::{AllocationResult, ResourceClaim, ResourceClaimConsumerReference},
};
use kai_api::{BindRequest, names::finalizers};
use kai_kit::{
    errors::{Class, classify},
    writes,
};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::{failure::Failure, selector::allows, world::World};

/// The claims of a pod: the name in its spec and the object's name, if that is known yet.
fn claims_of(pod: &Pod) -> Vec<(String, Option<String>)> {
    let claims = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let made = |name: &str| {
        let mut all = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
        all.find(|status| status.name == name)
    };
    let named = claims.filter_map(|claim| match &claim.resource_claim_name {
        Some(object) => Some((claim.name.clone(), Some(object.clone()))),
        None => match made(&claim.name) {
            // The template's controller decided that no claim is needed.
            Some(status) => status.resource_claim_name.clone().map(|object| (claim.name.clone(), Some(object))),
            None => Some((claim.name.clone(), None)),
        },
    });
    named.collect()
}

fn chosen<'a>(request: &'a BindRequest, name: &str) -> Option<&'a AllocationResult> {
    let mut all = request.spec.resource_claim_allocations.iter();
    all.find(|claim| claim.name.as_deref() == Some(name))?.allocation.as_ref()
}

fn api(world: &World, pod: &Pod) -> Api<ResourceClaim> {
    Api::namespaced(world.process.client.clone(), &pod.namespace().unwrap_or_default())
}

/// Writes the chosen devices into all claims of a pod, and the pod as their user.
pub(crate) async fn allocate(world: &World, request: &BindRequest, pod: &Pod, node: &Node) -> Result<(), Failure> {
    for (name, object) in claims_of(pod) {
        let Some(object) = object else {
            return Err(Failure::Waiting(format!("resource claim {name} of the pod does not exist yet")));
        };
        let api = api(world, pod);
        let read = api.get_opt(&object).await;
        let found = read.map_err(|error| Failure::of(&format!("read resource claim {object}"), &error))?;
        let Some(claim) = found else {
            return Err(Failure::Waiting(format!("resource claim {object} does not exist yet")));
        };
        allocate_one(world, &api, claim, chosen(request, &name), pod, node).await?;
    }
    Ok(())
}

async fn allocate_one(
    world: &World,
    api: &Api<ResourceClaim>,
    claim: ResourceClaim,
    chosen: Option<&AllocationResult>,
    pod: &Pod,
    node: &Node,
) -> Result<(), Failure> {
    let name = claim.name_any();
    let status = claim.status.clone().unwrap_or_default();
    let users = status.reserved_for.unwrap_or_default();
    let uid = pod.uid().unwrap_or_default();
    let others = users.iter().any(|user| user.uid != uid);
    let allocate = match (&status.allocation, chosen) {
        (None, None) => {
            return Err(Failure::Refused(format!("no devices were chosen for resource claim {name}")));
        }
        (None, Some(chosen)) => Some(chosen),
        (Some(known), Some(chosen)) if !same(known, chosen) && !others => {
            // Left over from an attempt on another node. A merge would mix the two: the old one goes first.
            empty(world, api, &claim)
                .await
                .map_err(|error| Failure::of(&format!("free resource claim {name}"), &error))?;
            Some(chosen)
        }
        (Some(known), _) => {
            if known.node_selector.as_ref().is_some_and(|selector| !allows(selector, node)) {
                let text = format!("resource claim {name} has devices that node {} cannot reach", node.name_any());
                return Err(Failure::Refused(text));
            }
            None
        }
    };
    write_allocation(world, api, &name, allocate, pod).await
}

/// Adds an allocation and a user to a claim, whatever else is in it.
pub(crate) async fn write_allocation(
    world: &World,
    api: &Api<ResourceClaim>,
    name: &str,
    allocation: Option<&AllocationResult>,
    pod: &Pod,
) -> Result<(), Failure> {
    let doing = format!("write resource claim {name}");
    let failed = |error: kube::Error| Failure::of(&doing, &error);
    let manager = world.process.component;
    let mut claim = api.get(name).await.map_err(failed)?;
    if allocation.is_some() && !claim.finalizers().iter().any(|known| known == finalizers::RESOURCE_CLAIM) {
        let mut all = claim.finalizers().to_vec();
        all.push(finalizers::RESOURCE_CLAIM.to_owned());
        let patch = json!({"metadata": {"resourceVersion": claim.metadata.resource_version, "finalizers": all}});
        claim = writes::merge(api, manager, name, &patch).await.map_err(failed)?;
    }
    let status = claim.status.clone().unwrap_or_default();
    let mut users = status.reserved_for.unwrap_or_default();
    let uid = pod.uid().unwrap_or_default();
    let known = users.iter().any(|user| user.uid == uid);
    if known && (allocation.is_none() || status.allocation.is_some()) {
        return Ok(());
    }
    if !known {
        users.push(ResourceClaimConsumerReference {
            name: pod.name_any(),
            resource: "pods".to_owned(),
            uid,
            api_group: None,
        });
    }
    let mut written = json!({"reservedFor": users});
    if let Some(allocation) = allocation.filter(|_| status.allocation.is_none()) {
        written["allocation"] = json!(allocation);
    }
    let patch = json!({"metadata": {"resourceVersion": claim.metadata.resource_version}, "status": written});
    writes::merge_status(api, manager, name, &patch).await.map(|_| ()).map_err(failed)
}

/// Frees a claim of its devices and its users.
async fn empty(world: &World, api: &Api<ResourceClaim>, claim: &ResourceClaim) -> Result<(), kube::Error> {
    let guard = json!({"resourceVersion": claim.metadata.resource_version});
    let patch = json!({"metadata": guard, "status": {"allocation": Value::Null, "reservedFor": Value::Null}});
    writes::merge_status(api, world.process.component, &claim.name_any(), &patch).await.map(|_| ())
}

/// Takes a pod out of its claims, and the devices that were chosen for it where nobody else uses them.
pub(crate) async fn release(world: &World, request: &BindRequest, pod: &Pod) -> Result<(), kube::Error> {
    for (name, object) in claims_of(pod) {
        let Some(object) = object else { continue };
        let api = api(world, pod);
        let Some(claim) = api.get_opt(&object).await? else { continue };
        let written = release_one(world, &api, &claim, chosen(request, &name), &pod.uid().unwrap_or_default()).await;
        match written {
            Err(error) if classify(&error) == Class::Gone => {}
            other => other?,
        }
    }
    Ok(())
}

async fn release_one(
    world: &World,
    api: &Api<ResourceClaim>,
    claim: &ResourceClaim,
    chosen: Option<&AllocationResult>,
    uid: &str,
) -> Result<(), kube::Error> {
    let (name, manager) = (claim.name_any(), world.process.component);
    let status = claim.status.clone().unwrap_or_default();
    let mut users = status.reserved_for.unwrap_or_default();
    let before = users.len();
    users.retain(|user| user.uid != uid);
    let ours = matches!((&status.allocation, chosen), (Some(known), Some(chosen)) if same(known, chosen));
    let last = users.is_empty() && ours;
    let mut current = claim.clone();
    if users.len() < before {
        if last {
            empty(world, api, claim).await?;
        } else {
            let guard = json!({"resourceVersion": claim.metadata.resource_version});
            let patch = json!({"metadata": guard, "status": {"reservedFor": users}});
            writes::merge_status(api, manager, &name, &patch).await?;
        }
        let Some(changed) = api.get_opt(&name).await? else { return Ok(()) };
        current = changed;
    }
    // A claim without devices needs no protection; an earlier rollback may have come this far only.
    let free = current.status.as_ref().is_none_or(|status| status.allocation.is_none());
    if chosen.is_some() && free && current.finalizers().iter().any(|known| known == finalizers::RESOURCE_CLAIM) {
        let mut rest = current.finalizers().to_vec();
        rest.retain(|known| known != finalizers::RESOURCE_CLAIM);
        let patch = json!({"metadata": {"resourceVersion": current.metadata.resource_version, "finalizers": rest}});
        writes::merge(api, manager, &name, &patch).await?;
    }
    Ok(())
}

/// Whether two allocations are the same devices.
fn same(one: &AllocationResult, other: &AllocationResult) -> bool {
    one.devices == other.devices
}
