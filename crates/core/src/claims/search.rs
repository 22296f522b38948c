//! The search for devices that satisfy all claims and extended resources of a pod on one node at once.

use super::{
    Claim, Served,
    choice::{Wish, choose},
    fit::Stand,
};
use crate::{
    cluster::{
        Cluster,
        node::{DraDevice, Node},
        pod::Detail,
    },
    delta::DeviceCount,
    ids::{ClaimId, NodeId, PodId},
};

/// When devices must be free.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Now.
    Now,
    /// Once everything that leaves has left.
    Later,
}

/// Whether claims whose holders all leave are kept where they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// They keep their devices.
    Yes,
    /// They get others.
    No,
}

/// One search.
pub(super) struct Search<'a> {
    cluster: &'a Cluster,
    pod: PodId,
    id: NodeId,
    node: &'a Node,
    when: When,
    keep: Keep,
    /// Devices that are free and not yet given out.
    free: Vec<bool>,
    /// What each claim gets.
    claims: Vec<(ClaimId, Vec<(u32, u32)>)>,
    /// What is still to be chosen,
    wishes: Vec<Wish<'a>>,
    /// and for which claim and request.
    wished: Vec<(usize, u32)>,
}

impl<'a> Search<'a> {
    pub(super) fn new(cluster: &'a Cluster, pod: PodId, id: NodeId, when: When, keep: Keep) -> Self {
        let node = &cluster.nodes[id.index()];
        let free = node.devices.iter().map(|device| is_free(device, when)).collect();
        let (claims, wishes, wished) = (Vec::new(), Vec::new(), Vec::new());
        Self { cluster, pod, id, node, when, keep, free, claims, wishes, wished }
    }

    /// The devices for everything the pod asks for, if there are enough.
    pub(super) fn run(mut self) -> Option<Detail> {
        let (cluster, pod) = (self.cluster, &self.cluster.pods[self.pod.index()]);
        // A pod that is still somewhere cannot be elsewhere before it has left.
        let present = pod.place.status.is_physical() || cluster.leaving.contains_key(&self.pod);
        if present && self.when == When::Now {
            return None;
        }
        for claim in pod.claims() {
            let devices = self.devices_of(cluster.claims.get(*claim))?;
            self.claims.push((*claim, devices));
        }
        let served: Vec<(&Served, i64)> = self.node.served_needs(cluster.class_of(self.pod)).collect();
        self.wishes.extend(served.iter().map(|(it, need)| Wish { kinds: &it.kinds, count: need.unsigned_abs() }));
        let unknown = self.node.served.iter().map(|it| Wish { kinds: &it.kinds, count: self.unknown_uses(it) });
        let unknown: Vec<Wish<'_>> = unknown.filter(|wish| wish.count > 0).collect();
        self.wishes.extend(unknown);
        let places = (0_u32..).zip(&self.node.devices).zip(&self.free).filter(|(_, free)| **free);
        let available: Vec<(u32, u32)> = places.map(|((place, device), _)| (place, device.kind)).collect();
        let mut chosen = choose(&self.wishes, &available)?.into_iter();
        for ((claim, request), devices) in self.wished.iter().zip(chosen.by_ref()) {
            self.claims[*claim].1.extend(devices.into_iter().map(|device| (*request, device)));
        }
        for (_, devices) in &mut self.claims {
            devices.sort_unstable();
        }
        let extended = served.iter().zip(chosen);
        let extended = extended.flat_map(|((it, _), devices)| devices.into_iter().map(|device| (it.name, device)));
        Some(Detail { numa: Vec::new(), extended: extended.collect(), claims: self.claims })
    }

    /// The devices a claim has or keeps, or all of a kind; what is to be chosen becomes a wish.
    fn devices_of(&mut self, claim: &'a Claim) -> Option<Vec<(u32, u32)>> {
        if self.when == When::Now && self.cluster.is_full(self.pod, claim, When::Now) {
            return None;
        }
        match claim.stand() {
            Stand::Anywhere => Some(Vec::new()),
            Stand::Staying { node, .. } if node != self.id => None,
            Stand::Staying { ready: false, .. } if self.when == When::Now => None,
            Stand::Staying { devices, .. } => Some(devices.to_vec()),
            Stand::Leaving { node, devices } if self.keep == Keep::Yes && node == self.id => self.kept(devices),
            Stand::Leaving { .. } if self.when == When::Now => None,
            Stand::Free | Stand::Leaving { .. } => self.wish(claim),
        }
    }

    /// The devices of a claim that all its holders leave, if nobody else has them.
    fn kept(&mut self, devices: &[(u32, u32)]) -> Option<Vec<(u32, u32)>> {
        for (_, place) in devices {
            let device = self.node.devices.get(*place as usize)?;
            let others = device.staying > 0 || (self.when == When::Now && device.used > 1);
            // What is free later may have been given to another claim of this pod; what is in use now cannot have been.
            let given = !std::mem::replace(self.free.get_mut(*place as usize)?, false) && self.when == When::Later;
            if others || given {
                return None;
            }
        }
        Some(devices.to_vec())
    }

    /// Notes what a claim asks for, and takes whatever it wants all of.
    fn wish(&mut self, claim: &'a Claim) -> Option<Vec<(u32, u32)>> {
        if claim.fact.as_ref().is_none_or(|fact| fact.impossible.is_some()) {
            return None;
        }
        let mut devices = Vec::new();
        for (request, wanted) in (0_u32..).zip(claim.requests()) {
            match wanted.count {
                DeviceCount::Exactly(count) => {
                    self.wishes.push(Wish { kinds: &wanted.kinds, count });
                    self.wished.push((self.claims.len(), request));
                }
                DeviceCount::All => {
                    devices.extend(self.all(&wanted.kinds)?.into_iter().map(|device| (request, device)));
                }
            }
        }
        Some(devices)
    }

    /// Takes every device of these kinds; `None` if there is none, or one of them is not free.
    fn all(&mut self, kinds: &[u32]) -> Option<Vec<u32>> {
        let mut taken = Vec::new();
        for ((place, device), free) in (0_u32..).zip(&self.node.devices).zip(&mut self.free) {
            if kinds.binary_search(&device.kind).is_ok() {
                if !std::mem::replace(free, false) {
                    return None;
                }
                taken.push(place);
            }
        }
        (!taken.is_empty()).then_some(taken)
    }

    /// Units of a resource that pods have on devices nobody has named: so many devices must be left for them.
    fn unknown_uses(&self, served: &Served) -> u64 {
        let matching = || self.node.devices.iter().filter(|device| served.takes(device));
        let free =
            |taken: fn(&DraDevice) -> u32| i64::try_from(matching().filter(|it| taken(it) == 0).count()).unwrap_or(0);
        let later = free(|device| device.staying) - self.node.future.of(served.resource);
        let now = free(|device| device.used) - self.node.idle.of(served.resource);
        let unknown = if self.when == When::Now { now.max(later) } else { later };
        unknown.max(0).unsigned_abs()
    }
}

fn is_free(device: &DraDevice, when: When) -> bool {
    device.staying == 0 && (when == When::Later || device.used == 0)
}
