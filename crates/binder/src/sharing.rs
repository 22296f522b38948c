//! What the container of a pod that shares GPUs is told: two ConfigMaps that belong to the pod, to which its environment refers.
//!
//! A ConfigMap of somebody else is never taken over: its name comes from an annotation that a user can set.

use std::collections::BTreeMap;

use futures::future::try_join;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Node, Pod};
use kai_api::{
    BindRequest,
    names::{annotations, env, node_labels},
};
use kai_kit::{
    errors::{Class, classify},
    writes,
};
use kube::{Api, Client, ResourceExt, api::PostParams};
use serde_json::json;

use crate::{
    failure::Failure,
    groups::groups_of,
    platform::{Platform, platform_of},
    settings::Settings,
    world::World,
};

/// How CDI names a GPU of the device plugin.
const CDI: &str = "k8s.device-plugin.nvidia.com/gpu=";
/// What the only GPU of a Jetson is called; its runtime refuses UUIDs.
const JETSON: &str = "0";
/// What is shorter is an index or a word such as `all`.
const SHORTEST_UUID: usize = 8;

/// The container that gets the GPUs and the names of its ConfigMaps.
struct Target<'a> {
    container: Option<&'a Container>,
    capabilities: String,
    variables: String,
}

/// Finds the container that gets the GPUs: the one that is named, init containers first, else the first.
fn target(pod: &Pod) -> Result<Target<'_>, String> {
    let annotations = pod.annotations();
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let regular = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let (container, index) = match annotations.get(annotations::GPU_FRACTION_CONTAINER).filter(|name| !name.is_empty())
    {
        None => (regular.first(), "0".to_owned()),
        Some(name) => {
            let at = |list: &[Container]| list.iter().position(|container| container.name == *name);
            if let Some(place) = at(init) {
                (init.get(place), format!("i{place}"))
            } else if let Some(place) = at(regular) {
                (regular.get(place), place.to_string())
            } else {
                return Err(format!(
                    "annotation {} names container {name}, which the pod does not have",
                    annotations::GPU_FRACTION_CONTAINER
                ));
            }
        }
    };
    let prefix = annotations.get(annotations::SHARED_GPU_CONFIG_MAP).filter(|name| !name.is_empty());
    let prefix = prefix.cloned().unwrap_or_else(|| format!("{}-shared-gpu", pod.name_any()));
    let capabilities = format!("{prefix}-{index}");
    Ok(Target { container, variables: format!("{capabilities}-evar"), capabilities })
}

/// Whether a variable of the container comes from a ConfigMap.
fn refers(container: Option<&Container>, variable: &str) -> bool {
    let mut variables = container.iter().flat_map(|container| container.env.iter().flatten());
    variables.any(|known| {
        known.name == variable && known.value_from.as_ref().is_some_and(|from| from.config_map_key_ref.is_some())
    })
}

/// The devices as the runtime of a node wants them named.
pub(crate) fn visible(platform: Platform, cdi: bool, devices: &[String]) -> String {
    if platform == Platform::Tegra {
        return JETSON.to_owned();
    }
    let names: Vec<String> =
        devices.iter().map(|device| if cdi { format!("{CDI}{device}") } else { device.clone() }).collect();
    names.join(",")
}

/// The contents of both ConfigMaps.
fn contents(
    settings: &Settings,
    request: &BindRequest,
    pod: &Pod,
    node: &Node,
    container: Option<&Container>,
    devices: &[String],
) -> [BTreeMap<String, String>; 2] {
    let visible = visible(platform_of(node, settings.tegra_mode()), settings.cdi, devices);
    let portion = request.spec.received_gpu.as_ref().and_then(|gpu| gpu.portion.clone()).unwrap_or_default();
    let mut values = vec![
        (env::NVIDIA_VISIBLE_DEVICES, visible),
        (env::GPU_PORTION, portion.clone()),
        (env::RUNAI_NUM_OF_GPUS, portion.clone()),
    ];
    if settings.memory_limit
        && let Some(limit) = memory_limit(pod, node, &portion)
    {
        values.push((env::CUDA_DEVICE_MEMORY_LIMIT, limit));
    }
    let mut capabilities = BTreeMap::new();
    let mut variables = BTreeMap::new();
    for (name, value) in values {
        let is_device = name == env::NVIDIA_VISIBLE_DEVICES;
        if refers(container, name) {
            capabilities.insert(name.to_owned(), value);
        } else {
            if !is_device {
                capabilities.insert(name.to_owned(), value.clone());
            }
            variables.insert(name.to_owned(), value);
        }
    }
    [capabilities, variables]
}

/// The part of the node's GPU memory, exactly: MiB as asked for, else the share of what a GPU has, rounded down.
fn memory_limit(pod: &Pod, node: &Node, portion: &str) -> Option<String> {
    if let Some(asked) = pod.annotations().get(annotations::GPU_MEMORY).and_then(|text| text.parse::<u64>().ok()) {
        return Some(format!("{asked}m"));
    }
    let memory: i128 = node.labels().get(node_labels::GPU_MEMORY)?.parse().ok()?;
    let share = portion.parse::<kai_quantity::Quantity>().ok()?.nano()?;
    Some(format!("{}m", memory.checked_mul(share)? / 1_000_000_000))
}

/// Whether the container that gets the GPUs runs.
pub(crate) fn runs(pod: &Pod) -> bool {
    let Some(name) = target(pod).ok().and_then(|target| target.container).map(|container| &container.name) else {
        return false;
    };
    let statuses = pod.status.iter().flat_map(|status| {
        status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten())
    });
    let mut own = statuses.filter(|status| status.name == *name);
    own.any(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()))
}

/// Makes both ConfigMaps say what the container must know.
pub(crate) async fn tell(
    world: &World,
    request: &BindRequest,
    pod: &Pod,
    node: &Node,
    devices: &[String],
) -> Result<(), Failure> {
    let target = target(pod).map_err(Failure::Refused)?;
    let [capabilities, variables] = contents(&world.settings.get(), request, pod, node, target.container, devices);
    let first = ensure(world, pod, &target.capabilities, &capabilities);
    let second = ensure(world, pod, &target.variables, &variables);
    try_join(first, second).await.map(|_| ())
}

async fn ensure(world: &World, pod: &Pod, name: &str, data: &BTreeMap<String, String>) -> Result<(), Failure> {
    let namespace = pod.namespace().unwrap_or_default();
    let api = Api::<ConfigMap>::namespaced(world.process.client.clone(), &namespace);
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.metadata.uid});
    let object = json!({"metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner]}, "data": data});
    let object: ConfigMap = serde_json::from_value(object).map_err(|error| Failure::Refused(error.to_string()))?;
    let doing = format!("make ConfigMap {namespace}/{name}");
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => return Ok(()),
        Err(error) if classify(&error) == Class::Exists => {}
        Err(error) => return Err(Failure::of(&doing, &error)),
    }
    let found = api.get_opt(name).await.map_err(|error| Failure::of(&doing, &error))?;
    let Some(found) = found else { return Err(Failure::Transient(format!("{doing}: it came and went"))) };
    match ownership(&found, pod) {
        Ownership::Ours => {}
        Ownership::Former => {
            return Err(Failure::Transient(format!("{doing}: that of the former pod of the same name is still there")));
        }
        Ownership::Foreign => {
            let text = format!(
                "ConfigMap {namespace}/{name} exists and does not belong to pod {}: remove it, or annotation {} of the pod",
                pod.name_any(),
                annotations::SHARED_GPU_CONFIG_MAP
            );
            return Err(Failure::Refused(text));
        }
    }
    let known = found.data.clone().unwrap_or_default();
    let mut changes: BTreeMap<&str, &str> = BTreeMap::new();
    let different = data.iter().filter(|(key, value)| known.get(*key) != Some(value));
    changes.extend(different.map(|(key, value)| (key.as_str(), value.as_str())));
    if let Some(device) = data.get(env::NVIDIA_VISIBLE_DEVICES)
        && known.get(env::RUNAI_VISIBLE_DEVICES).is_some_and(|old| old != device)
    {
        changes.insert(env::RUNAI_VISIBLE_DEVICES, device);
    }
    if changes.is_empty() {
        return Ok(());
    }
    let guard = json!({"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version});
    let patch = json!({"metadata": guard, "data": changes});
    let written = writes::merge(&api, world.process.component, name, &patch).await;
    written.map(|_| ()).map_err(|error| Failure::of(&format!("write ConfigMap {namespace}/{name}"), &error))
}

enum Ownership {
    Ours,
    /// A pod of this name that is gone; so will be the ConfigMap.
    Former,
    Foreign,
}

fn ownership(map: &ConfigMap, pod: &Pod) -> Ownership {
    let owners = map.owner_references();
    if owners.iter().any(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref()) {
        return Ownership::Ours;
    }
    let former = owners.len() == 1 && owners.iter().all(|owner| owner.kind == "Pod" && owner.name == pod.name_any());
    if former { Ownership::Former } else { Ownership::Foreign }
}

/// Takes back both ConfigMaps, if they are the pod's.
pub(crate) async fn forget(world: &World, pod: &Pod) -> Result<(), kube::Error> {
    let Ok(target) = target(pod) else { return Ok(()) };
    let api = Api::<ConfigMap>::namespaced(world.process.client.clone(), &pod.namespace().unwrap_or_default());
    for name in [&target.capabilities, &target.variables] {
        if let Some(found) = api.get_opt(name).await?
            && matches!(ownership(&found, pod), Ownership::Ours)
        {
            writes::delete(&api, &found, None).await?;
        }
    }
    Ok(())
}

/// The only device that a pod was told by its ConfigMaps, if it is a UUID.
pub(crate) async fn told_by_map(client: &Client, pod: &Pod) -> Result<Option<String>, kube::Error> {
    let Some(text) = visible_by_map(client, pod).await? else { return Ok(None) };
    let device = text.strip_prefix(CDI).unwrap_or(&text);
    let is_uuid = device.len() >= SHORTEST_UUID && !device.contains(',');
    Ok(is_uuid.then(|| device.to_owned()))
}

/// The devices that the ConfigMaps of a pod tell its container, as they are written.
pub(crate) async fn visible_by_map(client: &Client, pod: &Pod) -> Result<Option<String>, kube::Error> {
    let Ok(target) = target(pod) else { return Ok(None) };
    let api = Api::<ConfigMap>::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    for name in [&target.capabilities, &target.variables] {
        let data = api.get_opt(name).await?.and_then(|map| map.data).unwrap_or_default();
        if let Some(text) = data.get(env::NVIDIA_VISIBLE_DEVICES) {
            return Ok(Some(text.clone()));
        }
    }
    Ok(None)
}

/// Tells a bound pod that the device of a group is another one: its ConfigMaps, then its annotation. Gives the changed pod.
pub(crate) async fn retell(world: &World, pod: &Pod, group: &str, device: &str) -> Result<Option<Pod>, kube::Error> {
    let Ok(target) = target(pod) else { return Ok(None) };
    let Some(text) = pod.annotations().get(annotations::GPU_DEVICES) else { return Ok(None) };
    let Ok(mut devices) = serde_json::from_str::<BTreeMap<String, String>>(text) else { return Ok(None) };
    let Some(old) = devices.insert(group.to_owned(), device.to_owned()) else { return Ok(None) };
    let namespace = pod.namespace().unwrap_or_default();
    let api = Api::<ConfigMap>::namespaced(world.process.client.clone(), &namespace);
    for name in [&target.capabilities, &target.variables] {
        let Some(found) = api.get_opt(name).await? else { continue };
        let told = found.data.as_ref().and_then(|data| data.get(env::NVIDIA_VISIBLE_DEVICES));
        if let Some(told) = told.filter(|told| told.contains(&old))
            && matches!(ownership(&found, pod), Ownership::Ours)
        {
            let guard = json!({"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version});
            let data = json!({env::NVIDIA_VISIBLE_DEVICES: told.replace(&old, device)});
            writes::merge(&api, world.process.component, name, &json!({"metadata": guard, "data": data})).await?;
        }
    }
    debug_assert!(groups_of(pod).contains(group), "only pods of the group are told");
    let told = json!(devices).to_string();
    let patch = json!({"metadata": {"uid": pod.metadata.uid, "annotations": {annotations::GPU_DEVICES: told}}});
    let changed = writes::merge(&world.pod_api(&namespace), world.process.component, &pod.name_any(), &patch).await?;
    Ok(Some(changed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_the_runtime_wants_them() {
        let devices = ["GPU-1".to_owned(), "GPU-2".to_owned()];
        assert_eq!(visible(Platform::Standard, false, &devices), "GPU-1,GPU-2");
        let cdi = "k8s.device-plugin.nvidia.com/gpu=GPU-1,k8s.device-plugin.nvidia.com/gpu=GPU-2";
        assert_eq!(visible(Platform::Standard, true, &devices), cdi);
        assert_eq!(visible(Platform::Tegra, true, &devices), "0");
    }

    #[test]
    fn the_container_is_found_by_its_name_init_containers_first() {
        let pod = |name: Option<&str>| -> Pod {
            let containers = json!([{"name": "main"}, {"name": "side"}]);
            let annotations =
                json!({"gpu-fraction-container-name": name.unwrap_or_default(), "runai/shared-gpu-configmap": "x"});
            let spec = json!({"containers": containers, "initContainers": [{"name": "first"}]});
            serde_json::from_value(json!({"metadata": {"name": "p", "annotations": annotations}, "spec": spec}))
                .expect("a pod")
        };
        let names = |name| target(&pod(name)).map(|target| (target.capabilities, target.variables));
        assert_eq!(names(None), Ok(("x-0".to_owned(), "x-0-evar".to_owned())));
        assert_eq!(names(Some("side")), Ok(("x-1".to_owned(), "x-1-evar".to_owned())));
        assert_eq!(names(Some("first")), Ok(("x-i0".to_owned(), "x-i0-evar".to_owned())));
        assert!(
            names(Some("gone")).is_err_and(|text| text.contains("gpu-fraction-container-name names container gone"))
        );
    }
}
