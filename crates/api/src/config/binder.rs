//! The binder and its reservation pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSecurityContext, ResourceRequirements, SecurityContext};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Image, Service, VpaSpec};
use crate::embedded::kubernetes;

/// The binder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Binder {
    /// How it is deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// The pods that hold shared GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_reservation: Option<ResourceReservation>,
    /// Its replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Pods and requests that are worked on at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_reconciles: Option<i64>,
    /// How long volumes are waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_binding_timeout_seconds: Option<i64>,
    /// Port of health checks. 8081 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_port: Option<i64>,
    /// Port of metrics. 8080 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_port: Option<i64>,
    /// Whether containers get GPUs through CDI. Found out from the GPU operator when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cdi_enabled: Option<bool>,
    /// Changes to plugins, by name: `volumebinding`, `dynamicresources`, `gpusharing`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<String, BinderPluginConfig>,
    /// Vertical autoscaling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpa: Option<VpaSpec>,
}

/// A change to a plugin of the binder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BinderPluginConfig {
    /// Whether it runs. True when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Its place in the order; higher runs first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Its arguments, all of them: they replace the default ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<BTreeMap<String, String>>,
}

/// The pods that hold shared GPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceReservation {
    /// Their image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Seconds to wait for their GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation_timeout: Option<i64>,
    /// Their namespace. `kai-resource-reservation` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Their service account. `kai-resource-reservation` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Value of their label `app`. `kai-resource-reservation` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_label: Option<String>,
    /// Their runtime class, which must let them see the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
    /// Their CPU and memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kubernetes::<ResourceRequirements>")]
    pub pod_resources: Option<ResourceRequirements>,
    /// Their security context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kubernetes::<PodSecurityContext>")]
    pub reservation_pod_security_context: Option<PodSecurityContext>,
    /// Security context of their container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kubernetes::<SecurityContext>")]
    pub reservation_container_security_context: Option<SecurityContext>,
    /// What they get on Jetson boards. Not in KAI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tegra: Option<TegraReservation>,
}

/// What a reservation pod gets on a Jetson board, where the NVIDIA runtime does not make NVML work by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TegraReservation {
    /// Which nodes are Jetson boards: `auto` (their label or kernel says so), `on` (all) or `off` (none); in quotes, for `on` and
    /// `off` are booleans in YAML. `auto` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<TegraMode>,
    /// Folder of the node that has `libnvidia-ml.so.1`, mounted read-only and told to the linker; empty for none.
    /// `/usr/lib/aarch64-linux-gnu/nvidia` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library_path: Option<String>,
    /// Device files that are mounted: `all` of `/dev`, only those `listed` in `devices`, or `none`. `all` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount_devices: Option<MountDevices>,
    /// Device files for `mountDevices: listed`. `/dev/nvidia0`, `/dev/nvidiactl` and `/dev/nvmap` when not set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Whether the container is privileged, without which device files are mounted but cannot be opened. True when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privileged: Option<bool>,
    /// `NVIDIA_DRIVER_CAPABILITIES` of the container; empty for none. `utility` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_capabilities: Option<String>,
}

/// Which nodes are treated as Jetson boards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TegraMode {
    /// Those whose label or kernel says so.
    #[default]
    Auto,
    /// All.
    On,
    /// None.
    Off,
}

/// Which device files a reservation pod mounts on a Jetson board.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MountDevices {
    /// The folder `/dev`.
    #[default]
    All,
    /// Those that are listed.
    Listed,
    /// None.
    None,
}
