//! Nodes in the order in which a class of pods prefers them.
//!
//! The score of a node is a sum in which each term outweighs all later ones together, so it is kept as one number with a field per term,
//! best first; ties go by name. A ranking holds every node on which the class fits once what leaves has left, and reads the journal to
//! catch up with what changed: choosing a node costs as much as the changes since the last choice.
//!
//! ```text
//!   bit 63        62               61                53..60           52             0..=51
//!   no device     must wait for    (unused)          NUMA zones       GPU node for   fullness (binpack)
//!   to share      what leaves                        spanned          a CPU pod      or emptiness (spread)
//! ```

use std::collections::BTreeSet;

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use crate::{
    amounts::fixed,
    cluster::{Cluster, class::Class, node::Node},
    delta::{Gpus, MigStrategy},
    ids::{ClassId, NodeId},
    journal::Bookmark,
    plan::NodeRefusal,
    policy::{Policy, Strategy},
    topology::{Bands, NodeSet},
};

/// The place value of each term.
const NO_SHARING: u64 = 1 << 63;
const MUST_WAIT: u64 = 1 << 62;
const NUMA_SPAN: u32 = 53;
const GPU_NODE: u64 = 1 << 52;
const FULLNESS: u64 = (1 << 52) - 1;

/// Nodes as a class prefers them.
#[derive(Debug)]
pub struct Ranking {
    class: ClassId,
    members: Option<NodeSet>,
    bands: Option<Bands>,
    /// (topology band reversed, score, rank) of each node that fits.
    order: BTreeSet<(u8, u64, u32)>,
    /// Nodes that do whatever runs on them, with the score of those in `order`.
    scores: Scores,
    read: Bookmark,
    nodes_version: u64,
}

/// Scores of nodes: of most of them, or of the few of a set.
#[derive(Debug)]
enum Scores {
    /// By node; which of them do is told by the bits.
    Many(FixedBitSet, Vec<Option<u64>>),
    /// Only of nodes that do.
    Few(FxHashMap<NodeId, Option<u64>>),
}

impl Scores {
    /// The score of a node; `None` if it does not do or does not fit.
    fn get(&self, node: NodeId) -> Option<u64> {
        match self {
            Self::Many(_, scores) => scores.get(node.index()).copied().flatten(),
            Self::Few(scores) => scores.get(&node).copied().flatten(),
        }
    }

    /// Replaces the score of a node that does, and returns the old one; `None` if the node does not do.
    fn replace(&mut self, node: NodeId, score: impl FnOnce() -> Option<u64>) -> Option<(Option<u64>, Option<u64>)> {
        let entry = match self {
            Self::Many(suitable, scores) => scores.get_mut(node.index()).filter(|_| suitable.contains(node.index())),
            Self::Few(scores) => scores.get_mut(&node),
        }?;
        let new = score();
        Some((std::mem::replace(entry, new), new))
    }
}

impl Ranking {
    /// The ranking of all nodes, or of those of a set, for a class.
    #[must_use]
    pub fn new(
        cluster: &Cluster,
        policy: &Policy,
        class: ClassId,
        members: Option<NodeSet>,
        bands: Option<Bands>,
    ) -> Self {
        let mut ranking = Self {
            class,
            members,
            bands,
            order: BTreeSet::new(),
            scores: Scores::Few(FxHashMap::default()),
            read: cluster.journal.end(),
            nodes_version: 0,
        };
        ranking.rebuild(cluster, policy);
        ranking
    }

    /// Catches up with what changed.
    pub fn refresh(&mut self, cluster: &Cluster, policy: &Policy) {
        let changed = cluster.journal.since(self.read).filter(|_| self.nodes_version == cluster.nodes_version);
        match changed {
            Some([]) => {}
            Some(changed) if changed.len() < cluster.nodes.len() => {
                for node in changed {
                    self.rescore(cluster, policy, *node);
                }
                self.read = cluster.journal.end();
            }
            _ => self.rebuild(cluster, policy),
        }
    }

    /// The nodes, best first.
    pub fn nodes<'a>(&'a self, cluster: &'a Cluster) -> impl Iterator<Item = NodeId> + 'a {
        self.order.iter().filter_map(|(_, _, rank)| cluster.nodes_by_rank.get(*rank as usize).copied())
    }

    /// Their places among all nodes by name, best first.
    pub fn ranks(&self) -> impl Iterator<Item = u32> + '_ {
        self.order.iter().map(|(_, _, rank)| *rank)
    }

    /// Whether a node is among them.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.scores.get(node).is_some()
    }

    fn rebuild(&mut self, cluster: &Cluster, policy: &Policy) {
        let class = cluster.class(self.class);
        let suits = |node: &Node| node.exists && suits(cluster, class, node, policy).is_ok();
        if let Some(members) = &self.members {
            let nodes = members.nodes().iter().map(|id| (*id, &cluster.nodes[id.index()]));
            let scores = nodes.filter(|(_, node)| suits(node)).map(|(id, node)| (id, score(class, node, policy)));
            self.scores = Scores::Few(scores.collect());
            let scored = members.nodes().iter().map(|node| (*node, self.scores.get(*node)));
            self.order = self.entries(cluster, scored).collect();
        } else {
            let suitable = match std::mem::replace(&mut self.scores, Scores::Few(FxHashMap::default())) {
                Scores::Many(suitable, _) if self.nodes_version == cluster.nodes_version => suitable,
                _ => {
                    let fit = cluster.nodes.iter().enumerate().filter(|(_, node)| suits(node));
                    let mut suitable = FixedBitSet::with_capacity(cluster.nodes.len());
                    suitable.extend(fit.map(|(index, _)| index));
                    suitable
                }
            };
            let mut scores = vec![None; cluster.nodes.len()];
            for index in suitable.ones() {
                scores[index] = score(class, &cluster.nodes[index], policy);
            }
            let scored = scores.iter().enumerate().map(|(index, score)| (NodeId::of(index), *score));
            self.order = self.entries(cluster, scored).collect();
            self.scores = Scores::Many(suitable, scores);
        }
        self.nodes_version = cluster.nodes_version;
        self.read = cluster.journal.end();
    }

    fn entries<'a>(
        &'a self,
        cluster: &'a Cluster,
        scored: impl Iterator<Item = (NodeId, Option<u64>)> + 'a,
    ) -> impl Iterator<Item = (u8, u64, u32)> + 'a {
        scored.filter_map(|(node, score)| Some((self.band(node), score?, cluster.nodes[node.index()].rank)))
    }

    fn rescore(&mut self, cluster: &Cluster, policy: &Policy, node: NodeId) {
        let described = &cluster.nodes[node.index()];
        let changed = self.scores.replace(node, || score(cluster.class(self.class), described, policy));
        let Some((old, new)) = changed.filter(|(old, new)| old != new) else { return };
        let band = self.band(node);
        if let Some(old) = old {
            self.order.remove(&(band, old, described.rank));
        }
        if let Some(new) = new {
            self.order.insert((band, new, described.rank));
        }
    }

    fn band(&self, node: NodeId) -> u8 {
        self.bands.as_ref().map_or(0, |bands| u8::MAX - bands.band(node))
    }
}

/// The score of a node on which the class fits; lower is better.
fn score(class: &Class, node: &Node, policy: &Policy) -> Option<u64> {
    if !node.fits_future(class) {
        return None;
    }
    let plugins = &policy.plugins;
    let mut score = 0;
    if plugins.gpu_sharing_order && class.is_shared() {
        let fits = node.units_of(class.gpus).is_some_and(|units| node.devices_with_room(units) > 0);
        score |= if fits { 0 } else { NO_SHARING };
    }
    if plugins.node_availability && !node.fits_now(class) {
        score |= MUST_WAIT;
    }
    if plugins.numa {
        score |= u64::from(node.numa_span(class)) << NUMA_SPAN;
    }
    let gpu_node = node.total.fixed[fixed::GPU] > 0 || node.mig != MigStrategy::Off || !node.devices.is_empty();
    if plugins.resource_type && class.is_cpu_only() && gpu_node {
        score |= GPU_NODE;
    }
    if plugins.node_placement {
        let (resource, strategy) =
            if class.is_cpu_only() { (fixed::CPU, policy.cpu_strategy) } else { (fixed::GPU, policy.gpu_strategy) };
        score |= fullness(node.future.fixed[resource], node.total.fixed[resource], strategy);
    }
    Some(score)
}

fn fullness(free: i64, total: i64, strategy: Strategy) -> u64 {
    let free = u64::try_from(free).unwrap_or(0);
    match strategy {
        // A node that has none of it is no better filled than any other: it comes last.
        Strategy::Binpack if total <= 0 => FULLNESS,
        Strategy::Binpack => free.min(FULLNESS),
        Strategy::Spread => {
            let total = u128::try_from(total).unwrap_or(0).max(1);
            let part = (u128::from(free) << 40) / total;
            (1_u64 << 40).saturating_sub(u64::try_from(part).unwrap_or(u64::MAX))
        }
    }
}

/// Whether a node does for a class whatever runs on it.
///
/// # Errors
///
/// What the node lacks.
pub fn suits(cluster: &Cluster, class: &Class, node: &Node, policy: &Policy) -> Result<(), NodeRefusal> {
    if let Some(why) = node.unavailable.first()
        && (policy.plugins.predicates || matches!(why, crate::delta::Unavailable::Invalid(_)))
    {
        return Err(NodeRefusal::Unavailable(why.clone()));
    }
    if class.constraints.is_vetoed(node) {
        return Err(NodeRefusal::Vetoed(node.name.to_string()));
    }
    mig_suits(class, node)?;
    if class.is_shared() && node.has_only_dra_gpus() {
        return Err(NodeRefusal::NotShareable);
    }
    if matches!(class.gpus, Gpus::Memory { .. }) && node.gpu_memory.is_none() && node.total.fixed[fixed::GPU] > 0 {
        return Err(NodeRefusal::GpuMemoryUnknown);
    }
    if policy.plugins.predicates { class.constraints.check_node(node, &cluster.words) } else { Ok(()) }
}

fn mig_suits(class: &Class, node: &Node) -> Result<(), NodeRefusal> {
    let refuse = |why: &str| Err(NodeRefusal::Mig(why.to_owned()));
    if class.legacy_mig {
        return refuse("legacy MIG requests by annotation are not supported");
    }
    if class.is_cpu_only() {
        return Ok(());
    }
    match node.mig {
        MigStrategy::Off if class.mig => refuse("the node is not a MIG node"),
        MigStrategy::Single if class.mig || class.is_shared() => {
            refuse("the node's MIG strategy `single` takes whole GPUs only")
        }
        MigStrategy::Mixed if !class.mig => refuse("the node's MIG strategy `mixed` takes MIG profiles only"),
        _ => Ok(()),
    }
}
