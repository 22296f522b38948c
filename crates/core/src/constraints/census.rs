//! Who is where, as the rules between pods ask it: a cache that reads the journal, so that asking a node costs the same
//! however many pods and nodes there are.
//!
//! ```text
//!   journal ─▶ pods that moved ─▶ what each contributes ─▶ sums per domain, ports per node, holders of claims
//!                                                            ▲
//!   prepare(pod): reads on, and counts what the class asks for the first time
//! ```
//!
//! A pod's contribution is written down when it is counted; when the pod moves it is taken back and counted anew. A node that
//! changes takes its pods out and in again, so they are among those that moved.
//! After [`Census::prepare`] questions about that pod are answered as the cluster was then: prepare again after each
//! change.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    cluster::{Cluster, pod::Pod},
    constraints::{
        Compiled,
        domain::{DomainCounts, Filing, Rule, counts},
        port::Port,
        spread::{Spread, stays},
    },
    delta::TaintEffect,
    ids::{ClassId, NodeId, PodId, Word},
    journal::Bookmark,
};

/// Who is where.
#[derive(Debug, Default)]
pub struct Census {
    /// How far the journal was read; `None`: not at all.
    read: Option<Bookmark>,
    pub(super) rules: Vec<Entry>,
    rule_ids: FxHashMap<Rule, u32>,
    rules_by_label: Filing,
    pub(super) spreads: Vec<Spread>,
    spreads_by_label: Filing,
    pub(super) enrolled: FxHashMap<(ClassId, Word), Arc<Enrolled>>,
    /// The rules that speak of a pod, by namespace and label set.
    pub(super) spoken_of: FxHashMap<(Word, u32), Box<[u32]>>,
    /// What pods contribute; those that contribute nothing are not listed.
    records: FxHashMap<PodId, Record>,
    /// The ports that pods take, by node.
    pub(super) ports: FxHashMap<NodeId, Vec<Port>>,
    pub(super) claims: FxHashMap<Word, u32>,
    /// Nodes with taints that only discourage, at a state of the nodes.
    pub(super) discouraged: (u64, Vec<NodeId>),
}

/// A rule and its sums.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) rule: Rule,
    /// `None` until somebody asks.
    pub(super) matching: Option<DomainCounts>,
    pub(super) repelling: DomainCounts,
    pub(super) pulling: DomainCounts,
}

/// The rules of a class in a namespace, by their numbers, in the order of the class.
#[derive(Debug)]
pub(super) struct Enrolled {
    pub(super) affinity: Box<[u32]>,
    pub(super) anti_affinity: Box<[u32]>,
    pub(super) preferred: Box<[(i32, u32)]>,
    /// The first of its spreads; the others follow.
    pub(super) spread: usize,
}

/// What a pod contributes, and where.
#[derive(Debug)]
struct Record {
    node: NodeId,
    contributions: SmallVec<[Contribution; 1]>,
}

#[derive(Clone, Copy, Debug)]
enum Contribution {
    Matching(u32, Word),
    Repelling(u32, Word),
    Pulling(u32, Word, i32),
    Spread(u32),
    Claim(Word),
    Port(Port),
}

/// Enough for the pending pods of a large cluster; beyond it the list starts anew.
const MOST_SPOKEN_OF: usize = 16_384;

impl Census {
    /// Gets ready for questions about a pod as the cluster now is.
    pub fn prepare(&mut self, cluster: &Cluster, pod: PodId) {
        self.catch_up(cluster);
        let Some(known) = cluster.pods.get(pod.index()) else { return };
        let constraints = &cluster.classes.get(known.class).constraints;
        let enrolled = self.enrol(known, constraints);
        self.list_rules(cluster, pod);
        if let Some(enrolled) = enrolled {
            let preferred = enrolled.preferred.iter().map(|(_, rule)| rule);
            for rule in enrolled.affinity.iter().chain(&enrolled.anti_affinity).chain(preferred) {
                self.count_rule(cluster, *rule);
            }
            for (index, rule) in constraints.spread.iter().enumerate() {
                self.count_spread(cluster, enrolled.spread + index);
                self.spreads[enrolled.spread + index].arrange(rule, constraints, cluster);
            }
        }
    }

    /// Counts the pods that moved since the last time.
    pub fn catch_up(&mut self, cluster: &Cluster) {
        if let Some(moved) = self.read.and_then(|bookmark| cluster.moves.since(bookmark)) {
            for pod in moved {
                self.recount(cluster, *pod);
            }
        } else {
            *self = Self::default();
            (0..cluster.pods.len()).for_each(|pod| self.count_pod(cluster, PodId::of(pod)));
        }
        if self.read.is_none() || self.discouraged.0 != cluster.nodes_version {
            let soft = cluster
                .nodes
                .iter()
                .enumerate()
                .filter(|(_, node)| node.taints.iter().any(|taint| taint.effect == TaintEffect::PreferNoSchedule));
            self.discouraged = (cluster.nodes_version, soft.map(|(place, _)| NodeId::of(place)).collect());
        }
        self.read = Some(cluster.moves.end());
    }

    /// Takes back what a pod contributed and counts it anew.
    fn recount(&mut self, cluster: &Cluster, pod: PodId) {
        if let Some(Record { node, contributions }) = self.records.remove(&pod) {
            for contribution in contributions {
                self.apply(cluster, node, contribution, -1);
            }
        }
        self.count_pod(cluster, pod);
    }

    fn count_pod(&mut self, cluster: &Cluster, id: PodId) {
        let Some((pod, node_id)) = cluster.pods.get(id.index()).and_then(|pod| Some((pod, pod.place.node?))) else {
            return;
        };
        if !counts(pod) {
            return;
        }
        let constraints = &cluster.classes.get(pod.class).constraints;
        let node = &cluster.nodes[node_id.index()];
        let mut found: SmallVec<[Contribution; 1]> = SmallVec::new();
        if let Some(enrolled) = self.enrol(pod, constraints) {
            let domain = |rule: &u32| self.rules[*rule as usize].rule.domain(node);
            let repelling = enrolled.anti_affinity.iter();
            found.extend(repelling.filter_map(|rule| Some(Contribution::Repelling(*rule, domain(rule)?))));
            let pulling = enrolled.preferred.iter();
            found.extend(
                pulling.filter_map(|(weight, rule)| Some(Contribution::Pulling(*rule, domain(rule)?, *weight))),
            );
        }
        found.extend(constraints.exclusive_claims().map(Contribution::Claim));
        found.extend(constraints.ports.iter().copied().map(Contribution::Port));
        let labels = cluster.label_sets.get(pod.labels as usize).map_or(&[][..], |labels| labels);
        for rule in self.rules_by_label.candidates(labels) {
            let entry = &self.rules[rule as usize];
            let Some(domain) = entry.rule.domain(node).filter(|_| entry.matching.is_some()) else { continue };
            if entry.rule.holds(pod.namespace, labels, &cluster.words) {
                found.push(Contribution::Matching(rule, domain));
            }
        }
        for spread in self.spreads_by_label.candidates(labels).filter(|_| stays(pod)) {
            let known = &self.spreads[spread as usize];
            if known.is_counted() && known.pods.holds(pod.namespace, labels, &cluster.words) {
                found.push(Contribution::Spread(spread));
            }
        }
        for contribution in &found {
            self.apply(cluster, node_id, *contribution, 1);
        }
        if !found.is_empty() {
            self.records.insert(id, Record { node: node_id, contributions: found });
        }
    }

    /// Counts one thing more of a pod that has been counted.
    fn contribute(&mut self, cluster: &Cluster, pod: PodId, node: NodeId, contribution: Contribution) {
        let record = self.records.entry(pod).or_insert_with(|| Record { node, contributions: SmallVec::new() });
        record.contributions.push(contribution);
        self.apply(cluster, node, contribution, 1);
    }

    /// Adds (1) or takes back (−1) a contribution.
    fn apply(&mut self, cluster: &Cluster, node: NodeId, contribution: Contribution, times: i64) {
        match contribution {
            Contribution::Matching(rule, domain) => {
                if let Some(matching) = &mut self.rules[rule as usize].matching {
                    matching.add(domain, times);
                }
            }
            Contribution::Repelling(rule, domain) => self.rules[rule as usize].repelling.add(domain, times),
            Contribution::Pulling(rule, domain, weight) => {
                self.rules[rule as usize].pulling.add(domain, i64::from(weight) * times);
            }
            Contribution::Spread(spread) => self.spreads[spread as usize].add(cluster, node, times),
            Contribution::Claim(claim) => {
                let holders = self.claims.entry(claim).or_default();
                *holders = holders.saturating_add_signed(i32::try_from(times).unwrap_or(0));
                if *holders == 0 {
                    self.claims.remove(&claim);
                }
            }
            Contribution::Port(port) => {
                let taken = self.ports.entry(node).or_default();
                match taken.iter().position(|known| *known == port) {
                    Some(place) if times < 0 => drop(taken.swap_remove(place)),
                    _ => taken.push(port),
                }
                if taken.is_empty() {
                    self.ports.remove(&node);
                }
            }
        }
    }

    /// Makes the rules of a pod's class in its namespace known.
    fn enrol(&mut self, pod: &Pod, constraints: &Compiled) -> Option<Arc<Enrolled>> {
        if !constraints.has_rules() {
            return None;
        }
        let key = (pod.class, pod.namespace);
        if let Some(enrolled) = self.enrolled.get(&key) {
            return Some(Arc::clone(enrolled));
        }
        let preferred = constraints.preferred_pods.iter();
        let enrolled = Arc::new(Enrolled {
            affinity: constraints.pod_affinity.iter().map(|rule| self.intern(rule)).collect(),
            anti_affinity: constraints.pod_anti_affinity.iter().map(|rule| self.intern(rule)).collect(),
            preferred: preferred.map(|(weight, rule)| (*weight, self.intern(rule))).collect(),
            spread: self.spreads.len(),
        });
        for rule in &constraints.spread {
            let spread = Spread::new(rule, pod.namespace);
            let id = u32::try_from(self.spreads.len()).unwrap_or(u32::MAX);
            self.spreads_by_label.file(id, std::slice::from_ref(&spread.pods));
            self.spreads.push(spread);
        }
        self.enrolled.insert(key, Arc::clone(&enrolled));
        Some(enrolled)
    }

    fn intern(&mut self, rule: &Rule) -> u32 {
        if let Some(id) = self.rule_ids.get(rule) {
            return *id;
        }
        let id = u32::try_from(self.rules.len()).unwrap_or(u32::MAX);
        self.rules_by_label.file(id, &rule.pods);
        let (repelling, pulling) = (DomainCounts::default(), DomainCounts::default());
        self.rules.push(Entry { rule: rule.clone(), matching: None, repelling, pulling });
        self.rule_ids.insert(rule.clone(), id);
        self.spoken_of.clear();
        id
    }

    /// Lists the rules that speak of a pod.
    fn list_rules(&mut self, cluster: &Cluster, id: PodId) {
        let pod = &cluster.pods[id.index()];
        let key = (pod.namespace, pod.labels);
        if self.rules.is_empty() || self.spoken_of.contains_key(&key) {
            return;
        }
        if self.spoken_of.len() >= MOST_SPOKEN_OF {
            self.spoken_of.clear();
        }
        let labels = cluster.pod_labels(id);
        let speaks = |rule: &u32| self.rules[*rule as usize].rule.holds(pod.namespace, labels, &cluster.words);
        let rules = self.rules_by_label.candidates(labels).filter(speaks).collect();
        self.spoken_of.insert(key, rules);
    }

    /// Begins to count the pods a rule speaks of.
    fn count_rule(&mut self, cluster: &Cluster, id: u32) {
        let entry = &mut self.rules[id as usize];
        if entry.matching.is_some() {
            return;
        }
        entry.matching = Some(DomainCounts::default());
        for (place, pod) in cluster.pods.iter().enumerate().filter(|(_, pod)| counts(pod)) {
            let Some(node) = pod.place.node else { continue };
            let rule = &self.rules[id as usize].rule;
            let Some(domain) = rule.domain(&cluster.nodes[node.index()]) else { continue };
            let labels = cluster.label_sets.get(pod.labels as usize).map_or(&[][..], |labels| labels);
            if rule.holds(pod.namespace, labels, &cluster.words) {
                self.contribute(cluster, PodId::of(place), node, Contribution::Matching(id, domain));
            }
        }
    }

    /// Begins to count the pods a spread constraint speaks of.
    fn count_spread(&mut self, cluster: &Cluster, place: usize) {
        if !self.spreads[place].begin() {
            return;
        }
        let id = u32::try_from(place).unwrap_or(u32::MAX);
        for (index, pod) in cluster.pods.iter().enumerate().filter(|(_, pod)| stays(pod)) {
            let Some(node) = pod.place.node else { continue };
            let labels = cluster.label_sets.get(pod.labels as usize).map_or(&[][..], |labels| labels);
            if self.spreads[place].pods.holds(pod.namespace, labels, &cluster.words) {
                self.contribute(cluster, PodId::of(index), node, Contribution::Spread(id));
            }
        }
    }
}
