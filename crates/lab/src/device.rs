//! The kubelet's device manager: which container holds which individual device.
//!
//! A device is one of what a plugin advertises: a GPU, a MIG instance, or one time-slice of either (`<id>::<n>`). It belongs to at
//! most one container at a time; init containers hand theirs on to later containers of the same pod, sidecars keep theirs.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PodSpec;

use crate::{
    fleet::NodeSpec,
    programs::GivenDevice,
    resources::{self, Amounts},
};

/// Devices given to one container, by resource name.
pub type ContainerDevices = BTreeMap<String, Vec<String>>;
/// Devices given to a pod, by container name.
pub type PodDevices = BTreeMap<String, ContainerDevices>;

/// The devices of one node and who holds them.
#[derive(Clone, Debug, Default)]
pub struct DeviceManager {
    plugins: BTreeMap<String, Plugin>,
    /// By pod uid.
    held: BTreeMap<String, PodDevices>,
}

/// What one device plugin advertises.
#[derive(Clone, Debug, Default)]
struct Plugin {
    /// In the order of the hardware: physical device, then replica.
    devices: Vec<Advertised>,
    in_use: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Advertised {
    id: String,
    physical: usize,
    visible_as: String,
    uuid: String,
    healthy: bool,
}

impl Advertised {
    fn given(&self) -> GivenDevice {
        GivenDevice { id: self.id.clone(), uuid: self.uuid.clone(), visible_as: self.visible_as.clone() }
    }
}

/// Why devices could not be handed out; the words are the kubelet's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    /// Every device of the resource is unhealthy.
    #[error("no healthy devices present; cannot allocate unhealthy devices {resource}")]
    NoneHealthy {
        /// Resource name.
        resource: String,
    },
    /// What the pod held before the machine went down is no more.
    #[error("previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}")]
    Lost {
        /// Resource name.
        resource: String,
    },
    /// Fewer healthy free devices than asked for.
    #[error("requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}")]
    Unavailable {
        /// Resource name.
        resource: String,
        /// Devices still needed.
        requested: usize,
        /// Devices free.
        available: usize,
    },
}

impl DeviceManager {
    /// The devices of a node.
    pub fn new(spec: &NodeSpec) -> Self {
        let replicas = spec.replicas.0;
        let plugins = spec
            .shape
            .devices
            .iter()
            .map(|(resource, devices)| {
                let advertise = |(physical, device): (usize, &crate::preset::Device)| {
                    let one = |id: String| Advertised {
                        id,
                        physical,
                        visible_as: device.visible_as.clone(),
                        uuid: device.uuid.clone(),
                        healthy: true,
                    };
                    if replicas > 1 {
                        (0..replicas).map(|replica| one(format!("{}::{replica}", device.id))).collect()
                    } else {
                        vec![one(device.id.clone())]
                    }
                };
                let devices = devices.iter().enumerate().flat_map(advertise).collect();
                (resource.clone(), Plugin { devices, in_use: BTreeSet::new() })
            })
            .collect();
        Self { plugins, held: BTreeMap::new() }
    }

    /// Capacity and allocatable by resource: all devices, and the healthy ones.
    pub fn counts(&self) -> (Amounts, Amounts) {
        let count = |keep: fn(&&Advertised) -> bool| {
            self.plugins
                .iter()
                .map(|(resource, plugin)| {
                    let number = plugin.devices.iter().filter(keep).count();
                    (resource.clone(), i64::try_from(number).unwrap_or(i64::MAX))
                })
                .collect()
        };
        (count(|_| true), count(|device| device.healthy))
    }

    /// Gives a pod all devices its containers ask for, or none. What it has already it keeps.
    pub fn allocate(&mut self, uid: &str, spec: &PodSpec) -> Result<&PodDevices, AllocationError> {
        if self.held.contains_key(uid) {
            return Ok(self.held.entry(uid.to_owned()).or_default());
        }
        match self.try_allocate(spec) {
            Ok(devices) => {
                self.hold(uid, devices);
                Ok(self.held.entry(uid.to_owned()).or_default())
            }
            Err(error) => Err(error),
        }
    }

    /// Records what a pod held before the kubelet restarted, as its checkpoint says.
    pub fn restore(&mut self, uid: &str, devices: PodDevices) {
        self.hold(uid, devices);
    }

    /// Frees what pods hold that are not among these.
    pub fn keep_only(&mut self, uids: &BTreeSet<&str>) {
        let gone: Vec<String> = self.held.keys().filter(|uid| !uids.contains(uid.as_str())).cloned().collect();
        for uid in gone {
            self.release(&uid);
        }
    }

    /// Frees a pod's devices.
    pub fn release(&mut self, uid: &str) {
        for (resource, ids) in self.held.remove(uid).into_iter().flatten().flat_map(|(_, devices)| devices) {
            if let Some(plugin) = self.plugins.get_mut(&resource) {
                for id in ids {
                    plugin.in_use.remove(&id);
                }
            }
        }
    }

    /// What a pod holds.
    pub fn held_by(&self, uid: &str) -> Option<&PodDevices> {
        self.held.get(uid).filter(|devices| !devices.is_empty())
    }

    /// Whether a plugin on this node serves the resource.
    pub fn serves(&self, resource: &str) -> bool {
        self.plugins.contains_key(resource)
    }

    /// Marks a physical device, with all its replicas. Says whether anything changed.
    pub fn set_health(&mut self, resource: &str, physical: usize, healthy: bool) -> bool {
        let devices = self.plugins.get_mut(resource).map(|plugin| plugin.devices.iter_mut()).into_iter().flatten();
        let mut changed = false;
        for device in devices.filter(|device| device.physical == physical && device.healthy != healthy) {
            device.healthy = healthy;
            changed = true;
        }
        changed
    }

    /// What the container sees as `NVIDIA_VISIBLE_DEVICES`; replicas of one device are named once.
    pub fn visible(&self, devices: &ContainerDevices) -> String {
        let mut names: Vec<&str> = Vec::new();
        for (resource, ids) in devices {
            let Some(plugin) = self.plugins.get(resource) else { continue };
            for device in plugin.devices.iter().filter(|device| ids.contains(&device.id)) {
                if !names.contains(&device.visible_as.as_str()) {
                    names.push(&device.visible_as);
                }
            }
        }
        names.join(",")
    }

    /// The first resource of which some of these devices do not exist any more or are not healthy.
    pub fn lacks<'a>(&self, devices: &'a PodDevices) -> Option<&'a str> {
        let lost = |(resource, ids): &(&'a String, &'a Vec<String>)| {
            let offered = self.plugins.get(*resource).map(|plugin| plugin.devices.as_slice()).unwrap_or_default();
            !ids.iter().all(|id| offered.iter().any(|device| device.healthy && device.id == *id))
        };
        devices.values().flatten().find(lost).map(|(resource, _)| resource.as_str())
    }

    /// What a container was given, with all names of each device.
    pub fn given(&self, devices: &ContainerDevices) -> BTreeMap<String, Vec<GivenDevice>> {
        let found = |(resource, ids): (&String, &Vec<String>)| {
            let plugin = self.plugins.get(resource)?;
            let given = plugin.devices.iter().filter(|device| ids.contains(&device.id)).map(Advertised::given);
            Some((resource.clone(), given.collect()))
        };
        devices.iter().filter_map(found).collect()
    }

    /// Every physical device of the node once, by resource.
    pub fn physical(&self) -> BTreeMap<String, Vec<GivenDevice>> {
        let first_of_each = |plugin: &Plugin| {
            let mut seen = BTreeSet::new();
            plugin.devices.iter().filter(|device| seen.insert(device.physical)).map(Advertised::given).collect()
        };
        self.plugins.iter().map(|(resource, plugin)| (resource.clone(), first_of_each(plugin))).collect()
    }

    fn hold(&mut self, uid: &str, devices: PodDevices) {
        for (resource, ids) in devices.values().flatten() {
            if let Some(plugin) = self.plugins.get_mut(resource) {
                plugin.in_use.extend(ids.iter().cloned());
            }
        }
        self.held.insert(uid.to_owned(), devices);
    }

    fn try_allocate(&self, spec: &PodSpec) -> Result<PodDevices, AllocationError> {
        let mut devices = PodDevices::new();
        // Taken by this pod so far, and of those what init containers leave behind.
        let mut taken: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        let mut reusable: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let init =
            spec.init_containers.iter().flatten().map(|container| (container, !resources::is_sidecar(container)));
        for (container, hands_on) in init.chain(spec.containers.iter().map(|container| (container, false))) {
            for (resource, count) in resources::container_limits(container) {
                let Some((resource, plugin)) = self.plugins.get_key_value(&resource) else { continue };
                let needed = usize::try_from(count).unwrap_or(0);
                if needed == 0 {
                    continue;
                }
                let taken = taken.entry(resource).or_default();
                let reusable = reusable.entry(resource).or_default();
                let chosen = plugin.choose(resource, needed, reusable, taken)?;
                taken.extend(chosen.iter().cloned());
                if hands_on {
                    for id in &chosen {
                        if !reusable.contains(id) {
                            reusable.push(id.clone());
                        }
                    }
                } else {
                    reusable.retain(|id| !chosen.contains(id));
                }
                devices.entry(container.name.clone()).or_default().insert(resource.clone(), chosen);
            }
        }
        Ok(devices)
    }
}

impl Plugin {
    /// Reusable devices first, then free healthy ones: whole devices in the order of the hardware, replicas on the physical
    /// device with the fewest in use (the plugin's default `distributed` policy).
    fn choose(
        &self,
        resource: &str,
        needed: usize,
        reusable: &[String],
        taken: &BTreeSet<String>,
    ) -> Result<Vec<String>, AllocationError> {
        if !self.devices.iter().any(|device| device.healthy) {
            return Err(AllocationError::NoneHealthy { resource: resource.to_owned() });
        }
        let mut chosen: Vec<String> = reusable.iter().take(needed).cloned().collect();
        let is_free =
            |device: &&Advertised| device.healthy && !self.in_use.contains(&device.id) && !taken.contains(&device.id);
        let mut free: Vec<&Advertised> = self.devices.iter().filter(is_free).collect();
        let missing = needed - chosen.len();
        if free.len() < missing {
            return Err(AllocationError::Unavailable {
                resource: resource.to_owned(),
                requested: missing,
                available: free.len(),
            });
        }
        let mut load: BTreeMap<usize, usize> = BTreeMap::new();
        for device in &self.devices {
            if self.in_use.contains(&device.id) || taken.contains(&device.id) {
                *load.entry(device.physical).or_default() += 1;
            }
        }
        for _ in 0..missing {
            let least = free
                .iter()
                .enumerate()
                .min_by_key(|(position, device)| (load.get(&device.physical).copied().unwrap_or(0), *position));
            let Some((position, _)) = least else { break };
            let device = free.remove(position);
            *load.entry(device.physical).or_default() += 1;
            chosen.push(device.id.clone());
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests;
