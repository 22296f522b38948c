//! Resource amounts as the kubelet counts them: CPU in millicores, everything else in whole units, rounded up.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

/// Amounts by resource name; `cpu` in thousandths.
pub type Amounts = BTreeMap<String, i64>;

/// The amount of `resource` that `text` stands for, or nothing if it is not a quantity.
pub fn amount(resource: &str, text: &str) -> Option<i64> {
    let quantity: kai_quantity::Quantity = text.parse().ok()?;
    Some(if resource == "cpu" { quantity.milli_value() } else { quantity.value() })
}

/// What a pod asks of a node: the larger of its running containers together and each step of its initialisation, where sidecars
/// (restartable init containers) count from their start on, plus overhead; pod-level requests replace the sum.
pub fn pod_requests(spec: &PodSpec) -> Amounts {
    let mut sidecars = Amounts::new();
    let mut during_init = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let request = container_requests(container);
        if is_sidecar(container) {
            add(&mut sidecars, &request);
            raise(&mut during_init, &sidecars);
        } else {
            let mut step = sidecars.clone();
            add(&mut step, &request);
            raise(&mut during_init, &step);
        }
    }
    let mut total = sidecars;
    for container in &spec.containers {
        add(&mut total, &container_requests(container));
    }
    raise(&mut total, &during_init);
    if let Some(requests) = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()) {
        total.extend(amounts(requests));
    }
    if let Some(overhead) = &spec.overhead {
        add(&mut total, &amounts(overhead));
    }
    total
}

/// The limits of one container, which is what the device manager reads.
pub fn container_limits(container: &Container) -> Amounts {
    let limits = container.resources.as_ref().and_then(|resources: &ResourceRequirements| resources.limits.as_ref());
    limits.map(amounts).unwrap_or_default()
}

/// An init container that keeps running beside the ordinary ones.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Adds `more` to `total`.
pub fn add(total: &mut Amounts, more: &Amounts) {
    for (name, value) in more {
        let sum = total.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*value);
    }
}

/// Takes `less` from `total`.
pub fn subtract(total: &mut Amounts, less: &Amounts) {
    for (name, value) in less {
        let rest = total.entry(name.clone()).or_default();
        *rest = rest.saturating_sub(*value);
    }
}

fn container_requests(container: &Container) -> Amounts {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    requests.map(amounts).unwrap_or_default()
}

fn raise(total: &mut Amounts, floor: &Amounts) {
    for (name, value) in floor {
        let entry = total.entry(name.clone()).or_default();
        *entry = (*entry).max(*value);
    }
}

fn amounts(list: &BTreeMap<String, Quantity>) -> Amounts {
    list.iter().filter_map(|(name, quantity)| Some((name.clone(), amount(name, &quantity.0)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn init_steps_and_sidecars_count_as_in_the_kubelet() {
        let spec: PodSpec = serde_json::from_value(json!({
            "initContainers": [
                {"name": "a", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}},
                {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
                {"name": "b", "resources": {"requests": {"cpu": "3"}}},
            ],
            "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}},
                {"name": "d", "resources": {"requests": {"cpu": "1"}}},
            ],
            "overhead": {"cpu": "100m"},
        }))
        .unwrap();
        let requests = pod_requests(&spec);
        assert_eq!(requests["cpu"], 3600);
        assert_eq!(requests["memory"], 1 << 30);
        assert_eq!(requests["nvidia.com/gpu"], 1);
    }
}
