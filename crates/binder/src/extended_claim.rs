//! The claim that stands for a pod's extended resources where a device class serves them: made, allocated and named in the pod's
//! status, or removed again.

use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kai_api::{BindRequest, names::finalizers};
use kai_kit::{
    errors::{Class, classify},
    writes,
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{claims, failure::Failure, world::World};

/// Marks such claims for Kubernetes.
const MARK: &str = "resource.kubernetes.io/extended-resource-claim";

/// The name: one that the pod already has, else one that follows from the pod, so that a lost answer makes no second claim.
fn name_of(pod: &Pod) -> String {
    let known = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
    if let Some(known) = known.map(|known| known.resource_claim_name.clone()).filter(|name| !name.is_empty()) {
        return known;
    }
    let digest = Sha256::digest(pod.uid().unwrap_or_default());
    let short = digest.iter().take(4).fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
    let pod: String = pod.name_any().chars().take(200).collect();
    format!("{pod}-extended-resources-{short:08x}")
}

fn api(world: &World, pod: &Pod) -> Api<ResourceClaim> {
    Api::namespaced(world.process.client.clone(), &pod.namespace().unwrap_or_default())
}

/// Makes the claim and writes its devices.
pub(crate) async fn allocate(world: &World, request: &BindRequest, pod: &Pod) -> Result<(), Failure> {
    let Some(wanted) = &request.spec.extended_resource_claim_allocation else { return Ok(()) };
    let Some(allocation) = &wanted.allocation else { return Ok(()) };
    let (api, name) = (api(world, pod), name_of(pod));
    let doing = format!("make resource claim {name}");
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.metadata.uid,
        "controller": true, "blockOwnerDeletion": true});
    let object = json!({
        "metadata": {"name": name, "namespace": pod.namespace(), "annotations": {MARK: "true"},
            "finalizers": [finalizers::RESOURCE_CLAIM], "ownerReferences": [owner]},
        "spec": {"devices": {"requests": wanted.device_requests}},
    });
    let object: ResourceClaim = serde_json::from_value(object).map_err(|error| Failure::Refused(error.to_string()))?;
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => {}
        Err(error) if classify(&error) == Class::Exists => {
            let found = api.get_opt(&name).await.map_err(|error| Failure::of(&doing, &error))?;
            let ours = found.is_some_and(|claim| owned(&claim, pod));
            if !ours {
                return Err(Failure::Refused(format!("resource claim {name} exists and does not belong to the pod")));
            }
        }
        Err(error) => return Err(Failure::of(&doing, &error)),
    }
    claims::write_allocation(world, &api, &name, Some(allocation), pod).await?;
    let status = json!({"resourceClaimName": name, "requestMappings": wanted.container_mappings});
    write_status(world, pod, status)
        .await
        .map_err(|error| Failure::of("name the resource claim in the pod's status", &error))
}

fn owned(claim: &ResourceClaim, pod: &Pod) -> bool {
    claim.owner_references().iter().any(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref())
}

/// Removes the claim and its name.
pub(crate) async fn release(world: &World, request: &BindRequest, pod: &Pod) -> Result<(), kube::Error> {
    if request.spec.extended_resource_claim_allocation.is_none() {
        return Ok(());
    }
    let (api, name) = (api(world, pod), name_of(pod));
    if let Some(claim) = api.get_opt(&name).await?
        && owned(&claim, pod)
    {
        let manager = world.process.component;
        let guard = json!({"resourceVersion": claim.metadata.resource_version});
        let free = json!({"metadata": guard, "status": {"allocation": Value::Null, "reservedFor": Value::Null}});
        let claim = writes::merge_status(&api, manager, &name, &free).await?;
        writes::delete(&api, &claim, None).await?;
        let mut rest = claim.finalizers().to_vec();
        rest.retain(|known| known != finalizers::RESOURCE_CLAIM);
        match writes::merge(&api, manager, &name, &json!({"metadata": {"finalizers": rest}})).await {
            Err(error) if classify(&error) != Class::Gone => return Err(error),
            _ => {}
        }
    }
    if pod.status.as_ref().is_some_and(|status| status.extended_resource_claim_status.is_some()) {
        write_status(world, pod, Value::Null).await?;
    }
    Ok(())
}

async fn write_status(world: &World, pod: &Pod, status: Value) -> Result<(), kube::Error> {
    let known = pod.status.as_ref().and_then(|known| known.extended_resource_claim_status.as_ref());
    if known.is_some_and(|known| json!(known) == status) {
        return Ok(());
    }
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"extendedResourceClaimStatus": status}});
    let parameters = PatchParams { field_manager: Some(world.process.component.to_owned()), ..PatchParams::default() };
    let api = world.pod_api(&pod.namespace().unwrap_or_default());
    api.patch_status(&pod.name_any(), &parameters, &Patch::Merge(&patch)).await.map(|_| ())
}
