//! What volumes need of a node, and volumes that only one pod may use.

use crate::{
    cluster::{node::Node, words::Words},
    constraints::selector::NodeTerm,
    delta::VolumeNeed,
    ids::Word,
    plan::NodeRefusal,
};

/// A volume in words.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    claim: Word,
    nodes: Option<Box<[NodeTerm]>>,
    bound: bool,
    exclusive: bool,
}

impl Volume {
    /// Compiles a volume.
    pub(crate) fn new(need: &VolumeNeed, words: &mut Words) -> Self {
        let (claim, nodes, bound, exclusive) = match need {
            VolumeNeed::Bound { claim, nodes, exclusive } => (claim, nodes, true, *exclusive),
            VolumeNeed::Unbound { claim, nodes } => (claim, nodes, false, false),
        };
        let nodes = nodes.as_ref().map(|terms| NodeTerm::list(terms, words));
        Self { claim: words.intern(claim), nodes, bound, exclusive }
    }

    /// The claim, if only one pod may use it.
    pub(crate) fn exclusive_claim(&self) -> Option<Word> {
        self.exclusive.then_some(self.claim)
    }

    /// Whether a node can have it.
    pub(crate) fn check_node(&self, node: &Node, words: &Words) -> Result<(), NodeRefusal> {
        let Some(terms) = &self.nodes else { return Ok(()) };
        if terms.iter().any(|term| term.holds(node, words)) {
            return Ok(());
        }
        let claim = words.text(self.claim);
        Err(NodeRefusal::Volume(if self.bound {
            format!("the volume of claim `{claim}` cannot be reached from the node")
        } else {
            format!("no volume for claim `{claim}` can be on the node")
        }))
    }
}

/// Another pod has a claim that only one may use.
pub(crate) fn taken(claim: &str) -> NodeRefusal {
    NodeRefusal::Volume(format!("claim `{claim}` is for one pod at a time and another pod has it"))
}
