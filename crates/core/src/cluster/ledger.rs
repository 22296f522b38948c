//! The one way in which a pod's place changes, and the one way back.
//!
//! [`Cluster::assign`] is the only virtual operation. It takes a pod's old place out of every ledger (node, devices, podset, queues),
//! enters the new one, and notes the old one in the undo log. Rolling back to a checkpoint assigns the noted places in reverse. Every ledger
//! entry is a sum of integers, so going there and back restores it exactly.

#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;

use crate::{
    amounts::{Shares, share},
    cluster::{Cluster, pod::Place, status::Status},
    delta::Gpus,
    ids::{GroupId, NodeId, PodId},
};

/// What was done, newest last.
#[derive(Debug, Default)]
pub struct UndoLog {
    entries: Vec<Undo>,
}

/// How to undo one operation.
#[derive(Debug)]
enum Undo {
    /// Assign the pod to the place it had.
    Assign(PodId, Place),
    /// The pod had been leaving the place that is noted as such.
    Move(PodId),
    /// The pod had been moved away from where it is.
    Return(PodId),
    /// The pod had stood like this before the cycle.
    Fact(PodId, Status),
}

/// A point in the undo log.
pub type Checkpoint = usize;

impl Cluster {
    /// Where the undo log stands.
    #[must_use]
    pub fn checkpoint(&self) -> Checkpoint {
        self.log.entries.len()
    }

    /// Undoes everything after a checkpoint.
    pub fn rollback(&mut self, checkpoint: Checkpoint) {
        while self.log.entries.len() > checkpoint {
            match self.log.entries.pop() {
                Some(Undo::Assign(pod, place)) => {
                    self.replace(pod, place);
                }
                Some(Undo::Move(pod)) => self.rejoin(pod),
                Some(Undo::Return(pod)) => self.part(pod),
                Some(Undo::Fact(pod, fact)) => {
                    self.set_fact(pod, fact);
                }
                None => return,
            }
        }
    }

    /// The pods that were touched since a checkpoint, oldest first; a pod may appear more than once.
    pub fn touched_since(&self, checkpoint: Checkpoint) -> impl Iterator<Item = PodId> + '_ {
        self.log.entries.get(checkpoint..).unwrap_or_default().iter().map(|undo| match undo {
            Undo::Assign(pod, _) | Undo::Move(pod) | Undo::Return(pod) | Undo::Fact(pod, _) => *pod,
        })
    }

    /// Gives a pod a place, virtually.
    pub fn assign(&mut self, pod: PodId, place: Place) {
        let before = self.replace(pod, place);
        self.log.entries.push(Undo::Assign(pod, before));
    }

    /// Evicts a pod, virtually: what it holds will be free. What this cycle gave or promised it is withdrawn: it waits again.
    pub fn evict(&mut self, pod: PodId) {
        let current = &self.pods[pod.index()];
        let place = match current.place.status {
            Status::Allocated | Status::Pipelined => Place::nowhere(Status::Pending),
            _ => current.place.with(Status::Releasing),
        };
        self.assign(pod, place);
    }

    /// Promises an evicted pod another place, while it still holds the one it leaves.
    pub fn relocate(&mut self, pod: PodId, place: Place) {
        self.part(pod);
        self.log.entries.push(Undo::Move(pod));
        self.assign(pod, place);
    }

    /// Gives up the promise made to a moved pod: it stays where it was, as if nothing had happened.
    pub fn stay(&mut self, pod: PodId) {
        self.assign(pod, Place::nowhere(Status::Pending));
        self.rejoin(pod);
        self.log.entries.push(Undo::Return(pod));
        self.restore(pod);
    }

    /// From now on the eviction of a pod is a fact: later steps of the cycle do not place it again.
    pub fn confirm_eviction(&mut self, pod: PodId) {
        let fact = self.set_fact(pod, Status::Releasing);
        self.log.entries.push(Undo::Fact(pod, fact));
    }

    /// Takes back an eviction that had been made a fact: the pod stands as it did.
    pub fn revoke_eviction(&mut self, pod: PodId, fact: Status) {
        let confirmed = self.set_fact(pod, fact);
        self.log.entries.push(Undo::Fact(pod, confirmed));
        self.restore(pod);
    }

    /// Sets how a pod stood before the cycle, and returns what was noted of it. An evicted pod counts nowhere, one that is known to leave does.
    fn set_fact(&mut self, pod: PodId, fact: Status) -> Status {
        self.moves.push(pod);
        std::mem::replace(&mut self.pods[pod.index()].fact, fact)
    }

    /// Separates a pod from the place it leaves. That place stays entered in the node's ledger: only the counts of podset and queue move.
    fn part(&mut self, pod: PodId) {
        self.count_place(pod, -1);
        let old = std::mem::replace(&mut self.pods[pod.index()].place, Place::nowhere(Status::Pending));
        self.count_place(pod, 1);
        self.leaving.insert(pod, old);
    }

    /// The reverse: the pod is only where it leaves.
    fn rejoin(&mut self, pod: PodId) {
        if let Some(place) = self.leaving.remove(&pod) {
            self.count_place(pod, -1);
            self.pods[pod.index()].place = place;
            self.count_place(pod, 1);
        }
    }

    /// Puts an evicted pod back where it was, as if nothing had happened.
    pub fn restore(&mut self, pod: PodId) {
        let place = self.pods[pod.index()].place.with(self.pods[pod.index()].fact);
        self.assign(pod, place);
    }

    /// What a pod costs its queue at its place; waiting pods cost nothing.
    #[must_use]
    pub fn charge_of(&self, pod: PodId) -> Shares {
        let node = self.pods[pod.index()].place.node;
        self.charge_at(pod, node)
    }

    /// GPUs that all pods of a group cost at most; memory of pods that wait is counted on devices of `memory` MiB.
    #[must_use]
    pub fn most_gpus(&self, group: GroupId, memory: Option<u64>) -> i128 {
        let pods = self.groups[group.index()].podsets.iter().flat_map(|podset| &podset.pods);
        let gpus = |charge: Shares| charge.0[share::GPU];
        pods.map(|pod| gpus(self.charge_of(*pod)).max(gpus(self.charge_with(*pod, memory)))).sum()
    }

    /// What a pod costs its queue on a node.
    #[must_use]
    pub fn charge_at(&self, pod: PodId, node: Option<NodeId>) -> Shares {
        let memory = node.and_then(|node| self.nodes[node.index()].gpu_memory);
        let mut charge = self.charge_with(pod, memory);
        if let Some(node) = node {
            let claims = self.pods[pod.index()].claims().iter();
            let further = claims.map(|claim| self.claims.get(*claim).further_gpus(&self.nodes[node.index()]));
            charge.0[share::GPU] += further.sum::<i128>();
        }
        charge
    }

    /// What a pod costs its queue on devices of `memory` MiB.
    #[must_use]
    pub fn charge_with(&self, pod: PodId, memory: Option<u64>) -> Shares {
        let mut charge = self.class_of(pod).charge_on(memory);
        if let Some(rare) = &self.pods[pod.index()].rare {
            charge.0[share::GPU] += rare.claimed_gpus;
        }
        charge
    }

    /// Replaces a pod's place in every ledger and returns the old one.
    pub(crate) fn replace(&mut self, pod: PodId, place: Place) -> Place {
        self.enter(pod, -1);
        let old = std::mem::replace(&mut self.pods[pod.index()].place, place);
        self.enter(pod, 1);
        old
    }

    /// Enters (1) or removes (−1) a pod's place in every ledger.
    pub(crate) fn enter(&mut self, pod: PodId, times: i64) {
        self.enter_node(pod, times);
        self.count_place(pod, times);
    }

    /// Enters or removes a pod's place in the ledgers of its node.
    fn enter_node(&mut self, id: PodId, times: i64) {
        let pod = &self.pods[id.index()];
        let (Some(node_id), true) = (pod.place.node, pod.place.status.is_active()) else { return };
        let class = self.classes.get(pod.class);
        let node = &mut self.nodes[node_id.index()];
        let status = pod.place.status;
        node.charge(&class.amounts, status, times);
        if class.is_shared() {
            let units = node.units_of(class.gpus).unwrap_or_else(|| node.device_units());
            let fresh = matches!(status, Status::Allocated | Status::Pipelined);
            for name in &pod.place.devices {
                if times > 0 && node.share(*name, units, status, fresh) {
                    *self.shared_names.entry(*name).or_default() += 1;
                } else if times < 0
                    && node.unshare(*name, units, status)
                    && let Entry::Occupied(mut nodes) = self.shared_names.entry(*name)
                {
                    *nodes.get_mut() -= 1;
                    if *nodes.get() == 0 {
                        nodes.remove();
                    }
                }
            }
        }
        if times > 0 {
            node.pods.push(id);
        } else if let Some(place) = node.pods.iter().rposition(|pod| *pod == id) {
            node.pods.swap_remove(place);
        }
        if matches!(class.gpus, Gpus::Memory { .. }) {
            self.pods_by_memory = self.pods_by_memory.saturating_add_signed(i32::try_from(times).unwrap_or(0));
        }
        if class.legacy_mig {
            node.legacy_mig = node.legacy_mig.saturating_add_signed(i32::try_from(times).unwrap_or(0));
        }
        let preemptible = pod.group.is_some_and(|group| self.groups[group.index()].preemptible);
        if preemptible && status.is_active_allocated() && status != Status::Pipelined {
            let gpus = match class.gpus {
                Gpus::Whole(count) => i64::from(count),
                Gpus::Portion { devices, .. } | Gpus::Memory { devices, .. } => i64::from(devices),
                Gpus::None => 0,
            };
            node.evictable_gpus += gpus * times;
        }
        if let Some(detail) = &pod.place.detail {
            if let Some(numa) = &mut node.numa {
                numa.charge(&detail.numa, status, times);
            }
            if preemptible && status.is_active_allocated() && status != Status::Pipelined {
                node.evictable_gpus += node.claimed_whole_gpus(detail) * times;
            }
            self.claims.enter_detail(detail, (node_id, node), status, times);
        }
        if pod.is_foreign() {
            let mut charge = class.charge_on(node.gpu_memory);
            let further = pod.claims().iter().map(|claim| self.claims.get(*claim).further_gpus(node)).sum::<i128>();
            charge.0[share::GPU] += pod.rare.as_ref().map_or(0, |rare| rare.claimed_gpus) + further;
            if times > 0 {
                node.foreign.add(&charge);
            } else {
                node.foreign.subtract(&charge);
            }
        }
        if class.constraints.repels() {
            if times > 0 {
                self.repellers.insert(id);
            } else {
                self.repellers.remove(&id);
            }
        }
        self.journal.push(node_id);
        self.moves.push(id);
    }

    /// Enters or removes a pod's place in the counts of its podset and the ledgers of its queues.
    fn count_place(&mut self, id: PodId, times: i64) {
        let pod = &self.pods[id.index()];
        let Some(group_id) = pod.group else { return };
        let status = pod.place.status;
        let podset = usize::from(pod.podset);
        let group = &mut self.groups[group_id.index()];
        let Some(podset) = group.podsets.get_mut(podset) else { return };
        let count = &mut podset.counts[status.index()];
        *count = if times > 0 { *count + 1 } else { count.saturating_sub(1) };
        let (Some(queue), preemptible) = (group.queue, group.preemptible) else { return };
        if status.is_charged() {
            let charge = self.charge_of(id);
            let by_memory = matches!(self.classes.get(pod.class).gpus, Gpus::Memory { .. });
            let by_memory = if by_memory { charge.0[share::GPU] } else { 0 };
            self.charge_queues(queue, &charge, by_memory, preemptible, times);
        } else if status == Status::Pending {
            let mut charge = self.classes.get(pod.class).charge;
            charge.0[share::GPU] += pod.rare.as_ref().map_or(0, |rare| rare.claimed_gpus);
            let memory = match self.classes.get(pod.class).gpus {
                Gpus::Memory { devices, mib } => i128::from(devices) * i128::from(mib),
                _ => 0,
            };
            self.await_queues(queue, &charge, memory, times);
        }
    }
}
