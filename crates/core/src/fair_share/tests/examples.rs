//! Examples with their numbers.

use super::*;
use crate::amounts::LARGEST;

/// A queue of GPUs: quota and request in whole GPUs, weight in whole numbers.
fn gpus(name: &str, quota: i64, weight: i64, request: i64) -> Entry<'_> {
    let mut entry = queue(name);
    entry.quota[share::GPU] = Some(quota * GPU);
    entry.weight[share::GPU] = weight * 1_000_000;
    entry.request.0[share::GPU] = i128::from(request * GPU);
    entry
}

fn priority(mut entry: Entry<'_>, priority: i32) -> Entry<'_> {
    entry.priority = priority;
    entry
}

fn created(mut entry: Entry<'_>, created: i64) -> Entry<'_> {
    entry.created = Time(created);
    entry
}

fn below(mut entry: Entry<'_>, parent: usize) -> Entry<'_> {
    entry.parent = Some(parent);
    entry
}

fn used(mut entry: Entry<'_>, billionths: u64) -> Entry<'_> {
    entry.usage[share::GPU] = billionths;
    entry
}

#[track_caller]
fn check(total: i128, queues: &[Entry<'_>], expected: &[i128]) {
    let shares = divide_gpus(total * 1000, 1000, queues);
    let expected: Vec<_> = expected.iter().map(|gpus| gpus * 1000).collect();
    assert_eq!(shares, expected);
}

#[test]
fn nobody_gets_more_than_asked_for() {
    check(15, &[gpus("a", 2, 2, 6), gpus("b", 2, 2, 6)], &[6, 6]);
}

#[test]
fn surplus_follows_weights() {
    check(8, &[gpus("a", 2, 1, 6), gpus("b", 2, 3, 6)], &[3, 5]);
    check(11, &[gpus("a", 2, 1, 10), gpus("b", 2, 4, 10)], &[3, 8]);
}

#[test]
fn a_limit_bounds_the_share() {
    let mut limited = gpus("a", 2, 2, 6);
    limited.limit[share::GPU] = Some(5 * GPU);
    check(12, &[limited, gpus("b", 2, 2, 6)], &[5, 6]);
}

#[test]
fn of_equal_remainders_the_older_queue_gets_the_unit() {
    check(11, &[created(gpus("a", 2, 2, 6), 1), created(gpus("b", 2, 2, 6), 2)], &[6, 5]);
    check(11, &[created(gpus("a", 2, 2, 6), 2), created(gpus("b", 2, 2, 6), 1)], &[5, 6]);
    check(11, &[gpus("b", 2, 2, 6), gpus("a", 2, 2, 6)], &[5, 6]);
}

#[test]
fn a_higher_priority_takes_surplus_first_whatever_the_weights() {
    let queues = [priority(gpus("a", 2, 100, 6), 1), priority(gpus("b", 2, 1, 6), 2)];
    check(6, &queues, &[2, 4]);
    check(4, &queues, &[2, 2]);
}

#[test]
fn quotas_are_granted_even_beyond_what_exists() {
    check(8, &[gpus("a", 6, 2, 8), gpus("b", 5, 2, 5)], &[6, 5]);
}

#[test]
fn past_usage_counts_against_a_queue() {
    check(10, &[used(gpus("a", 0, 1, 10), 400_000_000), gpus("b", 0, 1, 10)], &[4, 6]);
}

#[test]
fn past_usage_without_weight_does_not_count() {
    let queues = [used(gpus("a", 0, 1, 10), 400_000_000), gpus("b", 0, 1, 10)];
    assert_eq!(divide_gpus(10_000, 0, &queues), [5000, 5000]);
}

#[test]
fn a_queue_that_used_everything_gets_no_surplus_and_no_leftover() {
    check(5, &[used(gpus("a", 0, 1, 10), 1_000_000_000), gpus("b", 0, 1, 3), gpus("c", 0, 1, 3)], &[0, 3, 2]);
}

#[test]
fn the_odd_gpu_goes_to_the_larger_remainder() {
    check(4, &[gpus("q0", 2, 2, 3), gpus("q1", 1, 1, 2)], &[3, 1]);
}

#[test]
fn quotas_that_fill_the_cluster_are_the_shares() {
    check(4, &[gpus("q0", 2, 2, 4), gpus("q1", 2, 2, 5)], &[2, 2]);
}

#[test]
fn equal_queues_that_want_everything_get_half_each() {
    check(8, &[gpus("q0", 1, 1, 8), gpus("q1", 1, 1, 8)], &[4, 4]);
}

#[test]
fn a_quota_comes_before_the_fractions_of_queues_without_one() {
    let mut fraction = gpus("q0", 0, 1, 0);
    fraction.request.0[share::GPU] = 500_000;
    let other = Entry { name: "q1", ..fraction };
    assert_eq!(divide_gpus(2000, 1000, &[fraction, other, gpus("q2", 2, 1, 1)]), [500, 500, 1000]);
}

#[test]
fn children_divide_the_share_of_their_parent_by_priority_then_weight() {
    let queues = [
        gpus("d1", 8, 1, 11),
        below(gpus("q0", 1, 2, 5), 0),
        below(gpus("q1", 1, 1, 3), 0),
        below(priority(gpus("r", 0, 1, 3), 101), 0),
    ];
    check(8, &queues, &[8, 3, 2, 3]);
}

#[test]
fn leftovers_of_rounding_fall_to_a_lower_priority() {
    let queues = [priority(gpus("a", 0, 1, 5), 2), priority(gpus("b", 0, 1, 5), 2), priority(gpus("c", 0, 1, 5), 1)];
    check(5, &queues, &[2, 2, 1]);
}

#[test]
fn an_idle_queue_has_no_share() {
    check(8, &[gpus("idle", 4, 1, 0), gpus("busy", 0, 1, 9)], &[0, 8]);
}

#[test]
fn an_unlimited_quota_is_everything() {
    let mut unlimited = gpus("a", 0, 1, 20);
    unlimited.quota[share::GPU] = None;
    check(8, &[unlimited, gpus("b", 3, 1, 9)], &[8, 3]);
}

#[test]
fn a_queue_without_weight_stays_at_its_quota() {
    check(8, &[gpus("a", 2, 0, 6), gpus("b", 0, 1, 3)], &[2, 3]);
}

#[test]
fn a_negative_weight_alone_is_like_a_positive_one() {
    check(8, &[gpus("a", 0, -1, 20)], &[8]);
    check(8, &[gpus("a", 0, -1, 20), gpus("b", 0, -3, 20)], &[2, 6]);
    check(8, &[gpus("a", 0, -1, 20), gpus("b", 0, 3, 20)], &[0, 8]);
    check(8, &[gpus("a", 0, -1, 20), gpus("b", 0, 1, 20)], &[0, 0]);
}

#[test]
fn fractions_of_a_gpu_are_surplus_where_they_are_all_that_is_needed() {
    let mut fraction = gpus("a", 0, 1, 0);
    fraction.request.0[share::GPU] = 500_000;
    assert_eq!(divide_gpus(4000, 0, &[fraction, gpus("b", 0, 1, 9)]), [500, 3500]);
}

#[test]
fn the_last_unit_may_lie_above_the_request_by_less_than_a_gpu() {
    let mut fraction = gpus("a", 0, 1, 0);
    fraction.request.0[share::GPU] = 500_000;
    let other = Entry { name: "b", ..fraction };
    assert_eq!(divide_gpus(600, 0, &[fraction, other]), [600, 0]);
}

#[test]
fn resources_are_divided_each_by_itself() {
    let (mut one, mut other) = (queue("a"), queue("b"));
    one.request = Shares([5000, 0, 7 * i128::from(GPU)]);
    other.request = Shares([9000, 1 << 40, 0]);
    let shares = divide(Shares([10_001, 1 << 39, 4 * i128::from(GPU)]), 1000, &[one, other]);
    assert_eq!(shares, [Shares([5000, 0, 4 * i128::from(GPU)]), Shares([5001, 1 << 39, 0])]);
}

#[test]
fn a_queue_listed_before_its_parent_gets_nothing_and_disturbs_nobody() {
    let queues =
        [below(gpus("lost", 3, 1, 5), 2), gpus("a", 0, 1, 5), gpus("b", 0, 1, 5), below(gpus("own", 1, 1, 5), 3)];
    check(4, &queues, &[0, 2, 2, 0]);
}

#[test]
fn too_few_places_for_the_shares_are_no_harm() {
    let mut out = [Shares::default()];
    let queues = [gpus("a", 0, 1, 3), gpus("b", 0, 1, 3)];
    Division::new(0).divide(Shares([0, 0, 3 * i128::from(GPU)]), &queues, &mut out);
    assert_eq!(out[0].0[share::GPU], 3 * i128::from(GPU));
}

#[test]
fn extreme_numbers_neither_panic_nor_wrap() {
    let names: Vec<_> = (0..3000).map(|number| format!("q{number:04}")).collect();
    let numbers = [i64::MIN, -1, 0, 1, LARGEST, i64::MAX];
    let amounts = [i128::MIN, -1, 0, 1, i128::from(LARGEST), i128::MAX];
    for usage_weight in [0, 1000, u32::MAX] {
        let queues: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(number, name)| Entry {
                parent: (number >= 1000).then_some(number % 7),
                priority: [i32::MIN, 0, i32::MAX][number % 3],
                created: Time([i64::MIN, i64::MAX][number % 2]),
                name,
                quota: [None, Some(numbers[number % 6]), Some(numbers[number / 6 % 6])],
                limit: [None, Some(numbers[number / 36 % 6]), None],
                weight: [i64::MAX, numbers[number / 2 % 6], i64::MIN],
                request: Shares([amounts[number % 6], amounts[number / 6 % 6], i128::MAX]),
                usage: [u64::MAX, 0, number as u64],
            })
            .collect();
        for total in amounts {
            let shares = divide(Shares([total; 3]), usage_weight, &queues);
            assert!(shares.iter().all(|shares| shares.0.iter().all(|share| *share >= 0)));
        }
    }
}
