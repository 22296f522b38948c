//! The pods of a queue hold no more GPUs than its limit.

use std::collections::BTreeMap;

use super::facts::{Ask, Facts};

pub fn check(facts: &Facts) -> Vec<String> {
    let mut held: BTreeMap<&str, u64> = BTreeMap::new();
    for pod in facts.pods.iter().filter(|pod| pod.holds()) {
        let (Some(queue), Some(node)) = (&pod.queue, pod.node.as_ref().and_then(|node| facts.nodes.get(node))) else {
            continue;
        };
        *held.entry(queue).or_default() += millionths(pod.ask, node.memory);
    }
    let mut broken = Vec::new();
    for (queue, held) in held {
        if let Some(limit) = limit(facts, queue)
            && held > limit
        {
            broken.push(format!("queue {queue} holds {held} millionths of GPUs and may hold {limit}"));
        }
    }
    broken
}

/// Millionths of GPUs, rounded up.
pub fn millionths(ask: Ask, memory: u64) -> u64 {
    match ask {
        Ask::Whole(count) => count * 1_000_000,
        Ask::Fraction(part, count) => part * count,
        Ask::Memory(mebibytes, count) => (mebibytes * 1_000_000).div_ceil(memory.max(1)) * count,
    }
}

/// The limit of a queue in millionths; none if it has none.
pub fn limit(facts: &Facts, queue: &str) -> Option<u64> {
    let queue = serde_json::to_value(&facts.queues.get(queue)?.spec).ok()?;
    let limit = queue["resources"]["gpu"]["limit"].as_f64().filter(|limit| *limit >= 0.0)?;
    format!("{:.0}", limit * 1e6).parse().ok()
}
