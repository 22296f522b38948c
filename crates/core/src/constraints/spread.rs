//! Even spread of pods over domains.
//!
//! Only nodes that have the keys of all constraints of a kind (hard or soft) count, and of those only the ones the
//! constraint's policies admit. Pods that leave do not count, and neither does anybody if the selector is empty:
//! kube-scheduler's reading of it.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

use crate::{
    cluster::{Cluster, node::Node, pod::Pod, status::Status, words::Words},
    constraints::{
        Compiled,
        domain::counts,
        selector::{PodMatch, Requirement, requirements},
    },
    delta::{self, WhenUnsatisfiable},
    ids::{NodeId, Word},
};

/// A spread constraint in words.
#[derive(Clone, Debug)]
pub(crate) struct SpreadRule {
    pub(crate) hard: bool,
    pub(crate) key: Word,
    max_skew: i64,
    min_domains: usize,
    requirements: Option<Box<[Requirement]>>,
    honor_node_affinity: bool,
    honor_taints: bool,
}

/// How pods are spread by one constraint of one class in one namespace.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// Which pods it speaks of.
    pub(crate) pods: PodMatch,
    key: Word,
    /// Whether an empty selector keeps it from counting anybody.
    idle: bool,
    /// Pods that count, by node; `None` until somebody asks.
    by_node: Option<Vec<u32>>,
    domains: Option<Domains>,
}

/// The domains at one state of the nodes.
#[derive(Clone, Debug)]
struct Domains {
    version: u64,
    eligible: FixedBitSet,
    counts: BTreeMap<Word, u32>,
    /// How many domains have how many pods.
    histogram: BTreeMap<u32, u32>,
}

/// Whether a pod counts for spreading: it counts where it is, and it stays.
pub(crate) fn stays(pod: &Pod) -> bool {
    counts(pod) && !matches!(pod.place.status, Status::Releasing | Status::Stuck)
}

impl SpreadRule {
    /// Compiles a constraint.
    pub(crate) fn new(constraint: &delta::SpreadConstraint, words: &mut Words) -> Self {
        Self {
            hard: constraint.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule,
            key: words.intern(&constraint.topology_key),
            max_skew: i64::from(constraint.max_skew),
            min_domains: constraint.min_domains.map_or(1, |domains| domains as usize),
            requirements: requirements(constraint.selector.as_ref(), words),
            honor_node_affinity: constraint.honor_node_affinity,
            honor_taints: constraint.honor_taints,
        }
    }

    fn admits(&self, compiled: &Compiled, node: &Node, words: &Words) -> bool {
        node.exists
            && compiled.spread.iter().all(|other| other.hard != self.hard || node.label(other.key).is_some())
            && (!self.honor_node_affinity || compiled.wants_node(node, words))
            && (!self.honor_taints || compiled.forbidding_taint(node).is_none())
    }
}

impl Spread {
    /// The spread of a namespace's pods, not counted yet.
    pub(crate) fn new(rule: &SpreadRule, namespace: Word) -> Self {
        Self {
            pods: PodMatch::within(namespace, rule.requirements.as_deref()),
            key: rule.key,
            idle: rule.requirements.as_ref().is_none_or(|requirements| requirements.is_empty()),
            by_node: None,
            domains: None,
        }
    }

    /// Whether pods are counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.by_node.is_some() && !self.idle
    }

    /// Begins to count pods; whether there is anything to count that was not before.
    pub(crate) fn begin(&mut self) -> bool {
        let new = self.by_node.is_none();
        self.by_node.get_or_insert_default();
        new && !self.idle
    }

    /// Adds (1) or takes back (−1) a pod on a node.
    pub(crate) fn add(&mut self, cluster: &Cluster, node: NodeId, times: i64) {
        let by_node = self.by_node.get_or_insert_default();
        if by_node.len() <= node.index() {
            by_node.resize(node.index() + 1, 0);
        }
        by_node[node.index()] = moved(by_node[node.index()], times);
        let domains = self.domains.as_mut().filter(|domains| domains.version == cluster.nodes_version);
        if let (Some(domains), Some(described)) = (domains, cluster.nodes.get(node.index())) {
            domains.add(described.label(self.key).filter(|_| domains.eligible.contains(node.index())), times);
        }
    }

    /// Arranges what was counted by domains, if nodes have changed.
    pub(crate) fn arrange(&mut self, rule: &SpreadRule, compiled: &Compiled, cluster: &Cluster) {
        if self.domains.as_ref().is_none_or(|domains| domains.version != cluster.nodes_version) {
            let by_node = self.by_node.as_deref().unwrap_or_default();
            self.domains = Some(Domains::new(rule, compiled, cluster, by_node));
        }
    }

    /// Whether one more pod on the node keeps the spread even.
    pub(crate) fn allows(&self, rule: &SpreadRule, node: &Node, joins: bool) -> bool {
        let (Some(domains), Some(domain)) = (&self.domains, node.label(rule.key)) else { return false };
        let least = if domains.counts.len() < rule.min_domains { 0 } else { domains.least() };
        i64::from(domains.of(domain)) + i64::from(joins) - i64::from(least) <= rule.max_skew
    }

    /// Pods that count in the node's domain; a node outside all domains is worse than the fullest.
    pub(crate) fn crowd(&self, rule: &SpreadRule, node: &Node) -> u32 {
        let Some(domains) = &self.domains else { return 0 };
        let most = || domains.histogram.last_key_value().map_or(0, |(count, _)| count.saturating_add(1));
        node.label(rule.key).map_or_else(most, |domain| domains.of(domain))
    }
}

impl Domains {
    fn new(rule: &SpreadRule, compiled: &Compiled, cluster: &Cluster, by_node: &[u32]) -> Self {
        let mut eligible = FixedBitSet::with_capacity(cluster.nodes.len());
        let mut counts: BTreeMap<Word, u32> = BTreeMap::new();
        for (place, node) in cluster.nodes.iter().enumerate() {
            let Some(domain) = node.label(rule.key).filter(|_| rule.admits(compiled, node, &cluster.words)) else {
                continue;
            };
            eligible.insert(place);
            *counts.entry(domain).or_default() += by_node.get(place).copied().unwrap_or(0);
        }
        let mut histogram = BTreeMap::new();
        for count in counts.values() {
            *histogram.entry(*count).or_default() += 1;
        }
        Self { version: cluster.nodes_version, eligible, counts, histogram }
    }

    fn add(&mut self, domain: Option<Word>, times: i64) {
        let Some(count) = domain.and_then(|domain| self.counts.get_mut(&domain)) else { return };
        if let Some(domains) = self.histogram.get_mut(count) {
            *domains -= 1;
            if *domains == 0 {
                self.histogram.remove(count);
            }
        }
        *count = moved(*count, times);
        *self.histogram.entry(*count).or_default() += 1;
    }

    fn of(&self, domain: Word) -> u32 {
        self.counts.get(&domain).copied().unwrap_or(0)
    }

    fn least(&self) -> u32 {
        self.histogram.first_key_value().map_or(0, |(count, _)| *count)
    }
}

fn moved(count: u32, times: i64) -> u32 {
    count.saturating_add_signed(i32::try_from(times).unwrap_or(0))
}
