//! A plan in names: what every check needs to know of facts and decisions together.

use std::collections::BTreeMap;

use kai_core::{
    Cluster,
    delta::{Pod, PodGroup},
    ids::GroupId,
    plan::{Decision, Eviction, Placed, Plan},
    policy::Policy,
    time::Time,
};

use crate::{
    Facts, Violation,
    facts::{
        gang::Gang,
        queue::{Accounts, cost},
        standing::Standing,
    },
};

/// A plan and what it was made from.
#[derive(Debug)]
pub struct Cycle<'a> {
    /// The cluster before the plan.
    pub facts: &'a Facts,
    /// The cluster that made it: for names.
    pub cluster: &'a Cluster,
    /// The plan.
    pub plan: &'a Plan,
    /// How it was to be made.
    pub policy: &'a Policy,
    /// When.
    pub now: Time,
    /// The decisions in order, in names.
    pub steps: Vec<Step<'a>>,
    /// All groups with their pods.
    pub gangs: BTreeMap<&'a str, Gang<'a>>,
    /// Where pods were placed: the last one counts, [`crate::members`] sees to it that there is only one.
    pub placements: BTreeMap<&'a str, Placing<'a>>,
    /// Which pods were evicted.
    pub evictions: BTreeMap<&'a str, Evicting<'a>>,
}

/// A decision in names.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// A pod was given a place or promised one.
    Place(Placing<'a>),
    /// A pod was evicted.
    Evict(Evicting<'a>),
    /// A group's start was recorded.
    Started(&'a PodGroup, Time),
    /// A group's staleness was recorded.
    Stale(&'a PodGroup, Option<Time>),
}

/// A placement in names.
#[derive(Clone, Copy, Debug)]
pub struct Placing<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The node's name.
    pub node: &'a str,
    /// Whether it was bound; otherwise only promised the place.
    pub bound: bool,
    /// The decision.
    pub placed: &'a Placed,
}

/// An eviction in names.
#[derive(Clone, Copy, Debug)]
pub struct Evicting<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its group.
    pub group: &'a PodGroup,
    /// For whom.
    pub beneficiary: Option<&'a PodGroup>,
    /// Who has what it made room for, if not the beneficiary.
    pub heir: Option<&'a PodGroup>,
    /// The decision.
    pub eviction: &'a Eviction,
}

impl<'a> Cycle<'a> {
    /// The plan in names, and complaints about ids that nothing has.
    #[must_use]
    pub fn new(
        facts: &'a Facts,
        cluster: &'a Cluster,
        plan: &'a Plan,
        policy: &'a Policy,
        now: Time,
    ) -> (Self, Vec<Violation>) {
        let mut cycle = Self {
            facts,
            cluster,
            plan,
            policy,
            now,
            steps: Vec::new(),
            gangs: facts.gangs(),
            placements: BTreeMap::new(),
            evictions: BTreeMap::new(),
        };
        let mut violations = Vec::new();
        for decision in &plan.decisions {
            let Some(step) = cycle.step(decision) else {
                violations.push(Violation {
                    invariant: "decisions are about objects that exist",
                    object: format!("{decision:?}"),
                    what: "names a pod, node or group that does not exist".to_owned(),
                });
                continue;
            };
            match step {
                Step::Place(placing) => drop(cycle.placements.insert(&placing.pod.uid, placing)),
                Step::Evict(evicting) => drop(cycle.evictions.insert(&evicting.pod.uid, evicting)),
                Step::Started(..) | Step::Stale(..) => {}
            }
            cycle.steps.push(step);
        }
        (cycle, violations)
    }

    /// The standing of a pod before the plan.
    #[must_use]
    pub fn standing(&self, pod: &Pod) -> Standing {
        Standing::of(pod, self.now, self.policy.stuck_after)
    }

    /// The group of an id.
    #[must_use]
    pub fn group(&self, id: GroupId) -> Option<&'a PodGroup> {
        let group = self.cluster.groups.get(id.index())?;
        self.facts.groups.get(&*group.key)
    }

    /// The gang of a pod, if it is part of one.
    #[must_use]
    pub fn gang_of(&self, pod: &Pod) -> Option<&Gang<'a>> {
        let gang = self.gangs.get(pod.group.as_deref()?)?;
        gang.podsets.iter().any(|podset| podset.pods.iter().any(|member| member.uid == pod.uid)).then_some(gang)
    }

    /// Whether a pod keeps the place it had before the plan.
    #[must_use]
    pub fn stays(&self, pod: &Pod) -> bool {
        self.standing(pod) == Standing::Placed && !self.evictions.contains_key(pod.uid.as_str())
    }

    /// Whether a pod has a place after the plan: it keeps its own, or was given or promised one.
    #[must_use]
    pub fn has_place(&self, pod: &Pod) -> bool {
        self.stays(pod) || self.placements.contains_key(pod.uid.as_str())
    }

    /// What queues hold before the plan.
    #[must_use]
    pub fn accounts(&self) -> Accounts<'a> {
        let mut accounts = Accounts::default();
        for gang in self.gangs.values() {
            for pod in gang.podsets.iter().flat_map(|podset| &podset.pods) {
                if self.standing(pod) == Standing::Placed {
                    accounts.add(self.facts, gang, self.cost_before(pod), 1);
                }
            }
        }
        accounts
    }

    /// What a pod costs its queue where it is before the plan.
    #[must_use]
    pub fn cost_before(&self, pod: &Pod) -> [i128; 3] {
        cost(pod, pod.placement.as_ref().and_then(|placement| self.facts.nodes.get(&placement.node)))
    }

    /// What a pod costs its queue where the plan puts it.
    #[must_use]
    pub fn cost_of(&self, placing: &Placing<'_>) -> [i128; 3] {
        cost(placing.pod, self.facts.nodes.get(placing.node))
    }

    /// Lets one step take its effect on what queues hold.
    pub fn advance(&self, accounts: &mut Accounts<'a>, step: &Step<'a>) {
        match step {
            Step::Place(placing) => {
                if let Some(gang) = self.gang_of(placing.pod) {
                    accounts.add(self.facts, gang, self.cost_of(placing), 1);
                }
            }
            Step::Evict(evicting) => {
                if let Some(gang) = self.gang_of(evicting.pod)
                    && self.standing(evicting.pod) == Standing::Placed
                {
                    accounts.add(self.facts, gang, self.cost_before(evicting.pod), -1);
                }
            }
            Step::Started(..) | Step::Stale(..) => {}
        }
    }

    /// What queues hold after the plan.
    #[must_use]
    pub fn accounts_after(&self) -> Accounts<'a> {
        let mut accounts = self.accounts();
        for step in &self.steps {
            self.advance(&mut accounts, step);
        }
        accounts
    }

    fn step(&self, decision: &'a Decision) -> Option<Step<'a>> {
        Some(match decision {
            Decision::Bind(placed) | Decision::Pipeline(placed) => {
                let bound = matches!(decision, Decision::Bind(_));
                let pod = self.facts.pods.get(&*self.cluster.pods.get(placed.pod.index())?.uid)?;
                let node = &self.cluster.nodes.get(placed.node.index())?.name;
                Step::Place(Placing { pod, node, bound, placed })
            }
            Decision::Evict(eviction) => {
                let pod = self.facts.pods.get(&*self.cluster.pods.get(eviction.pod.index())?.uid)?;
                let beneficiary = match eviction.beneficiary {
                    Some(id) => Some(self.group(id)?),
                    None => None,
                };
                let heir = match eviction.heir {
                    Some(id) => Some(self.group(id)?),
                    None => None,
                };
                Step::Evict(Evicting { pod, group: self.group(eviction.group)?, beneficiary, heir, eviction })
            }
            Decision::Started { group, at } => Step::Started(self.group(*group)?, *at),
            Decision::Stale { group, since } => Step::Stale(self.group(*group)?, *since),
        })
    }
}
