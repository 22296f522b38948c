//! Volumes that wait for their first pod: an existing volume on the node is given to the claim, or the provisioner is told the node.
//!
//! What this writes carries the uid of the pod it was written for, so that it can be taken back and nothing else is.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kai_api::names::annotations;
use kai_kit::{
    errors::{Class, classify},
    writes,
};
use kai_quantity::Quantity;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::{Value, json};

use crate::{
    failure::Failure,
    selector::{allows, selects},
    world::World,
};

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const BY_HAND: &str = "kubernetes.io/no-provisioner";

/// The volume claims of a pod.
fn claims_of(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let names = volumes.filter_map(|volume| {
        if let Some(claim) = &volume.persistent_volume_claim {
            return Some(claim.claim_name.clone());
        }
        volume.ephemeral.as_ref().map(|_| format!("{}-{}", pod.name_any(), volume.name))
    });
    names.collect()
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// Sees to it that all volumes of a pod can be had on a node: done, waiting, or why not.
pub(crate) async fn place(world: &World, pod: &Pod, node: &Node) -> Result<(), Failure> {
    let names = claims_of(pod);
    if names.is_empty() {
        return Ok(());
    }
    let volumes = Volumes::new(world, pod);
    let mut waiting = None;
    for name in names {
        match volumes.place(&name, node).await {
            Err(Failure::Waiting(what)) => waiting = waiting.or(Some(what)),
            other => other?,
        }
    }
    waiting.map_or(Ok(()), |what| Err(Failure::Waiting(what)))
}

struct Volumes<'a> {
    world: &'a World,
    pod: &'a Pod,
    claims: Api<PersistentVolumeClaim>,
    existing: Api<PersistentVolume>,
    classes: Api<StorageClass>,
}

impl<'a> Volumes<'a> {
    fn new(world: &'a World, pod: &'a Pod) -> Self {
        let client = &world.process.client;
        Self {
            claims: Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default()),
            existing: Api::all(client.clone()),
            classes: Api::all(client.clone()),
            world,
            pod,
        }
    }

    async fn place(&self, name: &str, node: &Node) -> Result<(), Failure> {
        let doing = format!("read volume claim {name}");
        let found = self.claims.get_opt(name).await.map_err(|error| Failure::of(&doing, &error))?;
        let Some(claim) = found else {
            return Err(Failure::Waiting(format!("volume claim {name} does not exist yet")));
        };
        if is_bound(&claim) {
            return Ok(());
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(Failure::Refused(format!("volume claim {name} is being deleted")));
        }
        if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost") {
            return Err(Failure::Refused(format!("volume claim {name} has lost its volume")));
        }
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).filter(|name| !name.is_empty());
        if let Some(volume) = volume {
            return Err(Failure::Waiting(format!("volume claim {name} is being bound to volume {volume}")));
        }
        let Some(class) = self.class(&claim).await? else {
            return Err(Failure::Waiting(format!("volume claim {name} has no storage class and no volume")));
        };
        if class.volume_binding_mode.as_deref() != Some("WaitForFirstConsumer") {
            return Err(Failure::Waiting(format!("volume claim {name} is not bound yet")));
        }
        let selected = claim.annotations().get(SELECTED_NODE);
        if selected == Some(&node.name_any()) {
            return Err(Failure::Waiting(format!("the volume of claim {name} is being made")));
        }
        let ours = claim.annotations().get(annotations::PLACED_FOR) == self.pod.metadata.uid.as_ref();
        if ours && selected.is_none() {
            let text = format!(
                "the volume of claim {name} cannot be made on node {}: its provisioner gave up",
                node.name_any()
            );
            return Err(Failure::Refused(text));
        }
        self.choose(&claim, &class, node).await
    }

    async fn class(&self, claim: &PersistentVolumeClaim) -> Result<Option<StorageClass>, Failure> {
        let name = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone());
        let failed = |error: kube::Error| Failure::of("read storage classes", &error);
        match name {
            Some(name) if name.is_empty() => Ok(None),
            Some(name) => self.classes.get_opt(&name).await.map_err(failed),
            None => {
                let all = self.classes.list(&ListParams::default()).await.map_err(failed)?;
                Ok(all
                    .items
                    .into_iter()
                    .find(|class| class.annotations().get(DEFAULT_CLASS).is_some_and(|t| t == "true")))
            }
        }
    }

    /// Gives the claim the smallest volume that will do, else asks for one to be made.
    async fn choose(&self, claim: &PersistentVolumeClaim, class: &StorageClass, node: &Node) -> Result<(), Failure> {
        let (name, manager) = (claim.name_any(), self.world.process.component);
        let all = self.existing.list(&ListParams::default()).await;
        let all = all.map_err(|error| Failure::of("list volumes", &error))?.items;
        if all.iter().any(|volume| promised_to(volume, claim)) {
            return Err(Failure::Waiting(format!("volume claim {name} is being bound")));
        }
        let mut fitting: Vec<&PersistentVolume> =
            all.iter().filter(|volume| fits(volume, claim, class, node)).collect();
        fitting.sort_by_key(|volume| (capacity(volume), volume.name_any()));
        if let Some(volume) = fitting.first() {
            let to = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace(), "name": name,
                "uid": claim.metadata.uid});
            let marks = json!({BOUND_BY_CONTROLLER: "yes", annotations::PLACED_FOR: self.pod.metadata.uid});
            let patch = json!({"metadata": {"resourceVersion": volume.metadata.resource_version, "annotations": marks},
                "spec": {"claimRef": to}});
            let volume = volume.name_any();
            let written = writes::merge(&self.existing, manager, &volume, &patch).await;
            written.map_err(|error| Failure::of(&format!("give volume {volume} to claim {name}"), &error))?;
            return Err(Failure::Waiting(format!("volume claim {name} is being bound to volume {volume}")));
        }
        if class.provisioner == BY_HAND {
            let text =
                format!("node {} has no free volume of class {} for claim {name}", node.name_any(), class.name_any());
            return Err(Failure::Refused(text));
        }
        let marks = json!({SELECTED_NODE: node.name_any(), annotations::PLACED_FOR: self.pod.metadata.uid});
        let guard = json!({"resourceVersion": claim.metadata.resource_version, "annotations": marks});
        let written = writes::merge(&self.claims, manager, &name, &json!({"metadata": guard})).await;
        written.map_err(|error| Failure::of(&format!("choose the node of volume claim {name}"), &error))?;
        Err(Failure::Waiting(format!("the volume of claim {name} is being made")))
    }

    async fn release(&self, name: &str) -> Result<(), kube::Error> {
        let manager = self.world.process.component;
        let Some(claim) = self.claims.get_opt(name).await? else { return Ok(()) };
        if is_bound(&claim) {
            return Ok(());
        }
        let mark = |annotations: &BTreeMap<String, String>| {
            annotations.get(annotations::PLACED_FOR) == self.pod.metadata.uid.as_ref()
        };
        if mark(claim.annotations()) {
            let marks = json!({SELECTED_NODE: Value::Null, annotations::PLACED_FOR: Value::Null});
            let guard = json!({"resourceVersion": claim.metadata.resource_version, "annotations": marks});
            lenient(writes::merge(&self.claims, manager, name, &json!({"metadata": guard})).await)?;
        }
        for volume in self.existing.list(&ListParams::default()).await?.items {
            if promised_to(&volume, &claim) && mark(volume.annotations()) {
                let marks = json!({BOUND_BY_CONTROLLER: Value::Null, annotations::PLACED_FOR: Value::Null});
                let guard = json!({"resourceVersion": volume.metadata.resource_version, "annotations": marks});
                let patch = json!({"metadata": guard, "spec": {"claimRef": Value::Null}});
                lenient(writes::merge(&self.existing, manager, &volume.name_any(), &patch).await)?;
            }
        }
        Ok(())
    }
}

/// Takes back what was chosen for a pod and has not become true.
pub(crate) async fn release(world: &World, pod: &Pod) -> Result<(), kube::Error> {
    let volumes = Volumes::new(world, pod);
    for name in claims_of(pod) {
        volumes.release(&name).await?;
    }
    Ok(())
}

/// Whoever changed it meanwhile knows better.
fn lenient<K>(written: Result<K, kube::Error>) -> Result<(), kube::Error> {
    match written {
        Err(error) if !matches!(classify(&error), Class::Gone | Class::Conflict) => Err(error),
        _ => Ok(()),
    }
}

fn promised_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let to = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    to.is_some_and(|to| to.uid.is_some() && to.uid == claim.metadata.uid)
}

fn capacity(volume: &PersistentVolume) -> Option<Quantity> {
    volume.spec.as_ref()?.capacity.as_ref()?.get("storage")?.0.parse().ok()
}

fn fits(volume: &PersistentVolume, claim: &PersistentVolumeClaim, class: &StorageClass, node: &Node) -> bool {
    let (Some(spec), Some(wish)) = (&volume.spec, &claim.spec) else { return false };
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Available");
    let free = phase == "Available" && volume.metadata.deletion_timestamp.is_none();
    let reserved = spec.claim_ref.as_ref().is_none_or(|to| {
        to.namespace == claim.namespace() && to.name.as_deref() == Some(&claim.name_any()) && to.uid.is_none()
    });
    let of_class = spec.storage_class_name.as_deref().unwrap_or_default() == class.name_any();
    let modes =
        wish.access_modes.iter().flatten().all(|mode| spec.access_modes.iter().flatten().any(|own| own == mode));
    let form = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let requests = wish.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let wished: Option<Quantity> = requests.and_then(|requests| requests.get("storage")).and_then(|q| q.0.parse().ok());
    let large = wished.is_none_or(|wished| capacity(volume).is_some_and(|capacity| capacity >= wished));
    let labelled = wish.selector.as_ref().is_none_or(|selector| selects(selector, volume.labels()));
    let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    let here = required.is_none_or(|required| allows(required, node));
    free && reserved
        && of_class
        && modes
        && form(&spec.volume_mode) == form(&wish.volume_mode)
        && large
        && labelled
        && here
}
