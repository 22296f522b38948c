//! Claims come, change and go; pods and nodes too. Whatever order they come in, the same state results.
//!
//! Whenever a claim, the node it is on or a pod that uses it changes, everything that depends on it is taken out of
//! the ledgers first, derived anew from what the API says, and entered again.

use super::Home;
use crate::{
    amounts::LARGEST,
    cluster::{Cluster, pod::Detail},
    delta,
    ids::{ClaimId, NodeId, PodId, Word},
};

impl Cluster {
    pub(crate) fn describe_claim(&mut self, claim: &delta::Claim) {
        let mut claim = claim.clone();
        for request in &mut claim.requests {
            request.kinds.sort_unstable();
            request.kinds.dedup();
        }
        claim.reserved_for.sort_unstable();
        claim.reserved_for.dedup();
        let complaint = ("claim".to_owned(), claim.key.clone());
        match claim.impossible.as_ref().filter(|_| claim.allocation.is_none()) {
            Some(what) => self.complaints.insert(complaint, what.clone()),
            None => self.complaints.remove(&complaint),
        };
        let id = self.claims.named(&claim.key);
        self.change_claim(id, Some(claim));
    }

    pub(crate) fn forget_claim(&mut self, key: &str) {
        let Some(id) = self.claims.find(key) else { return };
        self.complaints.remove(&("claim".to_owned(), key.to_owned()));
        self.change_claim(id, None);
        self.claims.tidy(id);
    }

    pub(super) fn change_claim(&mut self, id: ClaimId, fact: Option<delta::Claim>) {
        let reserved = fact.as_ref().map_or(&[][..], |fact| &fact.reserved_for);
        let mut users = self.claims.get(id).users.clone();
        for pod in reserved.iter().filter_map(|uid| self.pod(uid)) {
            if !users.contains(&pod) {
                users.push(pod);
            }
        }
        for pod in &users {
            self.enter(*pod, -1);
        }
        self.lift_anchor(id);
        self.note_reservations(id, -1);
        self.leave_home(id);
        let nodeless = fact.as_ref().and_then(|fact| fact.allocation.as_ref()).is_some_and(|it| it.node.is_none());
        if nodeless {
            self.claims.nodeless.insert(id);
        } else {
            self.claims.nodeless.remove(&id);
        }
        self.claims.get_mut(id).fact = fact;
        self.note_reservations(id, 1);
        self.find_home(id);
        let staying = users.iter().copied().filter(|pod| self.uses_claim(*pod, id)).collect();
        self.claims.get_mut(id).users = staying;
        for pod in &users {
            self.derive_claims(*pod);
        }
        self.lower_anchor(id);
        for pod in &users {
            self.enter(*pod, 1);
        }
    }

    fn uses_claim(&self, pod: PodId, claim: ClaimId) -> bool {
        let pod = &self.pods[pod.index()];
        let reserved = |fact: &delta::Claim| fact.reserved_for.iter().any(|uid| **uid == *pod.uid);
        pod.claims().contains(&claim) || self.claims.get(claim).fact.as_ref().is_some_and(reserved)
    }

    fn note_reservations(&mut self, id: ClaimId, times: i32) {
        let Some(fact) = self.claims.get(id).fact.as_ref() else { return };
        for uid in fact.reserved_for.clone() {
            let claims = self.claims.reservations.entry(uid.as_str().into()).or_default();
            if times > 0 {
                claims.push(id);
            } else {
                claims.retain(|claim| *claim != id);
                if claims.is_empty() {
                    self.claims.reservations.remove(uid.as_str());
                }
            }
        }
    }

    /// Notes which claims a pod uses, and that it holds those that are reserved for it.
    pub(crate) fn hold_claims(&mut self, pod: PodId, described: &delta::Pod) {
        let mut named: Vec<ClaimId> = Vec::new();
        for key in &described.claims {
            let claim = self.claims.named(key);
            if !named.contains(&claim) {
                named.push(claim);
            }
        }
        if !named.is_empty() {
            self.pods[pod.index()].rare.get_or_insert_default().claims.clone_from(&named);
        }
        let claims = self.claims_around(pod);
        if claims.is_empty() {
            return;
        }
        for claim in &claims {
            self.lift_anchor(*claim);
            self.claims.get_mut(*claim).users.push(pod);
        }
        self.derive_claims(pod);
        for claim in &claims {
            self.lower_anchor(*claim);
        }
    }

    /// A pod no longer uses its claims.
    pub(crate) fn release_claims(&mut self, pod: PodId) {
        for claim in self.claims_around(pod) {
            self.lift_anchor(claim);
            self.claims.get_mut(claim).users.retain(|user| *user != pod);
            self.lower_anchor(claim);
            self.claims.tidy(claim);
        }
        if let Some(rare) = &mut self.pods[pod.index()].rare {
            rare.claims.clear();
        }
    }

    /// The claims a pod names and those that are reserved for it.
    fn claims_around(&self, pod: PodId) -> Vec<ClaimId> {
        let pod = &self.pods[pod.index()];
        let mut claims = pod.claims().to_vec();
        for claim in self.claims.reserved_for(&pod.uid) {
            if !claims.contains(&claim) {
                claims.push(claim);
            }
        }
        claims
    }

    /// Works out what a pod has of claims, from what the API says. The pod must be out of the ledgers.
    pub(crate) fn derive_claims(&mut self, id: PodId) {
        let pod = &self.pods[id.index()];
        let gpus = pod.claims().iter().map(|claim| self.claims.get(*claim).gpus()).sum::<i128>();
        let mut claims = Vec::new();
        let mut extended = Vec::new();
        if let (Some(node), true) = (pod.place.node, pod.place.status.is_active()) {
            for claim in pod.claims() {
                match &self.claims.get(*claim).home {
                    Some(Home { node: Some(home), devices }) if *home == node => claims.push((*claim, devices.clone())),
                    Some(Home { node: None, .. }) => claims.push((*claim, Vec::new())),
                    _ => {}
                }
            }
            let mut needs: Vec<(Word, i64)> = self.nodes[node.index()]
                .served_needs(self.classes.get(pod.class))
                .map(|(it, need)| (it.name, need))
                .collect();
            for claim in self.claims.reserved_for(&pod.uid).into_iter().filter(|it| !pod.claims().contains(it)) {
                let Some(home) = self.claims.get(claim).home.as_ref().filter(|home| home.node == Some(node)) else {
                    continue;
                };
                // A claim that the pod does not name was made for its extended resources.
                match self.as_extended(node, &home.devices, &mut needs) {
                    Some(uses) => extended.extend(uses),
                    None => claims.push((claim, home.devices.clone())),
                }
            }
        }
        let pod = &mut self.pods[id.index()];
        if let Some(rare) = &mut pod.rare {
            rare.claimed_gpus = gpus.min(i128::from(LARGEST));
        }
        let numa = pod.place.detail.take().map(|detail| detail.numa).unwrap_or_default();
        let detail = Detail { numa, claims, extended };
        pod.place.detail = (detail != Detail::default()).then(|| Box::new(detail));
    }

    /// Devices as units of the extended resources that are still needed; `None` if they are not all such.
    fn as_extended(
        &self,
        node: NodeId,
        devices: &[(u32, u32)],
        needs: &mut Vec<(Word, i64)>,
    ) -> Option<Vec<(Word, u32)>> {
        let node = &self.nodes[node.index()];
        let mut left = needs.clone();
        let mut uses = Vec::new();
        for (_, place) in devices {
            let device = node.devices.get(*place as usize)?;
            let fits = |word: Word| node.served.iter().any(|served| served.name == word && served.takes(device));
            let (word, need) = left.iter_mut().find(|(word, need)| *need > 0 && fits(*word))?;
            *need -= 1;
            uses.push((*word, *place));
        }
        if uses.is_empty() {
            return None;
        }
        *needs = left;
        Some(uses)
    }
}
