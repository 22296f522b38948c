//! What a subgroup asks of a domain, and how much of it a node has.
//!
//! Pods that ask for the same kinds of things are *alike*: the largest request of each kind stands for all of them, and a domain is
//! measured by how many such pods its nodes take. Pods that differ in kind are *mixed*: a domain is measured by whether the sum of what is
//! free covers the sum of what is asked.

use smallvec::SmallVec;

use super::ratio::Ratio;
use crate::{
    amounts::{Amounts, GPU, Resource, fixed},
    cluster::{Cluster, class::Class, node::Node},
    delta::Gpus,
    ids::PodId,
};

/// What a subgroup asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// So much for each pod.
    Alike {
        /// Ordinary resources and whole GPUs.
        amounts: Amounts,
        /// Shares of devices.
        shares: Option<Gpus>,
    },
    /// So much for all pods together.
    Mixed(Vec<Axis>),
}

/// One kind of thing that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    /// Of what.
    kind: Kind,
    /// How much.
    request: i128,
}

/// How an axis is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An ordinary resource.
    Amount(Resource),
    /// Pods that find the devices they want a share of.
    Sharers,
    /// Millionths of GPUs, also of those that are shared.
    GpuShares,
}

/// What a node has on each axis.
pub(super) type Free = SmallVec<[i64; 4]>;

impl Need {
    /// What these pods ask; `largest_memory` is that of any GPU they could get.
    pub(super) fn new(cluster: &Cluster, pods: &[PodId], largest_memory: Option<u64>) -> Self {
        let mut classes: SmallVec<[(&Class, u64); 2]> = SmallVec::new();
        let mut last = None;
        for pod in pods {
            let class = cluster.pods[pod.index()].class;
            if last == Some(class) {
                if let Some((_, count)) = classes.last_mut() {
                    *count += 1;
                }
            } else {
                classes.push((cluster.class(class), 1));
                last = Some(class);
            }
        }
        alike(&classes).unwrap_or_else(|| mixed(&classes, largest_memory))
    }

    /// The axes on which domains are compared: slots for pods are not one.
    pub(super) fn axes(&self) -> Vec<Axis> {
        match self {
            Self::Mixed(axes) => axes.clone(),
            Self::Alike { amounts, shares } => {
                let mut axes = amount_axes(amounts);
                if shares.is_some() {
                    axes.push(Axis { kind: Kind::Sharers, request: 1 });
                }
                axes
            }
        }
    }

    /// What a node will have free on each axis, and how many of the pods it takes if they are alike.
    pub(super) fn measure(&self, axes: &[Axis], node: &Node) -> (Free, u32) {
        let shares = match self {
            Self::Alike { shares, .. } => shares.and_then(|gpus| Devices::of(node, gpus)),
            Self::Mixed(_) => None,
        };
        let free: Free = axes
            .iter()
            .map(|axis| match axis.kind {
                Kind::Amount(resource) => node.future.of(resource).max(0),
                Kind::Sharers => shares.as_ref().map_or(0, Devices::pods),
                Kind::GpuShares => gpu_shares(node),
            })
            .collect();
        let Self::Alike { .. } = self else { return (free, 0) };
        let slots = node.future.fixed[fixed::PODS].max(0);
        let counts = axes.iter().zip(&free).map(|(axis, free)| i128::from(*free) / axis.request.max(1));
        let most = counts.min().map_or(slots, |count| i64::try_from(count).unwrap_or(i64::MAX).min(slots));
        let pods = match shares {
            Some(devices) => devices.with_slots(most, slots),
            None => most,
        };
        (free, u32::try_from(pods).unwrap_or(u32::MAX))
    }
}

impl Axis {
    /// How many times the request goes into what is free.
    pub(super) fn capacity(&self, free: i128) -> Ratio {
        Ratio::of(free, self.request)
    }

    /// The resource to name when it is short.
    pub(super) fn resource(&self) -> Resource {
        match self.kind {
            Kind::Amount(resource) => resource,
            Kind::Sharers | Kind::GpuShares => GPUS,
        }
    }

    /// Whether there is too little.
    pub(super) fn is_short(&self, free: i128) -> bool {
        free < self.request
    }
}

/// Whole GPUs: [`fixed::GPU`].
const GPUS: Resource = Resource::Fixed(2);
const _: () = assert!(fixed::GPU == 2, "the place of whole GPUs");

/// The largest request, if all pods ask for the same kinds of things: cpu and memory aside, each is asked for by all or by none.
fn alike(classes: &[(&Class, u64)]) -> Option<Need> {
    let (first, rest) = classes.split_first()?;
    let mut amounts = first.0.amounts.clone();
    let gpus = largest_gpus(classes)?;
    for (class, _) in rest {
        let words = |amounts: &Amounts| amounts.extended.iter().map(|(word, _)| *word).collect::<SmallVec<[_; 4]>>();
        if (class.amounts.fixed[fixed::STORAGE] > 0) != (amounts.fixed[fixed::STORAGE] > 0)
            || words(&class.amounts) != words(&amounts)
        {
            return None;
        }
        for (mine, theirs) in amounts.fixed.iter_mut().zip(class.amounts.fixed) {
            *mine = (*mine).max(theirs);
        }
        for (mine, theirs) in amounts.extended.iter_mut().zip(&class.amounts.extended) {
            mine.1 = mine.1.max(theirs.1);
        }
    }
    if let Gpus::Whole(count) = gpus {
        amounts.fixed[fixed::GPU] = i64::from(count);
    }
    let shares = matches!(gpus, Gpus::Portion { .. } | Gpus::Memory { .. }).then_some(gpus);
    Some(Need::Alike { amounts, shares })
}

/// A request for GPUs that covers those of all pods, if they can be compared: whatever the order of pods.
fn largest_gpus(classes: &[(&Class, u64)]) -> Option<Gpus> {
    let (mut none, mut whole, mut most) = (false, false, 0);
    let (mut part, mut memory) = (0, 0);
    for (class, _) in classes {
        match class.gpus {
            Gpus::None | Gpus::Whole(0) => none = true,
            Gpus::Whole(count) => (whole, most) = (true, count.max(most)),
            Gpus::Portion { devices, millionths } => (most, part) = (devices.max(most), millionths.max(part)),
            Gpus::Memory { devices, mib } => (most, memory) = (devices.max(most), mib.max(memory)),
        }
    }
    match (none, whole, part, memory) {
        (true, false, 0, 0) => Some(Gpus::None),
        // A share is never more than the whole device.
        (false, true, ..) => Some(Gpus::Whole(most)),
        (false, false, millionths, 0) => Some(Gpus::Portion { devices: most, millionths }),
        (false, false, 0, mib) => Some(Gpus::Memory { devices: most, mib }),
        _ => None,
    }
}

/// The sum of all requests.
fn mixed(classes: &[(&Class, u64)], largest_memory: Option<u64>) -> Need {
    let mut axes: Vec<Axis> = Vec::new();
    let mut add = |kind, request: i128| match axes.iter_mut().find(|axis| axis.kind == kind) {
        Some(axis) => axis.request = axis.request.saturating_add(request),
        None if request > 0 => axes.push(Axis { kind, request }),
        None => {}
    };
    for (class, count) in classes {
        let count = i128::from(*count);
        for axis in amount_axes(&class.amounts).into_iter().filter(|axis| axis.kind != Kind::Amount(GPUS)) {
            add(axis.kind, axis.request * count);
        }
        let gpus = match class.gpus {
            Gpus::None => 0,
            Gpus::Whole(whole) => i128::from(whole) * i128::from(GPU),
            Gpus::Portion { devices, millionths } => i128::from(devices) * i128::from(millionths),
            // Which devices they get is not known yet: on the largest ones they take least.
            Gpus::Memory { devices, mib } => {
                let each = i128::from(mib) * i128::from(GPU) / i128::from(largest_memory.unwrap_or(1).max(1));
                i128::from(devices) * each
            }
        };
        add(Kind::GpuShares, gpus * count);
    }
    // The order must not depend on the order of pods: equal sums are one need.
    axes.sort_by_key(Axis::resource);
    Need::Mixed(axes)
}

fn amount_axes(amounts: &Amounts) -> Vec<Axis> {
    let fixed = amounts.fixed.iter().enumerate().filter(|(place, amount)| *place != fixed::PODS && **amount > 0);
    let fixed = fixed.map(|(place, amount)| (Resource::Fixed(u8::try_from(place).unwrap_or(u8::MAX)), *amount));
    let extended = amounts.extended.iter().filter(|(_, amount)| *amount > 0);
    let all = fixed.chain(extended.map(|(word, amount)| (Resource::Extended(*word), *amount)));
    all.map(|(resource, amount)| Axis { kind: Kind::Amount(resource), request: i128::from(amount) }).collect()
}

/// Millionths of GPUs that will be free: a share of a device is rounded up, for this must not refuse what fits.
fn gpu_shares(node: &Node) -> i64 {
    let capacity = u128::from(node.device_units()).max(1);
    let shared = node.shared.iter().filter(|device| device.staying() > 0).map(|device| {
        let free = capacity.saturating_sub(u128::from(device.staying()));
        i64::try_from((free * u128::from(GPU.unsigned_abs())).div_ceil(capacity)).unwrap_or(0)
    });
    shared.fold(node.future.fixed[fixed::GPU].max(0).saturating_mul(GPU), i64::saturating_add)
}

/// The devices of a node as pods with equal shares see them.
struct Devices {
    /// Devices that one pod takes a share of.
    each: u128,
    /// Shares that are left on devices that are already shared.
    shared: SmallVec<[u128; 8]>,
    /// Whole devices.
    whole: u128,
    /// Shares of a whole device.
    shares: u128,
}

impl Devices {
    /// `None` if the request can never be satisfied here.
    fn of(node: &Node, gpus: Gpus) -> Option<Self> {
        let units = node.units_of(gpus).filter(|units| *units > 0)?;
        let (Gpus::Portion { devices, .. } | Gpus::Memory { devices, .. }) = gpus else { return None };
        let capacity = node.device_units();
        let shared = node.shared.iter().filter(|device| device.staying() > 0);
        Some(Self {
            each: u128::from(devices.max(1)),
            shared: shared.map(|device| u128::from(capacity.saturating_sub(device.staying()) / units)).collect(),
            whole: u128::try_from(node.future.fixed[fixed::GPU]).unwrap_or(0),
            shares: u128::from(capacity / units),
        })
    }

    /// How many pods find devices, if nothing else limits them. So many pods can be spread over distinct devices iff there are enough
    /// shares when no device serves one pod twice.
    fn pods(&self) -> i64 {
        let shares: u128 = self.shared.iter().sum::<u128>() + self.whole * self.shares;
        let most = shares / self.each;
        let pods = largest(most, |pods| self.fresh(pods) <= self.whole);
        i64::try_from(pods).unwrap_or(i64::MAX)
    }

    /// How many pods, at most `most`, find devices and slots: each device that is opened needs one for its reservation pod.
    fn with_slots(&self, most: i64, slots: i64) -> i64 {
        let slots = u128::try_from(slots).unwrap_or(0);
        let pods = largest(u128::try_from(most).unwrap_or(0), |pods| pods + self.fresh(pods) <= slots);
        i64::try_from(pods).unwrap_or(0)
    }

    /// How many whole devices must be opened for so many pods.
    fn fresh(&self, pods: u128) -> u128 {
        let room: u128 = self.shared.iter().map(|shares| (*shares).min(pods)).sum();
        let missing = (self.each * pods).saturating_sub(room);
        if missing == 0 { 0 } else { missing.div_ceil(self.shares.min(pods).max(1)) }
    }
}

/// The largest number up to `most` that passes a test which only small enough numbers pass.
fn largest(most: u128, passes: impl Fn(u128) -> bool) -> u128 {
    if passes(most) {
        return most;
    }
    let (mut good, mut bad) = (0, most);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if passes(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    good
}
