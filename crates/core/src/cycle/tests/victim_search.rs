//! The search for victims against a player of every game: each set of batches that the rules allow is evicted, everybody is served again, and
//! the outcome is judged. No bound, no candidate, no order of looking is shared with the engine; a single game is.

use std::collections::BTreeMap;

use proptest::{prelude::*, test_runner::TestCaseError};

use super::{
    NOW, cases, cluster, told,
    world::{Size, World, any_world},
};
use crate::{
    amounts::Shares,
    cluster::Cluster,
    cycle::{Cycle, order::ServingOrder, plan, victims::Batch},
    ids::{GroupId, QueueId},
    plan::{Decision, Plan},
    policy::Action,
};

const SIZE: Size = Size { running: 8, waiting: (1, 1), choices: 250, growing: false };

/// What playing every game has shown.
#[derive(Debug, Default)]
struct Explored {
    /// Pods of every batch, in the order of taking.
    batches: Vec<Vec<String>>,
    /// The first set of batches that does, as places in that order.
    solution: Option<Vec<usize>>,
    /// Pods that lose or change their place with the smallest prefix of the order that does.
    first_in_order: Option<usize>,
}

/// A group that waits, and how its games are judged.
struct Table<'t> {
    action: Action,
    group: GroupId,
    queue: QueueId,
    request: Shares,
    order: &'t ServingOrder,
}

impl Table<'_> {
    /// The leaf queues from which may be taken; none if nothing may be done for the group at all.
    fn givers(&self, cycle: &Cycle) -> Vec<QueueId> {
        let all = (0..cycle.cluster.queues.len()).map(QueueId::of);
        let leaves = all.filter(|queue| cycle.cluster.queues[queue.index()].children.is_empty());
        let group = cycle.group(self.group);
        match self.action {
            Action::Reclaim if cycle.may_reclaim(self.group, &self.request).is_ok() => leaves
                .filter(|queue| *queue != self.queue && cycle.may_give(self.queue, *queue, &self.request))
                .collect(),
            Action::Preempt if group.preemptible || cycle.cluster.quota_breach(self.queue, &self.request).is_none() => {
                vec![self.queue]
            }
            Action::Consolidation if group.preemptible => leaves.collect(),
            _ => Vec::new(),
        }
    }

    /// Whether a group may be a victim.
    fn may_lose(&self, cycle: &Cycle, victim: GroupId) -> bool {
        let elastic = cycle.is_elastic(victim);
        victim != self.group
            && match self.action {
                Action::Reclaim => elastic || !cycle.protected_from_reclaim(victim, self.queue),
                Action::Preempt => {
                    cycle.group(victim).priority < cycle.group(self.group).priority
                        && (elastic || !cycle.protected_from_preempt(victim))
                }
                _ => true,
            }
    }

    /// Plays one game and takes it back; how many pods lose or change their place if it is won and fair.
    fn play(&self, cycle: &mut Cycle, batches: &[&Batch]) -> Option<usize> {
        let most = cycle.policy.max_consolidation_victims.map_or(usize::MAX, |most| most as usize);
        let mut groups: Vec<GroupId> = batches.iter().map(|batch| batch.group).collect();
        groups.sort_unstable();
        groups.dedup();
        if self.action == Action::Consolidation && groups.len() > most {
            return None;
        }
        let checkpoint = cycle.cluster.checkpoint();
        let held = cycle.holdings(batches.iter().map(|batch| batch.queue).chain([self.queue]));
        let outcome = cycle.play(self.order, self.group, batches)?;
        let fair = match self.action {
            Action::Reclaim => cycle
                .judge_min_runtime(&outcome, &|victim| cycle.protected_from_reclaim(victim, self.queue))
                .and_then(|()| cycle.judge_reclaim(self.group, &self.request, held, &outcome))
                .is_ok(),
            Action::Preempt => {
                cycle.judge_min_runtime(&outcome, &|victim| cycle.protected_from_preempt(victim)).is_ok()
            }
            _ => outcome.evicted.is_empty(),
        };
        cycle.cluster.rollback(checkpoint);
        fair.then(|| outcome.evicted.len() + outcome.moved.len())
    }
}

/// Plays every game.
fn explore(world: &World, action: Action) -> Explored {
    let mut explored = Explored::default();
    let mut cluster = cluster(world.deltas());
    let policy = world.policy(&[action]);
    let mut cycle = Cycle::prepare(&mut cluster, NOW, &policy);
    let mut order = cycle.waiting_order(action);
    let Some(group) = order.pop(&cycle.view(), &|_| false) else { return explored };
    let steps = cycle.tasks().to_place(group);
    let (Some(queue), false) = (cycle.group(group).queue, steps.is_empty()) else { return explored };
    let memory = if action == Action::Reclaim { cycle.smallest_gpu } else { cycle.largest_gpu };
    let table = Table { action, group, queue, request: cycle.tasks().cost(&steps, memory), order: &order };
    let givers = table.givers(&cycle);
    let mut taking = cycle.taking_order(&givers, crate::cycle::victims::Promises::InTurn);
    let mut batches = Vec::new();
    while let Some(batch) = cycle.take_next(&mut taking, &mut |cycle, victim| table.may_lose(cycle, victim)) {
        batches.push(batch);
    }
    let uid = |pod: &crate::ids::PodId| cycle.cluster.pod_uid(*pod).to_owned();
    explored.batches = batches.iter().map(|batch| batch.pods.iter().map(uid).collect()).collect();
    for taken in 1..=batches.len() {
        let prefix: Vec<&Batch> = batches[..taken].iter().collect();
        explored.first_in_order = table.play(&mut cycle, &prefix);
        if explored.first_in_order.is_some() {
            break;
        }
    }
    let mut by_group: BTreeMap<GroupId, Vec<usize>> = BTreeMap::new();
    for (place, batch) in batches.iter().enumerate() {
        by_group.entry(batch.group).or_default().push(place);
    }
    // Of each group any number of batches, in its own order: counted up like the wheels of an odometer.
    let places: Vec<Vec<usize>> = by_group.into_values().collect();
    let mut wheels = vec![0; places.len()];
    while let Some(wheel) = (0..wheels.len()).find(|wheel| wheels[*wheel] < places[*wheel].len()) {
        wheels[wheel] += 1;
        wheels[..wheel].fill(0);
        let mut chosen: Vec<usize> =
            places.iter().zip(&wheels).flat_map(|(places, taken)| places[..*taken].iter().copied()).collect();
        chosen.sort_unstable();
        let game: Vec<&Batch> = chosen.iter().map(|place| &batches[*place]).collect();
        if table.play(&mut cycle, &game).is_some() {
            explored.solution = Some(chosen);
            break;
        }
    }
    // Where somebody could be asked to leave, what is free without it may do as well.
    if explored.solution.is_none() && !batches.is_empty() && table.play(&mut cycle, &[]).is_some() {
        explored.solution = Some(Vec::new());
    }
    explored
}

/// How many pods a plan evicts or moves.
fn price(plan: &Plan) -> usize {
    plan.decisions.iter().filter(|decision| matches!(decision, Decision::Evict(_))).count()
}

/// A group that was taken from and is left with some pods, but not with enough.
fn broken_gang(cluster: &Cluster, plan: &Plan) -> Option<String> {
    let mut victims = plan.decisions.iter().filter_map(|decision| match decision {
        Decision::Evict(eviction) => Some(&cluster.groups[eviction.group.index()]),
        _ => None,
    });
    let broken = victims.find(|group| {
        group.active_allocated() > 0 && group.podsets.iter().any(|podset| podset.active_allocated() < podset.min)
    });
    broken.map(|group| group.key.to_string())
}

fn check(world: &World, action: Action) -> Result<(), TestCaseError> {
    let mut cluster = cluster(world.deltas());
    let plan = plan(&mut cluster, NOW, &world.policy(&[action]));
    let decided = told(&cluster, &plan);
    let explored = explore(world, action);
    let found = plan.decisions.iter().any(|decision| matches!(decision, Decision::Pipeline(_)));
    prop_assert_eq!(
        found,
        explored.solution.is_some(),
        "decided {:?} because {:?}; explored {:?}",
        decided,
        plan.reasons,
        explored
    );
    if let Some(first) = explored.first_in_order.filter(|_| found) {
        prop_assert!(price(&plan) <= first, "decided {:?}; explored {:?}", decided, explored);
    }
    prop_assert_eq!(broken_gang(&cluster, &plan), None, "decided {:?}; explored {:?}", decided, explored);
    Ok(())
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn reclaim_finds_victims_iff_there_are_some(world in any_world(SIZE)) {
        check(&world, Action::Reclaim)?;
    }

    #[test]
    fn preempt_finds_victims_iff_there_are_some(world in any_world(SIZE)) {
        check(&world, Action::Preempt)?;
    }

    #[test]
    fn consolidation_finds_moves_iff_there_are_some(world in any_world(SIZE)) {
        check(&world, Action::Consolidation)?;
    }
}

/// The batches of a group by the book: each pod above its minimum alone, the last first, then all others at once.
fn batches_by_the_book(world: &World, key: &str) -> Vec<Vec<String>> {
    let min = world.groups.iter().find(|group| group.key == key).and_then(|group| group.min_member).unwrap_or(1);
    let own = world.pods.iter().filter(|pod| pod.group.as_deref() == Some(key));
    let mut pods: Vec<String> = own.map(|pod| pod.uid.clone()).collect();
    pods.sort();
    let mut batches = Vec::new();
    while pods.len() > min as usize {
        batches.extend(pods.pop().map(|pod| vec![pod]));
    }
    pods.reverse();
    batches.extend((!pods.is_empty()).then_some(pods));
    batches
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn groups_give_surplus_pods_one_by_one_and_then_the_rest_at_once(world in any_world(SIZE)) {
        let explored = explore(&world, Action::Consolidation);
        let mut by_group: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
        for batch in explored.batches {
            let group = batch[0].split('-').next().unwrap_or_default().to_owned();
            by_group.entry(group).or_default().push(batch);
        }
        for (group, batches) in by_group {
            prop_assert_eq!(batches, batches_by_the_book(&world, &group));
        }
    }
}

#[test]
fn random_clusters_have_solutions_and_lack_them() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut seen = Vec::new();
    for action in [Action::Reclaim, Action::Preempt, Action::Consolidation] {
        let mut runner = TestRunner::deterministic();
        let (mut solved, mut in_vain) = (0, 0);
        for _ in 0..300 {
            let Ok(tree) = any_world(SIZE).new_tree(&mut runner) else { continue };
            let explored = explore(&tree.current(), action);
            solved += u32::from(explored.solution.is_some());
            in_vain += u32::from(explored.solution.is_none() && explored.batches.len() > 1);
        }
        seen.push((action, solved, in_vain));
    }
    assert!(seen.iter().all(|(_, solved, in_vain)| *solved > 15 && *in_vain > 5), "{seen:?}");
}
