//! The core's ledgers say what the facts say, whatever happened on the way.
//!
//! Source: design, "the lasting state is a function of the deltas alone"; kai-core.md §10.4 (a) and (b).

use std::collections::{BTreeMap, BTreeSet};

use kai_core::{
    Cluster,
    amounts::{Amounts, Resource, fixed},
    cluster::{group::PodSet, node::Node as CoreNode, status::Status},
    delta::{Gpus, Node, Pod},
    policy::Policy,
    time::Time,
};

use crate::{
    Facts, Violation,
    facts::{
        gpu_memory, is_sane, is_sane_node,
        queue::{Accounts, Cost, cost},
        standing::Standing,
    },
};

/// Entries of ledgers that are wrong. The last cycle's virtual changes are taken back; it must have been made with `policy` at `now`.
#[must_use]
pub fn check(facts: &Facts, cluster: &mut Cluster, policy: &Policy, now: Time) -> Vec<Violation> {
    cluster.settle();
    let mut ledgers = Ledgers { facts, cluster, policy, now, violations: Vec::new() };
    ledgers.check_nodes();
    ledgers.check_groups();
    ledgers.check_queues();
    ledgers.violations
}

struct Ledgers<'a> {
    facts: &'a Facts,
    cluster: &'a Cluster,
    policy: &'a Policy,
    now: Time,
    violations: Vec<Violation>,
}

impl Ledgers<'_> {
    fn compare<T: PartialEq + std::fmt::Debug>(&mut self, object: &str, what: &str, ledger: T, facts: T) {
        if ledger != facts {
            self.violations.push(Violation {
                invariant: "ledgers say what the facts say",
                object: object.to_owned(),
                what: format!("{what} is {ledger:?}, should be {facts:?}"),
            });
        }
    }

    fn standing(&self, pod: &Pod) -> Standing {
        Standing::of(pod, self.now, self.policy.stuck_after)
    }

    fn check_nodes(&mut self) {
        for (name, node) in &self.facts.nodes {
            let Some(id) = self.cluster.node(name) else {
                self.compare(name, "existence", false, true);
                continue;
            };
            let ledger = &self.cluster.nodes[id.index()];
            let here = |pod: &&Pod| pod.placement.as_ref().is_some_and(|placement| placement.node == *name);
            let physical: Vec<&Pod> =
                self.facts.pods.values().filter(here).filter(|pod| self.standing(pod).is_physical()).collect();
            let staying: Vec<&Pod> =
                physical.iter().copied().filter(|pod| self.standing(pod) != Standing::Releasing).collect();
            self.compare(name, "idle", amounts(self.cluster, &ledger.idle), free(node, &physical));
            self.compare(name, "future", amounts(self.cluster, &ledger.future), free(node, &staying));
            self.compare(name, "shared devices", shared(self.cluster, ledger), sharers(node, &physical, &staying));
            let there: BTreeSet<&str> = ledger.pods.iter().map(|pod| self.cluster.pod_uid(*pod)).collect();
            let should: BTreeSet<&str> = physical.iter().map(|pod| pod.uid.as_str()).collect();
            self.compare(name, "list of pods", there, should);
        }
    }

    fn check_groups(&mut self) {
        for (key, gang) in self.facts.gangs() {
            let Some(id) = self.cluster.group(key) else {
                self.compare(key, "existence", false, true);
                continue;
            };
            let ledger = &self.cluster.groups[id.index()];
            for podset in &gang.podsets {
                let known = ledger.podsets.iter().find(|known| self.cluster.word(known.name) == podset.name);
                let counted = known.map(counts);
                let mut should: BTreeMap<&str, u32> = BTreeMap::new();
                for pod in &podset.pods {
                    *should.entry(name_of(self.standing(pod))).or_default() += 1;
                }
                let what = format!("podset `{}`", podset.name);
                self.compare(key, &what, counted, Some(should));
            }
        }
    }

    fn check_queues(&mut self) {
        if !self.facts.claims.is_empty() {
            // What claims cost depends on devices, of which these facts keep no account.
            return;
        }
        let mut accounts = Accounts::default();
        let mut waiting = Accounts::default();
        let gangs = self.facts.gangs();
        for gang in gangs.values() {
            for pod in gang.podsets.iter().flat_map(|podset| &podset.pods) {
                let node = pod.placement.as_ref().and_then(|placement| self.facts.nodes.get(&placement.node));
                match self.standing(pod) {
                    Standing::Placed => accounts.add(self.facts, gang, cost(pod, node), 1),
                    Standing::Pending => waiting.add(self.facts, gang, cost(pod, None), 1),
                    _ => {}
                }
            }
        }
        for name in self.facts.queues.keys() {
            let Some(id) = self.cluster.queue(name) else {
                self.compare(name, "existence", false, true);
                continue;
            };
            let ledger = &self.cluster.queues[id.index()].sum;
            let entries: [(&str, Cost, Cost); 3] = [
                ("allocated", ledger.allocated.0, accounts.allocated(name)),
                ("fixed", ledger.fixed.0, accounts.fixed(name)),
                ("waiting", ledger.waiting.0, waiting.allocated(name)),
            ];
            for (what, ledger, facts) in entries {
                self.compare(name, what, ledger, facts);
            }
        }
    }
}

/// Amounts by name, without zeros.
fn amounts(cluster: &Cluster, amounts: &Amounts) -> BTreeMap<String, i64> {
    let names = [
        (fixed::CPU, "cpu"),
        (fixed::MEMORY, "memory"),
        (fixed::GPU, "gpu"),
        (fixed::PODS, "pods"),
        (fixed::STORAGE, "storage"),
    ];
    let mut named: BTreeMap<String, i64> = names
        .into_iter()
        .map(|(place, name)| (name.to_owned(), amounts.of(Resource::Fixed(u8::try_from(place).unwrap_or(u8::MAX)))))
        .collect();
    named.extend(amounts.extended.iter().map(|(word, amount)| (cluster.word(*word).to_owned(), *amount)));
    named.retain(|_, amount| *amount != 0);
    named
}

/// What pods leave of a node, by name, without zeros.
fn free(node: &Node, pods: &[&Pod]) -> BTreeMap<String, i64> {
    let mut free = BTreeMap::new();
    if is_sane_node(node) {
        let gpus = i64::from(node.gpus.count);
        let fixed = [("cpu", node.cpu), ("memory", node.memory), ("gpu", gpus), ("pods", node.pods)];
        free.extend(fixed.map(|(name, amount)| (name.to_owned(), amount)));
        free.insert("storage".to_owned(), node.storage);
        free.extend(node.extended.clone());
    }
    let mut shared = BTreeSet::new();
    for pod in pods {
        *free.entry("pods".to_owned()).or_default() -= 1;
        if !is_sane(&pod.request) {
            continue;
        }
        let request = &pod.request;
        let fixed = [("cpu", request.cpu), ("memory", request.memory), ("storage", request.storage)];
        let extended = request.extended.iter().map(|(name, amount)| (name.as_str(), *amount));
        for (name, amount) in fixed.into_iter().chain(extended) {
            *free.entry(name.to_owned()).or_default() -= amount;
        }
        match request.gpus {
            Gpus::Whole(count) => *free.entry("gpu".to_owned()).or_default() -= i64::from(count),
            Gpus::Portion { .. } | Gpus::Memory { .. } => {
                shared.extend(pod.placement.iter().flat_map(|placement| &placement.devices));
            }
            Gpus::None => {}
        }
    }
    *free.entry("gpu".to_owned()).or_default() -= i64::try_from(shared.len()).unwrap_or(i64::MAX);
    free.retain(|_, amount| *amount != 0);
    free
}

/// Shared devices by name: units in use, units in use once all that leaves has left.
fn shared(cluster: &Cluster, node: &CoreNode) -> BTreeMap<String, (u64, u64)> {
    let devices = node.shared.iter();
    devices.map(|device| (cluster.word(device.name).to_owned(), (device.used, device.staying()))).collect()
}

fn sharers(node: &Node, physical: &[&Pod], staying: &[&Pod]) -> BTreeMap<String, (u64, u64)> {
    let mut devices: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let memory = gpu_memory(node);
    for pod in physical.iter().filter(|pod| is_sane(&pod.request)) {
        let whole = memory.unwrap_or(1) * 1_000_000;
        let units = match pod.request.gpus {
            Gpus::Portion { millionths, .. } => u64::from(millionths) * memory.unwrap_or(1),
            Gpus::Memory { mib, .. } if memory.is_some() && mib * 1_000_000 <= whole => mib * 1_000_000,
            Gpus::Memory { .. } => whole,
            Gpus::None | Gpus::Whole(_) => continue,
        };
        let stays = staying.iter().any(|other| other.uid == pod.uid);
        for name in pod.placement.iter().flat_map(|placement| &placement.devices).collect::<BTreeSet<_>>() {
            let device = devices.entry(name.clone()).or_default();
            device.0 += units;
            device.1 += if stays { units } else { 0 };
        }
    }
    devices
}

/// How many pods of a podset stand where, without zeros.
fn counts(podset: &PodSet) -> BTreeMap<&'static str, u32> {
    let statuses = [
        (Status::Pending, "pending"),
        (Status::Gated, "gated"),
        (Status::Binding, "placed"),
        (Status::Bound, "placed"),
        (Status::Running, "placed"),
        (Status::Allocated, "allocated"),
        (Status::Pipelined, "pipelined"),
        (Status::Releasing, "releasing"),
        (Status::Stuck, "stuck"),
        (Status::Succeeded, "succeeded"),
        (Status::Ended, "ended"),
    ];
    let mut counts = BTreeMap::new();
    for (status, name) in statuses {
        *counts.entry(name).or_default() += podset.count(status);
    }
    counts.retain(|_, count| *count > 0);
    counts
}

fn name_of(standing: Standing) -> &'static str {
    match standing {
        Standing::Pending => "pending",
        Standing::Gated => "gated",
        Standing::Placed => "placed",
        Standing::Releasing => "releasing",
        Standing::Stuck => "stuck",
        Standing::Succeeded => "succeeded",
        Standing::Ended => "ended",
    }
}
