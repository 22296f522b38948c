//! Takes back what a failed attempt wrote: labels, ConfigMaps, claims, chosen places of volumes. Reservation pods go by themselves
//! when no request wants them.
//!
//! A pod that is bound, wherever, is left alone: what it has it uses.

use k8s_openapi::api::core::v1::Pod;
use kai_api::BindRequest;
use kai_kit::{
    errors::{Class, classify},
    writes,
};
use kube::ResourceExt;

use crate::{
    claims, extended_claim, groups, sharing, volumes,
    world::{World, is_fraction, place},
};

/// Takes everything back. May be repeated.
pub(crate) async fn undo(world: &World, request: &BindRequest, pod: Option<&Pod>) -> Result<(), kube::Error> {
    let Some(pod) = pod else { return Ok(()) };
    // What the mirror has may be old: the binding may have gone through.
    let live = world.pod_api(&pod.namespace().unwrap_or_default()).get_opt(&pod.name_any()).await?;
    let Some(live) = live.filter(|live| live.metadata.uid == pod.metadata.uid) else { return Ok(()) };
    if place(&live).is_some() {
        return Ok(());
    }
    claims::release(world, request, &live).await?;
    extended_claim::release(world, request, &live).await?;
    volumes::release(world, &live).await?;
    if is_fraction(request) {
        sharing::forget(world, &live).await?;
    }
    if let Some(patch) = groups::leave(&live) {
        let api = world.pod_api(&live.namespace().unwrap_or_default());
        match writes::merge(&api, world.process.component, &live.name_any(), &patch).await {
            Ok(changed) => world.pods.saw(changed),
            // A conflict is looked at again: the next attempt begins with the pod as it is.
            Err(error) if classify(&error) == Class::Gone => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
