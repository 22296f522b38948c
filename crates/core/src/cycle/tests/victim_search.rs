//! The search for victims against a player of every game: each set of batches that the rules allow is evicted, everybody is served again, and
//! the outcome is judged. No bound, no candidate, no order of looking is shared with the engine; a single game is. Where several groups
//! wait the games of each are played when its turn has come, after the engine has served those before it.

use std::{cell::Cell, collections::BTreeMap};

use proptest::{
    prelude::*,
    test_runner::{TestCaseError, TestRunner},
};

use super::{
    NOW, cases, cluster, told,
    traits::{Traits, any_traits},
    world::{Size, World, any_world},
};
use crate::{
    amounts::Shares,
    cluster::group::PodSet,
    cycle::{
        Cycle,
        order::ServingOrder,
        search::Refusals,
        tasks::Steps,
        victims::{Batch, Promises},
    },
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
            && (self.action == Action::Reclaim || !cycle.costly.contains(&victim))
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

/// Plays every game for a group whose turn it is.
fn explore(cycle: &mut Cycle, action: Action, order: &ServingOrder, group: GroupId, steps: &Steps) -> Explored {
    let mut explored = Explored::default();
    let Some(queue) = cycle.group(group).queue else { return explored };
    let memory = if action == Action::Reclaim { cycle.smallest_gpu } else { cycle.largest_gpu };
    let table = Table { action, group, queue, request: cycle.tasks().cost(steps, memory), order };
    let givers = table.givers(cycle);
    let promises = if action == Action::Reclaim { Promises::First } else { Promises::InTurn };
    let mut taking = cycle.taking_order(&givers, promises);
    let mut batches = Vec::new();
    while let Some(batch) = cycle.take_next(&mut taking, &mut |cycle, victim| table.may_lose(cycle, victim)) {
        batches.push(batch);
    }
    let uid = |pod: &crate::ids::PodId| cycle.cluster.pod_uid(*pod).to_owned();
    explored.batches = batches.iter().map(|batch| batch.pods.iter().map(uid).collect()).collect();
    for taken in 1..=batches.len() {
        let prefix: Vec<&Batch> = batches[..taken].iter().collect();
        explored.first_in_order = table.play(cycle, &prefix);
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
        if table.play(cycle, &game).is_some() {
            explored.solution = Some(chosen);
            break;
        }
    }
    // Where somebody could be asked to leave, what is free without it may do as well.
    if explored.solution.is_none() && !batches.is_empty() && table.play(cycle, &[]).is_some() {
        explored.solution = Some(Vec::new());
    }
    explored
}

/// How many pods a plan evicts or moves.
fn price(plan: &Plan) -> usize {
    plan.decisions.iter().filter(|decision| matches!(decision, Decision::Evict(_))).count()
}

/// Whether a group has enough pods that hold a place.
fn is_whole(cycle: &Cycle, group: GroupId) -> bool {
    cycle.tasks().holds(cycle.group(group), &PodSet::active_allocated)
}

/// A group that was whole, was taken from, and is left with some pods, but not with enough.
fn broken_gang(cycle: &Cycle, whole: &[GroupId]) -> Option<String> {
    let victims = cycle.plan.decisions.iter().filter_map(|decision| match decision {
        Decision::Evict(eviction) => Some(eviction.group),
        _ => None,
    });
    let mut were_whole = victims.filter(|group| whole.contains(group));
    let broken = were_whole.find(|group| cycle.group(*group).active_allocated() > 0 && !is_whole(cycle, *group));
    broken.map(|group| cycle.cluster.group_key(group).to_owned())
}

/// How often somebody was to be found and nobody was.
#[derive(Debug, Default)]
struct Tally {
    solved: Cell<u32>,
    in_vain: Cell<u32>,
}

/// Lets every group have its turn, and compares what the engine finds with what there is to find.
fn check(world: &World, action: Action, tally: &Tally) -> Result<(), TestCaseError> {
    let mut cluster = cluster(world.deltas());
    let policy = world.policy(&[action]);
    let mut cycle = Cycle::prepare(&mut cluster, NOW, &policy);
    let all = (0..cycle.cluster.groups.len()).map(GroupId::of);
    let whole: Vec<GroupId> = all.filter(|group| is_whole(&cycle, *group)).collect();
    let mut verdict = Ok(());
    cycle.take_turns(action, &mut |cycle, order, group, steps| {
        let explored = explore(cycle, action, order, group, steps);
        let before = price(&cycle.plan);
        let result = match action {
            Action::Reclaim => cycle.reclaim_for(order, group, steps),
            Action::Preempt => cycle.preempt_for(order, group, steps),
            _ => cycle.consolidate_for(order, group, steps),
        };
        if verdict.is_ok() {
            let price = price(&cycle.plan) - before;
            verdict = compare(cycle, group, &explored, &result, price).and_then(|()| {
                prop_assert_eq!(broken_gang(cycle, &whole), None, "{:?}", told(cycle.cluster, &cycle.plan));
                Ok(())
            });
            let count = if explored.solution.is_some() { &tally.solved } else { &tally.in_vain };
            count.set(count.get() + u32::from(explored.batches.len() > 1));
        }
        result
    });
    verdict
}

fn compare(
    cycle: &Cycle,
    group: GroupId,
    explored: &Explored,
    result: &Result<(), Refusals>,
    price: usize,
) -> Result<(), TestCaseError> {
    let decided = told(cycle.cluster, &cycle.plan);
    let whom = cycle.cluster.group_key(group);
    let story = format!("for {whom}: {result:?}, decided {decided:?}; explored {explored:?}");
    if explored.batches.is_empty() {
        // Nobody can be asked to leave. What earlier turns freed may do, but need not be tried: the next cycle allocates it.
        prop_assert_eq!(price, 0, "{}", &story);
        return Ok(());
    }
    prop_assert_eq!(result.is_ok(), explored.solution.is_some(), "{}", &story);
    if let Some(first) = explored.first_in_order.filter(|_| result.is_ok()) {
        prop_assert!(price <= first, "{story}");
    }
    Ok(())
}

/// Random clusters, of which about half have a solution: an engine that always refuses, or never does, is found out.
fn check_all(action: Action, worlds: impl Strategy<Value = World>) {
    let tally = Tally::default();
    let result = TestRunner::new(cases(300)).run(&worlds, |world| check(&world, action, &tally));
    result.unwrap_or_else(|failure| panic!("{failure}"));
    let (solved, in_vain) = (tally.solved.get(), tally.in_vain.get());
    assert!(solved * 8 > in_vain && in_vain * 8 > solved, "{action:?}: {solved} solved, {in_vain} in vain");
}

/// Random clusters in which whoever waits asks for more than in others.
fn plain_worlds(more: u32) -> impl Strategy<Value = World> {
    (any_world(SIZE), 0..=more).prop_map(|(world, more)| asking_for_more(world, more))
}

/// The same with larger gangs that wait, in queues that may have all of it.
fn asking_for_more(mut world: World, more: u32) -> World {
    let waiting = world.groups.iter().filter(|group| group.key.starts_with('w'));
    let asking: Vec<String> = waiting.map(|group| group.queue.clone()).collect();
    for queue in &mut world.queues {
        if more > 0 && (asking.contains(&queue.name) || queue.parent.is_none()) {
            (queue.gpu.quota, queue.gpu.limit) = (None, None);
        }
    }
    for group in world.groups.iter_mut().filter(|group| group.key.starts_with('w')) {
        let Some(like) = world.pods.iter().find(|pod| pod.group.as_ref() == Some(&group.key)).cloned() else {
            continue;
        };
        group.min_member = group.min_member.map(|min| min + more);
        let names = (0..more).map(|number| format!("{}-more-{number}", group.key));
        world.pods.extend(names.map(|uid| crate::delta::Pod { uid, ..like.clone() }));
    }
    world
}

/// Several groups that wait, with subgroups, required topology, anti-affinity, ports and MIG.
fn rich_worlds(more: u32) -> impl Strategy<Value = World> {
    let size = Size { running: 6, waiting: (1, 3), choices: 100, growing: false };
    let parts = (any_world(size), any_traits(), 0..=more);
    parts.prop_map(|(world, traits, more): (World, Traits, u32)| traits.give(asking_for_more(world, more)))
}

#[test]
fn reclaim_finds_victims_iff_there_are_some() {
    check_all(Action::Reclaim, plain_worlds(5));
}

#[test]
fn preempt_finds_victims_iff_there_are_some() {
    check_all(Action::Preempt, plain_worlds(2));
}

#[test]
fn consolidation_finds_moves_iff_there_are_some() {
    check_all(Action::Consolidation, plain_worlds(0));
}

#[test]
fn reclaim_among_rules_finds_victims_iff_there_are_some() {
    check_all(Action::Reclaim, rich_worlds(3));
}

#[test]
fn preempt_among_rules_finds_victims_iff_there_are_some() {
    check_all(Action::Preempt, rich_worlds(1));
}

#[test]
fn consolidation_among_rules_finds_moves_iff_there_are_some() {
    check_all(Action::Consolidation, rich_worlds(0));
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
        let mut cluster = cluster(world.deltas());
        let policy = world.policy(&[Action::Consolidation]);
        let mut cycle = Cycle::prepare(&mut cluster, NOW, &policy);
        let mut given: Vec<Vec<String>> = Vec::new();
        cycle.take_turns(Action::Consolidation, &mut |cycle, order, group, steps| {
            given = explore(cycle, Action::Consolidation, order, group, steps).batches;
            Err(Vec::new())
        });
        let mut by_group: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
        for batch in given {
            let group = batch[0].split('-').next().unwrap_or_default().to_owned();
            by_group.entry(group).or_default().push(batch);
        }
        for (group, batches) in by_group {
            prop_assert_eq!(batches, batches_by_the_book(&world, &group));
        }
    }
}
