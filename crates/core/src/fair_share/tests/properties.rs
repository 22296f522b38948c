//! Random trees of queues.

use proptest::prelude::*;

use super::*;
use crate::{amounts::LARGEST, fair_share::oracle};

/// A queue with a name of its own, to be borrowed from.
#[derive(Clone, Debug)]
struct Owned {
    name: String,
    entry: Entry<'static>,
}

fn entries(tree: &[Owned]) -> Vec<Entry<'_>> {
    tree.iter().map(|queue| Entry { name: &queue.name, ..queue.entry }).collect()
}

/// Amounts in which thirds, fractions of GPUs and plain numbers meet, small enough to collide often.
fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => (0..12_i64).prop_map(|gpus| gpus * GPU),
        2 => (0..40_i64).prop_map(|tenths| tenths * GPU / 10),
        2 => 0..20_i64,
        1 => 0..5 * GPU,
        1 => Just(0),
    ]
}

fn hostile(usual: impl Strategy<Value = i64> + 'static) -> impl Strategy<Value = i64> {
    prop_oneof![
        30 => usual,
        1 => prop_oneof![Just(i64::MAX), Just(i64::MIN), Just(LARGEST), Just(-1_i64), any::<i64>()],
    ]
}

fn weight() -> impl Strategy<Value = i64> {
    let usual = prop_oneof![
        8 => (0..5_i64).prop_map(|weight| weight * 1_000_000),
        2 => 1..3_000_000_i64,
        1 => (-3..0_i64).prop_map(|weight| weight * 1_000_000),
    ];
    hostile(usual)
}

fn optional() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![1 => Just(None), 4 => hostile(amount()).prop_map(Some)]
}

fn three<T: std::fmt::Debug + Clone>(strategy: impl Strategy<Value = T> + Clone) -> impl Strategy<Value = [T; 3]> {
    [strategy.clone(), strategy.clone(), strategy]
}

fn tree(size: usize) -> impl Strategy<Value = Vec<Owned>> {
    let queue = (
        (any::<prop::sample::Index>(), 0..3_u8, 0..3_i32, 0..3_i64),
        three(optional().boxed()),
        three(prop_oneof![3 => Just(None), 1 => hostile(amount()).prop_map(Some)].boxed()),
        three(weight().boxed()),
        three(hostile(amount()).prop_map(i128::from).boxed()),
        three(prop_oneof![Just(0), (0..11_u64).prop_map(|tenths| tenths * 100_000_000), 0..1_500_000_000_u64].boxed()),
    );
    prop::collection::vec(queue, 1..size).prop_map(|queues| {
        let build = |(number, parts): (usize, _)| {
            let ((parent, depth, priority, created), quota, limit, weight, request, usage) = parts;
            let parent: prop::sample::Index = parent;
            Owned {
                name: format!("q{number}"),
                entry: Entry {
                    parent: (depth > 0 && number > 0).then(|| parent.index(number)),
                    priority,
                    created: Time(created),
                    name: "",
                    quota,
                    limit,
                    weight,
                    request: Shares(request),
                    usage,
                },
            }
        };
        queues.into_iter().enumerate().map(build).collect()
    })
}

fn total() -> impl Strategy<Value = Shares> {
    three(hostile(prop_oneof![amount(), (0..200_i64).prop_map(|gpus| gpus * GPU / 2)]).prop_map(i128::from).boxed())
        .prop_map(Shares)
}

fn usage_weight() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(1000), 0..5000_u32, any::<u32>()]
}

/// 300 cases, or as many as the environment asks for.
#[expect(clippy::disallowed_methods, reason = "how long to test is not an input of the core")]
fn cases() -> ProptestConfig {
    let asked = ["KAI_PROPTEST_CASES", "PROPTEST_CASES"].into_iter().find_map(|name| std::env::var(name).ok());
    let cases = asked.and_then(|cases| cases.parse().ok()).unwrap_or(300);
    ProptestConfig { cases, ..ProptestConfig::default() }
}

fn requestable(queue: &Entry<'_>, resource: usize) -> i128 {
    queue.limit[resource].map_or(i128::MAX, |limit| i128::from(limit).max(0)).min(queue.request.0[resource].max(0))
}

fn guaranteed(queue: &Entry<'_>, resource: usize, total: i128) -> i128 {
    queue.quota[resource].map_or(total, |quota| i128::from(quota).max(0)).min(requestable(queue, resource))
}

/// What the siblings of `queue` had to divide.
fn divided(queue: &Entry<'_>, resource: usize, total: Shares, shares: &[Shares]) -> i128 {
    queue.parent.map_or(total.0[resource].max(0), |parent| shares[parent].0[resource])
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn the_division_is_that_of_its_slow_twin(tree in tree(14), total in total(), usage_weight in usage_weight()) {
        let queues = entries(&tree);
        prop_assert_eq!(divide(total, usage_weight, &queues), oracle::divide(total, usage_weight, &queues));
    }

    #[test]
    fn many_equal_needs_are_divided_as_by_its_slow_twin(
        needs in prop::collection::vec((1..4_i64, 1..2_000_000_i64, 0..2_i32), 1..40),
        total in 0..40 * GPU,
    ) {
        let names: Vec<_> = (0..needs.len()).map(|number| format!("q{number}")).collect();
        let build = |((weight, request, priority), name)| Entry {
            priority,
            weight: [weight; 3],
            request: Shares([i128::from(request % 5), i128::from(request % 50), i128::from(request)]),
            ..queue(name)
        };
        let queues: Vec<_> = needs.into_iter().zip(&names).map(|(need, name)| build((need, name))).collect();
        let total = Shares([i128::from(total % 60), i128::from(total % 900), i128::from(total)]);
        prop_assert_eq!(divide(total, 0, &queues), oracle::divide(total, 0, &queues));
    }

    #[test]
    fn shares_stay_within_what_there_is_and_what_is_asked_for(tree in tree(30), total in total(), usage_weight in usage_weight()) {
        let queues = entries(&tree);
        let shares = divide(total, usage_weight, &queues);
        for resource in 0..3 {
            for (queue, shares_of_queue) in queues.iter().zip(&shares) {
                let share = shares_of_queue.0[resource];
                let available = divided(queue, resource, total, &shares);
                let guaranteed_here = guaranteed(queue, resource, available);
                prop_assert!(share >= guaranteed_here);
                // Only GPUs can be asked for in parts of a unit.
                let slack = if resource == share::GPU { i128::from(GPU) - 1 } else { 0 };
                prop_assert!(share <= requestable(queue, resource) + slack);
                if queue.weight[resource] == 0 {
                    prop_assert_eq!(share, guaranteed_here);
                }
                let siblings = || queues.iter().zip(&shares).filter(|(sibling, _)| sibling.parent == queue.parent);
                let sum: i128 = siblings().map(|(_, shares)| shares.0[resource]).sum();
                let quotas: i128 = siblings().map(|(sibling, _)| guaranteed(sibling, resource, available)).sum();
                prop_assert!(sum <= available.max(quotas));
            }
        }
    }

    #[test]
    fn whole_gpus_are_never_shared_out_beyond_the_request(tree in tree(30), total in total(), usage_weight in usage_weight()) {
        let whole = |amount: i64| amount.clamp(0, LARGEST) / GPU * GPU;
        let mut queues = entries(&tree);
        for queue in &mut queues {
            queue.quota = queue.quota.map(|quota| quota.map(whole));
            queue.limit = queue.limit.map(|limit| limit.map(whole));
            queue.request.0 = queue.request.0.map(|request| request / i128::from(GPU) * i128::from(GPU));
        }
        let total = Shares(total.0.map(|total| total / i128::from(GPU) * i128::from(GPU)));
        let shares = divide(total, usage_weight, &queues);
        for (queue, shares) in queues.iter().zip(&shares) {
            prop_assert!(shares.0[share::GPU] <= requestable(queue, share::GPU));
        }
    }

    #[test]
    fn the_order_of_queues_does_not_matter(tree in tree(30), total in total(), usage_weight in usage_weight(), seed: u64) {
        let queues = entries(&tree);
        let order = shuffled(&queues, seed);
        let mut place = vec![0; order.len()];
        for (new, old) in order.iter().enumerate() {
            place[*old] = new;
        }
        let moved: Vec<_> = order
            .iter()
            .map(|old| Entry { parent: queues[*old].parent.map(|parent| place[parent]), ..queues[*old] })
            .collect();
        let shares = divide(total, usage_weight, &queues);
        let moved_shares = divide(total, usage_weight, &moved);
        for (old, new) in place.iter().enumerate() {
            prop_assert_eq!(shares[old], moved_shares[*new]);
        }
    }

    #[test]
    fn a_division_leaves_nothing_behind_for_the_next(first in tree(20), second in tree(20), total in total(), usage_weight in usage_weight()) {
        let mut division = Division::new(usage_weight);
        let mut out = vec![Shares::default(); first.len()];
        division.divide(total, &entries(&first), &mut out);
        let mut again = vec![Shares::default(); second.len()];
        division.divide(total, &entries(&second), &mut again);
        prop_assert_eq!(again, divide(total, usage_weight, &entries(&second)));
    }
}

/// Any order in which parents still come before their children.
fn shuffled(queues: &[Entry<'_>], mut seed: u64) -> Vec<usize> {
    let mut order = Vec::new();
    let mut waiting: Vec<_> = (0..queues.len()).collect();
    while !waiting.is_empty() {
        let ready: Vec<_> = (0..waiting.len())
            .filter(|index| queues[waiting[*index]].parent.is_none_or(|parent| order.contains(&parent)))
            .collect();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let chosen = ready[usize::try_from(seed >> 33).expect("31 bits") % ready.len()];
        order.push(waiting.swap_remove(chosen));
    }
    order
}
