//! Claims come, change and go; pods and nodes too. Whatever order they come in, the same state results.
//!
//! Whenever a claim, the node it is on or a pod that uses it changes, everything that depends on it is taken out of the ledgers first,
//! derived anew from what the API says, and entered again.

use super::{Home, Served};
use crate::{
    amounts::{LARGEST, Resource},
    cluster::{Cluster, pod::Detail, status::Status},
    delta::{self, DeviceResource},
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

    fn change_claim(&mut self, id: ClaimId, fact: Option<delta::Claim>) {
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

    /// Forgets where a claim is allocated.
    fn leave_home(&mut self, id: ClaimId) {
        if let Some(node) = self.claims.get_mut(id).home.take().and_then(|home| home.node) {
            self.nodes[node.index()].claims.retain(|claim| *claim != id);
        }
    }

    /// Finds out where a claim is allocated.
    fn find_home(&mut self, id: ClaimId) {
        let Some(allocation) = self.claims.get(id).fact.as_ref().and_then(|fact| fact.allocation.as_ref()) else {
            return;
        };
        let node = match allocation.node.clone() {
            Some(name) => Some(self.node_named(&name)),
            None => self.node_with(&allocation.devices),
        };
        match node {
            Some(node) => self.make_home(id, node),
            None => self.claims.get_mut(id).home = Some(Home { node: None, devices: Vec::new() }),
        }
    }

    /// The node that has one of these devices: an allocation need not name it.
    fn node_with(&self, devices: &[(u32, delta::DeviceRef)]) -> Option<NodeId> {
        let has = |node: &NodeId| devices.iter().any(|(_, device)| self.nodes[node.index()].device(device).is_some());
        let likely = devices.first().and_then(|(_, device)| self.node(&device.pool));
        if let Some(node) = likely.filter(has) {
            return Some(node);
        }
        let nodes = (0..self.nodes.len()).map(NodeId::of).filter(has);
        nodes.min_by(|a, b| self.node_name(*a).cmp(self.node_name(*b)))
    }

    /// Notes that a claim is allocated on a node, with those of its devices that the node has.
    fn make_home(&mut self, id: ClaimId, node: NodeId) {
        let place = |device: &delta::DeviceRef| self.nodes[node.index()].device(device);
        let allocation = self.claims.get(id).fact.as_ref().and_then(|fact| fact.allocation.as_ref());
        let named = allocation.map_or(&[][..], |allocation| &allocation.devices);
        let mut devices: Vec<(u32, u32)> =
            named.iter().filter_map(|(request, device)| Some((*request, place(device)?))).collect();
        // One device twice in one claim is one device.
        devices.sort_unstable_by_key(|(request, device)| (*device, *request));
        devices.dedup_by_key(|(_, device)| *device);
        devices.sort_unstable();
        self.nodes[node.index()].claims.push(id);
        self.claims.get_mut(id).home = Some(Home { node: Some(node), devices });
    }

    /// A node's devices came, changed or went: claims whose allocation names no node may be there now, or no longer.
    pub(crate) fn rehouse_claims(&mut self, node: NodeId) {
        let moved = |id: &&ClaimId| {
            let claim = self.claims.get(**id);
            let allocation = claim.fact.as_ref().and_then(|fact| fact.allocation.as_ref());
            let named = allocation.map_or(&[][..], |allocation| &allocation.devices);
            let here = named.iter().any(|(_, device)| self.nodes[node.index()].device(device).is_some());
            here != claim.home.as_ref().is_some_and(|home| home.node == Some(node))
        };
        let moved: Vec<ClaimId> = self.claims.nodeless.iter().filter(moved).copied().collect();
        for id in moved {
            let fact = self.claims.get(id).fact.clone();
            self.change_claim(id, fact);
        }
    }

    /// Enters a claim's devices for themselves if it is allocated and a pod that has it is not known.
    fn lower_anchor(&mut self, id: ClaimId) {
        let claim = self.claims.get(id);
        let (Some(fact), Some(Home { node: Some(node), devices })) = (&claim.fact, &claim.home) else { return };
        let users = || claim.users.iter().map(|pod| &self.pods[pod.index()]);
        let held = users().any(|pod| pod.place.status.is_active() && pod.place.node == Some(*node));
        let known = |uid: &String| users().any(|pod| *pod.uid == **uid);
        if held && fact.reserved_for.iter().all(known) {
            return;
        }
        let (node, devices) = (*node, devices.clone());
        let entry = (node, &mut self.nodes[node.index()]);
        self.claims.enter_claim(id, entry, &devices, Status::Running, 1);
        self.claims.get_mut(id).anchor = Some((node, devices));
        self.journal.push(node);
    }

    fn lift_anchor(&mut self, id: ClaimId) {
        let Some((node, devices)) = self.claims.get_mut(id).anchor.take() else { return };
        let entry = (node, &mut self.nodes[node.index()]);
        self.claims.enter_claim(id, entry, &devices, Status::Running, -1);
        self.journal.push(node);
    }

    /// Takes the claims on a node out of the ledger of its devices, before the node changes; its pods are out already.
    pub(crate) fn lift_claims(&mut self, node: NodeId) -> Vec<ClaimId> {
        let claims = self.nodes[node.index()].claims.clone();
        for claim in &claims {
            self.lift_anchor(*claim);
            self.leave_home(*claim);
        }
        claims
    }

    /// Enters them again; the node's pods follow.
    pub(crate) fn lower_claims(&mut self, node: NodeId, claims: &[ClaimId], pods: &[PodId]) {
        for claim in claims {
            self.make_home(*claim, node);
        }
        for pod in pods {
            let known = &self.pods[pod.index()];
            if !known.claims().is_empty()
                || known.place.detail.is_some()
                || self.claims.reservations.contains_key(&*known.uid)
            {
                self.derive_claims(*pod);
            }
        }
        for claim in claims {
            self.lower_anchor(*claim);
        }
        self.journal.push(node);
    }

    pub(crate) fn describe_device_resource(&mut self, resource: DeviceResource) {
        let mut resource = resource;
        resource.kinds.sort_unstable();
        resource.kinds.dedup();
        let resources = &mut self.claims.resources;
        resources.retain(|known| known.resource != resource.resource);
        let place = resources.partition_point(|known| known.resource < resource.resource);
        resources.insert(place, resource);
        self.serve_nodes();
    }

    pub(crate) fn forget_device_resource(&mut self, name: &str) {
        self.claims.resources.retain(|known| known.resource != name);
        self.serve_nodes();
    }

    /// Every node with devices offers what its devices serve now.
    fn serve_nodes(&mut self) {
        let served = self.served();
        for node in (0..self.nodes.len()).map(NodeId::of) {
            if self.nodes[node.index()].devices.is_empty() {
                continue;
            }
            let pods = self.lift_pods(node);
            let claims = self.lift_claims(node);
            self.nodes[node.index()].withdraw();
            self.nodes[node.index()].serve(served.iter().cloned());
            self.lower_claims(node, &claims, &pods);
            self.lower_pods(&pods);
        }
        self.nodes_version += 1;
    }

    /// The extended resources that devices serve, in the order of their names.
    pub(crate) fn served(&mut self) -> Vec<Served> {
        let words = &mut self.words;
        let served = self.claims.resources.iter().map(|known| {
            let name = words.intern(&known.resource);
            let gpus = known.resource == "nvidia.com/gpu";
            let resource = if gpus { Resource::GPU } else { Resource::Extended(name) };
            Served { name, resource, kinds: known.kinds.clone() }
        });
        served.collect()
    }
}
