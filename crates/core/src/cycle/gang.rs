//! A group's next step, placed whole or not at all, within the domains its topology constraints allow.

use smallvec::SmallVec;

use crate::{
    cluster::{Cluster, group::Child, status::Status},
    cycle::{
        Cycle,
        placement::{Mode, Scope},
        tasks::{Step, Steps},
    },
    delta::TopologyConstraint,
    ids::{GroupId, NodeId, PodId},
    plan::Cause,
    topology::{Ask, Bands, NodeSet, Trees, subsets},
};

/// How far recursion follows the tree of subgroups.
const DEEPEST: usize = 64;

/// What a group asked for and did not get.
type Outcome = Result<(), Cause>;

/// What is tried in a domain: some nodes, of which some are better.
type Attempt<'a, C> = dyn FnMut(&mut C, Option<&NodeSet>, Option<&Bands>) -> Outcome + 'a;

impl Cycle<'_> {
    /// Places the next step of a group, or leaves everything as it was and says why.
    pub(super) fn place_group(&mut self, group: GroupId, steps: &Steps, mode: Mode) -> Outcome {
        let checkpoint = self.cluster.checkpoint();
        let outcome = self.check_capacity(group, steps).and_then(|()| {
            if self.group(group).tree.is_some() {
                self.place_set(group, 0, steps, None, None, mode, 0)
            } else {
                self.place_podset(group, steps, &mut Scope::default(), mode)
            }
        });
        if outcome.is_err() {
            self.cluster.rollback(checkpoint);
        }
        outcome
    }

    fn check_capacity(&self, group: GroupId, steps: &Steps) -> Outcome {
        let described = self.group(group);
        let Some(queue) = described.queue.filter(|_| self.policy.plugins.proportion) else { return Ok(()) };
        let cost = self.tasks().cost(steps, self.largest_gpu);
        self.cluster.breach(queue, &cost, described.preemptible).map_or(Ok(()), |breach| Err(breach.cause()))
    }

    /// Places the steps below an inner subgroup, trying its domains in order.
    #[expect(clippy::too_many_arguments, reason = "the recursion carries the narrowing scope down the tree")]
    fn place_set(
        &mut self,
        group: GroupId,
        set: u16,
        steps: &Steps,
        within: Option<&NodeSet>,
        bands: Option<&Bands>,
        mode: Mode,
        depth: usize,
    ) -> Outcome {
        let Some(described) = self.group(group).tree.as_ref().and_then(|tree| tree.sets.get(usize::from(set))) else {
            return Ok(());
        };
        if depth > DEEPEST {
            return Ok(());
        }
        let (constraint, name) = (described.topology.clone(), described.name);
        let children = self.tasks().ordered_children(self.group(group), described);
        let leaves: SmallVec<[u16; 4]> = self.leaves(group, set, 0);
        let below: Steps = steps.iter().filter(|step| leaves.contains(&step.podset)).cloned().collect();
        if below.is_empty() {
            return Ok(());
        }
        let name = self.cluster.word(name).to_owned();
        self.in_domains(
            constraint.as_ref(),
            &name,
            group,
            &leaves,
            &below,
            within,
            bands,
            &mut |cycle, nodes, bands| {
                for child in &children {
                    match child {
                        Child::Set(set) => cycle.place_set(group, *set, &below, nodes, bands, mode, depth + 1)?,
                        Child::PodSet(podset) => {
                            let steps: Steps = below.iter().filter(|step| step.podset == *podset).cloned().collect();
                            if !steps.is_empty() {
                                cycle.place_leaf(group, *podset, &steps, nodes, bands, mode)?;
                            }
                        }
                    }
                }
                Ok(())
            },
        )
    }

    fn place_leaf(
        &mut self,
        group: GroupId,
        podset: u16,
        steps: &Steps,
        within: Option<&NodeSet>,
        bands: Option<&Bands>,
        mode: Mode,
    ) -> Outcome {
        let described = self.group(group);
        let tree = described.tree.as_ref();
        let constraint = tree.and_then(|tree| tree.podset_topology.get(usize::from(podset))).cloned().flatten();
        let name = described
            .podsets
            .get(usize::from(podset))
            .map_or(String::new(), |podset| self.cluster.word(podset.name).to_owned());
        self.in_domains(
            constraint.as_ref(),
            &name,
            group,
            &[podset],
            steps,
            within,
            bands,
            &mut |cycle, nodes, bands| {
                let mut scope = Scope::new(nodes.cloned(), bands.cloned());
                cycle.place_podset(group, steps, &mut scope, mode)
            },
        )
    }

    /// Tries `attempt` in each domain a constraint allows, the best first, until one succeeds; without a constraint once.
    #[expect(clippy::too_many_arguments, reason = "the recursion carries the narrowing scope down the tree")]
    fn in_domains(
        &mut self,
        constraint: Option<&TopologyConstraint>,
        subgroup: &str,
        group: GroupId,
        leaves: &[u16],
        steps: &Steps,
        within: Option<&NodeSet>,
        bands: Option<&Bands>,
        attempt: &mut Attempt<'_, Self>,
    ) -> Outcome {
        let Some(constraint) = constraint.filter(|_| self.policy.plugins.topology) else {
            return attempt(self, within, bands);
        };
        let tasks: Vec<PodId> = steps.iter().flat_map(|step| step.pods.iter().copied()).collect();
        let holding = self.nodes_of(group, leaves);
        let ask = Ask { constraint, subgroup, tasks: &tasks, within, holding: &holding };
        let mut found = self.with_trees(|trees, cluster| subsets(trees, cluster, &ask))?;
        let own = found.bands.clone().or_else(|| bands.cloned());
        let checkpoint = self.cluster.checkpoint();
        let mut refusal = None;
        while let Some(nodes) = self.with_trees(|trees, cluster| found.next(trees, cluster)) {
            match attempt(self, Some(&nodes), own.as_ref()) {
                Ok(()) => return Ok(()),
                Err(cause) => {
                    self.cluster.rollback(checkpoint);
                    refusal.get_or_insert(cause);
                }
            }
        }
        Err(refusal
            .unwrap_or_else(|| Cause::TopologyUnknown(format!("topology `{}` has no domain", constraint.topology))))
    }

    /// Looks at domains with the trees that survive cycles.
    fn with_trees<T>(&mut self, look: impl FnOnce(&mut Trees, &Cluster) -> T) -> T {
        let mut trees = std::mem::take(&mut self.cluster.memory.trees);
        let result = look(&mut trees, self.cluster);
        self.cluster.memory.trees = trees;
        result
    }

    /// The nodes that hold pods of some podsets.
    fn nodes_of(&self, group: GroupId, leaves: &[u16]) -> Vec<NodeId> {
        let podsets = leaves.iter().filter_map(|leaf| self.group(group).podsets.get(usize::from(*leaf)));
        let places = podsets.flat_map(|podset| &podset.pods).map(|pod| &self.cluster.pods[pod.index()].place);
        places.filter(|place| place.status.is_active_allocated()).filter_map(|place| place.node).collect()
    }

    /// The podsets below an inner subgroup.
    fn leaves(&self, group: GroupId, set: u16, depth: usize) -> SmallVec<[u16; 4]> {
        let tree = self.group(group).tree.as_ref();
        let Some(set) = tree.and_then(|tree| tree.sets.get(usize::from(set))).filter(|_| depth < DEEPEST) else {
            return SmallVec::new();
        };
        let leaves = set.children.iter().flat_map(|child| match child {
            Child::PodSet(podset) => SmallVec::<[u16; 4]>::from_slice(&[*podset]),
            Child::Set(set) => self.leaves(group, *set, depth + 1),
        });
        leaves.collect()
    }

    /// Places the pods of steps one after the other.
    fn place_podset(&mut self, group: GroupId, steps: &Steps, scope: &mut Scope, mode: Mode) -> Outcome {
        let mut placed = 0;
        for step in steps {
            for pod in &step.pods {
                if !self.place(*pod, scope, mode) {
                    return Err(self.explain_pod(group, steps, step, *pod, placed, scope, mode));
                }
                placed += 1;
            }
        }
        Ok(())
    }

    /// If a gang would start with some of its pods waiting for others to leave, all of it waits.
    pub(super) fn wait_together(&mut self, group: GroupId, steps: &Steps) {
        let described = self.group(group);
        let waits = described.podsets.iter().any(|podset| {
            let promised = podset.count(Status::Pipelined);
            promised > 0 && podset.active_allocated() - promised < podset.min
        });
        if !waits {
            return;
        }
        for pod in pods_of(steps) {
            let place = &self.cluster.pods[pod.index()].place;
            if place.status == Status::Allocated {
                let place = place.with(Status::Pipelined);
                self.cluster.assign(pod, place);
            }
        }
    }
}

/// All pods of some steps.
pub fn pods_of(steps: &[Step]) -> impl Iterator<Item = PodId> + '_ {
    steps.iter().flat_map(|step| step.pods.iter().copied())
}
