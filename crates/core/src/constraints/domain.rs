//! Rules between pods, and how many pods speak for or against a domain by them.
//!
//! A domain is a value of the node label that a rule names. For each rule three sums are kept per domain:
//!
//! ```text
//!   rule ─┬─ matching    pods the rule speaks of            (asked by pods that have the rule)
//!         ├─ repelling   pods that have the rule as "never" (asked by pods the rule speaks of)
//!         └─ pulling     weights of pods that prefer it     (asked by pods the rule speaks of)
//! ```

use rustc_hash::FxHashMap;

use crate::{
    cluster::{node::Node, pod::Pod, words::Words},
    constraints::selector::PodMatch,
    ids::Word,
};

/// Whether a pod counts where it is: it holds or is promised a place and this cycle has not evicted it.
pub(crate) fn counts(pod: &Pod) -> bool {
    pod.place.status.is_active() && !pod.is_evicted()
}

/// A rule between pods: pods that match all of `pods`, in domains of the label `key`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rule {
    /// All must match. Required affinity with several terms asks for pods that match every one of them.
    pub(crate) pods: Box<[PodMatch]>,
    /// The label whose value names the domain.
    pub(crate) key: Word,
}

impl Rule {
    /// Whether it speaks of a pod.
    pub(crate) fn holds(&self, namespace: Word, labels: &[(Word, Word)], words: &Words) -> bool {
        self.pods.iter().all(|pods| pods.holds(namespace, labels, words))
    }

    /// The domain of a node.
    pub(crate) fn domain(&self, node: &Node) -> Option<Word> {
        node.label(self.key)
    }
}

/// A sum for each domain. Integers only: adding and taking away again leaves nothing behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainCounts {
    sums: FxHashMap<Word, i64>,
}

impl DomainCounts {
    /// Adds to a domain.
    pub(crate) fn add(&mut self, domain: Word, amount: i64) {
        let sum = self.sums.entry(domain).or_default();
        *sum = sum.saturating_add(amount);
        if *sum == 0 {
            self.sums.remove(&domain);
        }
    }

    /// The sum of a domain.
    #[must_use]
    pub fn of(&self, domain: Word) -> i64 {
        self.sums.get(&domain).copied().unwrap_or(0)
    }

    /// Whether every domain's sum is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }
}

/// Rules by the labels of the pods they speak of, so that a pod finds them without trying each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filing {
    by_label: FxHashMap<(Word, Word), Vec<u32>>,
    elsewhere: Vec<u32>,
}

impl Filing {
    /// Files a rule.
    pub(crate) fn file(&mut self, id: u32, pods: &[PodMatch]) {
        if pods.iter().any(PodMatch::is_void) {
            return;
        }
        match pods.iter().find_map(PodMatch::anchor) {
            Some((key, values)) => {
                for value in values {
                    self.by_label.entry((key, *value)).or_default().push(id);
                }
            }
            None => self.elsewhere.push(id),
        }
    }

    /// The rules that may speak of a pod with these labels, each once.
    pub(crate) fn candidates<'a>(&'a self, labels: &'a [(Word, Word)]) -> impl Iterator<Item = u32> + 'a {
        let filed = labels.iter().filter_map(|label| self.by_label.get(label)).flatten();
        filed.chain(&self.elsewhere).copied()
    }
}
