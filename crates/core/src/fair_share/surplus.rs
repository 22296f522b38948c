//! How surplus is divided among queues of one priority, in rounds.
//!
//! In each round everything that is left is offered to the queues that still need something, by their *scores*: the weight, or what
//! past usage leaves of it. A queue that needs no more than it is offered takes what it needs and is done; any other takes whole
//! units and remembers the *remainder* it could not take. Another round follows while somebody needed less than the offer.
//!
//! There can be as many rounds as queues. Where scores are plain weights, a queue is looked at only in rounds in which it takes
//! something: a heap knows who is next, because an offer reaches a queue's threshold (one unit, or less if it needs less) in the
//! order of threshold / weight. The remainders of all others follow from the last round alone.

use std::{cmp::Ordering, collections::BinaryHeap};

use super::wide::{Fraction, Wide};

/// Past usage is given in parts of this.
const WHOLE_USAGE: u64 = 1_000_000_000;
/// The weight of past usage is given in parts of this.
const WHOLE_USAGE_WEIGHT: u64 = 1_000;

/// A queue that has a part in the surplus.
#[derive(Debug)]
pub(super) struct Claimant {
    /// Its place among the entries.
    pub(super) place: u32,
    pub(super) priority: i32,
    /// What it got of the surplus.
    pub(super) given: u128,
    /// Its place in the order that breaks ties.
    rank: u32,
    need: u128,
    weight: i64,
    usage: u64,
    score: u128,
    remainder: Option<Remainder>,
    /// The last round in which it was looked at.
    round: u32,
}

/// What a queue was offered above whole units and did not take: `amount + part`, more than 0 and less than one unit.
#[derive(Clone, Copy, Debug)]
struct Remainder {
    amount: u128,
    part: Fraction,
}

/// What a queue may take in a round: `amount + rest / sum`.
#[derive(Clone, Copy)]
struct Offer {
    amount: u128,
    rest: Wide,
    sum: Wide,
}

impl Offer {
    fn new(available: u128, score: u128, sum: Wide) -> Self {
        // A score is at most 2¹²⁵ and an amount at most 2¹²⁷: their product fits, and the quotient is no more than `available`.
        let (amount, rest) = Wide::product(available, score).divide(sum);
        Self { amount: amount.saturate(), rest, sum }
    }

    fn remainder(self, unit: u128) -> Option<Remainder> {
        let amount = self.amount % unit;
        let part = Fraction { numerator: self.rest, denominator: self.sum };
        (amount > 0 || !self.rest.is_zero()).then_some(Remainder { amount, part })
    }
}

/// Whether a queue needed less than it was offered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Less,
    AllItCould,
}

impl Claimant {
    pub(super) fn new(place: u32, rank: u32, priority: i32, need: u128, weight: i64, usage: u64) -> Self {
        let usage = usage.min(WHOLE_USAGE);
        Self { place, priority, given: 0, rank, need, weight, usage, score: 0, remainder: None, round: 0 }
    }

    /// The weight without its sign.
    fn strength(&self) -> u64 {
        self.weight.unsigned_abs()
    }

    /// Takes from an offer, and from `remaining`.
    fn take(&mut self, offer: Offer, remaining: &mut u128, unit: u128) -> Taken {
        let needs_less = self.need < offer.amount || (self.need == offer.amount && !offer.rest.is_zero());
        let taken = if self.need <= offer.amount {
            self.remainder = None;
            self.need
        } else {
            // An offer of whole units leaves an older remainder as it is.
            self.remainder = offer.remainder(unit).or(self.remainder);
            offer.amount - offer.amount % unit
        };
        self.need -= taken;
        self.given += taken;
        *remaining = remaining.saturating_sub(taken);
        if needs_less { Taken::Less } else { Taken::AllItCould }
    }

    /// Sets the score for a round in which the weights of all who need something sum up to `weights`: the positive multiple
    /// `|weights| · 10¹²` of `max(0, n + k · (n − usage))`, where `n = weight / weights`.
    fn rate(&mut self, weights: i128, usage_weight: u32) {
        let scale = u128::from(WHOLE_USAGE_WEIGHT + u64::from(usage_weight)) * u128::from(WHOLE_USAGE);
        let claim = if (self.weight < 0) == (weights < 0) { scale * u128::from(self.strength()) } else { 0 };
        let used = u128::from(usage_weight) * u128::from(self.usage);
        self.score = claim.saturating_sub(used.saturating_mul(weights.unsigned_abs()));
    }
}

/// Divides surplus; holds buffers.
#[derive(Debug, Default)]
pub(super) struct Surplus {
    waiting: Vec<Waiting>,
    looked_at: Vec<Waiting>,
}

impl Surplus {
    /// Divides `remaining` among queues of one priority and leaves there what is left over.
    pub(super) fn divide(&mut self, bucket: &mut [Claimant], remaining: &mut u128, unit: u128, usage_weight: u32) {
        if *remaining == 0 {
            return;
        }
        let usage_counts = usage_weight > 0 && bucket.iter().any(|claimant| claimant.usage > 0);
        let negative = bucket.first().is_some_and(|claimant| claimant.weight < 0);
        if usage_counts || bucket.iter().any(|claimant| (claimant.weight < 0) != negative) {
            divide_by_score(bucket, remaining, unit, usage_weight);
        } else {
            self.divide_by_weight(bucket, remaining, unit);
        }
    }

    /// The rounds where scores are weights of one sign.
    fn divide_by_weight(&mut self, bucket: &mut [Claimant], remaining: &mut u128, unit: u128) {
        self.waiting.clear();
        self.waiting.extend(bucket.iter().zip(0_u32..).map(|(claimant, index)| Waiting::new(claimant, index, unit)));
        let mut heap = BinaryHeap::from(std::mem::take(&mut self.waiting));
        let mut weights: u128 = bucket.iter().map(|claimant| u128::from(claimant.strength())).sum();
        let mut last_round = None;
        let mut round = 0;
        while weights > 0 && *remaining > 0 {
            round += 1;
            let (available, sum) = (*remaining, Wide::from(weights));
            let mut taken = Taken::AllItCould;
            while let Some(next) = heap.peek() {
                let offer = Offer::new(available, u128::from(next.weight), sum);
                if offer.amount < next.threshold {
                    break;
                }
                let Some(claimant) = bucket.get_mut(next.index as usize) else { break };
                if let Some((available, sum)) = last_round.filter(|_| claimant.round + 1 < round) {
                    claimant.remainder = Offer::new(available, u128::from(claimant.strength()), sum).remainder(unit);
                }
                claimant.round = round;
                if claimant.take(offer, remaining, unit) == Taken::Less {
                    taken = Taken::Less;
                }
                if claimant.need == 0 {
                    weights -= u128::from(claimant.strength());
                } else {
                    self.looked_at.push(Waiting::new(claimant, next.index, unit));
                }
                heap.pop();
            }
            heap.extend(self.looked_at.drain(..));
            last_round = Some((available, sum));
            if taken == Taken::AllItCould {
                break;
            }
        }
        if let Some((available, sum)) = last_round {
            for claimant in bucket.iter_mut().filter(|claimant| claimant.need > 0 && claimant.round < round) {
                claimant.remainder = Offer::new(available, u128::from(claimant.strength()), sum).remainder(unit);
            }
        }
        self.waiting = heap.into_vec();
    }
}

/// The rounds where scores change from one to the next.
fn divide_by_score(bucket: &mut [Claimant], remaining: &mut u128, unit: u128, usage_weight: u32) {
    loop {
        let weights: i128 = bucket.iter().filter(|one| one.need > 0).map(|one| i128::from(one.weight)).sum();
        if weights == 0 {
            return;
        }
        let mut sum = Wide::default();
        for claimant in bucket.iter_mut().filter(|claimant| claimant.need > 0) {
            claimant.rate(weights, usage_weight);
            sum.add(claimant.score);
        }
        let available = *remaining;
        let mut taken = Taken::AllItCould;
        for claimant in bucket.iter_mut().filter(|claimant| claimant.need > 0 && claimant.score > 0) {
            let offer = Offer::new(available, claimant.score, sum);
            if claimant.take(offer, remaining, unit) == Taken::Less {
                taken = Taken::Less;
            }
        }
        if taken == Taken::AllItCould || *remaining == 0 {
            return;
        }
    }
}

/// Hands out what rounding left over, one unit each, to queues of one priority.
pub(super) fn hand_out_units(bucket: &mut [Claimant], remaining: &mut u128, unit: u128) {
    if *remaining == 0 {
        return;
    }
    bucket.sort_unstable_by(|one, other| {
        let by_remainder = match (one.remainder, other.remainder) {
            (Some(one), Some(other)) => other.amount.cmp(&one.amount).then_with(|| other.part.compare(one.part)),
            (one, other) => other.is_some().cmp(&one.is_some()),
        };
        by_remainder.then(one.rank.cmp(&other.rank))
    });
    for claimant in bucket.iter_mut().take_while(|claimant| claimant.remainder.is_some()) {
        let unit = unit.min(*remaining);
        claimant.given += unit;
        *remaining -= unit;
    }
}

/// A queue in the heap: the one whose threshold is reached by the smallest amount per weight comes first.
#[derive(Debug)]
struct Waiting {
    threshold: u128,
    weight: u64,
    index: u32,
}

impl Waiting {
    fn new(claimant: &Claimant, index: u32, unit: u128) -> Self {
        Self { threshold: claimant.need.min(unit), weight: claimant.strength(), index }
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        // Thresholds are at most one unit: the products fit easily. Turned round, because the heap gives the greatest first.
        let (mine, theirs) = (self.threshold * u128::from(other.weight), other.threshold * u128::from(self.weight));
        theirs.cmp(&mine).then(other.index.cmp(&self.index))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}
