//! The cluster as the core sees it: flat arrays of objects that deltas keep up to date, never rebuilt.
//!
//! ```text
//!   Delta ─▶ intake ─▶ nodes, queues, groups, pods, classes ◀─ ledger ◀─ place, evict, move (one undo log)
//! ```
//!
//! Virtual changes of a cycle stay visible until the next delta or cycle, which first takes them back ([`Cluster::settle`]): the lasting
//! state is a function of the deltas alone.

pub mod class;
pub mod group;
pub mod intake;
pub mod ledger;
pub mod name_table;
pub mod node;
pub mod numa;
pub mod pod;
pub mod queue;
pub mod queue_tree;
pub mod status;
pub mod words;

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use self::{
    class::{Class, Classes},
    group::Group,
    ledger::UndoLog,
    name_table::NameTable,
    node::Node,
    pod::{Place, Pod},
    queue::Queue,
    status::Status,
    words::Words,
};
use crate::{
    amounts::{Shares, fixed},
    delta,
    ids::{ClaimId, ClassId, GroupId, NodeId, PodId, QueueId, Word},
    plan::Verdict,
};

/// The cluster.
#[derive(Debug, Default)]
pub struct Cluster {
    /// Strings that many objects share.
    pub words: Words,
    /// All nodes, gone ones too while pods name them.
    pub nodes: Vec<Node>,
    node_ids: NameTable,
    /// All queues.
    pub queues: Vec<Queue>,
    queue_ids: FxHashMap<Box<str>, QueueId>,
    /// All groups.
    pub groups: Vec<Group>,
    group_ids: NameTable,
    free_groups: Vec<GroupId>,
    /// All pods.
    pub pods: Vec<Pod>,
    pod_ids: NameTable,
    free_pods: Vec<PodId>,
    /// Pod classes.
    pub classes: Classes,
    /// Label sets of pods.
    pub label_sets: Vec<Box<[(Word, Word)]>>,
    label_set_ids: FxHashMap<Box<[(Word, Word)]>, u32>,
    /// Ranks of pods in their podsets.
    pub roles: Vec<delta::Role>,
    role_ids: FxHashMap<delta::Role, u32>,
    /// Claims on devices of DRA drivers.
    pub claims: crate::claims::Claims,
    /// Topologies by name.
    pub topologies: Vec<delta::Topology>,
    /// Pods being deleted: time decides when they count as stuck.
    pub terminating: BTreeSet<PodId>,
    /// Groups that may be below their minimum with pods running.
    pub suspects: BTreeSet<GroupId>,
    /// Groups whose pods name subgroups that do not exist, or that are wrong themselves.
    pub troubled: BTreeSet<GroupId>,
    /// Pods that are wrong themselves.
    pub invalid_pods: BTreeSet<PodId>,
    /// Pods that want others away from them.
    pub repellers: BTreeSet<PodId>,
    /// On how many nodes there is a divided GPU of a name. Only names are looked up.
    pub shared_names: FxHashMap<Word, u32>,
    /// How many pods with a place asked for GPUs by memory.
    pub pods_by_memory: u32,
    /// What is wrong with queues, nodes and topologies, by kind and name.
    pub complaints: std::collections::BTreeMap<(String, String), String>,
    /// Nodes whose ledger changed, in order: rankings catch up from it.
    pub journal: crate::journal::Journal<NodeId>,
    /// Pods whose place changed, in order: the census catches up from it.
    pub moves: crate::journal::Journal<PodId>,
    /// Counts changes of what nodes are, as opposed to what is on them.
    pub nodes_version: u64,
    /// Whether the order of nodes by name is out of date.
    ranks_stale: bool,
    /// Nodes in the order of their names.
    pub nodes_by_rank: Vec<NodeId>,
    /// Whether the tree of queues is out of date.
    tree_stale: bool,
    /// What was done virtually and can be undone.
    pub log: UndoLog,
    /// The places that moved pods still hold.
    pub leaving: FxHashMap<PodId, Place>,
    /// What queues used in the past, where the policy counts it.
    pub usage: Option<crate::usage::UsageLedger>,
    /// Structures that speed up planning and survive cycles.
    pub memory: crate::cycle::Memory,
}

impl Cluster {
    /// An empty cluster.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes back whatever the last cycle did virtually.
    pub fn settle(&mut self) {
        self.rollback(0);
    }

    /// Cuts journals that are longer than looking at everything anew.
    pub(crate) fn trim_journals(&mut self) {
        self.journal.trim(self.nodes.len() + 1024);
        self.moves.trim(self.pods.len() / 4 + 1024);
    }

    /// The node of a name, if it is known.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.node_ids.find(name, |id| &self.nodes[id as usize].name).map(NodeId)
    }

    /// The queue of a name, if it is known.
    #[must_use]
    pub fn queue(&self, name: &str) -> Option<QueueId> {
        self.queue_ids.get(name).copied()
    }

    /// The group of a `namespace/name`, if it is known.
    #[must_use]
    pub fn group(&self, key: &str) -> Option<GroupId> {
        self.group_ids.find(key, |id| &self.groups[id as usize].key).map(GroupId)
    }

    /// The pod of a uid, if it is known.
    #[must_use]
    pub fn pod(&self, uid: &str) -> Option<PodId> {
        self.pod_ids.find(uid, |id| &self.pods[id as usize].uid).map(PodId)
    }

    /// A node's name.
    #[must_use]
    pub fn node_name(&self, node: NodeId) -> &str {
        &self.nodes[node.index()].name
    }

    /// A queue's name.
    #[must_use]
    pub fn queue_name(&self, queue: QueueId) -> &str {
        &self.queues[queue.index()].name
    }

    /// A group's `namespace/name`.
    #[must_use]
    pub fn group_key(&self, group: GroupId) -> &str {
        &self.groups[group.index()].key
    }

    /// A pod's uid.
    #[must_use]
    pub fn pod_uid(&self, pod: PodId) -> &str {
        &self.pods[pod.index()].uid
    }

    /// A claim's `namespace/name`.
    #[must_use]
    pub fn claim_key(&self, claim: ClaimId) -> &str {
        &self.claims.get(claim).key
    }

    /// A word's text.
    #[must_use]
    pub fn word(&self, word: Word) -> &str {
        self.words.text(word)
    }

    /// The class of a pod.
    #[must_use]
    pub fn class_of(&self, pod: PodId) -> &Class {
        self.classes.get(self.pods[pod.index()].class)
    }

    /// A class.
    #[must_use]
    pub fn class(&self, class: ClassId) -> &Class {
        self.classes.get(class)
    }

    /// Whole GPUs of a node that are idle, and that will be freed by what leaves and is not promised.
    #[must_use]
    pub fn node_gpus(&self, node: NodeId) -> (i64, i64) {
        let node = &self.nodes[node.index()];
        let idle = node.idle.fixed[fixed::GPU];
        (idle, node.future.fixed[fixed::GPU] - idle)
    }

    /// The labels of a pod, sorted by key.
    #[must_use]
    pub fn pod_labels(&self, pod: PodId) -> &[(Word, Word)] {
        self.label_sets.get(self.pods[pod.index()].labels as usize).map_or(&[], |labels| labels)
    }

    /// Memory of the smallest and of the largest GPU of the cluster, in MiB.
    #[must_use]
    pub fn gpu_memories(&self) -> Option<(u64, u64)> {
        let known = self.nodes.iter().filter(|node| node.exists && node.total.fixed[fixed::GPU] > 0);
        let mut memories = known.filter_map(|node| node.gpu_memory);
        let first = memories.next()?;
        Some(memories.fold((first, first), |(least, most), memory| (least.min(memory), most.max(memory))))
    }

    /// What queues share: what available nodes have, without what pods of other schedulers hold there.
    #[must_use]
    pub fn capacity(&self) -> Shares {
        let mut total = Shares::default();
        for node in self.nodes.iter().filter(|node| node.is_available()) {
            total.add(&node.capacity(&self.words));
            total.subtract(&node.foreign);
        }
        total.0 = total.0.map(|amount| amount.max(0));
        total
    }

    /// What is wrong with objects, by kind and name.
    #[must_use]
    pub fn verdicts(&self) -> Vec<Verdict> {
        let mut verdicts: Vec<Verdict> = self
            .complaints
            .iter()
            .map(|((kind, name), what)| Verdict { kind: kind.clone(), name: name.clone(), what: what.clone() })
            .collect();
        let mut add = |kind: &str, name: &str, what: &str| {
            verdicts.push(Verdict { kind: kind.to_owned(), name: name.to_owned(), what: what.to_owned() });
        };
        for pod in &self.invalid_pods {
            let pod = &self.pods[pod.index()];
            if let Some(what) = pod.rare.as_ref().and_then(|rare| rare.invalid.as_deref()) {
                add("pod", &pod.uid, what);
            }
        }
        for group in &self.troubled {
            let group = &self.groups[group.index()];
            if let Some(what) = &group.rare().invalid {
                add("pod group", &group.key, what);
            }
            for pod in &group.strays {
                let pod = &self.pods[pod.index()];
                let named = pod.rare.as_ref().and_then(|rare| rare.subgroup).map_or("", |word| self.words.text(word));
                let what = format!("subgroup `{named}` does not exist in pod group `{}`", group.key);
                add("pod", &pod.uid, &what);
            }
        }
        verdicts.sort();
        verdicts
    }

    /// Whether any pod cares about what runs around it, or any node about being left alone: otherwise nobody needs to look.
    #[must_use]
    pub fn has_rules_between_pods(&self) -> bool {
        let discouraged =
            |node: &Node| node.taints.iter().any(|taint| taint.effect == delta::TaintEffect::PreferNoSchedule);
        self.classes.any_sociable() || self.nodes.iter().any(discouraged)
    }

    /// Whether a pod waits for a place and can be given one.
    #[must_use]
    pub fn is_waiting(&self, pod: PodId) -> bool {
        let pod = &self.pods[pod.index()];
        pod.place.status == Status::Pending || pod.is_evicted()
    }
}

/// Adds to a list that is as long as the cluster is large. Its memory grows by an eighth at a time: twofold growth would leave a third of it
/// empty on average.
fn push_frugally<T>(list: &mut Vec<T>, item: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 8 + 8);
    }
    list.push(item);
}
