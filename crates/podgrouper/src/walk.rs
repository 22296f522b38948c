//! From a pod up to what it belongs to.
//!
//! The way goes along the controller's reference, else the first. It ends at an object without owners, or below one
//! that may not be read. Owners are read once for all their pods and remembered while a pod has them; of the usual
//! kinds the server tells the changes ([`crate::owner_watch`]), others are read again after a while.

mod memory;

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kai_kit::{Key, WorkQueue, errors};
use kube::{
    Api, Client, Error,
    core::{DynamicObject, ObjectMeta},
};
use serde_json::Value;

use self::memory::{Memory, Place, Read};
use crate::{
    error::Trouble,
    metrics::Numbers,
    owner::{Owner, Reference, next_owner},
    resources::Resources,
    turnstile::Turnstile,
};

/// Longer chains than any known workload has are a mistake.
const HIGHEST: usize = 16;

/// What is above a pod.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    /// From the nearest up; the pod itself if nothing above it can be read.
    pub owners: Vec<Arc<Owner>>,
    /// The owner at which reading had to stop, and why.
    pub unreadable: Option<String>,
}

/// Reads and remembers owners.
pub(crate) struct Owners {
    client: Client,
    resources: Resources,
    memory: Memory,
    turnstile: Turnstile,
    numbers: Numbers,
}

impl Owners {
    pub(crate) fn new(client: Client, turnstile: Turnstile, queue: WorkQueue<Key>, numbers: Numbers) -> Self {
        Self { resources: Resources::new(client.clone()), client, memory: Memory::new(queue), turnstile, numbers }
    }

    /// Everything above a pod.
    pub(crate) async fn chain(&self, pod: &Pod, key: &Key) -> Result<Chain, Trouble> {
        let mut owners: Vec<Arc<Owner>> = Vec::new();
        let mut places = BTreeSet::new();
        let mut unreadable = None;
        let mut references = pod.metadata.owner_references.clone().unwrap_or_default();
        let mut visited = BTreeSet::from([pod.metadata.uid.clone().unwrap_or_default()]);
        while let Some(reference) = next_owner(&references) {
            if !visited.insert(reference.uid.clone()) {
                let names: Vec<String> = owners.iter().map(|owner| owner.reference.to_string()).collect();
                return Err(Trouble::Input(format!(
                    "the owners of the pod go round in a circle: {}; remove one of their metadata.ownerReferences",
                    names.join(", ")
                )));
            }
            if owners.len() >= HIGHEST {
                return Err(Trouble::Input(format!(
                    "the pod has more than {HIGHEST} owners above each other; the last one is {}; \
                     remove one of their metadata.ownerReferences",
                    Reference::from(reference)
                )));
            }
            let place =
                Place { namespace: key.namespace.clone(), reference: reference.into(), uid: reference.uid.clone() };
            match self.owner(&place, reference, key).await? {
                Read::Owner(owner) => {
                    places.insert(place);
                    references.clone_from(&owner.owners);
                    owners.push(owner);
                }
                Read::Forbidden(why) => {
                    unreadable = Some(why);
                    break;
                }
            }
        }
        self.memory.follow(key, places);
        if owners.is_empty() {
            owners.push(Arc::new(Owner::of_pod(pod)));
        }
        Ok(Chain { owners, unreadable })
    }

    /// An object that a kind asked for, or nothing if it is not there.
    pub(crate) async fn object(&self, reference: &Reference, key: &Key) -> Result<Option<Arc<Value>>, Trouble> {
        if let Some(known) = self.memory.object(&key.namespace, reference) {
            return Ok(known.object);
        }
        let what = format!("object {} {} {}/{}", reference.api_version, reference.kind, key.namespace, reference.name);
        let Some(_pass) = self.turnstile.enter(what, key) else { return Err(Trouble::Parked) };
        self.numbers.owner_reads.inc();
        let object = match self.api(&key.namespace, reference).await?.get_opt(&reference.name).await {
            Ok(object) => object,
            Err(error) if is_forbidden(&error) => {
                return Err(Trouble::Input(format!("{reference} may not be read: {}", errors::message(&error))));
            }
            Err(error) => return Err(Trouble::Server(format!("{reference} not read: {}", errors::message(&error)))),
        };
        let object = object.map(|object| Arc::new(serde_json::to_value(object).unwrap_or_default()));
        self.memory.learn_object(&key.namespace, reference, object.clone());
        Ok(object)
    }

    /// Takes in what the server tells about an object of a usual kind.
    pub(crate) fn changed(&self, api_version: &str, kind: &str, metadata: &ObjectMeta) {
        self.memory.changed(api_version, kind, metadata);
    }

    /// Takes in that an object of a usual kind is gone.
    pub(crate) fn gone(&self, api_version: &str, kind: &str, metadata: &ObjectMeta) {
        self.memory.gone(api_version, kind, metadata);
    }

    /// Takes in that an object is gone whose owners may be gone too: they are read again.
    pub(crate) fn suspect(&self, dependent: &ObjectMeta) {
        for reference in dependent.owner_references.iter().flatten() {
            let namespace = dependent.namespace.clone().unwrap_or_default();
            self.memory.unlearn(&Place { namespace, reference: reference.into(), uid: reference.uid.clone() });
        }
    }

    /// A pod is no longer there.
    pub(crate) fn forget(&self, pod: &Key) {
        self.memory.follow(pod, BTreeSet::new());
    }

    async fn owner(&self, place: &Place, reference: &OwnerReference, key: &Key) -> Result<Read, Trouble> {
        if let Some(known) = self.memory.owner(place) {
            return Ok(known);
        }
        let what = format!("owner {}", reference.uid);
        let Some(_pass) = self.turnstile.enter(what, key) else { return Err(Trouble::Parked) };
        let named = &place.reference;
        self.numbers.owner_reads.inc();
        let read = match self.api(&place.namespace, named).await?.get_metadata(&named.name).await {
            Ok(found) if found.metadata.uid.as_deref() != Some(&reference.uid) => {
                return Err(Trouble::Unsettled(format!(
                    "{named} is another one than the pod belongs to: it has uid {}, \
                     the pod's metadata.ownerReferences say {}; \
                     delete the pod if nobody else does",
                    found.metadata.uid.as_deref().unwrap_or("none"),
                    reference.uid
                )));
            }
            Ok(found) => {
                let metadata = found.metadata;
                let version = memory::version_of(&metadata);
                let owner = Read::Owner(Arc::new(Owner::new(named.clone(), trimmed(metadata))));
                self.memory.learn(place, version, owner.clone());
                return Ok(owner);
            }
            Err(error) if is_forbidden(&error) => Read::Forbidden(format!(
                "{named} may not be read and what is above it is not considered: {}; \
                 grant `get` on {} {} to the pod-grouper, \
                 or set annotation {} on the pods",
                errors::message(&error),
                named.api_version,
                named.kind,
                kai_api::names::annotations::SKIP_POD_GROUPER
            )),
            Err(Error::Api(status)) if status.is_not_found() => {
                return Err(Trouble::Unsettled(format!(
                    "{named}, which the pod's metadata.ownerReferences name, does not exist"
                )));
            }
            Err(error) => return Err(Trouble::Server(format!("{named} not read: {}", errors::message(&error)))),
        };
        self.memory.learn(place, None, read.clone());
        Ok(read)
    }

    async fn api(&self, namespace: &str, reference: &Reference) -> Result<Api<DynamicObject>, Trouble> {
        match self.resources.find(reference).await {
            Ok(Some((resource, scope))) => {
                Ok(Api::dynamic(self.client.clone(), &resource, &scope).constrain(namespace))
            }
            Ok(None) => Err(Trouble::Unsettled(format!(
                "{reference}, which the pod's metadata.ownerReferences name, \
                 is of a kind that the API server does not serve in {}",
                reference.api_version
            ))),
            Err(error) => {
                Err(Trouble::Server(format!("kind of {reference} not found out: {}", errors::message(&error))))
            }
        }
    }
}

/// Without what nobody asks for.
fn trimmed(mut metadata: ObjectMeta) -> ObjectMeta {
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|key, value| crate::rules::is_setting(key, value));
    }
    metadata
}

fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 403)
}
