//! Topology domains: into which sets of nodes a constrained subgroup may go, best first.

use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::ids::NodeId;

/// A set of nodes.
#[derive(Clone, Debug)]
pub struct NodeSet {
    /// Its nodes.
    pub members: Arc<FixedBitSet>,
}

impl NodeSet {
    /// Whether a node is in it.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.members.contains(node.index())
    }
}

/// Scores of nodes by preferred domain.
#[derive(Clone, Debug)]
pub struct Bands {
    /// By node.
    pub bands: Arc<Vec<u8>>,
}

impl Bands {
    /// The band of a node.
    #[must_use]
    pub fn of(&self, node: NodeId) -> u8 {
        self.bands.get(node.index()).copied().unwrap_or(0)
    }
}

/// Temporary.
#[derive(Debug, Default)]
pub struct Trees {}
/// Temporary.
pub struct Ask<'a> {
    /// c
    pub constraint: &'a crate::delta::TopologyConstraint,
    /// s
    pub subgroup: &'a str,
    /// t
    pub tasks: &'a [crate::ids::PodId],
    /// w
    pub within: Option<&'a NodeSet>,
    /// h
    pub holding: &'a [NodeId],
}
/// Temporary.
pub struct Subsets {
    /// s
    pub sets: Vec<NodeSet>,
    /// b
    pub bands: Option<Bands>,
}
/// # Errors
/// c
pub fn subsets(_trees: &mut Trees, _cluster: &crate::Cluster, _ask: &Ask) -> Result<Subsets, crate::plan::Cause> {
    Ok(Subsets { sets: vec![], bands: None })
}
