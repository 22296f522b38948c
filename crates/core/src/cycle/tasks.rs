//! Which pods of a group come next: the minimum of its gang as one step, then one pod at a time; and which go first.
//!
//! The rules follow the tree of subgroups. A podset is *satisfied* when it has its minimum of pods, a set when enough of its parts are.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::{
    amounts::Shares,
    cluster::{
        Cluster,
        group::{Child, Group, PodSet, SubGroupSet},
        pod::order_key,
        status::Status,
    },
    ids::{GroupId, PodId},
    policy::Policy,
};

/// Pods of one podset that are placed or evicted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The podset.
    pub podset: u16,
    /// Its pods, best first.
    pub pods: SmallVec<[PodId; 4]>,
}

/// The pods to place next: an all-or-nothing step.
pub type Steps = SmallVec<[Step; 1]>;

/// Looks at groups under a policy.
#[derive(Clone)]
pub struct Tasks<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The policy.
    pub policy: &'a Policy,
}

impl Tasks<'_> {
    /// The pods to place next, evicted ones too; empty if there are none or too few.
    #[must_use]
    pub fn to_place(&self, group: GroupId) -> Steps {
        let mut steps = Steps::new();
        let group = &self.cluster.groups[group.index()];
        match &group.tree {
            Some(tree) if !tree.sets.is_empty() => self.collect_set(group, 0, &mut steps, 0),
            _ => self.collect_podset(group, 0, &mut steps),
        }
        steps
    }

    /// What a step costs its queue, with memory counted on devices of `memory` MiB.
    #[must_use]
    pub fn cost(&self, steps: &Steps, memory: Option<u64>) -> Shares {
        let mut sum = Shares::default();
        for pod in steps.iter().flat_map(|step| &step.pods) {
            sum.add(&self.cluster.charge_with(*pod, memory));
        }
        sum
    }

    /// Pods of a podset that wait, best first.
    #[must_use]
    pub fn waiting(&self, podset: &PodSet) -> SmallVec<[PodId; 4]> {
        let mut pods: SmallVec<[PodId; 4]> =
            podset.pods.iter().copied().filter(|pod| self.cluster.is_waiting(*pod)).collect();
        if pods.len() > 1 {
            pods.sort_unstable_by(|a, b| self.compare_pods(*a, *b));
        }
        pods
    }

    /// Which of two pods of a podset comes first.
    #[must_use]
    pub fn compare_pods(&self, one: PodId, other: PodId) -> Ordering {
        let (a, b) = (&self.cluster.pods[one.index()], &self.cluster.pods[other.index()]);
        let rank = |role: u32| {
            let (kubeflow, ray, priority) = order_key(self.cluster.roles[role as usize]);
            let plugins = &self.policy.plugins;
            (plugins.kubeflow && kubeflow, plugins.ray && ray, if plugins.task_order { priority } else { 0 })
        };
        let roles = if a.role == b.role { Ordering::Equal } else { rank(a.role).cmp(&rank(b.role)) };
        roles.then_with(|| a.created.cmp(&b.created)).then_with(|| a.uid.cmp(&b.uid))
    }

    /// Whether enough pods exist for the gang.
    #[must_use]
    pub fn is_ready(&self, group: &Group) -> bool {
        self.holds(group, &|podset: &PodSet| podset.ready())
    }

    /// Whether enough pods of the gang still hold resources, leaving ones too.
    #[must_use]
    pub fn is_whole(&self, group: &Group) -> bool {
        self.holds(group, &|podset: &PodSet| podset.active())
    }

    /// Whether enough pods of the gang are among those that are counted.
    #[must_use]
    pub fn holds(&self, group: &Group, count: &dyn Fn(&PodSet) -> u32) -> bool {
        match &group.tree {
            Some(tree) if !tree.sets.is_empty() => self.set_holds(group, 0, count, 0),
            _ => group.podsets.iter().all(|podset| count(podset) >= podset.min),
        }
    }

    fn set_holds(&self, group: &Group, set: u16, count: &dyn Fn(&PodSet) -> u32, depth: usize) -> bool {
        let Some(set) = set_of(group, set).filter(|_| depth < DEEPEST) else { return false };
        let held = set.children.iter().filter(|child| self.child_holds(group, **child, count, depth)).count();
        held >= threshold(set)
    }

    fn child_holds(&self, group: &Group, child: Child, count: &dyn Fn(&PodSet) -> u32, depth: usize) -> bool {
        match child {
            Child::Set(set) => self.set_holds(group, set, count, depth + 1),
            Child::PodSet(place) => {
                group.podsets.get(usize::from(place)).is_some_and(|podset| count(podset) >= podset.min)
            }
        }
    }

    fn child_satisfied(&self, group: &Group, child: Child) -> bool {
        self.child_holds(group, child, &PodSet::active_allocated, 0)
    }

    /// A set that is not satisfied takes what its next parts need; a satisfied one takes one step of its first part that has one.
    fn collect_set(&self, group: &Group, set: u16, steps: &mut Steps, depth: usize) {
        let Some(described) = set_of(group, set).filter(|_| depth < DEEPEST) else { return };
        let children = self.ordered_children(group, described);
        let satisfied = children.iter().filter(|child| self.child_satisfied(group, **child)).count();
        let missing = threshold(described).saturating_sub(satisfied);
        if missing > 0 {
            // Pods that this cycle evicted can be counted on as well.
            let obtainable = |podset: &PodSet| {
                let waiting = podset.pods.iter().filter(|pod| self.cluster.is_waiting(**pod)).count();
                podset.active_allocated() + u32::try_from(waiting).unwrap_or(u32::MAX)
            };
            let ready = |child: &&Child| self.child_holds(group, **child, &obtainable, 0);
            let open = children.iter().filter(|child| !self.child_satisfied(group, **child));
            let next: SmallVec<[Child; 4]> = open.filter(ready).take(missing).copied().collect();
            // A set that cannot become whole takes nothing.
            for child in next.iter().filter(|_| next.len() == missing) {
                self.collect_child(group, *child, steps, depth);
            }
            return;
        }
        for child in children {
            let before = steps.len();
            self.collect_child(group, child, steps, depth);
            if steps.len() > before {
                return;
            }
        }
    }

    fn collect_child(&self, group: &Group, child: Child, steps: &mut Steps, depth: usize) {
        match child {
            Child::Set(set) => self.collect_set(group, set, steps, depth + 1),
            Child::PodSet(podset) => self.collect_podset(group, podset, steps),
        }
    }

    fn collect_podset(&self, group: &Group, place: u16, steps: &mut Steps) {
        let Some(podset) = group.podsets.get(usize::from(place)) else { return };
        let mut pods = self.waiting(podset);
        let wanted = podset.min.saturating_sub(podset.active_allocated()).max(1) as usize;
        if podset.min > podset.active_allocated() && pods.len() < wanted {
            return;
        }
        pods.truncate(wanted);
        if !pods.is_empty() {
            steps.push(Step { podset: place, pods });
        }
    }

    /// The parts of a set: unsatisfied before satisfied, then the relatively emptiest, parts without a minimum last, then by name.
    #[must_use]
    pub fn ordered_children(&self, group: &Group, set: &SubGroupSet) -> SmallVec<[Child; 4]> {
        let mut children: SmallVec<[Child; 4]> = set.children.iter().copied().collect();
        if self.policy.plugins.subgroup_order && children.len() > 1 {
            // The list is in the order of names, and the sort is stable.
            children.sort_by(|a, b| self.compare_children(group, *a, *b));
        }
        children
    }

    fn compare_children(&self, group: &Group, one: Child, other: Child) -> Ordering {
        let (a, b) = (self.child_satisfied(group, one), self.child_satisfied(group, other));
        if !(a && b) {
            return a.cmp(&b);
        }
        let ((have, need), (have_other, need_other)) = (self.fill(group, one), self.fill(group, other));
        match (need == 0, need_other == 0) {
            (false, false) => (have * need_other).cmp(&(have_other * need)),
            (a, b) => a.cmp(&b),
        }
    }

    /// How much a part has and needs.
    fn fill(&self, group: &Group, child: Child) -> (u64, u64) {
        match child {
            Child::PodSet(place) => group
                .podsets
                .get(usize::from(place))
                .map_or((0, 0), |podset| (u64::from(podset.active_allocated()), u64::from(podset.min))),
            Child::Set(set) => set_of(group, set).map_or((0, 0), |set| {
                let have = set.children.iter().filter(|child| self.child_satisfied(group, **child)).count();
                (have as u64, threshold(set) as u64)
            }),
        }
    }

    /// The pods that go first if the group must give something: one surplus pod, else one surplus part, else everything.
    #[must_use]
    pub fn to_evict(&self, group: GroupId) -> SmallVec<[PodId; 4]> {
        let group = &self.cluster.groups[group.index()];
        if let Some(tree) = group.tree.as_deref().filter(|tree| !tree.sets.is_empty()) {
            let order = self.leaves_in_order(group, 0, 0);
            let surplus = order.iter().rev().find(|place| has_surplus(&group.podsets[usize::from(**place)]));
            if let Some(place) = surplus {
                return self.worst(&group.podsets[usize::from(*place)], 1);
            }
            for set in &tree.sets {
                let satisfied: SmallVec<[Child; 4]> = self
                    .ordered_children(group, set)
                    .into_iter()
                    .filter(|child| self.child_satisfied(group, *child) && self.child_active(group, *child))
                    .collect();
                if satisfied.len() > threshold(set)
                    && let Some(child) = satisfied.last()
                {
                    return self.active_of(group, *child, 0);
                }
            }
        } else if let Some(podset) = group.podsets.iter().find(|podset| has_surplus(podset)) {
            return self.worst(podset, 1);
        }
        group.podsets.iter().flat_map(|podset| self.worst(podset, usize::MAX)).collect()
    }

    fn child_active(&self, group: &Group, child: Child) -> bool {
        !self.active_of(group, child, 0).is_empty()
    }

    fn active_of(&self, group: &Group, child: Child, depth: usize) -> SmallVec<[PodId; 4]> {
        match child {
            Child::PodSet(place) => {
                group.podsets.get(usize::from(place)).map(|podset| self.worst(podset, usize::MAX)).unwrap_or_default()
            }
            Child::Set(set) => set_of(group, set)
                .filter(|_| depth < DEEPEST)
                .map(|set| set.children.iter().flat_map(|child| self.active_of(group, *child, depth + 1)).collect())
                .unwrap_or_default(),
        }
    }

    fn leaves_in_order(&self, group: &Group, set: u16, depth: usize) -> SmallVec<[u16; 4]> {
        let Some(set) = set_of(group, set).filter(|_| depth < DEEPEST) else { return SmallVec::new() };
        let children = self.ordered_children(group, set);
        let leaves = children.into_iter().flat_map(|child| match child {
            Child::PodSet(place) => SmallVec::<[u16; 4]>::from_slice(&[place]),
            Child::Set(set) => self.leaves_in_order(group, set, depth + 1),
        });
        leaves.collect()
    }

    /// The last pods of a podset that hold a place, last first.
    fn worst(&self, podset: &PodSet, most: usize) -> SmallVec<[PodId; 4]> {
        let holds = |pod: &PodId| is_evictable(self.cluster, *pod);
        let mut pods: SmallVec<[PodId; 4]> = podset.pods.iter().copied().filter(holds).collect();
        if pods.len() > 1 {
            pods.sort_unstable_by(|a, b| self.compare_pods(*b, *a));
        }
        pods.truncate(most);
        pods
    }
}

/// How deep trees of subgroups are followed.
const DEEPEST: usize = 64;

/// Whether a pod has a place that can be taken from it: it holds one and does not leave, or this cycle gave or promised it one.
#[must_use]
pub fn is_evictable(cluster: &Cluster, pod: PodId) -> bool {
    let pod = &cluster.pods[pod.index()];
    match pod.place.status {
        Status::Binding | Status::Bound | Status::Running => true,
        Status::Allocated | Status::Pipelined => pod.fact == Status::Pending,
        _ => false,
    }
}

/// How many parts of a set must be satisfied.
#[must_use]
pub fn threshold(set: &SubGroupSet) -> usize {
    set.min.map_or(set.children.len(), |min| min as usize)
}

fn set_of(group: &Group, set: u16) -> Option<&SubGroupSet> {
    group.tree.as_ref()?.sets.get(usize::from(set))
}

fn has_surplus(podset: &PodSet) -> bool {
    let held = podset.active_allocated();
    held > podset.min && held > 0
}
