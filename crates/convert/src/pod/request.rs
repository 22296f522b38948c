//! What a pod asks for: containers and sidecars together or the peak of the init containers, whichever is more, plus overhead. What
//! the pod itself asks for (pod-level resources) stands instead of what its containers add up to.

use std::{collections::BTreeMap, fmt::Arguments};

use k8s_openapi::api::core::v1 as k8s;
use kai_api::names::resources;
use kai_core::{
    amounts::{GPU, LARGEST},
    delta::{Gpus, Request},
};

use super::gpu;
use crate::{
    amount::{ResourceList, Round, amount, wrong},
    numa,
};

/// Amounts by resource: millicores of cpu, whole units of the rest.
type Amounts<'a> = BTreeMap<&'a str, i64>;

/// What a pod asks for, resource by resource: the one reading of pods that all components share.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// Millicores of `cpu`, whole units of everything else; GPUs and MIG profiles too. Without zeros.
    pub amounts: BTreeMap<String, i64>,
    /// Parts of GPUs.
    pub part: Option<GpuPart>,
}

/// A part of each of some GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GpuPart {
    /// By share.
    Portion {
        /// How many devices.
        devices: u32,
        /// Which part of each, in millionths.
        millionths: u32,
    },
    /// By memory.
    Memory {
        /// How many devices.
        devices: u32,
        /// MiB of each.
        mib: u64,
    },
}

/// Reads what a pod asks for: containers and sidecars or the peak of init containers, pod-level resources, overhead, parts of GPUs.
/// What cannot be read counts as nothing; whoever admits and schedules complains of it.
#[must_use]
pub fn asked(pod: &k8s::Pod) -> Asked {
    let Some(spec) = &pod.spec else { return Asked::default() };
    let amounts = Containers::read(spec).and_then(|containers| containers.total(spec));
    let mut amounts = amounts.unwrap_or_default();
    let whole = |name: &str| amounts.get(name).copied().unwrap_or(0);
    let gpus = whole(resources::NVIDIA_GPU).saturating_add(whole(resources::AMD_GPU));
    let part = match gpu::gpus(pod.metadata.annotations.as_ref().unwrap_or(&BTreeMap::new()), gpus) {
        Ok(Gpus::Portion { devices, millionths }) => Some(GpuPart::Portion { devices, millionths }),
        Ok(Gpus::Memory { devices, mib }) => Some(GpuPart::Memory { devices, mib }),
        // A whole number written as a fraction.
        Ok(Gpus::Whole(count)) if gpus == 0 => {
            amounts.insert(resources::NVIDIA_GPU, i64::from(count));
            None
        }
        Ok(Gpus::None | Gpus::Whole(_)) | Err(_) => None,
    };
    Asked { amounts: owned(amounts), part }
}

/// Billionths of GPUs that an amount of one resource, also in billionths, costs a queue: devices of any plugin, MIG profiles by their
/// slices, devices of DRA classes; 0 for everything else.
#[must_use]
pub fn gpus_of(resource: &str, nano: i128) -> i128 {
    const NANO: i128 = 1_000_000_000;
    let of_a_plugin = resource.ends_with("/gpu");
    let of_a_class = !resource.contains('/') && resource.to_ascii_lowercase().contains("gpu");
    if of_a_plugin || of_a_class {
        return nano;
    }
    if !resource.starts_with(resources::MIG_PREFIX) {
        return 0;
    }
    let count = i64::try_from(nano / NANO).unwrap_or(i64::MAX);
    i128::from(mig_share(resource, count)).saturating_mul(NANO / i128::from(GPU))
}

/// Reads a pod's request. With a complaint comes whatever could be read.
pub(crate) fn request(pod: &k8s::Pod) -> (Request, Option<String>) {
    let none = BTreeMap::new();
    let annotations = pod.metadata.annotations.as_ref().unwrap_or(&none);
    let legacy_mig = annotations.keys().any(|name| name.starts_with(kai_api::names::annotations::MIG_PREFIX));
    let empty = Request { legacy_mig, ..Request::default() };
    let Some(spec) = &pod.spec else { return (empty, None) };
    let containers = match Containers::read(spec) {
        Ok(containers) => containers,
        Err(error) => return (empty, Some(error)),
    };
    let mut total = match containers.total(spec) {
        Ok(total) => total,
        Err(error) => return (empty, Some(error)),
    };
    let mut take = |name: &str| total.remove(name).unwrap_or(0);
    let (cpu, memory, storage) = (take("cpu"), take("memory"), take("ephemeral-storage"));
    let whole = take(resources::NVIDIA_GPU).saturating_add(take(resources::AMD_GPU));
    let extended = owned(total);
    let (gpus, invalid) = match gpu::gpus(annotations, whole) {
        Ok(gpus) => (gpus, None),
        Err(error) => (Gpus::Whole(u32::try_from(whole).unwrap_or(u32::MAX)), Some(error)),
    };
    let mig_share = extended.iter().map(|(name, count)| mig_share(name, *count)).fold(0_i64, i64::saturating_add);
    let numa = numa::units(&containers.main, &containers.sidecars, &containers.init, numa::guaranteed(pod));
    let gpus = if gpus == Gpus::Whole(0) { Gpus::None } else { gpus };
    let too_much = too_much(mig_share);
    let mig_share = mig_share.min(LARGEST);
    let request = Request { cpu, memory, storage, extended, gpus, mig_share, legacy_mig, numa };
    (request, invalid.or(too_much))
}

fn too_much(mig_share: i64) -> Option<String> {
    let field = "spec.containers[].resources.requests[nvidia.com/mig-*]";
    (mig_share > LARGEST).then(|| wrong(field, "asks for more than any machine has", "ask for fewer profiles"))
}

/// What profiles of one kind cost a queue. Names of another form than `1g.5gb` cost nothing, as in KAI.
fn mig_share(resource: &str, count: i64) -> i64 {
    let slices = || {
        let profile = resource.strip_prefix(resources::MIG_PREFIX)?;
        let (slices, memory) = profile.strip_suffix("gb")?.split_once("g.")?;
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        (digits(slices) && digits(memory)).then(|| slices.parse::<i64>().ok()).flatten()
    };
    slices().unwrap_or(0).saturating_mul(count).saturating_mul(GPU)
}

/// The requests of the containers of a pod, by when they run.
struct Containers<'a> {
    main: Vec<Amounts<'a>>,
    sidecars: Vec<Amounts<'a>>,
    init: Vec<Amounts<'a>>,
    /// The most that runs at once before the main containers start.
    peak: Amounts<'a>,
}

impl<'a> Containers<'a> {
    fn read(spec: &'a k8s::PodSpec) -> Result<Self, String> {
        let main = spec.containers.iter().enumerate();
        let main = main
            .map(|(index, container)| requests(format_args!("spec.containers[{index}]"), container.resources.as_ref()));
        let mut read = Self {
            main: main.collect::<Result<_, _>>()?,
            sidecars: Vec::new(),
            init: Vec::new(),
            peak: Amounts::new(),
        };
        let mut running = Amounts::new();
        for (index, container) in spec.init_containers.iter().flatten().enumerate() {
            let asked = requests(format_args!("spec.initContainers[{index}]"), container.resources.as_ref())?;
            if container.restart_policy.as_deref() == Some("Always") {
                add(&mut running, &asked);
                read.sidecars.push(asked);
            } else {
                let mut now = running.clone();
                add(&mut now, &asked);
                raise(&mut read.peak, &now);
                read.init.push(asked);
            }
        }
        Ok(read)
    }

    fn total(&self, spec: &'a k8s::PodSpec) -> Result<Amounts<'a>, String> {
        let mut total = Amounts::new();
        for asked in self.main.iter().chain(&self.sidecars) {
            add(&mut total, asked);
        }
        raise(&mut total, &self.peak);
        let own = requests(format_args!("spec"), spec.resources.as_ref())?;
        let of_the_pod = |name: &str| name == "cpu" || name == "memory" || name.starts_with("hugepages-");
        total.extend(own.into_iter().filter(|(name, _)| of_the_pod(name)));
        if let Some(overhead) = &spec.overhead {
            add(&mut total, &list(format_args!("spec.overhead"), overhead)?);
        }
        match total.iter().find(|(_, amount)| **amount > LARGEST) {
            Some((name, _)) => Err(wrong(
                format!("spec.containers[].resources.requests[{name}]"),
                "adds up to more than any machine has",
                "ask for what one machine could have",
            )),
            None => Ok(total),
        }
    }
}

/// The requests of a container; what it only limits it also requests, as the API server writes it.
fn requests<'a>(path: Arguments<'_>, resources: Option<&'a k8s::ResourceRequirements>) -> Result<Amounts<'a>, String> {
    let Some(resources) = resources else { return Ok(Amounts::new()) };
    let mut read = Amounts::new();
    if let Some(limits) = &resources.limits {
        read = list(format_args!("{path}.resources.limits"), limits)?;
    }
    if let Some(requests) = &resources.requests {
        read.extend(list(format_args!("{path}.resources.requests"), requests)?);
    }
    Ok(read)
}

fn list<'a>(path: Arguments<'_>, list: &'a ResourceList) -> Result<Amounts<'a>, String> {
    let read = list.iter().map(|(name, quantity)| {
        Ok((name.as_str(), amount(format_args!("{path}[{name}]"), name, quantity, Round::Up)?))
    });
    read.collect()
}

/// What is asked for, without zeros.
fn owned(amounts: Amounts<'_>) -> BTreeMap<String, i64> {
    amounts.into_iter().filter(|(_, amount)| *amount > 0).map(|(name, amount)| (name.to_owned(), amount)).collect()
}

fn add<'a>(sum: &mut Amounts<'a>, more: &Amounts<'a>) {
    for (name, amount) in more {
        let entry = sum.entry(name).or_default();
        *entry = entry.saturating_add(*amount);
    }
}

fn raise<'a>(peak: &mut Amounts<'a>, other: &Amounts<'a>) {
    for (name, amount) in other {
        let entry = peak.entry(name).or_default();
        *entry = (*entry).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: Value, annotations: Value) -> (Request, Option<String>) {
        let object = json!({"metadata": {"name": "p", "annotations": annotations}, "spec": spec});
        request(&serde_json::from_value(object).expect("a pod"))
    }

    fn container(requests: Value) -> Value {
        json!({"name": "c", "resources": {"requests": requests}})
    }

    #[test]
    fn containers_and_sidecars_add_up_and_init_containers_peak() {
        let mut sidecar = container(json!({"cpu": "1", "memory": "1"}));
        sidecar["restartPolicy"] = json!("Always");
        let spec = json!({
            "containers": [container(json!({"cpu": "1", "memory": "10"})), container(json!({"cpu": "500m"}))],
            "initContainers": [container(json!({"cpu": "2500m"})), sidecar, container(json!({"cpu": "2"}))],
            "overhead": {"cpu": "100m"}
        });
        let (request, invalid) = read(spec, json!({}));
        // Main and sidecar: 2500m; peak: the first alone 2500m, the last with the sidecar 3000m.
        assert_eq!((request.cpu, request.memory, invalid), (3100, 11, None));
    }

    #[test]
    fn what_the_pod_asks_for_stands_instead_of_its_containers() {
        let spec = json!({"containers": [container(json!({"cpu": "1", "nvidia.com/gpu": "1"}))],
            "resources": {"requests": {"cpu": "4", "memory": "8"}}});
        let (request, _) = read(spec, json!({}));
        assert_eq!((request.cpu, request.memory, request.gpus), (4000, 8, Gpus::Whole(1)));
    }

    #[test]
    fn a_limit_is_a_request_where_none_is_written() {
        let spec = json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2", "nvidia.com/gpu": "1"}, "requests": {"cpu": "1"}}}]});
        let (request, _) = read(spec, json!({}));
        assert_eq!((request.cpu, request.gpus), (1000, Gpus::Whole(1)));
    }

    #[test]
    fn gpus_of_both_vendors_are_gpus_and_others_are_ordinary() {
        let spec = json!({"containers": [container(json!({"nvidia.com/gpu": "1", "amd.com/gpu": "1", "intel.com/gpu": "3"}))]});
        let (request, _) = read(spec, json!({}));
        assert_eq!((request.gpus, request.extended.get("intel.com/gpu")), (Gpus::Whole(2), Some(&3)));
    }

    #[test]
    fn profiles_cost_their_slices() {
        let spec =
            json!({"containers": [container(json!({"nvidia.com/mig-3g.20gb": "2", "nvidia.com/mig-1g.5gb.me": "1"}))]});
        let (request, _) = read(spec, json!({"nvidia.com/mig-1g.5gb": "1"}));
        assert_eq!((request.mig_share, request.extended.len(), request.legacy_mig), (6_000_000, 2, true));
    }

    #[test]
    fn what_is_asked_for_keeps_its_names_and_its_parts() {
        let ask = |spec: Value, annotations: Value| {
            let object = json!({"metadata": {"name": "p", "annotations": annotations}, "spec": spec});
            asked(&serde_json::from_value(object).expect("a pod"))
        };
        let whole =
            json!({"containers": [container(json!({"cpu": "1", "amd.com/gpu": "2", "nvidia.com/mig-1g.5gb": "1"}))]});
        let found = ask(whole, json!({}));
        let named: Vec<(&str, i64)> = found.amounts.iter().map(|(name, amount)| (name.as_str(), *amount)).collect();
        assert_eq!(named, [("amd.com/gpu", 2), ("cpu", 1000), ("nvidia.com/mig-1g.5gb", 1)]);
        let bare = json!({"containers": [container(json!({}))]});
        let portion = ask(bare.clone(), json!({"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}));
        assert_eq!(portion.part, Some(GpuPart::Portion { devices: 2, millionths: 250_000 }));
        assert_eq!(ask(bare.clone(), json!({"gpu-fraction": "2"})).amounts.get("nvidia.com/gpu"), Some(&2));
        assert_eq!(ask(bare, json!({"gpu-fraction": "abc"})), Asked::default());
    }

    #[test]
    fn bad_quantities_are_the_pods_own_trouble() {
        for bad in ["many", "-1", "1000000000000000000"] {
            let (_, invalid) = read(json!({"containers": [container(json!({"nvidia.com/gpu": bad}))]}), json!({}));
            assert!(invalid.expect("refused").contains("spec.containers[0].resources.requests[nvidia.com/gpu]"));
        }
        let much = container(json!({"memory": "900T"}));
        let (_, invalid) = read(json!({"containers": [much.clone(), much]}), json!({}));
        assert!(invalid.expect("refused").contains("adds up"));
    }

    #[test]
    fn a_part_beside_whole_gpus_is_refused() {
        let spec = json!({"containers": [container(json!({"nvidia.com/gpu": "1"}))]});
        let (request, invalid) = read(spec, json!({"gpu-fraction": "0.5"}));
        assert_eq!(request.gpus, Gpus::Whole(1));
        assert!(invalid.expect("refused").contains("gpu-fraction"));
    }
}
