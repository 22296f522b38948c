//! Promises: what the last cycle pipelined is served first, and if it fits nowhere else where it was promised.
//!
//! Without this, whoever comes first in the order of serving takes what was freed for another, who has somebody evicted again: two groups
//! could take turns for ever. A promise is kept as long as each cycle can renew it; a cycle that cannot forgets it.

use crate::{
    cycle::Cycle,
    ids::{ClassId, GroupId, NodeId},
    plan::Decision,
    policy::Action,
};

/// What a group was promised.
#[derive(Clone, Debug)]
pub struct Promise {
    group: GroupId,
    /// Ids are used again: the name says whether it is still the same group.
    key: Box<str>,
    places: Vec<(ClassId, NodeId)>,
}

impl Cycle<'_> {
    /// Serves the groups that were promised places and still wait, in the order of the promises.
    pub(super) fn keep_promises(&mut self) {
        for promise in std::mem::take(&mut self.cluster.memory.promises) {
            let same = self.cluster.groups.get(promise.group.index()).is_some_and(|group| group.key == promise.key);
            if !same || !self.has_turn(promise.group, Action::Allocate) {
                continue;
            }
            let steps = self.tasks().to_place(promise.group);
            if self.serve(promise.group, &steps).is_err() {
                self.kept = promise.places;
                // What cannot be kept is no refusal yet: the group's own turn comes.
                let _ = self.serve(promise.group, &steps);
                self.kept.clear();
            }
        }
    }

    /// Remembers what this cycle promises.
    pub(super) fn remember_promises(&mut self) {
        let mut promises: Vec<Promise> = Vec::new();
        for decision in &self.plan.decisions {
            let Decision::Pipeline(placed) = decision else { continue };
            let pod = &self.cluster.pods[placed.pod.index()];
            let Some(group) = pod.group else { continue };
            let place = (pod.class, placed.node);
            match promises.last_mut() {
                Some(promise) if promise.group == group => promise.places.push(place),
                _ => promises.push(Promise { group, key: self.group(group).key.clone(), places: vec![place] }),
            }
        }
        self.cluster.memory.promises = promises;
    }
}
