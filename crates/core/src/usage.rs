//! What queues used in the past: the part of the cluster that each of them held, recent times counting more than older ones.
//!
//! [`UsageLedger::share`] is `∫ decay · allocated / ∫ decay · capacity` over the window of the policy, with `decay = ½^(age / half-life)`.
//! The ledger is told the allocation at every step and takes it as constant since the step before, so the integrals are exact and
//! need no samples. Time is cut into *buckets*:
//!
//! ```text
//!    ├── oldest ──┼── … earlier … ──┼── open ──▶ now        weight of a moment in a bucket: 2^(time since its start / half-life)
//!       fades out                      grows
//! ```
//!
//! Nothing is multiplied by a decay while a bucket is open: later moments weigh more instead, and only quotients are asked for. When
//! a bucket is full, everything before it fades by the length of one. A sliding window has 64 buckets, which are kept one by one;
//! the oldest leaves it gradually, as if its usage had been even. Other windows need only the sum.
//!
//! Errors: below 10⁻⁶ of the cluster; in a sliding window over a steady capacity also up to 1/64 of it, if what was held changed
//! inside the oldest bucket.

mod decay;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use self::decay::{Fading, ONE, growth};
use crate::{
    amounts::Shares,
    policy::{UsagePolicy, Window},
    time::Time,
};

/// How many buckets a sliding window has. What is older than so many half-lives is forgotten in any window.
const BUCKETS: usize = 64;
/// Half-lives and windows are cut to this many milliseconds, some 550 years.
const LONGEST: u64 = 1 << 44;
/// Amounts are cut to this, so that 64 buckets full of them can be summed up.
const LARGEST: i128 = 1 << 72;
/// The whole cluster, in the unit of [`UsageLedger::share`].
const WHOLE: u64 = 1_000_000_000;

/// Weighted amounts of the three resources.
type Row = [u128; 3];

/// What every queue used, by a slot number that the caller gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct UsageLedger {
    policy: UsagePolicy,
    last: Option<Time>,
    /// How many milliseconds of the open bucket are over.
    elapsed: u64,
    // In all of these the first row is the capacity of the cluster, and a queue's row comes one after its slot.
    open: Vec<Row>,
    /// What all buckets before the open one count, seen from the start of the open one; in a sliding window without the oldest.
    earlier: Vec<Row>,
    oldest: Vec<Row>,
    /// How much of the oldest bucket is still in the window: a numerator and its denominator.
    oldest_left: (u64, u64),
    /// The full buckets of a sliding window, newest first, each seen from its own start.
    full: VecDeque<Vec<Row>>,
}

impl UsageLedger {
    /// A ledger without any history.
    #[must_use]
    pub fn new(policy: UsagePolicy) -> Self {
        Self {
            policy,
            last: None,
            elapsed: 0,
            open: Vec::new(),
            earlier: Vec::new(),
            oldest: Vec::new(),
            oldest_left: (0, 1),
            full: VecDeque::new(),
        }
    }

    /// What counts.
    #[must_use]
    pub fn policy(&self) -> &UsagePolicy {
        &self.policy
    }

    /// Goes on with another policy. History is kept only if the beginning of a [`Window::Since`] has moved to a time which the
    /// ledger has not reached (then [`Self::advance`] forgets it in time) or back; in all other cases it begins anew.
    pub fn set_policy(&mut self, policy: &UsagePolicy) {
        if self.policy == *policy {
            return;
        }
        let keeps = self.policy.half_life == policy.half_life
            && match (&self.policy.window, &policy.window) {
                (Window::Since(old), Window::Since(new)) => new <= old || self.last.is_none_or(|last| *new > last),
                _ => false,
            };
        self.policy = policy.clone();
        if !keeps {
            self.forget();
        }
    }

    /// Counts the time since the last call, during which `allocated` (by slot) was held by the queues and `capacity` was there.
    ///
    /// The first call only starts the clock. If the clock went back nothing is counted. Takes time in proportion to the number of
    /// slots, and 64 times that when a bucket is full.
    pub fn advance(&mut self, now: Time, allocated: &[Shares], capacity: Shares) {
        let Some(last) = self.last.replace(now) else { return };
        let mut from = last;
        if let Some(begin) = self.window_begin(now).filter(|begin| *begin > last) {
            self.forget();
            from = begin;
        }
        let mut span = u64::try_from(now.since(from).0).unwrap_or(0);
        let bucket = self.bucket();
        let horizon = bucket.saturating_mul(BUCKETS as u64);
        if span >= horizon {
            self.forget();
            span = horizon;
        }
        let rows = (allocated.len() + 1).max(self.open.len());
        let mut is_bucket_new = false;
        while span > 0 {
            // A bucket is at least one millisecond long. The bound only matters to ledgers that were read from elsewhere.
            self.elapsed = self.elapsed.min(bucket - 1);
            let step = span.min(bucket - self.elapsed);
            let weight = self.weight(self.elapsed + step).saturating_sub(self.weight(self.elapsed));
            self.open.resize(rows, Row::default());
            for (row, amounts) in self.open.iter_mut().zip(std::iter::once(&capacity).chain(allocated)) {
                for (sum, amount) in row.iter_mut().zip(amounts.0) {
                    *sum = sum.saturating_add(amount.clamp(0, LARGEST).unsigned_abs() * u128::from(weight));
                }
            }
            span -= step;
            self.elapsed += step;
            if self.elapsed == bucket {
                self.close_bucket(bucket);
                is_bucket_new = true;
            }
        }
        if self.is_sliding() {
            if is_bucket_new {
                self.sum_up(bucket);
            }
            // As much of the oldest bucket is left as the open one lacks.
            let whole = self.weight(bucket);
            self.oldest_left = (whole.saturating_sub(self.weight(self.elapsed)), whole);
        }
    }

    /// The part of the cluster's `resource` (a place in [`Shares`]) that the queue in `slot` used, in billionths.
    /// Nothing if nothing is known.
    #[must_use]
    pub fn share(&self, slot: usize, resource: usize) -> u64 {
        if resource >= Row::default().len() {
            return 0;
        }
        let (left, whole) = self.oldest_left;
        let total = |row: usize| {
            let of = |rows: &[Row]| rows.get(row).map_or(0, |row| row[resource]);
            let oldest = part(of(&self.oldest), left, whole);
            of(&self.open).saturating_add(of(&self.earlier)).saturating_add(oldest)
        };
        ratio(slot.checked_add(1).map_or(0, total), total(0))
    }

    /// The parts of all three resources that the queue in `slot` used, in billionths.
    #[must_use]
    pub fn shares(&self, slot: usize) -> [u64; 3] {
        [0, 1, 2].map(|resource| self.share(slot, resource))
    }

    /// Forgets the queue in `slot`, which may then be given to another.
    pub fn remove(&mut self, slot: usize) {
        let Some(row) = slot.checked_add(1) else { return };
        let sums = [&mut self.open, &mut self.earlier, &mut self.oldest];
        for rows in sums.into_iter().chain(&mut self.full) {
            if let Some(row) = rows.get_mut(row) {
                *row = Row::default();
            }
        }
    }

    fn forget(&mut self) {
        self.elapsed = 0;
        self.open.clear();
        self.earlier.clear();
        self.oldest.clear();
        self.full.clear();
    }

    fn is_sliding(&self) -> bool {
        matches!(self.policy.window, Window::Sliding(_))
    }

    /// The half-life, if usage fades at all.
    fn half_life(&self) -> Option<u64> {
        let half_life = self.policy.half_life.and_then(|span| u64::try_from(span.0).ok());
        half_life.filter(|span| *span > 0).map(|span| span.min(LONGEST))
    }

    /// When the window that contains `now` began, if windows begin at fixed times.
    fn window_begin(&self, now: Time) -> Option<Time> {
        match self.policy.window {
            Window::Sliding(_) => None,
            Window::Since(begin) => Some(begin),
            Window::Tumbling { start, length } if length.0 <= 0 => Some(start),
            Window::Tumbling { start, length } => {
                let into = (i128::from(now.0) - i128::from(start.0)).rem_euclid(i128::from(length.0));
                i64::try_from(i128::from(now.0) - into).ok().map(Time)
            }
        }
    }

    /// The length of a bucket: never more than a half-life, so that weights grow at most twofold inside.
    fn bucket(&self) -> u64 {
        let half_life = self.half_life().unwrap_or(LONGEST);
        match self.policy.window {
            Window::Sliding(length) => {
                let length = u64::try_from(length.0).unwrap_or(0).clamp(1, LONGEST);
                length.div_ceil(BUCKETS as u64).min(half_life)
            }
            Window::Tumbling { .. } | Window::Since(_) => half_life,
        }
    }

    /// The weight of the first so many milliseconds of a bucket, up to a factor that all buckets have in common.
    fn weight(&self, elapsed: u64) -> u64 {
        self.half_life().map_or(elapsed, |half_life| growth(elapsed, half_life) - ONE)
    }

    fn close_bucket(&mut self, bucket: u64) {
        self.elapsed = 0;
        if self.is_sliding() {
            let reused = if self.full.len() >= BUCKETS { self.full.pop_back() } else { None };
            let mut open = reused.unwrap_or_default();
            open.clear();
            self.full.truncate(BUCKETS - 1);
            self.full.push_front(std::mem::replace(&mut self.open, open));
        } else {
            let rows = self.open.len().max(self.earlier.len());
            self.open.resize(rows, Row::default());
            add_faded(&mut self.open, &self.earlier, Fading::NONE);
            self.earlier.clear();
            self.earlier.resize(rows, Row::default());
            let fading = fading(self.half_life(), bucket);
            add_faded(&mut self.earlier, &self.open, fading);
            self.open.clear();
        }
    }

    /// Sums up the full buckets of a sliding window from the start of the open one. Always from what was counted in each, so that
    /// rounding does not pile up.
    fn sum_up(&mut self, bucket: u64) {
        let half_life = self.half_life();
        let rows = self.full.iter().map(Vec::len).max().unwrap_or(0);
        for sums in [&mut self.earlier, &mut self.oldest] {
            sums.clear();
            sums.resize(rows, Row::default());
        }
        for (amounts, number) in self.full.iter().zip(1..=BUCKETS as u64) {
            let sums = if number == BUCKETS as u64 { &mut self.oldest } else { &mut self.earlier };
            add_faded(sums, amounts, fading(half_life, bucket.saturating_mul(number)));
        }
    }
}

fn fading(half_life: Option<u64>, age: u64) -> Fading {
    half_life.map_or(Fading::NONE, |half_life| Fading::after(age, half_life))
}

fn add_faded(sums: &mut [Row], amounts: &[Row], fading: Fading) {
    for (sums, amounts) in sums.iter_mut().zip(amounts) {
        for (sum, amount) in sums.iter_mut().zip(amounts) {
            *sum = sum.saturating_add(fading.of(*amount));
        }
    }
}

/// `amount · numerator / denominator` for a fraction of at most 1, rounded down.
fn part(amount: u128, numerator: u64, denominator: u64) -> u128 {
    let (numerator, denominator) = (u128::from(numerator.min(denominator)), u128::from(denominator.max(1)));
    (amount / denominator) * numerator + (amount % denominator) * numerator / denominator
}

/// `used / capacity` in billionths, between nothing and the whole.
fn ratio(used: u128, capacity: u128) -> u64 {
    if capacity == 0 {
        return 0;
    }
    if used >= capacity {
        return WHOLE;
    }
    // A billion has 30 bits; the 98 that are left are more than enough.
    let shift = 30_u32.saturating_sub(capacity.leading_zeros());
    let share = (used >> shift) * u128::from(WHOLE) / (capacity >> shift);
    u64::try_from(share).unwrap_or(WHOLE).min(WHOLE)
}
