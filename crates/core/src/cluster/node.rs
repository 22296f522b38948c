//! A node: what it has, what is free now, and what will be free once everything that leaves has left.
//!
//! ```text
//!   total ──┬── idle      total − all pods that are physically there
//!           └── future    total − pods that stay − pods that are promised a place
//! ```
//!
//! A pod that leaves lowers `idle` only; a promise lowers `future` only; every other pod lowers both. A request can be placed now iff it fits
//! both, and can be promised a place iff it fits `future`.
//!
//! A shared device is a whole GPU that is divided. Its ledger is exact: with `M` MiB per device a unit is one millionth of one MiB, so
//! that both a portion (`millionths × M`) and memory (`MiB × 10⁶`) are whole numbers of units and the device has `10⁶ × M`.

use crate::{
    amounts::{Amounts, GPU, Resource, Shares, fixed},
    claims::Served,
    cluster::{class::Class, numa::NumaState, status::Status, words::Words},
    delta::{Device, DeviceRef, Gpus, MigStrategy, TaintEffect, Unavailable},
    ids::{ClaimId, PodId, Word},
};

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: Box<str>,
    /// Whether the node is known; otherwise only pods have named it.
    pub exists: bool,
    /// Stands for the description it was made of.
    pub fingerprint: u64,
    /// Its place among all nodes by name.
    pub rank: u32,
    /// Its labels, sorted by key.
    pub labels: Box<[(Word, Word)]>,
    /// Its taints.
    pub taints: Box<[NodeTaint]>,
    /// Why nothing may be placed on it.
    pub unavailable: Box<[Unavailable]>,
    /// What it has.
    pub total: Amounts,
    /// What is free now.
    pub idle: Amounts,
    /// What will be free.
    pub future: Amounts,
    /// MiB of each GPU, where known.
    pub gpu_memory: Option<u64>,
    /// How its GPUs are divided by MIG.
    pub mig: MigStrategy,
    /// GPUs that are divided between pods.
    pub shared: Vec<SharedDevice>,
    /// Pods with a place on it, promised ones too.
    pub pods: Vec<PodId>,
    /// What pods of other schedulers hold.
    pub foreign: Shares,
    /// GPUs that would be free at most if all preemptible pods left.
    pub evictable_gpus: i64,
    /// Pods with a legacy MIG request.
    pub legacy_mig: u32,
    /// Its NUMA zones.
    pub numa: Option<Box<NumaState>>,
    /// Its devices of DRA drivers, by name.
    pub devices: Vec<DraDevice>,
    /// The resources that these devices serve.
    pub served: Vec<Served>,
    /// The claims that are allocated on it.
    pub claims: Vec<ClaimId>,
}

/// A taint in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeTaint {
    /// Its key.
    pub key: Word,
    /// Its value.
    pub value: Word,
    /// Its effect.
    pub effect: TaintEffect,
}

/// A device of a DRA driver and how many have it.
#[derive(Clone, Debug)]
pub struct DraDevice {
    /// Its name.
    pub device: DeviceRef,
    /// Its kind.
    pub kind: u32,
    /// Whether queues count it.
    pub gpu: bool,
    /// Claims that have it, and pods that have it for an extended resource: more than one only if the API says so.
    pub used: u32,
    /// Claims and pods that will have it once everything that leaves has left.
    pub staying: u32,
}

/// A GPU that is divided between pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDevice {
    /// The name of its GPU group.
    pub name: Word,
    /// Units that pods physically have.
    pub used: u64,
    /// Of those, units of pods that leave.
    pub leaving: u64,
    /// Units promised.
    pub promised: u64,
    /// Opened in this cycle: its reservation pod does not exist yet and needs a slot.
    pub fresh: bool,
}

impl DraDevice {
    /// A device that nobody has.
    #[must_use]
    pub fn unused(device: &Device) -> Self {
        Self { device: device.device.clone(), kind: device.kind, gpu: device.gpu, used: 0, staying: 0 }
    }
}

impl SharedDevice {
    /// Units that pods will have once all that leaves has left.
    #[must_use]
    pub fn staying(&self) -> u64 {
        self.used - self.leaving + self.promised
    }
}

impl Node {
    /// A node that is only known by name.
    #[must_use]
    pub fn unknown(name: &str) -> Self {
        Self {
            name: name.into(),
            exists: false,
            fingerprint: 0,
            rank: u32::MAX,
            labels: Box::default(),
            taints: Box::default(),
            unavailable: Box::default(),
            total: Amounts::default(),
            idle: Amounts::default(),
            future: Amounts::default(),
            gpu_memory: None,
            mig: MigStrategy::Off,
            shared: Vec::new(),
            pods: Vec::new(),
            foreign: Shares::default(),
            evictable_gpus: 0,
            legacy_mig: 0,
            numa: None,
            devices: Vec::new(),
            served: Vec::new(),
            claims: Vec::new(),
        }
    }

    /// Whether pods may be placed on it at all.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.exists && self.unavailable.is_empty()
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: Word) -> Option<Word> {
        self.labels.binary_search_by_key(&key, |(key, _)| *key).ok().map(|place| self.labels[place].1)
    }

    /// Units of one device: see the module's text. Where memory is unknown a unit is a millionth of the device.
    #[must_use]
    pub fn device_units(&self) -> u64 {
        self.gpu_memory.unwrap_or(1).saturating_mul(1_000_000)
    }

    /// Units of each device that a request for shares takes here; `None` if it can never have them.
    #[must_use]
    pub fn units_of(&self, gpus: Gpus) -> Option<u64> {
        let units = match gpus {
            Gpus::Portion { millionths, .. } => u64::from(millionths).checked_mul(self.gpu_memory.unwrap_or(1))?,
            Gpus::Memory { mib, .. } => mib.checked_mul(1_000_000).filter(|_| self.gpu_memory.is_some())?,
            Gpus::None | Gpus::Whole(_) => return None,
        };
        (units <= self.device_units()).then_some(units)
    }

    /// How many devices that are already divided have room for `units` more once what leaves has left. Devices that everybody leaves
    /// are not among them: they will be whole.
    #[must_use]
    pub fn devices_with_room(&self, units: u64) -> usize {
        let capacity = self.device_units();
        self.shared.iter().filter(|device| device.staying() > 0 && device.staying() + units <= capacity).count()
    }

    /// Whether a request fits once everything that leaves has left, whatever the constraints say.
    #[must_use]
    pub fn fits_future(&self, class: &Class) -> bool {
        self.future.fit(&class.amounts) && self.shares_fit(class)
    }

    /// Whether a request fits now, if it fits the future.
    #[must_use]
    pub fn fits_now(&self, class: &Class) -> bool {
        if !self.idle.fit(&class.amounts) {
            return false;
        }
        let Some((devices, units)) = self.shares_of(class) else { return true };
        let room = i64::try_from(self.devices_with_room(units)).unwrap_or(0);
        let fresh = (i64::from(devices) - room).max(0);
        fresh <= self.idle.fixed[fixed::GPU].min(self.future.fixed[fixed::GPU]).max(0)
            && self.idle.fixed[fixed::PODS] >= class.amounts.fixed[fixed::PODS] + fresh
    }

    /// The number of devices and the units of each that a request for shares takes.
    #[must_use]
    pub fn shares_of(&self, class: &Class) -> Option<(u32, u64)> {
        let devices = match class.gpus {
            Gpus::Portion { devices, .. } | Gpus::Memory { devices, .. } => devices,
            Gpus::None | Gpus::Whole(_) => return None,
        };
        Some((devices, self.units_of(class.gpus).unwrap_or(u64::MAX)))
    }

    fn shares_fit(&self, class: &Class) -> bool {
        let Some((devices, units)) = self.shares_of(class) else { return true };
        if units == u64::MAX {
            return false;
        }
        let room = i64::try_from(self.devices_with_room(units)).unwrap_or(0);
        let fresh = (i64::from(devices) - room).max(0);
        // Each device that is opened needs a slot for its reservation pod.
        fresh <= self.future.fixed[fixed::GPU].max(0)
            && self.future.fixed[fixed::PODS] >= class.amounts.fixed[fixed::PODS] + fresh
    }

    /// GPUs that are or will be free, shares of divided ones too, in millionths.
    #[must_use]
    pub fn free_gpus(&self) -> i128 {
        let capacity = i128::from(self.device_units());
        let rooms = self.shared.iter().filter(|device| device.staying() > 0).map(|device| {
            let free = (capacity - i128::from(device.staying())).max(0);
            free * i128::from(GPU) / capacity.max(1)
        });
        i128::from(self.future.fixed[fixed::GPU].max(0)) * i128::from(GPU) + rooms.sum::<i128>()
    }

    /// How many NUMA zones a class would span here; 0 where that plays no part.
    #[must_use]
    pub fn numa_span(&self, class: &Class) -> u8 {
        let Some(numa) = self.numa.as_ref().filter(|_| !class.numa.units.is_empty()) else { return 0 };
        numa.place(&class.numa, false).map_or(u8::MAX, |(_, span)| u8::try_from(span).unwrap_or(u8::MAX))
    }

    /// The first resource that is short for a request, and by how much.
    #[must_use]
    pub fn shortage(&self, class: &Class, words: &Words) -> Option<(Resource, i64)> {
        self.future.shortage(&class.amounts, words)
    }

    /// Enters (`times` = 1) or removes (−1) a pod's ordinary resources and whole GPUs.
    pub fn charge(&mut self, amounts: &Amounts, status: Status, times: i64) {
        if status.is_physical() {
            self.idle.add(amounts, -times);
        }
        if status.is_active() && status != Status::Releasing {
            self.future.add(amounts, -times);
        }
    }

    /// Enters a pod's share of a device. Says whether it is the first.
    pub fn share(&mut self, name: Word, units: u64, status: Status, fresh: bool) -> bool {
        let known = self.shared.iter().position(|device| device.name == name);
        let place = known.unwrap_or_else(|| {
            self.shared.push(SharedDevice { name, used: 0, leaving: 0, promised: 0, fresh });
            if fresh {
                self.reserve_slot(1);
            }
            self.shared.len() - 1
        });
        let before = self.occupied(place);
        let device = &mut self.shared[place];
        match status {
            Status::Pipelined => device.promised += units,
            Status::Releasing => {
                device.used += units;
                device.leaving += units;
            }
            _ => device.used += units,
        }
        self.move_whole(before, self.occupied(place));
        known.is_none()
    }

    /// Removes a pod's share of a device. Says whether it was the last.
    pub fn unshare(&mut self, name: Word, units: u64, status: Status) -> bool {
        let Some(place) = self.shared.iter().position(|device| device.name == name) else { return false };
        let before = self.occupied(place);
        let device = &mut self.shared[place];
        match status {
            Status::Pipelined => device.promised -= units,
            Status::Releasing => {
                device.used -= units;
                device.leaving -= units;
            }
            _ => device.used -= units,
        }
        self.move_whole(before, self.occupied(place));
        let last = self.shared[place].used == 0 && self.shared[place].promised == 0;
        if last {
            let gone = self.shared.remove(place);
            if gone.fresh {
                self.reserve_slot(-1);
            }
        }
        last
    }

    /// Whether a shared device keeps a whole GPU from being idle, and from being idle in future.
    fn occupied(&self, place: usize) -> (bool, bool) {
        let device = &self.shared[place];
        (device.used > 0, device.staying() > 0)
    }

    fn move_whole(&mut self, before: (bool, bool), after: (bool, bool)) {
        self.idle.fixed[fixed::GPU] += i64::from(before.0) - i64::from(after.0);
        self.future.fixed[fixed::GPU] += i64::from(before.1) - i64::from(after.1);
    }

    fn reserve_slot(&mut self, slots: i64) {
        self.idle.fixed[fixed::PODS] -= slots;
        self.future.fixed[fixed::PODS] -= slots;
    }
}
