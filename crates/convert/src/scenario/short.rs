//! The short way to write a cluster: nodes, queues, topologies and jobs in a line each, made into Kubernetes objects.

mod job;
mod node;
mod ordered;
mod queue;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::{node::ShortNode, ordered::Ordered, queue::ShortQueue};
use super::file::ScenarioError;

/// A cluster, briefly.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Short {
    nodes: Ordered<ShortNode>,
    queues: Ordered<ShortQueue>,
    topologies: Ordered<Vec<ShortLevel>>,
    jobs: Vec<Map<String, Value>>,
}

/// A level of a topology: a label, maybe with an alias.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum ShortLevel {
    Label(String),
    Named { label: String, alias: String },
}

impl Short {
    /// The objects it stands for.
    pub(super) fn objects(&self, now: Timestamp) -> Result<Vec<Value>, ScenarioError> {
        let mut objects = Vec::new();
        for (name, node) in &self.nodes.0 {
            objects.push(node.object(name)?);
        }
        objects.extend(queue::objects(&self.queues, now));
        for (name, levels) in &self.topologies.0 {
            objects.push(topology(name, levels));
        }
        job::objects(&self.jobs, now, &mut objects)?;
        Ok(objects)
    }
}

fn topology(name: &str, levels: &[ShortLevel]) -> Value {
    let level = |level: &ShortLevel| match level {
        ShortLevel::Label(label) => json!({"nodeLabel": label}),
        ShortLevel::Named { label, alias } => json!({"nodeLabel": label, "alias": alias}),
    };
    let levels: Vec<Value> = levels.iter().map(level).collect();
    json!({"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": name}, "spec": {"levels": levels}})
}

/// A quantity, a name or a number, as text.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests;
