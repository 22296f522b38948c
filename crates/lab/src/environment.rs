//! The environment of a container, as the kubelet puts it together at each start.
//!
//! Later entries replace earlier ones: what the device plugin adds, then `envFrom` in order, then `env` in order. `$(NAME)` in
//! a value stands for what is already set, `$$` for a dollar sign. A reference that is missing and not optional keeps the
//! container from starting; the words are the kubelet's. Variables of services are left out: nothing here resolves them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod};

use crate::resources;

/// What a container is told.
pub type Environment = BTreeMap<String, String>;

/// The data of ConfigMaps by name; `None` for one that does not exist.
pub type ConfigMaps = BTreeMap<String, Option<BTreeMap<String, String>>>;

/// What the kubelet knows of a pod when it starts a container.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The pod as last seen.
    pub pod: &'a Pod,
    /// Address of the node.
    pub host_address: &'a str,
    /// Address of the pod.
    pub pod_address: &'a str,
    /// What the device plugin asked the kubelet to set.
    pub from_devices: &'a Environment,
}

/// The ConfigMaps a container's environment refers to.
pub fn config_maps(container: &Container) -> BTreeSet<String> {
    let from = container.env_from.iter().flatten().filter_map(|from| from.config_map_ref.as_ref());
    let keys = container
        .env
        .iter()
        .flatten()
        .filter_map(|variable| variable.value_from.as_ref()?.config_map_key_ref.as_ref())
        .map(|key| key.name.clone());
    from.map(|from| from.name.clone()).chain(keys).collect()
}

/// Whether a container's environment says anything at all.
pub fn is_plain(container: &Container) -> bool {
    container.env.as_ref().is_none_or(Vec::is_empty) && container.env_from.as_ref().is_none_or(Vec::is_empty)
}

/// The environment, or the kubelet's message why the container cannot be created.
pub fn resolve(container: &Container, facts: Facts<'_>, maps: &ConfigMaps) -> Result<Environment, String> {
    let namespace = facts.pod.metadata.namespace.as_deref().unwrap_or_default();
    let find = |name: &str| maps.get(name).and_then(Option::as_ref);
    // The device plugin's variables are not seen by `$(NAME)`.
    let mut told = Environment::new();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &from.config_map_ref {
            match find(&reference.name) {
                Some(data) => told.extend(data.iter().map(|(key, value)| (format!("{prefix}{key}"), value.clone()))),
                None if reference.optional == Some(true) => {}
                None => return Err(format!("configmap {:?} not found", reference.name)),
            }
        }
        if let Some(reference) = from.secret_ref.as_ref().filter(|reference| reference.optional != Some(true)) {
            return Err(format!("secret {:?} not found", reference.name));
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            None => Some(expand(variable.value.as_deref().unwrap_or_default(), &told)),
            Some(source) => from_source(source, container, facts, namespace, &find)?,
        };
        if let Some(value) = value {
            told.insert(variable.name.clone(), value);
        }
    }
    let mut environment = facts.from_devices.clone();
    environment.extend(told);
    Ok(environment)
}

/// `None` if an optional reference leads nowhere: then the variable is not set.
fn from_source<'a>(
    source: &EnvVarSource,
    container: &Container,
    facts: Facts<'_>,
    namespace: &str,
    find: &impl Fn(&str) -> Option<&'a BTreeMap<String, String>>,
) -> Result<Option<String>, String> {
    if let Some(key) = &source.config_map_key_ref {
        let optional = key.optional == Some(true);
        return match find(&key.name) {
            None if optional => Ok(None),
            None => Err(format!("configmap {:?} not found", key.name)),
            Some(data) => match data.get(&key.key) {
                None if !optional => {
                    Err(format!("couldn't find key {} in ConfigMap {namespace}/{}", key.key, key.name))
                }
                value => Ok(value.cloned()),
            },
        };
    }
    if let Some(key) = &source.secret_key_ref {
        // Nobody gives these kubelets secrets.
        return if key.optional == Some(true) { Ok(None) } else { Err(format!("secret {:?} not found", key.name)) };
    }
    if let Some(field) = &source.field_ref {
        return field_value(&field.field_path, facts).map(Some);
    }
    if let Some(field) = &source.resource_field_ref {
        let divisor = field.divisor.as_ref().map(|divisor| divisor.0.as_str());
        return Ok(Some(resource_value(&field.resource, divisor, container)));
    }
    Err("invalid environment source: none of the known kinds is set".to_owned())
}

fn field_value(path: &str, facts: Facts<'_>) -> Result<String, String> {
    let metadata = &facts.pod.metadata;
    let spec = facts.pod.spec.as_ref();
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    let subscript = |name: &str| path.strip_prefix(name)?.strip_prefix("['")?.strip_suffix("']");
    Ok(match path {
        "metadata.name" => text(metadata.name.as_ref()),
        "metadata.namespace" => text(metadata.namespace.as_ref()),
        "metadata.uid" => text(metadata.uid.as_ref()),
        "spec.nodeName" => text(spec.and_then(|spec| spec.node_name.as_ref())),
        "spec.serviceAccountName" => text(spec.and_then(|spec| spec.service_account_name.as_ref())),
        "status.hostIP" | "status.hostIPs" => facts.host_address.to_owned(),
        "status.podIP" | "status.podIPs" => facts.pod_address.to_owned(),
        _ => {
            if let Some(key) = subscript("metadata.labels") {
                text(metadata.labels.as_ref().and_then(|labels| labels.get(key)))
            } else if let Some(key) = subscript("metadata.annotations") {
                text(metadata.annotations.as_ref().and_then(|annotations| annotations.get(key)))
            } else {
                return Err(format!("unsupported fieldPath: {path}"));
            }
        }
    })
}

/// Limits and requests in units of the divisor, rounded up; without a limit the answer is zero here.
fn resource_value(resource: &str, divisor: Option<&str>, container: &Container) -> String {
    let (list, name) = resource.split_once('.').unwrap_or(("", resource));
    let requirements = container.resources.as_ref();
    let list = requirements.and_then(|requirements| match list {
        "limits" => requirements.limits.as_ref(),
        _ => requirements.requests.as_ref().or(requirements.limits.as_ref()),
    });
    let amount = list.and_then(|list| list.get(name)).and_then(|quantity| resources::amount(name, &quantity.0));
    let unit = if name == "cpu" { 1000 } else { 1 };
    let divisor = divisor.and_then(|text| resources::amount(name, text)).filter(|divisor| *divisor > 0).unwrap_or(unit);
    let amount = amount.unwrap_or(0);
    amount.saturating_add(divisor - 1).div_euclid(divisor).to_string()
}

/// Replaces `$(NAME)` by what is set; unknown names stay as they are, `$$` is one dollar sign.
pub fn expand(text: &str, known: &Environment) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        result.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            result.push('$');
            rest = after;
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|after| after.split_once(')')) {
            if let Some(value) = known.get(name) {
                result.push_str(value);
            } else {
                result.push_str("$(");
                result.push_str(name);
                result.push(')');
            }
            rest = after;
        } else {
            result.push('$');
            rest = after;
        }
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn told(container: Value, maps: &ConfigMaps) -> Result<Environment, String> {
        let mut container = container;
        container["name"] = json!("main");
        let container: Container = serde_json::from_value(container).unwrap();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a/b": "label"},
                "annotations": {"note": "annotation"}},
            "spec": {"nodeName": "n", "containers": []},
        }))
        .unwrap();
        let from_devices = Environment::from([("NVIDIA_VISIBLE_DEVICES".to_owned(), "GPU-plugin".to_owned())]);
        let facts = Facts { pod: &pod, host_address: "1.2.3.4", pod_address: "10.0.0.1", from_devices: &from_devices };
        resolve(&container, facts, maps)
    }

    fn maps() -> ConfigMaps {
        let data = BTreeMap::from([("NVIDIA_VISIBLE_DEVICES".to_owned(), "GPU-1".to_owned())]);
        BTreeMap::from([("there".to_owned(), Some(data)), ("gone".to_owned(), None)])
    }

    #[test]
    fn every_kind_of_source_is_resolved() {
        let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let environment = told(
            json!({
                "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}},
                "envFrom": [{"prefix": "X_", "configMapRef": {"name": "there"}}],
                "env": [
                    field("NAME", "metadata.name"), field("NAMESPACE", "metadata.namespace"),
                    field("UID", "metadata.uid"), field("NODE", "spec.nodeName"), field("HOST", "status.hostIP"),
                    field("IP", "status.podIP"), field("LABEL", "metadata.labels['a/b']"),
                    field("NOTE", "metadata.annotations['note']"), field("NONE", "metadata.labels['none']"),
                    {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                    {"name": "MIB", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
                    {"name": "ALL", "value": "$(NAME)/$(X_NVIDIA_VISIBLE_DEVICES) $$(NAME) $(LATER) $5"},
                    {"name": "LATER", "value": "x"},
                ],
            }),
            &maps(),
        )
        .unwrap();
        let lines: Vec<String> = environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            lines,
            [
                "ALL=p/GPU-1 $(NAME) $(LATER) $5",
                "CPUS=2",
                "HOST=1.2.3.4",
                "IP=10.0.0.1",
                "LABEL=label",
                "LATER=x",
                "MIB=1024",
                "NAME=p",
                "NAMESPACE=ns",
                "NODE=n",
                "NONE=",
                "NOTE=annotation",
                "NVIDIA_VISIBLE_DEVICES=GPU-plugin",
                "UID=u",
                "X_NVIDIA_VISIBLE_DEVICES=GPU-1",
            ]
        );
    }

    #[test]
    fn what_the_pod_says_replaces_what_the_device_plugin_says() {
        let key = json!({"configMapKeyRef": {"name": "there", "key": "NVIDIA_VISIBLE_DEVICES"}});
        let environment =
            told(json!({"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": key}]}), &maps()).unwrap();
        assert_eq!(environment["NVIDIA_VISIBLE_DEVICES"], "GPU-1");
    }

    #[test]
    fn missing_references_are_refused_in_the_kubelets_words_unless_optional() {
        let by_key = |name: &str, key: &str, optional: bool| {
            let reference = json!({"name": name, "key": key, "optional": optional});
            told(json!({"env": [{"name": "V", "valueFrom": {"configMapKeyRef": reference}}]}), &maps())
        };
        assert_eq!(by_key("gone", "k", false).unwrap_err(), "configmap \"gone\" not found");
        assert_eq!(by_key("there", "k", false).unwrap_err(), "couldn't find key k in ConfigMap ns/there");
        for (name, key) in [("gone", "k"), ("there", "k")] {
            assert!(!by_key(name, key, true).unwrap().contains_key("V"));
        }
        let whole = |optional: bool| {
            told(json!({"envFrom": [{"configMapRef": {"name": "gone", "optional": optional}}]}), &maps())
        };
        assert_eq!(whole(false).unwrap_err(), "configmap \"gone\" not found");
        assert!(whole(true).is_ok());
        let secret = json!({"secretKeyRef": {"name": "s", "key": "k"}});
        let refused = told(json!({"env": [{"name": "V", "valueFrom": secret}]}), &maps()).unwrap_err();
        assert_eq!(refused, "secret \"s\" not found");
    }
}
