//! Random small clusters with queues, running groups and waiting groups.

use proptest::prelude::*;

use super::{NOW, group, node, pod, policy, queue, running};
use crate::{
    amounts::GPU,
    delta::{self, Delta, Gpus},
    policy::{Action, Policy, Strategy as Filling},
    time::{Span, Time},
};

/// What a random cluster is made of.
#[derive(Clone)]
pub struct World {
    pub nodes: Vec<delta::Node>,
    pub queues: Vec<delta::Queue>,
    pub groups: Vec<delta::PodGroup>,
    pub pods: Vec<delta::Pod>,
    pub topologies: Vec<delta::Topology>,
    pub policy: Policy,
}

impl std::fmt::Debug for World {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for queue in &self.queues {
            let (parent, priority, cpu, gpu) = (queue.parent.as_deref(), queue.priority, queue.cpu.quota, queue.gpu);
            writeln!(to, "  queue {} of {parent:?} priority {priority} cpu {cpu:?} {gpu:?}", queue.name)?;
        }
        for group in &self.groups {
            let (min, created, started) = (group.min_member, group.created, group.last_start);
            let ranks = (group.priority, group.preemptible, min, created, started);
            write!(to, "  group {} of {} {ranks:?}", group.key, group.queue)?;
            writeln!(to, " {:?} {:?} {:?}", group.min_sub_group, group.subgroups, group.topology)?;
        }
        write_objects(to, &self.nodes, &self.pods, &self.policy)
    }
}

/// One line per object: failures are read by people.
pub fn write_objects(
    to: &mut std::fmt::Formatter<'_>,
    nodes: &[delta::Node],
    pods: &[delta::Pod],
    policy: &Policy,
) -> std::fmt::Result {
    for node in nodes {
        let size = (node.cpu, node.memory, node.pods, node.gpus, &node.extended);
        writeln!(to, "  node {} {size:?} {:?} {:?} {:?}", node.name, node.labels, node.taints, node.unavailable)?;
    }
    for pod in pods {
        let request = (pod.request.cpu, pod.request.memory, pod.request.gpus, &pod.request.extended);
        let at = pod.placement.as_ref().map(|placement| (&placement.node, &placement.devices));
        write!(to, "  pod {} {request:?} at {at:?} deleted {:?}", pod.uid, pod.deleted)?;
        let selector = &pod.constraints.node_selector;
        write!(to, " {selector:?} {} {:?}", pod.constraints.tolerations.len(), pod.nominated)?;
        let (away, ports) = (&pod.constraints.pod_anti_affinity, &pod.constraints.host_ports);
        writeln!(to, " {:?} {:?} away from {away:?} {ports:?}", pod.subgroup, pod.labels)?;
    }
    let most = policy.max_consolidation_victims;
    let spans = (policy.preempt_min_runtime, policy.reclaim_min_runtime);
    writeln!(
        to,
        "  {:?} {:?} {most:?} {} {spans:?}",
        policy.gpu_strategy, policy.cpu_strategy, policy.consolidating_reclaim
    )?;
    writeln!(to, "  {:?}", policy.plugins)
}

/// How large a random cluster gets.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Running groups, at most.
    pub running: usize,
    /// Waiting groups, at least and at most.
    pub waiting: (usize, usize),
    /// Ways to choose how much is taken from each running group, at most.
    pub choices: u32,
    /// Whether running groups may want to grow.
    pub growing: bool,
}

/// A group before it is given names and places.
#[derive(Clone, Debug)]
struct Shape {
    queue: prop::sample::Index,
    priority: i32,
    preemptible: bool,
    created: i64,
    min: u32,
    extra: u32,
    waiting: u32,
    gpus: Gpus,
    cpu: i64,
    started: bool,
    leaves: bool,
    first: prop::sample::Index,
}

/// What is left of a node while groups are put on it.
struct Left {
    name: String,
    cpu: i64,
    gpus: u32,
    /// MiB of each device.
    memory: u64,
    /// Devices that are divided: millionths of a MiB that are left of each.
    devices: Vec<u64>,
}

impl Left {
    /// Takes a place for a pod; `None` if there is none. The names of its devices are the answer.
    fn take(&mut self, gpus: Gpus, cpu: i64) -> Option<Vec<String>> {
        if self.cpu < cpu {
            return None;
        }
        let devices = match gpus {
            Gpus::Whole(count) => {
                self.gpus = self.gpus.checked_sub(count)?;
                Vec::new()
            }
            Gpus::Portion { devices, millionths } => self.share(devices, u64::from(millionths) * self.memory)?,
            Gpus::Memory { devices, mib } => self.share(devices, mib * 1_000_000)?,
            Gpus::None => Vec::new(),
        };
        self.cpu -= cpu;
        Some(devices)
    }

    /// Takes so many units of some devices, divided ones first.
    fn share(&mut self, count: u32, units: u64) -> Option<Vec<String>> {
        if units > self.memory * 1_000_000 {
            return None;
        }
        let mut chosen: Vec<usize> = (0..self.devices.len()).filter(|place| self.devices[*place] >= units).collect();
        while chosen.len() < count as usize {
            self.gpus = self.gpus.checked_sub(1)?;
            chosen.push(self.devices.len());
            self.devices.push(self.memory * 1_000_000);
        }
        chosen.truncate(count as usize);
        for place in &chosen {
            self.devices[*place] -= units;
        }
        Some(chosen.into_iter().map(|place| format!("{}-d{place}", self.name)).collect())
    }
}

impl World {
    /// What the engine is told.
    pub fn deltas(&self) -> Vec<Delta> {
        let nodes = self.nodes.iter().map(|node| Delta::Node(Box::new(node.clone())));
        let queues = self.queues.iter().map(|queue| Delta::Queue(Box::new(queue.clone())));
        let groups = self.groups.iter().map(|group| Delta::PodGroup(Box::new(group.clone())));
        let pods = self.pods.iter().map(|pod| Delta::Pod(Box::new(pod.clone())));
        let topologies = self.topologies.iter().map(|topology| Delta::Topology(topology.clone()));
        topologies.chain(nodes).chain(queues).chain(groups).chain(pods).collect()
    }

    /// The policy with other actions.
    pub fn policy(&self, actions: &[Action]) -> Policy {
        Policy { actions: actions.to_vec(), ..self.policy.clone() }
    }

    /// Adds a running group, if all of its pods find a place.
    fn run(&mut self, left: &mut [Left], shape: &Shape, leaves: &[String]) {
        let key = format!("r{}", self.groups.len());
        let before: Vec<(i64, u32, Vec<u64>)> =
            left.iter().map(|node| (node.cpu, node.gpus, node.devices.clone())).collect();
        let first = shape.first.index(left.len());
        let mut pods = Vec::new();
        for number in 0..(shape.min + shape.extra).max(1) {
            let count = left.len();
            let mut nodes = (0..count).map(|offset| (first + offset) % count);
            let found = nodes.find_map(|place| Some((place, left[place].take(shape.gpus, shape.cpu)?)));
            let Some((place, devices)) = found else {
                for (node, (cpu, gpus, devices)) in left.iter_mut().zip(before) {
                    (node.cpu, node.gpus, node.devices) = (cpu, gpus, devices);
                }
                return;
            };
            let placed = running(shape.pod(&key, number), &left[place].name, &devices);
            pods.push(delta::Pod { deleted: shape.leaves.then_some(NOW), ..placed });
        }
        pods.extend((100..100 + shape.waiting).map(|number| shape.pod(&key, number)));
        self.groups.push(shape.group(&key, leaves));
        self.pods.extend(pods);
    }

    fn wait(&mut self, shape: &Shape, leaves: &[String]) {
        let key = format!("w{}", self.groups.len());
        self.groups.push(shape.group(&key, leaves));
        self.pods.extend((0..(shape.min + shape.extra).max(1)).map(|number| shape.pod(&key, number)));
    }
}

impl Shape {
    fn group(&self, key: &str, leaves: &[String]) -> delta::PodGroup {
        delta::PodGroup {
            created: Time(self.created),
            priority: self.priority * 25,
            preemptible: self.preemptible,
            last_start: self.started.then_some(Time(NOW.0 - 10_000)),
            ..group(key, &leaves[self.queue.index(leaves.len())], self.min)
        }
    }

    fn pod(&self, key: &str, number: u32) -> delta::Pod {
        let mut built = pod(&format!("{key}-{number}"), key, self.gpus);
        built.request.cpu = self.cpu;
        built
    }
}

fn any_shape(growing: bool, large: bool) -> impl Strategy<Value = Shape> {
    let gpus = prop_oneof![
        6 => Just(Gpus::Whole(1)),
        3 => Just(Gpus::Whole(2)),
        2 => Just(Gpus::Portion { devices: 1, millionths: 500_000 }),
        1 => Just(Gpus::Portion { devices: 1, millionths: 300_000 }),
        1 => Just(Gpus::Portion { devices: 2, millionths: 600_000 }),
        1 => (3..12_u64).prop_map(|mib| Gpus::Memory { devices: 1, mib }),
        1 => Just(Gpus::None),
        u32::from(large) * 3 => Just(Gpus::Whole(3)),
    ];
    let size = (prop_oneof![1 => Just(0), 6 => Just(1), 3 => Just(2), 1 + 3 * u32::from(large) => Just(3)], 0..3_u32);
    let grows = if growing { (0..3_u32).boxed() } else { Just(0).boxed() };
    let flags = (prop::bool::weighted(0.85), prop::bool::weighted(0.3), prop::bool::weighted(0.1));
    let places = (any::<prop::sample::Index>(), any::<prop::sample::Index>());
    (places, 0..4_i32, 0..4_i64, size, grows, gpus, 0..3_i64, flags).prop_map(
        |((queue, first), priority, created, (min, extra), waiting, gpus, cpu, flags)| Shape {
            queue,
            priority,
            preemptible: flags.0,
            created,
            min,
            extra,
            waiting,
            gpus,
            cpu: if gpus == Gpus::None { cpu * 1000 + 1000 } else { cpu * 500 },
            started: flags.1,
            leaves: flags.2,
            first,
        },
    )
}

fn any_queue() -> impl Strategy<Value = (delta::Queue, u8)> {
    let quota = prop_oneof![1 => Just(None), 6 => (0..5_i64).prop_map(Some)];
    let limit = prop::option::weighted(0.15, 1..6_i64);
    let cpu = prop::option::weighted(0.25, 0..8_i64);
    (quota, limit, cpu, 0..3_i64, 0..2_i32, 0..3_u8).prop_map(|(quota, limit, cpu, weight, priority, parent)| {
        let mut built = queue("", quota);
        built.cpu.quota = cpu.map(|cores| cores * 500);
        built.gpu.limit = limit.map(|gpus| gpus * GPU);
        built.gpu.over_quota_weight = weight * 1_000_000;
        built.priority = priority;
        (built, parent)
    })
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let most = prop_oneof![Just(None), Just(Some(16)), (1..4_u32).prop_map(Some)];
    let flags = (any::<bool>(), prop::bool::weighted(0.3), any::<bool>());
    (most, flags).prop_map(|(most, (consolidating, protected, spread))| {
        let mut policy = policy(&[]);
        policy.max_consolidation_victims = most;
        policy.consolidating_reclaim = consolidating;
        let protection = Span::seconds(if protected { 60 } else { 0 });
        (policy.reclaim_min_runtime, policy.preempt_min_runtime) = (protection, protection);
        policy.gpu_strategy = if spread { Filling::Spread } else { Filling::Binpack };
        policy
    })
}

prop_compose! {
    /// A random cluster.
    pub fn any_world(size: Size)(
        nodes in prop::collection::vec(
            (1..5_u32, prop_oneof![3 => Just(64), 1 => 2..6_i64], prop_oneof![Just(12), Just(16_u64)]),
            1..4,
        ),
        departments in prop::collection::vec(any_queue(), 2),
        queues in prop::collection::vec(any_queue(), 2..5),
        runs in prop::collection::vec(any_shape(size.growing, false), 1..=size.running),
        waits in prop::collection::vec(any_shape(false, true), size.waiting.0..=size.waiting.1),
        policy in any_policy(),
        alike in prop::bool::weighted(0.6),
    ) -> World {
        let build = |(number, (gpus, cpu, memory)): (usize, &(u32, i64, u64))| {
            let mut built = node(&format!("n{number}"), *gpus);
            (built.cpu, built.gpus.memory) = (cpu * 1000, Some(if alike { 12 } else { *memory }));
            built
        };
        let nodes: Vec<delta::Node> = nodes.iter().enumerate().map(build).collect();
        let mut left: Vec<Left> = nodes
            .iter()
            .map(|node| Left {
                name: node.name.clone(),
                cpu: node.cpu,
                gpus: node.gpus.count,
                memory: node.gpus.memory.unwrap_or(1),
                devices: Vec::new(),
            })
            .collect();
        let mut all = Vec::new();
        for (number, (department, _)) in departments.into_iter().enumerate() {
            let used = queues.iter().any(|(_, parent)| usize::from(*parent) == number + 1);
            if used {
                all.push(delta::Queue { name: format!("d{number}"), created: Time(0), ..department });
            }
        }
        let mut leaves = Vec::new();
        for (number, (leaf, parent)) in queues.into_iter().enumerate() {
            let parent = (parent > 0).then(|| format!("d{}", parent - 1));
            leaves.push(format!("q{number}"));
            let created = Time(i64::try_from(number).unwrap_or(0));
            all.push(delta::Queue { name: format!("q{number}"), parent, created, ..leaf });
        }
        let (groups, pods, topologies) = (Vec::new(), Vec::new(), Vec::new());
        let mut world = World { nodes, queues: all, groups, pods, topologies, policy };
        let mut choices = 1;
        for shape in runs {
            let (pods, before) = ((shape.min + shape.extra).max(1), world.groups.len());
            let ways = pods - shape.min.min(pods) + 1 + u32::from(shape.min > 0);
            if choices * ways <= size.choices {
                world.run(&mut left, &shape, &leaves);
            }
            if world.groups.len() > before {
                choices *= ways;
            }
        }
        for shape in waits {
            world.wait(&shape, &leaves);
        }
        world
    }
}
