//! Pods: what is known of a pod from its object alone ([`Draft`]), and what other objects add to it ([`Draft::resolve`]).

pub(crate) mod constraint;
pub(crate) mod gpu;
mod request;

pub use self::request::{Asked, GpuPart, asked, gpus_of};

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1 as k8s;
use kai_api::names::{annotations, labels, namespaces};
use kai_core::{
    delta::{Constraints, Gpus, Origin, Phase, Placement, Pod, Request, Role},
    time::Time,
};

use self::constraint::NamespaceTerm;
use crate::{
    amount::{created, time},
    bind_request::BindRecord,
    numa::{self, ZoneShare, Zones},
    queue::{key, name},
    volume::Volumes,
};

/// Published into every namespace by Kubernetes itself; the kubelet waits for it.
const ROOT_CERTIFICATES: &str = "kube-root-ca.crt";

/// Something a pod depends on that can change without it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// A volume claim, by `namespace/name`.
    Volume(String),
    /// A ConfigMap, by `namespace/name`.
    ConfigMap(String),
    /// A ResourceClaim, by `namespace/name`.
    Claim(String),
    /// The NUMA zones of a node.
    Zones(String),
    /// The labels of namespaces.
    Namespaces,
}

/// A claim of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimUse {
    /// Its name in the pod.
    pub name: String,
    /// `namespace/name` of the object once that exists.
    pub key: Option<String>,
}

/// The claims on devices that a pod names.
#[must_use]
pub fn claims_of(pod: &k8s::Pod) -> Vec<ClaimUse> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    claims(pod, spec, pod.metadata.namespace.as_deref().unwrap_or("default"))
}

/// What a pod's object alone says.
#[derive(Debug)]
pub(crate) struct Draft {
    /// The pod, without what others tell.
    pub(crate) pod: Pod,
    /// Its claims.
    pub(crate) claims: Vec<ClaimUse>,
    volumes: Vec<String>,
    config_maps: BTreeSet<String>,
    terms: Vec<NamespaceTerm>,
    observed: Vec<ZoneShare>,
    predicted: Vec<ZoneShare>,
}

/// What a pod's other objects are.
pub(crate) struct Surroundings<'a> {
    pub(crate) bind: Option<&'a BindRecord>,
    pub(crate) volumes: &'a Volumes,
    pub(crate) config_maps: &'a BTreeSet<String>,
    pub(crate) namespaces: &'a BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) zones: &'a BTreeMap<String, Zones>,
    pub(crate) claim_exists: &'a dyn Fn(&str) -> bool,
    /// Whether it is known how much memory the GPUs of a node have.
    pub(crate) memory_is_known: &'a dyn Fn(&str) -> bool,
    /// When its deletion was asked for, if it was.
    pub(crate) leaves: Option<Time>,
    /// The time, as far as it was told.
    pub(crate) now: Time,
}

impl Draft {
    /// Reads a pod's object. `scheduler` is the name by which pods ask for this scheduler.
    pub(crate) fn of(object: &k8s::Pod, scheduler: &str) -> Self {
        let (no_spec, no_notes) = (k8s::PodSpec::default(), BTreeMap::new());
        let spec = object.spec.as_ref().unwrap_or(&no_spec);
        let namespace = object.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let tags = object.metadata.labels.clone().unwrap_or_default();
        let notes = object.metadata.annotations.as_ref().unwrap_or(&no_notes);
        let origin = origin(&tags, spec, scheduler);
        let phase = phase(object, spec);
        let over = matches!(phase, Phase::Succeeded | Phase::Failed);
        let (mut request, invalid) = if over { (Request::default(), None) } else { request::request(object) };
        if tags.get(labels::APP).is_some_and(|app| app == namespaces::RESERVATION) {
            // The device it holds is accounted through the pods that share it.
            request.gpus = Gpus::None;
            request.numa = Vec::new();
        }
        let (constraints, terms) =
            if over { (Constraints::default(), Vec::new()) } else { constraint::constraints(spec, &namespace, &tags) };
        let node = spec.node_name.clone().filter(|node| !node.is_empty() && !over);
        let shared = matches!(request.gpus, Gpus::Portion { .. } | Gpus::Memory { .. });
        // What pods of other schedulers say of groups nobody of ours has written.
        let grouped = shared && origin != Origin::Foreign;
        let placement = node.map(|node| Placement {
            node,
            devices: if grouped { gpu_groups(&tags) } else { Vec::new() },
            numa: Vec::new(),
            bound: true,
        });
        let group = kai_api::group_of(object).filter(|_| origin == Origin::Ours);
        let scoped = |name: String| format!("{namespace}/{name}");
        let pod = Pod {
            uid: object.metadata.uid.clone().unwrap_or_else(|| key(&object.metadata)),
            group: group.map(|group| format!("{namespace}/{group}")),
            subgroup: tags.get(labels::SUBGROUP).filter(|name| !name.is_empty()).cloned(),
            created: created(object.metadata.creation_timestamp.as_ref()),
            phase,
            deleted: object.metadata.deletion_timestamp.as_ref().map(|deleted| time(deleted.0)),
            placement,
            origin,
            role: role(&tags),
            nominated: object.status.as_ref().and_then(|status| status.nominated_node_name.clone()),
            request,
            constraints,
            claims: Vec::new(),
            invalid,
            labels: tags,
            namespace: namespace.clone(),
        };
        let volumes = volume_claims(spec, &name(&object.metadata)).into_iter().map(&scoped);
        Self {
            claims: if over { Vec::new() } else { claims(object, spec, &namespace) },
            volumes: if over { Vec::new() } else { volumes.collect() },
            config_maps: if over {
                BTreeSet::new()
            } else {
                config_maps(spec, notes).into_iter().map(scoped).collect()
            },
            terms,
            observed: numa::annotated_shares(notes.get(annotations::NUMA_OBSERVED)),
            predicted: numa::annotated_shares(notes.get(annotations::NUMA_PREDICTED)),
            pod,
        }
    }

    /// What the pod depends on.
    pub(crate) fn needs(&self) -> Vec<Need> {
        let mut needs: Vec<Need> = self.volumes.iter().cloned().map(Need::Volume).collect();
        // Where a pod already is, nothing can be missing any more.
        if self.pod.placement.is_none() {
            needs.extend(self.config_maps.iter().cloned().map(Need::ConfigMap));
        }
        needs.extend(self.claims.iter().filter_map(|claim| claim.key.clone()).map(Need::Claim));
        if let Some(placement) = &self.pod.placement
            && !(self.observed.is_empty() && self.predicted.is_empty())
        {
            needs.push(Need::Zones(placement.node.clone()));
        }
        if !self.terms.is_empty() {
            needs.push(Need::Namespaces);
        }
        needs
    }

    /// Whether nothing but the object itself can change what the core is told.
    pub(crate) fn settled(&self) -> bool {
        let over = matches!(self.pod.phase, Phase::Succeeded | Phase::Failed);
        let shared = matches!(self.pod.request.gpus, Gpus::Portion { .. } | Gpus::Memory { .. });
        let placed = self.pod.placement.as_ref().is_some_and(|placement| !shared || !placement.devices.is_empty());
        // What memory is a part of depends on the node.
        let by_memory = matches!(self.pod.request.gpus, Gpus::Memory { .. });
        over || (placed && !by_memory && self.needs().is_empty())
    }

    /// The pod as it is among the other objects.
    pub(crate) fn resolve(&self, around: &Surroundings<'_>) -> Pod {
        let mut pod = self.pod.clone();
        pod.deleted = pod.deleted.or(around.leaves);
        for term in &self.terms {
            term.resolve(&mut pod.constraints, around.namespaces);
        }
        let bind = around.bind.filter(|bind| bind.owner.as_ref().is_none_or(|owner| *owner == pod.uid));
        place(&mut pod, bind);
        if let Some(placement) = pod.placement.as_ref().filter(|placement| !(around.memory_is_known)(&placement.node)) {
            pod.request.gpus = given(pod.request.gpus, bind.filter(|bind| bind.node == placement.node));
        }
        pod.claims = self.claims.iter().filter_map(|claim| claim.key.clone()).collect();
        let waits = pod.placement.is_none();
        if let Some(bind) = bind.filter(|_| waits) {
            let held = bind.vetoes.iter().filter(|veto| veto.holds(around.now));
            pod.constraints.vetoed = held.map(|veto| veto.node.clone()).collect();
        }
        for claim in &self.volumes {
            match around.volumes.need(claim) {
                Ok(need) => pod.constraints.volumes.push(need),
                Err(missing) if waits => pod.constraints.missing.push(missing),
                Err(_) => {}
            }
        }
        if waits {
            self.missing(&mut pod, around);
        }
        if let Some(placement) = &mut pod.placement {
            let requested = bind.map(|bind| bind.zones.as_slice()).unwrap_or_default();
            let found = [self.observed.as_slice(), requested, &self.predicted].into_iter().find(|all| !all.is_empty());
            placement.numa = numa::indexed(found.unwrap_or_default(), around.zones.get(&placement.node));
        }
        pod
    }

    fn missing(&self, pod: &mut Pod, around: &Surroundings<'_>) {
        for map in self.config_maps.iter().filter(|map| !around.config_maps.contains(*map)) {
            pod.constraints.missing.push(format!("Missing required configmaps: {map}"));
        }
        for claim in &self.claims {
            match &claim.key {
                None => pod.constraints.missing.push(format!("resource claim of `{}` was not made yet", claim.name)),
                Some(key) if !(around.claim_exists)(key) => {
                    pod.constraints.missing.push(format!("resourceclaim \"{key}\" not found"));
                }
                Some(_) => {}
            }
        }
    }
}

/// What a BindRequest says about the place: where the pod goes, and which devices it shares.
fn place(pod: &mut Pod, bind: Option<&BindRecord>) {
    let Some(bind) = bind else { return };
    let shared = matches!(pod.request.gpus, Gpus::Portion { .. } | Gpus::Memory { .. });
    let devices = if shared { bind.devices.clone() } else { Vec::new() };
    match &mut pod.placement {
        Some(placement) if placement.node == bind.node && placement.devices.is_empty() => {
            placement.devices = devices;
        }
        None if bind.live && pod.phase == Phase::Pending && pod.deleted.is_none() => {
            let node = bind.node.clone();
            pod.placement = Some(Placement { node, devices, numa: Vec::new(), bound: false });
        }
        _ => {}
    }
}

/// What a pod has on a node that does not tell the memory of its GPUs, as when its object is gone for a moment: what a request by memory
/// is a part of only the BindRequest knows. Otherwise the queue would seem to hold less than it does.
fn given(gpus: Gpus, bind: Option<&BindRecord>) -> Gpus {
    match (gpus, bind.and_then(|bind| bind.portion)) {
        (Gpus::Memory { devices, .. }, Some(millionths)) => Gpus::Portion { devices, millionths },
        _ => gpus,
    }
}

fn origin(tags: &BTreeMap<String, String>, spec: &k8s::PodSpec, scheduler: &str) -> Origin {
    let app = tags.get(labels::APP).map(String::as_str);
    match app {
        Some(namespaces::RESERVATION | labels::APP_SCALING_POD) => Origin::Utility,
        _ if spec.scheduler_name.as_deref() == Some(scheduler) => Origin::Ours,
        _ => Origin::Foreign,
    }
}

fn phase(object: &k8s::Pod, spec: &k8s::PodSpec) -> Phase {
    let node = spec.node_name.as_deref().is_some_and(|node| !node.is_empty());
    let gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    match object.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        // A node that cannot be reached still holds what its pods have.
        Some("Running" | "Unknown") if node => Phase::Running,
        _ if gated && !node => Phase::Gated,
        _ => Phase::Pending,
    }
}

/// The GPU groups that labels name, each once.
fn gpu_groups(tags: &BTreeMap<String, String>) -> Vec<String> {
    let single = tags.get(labels::GPU_GROUP).cloned();
    let several = tags.iter().filter_map(|(name, value)| {
        let group = name.strip_prefix(labels::GPU_GROUP_PREFIX)?;
        Some(if value.is_empty() { group.to_owned() } else { value.clone() })
    });
    let groups: BTreeSet<String> = single.into_iter().chain(several).filter(|group| !group.is_empty()).collect();
    groups.into_iter().collect()
}

fn role(tags: &BTreeMap<String, String>) -> Role {
    let is = |label: &str, values: &[&str]| tags.get(label).is_some_and(|value| values.contains(&value.as_str()));
    Role {
        kubeflow_leader: is(labels::KUBEFLOW_JOB_ROLE, &["master", "launcher"]),
        ray_head: is(labels::RAY_NODE_TYPE, &["head"]),
        task_priority: tags.get(labels::TASK_PRIORITY).map(|text| text.trim().parse().unwrap_or(i64::MIN)),
    }
}

fn claims(object: &k8s::Pod, spec: &k8s::PodSpec, namespace: &str) -> Vec<ClaimUse> {
    let made = object.status.as_ref().and_then(|status| status.resource_claim_statuses.as_deref()).unwrap_or_default();
    let mut read = Vec::new();
    for claim in spec.resource_claims.iter().flatten() {
        let status = made.iter().find(|status| status.name == claim.name);
        let found = match (&claim.resource_claim_name, status) {
            (Some(name), _) => Some(name),
            // A status without a name says that the template needs no claim.
            (None, Some(status)) if status.resource_claim_name.is_none() => continue,
            (None, status) => status.and_then(|status| status.resource_claim_name.as_ref()),
        };
        read.push(ClaimUse { name: claim.name.clone(), key: found.map(|name| format!("{namespace}/{name}")) });
    }
    read
}

fn volume_claims(spec: &k8s::PodSpec, pod: &str) -> Vec<String> {
    let volumes = spec.volumes.iter().flatten();
    let read = volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{pod}-{}", volume.name)),
        (None, None) => None,
    });
    read.collect()
}

/// The ConfigMaps a pod cannot start without, but for those that the binder makes.
fn config_maps(spec: &k8s::PodSpec, notes: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut need = |name: &str, optional: Option<bool>| {
        if !optional.unwrap_or(false) && !name.is_empty() {
            names.insert(name.to_owned());
        }
    };
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        for variable in container.env.iter().flatten() {
            if let Some(from) = variable.value_from.as_ref().and_then(|from| from.config_map_key_ref.as_ref()) {
                need(&from.name, from.optional);
            }
        }
        for from in container.env_from.iter().flatten().filter_map(|from| from.config_map_ref.as_ref()) {
            need(&from.name, from.optional);
        }
    }
    for volume in spec.volumes.iter().flatten() {
        if let Some(map) = &volume.config_map {
            need(&map.name, map.optional);
        }
        let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
        for map in sources.filter_map(|source| source.config_map.as_ref()) {
            need(&map.name, map.optional);
        }
    }
    let made = notes.get(annotations::SHARED_GPU_CONFIG_MAP).filter(|prefix| !prefix.is_empty());
    names.retain(|name| name != ROOT_CERTIFICATES && made.is_none_or(|prefix| !name.starts_with(prefix.as_str())));
    names
}
