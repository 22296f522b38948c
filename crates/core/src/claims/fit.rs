//! Whether a node's devices can satisfy a pod's claims and extended resources, with which devices, and when.

use super::{
    Claim,
    search::{Keep, Search, When},
};
use crate::{
    cluster::{Cluster, node::Node, pod::Detail, status::Status},
    delta::{DeviceCount, DeviceRef},
    ids::{ClaimId, NodeId, PodId, Word},
    plan::NodeRefusal,
};

/// Devices for a pod on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimFit {
    /// Whether it can have them now; otherwise once something leaves.
    pub now: bool,
    /// What goes into the place's [`Detail::claims`]: every claim of the pod, allocated ones too.
    pub claims: Vec<(ClaimId, Vec<(u32, u32)>)>,
    /// What goes into the place's [`Detail::extended`].
    pub extended: Vec<(Word, u32)>,
}

/// The devices chosen for claims, by request.
type ChosenClaims = Vec<(ClaimId, Vec<(u32, DeviceRef)>)>;

/// How a claim stands.
pub(super) enum Stand<'a> {
    /// It has no devices.
    Free,
    /// Its devices can be used from everywhere.
    Anywhere,
    /// It is on a node to stay; `ready`: already, not only promised.
    Staying { node: NodeId, devices: &'a [(u32, u32)], ready: bool },
    /// All pods that hold it leave this node.
    Leaving { node: NodeId, devices: &'a [(u32, u32)] },
}

impl Claim {
    pub(super) fn stand(&self) -> Stand<'_> {
        if self.home.as_ref().is_some_and(|home| home.node.is_none()) {
            return Stand::Anywhere;
        }
        if let Some(hold) = self.holds.iter().find(|hold| hold.staying() > 0) {
            return Stand::Staying { node: hold.node, devices: &hold.devices, ready: hold.used > hold.leaving };
        }
        match self.holds.first() {
            Some(hold) => Stand::Leaving { node: hold.node, devices: &hold.devices },
            None => Stand::Free,
        }
    }
}

impl Cluster {
    /// What keeps a pod off every node because of its claims, as a sentence.
    #[must_use]
    pub fn claims_refusal(&self, pod: PodId) -> Option<String> {
        self.pods[pod.index()].claims().iter().find_map(|claim| self.claim_refusal(pod, *claim))
    }

    fn claim_refusal(&self, pod: PodId, id: ClaimId) -> Option<String> {
        let claim = self.claims.get(id);
        let key = &claim.key;
        let Some(fact) = &claim.fact else { return Some(format!("resource claim `{key}` does not exist")) };
        if let (Stand::Free | Stand::Leaving { .. }, Some(why)) = (claim.stand(), &fact.impossible) {
            return Some(format!("resource claim `{key}` cannot be allocated: {why}"));
        }
        let group = self.pods[pod.index()].group.map(|group| &self.groups[group.index()]);
        if let Some(group) = group.filter(|_| !fact.of_one_pod && claim.wants_gpus()) {
            let queue = self.words.text(group.queue_name);
            match &fact.queue {
                None => {
                    return Some(format!(
                        "shared GPU resource claim `{key}` has no queue label: it must name the queue `{queue}`"
                    ));
                }
                Some(label) if label != queue => {
                    return Some(format!(
                        "shared GPU resource claim `{key}` belongs to queue `{label}`, not to the pod's queue `{queue}`"
                    ));
                }
                Some(_) => {}
            }
        }
        let most = fact.max_consumers;
        self.is_full(pod, claim, When::Later).then(|| {
            format!("resource claim `{key}` is already reserved for {most} pods, which is the most it can have")
        })
    }

    /// Whether as many other pods have a claim as may have it.
    pub(super) fn is_full(&self, pod: PodId, claim: &Claim, when: When) -> bool {
        let Some(fact) = &claim.fact else { return true };
        let most = fact.max_consumers as usize;
        claim.users.len() + fact.reserved_for.len() >= most && self.consumers(pod, claim, when) >= most
    }

    /// How many other pods have a claim reserved or hold it, now or once what leaves has left.
    fn consumers(&self, pod: PodId, claim: &Claim, when: When) -> usize {
        let counts = |id: &PodId| {
            let other = &self.pods[id.index()];
            let status = other.place.status;
            let gone = matches!(status, Status::Succeeded | Status::Ended);
            let leaves = when == When::Later && status == Status::Releasing;
            let fact = claim.fact.as_ref();
            let reserved = || fact.is_some_and(|fact| fact.reserved_for.iter().any(|uid| **uid == *other.uid));
            *id != pod && !gone && !leaves && (status.is_active() || reserved())
        };
        let known = claim.users.iter().filter(|user| counts(user)).count();
        let reserved = claim.fact.as_ref().map_or(&[][..], |fact| &fact.reserved_for);
        let unknown = reserved.iter().filter(|uid| self.pod(uid).is_none()).count();
        known + unknown
    }

    /// Whether a pod's claims and extended resources served by DRA drivers can be satisfied on a node, and with which
    /// devices. Amounts are checked elsewhere; what keeps the pod off every node is for [`Self::claims_refusal`] to
    /// say.
    ///
    /// # Errors
    ///
    /// What the node's devices lack.
    pub fn check_claims(&self, pod: PodId, node: NodeId) -> Result<ClaimFit, NodeRefusal> {
        let class = self.class_of(pod);
        let (id, node) = (node, &self.nodes[node.index()]);
        if class.is_shared() && node.has_only_dra_gpus() {
            return Err(NodeRefusal::NotShareable);
        }
        if self.pods[pod.index()].claims().is_empty() && node.served_needs(class).next().is_none() {
            return Ok(ClaimFit { now: true, claims: Vec::new(), extended: Vec::new() });
        }
        for claim in self.pods[pod.index()].claims() {
            let claim = self.claims.get(*claim);
            if claim.fact.is_none() {
                return Err(NodeRefusal::Claims(format!("resource claim `{}` does not exist", claim.key)));
            }
            if matches!(claim.stand(), Stand::Staying { node: home, .. } if home != id) {
                let what = format!("resource claim `{}` is allocated on another node", claim.key);
                return Err(NodeRefusal::Claims(what));
            }
        }
        for (when, keep) in [(When::Now, Keep::Yes), (When::Later, Keep::Yes), (When::Later, Keep::No)] {
            if let Some(detail) = Search::new(self, pod, id, when, keep).run() {
                return Ok(ClaimFit { now: when == When::Now, claims: detail.claims, extended: detail.extended });
            }
        }
        Err(NodeRefusal::Claims(self.devices_refusal(pod, node)))
    }

    /// Why a node's devices do not do, as a sentence that equal nodes share.
    fn devices_refusal(&self, pod: PodId, node: &Node) -> String {
        let claims = self.pods[pod.index()].claims().iter().map(|claim| self.claims.get(*claim));
        let open: Vec<&Claim> =
            claims.filter(|claim| matches!(claim.stand(), Stand::Free | Stand::Leaving { .. })).collect();
        if let Some(claim) = open.iter().find(|claim| claim.fact.as_ref().is_some_and(|it| it.impossible.is_some())) {
            return format!("resource claim `{}` cannot be allocated", claim.key);
        }
        for claim in &open {
            for request in claim.requests() {
                let matching = node.devices.iter().filter(|device| request.kinds.binary_search(&device.kind).is_ok());
                let wanted = if let DeviceCount::Exactly(count) = request.count { count } else { 1 };
                if (matching.count() as u64) < wanted {
                    return format!("the node has too few devices for resource claim `{}`", claim.key);
                }
            }
        }
        if let Some(claim) = open.first() {
            return format!("devices for resource claim `{}` are in use", claim.key);
        }
        let needs = node.served_needs(self.class_of(pod)).map(|(served, _)| self.words.text(served.name));
        format!("devices for `{}` are in use", needs.collect::<Vec<_>>().join("`, `"))
    }

    /// The devices of a place by name: those chosen for claims that did not have them, and those chosen for extended
    /// resources.
    #[must_use]
    pub fn placed_claims(&self, detail: &Detail, node: NodeId) -> (ChosenClaims, Vec<(String, DeviceRef)>) {
        let devices = &self.nodes[node.index()].devices;
        let name = |device: u32| devices.get(device as usize).map(|known| known.device.clone());
        let fresh = detail.claims.iter().filter(|(claim, devices)| {
            let home = self.claims.get(*claim).home.as_ref();
            !home.is_some_and(|home| home.node.is_none() || (home.node == Some(node) && home.devices == *devices))
        });
        let claims = fresh.map(|(claim, devices)| {
            (*claim, devices.iter().filter_map(|(request, device)| Some((*request, name(*device)?))).collect())
        });
        let extended = detail.extended.iter();
        let extended = extended.filter_map(|(word, device)| Some((self.words.text(*word).to_owned(), name(*device)?)));
        (claims.collect(), extended.collect())
    }
}
