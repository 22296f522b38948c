//! Random small clusters: every kind of object in every state, mostly sensible, some of them wrong.
//!
//! A case is a list of small numbers that shrink well; what they mean is decided when objects are made of them. Running pods are put where
//! there is room, so that clusters start in states that a scheduler could have reached.

use std::collections::BTreeMap;

use crate::rules;
use kai_core::{
    amounts::GPU,
    delta::{
        Delta, Gpus, Level, Node, Origin, Phase, Pod, PodGroup, Queue, QueueResource, SubGroup, Taint, TaintEffect,
        Toleration, Topology, TopologyConstraint, Unavailable,
    },
    policy::{Action, MinRuntimeRule, Policy, Strategy as Placement},
    time::{Span, Time},
};
use kai_invariants::sample::{self, NOW};
use proptest::{
    collection::vec,
    prelude::*,
    strategy::ValueTree,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

/// The case of a seed: always the same one, as long as the generator is.
pub fn case_of(seed: u64) -> Case {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    // Seeds were noted before there were rules between pods.
    Case { rules: Vec::new(), ..case().new_tree(&mut runner).expect("nothing is rejected").current() }
}

/// A random cluster, how to schedule it, and what happens to it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Below [`WILD`] only GPUs are scarce and few objects are odd: there is room for evictions.
    pub style: u8,
    pub nodes: Vec<NodeSpec>,
    pub queues: Vec<QueueSpec>,
    pub groups: Vec<GroupSpec>,
    pub strangers: Vec<u8>,
    pub policy: PolicySpec,
    pub events: Vec<Event>,
    /// By group: what its pods want of pods around them.
    pub rules: Vec<u8>,
}

/// From here on a style lets everything be scarce and odd.
const WILD: u8 = 6;

#[derive(Clone, Debug)]
pub struct NodeSpec {
    gpus: u32,
    memory: u8,
    cores: i64,
    slots: i64,
    domain: u8,
    quirk: u8,
}

#[derive(Clone, Debug)]
pub struct QueueSpec {
    parent: u8,
    quota: u8,
    limit: u8,
    cores: u8,
    weight: u8,
    priority: u8,
    runtimes: u8,
    quirk: u8,
}

#[derive(Clone, Debug)]
pub struct GroupSpec {
    queue: u8,
    priority: u8,
    min: u8,
    shape: u8,
    pods: Vec<PodSpec>,
    state: u8,
    where_to: u8,
    clock: u8,
    age: u8,
    quirk: u8,
}

#[derive(Clone, Debug)]
pub struct PodSpec {
    gpus: u8,
    cores: u8,
    state: u8,
    node: u8,
    quirk: u8,
}

#[derive(Clone, Debug)]
pub struct PolicySpec {
    actions: u8,
    placement: u8,
    consolidation: u8,
    runtimes: u8,
    grace: u8,
}

/// What happens before a cycle.
#[derive(Clone, Debug)]
pub struct Event {
    pub seconds: u16,
    pub kind: u8,
    pub which: u8,
}

pub fn case() -> impl Strategy<Value = Case> {
    let node = (0_u32..=4, 0_u8..8, 2_i64..=8, 3_i64..=10, 0_u8..6, 0_u8..24);
    let node = node.prop_map(|(gpus, memory, cores, slots, domain, quirk)| NodeSpec {
        gpus,
        memory,
        cores,
        slots,
        domain,
        quirk,
    });
    let queue = (any::<u8>(), 0_u8..6, 0_u8..40, 0_u8..16, 0_u8..4, 0_u8..6, 0_u8..12, 0_u8..100);
    let queue = queue.prop_map(|(parent, quota, limit, cores, weight, priority, runtimes, quirk)| QueueSpec {
        parent,
        quota,
        limit,
        cores,
        weight,
        priority,
        runtimes,
        quirk,
    });
    let policy = (0_u8..12, 0_u8..4, 0_u8..6, 0_u8..6, 0_u8..6);
    let policy = policy.prop_map(|(actions, placement, consolidation, runtimes, grace)| PolicySpec {
        actions,
        placement,
        consolidation,
        runtimes,
        grace,
    });
    let event = (0_u16..200, 0_u8..14, any::<u8>());
    let event = event.prop_map(|(seconds, kind, which)| Event { seconds, kind, which });
    let parts = (
        0_u8..10,
        vec(node, 1..=4),
        vec(queue, 1..=5),
        vec(group(), 1..=8),
        vec(any::<u8>(), 0..3),
        policy,
        vec(event, 1..=4),
        vec(0_u8..20, 8),
    );
    parts.prop_map(|(style, nodes, queues, groups, strangers, policy, events, rules)| Case {
        style,
        nodes,
        queues,
        groups,
        strangers,
        policy,
        events,
        rules,
    })
}

fn group() -> impl Strategy<Value = GroupSpec> {
    let pod = (0_u8..16, 0_u8..8, 0_u8..16, any::<u8>(), 0_u8..60);
    let pod = pod.prop_map(|(gpus, cores, state, node, quirk)| PodSpec { gpus, cores, state, node, quirk });
    let parts =
        (any::<u8>(), 0_u8..8, 0_u8..5, 0_u8..12, vec(pod, 1..=4), 0_u8..8, 0_u8..24, 0_u8..16, any::<u8>(), 0_u8..60);
    parts.prop_map(|(queue, priority, min, shape, pods, state, where_to, clock, age, quirk)| GroupSpec {
        queue,
        priority,
        min,
        shape,
        pods,
        state,
        where_to,
        clock,
        age,
        quirk,
    })
}

impl Case {
    /// The objects, as deltas.
    pub fn deltas(&self) -> Vec<Delta> {
        if self.style < WILD {
            return Self { style: WILD, ..self.tamed() }.deltas();
        }
        let nodes: Vec<Node> = self.nodes.iter().enumerate().map(|(place, spec)| node(place, spec)).collect();
        let mut room = Room::of(&nodes);
        let mut deltas: Vec<Delta> = nodes.into_iter().map(|node| Delta::Node(Box::new(node))).collect();
        let queues = self.queues.iter().enumerate().map(|(place, spec)| queue(place, spec));
        deltas.extend(queues.map(|queue| Delta::Queue(Box::new(queue))));
        deltas.push(Delta::Topology(topology()));
        for (place, spec) in self.groups.iter().enumerate() {
            let queue = self.queue_of(spec);
            let (group, pods) = group_and_pods(place, spec, queue, &mut room);
            deltas.push(Delta::PodGroup(Box::new(group)));
            deltas.extend(pods.into_iter().map(|pod| Delta::Pod(Box::new(pod))));
        }
        for (place, spec) in self.strangers.iter().enumerate() {
            let mut pod = sample::pod(&format!("stranger-{place}"), "none", Gpus::Whole(u32::from(spec % 2)));
            pod.group = None;
            pod.origin = if spec.is_multiple_of(3) { Origin::Utility } else { Origin::Foreign };
            room.put(&mut pod, *spec);
            deltas.push(Delta::Pod(Box::new(pod)));
        }
        rules::impose(&self.rules, &mut deltas);
        deltas
    }

    /// The same case where only GPUs are scarce.
    fn tamed(&self) -> Self {
        let mut tame = self.clone();
        for node in &mut tame.nodes {
            (node.memory, node.cores, node.slots, node.quirk) = (0, 64, 50, 0);
            node.gpus = node.gpus.max(1);
        }
        for queue in &mut tame.queues {
            (queue.cores, queue.quirk) = (9, 0);
            queue.quota = queue.quota.min(2);
            queue.weight = queue.weight.max(1);
        }
        for group in &mut tame.groups {
            group.quirk = if group.quirk < 45 { 6 } else { group.quirk };
            group.where_to = if self.style < 2 { group.where_to } else { 20 };
            for pod in &mut group.pods {
                pod.gpus = [3, 3, 3, 3, 8, 10, 10, 13][usize::from(pod.gpus % 8)];
                pod.quirk = 20;
            }
        }
        tame
    }

    /// The queue of a group: mostly a leaf.
    fn queue_of(&self, spec: &GroupSpec) -> String {
        let queues: Vec<Queue> = self.queues.iter().enumerate().map(|(place, spec)| queue(place, spec)).collect();
        let is_leaf = |name: &str| !queues.iter().any(|other| other.parent.as_deref() == Some(name));
        let mut names: Vec<&str> = queues.iter().map(|queue| queue.name.as_str()).collect();
        if spec.quirk != 10 && names.iter().any(|name| is_leaf(name)) {
            names.retain(|name| is_leaf(name));
        }
        names[usize::from(spec.queue) % names.len()].to_owned()
    }

    pub fn policy(&self) -> Policy {
        let spec = &self.policy;
        let mut policy = sample::policy();
        match spec.actions {
            0 => policy.actions = vec![Action::Allocate],
            1 => policy.actions = vec![Action::Allocate, Action::Reclaim],
            2 => policy.actions = vec![Action::Allocate, Action::Preempt],
            3 => policy.actions = vec![Action::Allocate, Action::Consolidation],
            _ => {}
        }
        if spec.placement & 1 == 1 {
            policy.gpu_strategy = Placement::Spread;
            policy.plugins.gpu_pack = false;
            policy.plugins.gpu_spread = true;
        }
        if spec.placement & 2 == 2 {
            policy.cpu_strategy = Placement::Spread;
        }
        policy.max_consolidation_victims =
            [Some(16), Some(16), Some(1), None, Some(0), Some(2)][usize::from(spec.consolidation)];
        policy.consolidating_reclaim = spec.consolidation != 3;
        let minute = Span::seconds(60);
        match spec.runtimes {
            1 => policy.preempt_min_runtime = minute,
            2 => policy.reclaim_min_runtime = minute,
            3 => policy.reclaim_min_runtime_rule = MinRuntimeRule::Queue,
            4 => policy.saturation_multiplier = 1500,
            _ => {}
        }
        policy.staleness_grace = Span::seconds([60, 60, 60, 0, -1, 5][usize::from(spec.grace)]);
        policy
    }
}

fn node(place: usize, spec: &NodeSpec) -> Node {
    let mut node = sample::node(&format!("node-{place}"), spec.gpus);
    node.cpu = spec.cores * 1000;
    node.memory = 16 << 30;
    node.pods = spec.slots;
    node.gpus.memory = [Some(80_000), Some(80_000), Some(1000), Some(81_559), Some(7), None, Some(100), Some(24_576)]
        [usize::from(spec.memory)];
    node.labels.insert("zone".to_owned(), format!("z{}", spec.domain % 2));
    node.labels.insert("rack".to_owned(), format!("r{}", spec.domain % 3));
    match spec.quirk {
        1 => node.unavailable.push(Unavailable::NotReady),
        2 => node.unavailable.push(Unavailable::Unschedulable),
        3 | 4 => node.taints.push(Taint {
            key: "dedicated".to_owned(),
            value: "x".to_owned(),
            effect: TaintEffect::NoSchedule,
        }),
        5 => drop(node.extended.insert("example.com/nic".to_owned(), 2)),
        6 => drop(node.labels.remove("rack")),
        7 => node.cpu = -5,
        8 => node.memory = i64::MAX,
        9 => drop(node.labels.insert("kind".to_owned(), "special".to_owned())),
        _ => {}
    }
    node
}

fn queue(place: usize, spec: &QueueSpec) -> Queue {
    let parent = usize::from(spec.parent) % (place + 1);
    // Parents come before children, so that most trees are trees.
    let parent = (place > 0 && parent != place).then(|| format!("queue-{parent}"));
    let mut queue = sample::queue(&format!("queue-{place}"), parent.as_deref(), i64::from(spec.quota));
    queue.created = Time(NOW.0 - 1_000_000 + 1000 * i64::from(spec.parent % 4));
    queue.gpu.quota = if spec.quota == 5 { None } else { queue.gpu.quota };
    queue.gpu.limit = (spec.limit < 5).then(|| i64::from(spec.limit) * GPU);
    queue.gpu.over_quota_weight = i64::from(spec.weight) * GPU;
    queue.cpu = match spec.cores {
        0 => QueueResource { quota: Some(1000), limit: None, over_quota_weight: GPU },
        1 => QueueResource { quota: Some(0), limit: Some(3000), over_quota_weight: GPU },
        2 => QueueResource { quota: Some(0), limit: None, over_quota_weight: GPU },
        _ => queue.cpu,
    };
    queue.priority = if spec.priority == 0 { 101 } else { 100 };
    let minute = Some(Span::seconds(60));
    queue.preempt_min_runtime = if spec.runtimes == 1 { minute } else { None };
    queue.reclaim_min_runtime = if spec.runtimes == 2 { minute } else { None };
    match spec.quirk {
        1 => queue.parent = Some("nowhere".to_owned()),
        2 => queue.parent = Some(queue.name.clone()),
        3 => queue.gpu.limit = Some(-7),
        4 => queue.parent = Some("queue-4".to_owned()),
        _ => {}
    }
    queue
}

fn topology() -> Topology {
    let level = |label: &str, alias: Option<&str>| Level { label: label.to_owned(), alias: alias.map(str::to_owned) };
    Topology { name: "hall".to_owned(), levels: vec![level("zone", None), level("rack", Some("row"))] }
}

fn group_and_pods(place: usize, spec: &GroupSpec, queue: String, room: &mut Room) -> (PodGroup, Vec<Pod>) {
    let key = format!("team/group-{place}");
    let mut group = sample::group(&key, &queue);
    group.priority = [50, 50, 50, 75, 75, 75, 100, 125][usize::from(spec.priority)];
    group.preemptible = group.priority < 100;
    group.created = Time(NOW.0 - 100_000 + 1000 * i64::from(spec.age % 16));
    let pods = u8::try_from(spec.pods.len()).expect("few pods");
    group.min_member = (spec.min > 0).then(|| u32::from(spec.min.min(pods + u8::from(spec.quirk == 9))));
    shape(&mut group, spec, pods);
    let ago = |seconds: i64| Some(Time(NOW.0 - 1000 * seconds));
    match spec.clock {
        1 => group.last_start = ago(30),
        2 => group.last_start = ago(90),
        3 => group.preemption_delay = Some(Span::seconds(50)),
        4 => (group.preemption_delay, group.last_eviction) = (Some(Span::seconds(50)), ago(20)),
        5 => group.stale_since = ago(100),
        6 => group.staleness_grace = Some(Span::ZERO),
        7 => group.staleness_grace = Some(Span(-1)),
        _ => {}
    }
    let constraint = |required: Option<&str>, preferred: Option<&str>| {
        Some(TopologyConstraint {
            topology: "hall".to_owned(),
            required: required.map(str::to_owned),
            preferred: preferred.map(str::to_owned),
        })
    };
    match spec.where_to {
        1 => group.topology = constraint(Some("zone"), None),
        2 => group.topology = constraint(Some("row"), None),
        3 => group.topology = constraint(None, Some("rack")),
        4 => group.topology = constraint(Some("zone"), Some("rack")),
        5 => group.topology = constraint(Some("planet"), None),
        _ => {}
    }
    match spec.quirk {
        1 => "nowhere".clone_into(&mut group.queue),
        2 => group.invalid = Some("spec.priorityClassName: does not exist".to_owned()),
        3 => group.subgroups.push(SubGroup { parent: Some("lost".to_owned()), ..sample::subgroup("stray", 1) }),
        4 => group.subgroups.push(SubGroup { parent: Some("loop".to_owned()), ..sample::subgroup("loop", 1) }),
        5 => group.preemptible = !group.preemptible,
        _ => {}
    }
    let leaves: Vec<String> = leaves(&group.subgroups);
    let mut made = Vec::new();
    for (index, one) in spec.pods.iter().enumerate() {
        // Most groups have equal pods.
        let like = if spec.quirk >= 45 { one } else { &spec.pods[0] };
        let mut pod = sample::pod(&format!("group-{place}-{index}"), &key, gpus(like.gpus));
        pod.created = group.created;
        pod.request.cpu = i64::from(like.cores) * 250;
        pod.subgroup = leaves.get(index % leaves.len().max(1)).cloned();
        quirk(&mut pod, like);
        state(&mut pod, spec, one, room);
        made.push(pod);
    }
    (group, made)
}

fn shape(group: &mut PodGroup, spec: &GroupSpec, pods: u8) {
    let min = u32::from(spec.min.min(pods.div_ceil(2)));
    let child = |name: &str, parent: &str| SubGroup { parent: Some(parent.to_owned()), ..sample::subgroup(name, min) };
    match spec.shape {
        1 => group.subgroups = vec![sample::subgroup("a", min), sample::subgroup("b", 1)],
        2 => {
            group.subgroups = vec![sample::subgroup("a", min), sample::subgroup("b", min)];
            group.min_sub_group = Some(1);
        }
        3 => {
            group.subgroups =
                vec![sample::subgroup("left", 0), child("a", "left"), child("b", "left"), sample::subgroup("c", 1)];
            group.subgroups[0].min_member = None;
        }
        4 => {
            group.subgroups =
                vec![sample::subgroup("left", 0), child("a", "left"), child("b", "left"), sample::subgroup("c", min)];
            group.subgroups[0].min_sub_group = Some(1);
            group.min_sub_group = Some(1 + u32::from(spec.age % 2));
        }
        _ => {}
    }
    if let Some(subgroup) = group.subgroups.first_mut().filter(|_| spec.where_to == 6) {
        subgroup.topology = Some(TopologyConstraint {
            topology: "hall".to_owned(),
            required: Some("rack".to_owned()),
            preferred: None,
        });
    }
}

fn leaves(subgroups: &[SubGroup]) -> Vec<String> {
    let is_parent = |name: &str| subgroups.iter().any(|other| other.parent.as_deref() == Some(name));
    subgroups.iter().filter(|subgroup| !is_parent(&subgroup.name)).map(|subgroup| subgroup.name.clone()).collect()
}

fn gpus(spec: u8) -> Gpus {
    match spec {
        0..=2 => Gpus::None,
        3..=7 => Gpus::Whole(1),
        8 | 9 => Gpus::Whole(2),
        10 => Gpus::Portion { devices: 1, millionths: 500_000 },
        11 => Gpus::Portion { devices: 1, millionths: 333_334 },
        12 => Gpus::Portion { devices: 2, millionths: 250_000 },
        13 => Gpus::Memory { devices: 1, mib: 350 },
        14 => Gpus::Memory { devices: 1, mib: 40_000 },
        _ => Gpus::Memory { devices: 2, mib: 3 },
    }
}

fn quirk(pod: &mut Pod, spec: &PodSpec) {
    match spec.quirk {
        1 => pod.invalid = Some("annotation gpu-fraction: `half` is no number".to_owned()),
        2 => pod.request.cpu = i64::MAX,
        3 => pod.subgroup = Some("unknown".to_owned()),
        4 => pod.phase = Phase::Gated,
        5 | 6 => drop(pod.request.extended.insert("example.com/nic".to_owned(), 1)),
        7 => drop(pod.constraints.node_selector.insert("zone".to_owned(), "z1".to_owned())),
        8 => drop(pod.constraints.node_selector.insert("kind".to_owned(), "special".to_owned())),
        9..=12 => pod.constraints.tolerations.push(Toleration {
            key: Some("dedicated".to_owned()),
            value: None,
            effect: Some(TaintEffect::NoSchedule),
        }),
        13 => pod.constraints.missing.push("config map `settings` does not exist".to_owned()),
        14 => pod.role.ray_head = true,
        15 => pod.role.task_priority = Some(5),
        16 => pod.nominated = Some("node-1".to_owned()),
        17 => pod.request.legacy_mig = true,
        _ => {}
    }
}

/// Puts a pod into the state that its group and its own number say.
fn state(pod: &mut Pod, group: &GroupSpec, spec: &PodSpec, room: &mut Room) {
    let runs = match group.state {
        0..=2 => false,
        3..=6 => true,
        _ => spec.state.is_multiple_of(2),
    };
    if !runs || pod.phase == Phase::Gated || pod.invalid.is_some() || !room.put(pod, spec.node) {
        return;
    }
    match spec.state {
        1 => pod.deleted = Some(Time(NOW.0 - 5_000)),
        3 => pod.deleted = Some(Time(NOW.0 - 600_000)),
        5 => pod.phase = Phase::Pending,
        7 => {
            pod.phase = Phase::Pending;
            pod.placement.as_mut().expect("just put there").bound = false;
        }
        9 if group.quirk > 20 => pod.phase = Phase::Succeeded,
        11 if group.quirk > 20 => pod.phase = Phase::Failed,
        _ => {}
    }
}

/// What is still free while pods are put on nodes.
struct Room {
    nodes: Vec<Free>,
}

struct Free {
    node: Node,
    cpu: i64,
    slots: i64,
    gpus: u32,
    extended: BTreeMap<String, i64>,
    /// Units left of each shared device.
    devices: BTreeMap<String, u64>,
}

impl Room {
    fn of(nodes: &[Node]) -> Self {
        let free = |node: &Node| Free {
            node: node.clone(),
            cpu: node.cpu,
            slots: node.pods,
            gpus: node.gpus.count,
            extended: node.extended.clone(),
            devices: BTreeMap::new(),
        };
        Self { nodes: nodes.iter().map(free).collect() }
    }

    /// Lets a pod run on the first node from `first` on that has room.
    fn put(&mut self, pod: &mut Pod, first: u8) -> bool {
        let count = self.nodes.len();
        let places = (0..count).map(|offset| (usize::from(first) + offset) % count);
        for place in places {
            if let Some(devices) = self.nodes[place].take(pod) {
                let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
                let name = self.nodes[place].node.name.clone();
                *pod = sample::running(pod.clone(), &name, &devices);
                return true;
            }
        }
        false
    }
}

impl Free {
    fn take(&mut self, pod: &Pod) -> Option<Vec<String>> {
        let request = &pod.request;
        let extended = |(name, amount): (&String, &i64)| self.extended.get(name).is_some_and(|free| free >= amount);
        let memory = self.node.gpus.memory;
        let (whole, devices, units) = match request.gpus {
            Gpus::None => (0, 0, 0),
            Gpus::Whole(count) => (count, 0, 0),
            Gpus::Portion { devices, millionths } => (0, devices, u64::from(millionths) * memory.unwrap_or(1)),
            Gpus::Memory { devices, mib } => (0, devices, mib * 1_000_000),
        };
        let capacity = memory.unwrap_or(1) * 1_000_000;
        let knows = memory.is_some() || !matches!(request.gpus, Gpus::Memory { .. });
        let fits = self.cpu >= request.cpu && request.extended.iter().all(extended) && knows && units <= capacity;
        if !fits || self.gpus < whole {
            return None;
        }
        let mut chosen: Vec<String> =
            self.devices.iter().filter(|(_, left)| **left >= units).map(|(name, _)| name.clone()).collect();
        chosen.truncate(devices as usize);
        let fresh = devices - u32::try_from(chosen.len()).expect("few devices");
        // A reservation pod takes a slot too.
        if fresh > self.gpus - whole || self.slots < 1 + i64::from(fresh) {
            return None;
        }
        self.cpu -= request.cpu;
        self.slots -= 1 + i64::from(fresh);
        self.gpus -= whole + fresh;
        for (name, amount) in &request.extended {
            *self.extended.get_mut(name).expect("checked above") -= amount;
        }
        for _ in 0..fresh {
            let names = (0..).map(|index| format!("{}-gpu-{index}", self.node.name));
            let unused = |name: &String| !self.devices.contains_key(name) && !chosen.contains(name);
            let name = names.into_iter().find(unused).expect("there are more numbers than devices");
            chosen.push(name);
        }
        for name in &chosen {
            *self.devices.entry(name.clone()).or_insert(capacity) -= units;
        }
        Some(chosen)
    }
}
