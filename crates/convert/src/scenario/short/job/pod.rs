//! One pod of a job.

use std::collections::BTreeMap;

use kai_api::names::{annotations, bind_phases, labels, objects, resources};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::scenario::short::text;

/// The names of the fields of [`ShortPod`].
pub(super) const POD_FIELDS: [&str; 28] = [
    "cpu",
    "memory",
    "gpu",
    "fraction",
    "gpuMemory",
    "devices",
    "mig",
    "extended",
    "guaranteed",
    "running",
    "groups",
    "releasing",
    "stuck",
    "gated",
    "succeeded",
    "failed",
    "taskPriority",
    "labels",
    "annotations",
    "nodeSelector",
    "affinity",
    "tolerations",
    "spread",
    "hostPorts",
    "nominated",
    "claims",
    "volumeClaims",
    "configMaps",
];

/// What is said of one pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the format")]
pub(super) struct ShortPod {
    cpu: Option<Value>,
    memory: Option<Value>,
    gpu: Option<Value>,
    fraction: Option<Value>,
    gpu_memory: Option<Value>,
    devices: Option<Value>,
    mig: BTreeMap<String, Value>,
    extended: BTreeMap<String, Value>,
    guaranteed: bool,
    running: Option<String>,
    groups: Option<Groups>,
    releasing: bool,
    stuck: bool,
    gated: bool,
    succeeded: bool,
    failed: bool,
    task_priority: Option<Value>,
    labels: BTreeMap<String, Value>,
    annotations: BTreeMap<String, Value>,
    node_selector: Option<Value>,
    affinity: Option<Value>,
    tolerations: Option<Value>,
    spread: Option<Value>,
    host_ports: Vec<Value>,
    nominated: Option<String>,
    claims: Vec<String>,
    volume_claims: Vec<String>,
    config_maps: Vec<String>,
}

/// The GPU groups of a pod.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Groups {
    One(String),
    Several(Vec<String>),
}

/// Whose pod it is, and when what happened to it.
pub(super) struct Owner<'a> {
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) uid: String,
    pub(super) subgroup: Option<&'a str>,
    /// The group; `None`: another scheduler's pod.
    pub(super) group: Option<&'a str>,
    pub(super) created: String,
    pub(super) terminating: String,
    pub(super) stuck: String,
}

impl ShortPod {
    /// Whether it runs, or ends just now.
    pub(super) fn is_on_a_node(&self) -> bool {
        self.running.is_some() && !self.succeeded && !self.failed
    }

    /// The pod, and its BindRequest where that tells its devices.
    pub(super) fn objects(&self, owner: &Owner<'_>) -> Vec<Value> {
        let metadata = json!({"name": owner.name, "namespace": owner.namespace, "uid": owner.uid,
            "creationTimestamp": owner.created, "labels": self.tags(owner), "annotations": self.notes(owner)});
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self.spec(owner), "status": self.status()});
        let deleted = match (self.stuck, self.releasing) {
            (true, _) => Some(&owner.stuck),
            (false, true) => Some(&owner.terminating),
            (false, false) => None,
        };
        if let Some(deleted) = deleted {
            pod["metadata"]["deletionTimestamp"] = json!(deleted);
        }
        let mut objects = vec![pod];
        if let Some(Groups::Several(groups)) = self.groups.as_ref().filter(|groups| groups.names().len() > 1) {
            objects.push(json!({"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest",
                "metadata": {"name": owner.name, "namespace": owner.namespace},
                "spec": {"podName": owner.name, "selectedNode": self.running, "selectedGPUGroups": groups},
                "status": {"phase": bind_phases::SUCCEEDED}}));
        }
        objects
    }

    fn tags(&self, owner: &Owner<'_>) -> Map<String, Value> {
        let mut tags = Map::new();
        tags.extend(owner.subgroup.map(|name| (labels::SUBGROUP.to_owned(), json!(name))));
        tags.extend(self.task_priority.as_ref().map(|rank| (labels::TASK_PRIORITY.to_owned(), json!(text(rank)))));
        match self.groups.as_ref().map(Groups::names).unwrap_or_default() {
            [] => {}
            [one] => drop(tags.insert(labels::GPU_GROUP.to_owned(), json!(one))),
            several => {
                tags.extend(several.iter().map(|group| (format!("{}{group}", labels::GPU_GROUP_PREFIX), json!(group))));
            }
        }
        tags.extend(self.labels.iter().map(|(name, value)| (name.clone(), json!(text(value)))));
        tags
    }

    fn notes(&self, owner: &Owner<'_>) -> Map<String, Value> {
        let mut notes = Map::new();
        notes.extend(owner.group.map(|group| (annotations::POD_GROUP.to_owned(), json!(group))));
        for (name, value) in [
            (annotations::GPU_FRACTION, &self.fraction),
            (annotations::GPU_MEMORY, &self.gpu_memory),
            (annotations::GPU_FRACTION_DEVICES, &self.devices),
        ] {
            notes.extend(value.as_ref().map(|value| (name.to_owned(), json!(text(value)))));
        }
        notes.extend(self.annotations.iter().map(|(name, value)| (name.clone(), json!(text(value)))));
        notes
    }

    fn spec(&self, owner: &Owner<'_>) -> Value {
        let scheduler = if owner.group.is_some() { objects::SCHEDULER } else { "default-scheduler" };
        let mut spec = json!({"schedulerName": scheduler, "containers": [self.container()]});
        let volumes =
            self.volume_claims.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
        let volumes =
            volumes.chain(self.config_maps.iter().map(|name| json!({"name": name, "configMap": {"name": name}})));
        let volumes: Vec<Value> = volumes.collect();
        let claims: Vec<Value> =
            self.claims.iter().map(|name| json!({"name": name, "resourceClaimName": name})).collect();
        for (field, value) in [
            ("nodeName", self.running.as_ref().map(|node| json!(node))),
            ("nodeSelector", self.node_selector.clone()),
            ("affinity", self.affinity.clone()),
            ("tolerations", self.tolerations.clone()),
            ("topologySpreadConstraints", self.spread.clone()),
            ("schedulingGates", self.gated.then(|| json!([{"name": "scenario"}]))),
            ("volumes", (!volumes.is_empty()).then(|| json!(volumes))),
            ("resourceClaims", (!claims.is_empty()).then(|| json!(claims))),
        ] {
            if let Some(value) = value {
                spec[field] = value;
            }
        }
        spec
    }

    fn container(&self) -> Value {
        let usual = |value: &Option<Value>, default: &str| value.as_ref().map_or_else(|| default.to_owned(), text);
        let mut requests = Map::new();
        let mut limits = Map::new();
        for (name, amount) in [("cpu", usual(&self.cpu, "1")), ("memory", usual(&self.memory, "1Gi"))] {
            requests.insert(name.to_owned(), json!(amount));
            if self.guaranteed {
                limits.insert(name.to_owned(), json!(amount));
            }
        }
        let gpus = self.gpu.iter().map(|count| (resources::NVIDIA_GPU.to_owned(), count));
        let profiles = self.mig.iter().map(|(name, count)| (format!("{}{name}", resources::MIG_PREFIX), count));
        let extended = self.extended.iter().map(|(name, count)| (name.clone(), count));
        for (name, count) in gpus.chain(profiles).chain(extended) {
            requests.insert(name.clone(), json!(text(count)));
            limits.insert(name, json!(text(count)));
        }
        let claims: Vec<Value> = self.claims.iter().map(|name| json!({"name": name})).collect();
        let ports: Vec<Value> = self
            .host_ports
            .iter()
            .map(|port| json!({"containerPort": port, "hostPort": port, "protocol": "TCP"}))
            .collect();
        json!({"name": "main", "image": "registry.k8s.io/pause:3.10", "ports": ports,
            "resources": {"requests": requests, "limits": limits, "claims": claims}})
    }

    fn status(&self) -> Value {
        let phase = match (self.succeeded, self.failed, self.running.is_some()) {
            (true, ..) => "Succeeded",
            (_, true, _) => "Failed",
            (.., true) => "Running",
            _ => "Pending",
        };
        let class = if self.guaranteed { "Guaranteed" } else { "Burstable" };
        let mut status = json!({"phase": phase, "qosClass": class});
        if let Some(node) = &self.nominated {
            status["nominatedNodeName"] = json!(node);
        }
        status
    }
}

impl Groups {
    fn names(&self) -> &[String] {
        match self {
            Self::One(group) => std::slice::from_ref(group),
            Self::Several(groups) => groups,
        }
    }
}
