//! Nodes come, change and go.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::{
    amounts::{Amounts, GPU, LARGEST, Shares, fixed},
    cluster::{
        Cluster,
        node::{DraDevice, Node, NodeTaint},
        numa::NumaState,
        push_frugally,
        words::Words,
    },
    delta::{self, Unavailable},
    ids::{NodeId, PodId},
};

impl Cluster {
    /// The node of a name, made if only its name is known.
    pub(crate) fn node_named(&mut self, name: &str) -> NodeId {
        if let Some(node) = self.node(name) {
            return node;
        }
        let node = NodeId::of(self.nodes.len());
        push_frugally(&mut self.nodes, Node::unknown(name));
        self.node_ids.insert(name, node.0, |id| &self.nodes[id as usize].name);
        self.ranks_stale = true;
        self.nodes_version += 1;
        node
    }

    pub(super) fn describe_node(&mut self, node: &delta::Node) {
        let id = self.node_named(&node.name);
        let fingerprint = fingerprint(node);
        // Nodes report again and again what they have reported before.
        if self.nodes[id.index()].exists && self.nodes[id.index()].fingerprint == fingerprint {
            return;
        }
        let pods = self.lift_pods(id);
        let claims = self.lift_claims(id);
        let described = self.build_node(node);
        let old = &mut self.nodes[id.index()];
        *old = Node { rank: old.rank, fingerprint, ..described };
        let key = ("node".to_owned(), node.name.clone());
        match old
            .unavailable
            .iter()
            .find_map(|why| if let Unavailable::Invalid(what) = why { Some(what) } else { None })
        {
            Some(what) => self.complaints.insert(key, what.clone()),
            None => self.complaints.remove(&key),
        };
        self.lower_claims(id, &claims, &pods);
        self.lower_pods(&pods);
        self.rehouse_claims(id);
        self.nodes_version += 1;
        self.journal.push(id);
    }

    pub(super) fn forget_node(&mut self, name: &str) {
        let Some(id) = self.node(name) else { return };
        let pods = self.lift_pods(id);
        let claims = self.lift_claims(id);
        let rank = self.nodes[id.index()].rank;
        self.nodes[id.index()] = Node { rank, ..Node::unknown(name) };
        self.complaints.remove(&("node".to_owned(), name.to_owned()));
        self.lower_claims(id, &claims, &pods);
        self.lower_pods(&pods);
        self.rehouse_claims(id);
        self.nodes_version += 1;
        self.journal.push(id);
    }

    /// Takes all pods of a node out of all ledgers, before the node changes.
    pub(crate) fn lift_pods(&mut self, node: NodeId) -> Vec<PodId> {
        let pods = self.nodes[node.index()].pods.clone();
        for pod in &pods {
            self.enter(*pod, -1);
        }
        pods
    }

    /// Enters them again.
    pub(crate) fn lower_pods(&mut self, pods: &[PodId]) {
        for pod in pods {
            self.enter(*pod, 1);
        }
    }

    fn build_node(&mut self, node: &delta::Node) -> Node {
        let mut total = Amounts::default();
        total.fixed[fixed::CPU] = node.cpu;
        total.fixed[fixed::MEMORY] = node.memory;
        total.fixed[fixed::PODS] = node.pods;
        total.fixed[fixed::STORAGE] = node.storage;
        total.fixed[fixed::GPU] = i64::from(node.gpus.count);
        for (name, amount) in &node.extended {
            total.add_extended(self.words.intern(name), *amount);
        }
        let mut unavailable = node.unavailable.clone();
        let amounts = total.fixed.iter().chain(total.extended.iter().map(|(_, amount)| amount));
        if amounts.into_iter().any(|amount| !(0..=LARGEST).contains(amount)) {
            let what = format!("status.allocatable: an amount is not between 0 and {LARGEST}");
            unavailable.push(Unavailable::Invalid(what));
            total = Amounts::default();
        }
        let words = &mut self.words;
        let mut labels: Vec<_> =
            node.labels.iter().map(|(key, value)| (words.intern(key), words.intern(value))).collect();
        labels.sort_unstable();
        let taints = node.taints.iter().map(|taint| NodeTaint {
            key: words.intern(&taint.key),
            value: words.intern(&taint.value),
            effect: taint.effect,
        });
        let taints = taints.collect();
        let numa = node.numa.as_ref().map(|numa| Box::new(NumaState::new(numa, words)));
        let mut devices: Vec<DraDevice> = node.devices.iter().map(DraDevice::unused).collect();
        devices.sort_by(|a, b| a.device.cmp(&b.device));
        devices.dedup_by(|a, b| a.device == b.device);
        let served = self.served();
        let mut described = Node {
            exists: true,
            labels: labels.into(),
            taints,
            unavailable: unavailable.into(),
            idle: total.clone(),
            future: total.clone(),
            total,
            // The ledger of a device counts millionths of a MiB in 64 bits.
            gpu_memory: node.gpus.memory.filter(|memory| (1..=1 << 40).contains(memory)),
            mig: node.gpus.mig,
            numa,
            devices,
            ..Node::unknown(&node.name)
        };
        described.serve(served);
        described
    }

    /// Puts nodes into the order of their names, if that changed.
    pub(crate) fn refresh_ranks(&mut self) {
        if !std::mem::take(&mut self.ranks_stale) {
            return;
        }
        let mut order: Vec<NodeId> = (0..self.nodes.len()).map(NodeId::of).collect();
        order.sort_unstable_by(|a, b| self.nodes[a.index()].name.cmp(&self.nodes[b.index()].name));
        for (rank, node) in order.iter().enumerate() {
            self.nodes[node.index()].rank = u32::try_from(rank).unwrap_or(u32::MAX);
        }
        self.nodes_by_rank = order;
    }
}

impl Node {
    /// What the node adds to what queues share: MIG profiles count by their g-number.
    #[must_use]
    pub fn capacity(&self, words: &Words) -> Shares {
        let own = self.total.extended.iter().filter(|(word, _)| !self.served.iter().any(|served| served.name == *word));
        let profiles = own.map(|(word, count)| mig_size(words.text(*word)) * i128::from(*count));
        // A GPU that both a device plugin and a DRA driver offer is there once.
        let devices = self.devices.iter().filter(|device| device.gpu).count() as i128;
        let gpus = i128::from(self.total.fixed[fixed::GPU]).max(devices) + profiles.sum::<i128>();
        Shares([
            i128::from(self.total.fixed[fixed::CPU]),
            i128::from(self.total.fixed[fixed::MEMORY]),
            gpus * i128::from(GPU),
        ])
    }
}

/// A number that is another for every other description.
fn fingerprint(node: &delta::Node) -> u64 {
    let mut hasher = DefaultHasher::new();
    node.hash(&mut hasher);
    hasher.finish()
}

/// The g-number of `nvidia.com/mig-<g>g.<m>gb`; 0 for anything else.
fn mig_size(name: &str) -> i128 {
    let profile = name.strip_prefix("nvidia.com/mig-").and_then(|rest| rest.strip_suffix("gb"));
    let Some((size, memory)) = profile.and_then(|profile| profile.split_once("g.")) else { return 0 };
    if memory.is_empty() || !memory.bytes().all(|byte| byte.is_ascii_digit()) {
        return 0;
    }
    size.parse::<u8>().map_or(0, i128::from)
}
