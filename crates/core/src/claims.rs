//! ResourceClaims and the devices of DRA drivers that satisfy them.
//!
//! ```text
//!   Claim ── home: what the API says it has      ┐
//!         ── holds: who has which devices of it  ├─▶ Node.devices: in use now, in use once what leaves has left
//!   Pod.place.detail ── claims, extended ────────┘
//! ```
//!
//! A claim is *held* by the pods that use it. While one of them stays, the claim stays where it is; once all of them
//! leave, its devices will be free and it can be promised other ones. An allocated claim that no known pod holds keeps
//! its devices: it is *anchored*.
//!
//! A pod can also ask for devices as an extended resource. A node offers such a resource as the number of its free
//! devices, so that ordinary fitting works, and a device is either part of a claim or of such a request.

mod choice;
mod fit;
#[cfg(test)]
pub(crate) mod fixture;
mod home;
mod intake;
mod ledger;
mod resources;
mod search;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Arc};

use rustc_hash::FxHashMap;

pub use self::{
    fit::ClaimFit,
    ledger::{Hold, Served},
};
use crate::{
    amounts::{GPU, LARGEST},
    delta::{self, DeviceCount},
    ids::{ClaimId, NodeId, PodId},
};

/// All claims that exist or that pods name.
#[derive(Debug, Default)]
pub struct Claims {
    list: Vec<Claim>,
    ids: FxHashMap<Arc<str>, ClaimId>,
    free: Vec<ClaimId>,
    /// Claims by the uids of the pods they are reserved for.
    reservations: FxHashMap<Box<str>, Vec<ClaimId>>,
    /// Claims whose allocation names no node: where their devices are says it.
    nodeless: BTreeSet<ClaimId>,
    /// Extended resources that devices serve, by name.
    resources: Vec<delta::DeviceResource>,
}

/// A claim.
#[derive(Debug, Default)]
pub struct Claim {
    /// `namespace/name`.
    pub key: Arc<str>,
    /// What the API says; `None`: only pods have named it.
    pub fact: Option<delta::Claim>,
    /// What it has, in the cluster's terms.
    pub home: Option<Home>,
    /// Pods that use it or for which it is reserved.
    pub users: Vec<PodId>,
    /// Who holds which devices of it, in the order of nodes and devices.
    pub holds: Vec<Hold>,
    /// What is entered for it in the ledger of devices because no known pod holds it.
    anchor: Option<(NodeId, Vec<(u32, u32)>)>,
}

/// Where a claim is allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// The node; `None`: it can be used from everywhere.
    pub node: Option<NodeId>,
    /// The request's place and the device's place on the node, for devices that the node still has.
    pub devices: Vec<(u32, u32)>,
}

impl Claims {
    /// A claim.
    #[must_use]
    pub fn get(&self, claim: ClaimId) -> &Claim {
        &self.list[claim.index()]
    }

    /// The claim of a `namespace/name`, if it is known.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<ClaimId> {
        self.ids.get(key).copied()
    }

    fn get_mut(&mut self, claim: ClaimId) -> &mut Claim {
        &mut self.list[claim.index()]
    }

    /// The claim of a key, made if only its name is known.
    fn named(&mut self, key: &str) -> ClaimId {
        if let Some(claim) = self.ids.get(key) {
            return *claim;
        }
        let key: Arc<str> = key.into();
        let fresh = Claim { key: Arc::clone(&key), ..Claim::default() };
        let id = if let Some(id) = self.free.pop() {
            self.list[id.index()] = fresh;
            id
        } else {
            self.list.push(fresh);
            ClaimId::of(self.list.len() - 1)
        };
        self.ids.insert(key, id);
        id
    }

    /// Frees the entry of a claim that nothing names any more.
    fn tidy(&mut self, id: ClaimId) {
        let claim = &self.list[id.index()];
        if claim.fact.is_none() && claim.users.is_empty() && self.ids.get(&claim.key) == Some(&id) {
            let key = Arc::clone(&claim.key);
            self.ids.remove(&key);
            self.list[id.index()] = Claim::default();
            self.free.push(id);
        }
    }

    /// The claims reserved for a pod, by name.
    fn reserved_for(&self, uid: &str) -> Vec<ClaimId> {
        let mut claims = self.reservations.get(uid).cloned().unwrap_or_default();
        claims.sort_by(|a, b| self.get(*a).key.cmp(&self.get(*b).key));
        claims
    }
}

impl Claim {
    /// What it asks for.
    #[must_use]
    pub fn requests(&self) -> &[delta::ClaimRequest] {
        self.fact.as_ref().map_or(&[], |fact| &fact.requests)
    }

    /// Whether it asks for GPUs that queues count.
    #[must_use]
    pub fn wants_gpus(&self) -> bool {
        self.requests().iter().any(|request| request.gpu)
    }

    /// What it costs a queue, in millionths of a GPU. A request for all devices of a node counts as one: see
    /// [`Self::further_gpus`].
    #[must_use]
    pub fn gpus(&self) -> i128 {
        let counts = self.requests().iter().filter(|request| request.gpu).map(|request| match request.count {
            DeviceCount::Exactly(count) => count,
            DeviceCount::All => 1,
        });
        let count = counts.fold(0_u64, u64::saturating_add);
        (i128::from(count) * i128::from(GPU)).min(i128::from(LARGEST))
    }

    /// What it costs a queue on a node above [`Self::gpus`]: the further devices of requests for all.
    #[must_use]
    pub fn further_gpus(&self, node: &crate::cluster::node::Node) -> i128 {
        let all = self.requests().iter().filter(|request| request.gpu && request.count == DeviceCount::All);
        let further = |request: &delta::ClaimRequest| {
            let matching = node.devices.iter().filter(|device| request.kinds.binary_search(&device.kind).is_ok());
            (matching.count() as i128 - 1).max(0) * i128::from(GPU)
        };
        all.map(further).sum::<i128>().min(i128::from(LARGEST))
    }
}
