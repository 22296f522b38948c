//! What if: some batches are evicted, and everybody concerned is placed anew in the order of serving.
//!
//! The order is that of *all* waiting groups with the victims among them, though only the victims and the group for whose sake it happens are
//! tried: whoever waits at the head of a queue decides where the queue stands. Victims that find their place again were never needed;
//! victims that find another are moved; the others are evicted.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::{
    amounts::fixed,
    cluster::{node::SharedDevice, status::Status},
    cycle::{
        Cycle,
        order::{ServingOrder, is_waiting},
        placement::Mode,
        signature::Signature,
        victims::Batch,
    },
    ids::{GroupId, NodeId, PodId, QueueId, Word},
};

/// How a scenario came out.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Victims without a place, in the order in which they were taken; among them pods that only lost a promise.
    pub evicted: Vec<(GroupId, PodId)>,
    /// Victims with another place.
    pub moved: Vec<(GroupId, PodId)>,
    /// Pods of victims that were waiting, or had only a promise, and are promised a place now.
    pub promised: Vec<PodId>,
}

impl Outcome {
    /// How many pods lose or change their place.
    pub fn price(&self) -> usize {
        self.evicted.len() + self.moved.len()
    }
}

impl Cycle<'_> {
    /// Plays a scenario. If the beneficiary finds no place everything is as before; otherwise the cluster is as it would be.
    pub(super) fn play(&mut self, order: &ServingOrder, beneficiary: GroupId, batches: &[&Batch]) -> Option<Outcome> {
        self.plan.stats.simulations += 1;
        let checkpoint = self.cluster.checkpoint();
        for batch in batches {
            for pod in &batch.pods {
                self.cluster.evict(*pod);
            }
        }
        if !self.serve_again(order, beneficiary, batches) {
            self.cluster.rollback(checkpoint);
            return None;
        }
        self.keep_in_place(batches);
        let mut outcome = Outcome::default();
        for batch in batches {
            for pod in &batch.pods {
                if self.cluster.is_waiting(*pod) {
                    outcome.evicted.push((batch.group, *pod));
                } else if self.cluster.leaving.contains_key(pod) {
                    outcome.moved.push((batch.group, *pod));
                }
            }
        }
        let mut promised: Vec<PodId> = self.cluster.touched_since(checkpoint).collect();
        promised.retain(|pod| {
            let pod = &self.cluster.pods[pod.index()];
            pod.fact == Status::Pending && pod.place.status == Status::Pipelined && pod.group != Some(beneficiary)
        });
        promised.sort_unstable_by(|a, b| self.cluster.pod_uid(*a).cmp(self.cluster.pod_uid(*b)));
        promised.dedup();
        outcome.promised = promised;
        Some(outcome)
    }

    /// Serves the beneficiary and the victims in their turns; `false` if the beneficiary finds no place.
    fn serve_again(&mut self, order: &ServingOrder, beneficiary: GroupId, batches: &[&Batch]) -> bool {
        // The batches of each group that is served.
        let mut tried: FxHashMap<GroupId, SmallVec<[&Batch; 1]>> = FxHashMap::default();
        tried.insert(beneficiary, SmallVec::new());
        let mut again = {
            let view = self.view();
            let mut queues: SmallVec<[QueueId; 4]> = SmallVec::new();
            let concerned = batches.iter().map(|batch| batch.queue).chain(self.group(beneficiary).queue);
            for queue in concerned {
                if queues.last() != Some(&queue) && !queues.contains(&queue) {
                    queues.push(queue);
                }
            }
            let mut roots: SmallVec<[QueueId; 4]> = SmallVec::new();
            for queue in queues {
                roots.extend(view.cluster.chain(queue).last().filter(|root| !roots.contains(root)));
            }
            ServingOrder::new(&view, order.lists_below(view.cluster, &roots))
        };
        let mut groups: Vec<GroupId> = vec![beneficiary];
        for batch in batches {
            let own = tried.entry(batch.group).or_insert_with(|| {
                groups.push(batch.group);
                SmallVec::new()
            });
            own.push(batch);
        }
        again.push_all(&self.view(), groups);
        let mut left = tried.len();
        let mut refused: FxHashSet<Signature> = FxHashSet::default();
        while left > 0 {
            let cluster = &*self.cluster;
            let skip = |group: GroupId| tried.contains_key(&group) || !is_waiting(cluster, group);
            let Some(group) = again.pop(&self.view(), &skip) else { break };
            let Some(own) = tried.get(&group) else { continue };
            let steps = self.tasks().to_place(group);
            let signature = if steps.is_empty() { None } else { self.signature(group, &steps) };
            // From here on places are only taken: what was refused to an equal victim is refused to this one.
            let hopeless = steps.is_empty() || signature.as_ref().is_some_and(|signature| refused.contains(signature));
            let placed = !hopeless && self.place_group(group, &steps, Mode::Later).is_ok();
            if !placed {
                refused.extend(signature);
            }
            if group == beneficiary {
                if !placed {
                    return false;
                }
                left -= 1;
                let mut queues: SmallVec<[QueueId; 4]> = SmallVec::new();
                for batch in batches {
                    if !queues.contains(&batch.queue) {
                        queues.push(batch.queue);
                    }
                }
                again.narrow(&self.view(), &queues);
            } else if placed && self.has_lost(group, own) {
                again.push_all(&self.view(), vec![group]);
            } else {
                left -= 1;
            }
        }
        true
    }

    /// Whether the beneficiary would find a place if everybody left that may be made to leave.
    pub(super) fn fits_without<'b>(&mut self, beneficiary: GroupId, batches: impl Iterator<Item = &'b Batch>) -> bool {
        self.plan.stats.simulations += 1;
        let checkpoint = self.cluster.checkpoint();
        for pod in batches.flat_map(|batch| &batch.pods) {
            self.cluster.evict(*pod);
        }
        let steps = self.tasks().to_place(beneficiary);
        let fits = self.place_group(beneficiary, &steps, Mode::Later).is_ok();
        self.cluster.rollback(checkpoint);
        fits
    }

    /// Whether a group still lacks places that it had or was promised; `own` are its batches.
    fn has_lost(&self, group: GroupId, own: &[&Batch]) -> bool {
        let mut pods = self.group(group).podsets.iter().flat_map(|podset| &podset.pods);
        pods.any(|pod| self.cluster.pods[pod.index()].is_evicted())
            || own.iter().flat_map(|batch| &batch.pods).any(|pod| self.cluster.is_waiting(*pod))
    }

    /// Victims that were given another place though their own is still free stay where they are.
    fn keep_in_place(&mut self, batches: &[&Batch]) {
        let mut moved: Vec<(GroupId, Vec<PodId>)> = Vec::new();
        // Batches of a group need not follow each other: others may have given in between.
        let mut places: FxHashMap<GroupId, usize> = FxHashMap::default();
        for batch in batches.iter().rev() {
            let place = *places.entry(batch.group).or_insert_with(|| {
                moved.push((batch.group, Vec::new()));
                moved.len() - 1
            });
            let pods = batch.pods.iter().copied().filter(|pod| self.cluster.leaving.contains_key(pod));
            moved[place].1.extend(pods);
        }
        for (group, pods) in moved.into_iter().filter(|(_, pods)| !pods.is_empty()) {
            self.stay_where_free(group, &pods);
        }
    }

    /// Moved pods of a group whose own places are free stay there: each for itself, or all or none where they must be near each other.
    pub(super) fn stay_where_free(&mut self, group: GroupId, pods: &[PodId]) -> Vec<PodId> {
        let together = self.group(group).tree.is_some();
        let checkpoint = self.cluster.checkpoint();
        let mut stayed = Vec::new();
        for pod in pods {
            if self.own_place_is_free(*pod) {
                self.cluster.stay(*pod);
                stayed.push(*pod);
            } else if together {
                self.cluster.rollback(checkpoint);
                return Vec::new();
            }
        }
        stayed
    }

    /// Whether the place that a pod leaves was given to nobody, and nobody has come who keeps it away.
    pub(super) fn own_place_is_free(&mut self, pod: PodId) -> bool {
        self.ask_around(pod);
        let place = self.cluster.leaving.get(&pod).unwrap_or(&self.cluster.pods[pod.index()].place);
        if place.detail.is_some() {
            return false;
        }
        let Some(id) = place.node else { return false };
        let node = &self.cluster.nodes[id.index()];
        let census = self.census.as_ref().filter(|_| self.policy.plugins.predicates);
        if census.is_some_and(|census| census.check_pods(self.cluster, pod, id).is_err()) {
            return false;
        }
        let class = self.cluster.class_of(pod);
        if class.constraints.is_dynamic() || place.status != Status::Releasing || self.is_too_dear(pod, id) {
            return false;
        }
        let staying =
            |name: &Word| node.shared.iter().find(|device| device.name == *name).map_or(0, SharedDevice::staying);
        let units = node.shares_of(class).map_or(0, |(_, units)| units);
        let room = place.devices.iter().all(|name| staying(name).saturating_add(units) <= node.device_units());
        // Devices that everybody else leaves will be whole: it takes as many whole GPUs to stay on them.
        let whole = place.devices.iter().filter(|name| staying(name) == 0).count();
        let whole = i64::try_from(whole).unwrap_or(i64::MAX);
        node.exists && node.future.fit(&class.amounts) && room && whole <= node.future.fixed[fixed::GPU].max(0)
    }

    /// Whether a moved pod costs its queue more on a node than where it goes, and more than the queue may have: a request by memory is
    /// another share of each kind of device.
    fn is_too_dear(&self, pod: PodId, node: NodeId) -> bool {
        let held = &self.cluster.pods[pod.index()];
        let group = held.group.map(|group| self.group(group));
        let Some((queue, preemptible)) = group.and_then(|group| Some((group.queue?, group.preemptible))) else {
            return false;
        };
        if !held.place.status.is_charged() || !self.policy.plugins.proportion {
            return false;
        }
        let mut more = self.cluster.charge_at(pod, Some(node));
        more.subtract(&self.cluster.charge_of(pod));
        self.cluster.breach(queue, &more, preemptible).is_some()
    }
}
