//! Where quantities are in built-in kinds, and bringing them into the form a server answers with.

use serde_json::Value;

use super::pod::templates;
use crate::builtin::access::{Read, Write};
use crate::builtin::quantity::{Quantity, ResourceList, canonical_value};
use crate::resource::Gvk;

/// Resource lists of a pod spec; every entry is a quantity.
const POD_SPEC_LISTS: &[&str] = &["overhead", "resources.limits", "resources.requests"];
const CONTAINERS: &[&str] = &["containers", "initContainers", "ephemeralContainers"];
const CONTAINER_LISTS: &[&str] = &["resources.limits", "resources.requests"];
const CLAIM_LISTS: &[&str] =
    &["spec.resources.limits", "spec.resources.requests", "status.capacity", "status.allocatedResources"];
const STATUS_LISTS: &[&str] = &["allocatedResources", "resources.limits", "resources.requests"];

/// Rewrites every quantity of an object in canonical form; text that is none stays for validation to refuse.
pub(super) fn canonicalize(group: &str, kind: &str, object: &mut Value) {
    visit(group, kind, object, &mut |value, list| {
        if let Ok(Some(canonical)) = canonical_value(value, list) {
            *value = Value::String(canonical);
        }
    });
}

/// What a real server says of a quantity that cannot be decoded; it answers 400 with
/// `Pod in version "v1" cannot be handled as a Pod: <this>`.
///
/// The object is not changed; it is borrowed mutably because the walk is the one that rewrites quantities.
pub fn undecodable_quantity(gvk: &Gvk, object: &mut Value) -> Option<String> {
    let mut complaint = None;
    visit(&gvk.group, &gvk.kind, object, &mut |value, _| {
        if complaint.is_none() && !value.is_null() {
            complaint = Quantity::from_value(value).err();
        }
    });
    complaint.map(str::to_owned)
}

type Visitor<'a> = dyn FnMut(&mut Value, ResourceList) + 'a;

fn visit(group: &str, kind: &str, object: &mut Value, visitor: &mut Visitor<'_>) {
    for template in templates(group, kind) {
        if let Some(spec) = object.existing(template).and_then(|template| template.get_mut("spec")) {
            pod_spec(spec, visitor);
        }
    }
    match (group, kind) {
        ("", "Pod") => {
            if let Some(spec) = object.get_mut("spec") {
                pod_spec(spec, visitor);
            }
            for statuses in ["status.containerStatuses", "status.initContainerStatuses"] {
                for status in object.elements(statuses) {
                    lists(status, STATUS_LISTS, visitor);
                }
            }
        }
        ("", "Node") => lists(object, &["status.capacity", "status.allocatable"], visitor),
        ("", "PersistentVolume") => lists(object, &["spec.capacity"], visitor),
        ("", "PersistentVolumeClaim") => lists(object, CLAIM_LISTS, visitor),
        ("", "ResourceQuota") => lists(object, &["spec.hard", "status.hard", "status.used"], visitor),
        ("", "LimitRange") => {
            for limit in object.elements("spec.limits") {
                lists(limit, &["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"], visitor);
            }
        }
        ("apps", "StatefulSet") => {
            for claim in object.elements("spec.volumeClaimTemplates") {
                lists(claim, CLAIM_LISTS, visitor);
            }
        }
        ("node.k8s.io", "RuntimeClass") => lists(object, &["overhead.podFixed"], visitor),
        ("storage.k8s.io", "CSIStorageCapacity") => {
            for name in ["capacity", "maximumVolumeSize"] {
                single(object, name, visitor);
            }
        }
        ("resource.k8s.io", "ResourceSlice") => resource_slice(object, visitor),
        _ => {}
    }
}

fn pod_spec(spec: &mut Value, visitor: &mut Visitor<'_>) {
    lists(spec, POD_SPEC_LISTS, visitor);
    for list in CONTAINERS {
        for container in spec.elements(list) {
            lists(container, CONTAINER_LISTS, visitor);
            for variable in container.elements("env") {
                single(variable, "valueFrom.resourceFieldRef.divisor", visitor);
            }
        }
    }
    for volume in spec.elements("volumes") {
        single(volume, "emptyDir.sizeLimit", visitor);
        if volume.has("ephemeral") {
            lists(volume, &["ephemeral.volumeClaimTemplate.spec.resources.requests"], visitor);
        }
        for item in volume.elements("downwardAPI.items") {
            single(item, "resourceFieldRef.divisor", visitor);
        }
    }
}

fn resource_slice(object: &mut Value, visitor: &mut Visitor<'_>) {
    for device in object.elements("spec.devices") {
        entries(device, "capacity", visitor);
        for consumed in device.elements("consumesCounters") {
            entries(consumed, "counters", visitor);
        }
    }
    for set in object.elements("spec.sharedCounters") {
        entries(set, "counters", visitor);
    }
}

/// Maps whose entries are `{value: quantity}`.
fn entries(value: &mut Value, path: &str, visitor: &mut Visitor<'_>) {
    if let Some(map) = value.existing(path) {
        for entry in map.values_mut() {
            single(entry, "value", visitor);
        }
    }
}

fn lists(value: &mut Value, paths: &[&str], visitor: &mut Visitor<'_>) {
    for path in paths {
        if let Some(list) = value.existing(path) {
            for quantity in list.values_mut() {
                visitor(quantity, ResourceList::Yes);
            }
        }
    }
}

fn single(value: &mut Value, path: &str, visitor: &mut Visitor<'_>) {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    if let Some(quantity) = value.existing(parent).and_then(|parent| parent.get_mut(name)) {
        visitor(quantity, ResourceList::No);
    }
}
