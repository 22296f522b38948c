//! The last word of `kai up --exit-when-settled`: every pod with its node and its GPU, and why the others wait.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kai_api::names::{annotations, labels, namespaces};
use kai_lab::device::PodDevices;
use kube::{Api, Client, ResourceExt, api::ListParams};

use super::settled::reason;

/// Reads all pods and draws the table. `devices_of` knows what kubelets gave to a pod.
pub async fn draw(client: &Client, devices_of: impl Fn(&str, &str) -> PodDevices) -> anyhow::Result<String> {
    let mut pods = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await?.items;
    pods.sort_by_key(|pod| (pod.namespace(), pod.name_any()));
    Ok(text(&pods, devices_of))
}

fn text(pods: &[Pod], devices_of: impl Fn(&str, &str) -> PodDevices) -> String {
    let shared = shared_gpus(pods);
    let mut rows = vec![["NAMESPACE", "NAME", "READY", "STATUS", "NODE", "GPU"].map(str::to_owned)];
    let mut waiting = Vec::new();
    for pod in pods {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let gpu = gpu(pod, &shared, &devices_of(&namespace, &name));
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_else(|| "<none>".to_owned());
        if let Some(why) = reason(pod) {
            waiting.push(format!("{namespace}/{name} is pending: {why}\n"));
        }
        rows.push([namespace, name, ready(pod), status(pod), node, gpu]);
    }
    let mut table = aligned(&rows);
    if !waiting.is_empty() {
        table.push('\n');
        table.push_str(&waiting.concat());
    }
    table
}

/// Which device each shared GPU is, as its reservation pod says.
fn shared_gpus(pods: &[Pod]) -> BTreeMap<String, String> {
    let reservations = pods.iter().filter(|pod| pod.namespace().as_deref() == Some(namespaces::RESERVATION));
    let known = reservations.filter_map(|pod| {
        let group = pod.labels().get(labels::GPU_GROUP)?;
        Some((group.clone(), pod.annotations().get(annotations::RESERVED_GPU)?.clone()))
    });
    known.collect()
}

fn gpu(pod: &Pod, shared: &BTreeMap<String, String>, devices: &PodDevices) -> String {
    let groups = pod
        .labels()
        .iter()
        .filter(|(key, _)| key.as_str() == labels::GPU_GROUP || key.starts_with(labels::GPU_GROUP_PREFIX));
    let mut names: Vec<String> =
        groups.map(|(_, group)| shared.get(group).cloned().unwrap_or_else(|| group.clone())).collect();
    names.sort();
    let part = match (pod.annotations().get(annotations::GPU_MEMORY), pod.annotations().get(annotations::GPU_FRACTION))
    {
        (Some(memory), _) => format!("{memory} MiB of "),
        (None, Some(fraction)) => format!("{fraction} of "),
        (None, None) => String::new(),
    };
    if !names.is_empty() {
        let part = if pod.namespace().as_deref() == Some(namespaces::RESERVATION) { String::new() } else { part };
        return format!("{part}{}", names.join(", "));
    }
    let held: Vec<&String> = devices.values().flat_map(BTreeMap::values).flatten().collect();
    match held.as_slice() {
        [] => "<none>".to_owned(),
        [one] => (*one).clone(),
        several => format!("{} devices", several.len()),
    }
}

fn ready(pod: &Pod) -> String {
    let all = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    format!("{}/{all}", statuses.iter().filter(|container| container.ready).count())
}

fn status(pod: &Pod) -> String {
    if pod.metadata.deletion_timestamp.is_some() {
        return "Terminating".to_owned();
    }
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let stuck = containers.iter().find_map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.clone());
    let reason = status.and_then(|status| status.reason.clone());
    reason.or(stuck).or_else(|| status?.phase.clone()).unwrap_or_else(|| "Pending".to_owned())
}

/// Columns as kubectl aligns them; the last is not padded.
fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 3));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_stand_with_their_gpu_and_who_waits_says_why() {
        let pod = |value| serde_json::from_value::<Pod>(value).unwrap();
        let pods = [
            pod(json!({
                "metadata": { "namespace": "default", "name": "runs", "labels": { "runai-gpu-group": "g1" },
                    "annotations": { "gpu-memory": "30720" } },
                "spec": { "nodeName": "thor-0", "containers": [{ "name": "main" }] },
                "status": { "phase": "Running", "containerStatuses": [
                    { "name": "main", "ready": true, "restartCount": 0, "image": "", "imageID": "" }] },
            })),
            pod(json!({
                "metadata": { "namespace": "default", "name": "waits", "annotations": { "gpu-memory": "30720" } },
                "spec": { "containers": [{ "name": "main" }] },
                "status": { "phase": "Pending", "conditions": [
                    { "type": "PodScheduled", "status": "False", "message": "no room" }] },
            })),
            pod(json!({
                "metadata": { "namespace": "kai-resource-reservation", "name": "holds",
                    "labels": { "runai-gpu-group": "g1" },
                    "annotations": { "run.ai/reserve_for_gpu_index": "GPU-1" } },
                "spec": { "nodeName": "thor-0", "containers": [{ "name": "main" }] },
                "status": { "phase": "Running" },
            })),
        ];
        let expected = "\
NAMESPACE                  NAME    READY   STATUS    NODE     GPU
default                    runs    1/1     Running   thor-0   30720 MiB of GPU-1
default                    waits   0/1     Pending   <none>   <none>
kai-resource-reservation   holds   0/1     Running   thor-0   GPU-1

default/waits is pending: no room
";
        assert_eq!(text(&pods, |_, _| PodDevices::new()), expected);
    }
}
