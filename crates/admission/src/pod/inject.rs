//! What a container with a part of a GPU gets at creation: references to `ConfigMaps` that the binder fills before it
//! binds the pod.
//!
//! The references are not optional: the kubelet waits for what they name. Asked again about a pod that it has
//! completed, this makes no second set: what an earlier prefix named goes.

use kai_api::names::{
    annotations,
    env::{CUDA_DEVICE_MEMORY_LIMIT, GPU_PORTION, NVIDIA_VISIBLE_DEVICES, RUNAI_NUM_OF_GPUS},
};
use serde_json::{Map, Value, json};

use super::{
    prefix::{self, is_made_from},
    subject::Subject,
    target::{self, Target},
};
use crate::{review::Refusal, rules::Settings};

/// Puts the references in.
pub(super) fn inject(
    subject: &Subject<'_>,
    settings: &Settings,
    request: &str,
    pod: &mut Value,
    warnings: &mut Vec<String>,
) -> Result<(), Refusal> {
    let target = target::find(subject)?;
    let fresh = prefix::fresh(subject, target, request);
    let old = subject.prefix().map(str::to_owned);
    if let Some(old) = old.as_deref().filter(|old| *old != fresh) {
        if !old.ends_with("-shared-gpu") {
            let what = format_args!("`{old}` is replaced by `{fresh}`: it is chosen at creation");
            warnings.push(subject.advise(annotations::SHARED_GPU_CONFIG_MAP, what));
        }
        remove(pod, target, old);
    }
    remove(pod, target, &fresh);
    let capabilities = prefix::capabilities(&fresh, target);
    if let Some(container) = container(pod, target) {
        let reference = |key: &str| json!({"configMapKeyRef": {"name": capabilities, "key": key}});
        for name in [NVIDIA_VISIBLE_DEVICES, RUNAI_NUM_OF_GPUS, GPU_PORTION] {
            set_env(container, name, json!({"name": name, "valueFrom": reference(name)}));
        }
        if settings.hami_core {
            let name = CUDA_DEVICE_MEMORY_LIMIT;
            let from = json!({"configMapKeyRef": {"name": capabilities, "key": name, "optional": true}});
            set_env(container, name, json!({"name": name, "valueFrom": from}));
        }
        let from = json!({"configMapRef": {"name": prefix::environment(&fresh, target)}});
        push(container, "envFrom", from);
    }
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        let volume =
            json!({"name": prefix::volume(&fresh, target), "configMap": {"name": capabilities, "defaultMode": 0o644}});
        push(spec, "volumes", volume);
    }
    let notes = object(pod, &["metadata", "annotations"]);
    if let Some(notes) = notes {
        notes.insert(annotations::SHARED_GPU_CONFIG_MAP.to_owned(), json!(fresh));
        // By name, so that a sidecar put in front of it later does not become the container with the GPU.
        if subject.written(annotations::GPU_FRACTION_CONTAINER).is_none()
            && let Some(first) = subject.containers().next()
        {
            notes.insert(annotations::GPU_FRACTION_CONTAINER.to_owned(), json!(first.name));
        }
    }
    Ok(())
}

/// Gives the pod the configured runtime class if it names none.
pub(super) fn set_runtime_class(settings: &Settings, pod: &mut Value) {
    if settings.runtime_class.is_empty() {
        return;
    }
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let named = spec.get("runtimeClassName").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    if !named {
        spec.insert("runtimeClassName".to_owned(), json!(settings.runtime_class));
    }
}

/// Sets a variable of a container: in its old place if there is one, and only once.
pub(super) fn set_env(container: &mut Map<String, Value>, name: &str, variable: Value) {
    let list = container.entry("env").or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else { return };
    let is_it = |entry: &Value| entry.get("name").and_then(Value::as_str) == Some(name);
    let place = list.iter().position(is_it).unwrap_or(list.len());
    list.retain(|entry| !is_it(entry));
    list.insert(place.min(list.len()), variable);
}

/// Takes away what an earlier prefix put in, but for the target's variables: those are set in their places.
fn remove(pod: &mut Value, target: Target, old: &str) {
    let text = |entry: &Value, path: &str| entry.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (index, container) in containers.enumerate() {
            if let Some(sources) = container.get_mut("envFrom").and_then(Value::as_array_mut) {
                sources.retain(|source| !is_made_from(old, &text(source, "/configMapRef/name"), "-evar"));
            }
            let is_target = target.list() == list && target.index == index;
            if let Some(variables) = container.get_mut("env").and_then(Value::as_array_mut).filter(|_| !is_target) {
                variables.retain(|variable| {
                    let ours = [NVIDIA_VISIBLE_DEVICES, RUNAI_NUM_OF_GPUS, GPU_PORTION, CUDA_DEVICE_MEMORY_LIMIT];
                    let map = text(variable, "/valueFrom/configMapKeyRef/name");
                    !(ours.contains(&text(variable, "/name").as_str()) && is_made_from(old, &map, ""))
                });
            }
        }
    }
    if let Some(volumes) = spec.get_mut("volumes").and_then(Value::as_array_mut) {
        volumes.retain(|volume| {
            let named = is_made_from(&old.replace('.', "-"), &text(volume, "/name"), "-vol");
            !(named && is_made_from(old, &text(volume, "/configMap/name"), ""))
        });
    }
}

fn container(pod: &mut Value, target: Target) -> Option<&mut Map<String, Value>> {
    pod.get_mut("spec")?.get_mut(target.list())?.get_mut(target.index)?.as_object_mut()
}

fn push(parent: &mut Map<String, Value>, list: &str, entry: Value) {
    let list = parent.entry(list).or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut() {
        list.push(entry);
    }
}

/// An object below another, made if it is missing.
fn object<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    let mut here = value.as_object_mut()?;
    for step in path {
        let next = here.entry(*step).or_insert_with(|| json!({}));
        if next.is_null() {
            *next = json!({});
        }
        here = next.as_object_mut()?;
    }
    Some(here)
}
