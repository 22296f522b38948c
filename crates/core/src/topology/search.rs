//! The search for domains with room.

use std::{ops::ControlFlow, sync::Arc, vec};

use fixedbitset::FixedBitSet;

use super::{
    Ask, NodeSet, Trees,
    need::Need,
    packing::Packing,
    tree::{At, Tree},
};
use crate::{
    cluster::Cluster,
    ids::NodeId,
    plan::{Cause, DomainRefusal},
};

/// Node sets to try, best first. The first is known at once; the others are looked up when it did not do.
#[derive(Debug)]
pub struct Subsets {
    /// Which nodes to prefer, where the constraint has a preferred level.
    pub bands: Option<Bands>,
    first: Option<NodeSet>,
    /// The search that found the first set, and the domain it found.
    search: Option<Box<(Search, At)>>,
    /// The other domains, once they are looked up.
    others: Option<vec::IntoIter<At>>,
}

/// How much to prefer each node: the nodes of one domain of the preferred level are equal, and emptier domains are preferred so that pods
/// that cannot be together in a full one are together in an empty one.
#[derive(Clone, Debug)]
pub struct Bands {
    tree: Arc<Tree>,
    level: usize,
    /// The first domain with a band.
    first: usize,
    by_domain: Vec<u8>,
}

/// The levels a constraint names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Levels {
    required: Option<usize>,
    preferred: Option<usize>,
    /// The deepest one: where the search begins.
    deepest: usize,
}

/// What is looked for where.
#[derive(Debug)]
pub(super) struct Search {
    place: usize,
    tree: Arc<Tree>,
    need: Need,
    count: u64,
    levels: Levels,
    /// The deepest domain that holds all nodes to choose from.
    common: At,
    /// The domains of the required level that hold pods of the subgroup, if there are any such pods.
    held: Option<Vec<usize>>,
    scope: Scope,
}

/// Which nodes of the common domain may be chosen.
#[derive(Debug)]
enum Scope {
    /// All of them.
    All,
    /// Those of a set; for each level the domains that have some.
    Part(NodeSet, Vec<FixedBitSet>),
}

impl Subsets {
    /// Only this set.
    pub(super) fn only(set: NodeSet) -> Self {
        Self { bands: None, first: Some(set), search: None, others: None }
    }

    /// The next best set. What was tried in the last one must have been rolled back.
    pub fn next(&mut self, trees: &mut Trees, cluster: &Cluster) -> Option<NodeSet> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let (search, first) = &**self.search.as_ref()?;
        if self.others.is_none() {
            let packing = trees.packing(cluster, search.place, &search.tree, &search.need)?;
            let mut domains = search.candidates(packing);
            let tried = domains.iter().position(|at| at == first).map_or(0, |place| place + 1);
            domains.drain(..tried);
            self.others = Some(domains.into_iter());
        }
        self.others.as_mut()?.next().map(|at| search.node_set(at))
    }
}

impl Bands {
    /// From 0 to 10: the more, the better.
    #[must_use]
    pub fn band(&self, node: NodeId) -> u8 {
        let Some(leaf) = self.tree.leaf(node) else { return 0 };
        let domain = self.tree.ancestor(leaf, self.level).domain;
        domain.checked_sub(self.first).and_then(|place| self.by_domain.get(place)).copied().unwrap_or(0)
    }
}

impl Levels {
    pub(super) fn new(tree: &Tree, ask: &Ask<'_>) -> Result<Self, Cause> {
        let constraint = ask.constraint;
        let who = if ask.subgroup.is_empty() { "workload".to_owned() } else { format!("sub-group `{}`", ask.subgroup) };
        let find = |kind: &str, name: &Option<String>| match name.as_deref().filter(|name| !name.is_empty()) {
            None => Ok(None),
            Some(name) => tree.level(name).map(Some).ok_or_else(|| {
                Cause::TopologyUnknown(format!(
                    "{who} names `{name}` as its {kind} level, but topology `{}` does not contain a level of this name",
                    constraint.topology
                ))
            }),
        };
        let required = find("required", &constraint.required)?;
        let preferred = find("preferred", &constraint.preferred)?;
        match (required, preferred) {
            (Some(required), Some(preferred)) if preferred < required => Err(Cause::TopologyUnknown(format!(
                "{who} prefers level `{}` of topology `{}`, which is wider than its required level `{}`",
                tree.levels[preferred].label, constraint.topology, tree.levels[required].label
            ))),
            (None, None) => Err(Cause::TopologyUnknown(format!(
                "{who} names topology `{}` but neither a required nor a preferred level",
                constraint.topology
            ))),
            (_, Some(deepest)) | (Some(deepest), None) => Ok(Self { required, preferred, deepest }),
        }
    }

    /// The levels to search inside a domain, the deepest first. Where the domain is deeper than a level it stands for it: whatever it
    /// holds is in one domain of that level.
    fn inside(self, common: At) -> impl Iterator<Item = usize> {
        (self.top(common)..=self.deepest.max(common.level)).rev()
    }

    fn top(self, common: At) -> usize {
        self.required.unwrap_or(0).max(common.level)
    }
}

impl Scope {
    /// The deepest domain, at most at level `last`, that holds all nodes to choose from, and which of its nodes these are.
    fn new(tree: &Tree, within: Option<&NodeSet>, last: usize) -> (At, Self) {
        let Some(within) = within else { return (narrow(tree, At::ROOT, last, |_| true), Self::All) };
        if let Some(domain) = tree.domain_of(within, last) {
            return (domain, Self::All);
        }
        let touched = touched(tree, within);
        let common = narrow(tree, At::ROOT, last, |at| touched[at.level].contains(at.domain));
        (common, Self::Part(within.clone(), touched))
    }
}

impl Search {
    pub(super) fn new(
        cluster: &Cluster,
        place: usize,
        tree: Arc<Tree>,
        levels: Levels,
        ask: &Ask<'_>,
    ) -> Result<Self, Cause> {
        let last = levels.preferred.unwrap_or(tree.levels.len() - 1);
        let (common, scope) = Scope::new(&tree, ask.within, last);
        let held = levels.required.filter(|_| !ask.holding.is_empty()).map(|required| {
            let leaves = ask.holding.iter().filter_map(|node| tree.leaf(*node));
            let mut held: Vec<usize> = leaves.map(|leaf| tree.ancestor(leaf, required).domain).collect();
            held.sort_unstable();
            held.dedup();
            held
        });
        let need = Need::new(cluster, ask.tasks, tree.largest_memory);
        let search = Self { place, need, count: ask.tasks.len() as u64, levels, common, held, scope, tree };
        if search.is_touched(At::ROOT) { Ok(search) } else { Err(search.refusal(ask, Vec::new())) }
    }

    /// The sets, or why there are none.
    pub(super) fn run(self, trees: &mut Trees, cluster: &Cluster, ask: &Ask<'_>) -> Result<Subsets, Cause> {
        let Some(packing) = trees.packing(cluster, self.place, &self.tree, &self.need) else {
            return Err(self.refusal(ask, Vec::new()));
        };
        if !packing.fits(self.common, self.count) {
            return Err(self.refusal(ask, Vec::new()));
        }
        let mut first = None;
        let _ = self.visit(packing, &mut |at| {
            first = Some(at);
            ControlFlow::Break(())
        });
        let Some(first) = first else {
            let domains = self.refusals(cluster, packing);
            return Err(self.refusal(ask, domains));
        };
        let bands = self.levels.preferred.map(|level| self.bands(packing, level));
        let set = self.node_set(first);
        Ok(Subsets { bands, first: Some(set), search: Some(Box::new((self, first))), others: None })
    }

    /// Visits the domains to try, best first.
    fn visit(&self, packing: &Packing, visitor: &mut impl FnMut(At) -> ControlFlow<()>) -> ControlFlow<()> {
        let roots = self.roots(packing);
        let deepest = self.levels.deepest.max(self.common.level);
        for level in self.levels.inside(self.common) {
            for root in &roots {
                packing.visit(&self.tree, *root, level, self.count, &mut |at| {
                    // A domain with the nodes of one of its parts was tried as that part.
                    let known = at.level < deepest && self.tree.has_one_part(at);
                    if known || !self.is_touched(at) { ControlFlow::Continue(()) } else { visitor(at) }
                })?;
            }
        }
        ControlFlow::Continue(())
    }

    /// All domains to try, best first.
    fn candidates(&self, packing: &Packing) -> Vec<At> {
        let mut domains = Vec::new();
        let _ = self.visit(packing, &mut |at| {
            domains.push(at);
            ControlFlow::Continue(())
        });
        domains
    }

    /// The domains inside which to search: the common one, or those of the required level that already hold pods of the subgroup.
    fn roots(&self, packing: &Packing) -> Vec<At> {
        let (Some(held), Some(required)) = (&self.held, self.levels.required) else { return vec![self.common] };
        if self.common.level >= required {
            let above = self.tree.ancestor(self.common, required).domain;
            return if held.contains(&above) { vec![self.common] } else { Vec::new() };
        }
        let inside = self.tree.inside(self.common, required);
        let mut roots: Vec<usize> = held.iter().copied().filter(|domain| inside.contains(domain)).collect();
        if roots.len() > 1 {
            roots = packing.ordered(&self.tree, self.common, required);
            roots.retain(|domain| held.binary_search(domain).is_ok());
        }
        roots.into_iter().map(|domain| At { level: required, domain }).collect()
    }

    fn is_touched(&self, at: At) -> bool {
        match &self.scope {
            Scope::All => self.tree.has_nodes(at),
            Scope::Part(_, touched) => touched[at.level].contains(at.domain),
        }
    }

    fn node_set(&self, at: At) -> NodeSet {
        let set = self.tree.node_set(at);
        match &self.scope {
            Scope::All => set,
            Scope::Part(within, _) => set.intersection(within),
        }
    }

    fn bands(&self, packing: &Packing, level: usize) -> Bands {
        let order = packing.ordered(&self.tree, self.common, level);
        let first = order.iter().copied().min().unwrap_or(0);
        let mut by_domain = vec![0; order.len()];
        for (before, domain) in order.iter().enumerate() {
            by_domain[domain - first] = u8::try_from(10 * (before + 1) / order.len()).unwrap_or(10);
        }
        Bands { tree: Arc::clone(&self.tree), level, first, by_domain }
    }

    /// What each domain of the widest level lacks, in the order of their names.
    fn refusals(&self, cluster: &Cluster, packing: &Packing) -> Vec<DomainRefusal> {
        let (level, domains) = if let (Some(held), Some(required)) = (&self.held, self.levels.required) {
            (required, held.clone())
        } else {
            let level = self.levels.top(self.common);
            (level, self.tree.inside(self.common, level).collect())
        };
        let needed = u32::try_from(self.count).unwrap_or(u32::MAX);
        let refusals = domains.into_iter().map(|domain| {
            let at = At { level, domain };
            let pods = packing.pods(at).map(|pods| if self.is_reachable(at) { pods } else { 0 });
            DomainRefusal {
                domain: self.tree.name(cluster, at),
                pods: pods.map(|pods| u32::try_from(pods).unwrap_or(u32::MAX)),
                needed,
                short: if pods.is_none() { packing.shortage(at) } else { None },
            }
        });
        refusals.collect()
    }

    /// Whether a domain has nodes that may be chosen.
    fn is_reachable(&self, at: At) -> bool {
        let level = at.level.min(self.common.level);
        self.is_touched(at) && self.tree.ancestor(at, level) == self.tree.ancestor(self.common, level)
    }

    fn refusal(&self, ask: &Ask<'_>, domains: Vec<DomainRefusal>) -> Cause {
        let level = self.levels.required.unwrap_or(self.levels.deepest);
        Cause::Topology {
            subgroup: ask.subgroup.to_owned(),
            topology: ask.constraint.topology.clone(),
            level: self.tree.levels[level].label.clone(),
            domains,
        }
    }
}

/// Goes down as long as there is only one way, at most to a level.
fn narrow(tree: &Tree, mut at: At, last: usize, has_nodes: impl Fn(At) -> bool) -> At {
    while at.level < last {
        let children = tree.domain(at).children.clone().map(|domain| At { level: at.level + 1, domain });
        let mut ways = children.filter(|child| has_nodes(*child));
        match (ways.next(), ways.next()) {
            (Some(only), None) => at = only,
            _ => break,
        }
    }
    at
}

/// For each level the domains that have nodes of a set.
fn touched(tree: &Tree, set: &NodeSet) -> Vec<FixedBitSet> {
    let mut touched: Vec<_> = tree.levels.iter().map(|level| FixedBitSet::with_capacity(level.domains.len())).collect();
    for node in set.nodes() {
        let Some(leaf) = tree.leaf(*node).filter(|_| tree.place_of(*node).is_some()) else { continue };
        for level in (0..=leaf.level).rev() {
            // Whatever is above a touched domain is touched too.
            if touched[level].put(tree.ancestor(leaf, level).domain) {
                break;
            }
        }
    }
    touched
}
