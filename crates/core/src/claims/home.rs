//! Where a claim is: the node of its allocation, and whether its devices are its own although no known pod holds them.

use super::Home;
use crate::{
    cluster::{Cluster, status::Status},
    delta,
    ids::{ClaimId, NodeId, PodId},
};

impl Cluster {
    /// Forgets where a claim is allocated.
    pub(super) fn leave_home(&mut self, id: ClaimId) {
        if let Some(node) = self.claims.get_mut(id).home.take().and_then(|home| home.node) {
            self.nodes[node.index()].claims.retain(|claim| *claim != id);
        }
    }

    /// Finds out where a claim is allocated.
    pub(super) fn find_home(&mut self, id: ClaimId) {
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
    pub(super) fn lower_anchor(&mut self, id: ClaimId) {
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

    pub(super) fn lift_anchor(&mut self, id: ClaimId) {
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
}
