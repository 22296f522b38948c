//! What the pods of a group ask for and hold.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequest, ResourceClaim};
use kai_api::names::resources;
use kai_convert::GpuPart;

use crate::{
    amounts::{Amounts, MICRO, MILLI, NANO},
    pod_facts::PodFacts,
};

/// What a group or a queue asks for and holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// What all its pods ask for.
    pub requested: Amounts,
    /// What its placed pods hold.
    pub allocated: Amounts,
    /// The part of it that cannot be preempted.
    pub non_preemptible: Amounts,
}

impl Sums {
    /// Adds others.
    pub fn add_all(&mut self, others: &Self) {
        self.requested.add_all(&others.requested);
        self.allocated.add_all(&others.allocated);
        self.non_preemptible.add_all(&others.non_preemptible);
    }

    /// Takes others away.
    pub fn take_all(&mut self, others: &Self) {
        self.requested.take_all(&others.requested);
        self.allocated.take_all(&others.allocated);
        self.non_preemptible.take_all(&others.non_preemptible);
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requested.is_empty() && self.allocated.is_empty() && self.non_preemptible.is_empty()
    }
}

/// What is known of the world around pods.
pub trait Surroundings {
    /// MiB of each GPU of a node.
    fn gpu_memory(&self, node: &str) -> Option<u64>;
    /// Devices of each class that a claim, given as `namespace/name`, asks for or has.
    fn devices(&self, claim: &str) -> Amounts;
}

/// Adds up the pods of a group.
pub fn of_group<'a>(pods: impl Iterator<Item = &'a PodFacts>, preemptible: bool, around: &impl Surroundings) -> Sums {
    let mut sums = Sums::default();
    // Pods that share a claim share its devices.
    let (mut asked, mut held) = (BTreeSet::new(), BTreeSet::new());
    for pod in pods {
        add_asked(pod, &mut sums.requested);
        if let Some(node) = &pod.node {
            add_held(pod, around.gpu_memory(node), &mut sums.allocated);
        }
        for claim in &pod.claims {
            if asked.insert(claim.as_str()) {
                sums.requested.add_all(&around.devices(claim));
            }
            if pod.node.is_some() && held.insert(claim.as_str()) {
                sums.allocated.add_all(&around.devices(claim));
            }
        }
    }
    if !preemptible {
        sums.non_preemptible = sums.allocated.clone();
    }
    sums
}

fn add_whole(pod: &PodFacts, sum: &mut Amounts) {
    for (resource, amount) in &pod.asked.amounts {
        let unit = if resource == "cpu" { MILLI } else { NANO };
        sum.add(resource, i128::from(*amount).saturating_mul(unit));
    }
    if let Some(GpuPart::Portion { devices, millionths }) = pod.asked.part {
        sum.add(resources::NVIDIA_GPU, i128::from(devices) * i128::from(millionths) * MICRO);
    }
}

fn add_asked(pod: &PodFacts, sum: &mut Amounts) {
    add_whole(pod, sum);
    if let Some(GpuPart::Memory { devices, mib }) = pod.asked.part {
        sum.add(resources::GPU_MEMORY, i128::from(devices) * i128::from(mib) * NANO);
    }
}

fn add_held(pod: &PodFacts, gpu_memory: Option<u64>, sum: &mut Amounts) {
    add_whole(pod, sum);
    let Some(GpuPart::Memory { devices, mib }) = pod.asked.part else { return };
    match gpu_memory.filter(|memory| *memory > 0) {
        Some(memory) => {
            // A share finer than a millionth counts as a millionth: what is held is never less than what is used.
            let millionths = (i128::from(mib) * 1_000_000 + i128::from(memory) - 1) / i128::from(memory);
            sum.add(resources::NVIDIA_GPU, i128::from(devices) * millionths * MICRO);
        }
        // The label went away under a running pod: what it holds is still known in MiB.
        None => sum.add(resources::GPU_MEMORY, i128::from(devices) * i128::from(mib) * NANO),
    }
}

/// Devices of GPU classes that a claim has, or asks for while it has none.
#[must_use]
pub fn devices_of(claim: &ResourceClaim) -> Amounts {
    let mut devices = Amounts::default();
    let given = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let requests = claim.spec.devices.as_ref().and_then(|devices| devices.requests.as_ref());
    for request in requests.into_iter().flatten() {
        for (class, count) in choices(request, given) {
            if class.to_ascii_lowercase().contains("gpu") {
                devices.add(class, i128::from(count).saturating_mul(NANO));
            }
        }
    }
    devices
}

/// The classes of a request with how many devices of each it has; while nothing is allocated, of its first choice.
fn choices<'a>(request: &'a DeviceRequest, given: Option<&AllocationResult>) -> Vec<(&'a str, i64)> {
    let mut wanted: Vec<(String, &str, Option<&str>, Option<i64>)> = Vec::new();
    if let Some(exact) = request.exactly.as_ref().filter(|exact| !exact.admin_access.unwrap_or(false)) {
        let mode = exact.allocation_mode.as_deref();
        wanted.push((request.name.clone(), &exact.device_class_name, mode, exact.count));
    }
    for sub in request.first_available.iter().flatten() {
        let name = format!("{}/{}", request.name, sub.name);
        wanted.push((name, &sub.device_class_name, sub.allocation_mode.as_deref(), sub.count));
    }
    let Some(given) = given else {
        let first = wanted.into_iter().next();
        let all = |mode: Option<&str>| mode == Some("All");
        let count = |mode, count: Option<i64>| if all(mode) { 1 } else { count.unwrap_or(1).max(1) };
        return first.into_iter().map(|(_, class, mode, number)| (class, count(mode, number))).collect();
    };
    let results = || given.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    let has = |name: &str| results().filter(|result| result.request == name).count();
    wanted.into_iter().map(|(name, class, ..)| (class, i64::try_from(has(&name)).unwrap_or(i64::MAX))).collect()
}

#[cfg(test)]
mod tests;
