//! Which kind of board a node is: what the configuration says, else what its agent's label says, else what its kernel tells.

use k8s_openapi::api::core::v1::Node;
use kai_api::{config::TegraMode, names::node_labels};

/// A kind of board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// GPUs on a bus: the NVIDIA runtime does all that a container needs.
    Standard,
    /// A Jetson: GPU and CPU share memory, and NVML needs help inside containers.
    Tegra,
}

/// Kernels of Jetson boards end like this.
const KERNEL: &str = "-tegra";

/// The kind of a node.
#[must_use]
pub fn platform_of(node: &Node, mode: TegraMode) -> Platform {
    match mode {
        TegraMode::On => return Platform::Tegra,
        TegraMode::Off => return Platform::Standard,
        TegraMode::Auto => {}
    }
    match node.metadata.labels.as_ref().and_then(|labels| labels.get(node_labels::PLATFORM)).map(String::as_str) {
        Some("tegra") => return Platform::Tegra,
        Some("standard") => return Platform::Standard,
        _ => {}
    }
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let is_tegra = info.is_some_and(|info| info.kernel_version.ends_with(KERNEL));
    if is_tegra { Platform::Tegra } else { Platform::Standard }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(kernel: &str, labels: Value) -> Node {
        let info = json!({"kernelVersion": kernel, "architecture": "arm64", "bootID": "", "containerRuntimeVersion": "",
            "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""});
        serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}, "status": {"nodeInfo": info}}))
            .expect("a node")
    }

    #[test]
    fn setting_beats_label_beats_kernel() {
        let (thor, pc) = (node("6.8.12-tegra", json!({})), node("6.8.0-generic", json!({})));
        assert_eq!(platform_of(&thor, TegraMode::Auto), Platform::Tegra);
        assert_eq!(platform_of(&pc, TegraMode::Auto), Platform::Standard);
        assert_eq!(platform_of(&thor, TegraMode::Off), Platform::Standard);
        assert_eq!(platform_of(&pc, TegraMode::On), Platform::Tegra);
        let labelled = node("6.8.12-tegra", json!({"kai.scheduler/platform": "standard"}));
        assert_eq!(platform_of(&labelled, TegraMode::Auto), Platform::Standard);
        assert_eq!(platform_of(&labelled, TegraMode::On), Platform::Tegra);
    }
}
