//! Topology domains: into which sets of nodes a constrained subgroup may go, best first.
//!
//! ```text
//!   constraint ─▶ levels        from the preferred (or required) one up to the required one; without one up to everything
//!   node set   ─▶ common domain the deepest domain that holds all of its nodes: the search stays inside
//!   pods       ─▶ need          ─▶ packing: what fits into each domain, most packed first
//!                                └▶ domains with room, deeper levels first ─▶ node sets
//! ```
//!
//! [`Trees`] survives cycles: trees are rebuilt when nodes change, packings follow the journal of ledger changes. What is free is what will
//! be free once everything that leaves has left.

mod need;
mod node_set;
mod packing;
mod ratio;
mod search;
#[cfg(test)]
mod tests;
mod tree;

use std::sync::Arc;

use self::{
    need::Need,
    packing::Packing,
    search::{Levels, Search},
    tree::{DEEPEST, Tree},
};
pub use self::{
    node_set::NodeSet,
    search::{Bands, Subsets},
};
use crate::{
    cluster::Cluster,
    delta::TopologyConstraint,
    ids::{NodeId, PodId},
    plan::Cause,
};

/// Packings of so many needs are kept for each topology: enough for the shapes of gangs that are in use at a time, and bounded, for each
/// costs about 40 bytes per node.
const PACKINGS: usize = 32;

/// The domain trees of all topologies.
#[derive(Debug, Default)]
pub struct Trees {
    /// The version of the nodes they were made of.
    version: Option<u64>,
    /// By the topology's place in the cluster.
    entries: Vec<Option<Entry>>,
    everything: Option<NodeSet>,
}

/// One topology.
#[derive(Debug)]
struct Entry {
    tree: Arc<Tree>,
    /// The most recently used first.
    packings: Vec<Packing>,
}

/// Who asks for node sets.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Where the pods must or should be.
    pub constraint: &'a TopologyConstraint,
    /// The subgroup's name; empty for the whole group.
    pub subgroup: &'a str,
    /// The pods that need places.
    pub tasks: &'a [PodId],
    /// The nodes to choose from; `None`: every node.
    pub within: Option<&'a NodeSet>,
    /// The nodes of pods of the subgroup that already have places.
    pub holding: &'a [NodeId],
}

/// The node sets a subgroup may try, best first: at least one. Nodes must be ranked by name when this is called.
///
/// # Errors
///
/// The constraint names what does not exist, or no domain has room: what each of them lacks.
pub fn subsets(trees: &mut Trees, cluster: &Cluster, ask: &Ask<'_>) -> Result<Subsets, Cause> {
    trees.refresh(cluster);
    if ask.constraint.topology.is_empty() {
        return Ok(trees.unconstrained(cluster, ask));
    }
    let place = cluster.topologies.iter().position(|topology| topology.name == ask.constraint.topology);
    let Some(place) = place else {
        let sentence = format!("requested topology `{}` does not exist", ask.constraint.topology);
        return Err(Cause::TopologyUnknown(sentence));
    };
    let topology = &cluster.topologies[place];
    if topology.levels.len() > DEEPEST {
        let sentence =
            format!("topology `{}` has {} levels, more than {DEEPEST}", topology.name, topology.levels.len());
        return Err(Cause::TopologyUnknown(sentence));
    }
    let tree = trees.tree(cluster, place);
    let levels = Levels::new(&tree, ask)?;
    if ask.tasks.is_empty() {
        return Ok(trees.unconstrained(cluster, ask));
    }
    Search::new(cluster, place, tree, levels, ask)?.run(trees, cluster, ask)
}

impl Trees {
    /// Forgets everything if nodes or topologies changed.
    fn refresh(&mut self, cluster: &Cluster) {
        if self.version != Some(cluster.nodes_version) {
            *self = Self { version: Some(cluster.nodes_version), ..Self::default() };
            self.entries.resize_with(cluster.topologies.len(), || None);
        }
    }

    /// The set that was given, or all nodes that take pods.
    fn unconstrained(&mut self, cluster: &Cluster, ask: &Ask<'_>) -> Subsets {
        let set = ask.within.cloned().unwrap_or_else(|| {
            let nodes = (0..cluster.nodes.len()).map(NodeId::of);
            let available = nodes.filter(|node| cluster.nodes[node.index()].is_available());
            self.everything.get_or_insert_with(|| NodeSet::new(cluster, available)).clone()
        });
        Subsets::only(set)
    }

    /// The tree of the topology at a place.
    fn tree(&mut self, cluster: &Cluster, place: usize) -> Arc<Tree> {
        let entry = self.entries[place].get_or_insert_with(|| Entry {
            tree: Arc::new(Tree::new(cluster, &cluster.topologies[place])),
            packings: Vec::new(),
        });
        Arc::clone(&entry.tree)
    }

    /// The packing of a need in the tree of the topology at a place, up to date; `None` if that is no longer the tree.
    fn packing(&mut self, cluster: &Cluster, place: usize, tree: &Arc<Tree>, need: &Need) -> Option<&Packing> {
        self.refresh(cluster);
        let entry = self.entries.get_mut(place)?.as_mut().filter(|entry| Arc::ptr_eq(&entry.tree, tree))?;
        if let Some(known) = entry.packings.iter().position(|packing| packing.need == *need) {
            entry.packings[..=known].rotate_right(1);
            entry.packings[0].catch_up(cluster, tree);
        } else {
            entry.packings.truncate(PACKINGS - 1);
            entry.packings.insert(0, Packing::new(cluster, tree, need.clone()));
        }
        entry.packings.first()
    }
}
