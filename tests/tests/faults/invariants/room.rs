//! Where a pod would have room, by a model of its own: free devices of each open node, and the room on shared ones.

use super::facts::{Ask, Facts};

/// What counts as room: this much more than was asked for, in millionths of a device. The scheduler rounds parts of devices up.
const SLACK: u64 = 10_000;

/// How many more pods that ask the same fit onto a node.
pub fn on_node(facts: &Facts, node: &str, ask: Ask) -> u64 {
    let Some(described) = facts.nodes.get(node).filter(|node| node.open) else { return 0 };
    let here = || facts.pods.iter().filter(|pod| pod.holds() && pod.node.as_deref() == Some(node));
    let whole: u64 = here().map(|pod| if let Ask::Whole(count) = pod.ask { count } else { 0 }).sum();
    let mut shared: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
    for pod in here() {
        for group in &pod.groups {
            *shared.entry(group).or_default() += pod.ask.of_each(described.memory);
        }
    }
    let taken = shared.len() as u64 + whole;
    let free = described.devices.saturating_sub(taken);
    let (entire, asked) = (described.memory * 1_000_000, ask.of_each(described.memory));
    match ask {
        Ask::Whole(0) => u64::MAX,
        // How whole devices of sliced nodes are counted is a matter of its own.
        Ask::Whole(_) if described.replicas > 1 => 0,
        Ask::Whole(count) => free / count,
        Ask::Fraction(_, count) | Ask::Memory(_, count) => {
            let asked = asked + described.memory * SLACK;
            if asked > entire || count == 0 {
                return 0;
            }
            let rooms = shared.values().filter(|used| **used + asked <= entire).count() as u64;
            (rooms + free) / count
        }
    }
}
