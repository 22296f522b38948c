//! Devices of DRA drivers. Selectors are evaluated here, so that the core only compares numbers: devices that no filter in use tells
//! apart share a *kind*, and a request lists the kinds it takes.
//!
//! ```text
//!   ResourceSlice ─▶ contents ──┐
//!   DeviceClass ─┐              ├─▶ which filters take it ─▶ kind ─▶ Node.devices
//!   ResourceClaim ┴─▶ filters ──┘                              └──▶ ClaimRequest.kinds, DeviceResource.kinds
//! ```
//!
//! Devices that are not of one node, or that are carved out of shared counters, are left out: the core cannot count them.

mod claim;
mod filter;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1 as dra;
use kai_core::delta::{Claim, ClaimAllocation, ClaimRequest, Device, DeviceRef, DeviceResource};

use self::{
    claim::{ClaimRecord, MOST_CONSUMERS, RequestRecord},
    filter::{Attribute, Content, Filter, Taint, expressions},
};
use crate::queue::name;

/// Before the name of a class: the resource that every class serves.
const IMPLICIT_RESOURCE: &str = "deviceclass.resource.kubernetes.io/";
/// Drivers and classes with this in their name are those of GPUs, as KAI sees it.
const GPU: &str = "gpu";
/// Filters nobody uses any more are kept until they are this many more than those in use.
const SPARE_FILTERS: usize = 64;

/// What must be told again after a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Stale {
    /// Nodes, by name.
    pub(crate) nodes: BTreeSet<String>,
    /// Claims, by `namespace/name`.
    pub(crate) claims: BTreeSet<String>,
    /// Resources served by devices, by name.
    pub(crate) resources: BTreeSet<String>,
}

#[derive(Debug)]
struct SliceRecord {
    driver: String,
    pool: String,
    generation: i64,
    slices: i64,
    /// Node, name and place in the list of contents of each device.
    devices: Vec<(String, String, usize)>,
}

#[derive(Debug, PartialEq, Eq)]
struct ClassRecord {
    selectors: Vec<String>,
    resource: Option<String>,
}

/// A pod's hold on a claim by way of a BindRequest.
type Holds = BTreeMap<String, Option<ClaimAllocation>>;

/// The devices of the cluster and the claims on them.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    slices: BTreeMap<String, SliceRecord>,
    /// The slices of each pool, by driver and name.
    pools: BTreeMap<(String, String), BTreeSet<String>>,
    /// The slices with devices of each node.
    homes: BTreeMap<String, BTreeSet<String>>,
    classes: BTreeMap<String, ClassRecord>,
    claims: BTreeMap<String, ClaimRecord>,
    /// Claims with devices whose node only the slices tell.
    homeless: BTreeSet<String>,
    /// By claim: pods that are being bound with it, by uid.
    holds: BTreeMap<String, Holds>,
    contents: Vec<Content>,
    places: BTreeMap<Content, usize>,
    filters: BTreeMap<Filter, Matches>,
    kinds: BTreeMap<Vec<u32>, u32>,
    next_filter: u32,
}

/// A filter and which contents it takes.
#[derive(Debug)]
struct Matches {
    number: u32,
    takes: Vec<bool>,
    problem: Option<String>,
}

impl Devices {
    /// Whether a claim is known.
    pub(crate) fn has_claim(&self, key: &str) -> bool {
        self.claims.contains_key(key)
    }

    /// Takes a slice.
    pub(crate) fn insert_slice(&mut self, object: &dra::ResourceSlice) -> Stale {
        let mut stale = self.remove_slice(&name(&object.metadata));
        let spec = &object.spec;
        let known = self.contents.len();
        let mut devices = Vec::new();
        for device in spec.devices.iter().flatten() {
            let own = device.node_name.as_ref().filter(|_| spec.per_device_node_selection.unwrap_or(false));
            let node = own.or(spec.node_name.as_ref()).filter(|node| !node.is_empty());
            if let Some(node) = node
                && device.consumes_counters.as_ref().is_none_or(Vec::is_empty)
            {
                let place = self.place(content(&spec.driver, device));
                devices.push((node.clone(), device.name.clone(), place));
            }
        }
        let record = SliceRecord {
            driver: spec.driver.clone(),
            pool: spec.pool.name.clone(),
            generation: spec.pool.generation,
            slices: spec.pool.resource_slice_count,
            devices,
        };
        let slice = name(&object.metadata);
        self.pools.entry((record.driver.clone(), record.pool.clone())).or_default().insert(slice.clone());
        for (node, _, _) in &record.devices {
            self.homes.entry(node.clone()).or_default().insert(slice.clone());
        }
        self.slices.insert(slice, record);
        if self.contents.len() > known {
            let fresh = self.contents.get(known..).unwrap_or_default().to_vec();
            for (filter, matches) in &mut self.filters {
                matches.takes.extend(filter.matches(&fresh));
            }
            self.number_kinds(&mut stale);
        }
        stale.nodes.extend(self.nodes_of_pool(&spec.driver, &spec.pool.name));
        stale.claims.extend(self.homeless_in(&spec.driver, &spec.pool.name));
        stale
    }

    /// Forgets a slice.
    pub(crate) fn remove_slice(&mut self, slice: &str) -> Stale {
        let Some(gone) = self.slices.remove(slice) else { return Stale::default() };
        let pool = (gone.driver, gone.pool);
        forget(&mut self.pools, &pool, slice);
        for (node, _, _) in &gone.devices {
            forget(&mut self.homes, node, slice);
        }
        let mut nodes = self.nodes_of_pool(&pool.0, &pool.1);
        nodes.extend(gone.devices.into_iter().map(|(node, _, _)| node));
        Stale { nodes, claims: self.homeless_in(&pool.0, &pool.1), ..Stale::default() }
    }

    /// Takes a class.
    pub(crate) fn insert_class(&mut self, object: &dra::DeviceClass) -> Stale {
        let record = ClassRecord {
            selectors: expressions(object.spec.selectors.as_ref()),
            resource: object.spec.extended_resource_name.clone().filter(|resource| !resource.is_empty()),
        };
        let class = name(&object.metadata);
        let mut stale = Stale::default();
        if let Some(old) = self.classes.get(&class) {
            stale.resources.extend(old.resource.clone());
        }
        stale.resources.extend(record.resource.clone());
        stale.resources.insert(format!("{IMPLICIT_RESOURCE}{class}"));
        self.classes.insert(class.clone(), record);
        stale.claims.extend(self.claims_of_class(&class));
        self.know_filters(&mut stale);
        stale
    }

    /// Forgets a class.
    pub(crate) fn remove_class(&mut self, class: &str) -> Stale {
        let Some(gone) = self.classes.remove(class) else { return Stale::default() };
        let mut stale = Stale { claims: self.claims_of_class(class), ..Stale::default() };
        stale.resources.extend(gone.resource);
        stale.resources.insert(format!("{IMPLICIT_RESOURCE}{class}"));
        stale
    }

    /// Takes a claim.
    pub(crate) fn insert_claim(&mut self, object: &dra::ResourceClaim, queue_label: &str) -> Stale {
        let record = ClaimRecord::of(object, queue_label);
        let mut stale = Stale { claims: BTreeSet::from([record.key.clone()]), ..Stale::default() };
        match &record.allocation {
            Some(allocation) if allocation.node.is_none() => self.homeless.insert(record.key.clone()),
            _ => self.homeless.remove(&record.key),
        };
        let known = record.requests.iter().all(|request| self.filters.contains_key(&self.filter(request)));
        self.claims.insert(record.key.clone(), record);
        if !known {
            self.know_filters(&mut stale);
        }
        stale
    }

    /// Forgets a claim.
    pub(crate) fn remove_claim(&mut self, key: &str) {
        self.claims.remove(key);
        self.homeless.remove(key);
    }

    /// Says that a pod is being bound with a claim, with the devices chosen for it if it had none. Whether that is news.
    pub(crate) fn hold(&mut self, key: &str, uid: &str, chosen: Option<&dra::AllocationResult>) -> bool {
        let requests = self.claims.get(key).map(|claim| claim.requests.as_slice()).unwrap_or_default();
        let converted = chosen.map(|chosen| claim::allocation(chosen, requests));
        let holds = self.holds.entry(key.to_owned()).or_default();
        holds.insert(uid.to_owned(), converted.clone()) != Some(converted)
    }

    /// Says that a pod is no longer being bound with a claim. Whether that is news.
    pub(crate) fn release(&mut self, key: &str, uid: &str) -> bool {
        let Some(holds) = self.holds.get_mut(key) else { return false };
        let held = holds.remove(uid).is_some();
        if holds.is_empty() {
            self.holds.remove(key);
        }
        held
    }

    /// The devices of a node, in the order of their names.
    pub(crate) fn of_node(&self, node: &str) -> Vec<Device> {
        let mut found = Vec::new();
        let slices = self.homes.get(node).into_iter().flatten().filter_map(|slice| self.slices.get(slice));
        for slice in slices.filter(|slice| self.usable(slice)) {
            for (_, device, place) in slice.devices.iter().filter(|(at, _, _)| at == node) {
                let signature = self.signature(*place);
                found.push(Device {
                    device: DeviceRef { driver: slice.driver.clone(), pool: slice.pool.clone(), name: device.clone() },
                    kind: self.kinds.get(&signature).copied().unwrap_or(u32::MAX),
                    gpu: slice.driver.contains(GPU),
                });
            }
        }
        found.sort_by(|left, right| left.device.cmp(&right.device));
        found.dedup_by(|left, right| left.device == right.device);
        found
    }

    /// A claim as the core sees it.
    pub(crate) fn claim(&self, key: &str) -> Option<Claim> {
        let record = self.claims.get(key)?;
        let mut impossible = record.unsupported.clone();
        let mut requests = Vec::new();
        for request in &record.requests {
            let class = self.classes.get(&request.class);
            if class.is_none() {
                impossible.get_or_insert_with(|| format!("device class \"{}\" does not exist", request.class));
            }
            let filter = self.filter(request);
            if let Some(problem) = self.filters.get(&filter).and_then(|matches| matches.problem.clone()) {
                impossible.get_or_insert(problem);
            }
            requests.push(ClaimRequest {
                name: request.name.clone(),
                count: request.count,
                kinds: if class.is_some() { self.kinds_of(&filter) } else { Vec::new() },
                gpu: request.class.contains(GPU),
            });
        }
        let holds = self.holds.get(key);
        let held = holds.and_then(|holds| holds.values().flatten().next().cloned());
        let mut reserved_for = record.reserved_for.clone();
        for uid in holds.into_iter().flat_map(BTreeMap::keys) {
            if !reserved_for.contains(uid) {
                reserved_for.push(uid.clone());
            }
        }
        Some(Claim {
            key: key.to_owned(),
            requests,
            allocation: record.allocation.clone().or(held).map(|allocation| self.at_home(allocation)),
            reserved_for,
            max_consumers: MOST_CONSUMERS,
            queue: record.queue.clone(),
            of_one_pod: record.of_one_pod,
            impossible,
        })
    }

    /// Whether a claim has devices for a pod, named by it or not.
    pub(crate) fn is_reserved_for(&self, uid: &str) -> bool {
        self.claims.values().any(|claim| claim.allocation.is_some() && claim.reserved_for.iter().any(|one| one == uid))
    }

    /// Devices that a claim is going to have.
    pub(crate) fn foretold(&self, chosen: &dra::AllocationResult) -> ClaimAllocation {
        self.at_home(claim::allocation(chosen, &[]))
    }

    /// The name of a request of a claim, by its place.
    pub(crate) fn request_name(&self, claim: &str, place: u32) -> Option<&str> {
        self.claims.get(claim)?.requests.get(place as usize).map(|request| request.name.as_str())
    }

    /// The class that serves a resource.
    pub(crate) fn class_serving(&self, resource: &str) -> Option<&str> {
        let implicit = resource.strip_prefix(IMPLICIT_RESOURCE);
        // Of several classes for one resource Kubernetes takes the newest; by name is as good and does not change.
        let mut found = self
            .classes
            .iter()
            .filter(|(class, record)| record.resource.as_deref() == Some(resource) || implicit == Some(class.as_str()));
        found.next().map(|(class, _)| class.as_str())
    }

    /// The devices that serve a resource; `None`: no class does.
    pub(crate) fn resource(&self, resource: &str) -> Option<DeviceResource> {
        let class = self.class_serving(resource)?;
        let record = self.classes.get(class)?;
        let kinds = self.kinds_of(&Filter::of(&record.selectors, &[], &[]));
        Some(DeviceResource { resource: resource.to_owned(), kinds, gpu: class.contains(GPU) })
    }

    /// An allocation that names no node is on the node of its devices, if a slice tells that.
    fn at_home(&self, mut allocation: ClaimAllocation) -> ClaimAllocation {
        if allocation.node.is_none() {
            allocation.node = allocation.devices.iter().find_map(|(_, device)| {
                let mut devices = self.pool(&device.driver, &device.pool).flat_map(|slice| &slice.devices);
                devices.find(|(_, name, _)| *name == device.name).map(|(node, _, _)| node.clone())
            });
        }
        allocation
    }

    /// The claims that have devices of a pool, by no node of their own.
    fn homeless_in(&self, driver: &str, pool: &str) -> BTreeSet<String> {
        let within = |key: &&String| {
            let allocation = self.claims.get(*key).and_then(|claim| claim.allocation.as_ref());
            let mut devices = allocation.into_iter().flat_map(|allocation| &allocation.devices);
            devices.any(|(_, device)| device.driver == driver && device.pool == pool)
        };
        self.homeless.iter().filter(within).cloned().collect()
    }

    fn place(&mut self, content: Content) -> usize {
        if let Some(place) = self.places.get(&content) {
            return *place;
        }
        let place = self.contents.len();
        self.contents.push(content.clone());
        self.places.insert(content, place);
        place
    }

    /// Whether a slice is of the newest generation of its pool, and all slices of that are there.
    fn usable(&self, slice: &SliceRecord) -> bool {
        let mut complete = 0;
        for other in self.pool(&slice.driver, &slice.pool) {
            if other.generation > slice.generation {
                return false;
            }
            complete += i64::from(other.generation == slice.generation);
        }
        complete >= slice.slices
    }

    fn pool(&self, driver: &str, pool: &str) -> impl Iterator<Item = &SliceRecord> {
        let names = self.pools.get(&(driver.to_owned(), pool.to_owned()));
        names.into_iter().flatten().filter_map(|slice| self.slices.get(slice))
    }

    /// The filter of a request, with the selectors of its class.
    fn filter(&self, request: &RequestRecord) -> Filter {
        let class = self.classes.get(&request.class).map(|class| class.selectors.as_slice()).unwrap_or_default();
        Filter::of(class, &request.selectors, &request.tolerations)
    }

    fn nodes_of_pool(&self, driver: &str, pool: &str) -> BTreeSet<String> {
        self.pool(driver, pool).flat_map(|slice| slice.devices.iter().map(|(node, _, _)| node.clone())).collect()
    }

    fn claims_of_class(&self, class: &str) -> BTreeSet<String> {
        let using = self.claims.values().filter(|claim| claim.requests.iter().any(|request| request.class == class));
        using.map(|claim| claim.key.clone()).collect()
    }

    fn signature(&self, place: usize) -> Vec<u32> {
        let taking = self.filters.values().filter(|matches| matches.takes.get(place) == Some(&true));
        let mut numbers: Vec<u32> = taking.map(|matches| matches.number).collect();
        numbers.sort_unstable();
        numbers
    }

    fn kinds_of(&self, filter: &Filter) -> Vec<u32> {
        let Some(matches) = self.filters.get(filter) else { return Vec::new() };
        let mut kinds: Vec<u32> =
            self.kinds.iter().filter(|(numbers, _)| numbers.contains(&matches.number)).map(|(_, kind)| *kind).collect();
        kinds.sort_unstable();
        kinds
    }

    /// The filters that claims and classes use.
    fn wanted(&self) -> BTreeSet<Filter> {
        let classes = self.classes.values().map(|class| Filter::of(&class.selectors, &[], &[]));
        let requests = self.claims.values().flat_map(|claim| &claim.requests).map(|request| self.filter(request));
        classes.chain(requests).collect()
    }

    /// Evaluates filters that are new, and forgets those nobody uses when they have become many.
    fn know_filters(&mut self, stale: &mut Stale) {
        let wanted = self.wanted();
        let before = (self.filters.len(), self.next_filter);
        if self.filters.len() > wanted.len() + SPARE_FILTERS {
            self.filters.retain(|filter, _| wanted.contains(filter));
        }
        for filter in wanted {
            if !self.filters.contains_key(&filter) {
                let problem = filter.problem();
                let takes =
                    if problem.is_some() { vec![false; self.contents.len()] } else { filter.matches(&self.contents) };
                self.filters.insert(filter, Matches { number: self.next_filter, takes, problem });
                self.next_filter = self.next_filter.wrapping_add(1);
            }
        }
        if before != (self.filters.len(), self.next_filter) {
            self.number_kinds(stale);
        }
    }

    /// Gives every set of filters that takes some device a number. A new number changes what nodes, claims and resources list.
    fn number_kinds(&mut self, stale: &mut Stale) {
        let signatures: Vec<Vec<u32>> = (0..self.contents.len()).map(|place| self.signature(place)).collect();
        let live: BTreeSet<&Vec<u32>> = signatures.iter().collect();
        let known = live.iter().all(|signature| self.kinds.contains_key(*signature));
        if known && self.kinds.len() == live.len() {
            return;
        }
        let mut next = self.kinds.values().max().map_or(0, |kind| kind.wrapping_add(1));
        let mut kinds = BTreeMap::new();
        for signature in live {
            let kind = self.kinds.get(signature).copied().unwrap_or_else(|| {
                next = next.wrapping_add(1);
                next.wrapping_sub(1)
            });
            kinds.insert(signature.clone(), kind);
        }
        self.kinds = kinds;
        stale
            .nodes
            .extend(self.slices.values().flat_map(|slice| slice.devices.iter().map(|(node, _, _)| node.clone())));
        stale.claims.extend(self.claims.keys().cloned());
        for (class, record) in &self.classes {
            stale.resources.extend(record.resource.clone());
            stale.resources.insert(format!("{IMPLICIT_RESOURCE}{class}"));
        }
    }
}

/// Takes a name out of an index.
fn forget<K: Ord>(index: &mut BTreeMap<K, BTreeSet<String>>, key: &K, name: &str) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}

fn content(driver: &str, device: &dra::Device) -> Content {
    let attributes = device.attributes.iter().flatten().filter_map(|(name, value)| {
        let value = match value {
            dra::DeviceAttribute { bool: Some(flag), .. } => Attribute::Bool(*flag),
            dra::DeviceAttribute { int: Some(number), .. } => Attribute::Int(*number),
            dra::DeviceAttribute { string: Some(text), .. } => Attribute::Text(text.clone()),
            dra::DeviceAttribute { version: Some(text), .. } => Attribute::Version(text.clone()),
            _ => return None,
        };
        Some((name.clone(), value))
    });
    let capacity = device.capacity.iter().flatten().map(|(name, capacity)| (name.clone(), capacity.value.0.clone()));
    Content {
        driver: driver.to_owned(),
        attributes: attributes.collect(),
        capacity: capacity.collect(),
        taints: device.taints.iter().flatten().filter_map(Taint::of).collect(),
    }
}

#[cfg(test)]
mod tests;
