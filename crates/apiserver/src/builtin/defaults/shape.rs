//! The shape Go gives an object by decoding and encoding it: `null` is nothing, and empty optional fields are left out.
//!
//! Only fields that Go declares with `omitempty` and without a pointer may be dropped when empty, so each is named here. The ones
//! that clients can tell apart in practice are: metadata, pods and their templates.

use serde_json::Value;

use super::pod::templates;
use crate::builtin::access::{Object, Read, Write, is_empty};

/// Deeper than any schema; an object nested deeper keeps its nulls.
const DEPTH: usize = 64;

const METADATA: &[&str] = &[
    "annotations",
    "creationTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

const POD_SPEC: &[&str] = &[
    "ephemeralContainers",
    "hostAliases",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostname",
    "imagePullSecrets",
    "initContainers",
    "nodeName",
    "nodeSelector",
    "overhead",
    "priorityClassName",
    "readinessGates",
    "resourceClaims",
    "schedulingGates",
    "serviceAccount",
    "serviceAccountName",
    "subdomain",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
];

const CONTAINER: &[&str] = &[
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "ports",
    "resizePolicy",
    "stdin",
    "stdinOnce",
    "tty",
    "volumeDevices",
    "volumeMounts",
    "workingDir",
];

const PORT: &[&str] = &["hostIP", "hostPort", "name"];
const MOUNT: &[&str] = &["readOnly", "subPath", "subPathExpr"];
const REQUIREMENTS: &[&str] = &["claims", "limits", "requests"];
const TOLERATION: &[&str] = &["effect", "key", "operator", "value"];

/// Fields that hold any JSON and keep it as it is.
fn is_raw(group: &str, kind: &str, name: &str) -> bool {
    match (group, kind) {
        ("apps", "ControllerRevision") => name == "data",
        ("resource.k8s.io", _) => name == "parameters" || name == "data",
        _ => name == "fieldsV1",
    }
}

/// Drops nulls everywhere and empty optional fields where Go would.
pub(super) fn normalize(group: &str, kind: &str, object: &mut Value) {
    drop_nulls(object, group, kind, DEPTH);
    omit(object.existing("metadata"), METADATA);
    if (group, kind) == ("", "Pod") {
        pod_spec(object, "spec");
    }
    for template in templates(group, kind) {
        if let Some(template) = object.existing(template) {
            omit(template.existing("metadata"), METADATA);
            if let Some(spec) = template.get_mut("spec") {
                pod_spec(spec, "");
            }
        }
    }
}

fn drop_nulls(value: &mut Value, group: &str, kind: &str, depth: usize) {
    if depth == 0 {
        return;
    }
    match value {
        Value::Object(map) => {
            // rebuilding the map is dear and nulls are rare
            if map.values().any(Value::is_null) {
                map.retain(|_, value| !value.is_null());
            }
            for (name, value) in map.iter_mut() {
                if matches!(value, Value::Object(_) | Value::Array(_)) && !is_raw(group, kind, name) {
                    drop_nulls(value, group, kind, depth - 1);
                }
            }
        }
        Value::Array(list) => {
            for value in list {
                drop_nulls(value, group, kind, depth - 1);
            }
        }
        _ => {}
    }
}

fn omit(object: Option<&mut Object>, names: &[&str]) {
    let Some(object) = object else { return };
    let is_omitted = |name: &String, value: &Value| is_empty(value) && names.binary_search(&name.as_str()).is_ok();
    if object.iter().any(|(name, value)| is_omitted(name, value)) {
        object.retain(|name, value| !is_omitted(name, value));
    }
}

fn pod_spec(value: &mut Value, path: &str) {
    let Some(spec) = value.existing(path) else { return };
    omit(Some(spec), POD_SPEC);
    for toleration in spec.elements("tolerations") {
        omit(toleration.as_object_mut(), TOLERATION);
    }
    spec.remove("hostnameOverride");
    for volume in spec.elements("volumes") {
        volume.take_at("image");
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in spec.elements(list) {
            drop_disabled(container, list);
            omit(container.as_object_mut(), CONTAINER);
            omit(container.existing("resources"), REQUIREMENTS);
            for port in container.elements("ports") {
                omit(port.as_object_mut(), PORT);
            }
            for mount in container.elements("volumeMounts") {
                omit(mount.as_object_mut(), MOUNT);
            }
            for variable in container.elements("env") {
                if variable.has("value") {
                    omit(variable.as_object_mut(), &["value"]);
                }
            }
        }
    }
}

/// Fields of features that 1.34 has switched off: they are there and do nothing, so the server forgets them.
fn drop_disabled(container: &mut Value, list: &str) {
    if list != "initContainers" || container.text("restartPolicy") != "Always" {
        container.take_at("restartPolicy");
    }
    container.take_at("restartPolicyRules");
    container.take_at("lifecycle.stopSignal");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_of_names_are_sorted_for_searching() {
        for names in [METADATA, POD_SPEC, CONTAINER, PORT, MOUNT, REQUIREMENTS, TOLERATION] {
            assert!(names.is_sorted(), "{names:?}");
        }
    }
}
