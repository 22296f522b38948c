//! Reclaim takes only from queues above their share, for groups that stay within theirs.
//!
//! Source: kai-core.md §4.4. Victims are judged as one would judge them in the order that is best for the plan: the last one of a queue is taken
//! while the queue is still above its share, and so are all before it. What groups were placed for is judged by what they got.

use std::collections::{BTreeMap, BTreeSet};

use kai_core::{
    delta::{PodGroup, Queue},
    policy::Action,
};

use crate::{
    Cycle, Violation,
    cycle::{Evicting, Step},
    facts::queue::{Accounts, Cost, RESOURCES, resources},
    facts::standing::Standing,
};

/// Reclaims that are unfair.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    if !cycle.policy.plugins.proportion {
        return Vec::new();
    }
    let mut violations = Vec::new();
    for reclaim in reclaims(cycle) {
        for what in reclaim.troubles(cycle) {
            let object = reclaim.beneficiary.key.clone();
            violations.push(Violation { invariant: "reclaim is fair", object, what });
        }
    }
    violations
}

/// Everything reclaimed for one group.
struct Reclaim<'a> {
    beneficiary: &'a PodGroup,
    /// What queues held when it began.
    accounts: Accounts<'a>,
    /// What the group got.
    request: Cost,
    victims: Vec<Evicting<'a>>,
}

fn reclaims<'a>(cycle: &Cycle<'a>) -> Vec<Reclaim<'a>> {
    let mut found: BTreeMap<&str, Reclaim<'a>> = BTreeMap::new();
    let mut accounts = cycle.accounts();
    // The group whose solution is being read, until somebody is evicted for another.
    let mut current: Option<&str> = None;
    for step in &cycle.steps {
        match step {
            Step::Evict(evicting) => {
                let beneficiary = evicting.beneficiary.filter(|_| evicting.eviction.action == Action::Reclaim);
                current = beneficiary.map(|beneficiary| beneficiary.key.as_str());
                if let Some(beneficiary) = beneficiary {
                    let reclaim = found.entry(&beneficiary.key).or_insert_with(|| Reclaim {
                        beneficiary,
                        accounts: accounts.clone(),
                        request: [0; 3],
                        victims: Vec::new(),
                    });
                    reclaim.victims.push(*evicting);
                }
            }
            Step::Place(placing) if placing.pod.group.as_deref() == current => {
                if let Some(reclaim) = current.and_then(|key| found.get_mut(key)) {
                    reclaim.request = sum(reclaim.request, cycle.cost_of(placing), 1);
                }
            }
            _ => {}
        }
        cycle.advance(&mut accounts, step);
    }
    found.into_values().collect()
}

impl<'a> Reclaim<'a> {
    fn troubles(&self, cycle: &Cycle<'a>) -> Vec<String> {
        let own = self.beneficiary.queue.as_str();
        let mut troubles = Vec::new();
        let wanted = sum(self.accounts.allocated(own), self.request, 1);
        let share = fair_share(cycle, own);
        if let Some(place) = (0..3).find(|place| wanted[*place] > share[*place]) {
            let (wanted, share, name) = (wanted[place], share[place], RESOURCES[place]);
            troubles.push(format!("queue `{own}` would hold {wanted} of {name}, its fair share is {share}"));
        }
        let mut pairs: BTreeMap<(&str, &str), Vec<&Evicting<'a>>> = BTreeMap::new();
        for victim in &self.victims {
            match cycle.facts.leveled(own, &victim.group.queue) {
                Some(pair) => pairs.entry(pair).or_default().push(victim),
                None => troubles.push(format!("`{}` is of its own queue", victim.pod.uid)),
            }
        }
        for victims in pairs.values_mut() {
            // Victims that found another place are unharmed, where the policy sees it so.
            victims.retain(|victim| !(cycle.policy.consolidating_reclaim && victim.eviction.moved));
        }
        pairs.retain(|_, victims| !victims.is_empty());
        for ((ours, theirs), victims) in &pairs {
            troubles.extend(self.victim_trouble(cycle, ours, theirs, victims));
        }
        troubles.extend(self.saturation_trouble(cycle, &pairs));
        troubles
    }

    /// Whether there is an order in which each victim is taken from a queue that is still above its share.
    fn victim_trouble(&self, cycle: &Cycle<'a>, ours: &str, theirs: &str, victims: &[&Evicting<'a>]) -> Option<String> {
        let queue = cycle.facts.queues.get(theirs)?;
        let quota = |queue: &Queue| resources(queue).map(|resource| resource.quota.map(i128::from));
        let with_request = sum(self.accounts.allocated(ours), self.request, 1);
        let within_quota = cycle.facts.queues.get(ours).is_some_and(|ours| {
            quota(ours).iter().zip(with_request).all(|(quota, held)| quota.is_none_or(|quota| held <= quota))
        });
        let held = self.accounts.allocated(theirs);
        let above = |rest: Cost| {
            let allocatable = allocatable(queue, fair_share(cycle, theirs));
            let exceeds = |bounds: [Option<i128>; 3]| {
                bounds.iter().zip(rest).any(|(bound, rest)| bound.is_some_and(|bound| rest > bound))
            };
            exceeds(allocatable) || (within_quota && exceeds(quota(queue)))
        };
        let taken = victims.iter().fold([0; 3], |taken, victim| sum(taken, cycle.cost_before(victim.pod), 1));
        let fair = vectors(cycle, victims).into_iter().any(|last| above(sum(sum(held, taken, -1), last, 1)));
        (!fair).then(|| {
            let share = fair_share(cycle, theirs);
            format!("takes {taken:?} from queue `{theirs}`, which holds {held:?} with a fair share of {share:?}")
        })
    }

    /// Whether a queue above its share on the way up takes from a sibling that is no better off.
    fn saturation_trouble(
        &self,
        cycle: &Cycle<'a>,
        pairs: &BTreeMap<(&str, &str), Vec<&Evicting<'a>>>,
    ) -> Option<String> {
        for ((ours, theirs), victims) in pairs {
            let lost = |queue: &str| {
                let below = |victim: &&&Evicting<'a>| cycle.facts.chain(&victim.group.queue).contains(&queue);
                let all = pairs.values().flatten().filter(below);
                all.fold([0; 3], |lost, victim| sum(lost, cycle.cost_before(victim.pod), 1))
            };
            let mine = sum(sum(self.accounts.allocated(ours), lost(ours), -1), self.request, 1);
            let rest = sum(self.accounts.allocated(theirs), lost(theirs), -1);
            let (my_share, their_share) = (fair_share(cycle, ours), fair_share(cycle, theirs));
            let taken = victims.iter().fold([0; 3], |taken, victim| sum(taken, cycle.cost_before(victim.pod), 1));
            for place in (0..3).filter(|place| taken[*place] > 0 || self.request[*place] > 0) {
                let saturated = mine[place] > my_share[place] && their_share[place] > 0;
                let multiplier = i128::from(cycle.policy.saturation_multiplier.max(1000));
                let left = mine[place].saturating_mul(multiplier).saturating_mul(their_share[place]);
                let right = rest[place].saturating_mul(1000).saturating_mul(my_share[place]);
                if saturated && (my_share[place] == 0 || left >= right) {
                    return Some(format!(
                        "queue `{ours}` would hold {} of {} with a share of {}, `{theirs}` {} with {}",
                        mine[place], RESOURCES[place], my_share[place], rest[place], their_share[place]
                    ));
                }
            }
        }
        None
    }
}

/// What is taken at once: each surplus pod alone, the core of a group together.
fn vectors<'a>(cycle: &Cycle<'a>, victims: &[&Evicting<'a>]) -> Vec<Cost> {
    let mut by_group: BTreeMap<&str, Vec<Cost>> = BTreeMap::new();
    for victim in victims {
        by_group.entry(&victim.group.key).or_default().push(cycle.cost_before(victim.pod));
    }
    let evicted: BTreeSet<&str> = cycle
        .steps
        .iter()
        .filter_map(|step| if let Step::Evict(evicting) = step { Some(evicting.pod.uid.as_str()) } else { None })
        .collect();
    let mut vectors = Vec::new();
    for (key, costs) in by_group {
        let Some(gang) = cycle.gangs.get(key) else { continue };
        let running = gang.count(|pod| cycle.standing(pod) == Standing::Placed);
        // Others may have had the surplus already: what is left is the core.
        let taken = gang.count(|pod| evicted.contains(&pod.uid.as_str()));
        let core = (0..running.len()).any(|place| {
            taken[place] > 0 && running[place] - taken[place] < gang.podsets[place].min.min(running[place])
        });
        if core {
            vectors.push(costs.into_iter().fold([0; 3], |total, cost| sum(total, cost, 1)));
        } else {
            vectors.extend(costs);
        }
    }
    vectors
}

fn allocatable(queue: &Queue, share: Cost) -> [Option<i128>; 3] {
    let mut bounds = [None; 3];
    for (place, resource) in resources(queue).into_iter().enumerate() {
        let limit = resource.limit.map(i128::from);
        bounds[place] = match resource.quota {
            None => limit,
            Some(quota) => {
                let share = i128::from(quota).max(share[place]);
                Some(limit.map_or(share, |limit| limit.min(share)))
            }
        };
    }
    bounds
}

/// The fair share as the core divided it: the division has an oracle of its own.
fn fair_share(cycle: &Cycle<'_>, queue: &str) -> Cost {
    let id = cycle.cluster.queue(queue);
    id.and_then(|id| cycle.cluster.queues.get(id.index())).map_or([0; 3], |queue| queue.fair_share.0)
}

fn sum(mut one: Cost, other: Cost, times: i128) -> Cost {
    for (one, other) in one.iter_mut().zip(other) {
        *one += other * times;
    }
    one
}
