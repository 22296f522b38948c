//! The worked examples of KAI's rules, and the division against its slow twin.

mod examples;
mod properties;

use super::{Division, Entry};
use crate::{
    amounts::{GPU, Shares, share},
    time::Time,
};

/// A queue at the top that asks for nothing and has no limits, weight 1.
fn queue(name: &str) -> Entry<'_> {
    Entry {
        parent: None,
        priority: 100,
        created: Time(0),
        name,
        quota: [Some(0); 3],
        limit: [None; 3],
        weight: [1_000_000; 3],
        request: Shares::default(),
        usage: [0; 3],
    }
}

fn divide(total: Shares, usage_weight: u32, queues: &[Entry<'_>]) -> Vec<Shares> {
    let mut out = vec![Shares([-1; 3]); queues.len()];
    Division::new(usage_weight).divide(total, queues, &mut out);
    out
}

/// The shares of GPUs, in thousandths, of so many thousandths of GPUs.
fn divide_gpus(total: i128, usage_weight: u32, queues: &[Entry<'_>]) -> Vec<i128> {
    let thousandth = i128::from(GPU) / 1000;
    let shares = divide(Shares([0, 0, total * thousandth]), usage_weight, queues);
    shares.iter().map(|shares| shares.0[share::GPU] / thousandth).collect()
}
