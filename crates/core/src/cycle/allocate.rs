//! Allocate: waiting groups in their turn get what is free, or what is about to be.

use rustc_hash::FxHashMap;

use crate::{
    amounts::share_of,
    cluster::status::Status,
    cycle::{Cycle, gang::pods_of, order::is_waiting, placement::Mode, signature::Refused, tasks::Steps},
    delta::{Gpus, NumaShare},
    ids::{GroupId, PodId},
    plan::{Cause, Decision, Placed},
    policy::Action,
};

impl Cycle<'_> {
    pub(super) fn allocate(&mut self) {
        let mut order = self.waiting_order(Action::Allocate);
        self.keep_promises();
        let mut refused: Refused = FxHashMap::default();
        while let Some(group) = {
            let cluster = &*self.cluster;
            order.pop(&self.view(), &|group| !is_waiting(cluster, group))
        } {
            let steps = self.tasks().to_place(group);
            if steps.is_empty() {
                continue;
            }
            self.plan.stats.groups_tried += 1;
            let signature = self.signature(group, &steps);
            // Placing only ever takes: what was refused to an equal group is refused to this one.
            if let Some(first) = signature.as_ref().and_then(|signature| refused.get(signature)) {
                self.refuse(group, Cause::SameAs(*first));
                continue;
            }
            match self.serve(group, &steps) {
                Ok(()) => {
                    if is_waiting(self.cluster, group) {
                        order.push(&self.view(), group);
                    }
                }
                Err(cause) => {
                    self.refuse(group, cause);
                    if let Some(signature) = signature {
                        refused.insert(signature, group);
                    }
                }
            }
        }
    }

    /// Places the next step of a group and writes it down, or says why not.
    pub(super) fn serve(&mut self, group: GroupId, steps: &Steps) -> Result<(), Cause> {
        if steps.is_empty() {
            return Ok(());
        }
        let described = self.group(group);
        let fresh = described.active_allocated() == described.count(Status::Pipelined);
        self.place_group(group, steps, Mode::Now)?;
        self.wait_together(group, steps);
        self.commit_placement(group, steps, fresh);
        Ok(())
    }

    /// Writes down that a step was placed.
    fn commit_placement(&mut self, group: GroupId, steps: &Steps, fresh: bool) {
        self.note_promise(group);
        let mut starts = false;
        for pod in pods_of(steps) {
            let placed = self.placed(pod);
            if self.cluster.pods[pod.index()].place.status == Status::Allocated {
                starts = true;
                self.plan.decisions.push(Decision::Bind(placed));
            } else {
                self.plan.decisions.push(Decision::Pipeline(placed));
            }
        }
        if fresh && starts {
            self.plan.decisions.push(Decision::Started { group, at: self.now });
        }
    }

    /// A pod's place, as a decision tells it.
    pub(super) fn placed(&self, id: PodId) -> Placed {
        let pod = &self.cluster.pods[id.index()];
        let node = pod.place.node.unwrap_or(crate::ids::NodeId(0));
        let portion = match self.cluster.class_of(id).gpus {
            Gpus::Portion { millionths, .. } => millionths,
            Gpus::Memory { mib, .. } => {
                let memory = self.cluster.nodes[node.index()].gpu_memory.unwrap_or(1);
                u32::try_from(share_of(i128::from(mib), memory)).unwrap_or(u32::MAX)
            }
            Gpus::None | Gpus::Whole(_) => 0,
        };
        let devices = pod.place.devices.iter().map(|name| self.cluster.word(*name).to_owned()).collect();
        let detail = pod.place.detail.as_deref();
        let (claims, extended) = detail.map(|detail| self.cluster.placed_claims(detail, node)).unwrap_or_default();
        let numa = detail.map_or(&[][..], |detail| &detail.numa).iter().map(|zone| NumaShare {
            zone: zone.zone,
            amounts: zone.amounts.iter().map(|(word, amount)| (self.cluster.word(*word).to_owned(), *amount)).collect(),
        });
        let numa = numa.collect();
        Placed { pod: id, node, devices, portion, claims, extended, numa }
    }
}
