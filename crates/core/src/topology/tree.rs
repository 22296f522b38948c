//! The domains of one topology.
//!
//! ```text
//!   level 0   root ─────────────────┐        one domain that holds every node of the topology
//!   level 1   zone-1 ─────┐ zone-2 ─┤        the first label
//!   level 2   rack-1 rack-2 rack-1 …         the next one: each parent's children are neighbours
//! ```
//!
//! A node belongs if it has all labels. Nodes that take no pods make their domains known but are in no node list. Siblings are in the order
//! of their label values, and nodes are numbered (*places*) so that each domain is a span of numbers.

use std::{ops::Range, sync::Arc};

use smallvec::SmallVec;

use super::NodeSet;
use crate::{
    cluster::Cluster,
    delta,
    ids::{NodeId, Word},
};

/// Topologies with more levels are refused: nobody has them, and a domain's depth bounds recursion.
pub(super) const DEEPEST: usize = 32;

/// No domain, no place.
const NONE: u32 = u32::MAX;

/// The domains of a topology.
#[derive(Debug)]
pub(super) struct Tree {
    /// The levels; the first holds the root alone.
    pub(super) levels: Vec<Level>,
    /// By node: its place among the available nodes of the topology.
    places: Arc<[u32]>,
    /// By place: the node.
    pub(super) nodes: Vec<NodeId>,
    /// By node: its domain at the last level, also for nodes that take no pods.
    leaves: Vec<u32>,
    /// MiB of the largest GPU.
    pub(super) largest_memory: Option<u64>,
}

/// A level of the tree.
#[derive(Debug, Default)]
pub(super) struct Level {
    /// The node label; empty for the root.
    pub(super) label: String,
    alias: Option<String>,
    /// Its domains, in the order of their label values from the top.
    pub(super) domains: Vec<Domain>,
}

/// A domain.
#[derive(Debug)]
pub(super) struct Domain {
    value: Word,
    /// At the level above.
    parent: u32,
    /// At the level below.
    pub(super) children: Range<usize>,
    /// The places of its nodes.
    span: (u32, u32),
    nodes: Arc<[NodeId]>,
}

/// A node of the topology on its way into the tree.
struct Member {
    /// The ranks of its label values among all values of their levels, from the top.
    path: SmallVec<[u32; 4]>,
    node: NodeId,
}

impl Tree {
    /// The tree of a topology over the nodes as they are.
    pub(super) fn new(cluster: &Cluster, topology: &delta::Topology) -> Self {
        let values = Values::new(cluster, topology);
        let members = values.members(cluster);
        let mut tree = Self {
            levels: vec![Level::default()],
            places: Arc::default(),
            nodes: Vec::with_capacity(members.len()),
            leaves: vec![NONE; cluster.nodes.len()],
            largest_memory: None,
        };
        let labels = topology.levels.iter();
        tree.levels.extend(labels.map(|level| Level {
            label: level.label.clone(),
            alias: level.alias.clone(),
            domains: Vec::new(),
        }));
        tree.place(cluster, &members, &values);
        tree.list_nodes(cluster);
        tree
    }

    /// Opens the domains of nodes that come in the order of the tree, and numbers the nodes.
    fn place(&mut self, cluster: &Cluster, members: &[Member], values: &Values) {
        self.levels[0].domains.push(Domain::new(Word(NONE), NONE, 0, 0));
        let mut places = vec![NONE; cluster.nodes.len()];
        let mut before: &[u32] = &[];
        for member in members {
            let place = number(self.nodes.len());
            let shared = before.iter().zip(&member.path).take_while(|(a, b)| a == b).count();
            for depth in shared..member.path.len() {
                let value = values.word(depth, member.path[depth]);
                self.open(depth + 1, value, place);
            }
            before = &member.path;
            self.leaves[member.node.index()] = number(self.levels.last().map_or(0, |level| level.domains.len()) - 1);
            let node = &cluster.nodes[member.node.index()];
            if node.is_available() {
                places[member.node.index()] = place;
                self.nodes.push(member.node);
                self.largest_memory = self.largest_memory.max(node.gpu_memory);
            }
        }
        self.places = places.into();
    }

    /// Opens a domain under the last one of the level above.
    fn open(&mut self, level: usize, value: Word, place: u32) {
        let below = self.levels.get(level + 1).map_or(0, |level| level.domains.len());
        let parent = self.levels[level - 1].domains.len() - 1;
        let index = self.levels[level].domains.len();
        self.levels[level].domains.push(Domain::new(value, number(parent), below, place));
        self.levels[level - 1].domains[parent].children.end = index + 1;
    }

    /// Ends the span of each domain where the next one begins, and lists its nodes by name.
    fn list_nodes(&mut self, cluster: &Cluster) {
        let total = number(self.nodes.len());
        for level in &mut self.levels {
            let mut end = total;
            for domain in level.domains.iter_mut().rev() {
                domain.span.1 = end;
                end = domain.span.0;
                let mut nodes = self.nodes[domain.span.0 as usize..domain.span.1 as usize].to_vec();
                nodes.sort_by_key(|node| cluster.nodes[node.index()].rank);
                domain.nodes = nodes.into();
            }
        }
    }

    /// The level of a label or alias.
    pub(super) fn level(&self, name: &str) -> Option<usize> {
        let mut named = self.levels.iter().enumerate().skip(1);
        let by_label = named.clone().find(|(_, level)| level.label == name);
        by_label.or_else(|| named.find(|(_, level)| level.alias.as_deref() == Some(name))).map(|(index, _)| index)
    }

    /// A domain.
    pub(super) fn domain(&self, at: At) -> &Domain {
        &self.levels[at.level].domains[at.domain]
    }

    /// The domain above at a level, or the domain itself if it is not below that level.
    pub(super) fn ancestor(&self, mut at: At, level: usize) -> At {
        while at.level > level {
            at = At { level: at.level - 1, domain: self.domain(at).parent as usize };
        }
        at
    }

    /// The domains of a level that are inside a domain: a range, for they are neighbours.
    pub(super) fn inside(&self, at: At, level: usize) -> Range<usize> {
        let mut range = at.domain..at.domain + 1;
        for above in at.level..level {
            let domains = &self.levels[above].domains[range];
            let Some((first, last)) = domains.first().zip(domains.last()) else { return 0..0 };
            range = first.children.start..last.children.end;
        }
        range
    }

    /// The domain of a node at the last level, even if the node takes no pods.
    pub(super) fn leaf(&self, node: NodeId) -> Option<At> {
        let leaf = self.leaves.get(node.index()).copied().filter(|leaf| *leaf != NONE)?;
        Some(At { level: self.levels.len() - 1, domain: leaf as usize })
    }

    /// The place of a node that belongs and takes pods.
    pub(super) fn place_of(&self, node: NodeId) -> Option<usize> {
        self.places.get(node.index()).copied().filter(|place| *place != NONE).map(|place| place as usize)
    }

    /// The nodes of a domain that take pods.
    pub(super) fn node_set(&self, at: At) -> NodeSet {
        let domain = self.domain(at);
        NodeSet::span(Arc::clone(&domain.nodes), &self.places, domain.span.0, domain.span.1)
    }

    /// Whether a domain has nodes that take pods.
    pub(super) fn has_nodes(&self, at: At) -> bool {
        !self.domain(at).nodes.is_empty()
    }

    /// Whether all nodes of a domain are in one domain of the level below.
    pub(super) fn has_one_part(&self, at: At) -> bool {
        let span = self.domain(at).span;
        let first = self.nodes.get(span.0 as usize).filter(|_| span.0 < span.1);
        let part = first.and_then(|node| self.leaf(*node)).map(|leaf| self.ancestor(leaf, at.level + 1));
        part.is_some_and(|part| part.level > at.level && self.domain(part).span == span)
    }

    /// The deepest domain, at most at a level, with exactly this set of nodes, if the set is a domain's.
    pub(super) fn domain_of(&self, set: &NodeSet, last: usize) -> Option<At> {
        let (start, end) = set.span_of(&self.places).filter(|(start, end)| start < end)?;
        let leaf = self.leaf(self.nodes[start as usize])?;
        let mut levels = (0..=last).rev().map(|level| self.ancestor(leaf, level));
        levels.find(|at| self.domain(*at).span == (start, end))
    }

    /// Label values from the top, joined with dots.
    pub(super) fn name(&self, cluster: &Cluster, at: At) -> String {
        let path: Vec<&str> =
            (1..=at.level).map(|level| cluster.word(self.domain(self.ancestor(at, level)).value)).collect();
        path.join(".")
    }
}

/// A domain's place in its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) level: usize,
    pub(super) domain: usize,
}

impl At {
    /// The domain of all nodes.
    pub(super) const ROOT: Self = Self { level: 0, domain: 0 };
}

impl Domain {
    fn new(value: Word, parent: u32, children: usize, place: u32) -> Self {
        Self { value, parent, children: children..children, span: (place, place), nodes: Arc::default() }
    }
}

/// The label values of each level, in the order of their texts.
struct Values {
    keys: Vec<Option<Word>>,
    levels: Vec<Vec<Word>>,
    /// By word: its rank at the level it was last ranked for, so one table per level.
    ranks: Vec<Vec<u32>>,
}

impl Values {
    fn new(cluster: &Cluster, topology: &delta::Topology) -> Self {
        let keys: Vec<_> = topology.levels.iter().map(|level| cluster.words.find(&level.label)).collect();
        let mut values = Self { levels: Vec::new(), ranks: Vec::new(), keys };
        for key in &values.keys {
            let Some(key) = *key else { return Self { keys: vec![None], ..values } };
            let nodes = cluster.nodes.iter().filter(|node| node.exists);
            let mut words: Vec<Word> = nodes.filter_map(|node| node.label(key)).collect();
            words.sort_unstable();
            words.dedup();
            let largest = words.last().map_or(0, |word| word.index() + 1);
            words.sort_unstable_by(|a, b| cluster.word(*a).cmp(cluster.word(*b)));
            let mut ranks = vec![NONE; largest];
            for (rank, word) in words.iter().enumerate() {
                ranks[word.index()] = number(rank);
            }
            values.levels.push(words);
            values.ranks.push(ranks);
        }
        values
    }

    /// The nodes that have all labels, in the order of the tree.
    fn members(&self, cluster: &Cluster) -> Vec<Member> {
        let nodes = cluster.nodes.iter().enumerate().filter(|(_, node)| node.exists);
        let mut members: Vec<Member> = nodes
            .filter_map(|(index, node)| {
                let ranks = self.keys.iter().enumerate().map(|(level, key)| {
                    let word = node.label((*key)?)?;
                    self.ranks[level].get(word.index()).copied()
                });
                Some(Member { path: ranks.collect::<Option<_>>()?, node: NodeId::of(index) })
            })
            .collect();
        members.sort_by(|a, b| {
            let rank = |member: &Member| cluster.nodes[member.node.index()].rank;
            a.path.cmp(&b.path).then_with(|| rank(a).cmp(&rank(b)))
        });
        members
    }

    fn word(&self, level: usize, rank: u32) -> Word {
        self.levels[level][rank as usize]
    }
}

/// An index as it is stored: there are fewer than 2³² nodes.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NONE)
}
