//! A set of nodes that costs nothing to copy.
//!
//! The nodes of a domain are a span of the order in which its tree lists nodes, so one table of places serves all domains of a tree.
//! Any other set has a bit for each node.

use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::{cluster::Cluster, ids::NodeId};

/// Nodes in the order of their names.
#[derive(Clone, Debug)]
pub struct NodeSet {
    nodes: Arc<[NodeId]>,
    members: Members,
}

/// How membership is found out.
#[derive(Clone, Debug)]
enum Members {
    /// Nodes whose places in a tree lie from `start` up to `end`.
    Span { places: Arc<[u32]>, start: u32, end: u32 },
    /// Nodes whose bit is set.
    Bits(Arc<FixedBitSet>),
}

impl NodeSet {
    /// The set of these nodes.
    #[must_use]
    pub fn new(cluster: &Cluster, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let mut nodes: Vec<NodeId> = nodes.into_iter().filter(|node| node.index() < cluster.nodes.len()).collect();
        nodes.sort_unstable_by_key(|node| (cluster.nodes[node.index()].rank, *node));
        nodes.dedup();
        Self::ordered(nodes)
    }

    /// The set of nodes that are already in the order of their names.
    pub(super) fn ordered(nodes: Vec<NodeId>) -> Self {
        let mut bits = FixedBitSet::with_capacity(nodes.iter().map(|node| node.index() + 1).max().unwrap_or(0));
        for node in &nodes {
            bits.insert(node.index());
        }
        Self { nodes: nodes.into(), members: Members::Bits(Arc::new(bits)) }
    }

    /// The nodes of a domain: those with places from `start` up to `end`.
    pub(super) fn span(nodes: Arc<[NodeId]>, places: &Arc<[u32]>, start: u32, end: u32) -> Self {
        Self { nodes, members: Members::Span { places: Arc::clone(places), start, end } }
    }

    /// The span of the tree with this table of places, if the set is one.
    pub(super) fn span_of(&self, places: &Arc<[u32]>) -> Option<(u32, u32)> {
        match &self.members {
            Members::Span { places: mine, start, end } if Arc::ptr_eq(mine, places) => Some((*start, *end)),
            _ => None,
        }
    }

    /// The nodes of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self::ordered(self.nodes.iter().copied().filter(|node| other.contains(*node)).collect())
    }

    /// Whether a node is in the set.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        match &self.members {
            Members::Span { places, start, end } => {
                places.get(node.index()).is_some_and(|place| (*start..*end).contains(place))
            }
            Members::Bits(bits) => bits.contains(node.index()),
        }
    }

    /// The nodes, in the order of their names.
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// How many nodes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl PartialEq for NodeSet {
    fn eq(&self, other: &Self) -> bool {
        self.nodes == other.nodes
    }
}

impl Eq for NodeSet {}
