//! What each node has against a class of pods for itself: what it is, and what is free on it. Who runs around it is asked separately.
//!
//! A group that waits is told why in every cycle, though little changes from one to the next. So each node's answer is kept and only nodes
//! in the journal are asked again; telling is a walk over a flat array.

use std::collections::BTreeMap;

use crate::{
    amounts::{Resource, fixed},
    cluster::{Cluster, node::Node},
    cycle::ranking::suits,
    ids::{ClassId, NodeId},
    journal::Bookmark,
    plan::NodeRefusal,
    policy::Policy,
};

/// The answers of all nodes to a class.
#[derive(Debug)]
pub struct Objections {
    class: ClassId,
    read: Option<Bookmark>,
    /// Every refusal that some node gave, without amounts.
    kinds: Vec<NodeRefusal>,
    places: BTreeMap<NodeRefusal, u32>,
    answers: Vec<Answer>,
}

/// What a node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is no such node.
    Absent,
    /// It has nothing against it.
    Nothing,
    /// A refusal, by its place among the kinds, and how much is missing if something is short.
    Refusal(u32, i64),
}

impl Objections {
    /// Nobody has been asked yet.
    #[must_use]
    pub fn new(class: ClassId) -> Self {
        Self { class, read: None, kinds: Vec::new(), places: BTreeMap::new(), answers: Vec::new() }
    }

    /// Every refusal that some node gave; amounts are 0.
    #[must_use]
    pub fn kinds(&self) -> &[NodeRefusal] {
        &self.kinds
    }

    /// What each node says.
    pub fn answers(&self) -> impl Iterator<Item = (NodeId, Answer)> + '_ {
        self.answers.iter().enumerate().map(|(index, answer)| (NodeId::of(index), *answer))
    }

    /// Asks the nodes that changed again.
    pub fn refresh(&mut self, cluster: &Cluster, policy: &Policy) {
        let changed = self.read.and_then(|read| cluster.journal.since(read));
        if let Some(changed) = changed.filter(|changed| changed.len() < cluster.nodes.len()) {
            self.answers.resize(cluster.nodes.len(), Answer::Absent);
            for node in changed {
                self.answers[node.index()] = self.ask(cluster, policy, &cluster.nodes[node.index()]);
            }
        } else {
            *self = Self::new(self.class);
            for node in &cluster.nodes {
                let answer = self.ask(cluster, policy, node);
                self.answers.push(answer);
            }
        }
        self.read = Some(cluster.journal.end());
    }

    fn ask(&mut self, cluster: &Cluster, policy: &Policy, node: &Node) -> Answer {
        if !node.exists {
            return Answer::Absent;
        }
        let (refusal, missing) = match objection(cluster, policy, self.class, node) {
            None => return Answer::Nothing,
            Some(NodeRefusal::Short(resource, missing)) => (NodeRefusal::Short(resource, 0), missing),
            Some(other) => (other, 0),
        };
        if let Some(place) = self.places.get(&refusal) {
            return Answer::Refusal(*place, missing);
        }
        let place = u32::try_from(self.kinds.len()).unwrap_or(u32::MAX);
        self.kinds.push(refusal.clone());
        self.places.insert(refusal, place);
        Answer::Refusal(place, missing)
    }
}

/// What a node has against a class for itself.
fn objection(cluster: &Cluster, policy: &Policy, class: ClassId, node: &Node) -> Option<NodeRefusal> {
    let class = cluster.class(class);
    if let Err(refusal) = suits(cluster, class, node, policy) {
        return Some(refusal);
    }
    match node.shortage(class, &cluster.words) {
        Some((Resource::PODS, _)) => return Some(NodeRefusal::PodSlots),
        Some((resource, missing)) => return Some(NodeRefusal::Short(resource, missing)),
        None => {}
    }
    if !node.fits_future(class) {
        let slots = node.future.fixed[fixed::PODS] < 2 && node.future.fixed[fixed::GPU] > 0;
        return Some(if slots { NodeRefusal::PodSlots } else { NodeRefusal::GpuMemoryShort });
    }
    None
}
