//! How packed each domain is for one need, kept up to date from the journal.
//!
//! A domain's *capacity* is how many times the need goes into what is free there, by the scarcest resource; the smaller it is, the more
//! packed the domain would be. Siblings are kept in the order of capacity, then of label value: the most packed ones come first. Since no
//! domain takes more pods than its capacity, those that are too full are skipped by one binary search.

use std::ops::ControlFlow;

use super::{
    need::{Axis, Need},
    ratio::Ratio,
    tree::{At, Tree},
};
use crate::{amounts::Resource, cluster::Cluster, ids::NodeId, journal::Bookmark};

/// How packed domains are for a need.
#[derive(Debug)]
pub(super) struct Packing {
    pub(super) need: Need,
    axes: Vec<Axis>,
    bookmark: Bookmark,
    /// By place, for each axis: what the node has free.
    free: Vec<i64>,
    /// By place: how many pods the node takes.
    pods: Vec<u32>,
    layers: Vec<Layer>,
}

/// The domains of one level.
#[derive(Debug, Default, PartialEq)]
struct Layer {
    /// By domain, for each axis: what is free.
    free: Vec<i128>,
    /// By domain: how many pods it takes.
    pods: Vec<u64>,
    /// By domain.
    capacity: Vec<Ratio>,
    /// The domains; children of one parent stay together, the most packed first.
    order: Vec<u32>,
}

impl Packing {
    /// Measures every node.
    pub(super) fn new(cluster: &Cluster, tree: &Tree, need: Need) -> Self {
        let mut packing = Self {
            axes: need.axes(),
            need,
            bookmark: cluster.journal.end(),
            free: Vec::new(),
            pods: Vec::new(),
            layers: Vec::new(),
        };
        packing.rebuild(cluster, tree);
        packing
    }

    /// Takes over what happened to nodes since the last time.
    pub(super) fn catch_up(&mut self, cluster: &Cluster, tree: &Tree) {
        let end = cluster.journal.end();
        let bookmark = std::mem::replace(&mut self.bookmark, end);
        if bookmark == end {
            return;
        }
        let Some(changed) = cluster.journal.since(bookmark) else { return self.rebuild(cluster, tree) };
        let mut stale: Vec<(usize, usize)> = Vec::new();
        for node in changed {
            self.remeasure(cluster, tree, *node, &mut stale);
        }
        stale.sort_unstable();
        stale.dedup();
        for (level, domain) in stale {
            self.reorder(tree, At { level, domain });
        }
    }

    fn rebuild(&mut self, cluster: &Cluster, tree: &Tree) {
        self.free.clear();
        self.pods.clear();
        let width = self.axes.len();
        self.layers.clear();
        self.layers.extend(tree.levels.iter().map(|level| {
            let count = level.domains.len();
            Layer { free: vec![0; count * width], pods: vec![0; count], ..Layer::default() }
        }));
        for node in &tree.nodes {
            let (free, pods) = self.need.measure(&self.axes, &cluster.nodes[node.index()]);
            if let Some(leaf) = tree.leaf(*node) {
                let layer = &mut self.layers[leaf.level];
                layer.pods[leaf.domain] += u64::from(pods);
                for (sum, free) in layer.free[leaf.domain * width..].iter_mut().zip(&free) {
                    *sum += i128::from(*free);
                }
            }
            self.free.extend(free);
            self.pods.push(pods);
        }
        for level in (1..self.layers.len()).rev() {
            self.sum_up(tree, level);
        }
        for level in 0..self.layers.len() {
            self.sort(tree, level);
        }
    }

    /// Adds the domains of a level to their parents.
    fn sum_up(&mut self, tree: &Tree, level: usize) {
        let width = self.axes.len();
        let (above, below) = self.layers.split_at_mut(level);
        let (Some(above), Some(below)) = (above.last_mut(), below.first()) else { return };
        for (parent, domain) in tree.levels[level - 1].domains.iter().enumerate() {
            for child in domain.children.clone() {
                above.pods[parent] += below.pods[child];
                for axis in 0..width {
                    above.free[parent * width + axis] += below.free[child * width + axis];
                }
            }
        }
    }

    /// Puts the domains of a level in order.
    fn sort(&mut self, tree: &Tree, level: usize) {
        let count = tree.levels[level].domains.len();
        let capacity = (0..count).map(|domain| self.capacity_now(At { level, domain })).collect();
        let layer = &mut self.layers[level];
        layer.capacity = capacity;
        layer.order = (0..count).map(|domain| u32::try_from(domain).unwrap_or(u32::MAX)).collect();
        let families: Vec<_> = match level {
            0 => Vec::new(),
            _ => tree.levels[level - 1].domains.iter().map(|parent| parent.children.clone()).collect(),
        };
        for family in families {
            let capacity = &layer.capacity;
            layer.order[family].sort_by_key(|domain| (capacity[*domain as usize], *domain));
        }
    }

    /// Measures a node again and notes which domains changed.
    fn remeasure(&mut self, cluster: &Cluster, tree: &Tree, node: NodeId, stale: &mut Vec<(usize, usize)>) {
        let (Some(place), Some(leaf)) = (tree.place_of(node), tree.leaf(node)) else { return };
        let width = self.axes.len();
        let (free, pods) = self.need.measure(&self.axes, &cluster.nodes[node.index()]);
        let known = &mut self.free[place * width..(place + 1) * width];
        if known == free.as_slice() && self.pods[place] == pods {
            return;
        }
        for level in 0..self.layers.len() {
            let domain = tree.ancestor(leaf, level).domain;
            let layer = &mut self.layers[level];
            layer.pods[domain] = layer.pods[domain] + u64::from(pods) - u64::from(self.pods[place]);
            for (axis, sum) in layer.free[domain * width..(domain + 1) * width].iter_mut().enumerate() {
                *sum += i128::from(free[axis]) - i128::from(known[axis]);
            }
            stale.push((level, domain));
        }
        known.copy_from_slice(&free);
        self.pods[place] = pods;
    }

    /// Moves a domain to its place among its siblings.
    fn reorder(&mut self, tree: &Tree, at: At) {
        let capacity = self.capacity_now(at);
        let family = match at.level {
            0 => 0..1,
            level => tree.domain(tree.ancestor(at, level - 1)).children.clone(),
        };
        let layer = &mut self.layers[at.level];
        let Layer { capacity: known, order, .. } = layer;
        let order = &mut order[family];
        let before = |other: u32, capacity: Ratio| (known[other as usize], other as usize) < (capacity, at.domain);
        let from = order.partition_point(|other| before(*other, known[at.domain]));
        if from < order.len() {
            let behind = order[from + 1..].partition_point(|other| before(*other, capacity));
            if behind > 0 {
                order[from..=from + behind].rotate_left(1);
            } else {
                let to = order[..from].partition_point(|other| before(*other, capacity));
                order[to..=from].rotate_right(1);
            }
        }
        known[at.domain] = capacity;
    }

    /// The capacity of a domain by its sums.
    fn capacity_now(&self, at: At) -> Ratio {
        let free = self.free_of(at);
        self.axes.iter().zip(free).map(|(axis, free)| axis.capacity(*free)).min().unwrap_or(Ratio::INFINITE)
    }

    fn free_of(&self, at: At) -> &[i128] {
        let width = self.axes.len();
        &self.layers[at.level].free[at.domain * width..(at.domain + 1) * width]
    }

    /// How many pods a domain takes, if they are alike.
    pub(super) fn pods(&self, at: At) -> Option<u64> {
        matches!(self.need, Need::Alike { .. }).then(|| self.layers[at.level].pods[at.domain])
    }

    /// What a domain is short of.
    pub(super) fn shortage(&self, at: At) -> Option<Resource> {
        let short = self.axes.iter().zip(self.free_of(at)).find(|(axis, free)| axis.is_short(**free));
        short.map(|(axis, _)| axis.resource())
    }

    /// Whether a domain has room for `count` pods that are alike, or for all that are mixed.
    pub(super) fn fits(&self, at: At, count: u64) -> bool {
        match self.need {
            Need::Alike { .. } => self.layers[at.level].pods[at.domain] >= count,
            Need::Mixed(_) => self.layers[at.level].capacity[at.domain] >= Ratio::whole(1),
        }
    }

    /// Visits the domains of a level that have room and are inside `at`, the most packed first. No domain has more room than the one it
    /// is part of, so whole branches are left out.
    pub(super) fn visit(
        &self,
        tree: &Tree,
        at: At,
        level: usize,
        count: u64,
        visitor: &mut impl FnMut(At) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if !self.fits(at, count) {
            return ControlFlow::Continue(());
        }
        if at.level >= level {
            return visitor(at);
        }
        let below = &self.layers[at.level + 1];
        let family = &below.order[tree.domain(at).children.clone()];
        let least = Ratio::whole(if matches!(self.need, Need::Alike { .. }) { count } else { 1 });
        let first = family.partition_point(|domain| below.capacity[*domain as usize] < least);
        for domain in &family[first..] {
            self.visit(tree, At { level: at.level + 1, domain: *domain as usize }, level, count, visitor)?;
        }
        ControlFlow::Continue(())
    }

    /// All domains of a level inside `at`, the most packed first.
    pub(super) fn ordered(&self, tree: &Tree, at: At, level: usize) -> Vec<usize> {
        let mut domains = vec![at.domain];
        for above in at.level..level {
            let order = &self.layers[above + 1].order;
            let families = domains.iter().map(|domain| &order[tree.levels[above].domains[*domain].children.clone()]);
            domains = families.flatten().map(|domain| *domain as usize).collect();
        }
        domains
    }

    /// Whether both know the same.
    #[cfg(test)]
    pub(super) fn agrees(&self, other: &Self) -> bool {
        self.free == other.free && self.pods == other.pods && self.layers == other.layers
    }
}
