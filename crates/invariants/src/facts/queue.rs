//! Queues: the way to the root, which of them can be used, and what their pods cost them.

use std::collections::BTreeMap;

use kai_core::{
    amounts::GPU,
    delta::{Gpus, Node, Pod, Queue, QueueResource},
};

use super::{Facts, gang::Gang, gpu_memory, is_sane};

/// No queue is nested deeper.
const DEEPEST: usize = 64;

/// cpu in millicores, memory in bytes, GPUs in millionths.
pub type Cost = [i128; 3];

/// The names of the resources in a [`Cost`].
pub const RESOURCES: [&str; 3] = ["cpu", "memory", "gpu"];

/// What a queue may have of the three resources.
#[must_use]
pub fn resources(queue: &Queue) -> [QueueResource; 3] {
    [queue.cpu, queue.memory, queue.gpu]
}

impl Facts {
    /// Whether a queue's way to the root is whole and its numbers can be meant.
    #[must_use]
    pub fn is_sound(&self, name: &str) -> bool {
        let Some(queue) = self.queues.get(name) else { return false };
        let numbers = resources(queue).into_iter().flat_map(|resource| [resource.quota, resource.limit]);
        if numbers.flatten().any(|number| number < 0) {
            return false;
        }
        let mut current = queue;
        for _ in 0..DEEPEST {
            let Some(parent) = &current.parent else { return true };
            let Some(next) = self.queues.get(parent) else { return false };
            current = next;
        }
        false
    }

    /// A queue and its ancestors, from the leaf upwards. A queue that is not sound stands alone.
    #[must_use]
    pub fn chain<'a>(&'a self, name: &'a str) -> Vec<&'a str> {
        let mut chain = vec![name];
        let mut current = name;
        while self.is_sound(current) {
            match self.queues.get(current).and_then(|queue| queue.parent.as_deref()) {
                Some(parent) if chain.len() <= DEEPEST => {
                    chain.push(parent);
                    current = parent;
                }
                _ => break,
            }
        }
        chain
    }

    /// Whether groups can run from a queue: it is sound and no sound queue is part of it.
    #[must_use]
    pub fn is_usable_leaf(&self, name: &str) -> bool {
        let is_part = |child: &Queue| child.parent.as_deref() == Some(name) && self.is_sound(&child.name);
        self.is_sound(name) && !self.queues.values().any(is_part)
    }

    /// The two queues to compare: the first on the ways down to `one` and to `other` that differ.
    #[must_use]
    pub fn leveled<'a>(&'a self, one: &'a str, other: &'a str) -> Option<(&'a str, &'a str)> {
        let (one, other) = (self.chain(one), self.chain(other));
        one.into_iter().rev().zip(other.into_iter().rev()).find(|(one, other)| one != other)
    }
}

/// What a pod costs its queue on a node.
#[must_use]
pub fn cost(pod: &Pod, node: Option<&Node>) -> Cost {
    let request = &pod.request;
    if !is_sane(request) {
        return [0; 3];
    }
    let gpus = match request.gpus {
        Gpus::None => 0,
        Gpus::Whole(count) => i128::from(count) * i128::from(GPU),
        Gpus::Portion { devices, millionths } => i128::from(devices) * i128::from(millionths),
        Gpus::Memory { devices, mib } => node.and_then(gpu_memory).map_or(0, |memory| {
            // Rounded up: nobody is charged less than they hold.
            let each = (i128::from(mib) * i128::from(GPU)).div_euclid(i128::from(memory));
            let rest = (i128::from(mib) * i128::from(GPU)).rem_euclid(i128::from(memory));
            i128::from(devices) * (each + i128::from(rest > 0))
        }),
    };
    [request.cpu.into(), request.memory.into(), gpus + i128::from(request.mig_share)]
}

/// What the pods of each queue and of all below it hold.
#[derive(Clone, Debug, Default)]
pub struct Accounts<'a> {
    /// All of it, by queue.
    pub allocated: BTreeMap<&'a str, Cost>,
    /// Of that, what cannot be evicted.
    pub fixed: BTreeMap<&'a str, Cost>,
}

impl<'a> Accounts<'a> {
    /// Adds (1) or subtracts (-1) a cost of a group all along the way to the root.
    pub fn add(&mut self, facts: &'a Facts, gang: &Gang<'a>, cost: Cost, times: i128) {
        for queue in facts.chain(&gang.group.queue) {
            let fixed = (!gang.group.preemptible).then(|| self.fixed.entry(queue).or_default());
            for account in [Some(self.allocated.entry(queue).or_default()), fixed].into_iter().flatten() {
                for (sum, part) in account.iter_mut().zip(cost) {
                    *sum += part * times;
                }
            }
        }
    }

    /// What a queue holds.
    #[must_use]
    pub fn allocated(&self, queue: &str) -> Cost {
        self.allocated.get(queue).copied().unwrap_or_default()
    }

    /// What a queue holds that cannot be evicted.
    #[must_use]
    pub fn fixed(&self, queue: &str) -> Cost {
        self.fixed.get(queue).copied().unwrap_or_default()
    }
}
