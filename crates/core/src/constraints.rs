//! Constraints of a pod in words, and whether a node satisfies them: kube-scheduler's rules.
//!
//! ```text
//!   check_node   the node alone: taints, selector and affinity, volumes         cached by whoever asks
//!   check_pods   who is where: ports, affinity both ways, spread, claims        asked of the census
//!   preference   the same, as wishes
//! ```
//!
//! A pod counts where it runs, where it is promised a place, and while it is being deleted; a pod that this cycle
//! evicts counts nowhere.

pub mod census;
pub mod domain;
mod port;
mod preference;
mod questions;
mod selector;
mod spread;
#[cfg(test)]
mod tests;
mod toleration;
mod volume;

use self::{
    census::Census,
    domain::Rule,
    port::Port,
    selector::{NodeTerm, PodMatch, Requirement},
    spread::SpreadRule,
    toleration::Toleration,
    volume::Volume,
};
use crate::{
    cluster::{
        Cluster,
        node::{Node, NodeTaint},
        words::Words,
    },
    delta::{Constraints, PodTerm},
    ids::{NodeId, PodId, Word},
    plan::NodeRefusal,
};

/// The constraints of a class, compiled.
#[derive(Clone, Debug, Default)]
pub struct Compiled {
    missing: Option<Box<str>>,
    node_selector: Box<[Requirement]>,
    node_affinity: Box<[NodeTerm]>,
    preferred_nodes: Box<[(i32, NodeTerm)]>,
    tolerations: Box<[Toleration]>,
    pod_affinity: Box<[Rule]>,
    pod_anti_affinity: Box<[Rule]>,
    preferred_pods: Box<[(i32, Rule)]>,
    spread: Box<[SpreadRule]>,
    ports: Box<[Port]>,
    volumes: Box<[Volume]>,
    vetoed: Box<[Box<str>]>,
}

impl Compiled {
    /// Compiles constraints.
    pub fn new(constraints: &Constraints, words: &mut Words) -> Self {
        let alone = |term: &PodTerm, words: &mut Words| Rule {
            pods: Box::new([PodMatch::new(term, words)]),
            key: words.intern(&term.topology_key),
        };
        // Required affinity counts only pods that match all terms at once.
        let together: Box<[PodMatch]> =
            constraints.pod_affinity.iter().map(|term| PodMatch::new(term, words)).collect();
        let affinity = constraints
            .pod_affinity
            .iter()
            .map(|term| Rule { pods: together.clone(), key: words.intern(&term.topology_key) })
            .collect();
        let selector = constraints.node_selector.iter();
        let preferred_nodes = constraints.preferred_node_affinity.iter().filter(|wish| wish.weight != 0);
        let preferred_pods = constraints.preferred_pod_affinity.iter().filter(|wish| wish.weight != 0);
        Self {
            missing: constraints.missing.first().map(|what| what.as_str().into()),
            node_selector: selector.map(|(key, value)| Requirement::equals(key, value, words)).collect(),
            node_affinity: NodeTerm::list(constraints.node_affinity.as_deref().unwrap_or_default(), words),
            preferred_nodes: preferred_nodes.map(|wish| (wish.weight, NodeTerm::new(&wish.item, words))).collect(),
            tolerations: constraints.tolerations.iter().map(|one| Toleration::new(one, words)).collect(),
            pod_affinity: affinity,
            pod_anti_affinity: constraints.pod_anti_affinity.iter().map(|term| alone(term, words)).collect(),
            preferred_pods: preferred_pods.map(|wish| (wish.weight, alone(&wish.item, words))).collect(),
            spread: constraints.spread.iter().map(|constraint| SpreadRule::new(constraint, words)).collect(),
            ports: constraints.host_ports.iter().filter_map(|port| Port::new(port, words)).collect(),
            volumes: constraints.volumes.iter().map(|need| Volume::new(need, words)).collect(),
            vetoed: constraints.vetoed.iter().map(|node| node.as_str().into()).collect(),
        }
    }

    /// What keeps the pod off every node, as a sentence.
    #[must_use]
    pub fn everywhere(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// Whether the node refused such a pod and is not to be tried now.
    #[must_use]
    pub fn is_vetoed(&self, node: &Node) -> bool {
        self.vetoed.contains(&node.name)
    }

    /// Whether pods with these constraints want other pods away from them.
    #[must_use]
    pub fn repels(&self) -> bool {
        !self.pod_anti_affinity.is_empty()
    }

    /// Whether only looking at other pods can tell if a node does.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        !self.pod_affinity.is_empty()
            || !self.pod_anti_affinity.is_empty()
            || !self.ports.is_empty()
            || self.spread.iter().any(|rule| rule.hard)
            || self.exclusive_claims().next().is_some()
    }

    /// Whether the node itself does, whatever runs on it.
    ///
    /// # Errors
    ///
    /// What the node lacks.
    pub fn check_node(&self, node: &Node, words: &Words) -> Result<(), NodeRefusal> {
        if let Some(taint) = self.forbidding_taint(node) {
            return Err(NodeRefusal::Taint(taint.key));
        }
        if !self.wants_node(node, words) {
            return Err(NodeRefusal::NodeAffinity);
        }
        self.volumes.iter().try_for_each(|volume| volume.check_node(node, words))
    }

    /// Whether the pods on nodes allow the pod on this one. It counts all pods; [`Census::check_pods`] does not.
    ///
    /// # Errors
    ///
    /// What stands against it.
    pub fn check_pods(&self, cluster: &Cluster, pod: PodId, node: NodeId) -> Result<(), NodeRefusal> {
        let mut census = Census::default();
        census.prepare(cluster, pod);
        census.check_pods(cluster, pod, node)
    }

    /// Whether the node selector and the required node affinity want a node.
    pub(crate) fn wants_node(&self, node: &Node, words: &Words) -> bool {
        self.node_selector.iter().all(|requirement| requirement.holds(&node.labels, words))
            && (self.node_affinity.is_empty() || self.node_affinity.iter().any(|term| term.holds(node, words)))
    }

    /// The first taint of a node that keeps the pod off.
    pub(crate) fn forbidding_taint(&self, node: &Node) -> Option<NodeTaint> {
        toleration::forbidding(&self.tolerations, node)
    }

    /// How many taints of a node would rather keep the pod off.
    pub(crate) fn discouraging_taints(&self, node: &Node) -> usize {
        toleration::discouraging(&self.tolerations, node)
    }

    /// Whether it has rules that the census must know.
    pub(crate) fn has_rules(&self) -> bool {
        !(self.pod_affinity.is_empty()
            && self.pod_anti_affinity.is_empty()
            && self.preferred_pods.is_empty()
            && self.spread.is_empty())
    }

    /// The claims of which only one pod may use each.
    pub(crate) fn exclusive_claims(&self) -> impl Iterator<Item = Word> + '_ {
        self.volumes.iter().filter_map(Volume::exclusive_claim)
    }
}
