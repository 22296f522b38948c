//! Who has which device: counts that going there and back restores exactly.

use std::cmp::Ordering;

use super::Claims;
use crate::{
    amounts::{Amounts, Resource, fixed},
    cluster::{
        class::Class,
        node::{DraDevice, Node},
        pod::Detail,
        status::Status,
    },
    delta::DeviceRef,
    ids::{ClaimId, NodeId, Word},
};

/// Whole GPUs.
pub(super) const GPUS: Resource = Resource::Fixed(2);
const _: () = assert!(fixed::GPU == 2, "the two names mean one resource");

/// Devices of one node that a claim has or is promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The node.
    pub node: NodeId,
    /// For each device the request's place and the device's place on the node.
    pub devices: Vec<(u32, u32)>,
    /// Pods that physically have the claim here; an anchor counts as one.
    pub used: u32,
    /// Of those, pods that leave.
    pub leaving: u32,
    /// Pods that are promised the claim here.
    pub promised: u32,
}

/// A resource that devices of a node serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The name that pods use.
    pub name: Word,
    /// How the node's ledger knows it.
    pub resource: Resource,
    /// The kinds of devices that do, sorted.
    pub kinds: Vec<u32>,
}

impl Hold {
    /// Pods that will have the claim here once everything that leaves has left.
    #[must_use]
    pub fn staying(&self) -> u32 {
        (self.used + self.promised).saturating_sub(self.leaving)
    }

    fn weight(&self) -> (i32, i32) {
        (i32::from(self.used > 0), i32::from(self.staying() > 0))
    }
}

impl Served {
    /// Whether a device serves it.
    #[must_use]
    pub fn takes(&self, device: &DraDevice) -> bool {
        self.kinds.binary_search(&device.kind).is_ok()
    }
}

impl Claims {
    /// Enters (`times` = 1) or removes (−1) what a place has of devices.
    pub(crate) fn enter_detail(
        &mut self,
        detail: &Detail,
        (id, node): (NodeId, &mut Node),
        status: Status,
        times: i64,
    ) {
        for (claim, devices) in &detail.claims {
            self.enter_claim(*claim, (id, node), devices, status, times);
        }
        let sign = if times > 0 { 1 } else { -1 };
        let staying = status.is_active() && status != Status::Releasing;
        for (word, device) in &detail.extended {
            let Some(resource) = node.served.iter().find(|served| served.name == *word).map(|served| served.resource)
            else {
                continue;
            };
            // The node's amounts were charged with the request as a whole; from here on its devices stand for it.
            node.charge(&one(resource), status, -times);
            node.occupy(*device, if status.is_physical() { sign } else { 0 }, if staying { sign } else { 0 });
        }
    }

    /// Enters or removes one holder of a claim.
    pub(super) fn enter_claim(
        &mut self,
        claim: ClaimId,
        (id, node): (NodeId, &mut Node),
        devices: &[(u32, u32)],
        status: Status,
        times: i64,
    ) {
        let holds = &mut self.get_mut(claim).holds;
        let place = match holds.binary_search_by(|hold| hold_order(hold, id, devices)) {
            Ok(place) => place,
            Err(_) if times < 0 => return,
            Err(place) => {
                holds.insert(place, Hold { node: id, devices: devices.to_vec(), used: 0, leaving: 0, promised: 0 });
                place
            }
        };
        let hold = &mut holds[place];
        let before = hold.weight();
        let step = |count: &mut u32| *count = if times > 0 { *count + 1 } else { count.saturating_sub(1) };
        match status {
            Status::Pipelined => step(&mut hold.promised),
            Status::Releasing => {
                step(&mut hold.used);
                step(&mut hold.leaving);
            }
            _ => step(&mut hold.used),
        }
        let after = hold.weight();
        if hold.used == 0 && hold.promised == 0 {
            holds.remove(place);
        }
        for (_, device) in devices {
            node.occupy(*device, after.0 - before.0, after.1 - before.1);
        }
    }
}

fn hold_order(hold: &Hold, node: NodeId, devices: &[(u32, u32)]) -> Ordering {
    hold.node.cmp(&node).then_with(|| hold.devices.as_slice().cmp(devices))
}

fn one(resource: Resource) -> Amounts {
    let mut amounts = Amounts::default();
    match resource {
        Resource::Fixed(place) => {
            if let Some(amount) = amounts.fixed.get_mut(usize::from(place)) {
                *amount = 1;
            }
        }
        Resource::Extended(word) => amounts.add_extended(word, 1),
    }
    amounts
}

impl Node {
    /// Changes how many claims and pods have a device, now and once everything that leaves has left.
    fn occupy(&mut self, device: u32, used: i32, staying: i32) {
        let Some(device) = self.devices.get_mut(device as usize) else { return };
        let before = (i64::from(device.used > 0), i64::from(device.staying > 0));
        device.used = device.used.saturating_add_signed(used);
        device.staying = device.staying.saturating_add_signed(staying);
        let after = (i64::from(device.used > 0), i64::from(device.staying > 0));
        for served in self.served.iter().filter(|served| served.takes(device)) {
            let one = one(served.resource);
            self.idle.add(&one, before.0 - after.0);
            self.future.add(&one, before.1 - after.1);
        }
    }

    /// The place of a device.
    pub(super) fn device(&self, device: &DeviceRef) -> Option<u32> {
        let place = self.devices.binary_search_by(|known| known.device.cmp(device)).ok()?;
        u32::try_from(place).ok()
    }

    /// Offers the resources that its devices serve and that it does not offer itself. Nothing may be on the node.
    pub(crate) fn serve(&mut self, resources: impl IntoIterator<Item = Served>) {
        for served in resources {
            let count = self.devices.iter().filter(|device| served.takes(device)).count();
            if count == 0 || self.total.of(served.resource) > 0 {
                continue;
            }
            let one = one(served.resource);
            let count = i64::try_from(count).unwrap_or(0);
            for amounts in [&mut self.total, &mut self.idle, &mut self.future] {
                amounts.add(&one, count);
            }
            self.served.push(served);
        }
    }

    /// Takes back what [`Self::serve`] did. Nothing may be on the node.
    pub(crate) fn withdraw(&mut self) {
        for served in std::mem::take(&mut self.served) {
            let one = one(served.resource);
            let count = self.total.of(served.resource);
            for amounts in [&mut self.total, &mut self.idle, &mut self.future] {
                amounts.add(&one, -count);
            }
        }
    }

    /// Whether its whole GPUs are devices of a DRA driver, which cannot be shared.
    #[must_use]
    pub fn has_only_dra_gpus(&self) -> bool {
        self.served.iter().any(|served| served.resource == GPUS)
            || (self.total.fixed[fixed::GPU] == 0 && self.devices.iter().any(|device| device.gpu))
    }

    /// How many of its devices, asked for as whole GPUs, a place has through claims.
    pub(crate) fn claimed_whole_gpus(&self, detail: &Detail) -> i64 {
        let Some(served) = self.served.iter().find(|served| served.resource == GPUS) else { return 0 };
        let devices = detail.claims.iter().flat_map(|(_, devices)| devices);
        let count = devices.filter(|(_, device)| self.devices.get(*device as usize).is_some_and(|it| served.takes(it)));
        i64::try_from(count.count()).unwrap_or(0)
    }

    /// The resources of a class that devices of this node serve, and how many of them it needs.
    pub(super) fn served_needs<'a>(&'a self, class: &'a Class) -> impl Iterator<Item = (&'a Served, i64)> + 'a {
        let needs = self.served.iter().map(|served| (served, class.amounts.of(served.resource)));
        needs.filter(|(_, need)| *need > 0)
    }
}
