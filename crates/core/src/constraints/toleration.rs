//! Taints of nodes and the tolerations of a pod.

use crate::{
    cluster::{
        node::{Node, NodeTaint},
        words::Words,
    },
    delta::{self, TaintEffect},
    ids::Word,
};

/// A toleration in words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Toleration {
    key: Option<Word>,
    value: Option<Word>,
    effect: Option<TaintEffect>,
}

impl Toleration {
    /// Compiles a toleration.
    pub(crate) fn new(toleration: &delta::Toleration, words: &mut Words) -> Self {
        Self {
            key: toleration.key.as_ref().map(|key| words.intern(key)),
            value: toleration.value.as_ref().map(|value| words.intern(value)),
            effect: toleration.effect,
        }
    }

    fn covers(&self, taint: &NodeTaint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.is_none_or(|key| key == taint.key)
            && self.value.is_none_or(|value| value == taint.value)
    }
}

/// The first taint of a node that keeps the pod off.
pub(crate) fn forbidding(tolerations: &[Toleration], node: &Node) -> Option<NodeTaint> {
    let mut taints = node.taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
    taints.find(|taint| !tolerations.iter().any(|toleration| toleration.covers(taint))).copied()
}

/// How many taints of a node would rather keep the pod off.
pub(crate) fn discouraging(tolerations: &[Toleration], node: &Node) -> usize {
    let taints = node.taints.iter().filter(|taint| taint.effect == TaintEffect::PreferNoSchedule);
    taints.filter(|taint| !tolerations.iter().any(|toleration| toleration.covers(taint))).count()
}
