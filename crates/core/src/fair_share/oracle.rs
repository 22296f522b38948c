//! The division once more, slowly: fractions of any size, every round looks at every queue, a literal reading of the rules.

use std::collections::BTreeMap;

use num_bigint::BigInt;
use num_rational::BigRational;

use super::Entry;
use crate::amounts::{GPU, Shares};

fn rational(amount: impl Into<BigInt>) -> BigRational {
    BigRational::from_integer(amount.into())
}

fn zero() -> BigRational {
    rational(0)
}

/// One queue and one resource, counted in units.
struct Queue {
    place: usize,
    priority: i32,
    order: (i64, String),
    quota: Option<BigRational>,
    limit: Option<BigRational>,
    weight: BigRational,
    request: BigRational,
    usage: BigRational,
    share: BigRational,
}

impl Queue {
    fn requestable(&self) -> BigRational {
        match &self.limit {
            Some(limit) => limit.min(&self.request).clone(),
            None => self.request.clone(),
        }
    }

    fn need(&self) -> BigRational {
        self.requestable() - &self.share
    }

    fn is_satisfied(&self) -> bool {
        self.request <= self.share || self.limit.as_ref().is_some_and(|limit| *limit <= self.share)
    }
}

/// The fair shares of all queues, which are a forest.
pub(super) fn divide(total: Shares, usage_weight: u32, queues: &[Entry<'_>]) -> Vec<Shares> {
    let mut out = vec![Shares::default(); queues.len()];
    for (resource, unit) in [1, 1, GPU].into_iter().enumerate() {
        divide_below(None, total.0[resource], resource, unit, usage_weight, queues, &mut out);
    }
    out
}

fn divide_below(
    parent: Option<usize>,
    total: i128,
    resource: usize,
    unit: i64,
    usage_weight: u32,
    queues: &[Entry<'_>],
    out: &mut [Shares],
) {
    let in_units = |amount: i128| rational(amount.max(0)) / rational(unit);
    let children: Vec<_> = (0..queues.len()).filter(|place| queues[*place].parent == parent).collect();
    let mut siblings: Vec<_> = children
        .iter()
        .map(|&place| Queue {
            place,
            priority: queues[place].priority,
            order: (queues[place].created.0, queues[place].name.to_owned()),
            quota: queues[place].quota[resource].map(|quota| in_units(quota.into())),
            limit: queues[place].limit[resource].map(|limit| in_units(limit.into())),
            weight: rational(queues[place].weight[resource]),
            request: in_units(queues[place].request.0[resource]),
            usage: rational(queues[place].usage[resource].min(1_000_000_000)) / rational(1_000_000_000),
            share: zero(),
        })
        .collect();
    divide_among(&in_units(total), &(rational(usage_weight) / rational(1000)), &mut siblings);
    for queue in siblings {
        let share = queue.share * rational(unit);
        assert!(share.is_integer(), "{share} is not a whole amount");
        out[queue.place].0[resource] = share.to_integer().try_into().expect("shares fit");
        divide_below(Some(queue.place), out[queue.place].0[resource], resource, unit, usage_weight, queues, out);
    }
}

fn divide_among(total: &BigRational, usage_weight: &BigRational, siblings: &mut [Queue]) {
    let mut remaining = total.clone();
    for queue in siblings.iter_mut() {
        let guaranteed = queue.quota.as_ref().unwrap_or(total).min(&queue.requestable()).clone();
        remaining -= &guaranteed;
        queue.share = guaranteed;
    }
    if remaining <= zero() {
        return;
    }

    let mut priorities: Vec<_> = siblings.iter().map(|queue| queue.priority).collect();
    priorities.sort_unstable();
    priorities.dedup();
    let mut remainders = BTreeMap::new();
    for priority in priorities.iter().rev() {
        let mut bucket: Vec<_> = siblings.iter_mut().filter(|queue| queue.priority == *priority).collect();
        while round(&mut remaining, usage_weight, &mut bucket, &mut remainders) {}
    }

    for priority in priorities.iter().rev() {
        let mut bucket: Vec<_> = siblings
            .iter_mut()
            .filter(|queue| queue.priority == *priority && remainders.contains_key(&queue.place))
            .collect();
        bucket.sort_by(|one, other| {
            remainders[&other.place].cmp(&remainders[&one.place]).then_with(|| one.order.cmp(&other.order))
        });
        for queue in bucket {
            let given = rational(1).min(remaining.clone());
            remaining -= &given;
            queue.share += given;
        }
    }
}

/// One round; says whether there is to be another.
fn round(
    remaining: &mut BigRational,
    usage_weight: &BigRational,
    bucket: &mut [&mut Queue],
    remainders: &mut BTreeMap<usize, BigRational>,
) -> bool {
    let amount = remaining.clone();
    let weights: BigRational =
        bucket.iter().filter(|queue| queue.need() > zero()).map(|queue| queue.weight.clone()).sum();
    if weights == zero() {
        return false;
    }
    let scores: Vec<_> = bucket
        .iter()
        .map(|queue| {
            let normal = &queue.weight / &weights;
            let score = &normal + usage_weight * (&normal - &queue.usage);
            if queue.is_satisfied() { zero() } else { score.max(zero()) }
        })
        .collect();
    let sum: BigRational = scores.iter().sum();
    if sum == zero() {
        return false;
    }
    let mut somebody_needed_less = false;
    for (queue, score) in bucket.iter_mut().zip(scores) {
        if *remaining == zero() || queue.is_satisfied() || queue.weight == zero() {
            continue;
        }
        let (offer, need) = (&amount * score / &sum, queue.need());
        let given = if need <= offer {
            remainders.remove(&queue.place);
            need.clone()
        } else {
            // Only a real remainder is remembered: an offer of whole units neither counts as one nor wipes out an older one.
            if !offer.is_integer() {
                remainders.insert(queue.place, &offer - offer.floor());
            }
            offer.floor()
        };
        somebody_needed_less |= given > zero() && need < offer;
        queue.share += &given;
        *remaining -= given;
    }
    somebody_needed_less && *remaining != zero()
}
