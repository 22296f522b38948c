//! Constraints of a pod in words, and whether a node satisfies them.

use crate::{
    cluster::{Cluster, node::Node, words::Words},
    delta::Constraints,
    ids::{NodeId, PodId},
    plan::NodeRefusal,
};

/// The constraints of a class, compiled.
#[derive(Clone, Debug, Default)]
pub struct Compiled {}

impl Compiled {
    /// Compiles constraints.
    pub fn new(_constraints: &Constraints, _words: &mut Words) -> Self {
        Self {}
    }

    /// What keeps the pod off every node, as a sentence.
    #[must_use]
    pub fn everywhere(&self) -> Option<&str> {
        None
    }

    /// Whether pods with these constraints want other pods away from them.
    #[must_use]
    pub fn repels(&self) -> bool {
        false
    }

    /// Whether only looking at other pods can tell if a node does.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        false
    }

    /// Whether some nodes are better than others by these constraints.
    #[must_use]
    pub fn has_preferences(&self) -> bool {
        false
    }

    /// Whether the node itself does, whatever runs on it.
    ///
    /// # Errors
    ///
    /// What the node lacks.
    pub fn check_node(&self, _node: &Node, _words: &Words) -> Result<(), NodeRefusal> {
        Ok(())
    }

    /// Whether the pods on nodes allow the pod on this one.
    ///
    /// # Errors
    ///
    /// What stands against it.
    pub fn check_pods(&self, _cluster: &Cluster, _pod: PodId, _node: NodeId) -> Result<(), NodeRefusal> {
        Ok(())
    }

    /// How much better than others a node is: higher first.
    #[must_use]
    pub fn preference(&self, _cluster: &Cluster, _pod: PodId, _node: NodeId) -> i64 {
        0
    }
}
