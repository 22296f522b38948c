//! What a node's labels say of its GPUs, what is assumed where they say nothing usable, and how to mend them.
//!
//! A device plugin that slices time advertises each GPU many times over; memory can only be divided by devices that
//! exist. Where the
//! number of those is not labelled the lowest plausible number is taken, so that no device is promised twice.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as k8s;
use kai_api::names::{node_labels, resources};

/// From this number on a memory label is in bytes instead of MiB: no device has a TiB.
const BYTES_FROM: u64 = 1 << 20;

/// How a product name ends whose devices are time-sliced.
const SHARED_PRODUCT: &str = "-SHARED";

/// The NVIDIA GPUs of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuLabels {
    /// Devices that exist and work.
    pub count: u32,
    /// MiB of each, if that is known.
    pub memory: Option<u64>,
    /// What of the labels is of no use, each as one sentence that names label, assumption and remedy.
    pub complaints: Vec<String>,
}

impl GpuLabels {
    /// Reads a Node.
    #[must_use]
    pub fn of(node: &k8s::Node) -> Self {
        let status = node.status.as_ref();
        let amounts = status.and_then(|status| status.allocatable.as_ref().or(status.capacity.as_ref()));
        let advertised = amounts.and_then(|amounts| amounts.get(resources::NVIDIA_GPU));
        let advertised = advertised.and_then(|quantity| quantity.0.parse::<kai_quantity::Quantity>().ok());
        let advertised = advertised.and_then(|quantity| u32::try_from(quantity.value()).ok()).unwrap_or(0);
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let labels = node.metadata.labels.clone().unwrap_or_default();
        read(name, &labels, advertised, is_tegra(node))
    }
}

/// Whether a node is a Jetson or another board of the Tegra family, all of which have one GPU: its kernel says so.
#[must_use]
pub fn is_tegra(node: &k8s::Node) -> bool {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.is_some_and(|info| info.kernel_version.ends_with("-tegra"))
}

/// Reads the labels of a node with so many advertised GPUs.
pub(crate) fn read(node: &str, labels: &BTreeMap<String, String>, advertised: u32, tegra: bool) -> GpuLabels {
    let mut complaints = Vec::new();
    let memory_label = labels.get(node_labels::GPU_MEMORY);
    let memory = memory_label.and_then(|text| memory(text));
    if advertised == 0 {
        return GpuLabels { count: 0, memory, complaints };
    }
    let count_label = labels.get(node_labels::GPU_COUNT);
    let labelled = count_label.and_then(|text| text.trim().parse::<u32>().ok()).filter(|count| *count > 0);
    let (count, why) = match labelled {
        Some(count) => (count.min(advertised), None),
        None => assumed(labels, advertised, tegra),
    };
    // One advertised GPU is one GPU, whatever is not said of it; on Tegra nobody else will ever write the label.
    let doubtful = count_label.is_some() || advertised > 1 || tegra || why.is_some();
    if labelled.is_none() && doubtful {
        let said = said(node_labels::GPU_COUNT, count_label, "is not a number of GPUs");
        let why = why.unwrap_or_else(|| "each advertised one is taken for a device".to_owned());
        let gpus = if count == 1 { "1 GPU".to_owned() } else { format!("{count} GPUs") };
        let of = if advertised == count { String::new() } else { format!(" of the {advertised} advertised") };
        let label = node_labels::GPU_COUNT;
        complaints.push(format!(
            "node `{node}`: {said}; kai assumes {gpus}{of}, because {why}; hint: kubectl label node {node} {label}={} --overwrite",
            if count == 1 { "1".to_owned() } else { "<number of physical GPUs>".to_owned() },
        ));
    }
    if memory.is_none() {
        let said = said(node_labels::GPU_MEMORY, memory_label, "is not a number of MiB");
        let (label, asked) = (node_labels::GPU_MEMORY, kai_api::names::annotations::GPU_MEMORY);
        complaints.push(format!(
            "node `{node}`: {said}; kai assumes that the memory of its GPUs is unknown and places no pod with annotation \
             `{asked}` here; hint: kubectl label node {node} {label}=<MiB of one GPU> --overwrite",
        ));
    }
    GpuLabels { count, memory, complaints }
}

/// How many devices there are where no label says it, and what that rests on.
fn assumed(labels: &BTreeMap<String, String>, advertised: u32, tegra: bool) -> (u32, Option<String>) {
    if tegra {
        return (1, Some("its kernel is of the Tegra family, whose boards have one GPU".to_owned()));
    }
    let replicas = labels.get(node_labels::GPU_REPLICAS).and_then(|text| text.trim().parse::<u32>().ok());
    if let Some(replicas) = replicas.filter(|replicas| *replicas > 1) {
        // Rather one device too few than one that does not exist.
        let count = (advertised / replicas).max(1);
        return (
            count,
            Some(format!("label `{}` says that each is advertised {replicas} times", node_labels::GPU_REPLICAS)),
        );
    }
    let product = labels.get(node_labels::GPU_PRODUCT);
    if let Some(product) = product.filter(|product| product.ends_with(SHARED_PRODUCT)) {
        let label = node_labels::GPU_PRODUCT;
        return (1, Some(format!("label `{label}` is `{product}`, so they are slices of fewer devices")));
    }
    (advertised, None)
}

fn said(label: &str, text: Option<&String>, wrong: &str) -> String {
    let Some(text) = text else { return format!("label `{label}` is missing") };
    let shown: String = text.chars().take(64).collect();
    format!("label `{label}={shown}` {wrong}")
}

/// MiB of each device, exactly as labelled.
fn memory(text: &str) -> Option<u64> {
    let number: u64 = text.trim().parse().ok()?;
    Some(if number >= BYTES_FROM { number >> 20 } else { number }).filter(|mib| *mib > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(labels: Value, gpus: &str, kernel: &str) -> GpuLabels {
        let info = json!({"architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": kernel,
            "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
            "systemUUID": ""});
        let object = json!({"metadata": {"name": "n", "labels": labels},
            "status": {"allocatable": {"nvidia.com/gpu": gpus}, "nodeInfo": info}});
        GpuLabels::of(&serde_json::from_value(object).expect("a node"))
    }

    #[test]
    fn a_tegra_board_has_one_gpu_however_often_it_is_advertised() {
        let thor = of(json!({"nvidia.com/gpu.memory": "131072"}), "100", "6.8.12-tegra");
        assert_eq!((thor.count, thor.memory), (1, Some(131_072)));
        let [complaint] = thor.complaints.as_slice() else { panic!("{:?}", thor.complaints) };
        assert!(complaint.contains("assumes 1 GPU of the 100 advertised"), "{complaint}");
        assert!(complaint.ends_with("kubectl label node n nvidia.com/gpu.count=1 --overwrite"), "{complaint}");
        assert_eq!(of(json!({"nvidia.com/gpu.memory": "131072"}), "1", "6.8.12-tegra").complaints.len(), 1);
    }

    #[test]
    fn replicas_and_shared_products_tell_of_time_slicing() {
        let memory = json!({"nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.replicas": "4"});
        let sliced = of(memory, "32", "6.8");
        assert_eq!((sliced.count, sliced.complaints.len()), (8, 1));
        let shared = json!({"nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.product": "NVIDIA-H100-SHARED"});
        assert_eq!(of(shared, "32", "6.8").count, 1);
    }

    #[test]
    fn good_labels_and_single_gpus_are_no_reason_to_complain() {
        let good =
            json!({"nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "1"});
        assert!(of(good, "8", "6.8").complaints.is_empty());
        assert!(of(json!({"nvidia.com/gpu.memory": "81559"}), "1", "6.8").complaints.is_empty());
        assert!(of(json!({}), "0", "6.8").complaints.is_empty());
    }

    #[test]
    fn what_is_not_a_number_is_named_with_its_text() {
        let bad = of(json!({"nvidia.com/gpu.memory": "lots", "nvidia.com/gpu.count": "two"}), "2", "6.8");
        assert_eq!((bad.count, bad.memory), (2, None));
        assert!(
            bad.complaints[0].contains("`nvidia.com/gpu.count=two` is not a number of GPUs"),
            "{:?}",
            bad.complaints
        );
        assert!(
            bad.complaints[1].contains("`nvidia.com/gpu.memory=lots` is not a number of MiB"),
            "{:?}",
            bad.complaints
        );
        assert_eq!(
            of(json!({"nvidia.com/gpu.memory": "0", "nvidia.com/gpu.count": "0"}), "4", "6.8").complaints.len(),
            2
        );
    }
}
