//! The reservation pod, field by field: on ordinary nodes nothing but a runtime class, on Jetson boards what NVML needs there.
//!
//! It has no `PriorityClass`: those of the system are allowed outside `kube-system` only with a quota, which is not ours to make.

use k8s_openapi::api::core::v1::{Pod, Toleration};
use kai_api::{
    config::MountDevices,
    names::{annotations, env, labels, resources},
};
use serde_json::{Value, json};

use crate::{platform::Platform, settings::Settings};

/// Where Jetson boards have NVML.
const LIBRARIES: &str = "/usr/lib/aarch64-linux-gnu/nvidia";
/// Device files that NVML needs on Jetson boards.
const DEVICES: [&str; 3] = ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvmap"];

/// What a reservation pod is made for.
pub(crate) struct Reservation<'a> {
    pub(crate) name: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) node: &'a str,
    pub(crate) group: &'a str,
    pub(crate) platform: Platform,
    /// Those of a pod that shares the device.
    pub(crate) tolerations: &'a [Toleration],
    /// The device that the group has already.
    pub(crate) expects: Option<&'a str>,
}

/// The pod.
pub(crate) fn pod(settings: &Settings, wanted: &Reservation<'_>) -> Result<Pod, serde_json::Error> {
    let mut annotations = json!({annotations::KARPENTER_DO_NOT_DISRUPT: "true"});
    if let Some(device) = wanted.expects {
        annotations[annotations::RESERVATION_EXPECTS] = json!(device);
    }
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let mut container = json!({
        "name": "resource-reservation",
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "args": ["resource-reservation"],
        "env": [field(env::POD_NAME, "metadata.name"), field(env::POD_NAMESPACE, "metadata.namespace")],
        "resources": resources(settings),
    });
    if settings.fake_gpus {
        container["image"] = json!("ubuntu");
        container["args"] = json!(["sleep", "infinity"]);
    }
    let mut spec = json!({
        "nodeName": wanted.node,
        "serviceAccountName": settings.service_account,
        "tolerations": wanted.tolerations,
    });
    if let Some(class) = &settings.runtime_class {
        spec["runtimeClassName"] = json!(class);
    }
    if let Some(context) = &settings.pod_security {
        spec["securityContext"] = json!(context);
    }
    match wanted.platform {
        Platform::Standard => {
            if let Some(context) = container_security(settings) {
                container["securityContext"] = context;
            }
        }
        Platform::Tegra => jetson(settings, &mut spec, &mut container),
    }
    spec["containers"] = json!([container]);
    serde_json::from_value(json!({
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "labels": {labels::APP: settings.app_label, labels::GPU_GROUP: wanted.group},
            "annotations": annotations,
        },
        "spec": spec,
    }))
}

/// One GPU, and CPU and memory as configured.
fn resources(settings: &Settings) -> Value {
    let configured = settings.resources.clone().unwrap_or_default();
    let mut amounts =
        json!({"requests": configured.requests.unwrap_or_default(), "limits": configured.limits.unwrap_or_default()});
    for kind in ["requests", "limits"] {
        if let Some(amounts) = amounts.get_mut(kind).and_then(Value::as_object_mut) {
            amounts.retain(|name, _| name != resources::AMD_GPU && !name.starts_with(resources::MIG_PREFIX));
            amounts.insert(resources::NVIDIA_GPU.to_owned(), json!("1"));
        }
    }
    amounts
}

/// As configured, else that of all components; on `OpenShift` the cluster sets it.
fn container_security(settings: &Settings) -> Option<Value> {
    if let Some(context) = &settings.container_security {
        return Some(json!(context));
    }
    let own = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": true,
        "runAsUser": 10000,
    });
    (!settings.openshift).then_some(own)
}

/// What the NVIDIA runtime does not do by itself on Jetson boards, each part as configured.
fn jetson(settings: &Settings, spec: &mut Value, container: &mut Value) {
    let tegra = &settings.tegra;
    let mut variables = Vec::new();
    let mut volumes = Vec::new();
    let mut mounts = Vec::new();
    let capabilities = tegra.driver_capabilities.as_deref().unwrap_or("utility");
    if !capabilities.is_empty() {
        variables.push(json!({"name": "NVIDIA_DRIVER_CAPABILITIES", "value": capabilities}));
    }
    let libraries = tegra.library_path.as_deref().unwrap_or(LIBRARIES);
    if !libraries.is_empty() {
        variables.push(json!({"name": "LD_LIBRARY_PATH", "value": libraries}));
        volumes.push(json!({"name": "nvidia-libs", "hostPath": {"path": libraries}}));
        mounts.push(json!({"name": "nvidia-libs", "mountPath": libraries, "readOnly": true}));
    }
    match tegra.mount_devices.unwrap_or_default() {
        MountDevices::All => {
            volumes.push(json!({"name": "dev-nvidia", "hostPath": {"path": "/dev"}}));
            mounts.push(json!({"name": "dev-nvidia", "mountPath": "/dev"}));
        }
        MountDevices::Listed => {
            let usual = || DEVICES.map(str::to_owned).to_vec();
            let listed = if tegra.devices.is_empty() { usual() } else { tegra.devices.clone() };
            for (number, path) in listed.iter().enumerate() {
                let name = format!("dev-nvidia-{number}");
                volumes.push(json!({"name": name, "hostPath": {"path": path, "type": "CharDevice"}}));
                mounts.push(json!({"name": name, "mountPath": path}));
            }
        }
        MountDevices::None => {}
    }
    if let Some(known) = container["env"].as_array_mut() {
        known.extend(variables);
    }
    if !volumes.is_empty() {
        spec["volumes"] = json!(volumes);
        container["volumeMounts"] = json!(mounts);
    }
    if tegra.privileged.unwrap_or(true) {
        let mut context = settings.container_security.as_ref().map_or_else(|| json!({}), |context| json!(context));
        context["privileged"] = json!(true);
        if let Some(fields) = context.as_object_mut() {
            // The API refuses a privileged container that must not gain privileges.
            fields.remove("allowPrivilegeEscalation");
        }
        container["securityContext"] = context;
    } else if let Some(context) = container_security(settings) {
        container["securityContext"] = context;
    }
}

#[cfg(test)]
mod tests {
    use kai_api::config::TegraReservation;

    use super::*;
    use crate::options::Options;

    fn made(platform: Platform, tegra: TegraReservation) -> Value {
        let mut settings = Settings::of(&Options::default()).expect("flags");
        settings.tegra = tegra;
        settings.runtime_class = Some("nvidia".to_owned());
        let wanted = Reservation {
            name: "gpu-reservation-1",
            namespace: "r",
            node: "n",
            group: "g",
            platform,
            tolerations: &[],
            expects: None,
        };
        serde_json::to_value(pod(&settings, &wanted).expect("a pod")).expect("JSON")
    }

    #[test]
    fn an_ordinary_node_gets_a_runtime_class_and_neither_mounts_nor_privilege() {
        let pod = made(Platform::Standard, TegraReservation::default());
        let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        assert_eq!(
            pod["spec"],
            json!({
                "nodeName": "n", "serviceAccountName": "kai-resource-reservation", "runtimeClassName": "nvidia", "tolerations": [],
                "containers": [{
                    "name": "resource-reservation", "image": "kai:latest", "imagePullPolicy": "IfNotPresent",
                    "args": ["resource-reservation"],
                    "env": [field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")],
                    "resources": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
                    "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                        "runAsNonRoot": true, "runAsUser": 10000},
                }],
            })
        );
        assert_eq!(pod["metadata"]["labels"], json!({"app": "kai-resource-reservation", "runai-gpu-group": "g"}));
        assert_eq!(pod["metadata"]["annotations"], json!({"karpenter.sh/do-not-disrupt": "true"}));
    }

    #[test]
    fn a_jetson_gets_exactly_what_nvml_needs_there() {
        let pod = made(Platform::Tegra, TegraReservation::default());
        let container = &pod["spec"]["containers"][0];
        let variables: Vec<Value> = container["env"].as_array().expect("variables")[2..].to_vec();
        let folder = "/usr/lib/aarch64-linux-gnu/nvidia";
        assert_eq!(
            variables,
            [
                json!({"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"}),
                json!({"name": "LD_LIBRARY_PATH", "value": folder}),
            ]
        );
        assert_eq!(
            pod["spec"]["volumes"],
            json!([{"name": "nvidia-libs", "hostPath": {"path": folder}}, {"name": "dev-nvidia", "hostPath": {"path": "/dev"}}])
        );
        assert_eq!(
            container["volumeMounts"],
            json!([{"name": "nvidia-libs", "mountPath": folder, "readOnly": true}, {"name": "dev-nvidia", "mountPath": "/dev"}])
        );
        assert_eq!(container["securityContext"], json!({"privileged": true}));
    }

    #[test]
    fn every_part_of_a_jetson_can_be_switched_off() {
        let bare = TegraReservation {
            library_path: Some(String::new()),
            mount_devices: Some(MountDevices::None),
            privileged: Some(false),
            driver_capabilities: Some(String::new()),
            ..TegraReservation::default()
        };
        assert_eq!(made(Platform::Tegra, bare), made(Platform::Standard, TegraReservation::default()));
        let listed = TegraReservation { mount_devices: Some(MountDevices::Listed), ..TegraReservation::default() };
        let pod = made(Platform::Tegra, listed);
        assert_eq!(pod["spec"]["volumes"][1]["hostPath"], json!({"path": "/dev/nvidia0", "type": "CharDevice"}));
        assert_eq!(pod["spec"]["volumes"].as_array().expect("volumes").len(), 4);
    }
}
