//! Queues by their parents. Rings are cut where they would begin again, so that each queue is shown once.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kai_api::{Queue, QueueResource, defaults, names::resources};
use serde::Serialize;

const NANO: i128 = 1_000_000_000;

/// All trees.
#[derive(Debug, Serialize)]
pub struct Forest {
    /// The queues at the top, then those that hang in the air.
    pub queues: Vec<Branch>,
}

/// A queue and those below it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Branch {
    /// Name of the object.
    pub name: String,
    /// Name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Name of the parent, whether it exists or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Rank among its siblings.
    pub priority: i64,
    /// Why it has no way to the top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orphan: Option<String>,
    /// GPUs.
    pub gpu: Row,
    /// CPU cores.
    pub cpu: Row,
    /// Bytes.
    pub memory: Row,
    /// MiB of GPU memory that is asked for by memory.
    #[serde(skip_serializing_if = "is_zero")]
    pub requested_gpu_memory: f64,
    /// What the status says word for word.
    pub allocated: BTreeMap<String, Quantity>,
    /// What the status says word for word.
    pub allocated_non_preemptible: BTreeMap<String, Quantity>,
    /// What the status says word for word.
    pub requested: BTreeMap<String, Quantity>,
    /// PodGroups of this queue and those below; absent if they could not be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<usize>,
    /// The queues below.
    pub children: Vec<Branch>,
}

/// One resource of a queue, in units that people count in. -1 is unlimited.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Guaranteed.
    pub quota: f64,
    /// Most.
    pub limit: f64,
    /// Share of the surplus.
    pub over_quota_weight: f64,
    /// Held.
    pub allocated: f64,
    /// The part of it that cannot be preempted.
    pub allocated_non_preemptible: f64,
    /// Asked for.
    pub requested: f64,
}

impl Forest {
    /// Sorts queues under their parents, with the number of groups of each queue.
    pub fn grow(queues: &[Queue], groups: Option<&BTreeMap<String, usize>>) -> Self {
        let named = queues.iter().filter_map(|queue| Some((queue.metadata.name.as_deref()?, queue)));
        let mut grower = Grower { queues: named.collect(), children: BTreeMap::new(), groups, shown: BTreeSet::new() };
        for (name, queue) in &grower.queues {
            if let Some(parent) = parent(queue) {
                grower.children.entry(parent).or_default().push(name);
            }
        }
        let names: Vec<&str> = grower.queues.keys().copied().collect();
        let mut tops: Vec<Branch> = Vec::new();
        let at_top = |name: &&str| grower.queues.get(*name).is_some_and(|queue| parent(queue).is_none());
        let (first, rest): (Vec<&str>, Vec<&str>) = names.into_iter().partition(at_top);
        for name in first {
            tops.extend(grower.branch(name, None));
        }
        let lost: Vec<(&str, &str)> = rest
            .iter()
            .filter_map(|name| Some((*name, parent(grower.queues.get(name)?)?)))
            .filter(|(_, parent)| !grower.queues.contains_key(parent))
            .collect();
        for (name, parent) in lost {
            tops.extend(grower.branch(name, Some(format!("parent `{parent}` does not exist"))));
        }
        // What is left is in rings or below them.
        for name in rest {
            if !grower.shown.contains(name) {
                let ring = grower.ring_above(name);
                if let Some(first) = ring.first() {
                    let mut way = ring.clone();
                    way.push(first);
                    tops.extend(grower.branch(first, Some(format!("its own ancestor: {}", way.join(" -> ")))));
                }
            }
        }
        Self { queues: tops }
    }

    /// Only one queue and those below it.
    pub fn below(&self, name: &str) -> Option<Self> {
        fn find<'a>(branches: &'a [Branch], name: &str) -> Option<&'a Branch> {
            branches.iter().find_map(
                |branch| {
                    if branch.name == name { Some(branch) } else { find(&branch.children, name) }
                },
            )
        }
        Some(Self { queues: vec![find(&self.queues, name)?.clone()] })
    }
}

struct Grower<'a> {
    queues: BTreeMap<&'a str, &'a Queue>,
    children: BTreeMap<&'a str, Vec<&'a str>>,
    groups: Option<&'a BTreeMap<String, usize>>,
    shown: BTreeSet<&'a str>,
}

impl<'a> Grower<'a> {
    /// A queue with everything below it that is not shown yet.
    fn branch(&mut self, name: &'a str, orphan: Option<String>) -> Option<Branch> {
        let queue = *self.queues.get(name)?;
        if !self.shown.insert(name) {
            return None;
        }
        let below = orphan.as_ref().map(|_| format!("below `{name}`"));
        let names = self.children.get(name).cloned().unwrap_or_default();
        let mut children: Vec<Branch> = Vec::new();
        for child in names {
            // Everything below an orphan hangs on it.
            let why = below.clone().map(|own| match &orphan {
                Some(why) if why.starts_with("below") => why.clone(),
                _ => own,
            });
            children.extend(self.branch(child, why));
        }
        let own = self.groups.map(|groups| groups.get(name).copied().unwrap_or(0));
        let groups = own.map(|own| children.iter().filter_map(|child| child.groups).fold(own, usize::saturating_add));
        Some(describe(name, queue, orphan, groups, children))
    }

    /// The ring that one arrives at from a queue by going up.
    fn ring_above(&self, name: &'a str) -> Vec<&'a str> {
        let mut way: Vec<&str> = Vec::new();
        let mut at = Some(name);
        while let Some(name) = at {
            if let Some(place) = way.iter().position(|seen| *seen == name) {
                return way.split_off(place);
            }
            way.push(name);
            at = self.queues.get(name).and_then(|queue| parent(queue));
        }
        Vec::new()
    }
}

fn parent(queue: &Queue) -> Option<&str> {
    queue.spec.parent_queue.as_deref().filter(|parent| !parent.is_empty())
}

fn describe(name: &str, queue: &Queue, orphan: Option<String>, groups: Option<usize>, children: Vec<Branch>) -> Branch {
    let given = queue.spec.resources.unwrap_or_default();
    let status = queue.status.clone().unwrap_or_default();
    let row = |given: Option<QueueResource>, unit: f64, count: &dyn Fn(&BTreeMap<String, Quantity>) -> f64| {
        let given = given.unwrap_or_default();
        let scaled = |number: f64| if number < 0.0 { number } else { number * unit };
        Row {
            quota: scaled(given.quota),
            limit: scaled(given.limit),
            over_quota_weight: given.over_quota_weight,
            allocated: count(&status.allocated),
            allocated_non_preemptible: count(&status.allocated_non_preemptible),
            requested: count(&status.requested),
        }
    };
    #[expect(clippy::cast_precision_loss, reason = "a million is exact")]
    let megabyte = defaults::QUEUE_MEMORY_UNIT as f64;
    Branch {
        name: name.to_owned(),
        display_name: queue.spec.display_name.clone(),
        parent: queue.spec.parent_queue.clone(),
        priority: queue.spec.priority.unwrap_or(defaults::QUEUE_PRIORITY),
        orphan,
        gpu: row(given.gpu, 1.0, &gpus),
        cpu: row(given.cpu, 0.001, &|list| of(list, "cpu")),
        memory: row(given.memory, megabyte, &|list| of(list, "memory")),
        requested_gpu_memory: of(&status.requested, resources::GPU_MEMORY),
        allocated: status.allocated,
        allocated_non_preemptible: status.allocated_non_preemptible,
        requested: status.requested,
        groups,
        children,
    }
}

fn gpus(list: &BTreeMap<String, Quantity>) -> f64 {
    let each = list.iter().map(|(name, quantity)| kai_convert::gpus_of(name, nano(quantity)));
    number(each.fold(0, i128::saturating_add))
}

fn of(list: &BTreeMap<String, Quantity>, name: &str) -> f64 {
    list.get(name).map_or(0.0, |quantity| number(nano(quantity)))
}

fn nano(quantity: &Quantity) -> i128 {
    quantity.0.parse::<kai_quantity::Quantity>().map_or(0, |parsed| parsed.nano_saturating())
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn number(nano: i128) -> f64 {
    nano as f64 / NANO as f64
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &f64) -> bool {
    *number == 0.0
}
