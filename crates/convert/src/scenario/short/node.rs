//! Nodes in a line.

use std::collections::BTreeMap;

use kai_api::names::{node_labels, resources};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::text;
use crate::scenario::file::ScenarioError;

/// A node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ShortNode {
    cpu: Option<Value>,
    memory: Option<Value>,
    pods: Option<Value>,
    gpus: Option<Value>,
    replicas: Option<u64>,
    gpu_memory: Option<Value>,
    mig: BTreeMap<String, Value>,
    extended: BTreeMap<String, Value>,
    labels: BTreeMap<String, Value>,
    taints: Vec<String>,
    unschedulable: bool,
    conditions: BTreeMap<String, Value>,
}

impl ShortNode {
    /// The object it stands for.
    pub(super) fn object(&self, name: &str) -> Result<Value, ScenarioError> {
        let mut amounts = Map::new();
        let mut labels = Map::from_iter([(node_labels::HOSTNAME.to_owned(), json!(name))]);
        let usual = |given: &Option<Value>, default: &str| given.as_ref().map_or_else(|| default.to_owned(), text);
        amounts.insert("cpu".to_owned(), json!(usual(&self.cpu, "64")));
        amounts.insert("memory".to_owned(), json!(usual(&self.memory, "256Gi")));
        amounts.insert("pods".to_owned(), json!(usual(&self.pods, "110")));
        if let Some(gpus) = &self.gpus {
            let offered = match (gpus.as_u64(), self.replicas) {
                (Some(count), Some(replicas)) => count.saturating_mul(replicas).to_string(),
                _ => text(gpus),
            };
            amounts.insert(resources::NVIDIA_GPU.to_owned(), json!(offered));
            labels.insert(node_labels::GPU_COUNT.to_owned(), json!(text(gpus)));
        }
        if let Some(memory) = &self.gpu_memory {
            labels.insert(node_labels::GPU_MEMORY.to_owned(), json!(text(memory)));
        }
        for (profile, value) in &self.mig {
            if profile == "strategy" {
                labels.insert(node_labels::MIG_STRATEGY.to_owned(), json!(text(value)));
            } else {
                amounts.insert(format!("{}{profile}", resources::MIG_PREFIX), json!(text(value)));
            }
        }
        amounts.extend(self.extended.iter().map(|(resource, value)| (resource.clone(), json!(text(value)))));
        labels.extend(self.labels.iter().map(|(label, value)| (label.clone(), json!(text(value)))));
        let mut conditions = BTreeMap::from([("Ready".to_owned(), "True".to_owned())]);
        conditions.extend(self.conditions.iter().map(|(kind, status)| (kind.clone(), text(status))));
        let conditions: Vec<Value> =
            conditions.into_iter().map(|(kind, status)| json!({"type": kind, "status": status})).collect();
        let mut taints = Vec::new();
        for taint in &self.taints {
            taints.push(read_taint(name, taint)?);
        }
        if self.unschedulable {
            taints.push(json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}));
        }
        Ok(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": format!("node-{name}"), "labels": labels},
            "spec": {"taints": taints, "unschedulable": self.unschedulable},
            "status": {"allocatable": amounts.clone(), "capacity": amounts, "conditions": conditions}}),
        )
    }
}

/// `key=value:Effect` or `key:Effect`.
fn read_taint(node: &str, written: &str) -> Result<Value, ScenarioError> {
    let Some((named, effect)) = written.rsplit_once(':') else {
        let field = format!("short.nodes.{node}.taints");
        return Err(ScenarioError::field(field, format!("`{written}` has no effect"), "write `key=value:NoSchedule`"));
    };
    let (key, value) = named.split_once('=').unwrap_or((named, ""));
    Ok(json!({"key": key, "value": value, "effect": effect}))
}
