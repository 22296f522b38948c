//! The ledger against floating point, and its behaviour with odd clocks.

use proptest::prelude::*;

use super::*;
use crate::{
    amounts::{GPU, share},
    fair_share::{Division, Entry},
    time::Span,
};

const HOUR: i64 = 3_600_000;
const WEEK: i64 = 7 * 24 * HOUR;

fn gpus(thousandths: i64) -> Shares {
    Shares([0, 0, i128::from(thousandths * GPU / 1000)])
}

fn policy(half_life: Option<i64>, window: Window) -> UsagePolicy {
    UsagePolicy { half_life: half_life.map(Span), window }
}

fn sliding(half_life: Option<i64>, length: i64) -> UsageLedger {
    UsageLedger::new(policy(half_life, Window::Sliding(Span(length))))
}

fn gpu_share(ledger: &UsageLedger, slot: usize) -> u64 {
    ledger.share(slot, share::GPU)
}

#[track_caller]
fn assert_near(actual: u64, expected: u64) {
    assert!(actual.abs_diff(expected) <= 1000, "{actual} is not about {expected}");
}

#[test]
fn a_constant_allocation_is_its_part_of_the_cluster() {
    for half_life in [None, Some(1000), Some(HOUR), Some(10 * WEEK)] {
        let mut ledger = sliding(half_life, WEEK);
        ledger.advance(Time(5), &[gpus(0), gpus(0)], gpus(10_000));
        for hour in 1..400 {
            ledger.advance(Time(hour * HOUR), &[gpus(4000), gpus(500)], gpus(10_000));
            assert_near(gpu_share(&ledger, 0), 400_000_000);
            assert_near(gpu_share(&ledger, 1), 50_000_000);
            assert_eq!(ledger.shares(0)[..2], [0, 0]);
        }
    }
}

#[test]
fn usage_halves_in_one_half_life_compared_to_what_follows() {
    let mut ledger = sliding(Some(HOUR), WEEK);
    ledger.advance(Time(0), &[], gpus(0));
    ledger.advance(Time(HOUR), &[gpus(10_000)], gpus(10_000));
    assert_eq!(gpu_share(&ledger, 0), 1_000_000_000);
    // The hour before counts half of this one.
    ledger.advance(Time(2 * HOUR), &[gpus(0)], gpus(10_000));
    assert_near(gpu_share(&ledger, 0), 333_333_333);
    ledger.advance(Time(3 * HOUR), &[gpus(0)], gpus(10_000));
    assert_near(gpu_share(&ledger, 0), 142_857_142);
}

#[test]
fn with_a_long_past_usage_halves_in_one_half_life() {
    for window in [Window::Sliding(Span(WEEK)), Window::Since(Time(0))] {
        let mut ledger = UsageLedger::new(policy(Some(HOUR), window));
        ledger.advance(Time(0), &[], gpus(0));
        ledger.advance(Time(100 * HOUR), &[gpus(6000)], gpus(10_000));
        for (hour, expected) in [(101, 300_000_000), (102, 150_000_000), (103, 75_000_000)] {
            ledger.advance(Time(hour * HOUR), &[], gpus(10_000));
            assert_near(gpu_share(&ledger, 0), expected);
        }
    }
}

#[test]
fn a_sliding_window_forgets_what_left_it() {
    let mut ledger = sliding(None, 64 * HOUR);
    ledger.advance(Time(0), &[], gpus(0));
    ledger.advance(Time(32 * HOUR), &[gpus(10_000)], gpus(10_000));
    ledger.advance(Time(64 * HOUR), &[gpus(0)], gpus(10_000));
    assert_near(gpu_share(&ledger, 0), 500_000_000);
    ledger.advance(Time(80 * HOUR + HOUR / 2), &[gpus(0)], gpus(10_000));
    assert_near(gpu_share(&ledger, 0), 15_500_000_000 / 64);
    ledger.advance(Time(96 * HOUR), &[gpus(0)], gpus(10_000));
    assert_eq!(gpu_share(&ledger, 0), 0);
}

#[test]
fn a_tumbling_window_begins_anew_at_its_multiples() {
    let window = Window::Tumbling { start: Time(HOUR), length: Span(10 * HOUR) };
    let mut ledger = UsageLedger::new(policy(None, window));
    ledger.advance(Time(2 * HOUR), &[], gpus(0));
    ledger.advance(Time(10 * HOUR), &[gpus(5000)], gpus(10_000));
    assert_eq!(gpu_share(&ledger, 0), 500_000_000);
    // The window ends at 11 h: of the following time only the last two hours count.
    ledger.advance(Time(13 * HOUR), &[gpus(1000)], gpus(10_000));
    assert_eq!(gpu_share(&ledger, 0), 100_000_000);
    ledger.advance(Time(15 * HOUR), &[gpus(0)], gpus(10_000));
    assert_eq!(gpu_share(&ledger, 0), 50_000_000);
}

#[test]
fn a_window_since_a_moment_forgets_what_was_before() {
    let mut ledger = UsageLedger::new(policy(None, Window::Since(Time(HOUR))));
    ledger.advance(Time(0), &[], gpus(0));
    ledger.advance(Time(2 * HOUR), &[gpus(2000)], gpus(10_000));
    assert_eq!(gpu_share(&ledger, 0), 200_000_000);
    ledger.set_policy(&policy(None, Window::Since(Time(3 * HOUR))));
    assert_eq!(gpu_share(&ledger, 0), 200_000_000);
    ledger.advance(Time(4 * HOUR), &[gpus(8000)], gpus(10_000));
    assert_eq!(gpu_share(&ledger, 0), 800_000_000);
    ledger.set_policy(&policy(None, Window::Since(Time(3 * HOUR + 1))));
    assert_eq!(gpu_share(&ledger, 0), 0);
    ledger.set_policy(&policy(None, Window::Since(Time(9 * HOUR))));
    ledger.advance(Time(5 * HOUR), &[gpus(8000)], gpus(10_000));
    assert_eq!(gpu_share(&ledger, 0), 0);
}

#[test]
fn another_half_life_begins_anew_and_the_same_policy_does_not() {
    let mut ledger = sliding(Some(HOUR), WEEK);
    ledger.advance(Time(0), &[], gpus(0));
    ledger.advance(Time(HOUR), &[gpus(5000)], gpus(10_000));
    ledger.set_policy(&ledger.policy().clone());
    assert_near(gpu_share(&ledger, 0), 500_000_000);
    ledger.set_policy(&policy(Some(2 * HOUR), Window::Sliding(Span(WEEK))));
    assert_eq!(gpu_share(&ledger, 0), 0);
    ledger.advance(Time(2 * HOUR), &[gpus(1000)], gpus(10_000));
    assert_near(gpu_share(&ledger, 0), 100_000_000);
}

#[test]
fn a_removed_queue_leaves_nothing_for_the_next_in_its_slot() {
    let mut ledger = sliding(None, 64 * HOUR);
    ledger.advance(Time(0), &[], gpus(0));
    for hour in 1..70 {
        ledger.advance(Time(hour * HOUR), &[gpus(5000), gpus(1000)], gpus(10_000));
    }
    ledger.remove(0);
    ledger.remove(17);
    ledger.remove(usize::MAX);
    assert_eq!(gpu_share(&ledger, 0), 0);
    assert_near(gpu_share(&ledger, 1), 100_000_000);
    ledger.advance(Time(102 * HOUR), &[gpus(0), gpus(1000)], gpus(10_000));
    assert_eq!(gpu_share(&ledger, 0), 0);
}

#[test]
fn queues_come_and_go_without_loss_for_the_others() {
    for window in [Window::Sliding(Span(10 * HOUR)), Window::Since(Time(0))] {
        let mut ledger = UsageLedger::new(policy(Some(HOUR), window));
        ledger.advance(Time(0), &[], gpus(0));
        ledger.advance(Time(HOUR), &[gpus(1000), gpus(2000), gpus(4000)], gpus(10_000));
        ledger.advance(Time(2 * HOUR), &[gpus(1000)], gpus(10_000));
        ledger.advance(Time(2 * HOUR + 1), &[gpus(1000), gpus(0), gpus(0), gpus(3000)], gpus(10_000));
        assert_near(gpu_share(&ledger, 0), 100_000_000);
        assert_near(gpu_share(&ledger, 2), 133_333_333);
        assert_eq!(gpu_share(&ledger, 9), 0);
        assert_eq!(ledger.share(0, 3), 0);
    }
}

#[test]
fn a_clock_that_goes_back_counts_nothing_and_loses_nothing() {
    let mut ledger = sliding(None, 64 * HOUR);
    ledger.advance(Time(10 * HOUR), &[], gpus(0));
    ledger.advance(Time(11 * HOUR), &[gpus(3000)], gpus(10_000));
    ledger.advance(Time(2 * HOUR), &[gpus(10_000)], gpus(10_000));
    assert_eq!(gpu_share(&ledger, 0), 300_000_000);
    ledger.advance(Time(3 * HOUR), &[gpus(0)], gpus(10_000));
    assert_eq!(gpu_share(&ledger, 0), 150_000_000);
}

#[test]
fn odd_clocks_policies_and_amounts_do_no_harm() {
    let times = [0, 1, i64::MAX, i64::MIN, -5, HOUR, 400 * 365 * 24 * HOUR, i64::MAX, i64::MAX - 1, i64::MIN];
    let spans = [i64::MIN, -1, 0, 1, 63, 65, WEEK, i64::MAX];
    let amounts = [i128::MIN, -1, 0, 1, i128::from(i64::MAX), i128::MAX];
    for half_life in spans.map(Some).into_iter().chain([None]) {
        for span in spans {
            let tumbling = Window::Tumbling { start: Time(i64::MAX), length: Span(span) };
            for window in [Window::Sliding(Span(span)), tumbling, Window::Since(Time(span))] {
                let mut ledger = UsageLedger::new(policy(half_life, window));
                for (time, round) in times.into_iter().zip(0..) {
                    let amount = |number: usize| Shares([amounts[(number + round) % amounts.len()]; 3]);
                    ledger.advance(Time(time), &[amount(0), amount(1), amount(2)], amount(3));
                    assert!((0..4).all(|slot| ledger.shares(slot).iter().all(|share| *share <= WHOLE)));
                }
            }
        }
    }
}

#[test]
fn memory_is_bounded_by_the_number_of_slots() {
    let mut ledger = sliding(Some(HOUR), WEEK);
    for hour in 0..2000 {
        ledger.advance(Time(hour * HOUR), &[gpus(1); 5], gpus(10));
        assert!(ledger.full.len() <= BUCKETS && ledger.full.iter().all(|rows| rows.len() <= 6));
    }
}

#[test]
fn past_usage_moves_the_division() {
    let mut ledger = sliding(Some(HOUR), WEEK);
    ledger.advance(Time(0), &[], gpus(0));
    ledger.advance(Time(HOUR), &[gpus(4000), gpus(0)], gpus(10_000));
    let queue = |name, slot| Entry {
        parent: None,
        priority: 100,
        created: Time(0),
        name,
        quota: [Some(0); 3],
        limit: [None; 3],
        weight: [1_000_000; 3],
        request: gpus(10_000),
        usage: ledger.shares(slot),
    };
    let mut out = [Shares::default(); 2];
    Division::new(1000).divide(gpus(10_000), &[queue("a", 0), queue("b", 1)], &mut out);
    assert_eq!(out, [gpus(4000), gpus(6000)]);
}

/// One step of a history: how long it took, what a queue held, what was there.
type Step = (i64, i64, i64);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let span = prop_oneof![1..2000_i64, 1..HOUR, 1..20 * HOUR];
    prop::collection::vec((span, 0..9000_i64, 9000..20_000_i64), 1..40)
}

/// The same in floating point: every step in the window weighs the integral of its decay.
#[expect(clippy::cast_precision_loss, reason = "compared with a tolerance")]
fn expected_share(steps: &[Step], half_life: Option<i64>, begin: i64) -> f64 {
    let now: i64 = steps.iter().map(|(span, ..)| span).sum();
    let (mut from, mut used, mut there) = (0, 0.0, 0.0);
    for (span, held, capacity) in steps {
        let to = from + span;
        let decay = |time: i64| {
            let age = (now - time) as f64;
            half_life.map_or(-age, |half_life| (-age / half_life as f64).exp2())
        };
        if to > begin {
            let weight = decay(to) - decay(from.max(begin));
            used += weight * *held as f64;
            there += weight * *capacity as f64;
        }
        from = to;
    }
    used / there
}

#[expect(clippy::cast_precision_loss, reason = "compared with a tolerance")]
fn actual_share(steps: &[Step], mut ledger: UsageLedger) -> f64 {
    let mut now = 0;
    ledger.advance(Time(now), &[], gpus(0));
    for (span, held, capacity) in steps {
        now += span;
        ledger.advance(Time(now), &[gpus(*held)], gpus(*capacity));
    }
    gpu_share(&ledger, 0) as f64 / 1e9
}

proptest! {
    #[test]
    fn usage_since_a_moment_is_that_of_floating_point(
        steps in steps(), half_life in prop::option::of(prop_oneof![1000..HOUR, HOUR..10 * WEEK]),
    ) {
        let actual = actual_share(&steps, UsageLedger::new(policy(half_life, Window::Since(Time(0)))));
        prop_assert!((actual - expected_share(&steps, half_life, 0)).abs() < 1e-6);
    }

    #[test]
    fn usage_in_a_sliding_window_is_that_of_floating_point(
        steps in steps(), half_life in prop::option::of(prop_oneof![1000..HOUR, HOUR..10 * WEEK]), length in HOUR..WEEK,
    ) {
        let now: i64 = steps.iter().map(|(span, ..)| span).sum();
        let actual = actual_share(&steps, sliding(half_life, length));
        // One bucket at the far end is only known as a whole.
        prop_assert!((actual - expected_share(&steps, half_life, now - length)).abs() < 1.0 / 64.0);
        if now < length {
            prop_assert!((actual - expected_share(&steps, half_life, 0)).abs() < 1e-6);
        }
    }

    #[test]
    fn more_calls_with_the_same_allocation_change_nothing(steps in steps(), half_life in prop::option::of(1000..WEEK)) {
        let twice: Vec<_> = steps.iter().flat_map(|(span, held, there)| {
            [(span / 3, *held, *there), (span - span / 3, *held, *there)]
        }).collect();
        let window = Window::Sliding(Span(WEEK));
        let once = actual_share(&steps, UsageLedger::new(policy(half_life, window.clone())));
        prop_assert!((once - actual_share(&twice, UsageLedger::new(policy(half_life, window)))).abs() < 1e-8);
    }
}
