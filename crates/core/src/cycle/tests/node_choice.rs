//! Which node and which devices a pod gets: the engine's rankings against a sum of scores over all nodes, computed anew from the facts for
//! every pod with exact fractions.

use num_rational::Ratio;
use proptest::prelude::*;

use super::{cases, cluster, group, node, pod, policy, queue, running, told, world::write_objects};
use crate::{
    cycle::plan,
    delta::{self, Delta, Gpus, MigStrategy, Phase, Taint, TaintEffect, Toleration, Unavailable},
    policy::{Action, Policy, Strategy as Filling},
    time::Time,
};

const PROFILE: &str = "nvidia.com/mig-1g.5gb";

/// A pod that has a place.
#[derive(Clone, Debug)]
struct Resident {
    pod: delta::Pod,
    node: String,
    devices: Vec<String>,
    standing: Standing,
}

/// How a pod stands in the ledger of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Stays,
    Leaves,
    Promised,
    /// Placed in this cycle: the devices it opened need slots for their reservations.
    Fresh,
}

/// What a random cluster is made of.
#[derive(Clone)]
struct World {
    nodes: Vec<delta::Node>,
    residents: Vec<Resident>,
    waiting: Vec<delta::Pod>,
    policy: Policy,
}

impl std::fmt::Debug for World {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for resident in &self.residents {
            writeln!(to, "  {} on {} {:?} {:?}", resident.pod.uid, resident.node, resident.devices, resident.standing)?;
        }
        let pods: Vec<delta::Pod> =
            self.residents.iter().map(|resident| &resident.pod).chain(&self.waiting).cloned().collect();
        write_objects(to, &self.nodes, &pods, &self.policy)
    }
}

impl Standing {
    fn is_physical(self) -> bool {
        self != Self::Promised
    }

    fn is_staying(self) -> bool {
        self != Self::Leaves
    }
}

/// What is free on a node, counted from scratch.
struct Free {
    cpu: i64,
    memory: i64,
    slots: i64,
    profiles: i64,
    gpus: i64,
}

impl World {
    fn on<'a>(&'a self, node: &'a delta::Node) -> impl Iterator<Item = &'a Resident> {
        self.residents.iter().filter(|resident| resident.node == node.name)
    }

    /// Names of the divided devices of a node, in order.
    fn devices(&self, node: &delta::Node) -> Vec<String> {
        let mut names: Vec<String> = self.on(node).flat_map(|resident| resident.devices.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Units of a device that are taken by pods that stand in some way.
    fn taken(&self, node: &delta::Node, device: &str, counts: impl Fn(Standing) -> bool) -> u64 {
        let holders = self.on(node).filter(|resident| counts(resident.standing));
        let holders = holders.filter(|resident| resident.devices.iter().any(|name| name == device));
        holders.map(|resident| units(node, resident.pod.request.gpus).unwrap_or(0)).sum()
    }

    fn free(&self, node: &delta::Node, counts: impl Fn(Standing) -> bool + Copy) -> Free {
        let mut free = Free {
            cpu: node.cpu,
            memory: node.memory,
            slots: node.pods,
            profiles: node.extended.get(PROFILE).copied().unwrap_or(0),
            gpus: i64::from(node.gpus.count),
        };
        for resident in self.on(node).filter(|resident| counts(resident.standing)) {
            let request = &resident.pod.request;
            free.cpu -= request.cpu;
            free.memory -= request.memory;
            free.slots -= 1;
            free.profiles -= request.extended.get(PROFILE).copied().unwrap_or(0);
            if let Gpus::Whole(count) = request.gpus {
                free.gpus -= i64::from(count);
            }
        }
        for device in self.devices(node) {
            free.gpus -= i64::from(self.taken(node, &device, counts) > 0);
            let old = |resident: &Resident| matches!(resident.standing, Standing::Stays | Standing::Leaves);
            let known = self.on(node).any(|resident| old(resident) && resident.devices.contains(&device));
            free.slots -= i64::from(!known);
        }
        free
    }

    /// Devices that are divided and have room for so many units more once what leaves has left.
    fn with_room(&self, node: &delta::Node, units: u64) -> Vec<String> {
        let mut devices = self.devices(node);
        devices.retain(|device| {
            let staying = self.taken(node, device, Standing::is_staying);
            staying > 0 && staying + units <= capacity(node)
        });
        devices
    }

    /// Whether a node does for a pod whatever runs on it.
    fn suits(pod: &delta::Pod, node: &delta::Node) -> bool {
        let whole = matches!(pod.request.gpus, Gpus::Whole(count) if count > 0);
        let mig = asks_for_mig(pod);
        let shared = wants(pod).is_some();
        let type_suits = match node.gpus.mig {
            _ if !whole && !mig && !shared => true,
            MigStrategy::Off => !mig,
            MigStrategy::Single => whole && !mig,
            MigStrategy::Mixed => mig,
            MigStrategy::Any => true,
        };
        let by_memory = matches!(pod.request.gpus, Gpus::Memory { .. });
        let tolerated = |taint: &Taint| {
            taint.effect == TaintEffect::PreferNoSchedule
                || pod.constraints.tolerations.iter().any(|one| one.key.as_ref() == Some(&taint.key))
        };
        node.unavailable.is_empty()
            && type_suits
            && !(by_memory && node.gpus.memory.is_none())
            && node.taints.iter().all(tolerated)
            && pod.constraints.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
    }

    /// Whether a pod fits into what is or will be free; shares of devices aside.
    fn fits(pod: &delta::Pod, free: &Free) -> bool {
        let request = &pod.request;
        let at_most = |wanted: i64, free: i64| wanted == 0 || wanted <= free;
        at_most(request.cpu, free.cpu)
            && at_most(request.memory, free.memory)
            && at_most(1, free.slots)
            && at_most(request.extended.get(PROFILE).copied().unwrap_or(0), free.profiles)
            && at_most(if let Gpus::Whole(count) = request.gpus { i64::from(count) } else { 0 }, free.gpus)
    }

    /// The devices a pod would share on a node, opened ones last, and whether it can begin there now.
    fn place(&self, pod: &delta::Pod, node: &delta::Node) -> Option<(Vec<String>, bool)> {
        let now = self.free(node, Standing::is_physical);
        let later = self.free(node, Standing::is_staying);
        if !Self::suits(pod, node) || !Self::fits(pod, &later) {
            return None;
        }
        let Some(count) = wants(pod) else { return Some((Vec::new(), Self::fits(pod, &now))) };
        let units = units(node, pod.request.gpus).filter(|units| *units <= capacity(node))?;
        // A candidate is a divided device with room, or a whole one: its reservation needs a slot beside the pod's.
        let whole = later.gpus.min(later.slots - 1).max(0);
        let part = |part: u64| Ratio::new(i128::from(part), i128::from(capacity(node)));
        let spread = self.policy.plugins.gpu_spread;
        let mut candidates: Vec<(Ratio<i128>, Option<String>)> = Vec::new();
        for device in self.with_room(node, units) {
            let used = part(self.taken(node, &device, |_| true));
            candidates.push((if spread { Ratio::from(1) - used } else { used }, Some(device)));
        }
        candidates.extend((0..whole).map(|_| (Ratio::from(i128::from(spread)), None)));
        // Best first; divided devices by name, whole ones behind them.
        candidates.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| (a.1.is_none(), &a.1).cmp(&(b.1.is_none(), &b.1))));
        if candidates.len() < count {
            return None;
        }
        candidates.truncate(count);
        let mut devices: Vec<String> = candidates.iter().filter_map(|(_, device)| device.clone()).collect();
        let opened = count - devices.len();
        let physical = |device: &String| self.taken(node, device, Standing::is_physical);
        // A device on which there are only promises is not there yet.
        let begun = opened + devices.iter().filter(|device| physical(device) == 0).count();
        let fits_now = Self::fits(pod, &now)
            && (begun == 0 || now.gpus >= number(begun))
            && now.slots > number(opened)
            && devices.iter().all(|device| physical(device) + units <= capacity(node));
        devices.extend((0..opened).map(|index| format!("{}-{index}", pod.uid)));
        Some((devices, fits_now))
    }

    /// KAI's test whether a node can take a pod at once: for shares of devices it counts those that will have room.
    fn seems_available(&self, pod: &delta::Pod, node: &delta::Node) -> bool {
        let now = self.free(node, Standing::is_physical);
        let later = self.free(node, Standing::is_staying);
        let Some(count) = wants(pod) else { return Self::fits(pod, &now) };
        let open = units(node, pod.request.gpus).map_or(0, |units| self.with_room(node, units).len());
        let opened = number(count.saturating_sub(open));
        Self::fits(pod, &now) && now.gpus.min(later.gpus) >= opened && now.slots > opened
    }

    /// KAI's sum of scores.
    fn score(&self, pod: &delta::Pod, node: &delta::Node) -> Ratio<i128> {
        let plugins = &self.policy.plugins;
        let gpu_kind = wants(pod).is_some() || asks_for_mig(pod) || pod.request.gpus != Gpus::None;
        let free = |node: &delta::Node| {
            let free = self.free(node, Standing::is_staying);
            i128::from(if gpu_kind { free.gpus } else { free.cpu })
        };
        let total = |node: &delta::Node| i128::from(if gpu_kind { i64::from(node.gpus.count) } else { node.cpu });
        let mut score = Ratio::from(0);
        if plugins.node_placement {
            let strategy = if gpu_kind { self.policy.gpu_strategy } else { self.policy.cpu_strategy };
            score += match strategy {
                // KAI gives it 0, as to the emptiest node that has some: here that one is better.
                Filling::Binpack if total(node) <= 0 => -Ratio::new(1, 1000),
                // No better than one of which nothing is free.
                Filling::Spread if total(node) <= 0 => Ratio::from(0),
                Filling::Spread => Ratio::new(free(node), total(node)),
                Filling::Binpack => {
                    let having = || self.nodes.iter().filter(|node| total(node) > 0).map(free);
                    let (least, most) = (having().min().unwrap_or(0), having().max().unwrap_or(0));
                    if most == 0 {
                        Ratio::from(0)
                    } else if least == most {
                        Ratio::from(9)
                    } else {
                        Ratio::from(9) * (Ratio::from(1) - Ratio::new(free(node) - least, most - least))
                    }
                }
            };
        }
        let has_gpus = node.gpus.count > 0 || node.gpus.mig != MigStrategy::Off;
        if plugins.resource_type && !gpu_kind && !has_gpus {
            score += 10;
        }
        if plugins.node_availability && self.seems_available(pod, node) {
            score += 1000;
        }
        let room = units(node, pod.request.gpus).is_some_and(|units| !self.with_room(node, units).is_empty());
        if plugins.gpu_sharing_order && wants(pod).is_some() && room {
            score += 10_000;
        }
        if plugins.nominated_node && pod.nominated.as_ref() == Some(&node.name) {
            score += 10_000_000;
        }
        score
    }

    /// Gives a pod its place and says so.
    fn serve(&mut self, pod: &delta::Pod) -> Option<String> {
        let mut nodes: Vec<&delta::Node> = self.nodes.iter().collect();
        nodes.sort_by(|a, b| self.score(pod, b).cmp(&self.score(pod, a)).then_with(|| a.name.cmp(&b.name)));
        let (node, (devices, now)) = nodes.into_iter().find_map(|node| Some((node, self.place(pod, node)?)))?;
        let verb = if now { "bind" } else { "promise" };
        let told = if devices.is_empty() { String::new() } else { format!(" {devices:?}") };
        let told = format!("{verb} {} on {}{told}", pod.uid, node.name);
        let standing = if now { Standing::Fresh } else { Standing::Promised };
        let node = node.name.clone();
        self.residents.push(Resident { pod: pod.clone(), node, devices, standing });
        Some(told)
    }

    /// What the engine is told.
    fn deltas(&self) -> Vec<Delta> {
        let mut deltas = vec![Delta::Queue(Box::new(queue("q", None)))];
        deltas.extend(self.nodes.iter().map(|node| Delta::Node(Box::new(node.clone()))));
        for resident in &self.residents {
            let mut placed = running(resident.pod.clone(), &resident.node, &resident.devices);
            if resident.standing == Standing::Leaves {
                placed.deleted = Some(super::NOW);
            }
            deltas.push(Delta::PodGroup(Box::new(group(&resident.pod.uid, "q", 1))));
            deltas.push(Delta::Pod(Box::new(placed)));
        }
        for (number, pod) in self.waiting.iter().enumerate() {
            let number = i64::try_from(number).unwrap_or(0);
            let group = delta::PodGroup { created: Time(number), ..group(&pod.uid, "q", 1) };
            deltas.push(Delta::PodGroup(Box::new(group)));
            deltas.push(Delta::Pod(Box::new(pod.clone())));
        }
        deltas
    }
}

/// How many devices a pod wants to share.
fn wants(pod: &delta::Pod) -> Option<usize> {
    match pod.request.gpus {
        Gpus::Portion { devices, .. } | Gpus::Memory { devices, .. } => Some(devices as usize),
        Gpus::None | Gpus::Whole(_) => None,
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn asks_for_mig(pod: &delta::Pod) -> bool {
    pod.request.extended.contains_key(PROFILE)
}

/// Millionths of a MiB of a device; millionths of the device where its memory is unknown.
fn capacity(node: &delta::Node) -> u64 {
    node.gpus.memory.unwrap_or(1) * 1_000_000
}

/// What a request for shares takes of each device of a node.
fn units(node: &delta::Node, gpus: Gpus) -> Option<u64> {
    match gpus {
        Gpus::Portion { millionths, .. } => Some(u64::from(millionths) * node.gpus.memory.unwrap_or(1)),
        Gpus::Memory { mib, .. } => node.gpus.memory.map(|_| mib * 1_000_000),
        Gpus::None | Gpus::Whole(_) => None,
    }
}

fn any_node() -> impl Strategy<Value = delta::Node> {
    let mig = prop_oneof![
        8 => Just((MigStrategy::Off, 0)),
        1 => Just((MigStrategy::Single, 0)),
        1 => (0..4_i64).prop_map(|profiles| (MigStrategy::Mixed, profiles)),
        1 => (0..4_i64).prop_map(|profiles| (MigStrategy::Any, profiles)),
    ];
    let memory = prop_oneof![1 => Just(None), 3 => Just(Some(10)), 3 => Just(Some(16))];
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.2), 0..3_u8);
    (0..4_u32, memory, mig, 1..5_i64, 1..5_i64, 1..7_i64, flags).prop_map(
        |(gpus, gpu_memory, (mig, profiles), cpu, memory, slots, (cordoned, tainted, zone))| {
            let mut built = node("", if mig == MigStrategy::Mixed { 0 } else { gpus });
            built.gpus.memory = gpu_memory;
            built.gpus.mig = mig;
            (built.cpu, built.memory, built.pods) = (cpu * 1000, memory * 1000, slots);
            if profiles > 0 {
                built.extended.insert(PROFILE.to_owned(), profiles);
            }
            if cordoned {
                built.unavailable.push(Unavailable::Unschedulable);
            }
            if tainted {
                let taint = Taint { key: "reserved".into(), value: String::new(), effect: TaintEffect::NoSchedule };
                built.taints.push(taint);
            }
            if zone > 0 {
                built.labels.insert("zone".to_owned(), zone.to_string());
            }
            built
        },
    )
}

fn any_pod(nodes: u8) -> impl Strategy<Value = delta::Pod> {
    let gpus = prop_oneof![
        3 => Just((Gpus::None, 0)),
        3 => (1..3_u32).prop_map(|count| (Gpus::Whole(count), 0)),
        4 => (1..3_u32, 1..10_u32).prop_map(|(devices, tenths)| {
            (Gpus::Portion { devices, millionths: tenths * 100_000 }, 0)
        }),
        2 => (1..3_u32, 1..14_u64).prop_map(|(devices, mib)| (Gpus::Memory { devices, mib }, 0)),
        1 => (1..3_i64).prop_map(|profiles| (Gpus::None, profiles)),
    ];
    let flags =
        (prop::bool::weighted(0.6), prop::option::weighted(0.2, 1..3_u8), prop::option::weighted(0.1, 0..nodes));
    (gpus, 0..3_i64, 0..3_i64, flags).prop_map(|((gpus, profiles), cpu, memory, (tolerates, zone, nominated))| {
        let mut built = pod("", "", gpus);
        (built.request.cpu, built.request.memory) = (cpu * 500, memory * 500);
        if profiles > 0 {
            built.request.extended.insert(PROFILE.to_owned(), profiles);
            built.request.mig_share = profiles * 1_000_000;
        }
        if tolerates {
            let toleration = Toleration { key: Some("reserved".into()), value: None, effect: None };
            built.constraints.tolerations.push(toleration);
        }
        built.constraints.node_selector.extend(zone.map(|zone| ("zone".to_owned(), zone.to_string())));
        built.nominated = nominated.map(|node| format!("n{node}"));
        built
    })
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let on = || prop::bool::weighted(0.9);
    let filling = || prop_oneof![Just(Filling::Binpack), Just(Filling::Spread)];
    (filling(), filling(), any::<bool>(), [on(), on(), on(), on()]).prop_map(|(gpu, cpu, spread, on)| {
        let mut policy = policy(&[Action::Allocate]);
        (policy.gpu_strategy, policy.cpu_strategy) = (gpu, cpu);
        (policy.plugins.gpu_pack, policy.plugins.gpu_spread) = (!spread, spread);
        policy.plugins.node_availability = on[0];
        policy.plugins.gpu_sharing_order = on[1];
        policy.plugins.resource_type = on[2];
        policy.plugins.node_placement = on[3];
        policy
    })
}

prop_compose! {
    fn any_world()(
        nodes in prop::collection::vec(any_node(), 1..6),
        residents in prop::collection::vec((any_pod(1), any::<prop::sample::Index>(), any::<bool>(), 0..3_usize), 0..8),
        waiting in prop::collection::vec(any_pod(6), 1..6),
        policy in any_policy(),
    ) -> World {
        let mut nodes = nodes;
        for (number, node) in nodes.iter_mut().enumerate() {
            node.name = format!("n{number}");
        }
        let mut world = World { nodes, residents: Vec::new(), waiting, policy };
        for (number, (mut pod, place, leaves, first)) in residents.into_iter().enumerate() {
            pod.uid = format!("r{number}");
            pod.group = Some(pod.uid.clone());
            world.settle(pod, place, leaves, first);
        }
        for (number, pod) in world.waiting.iter_mut().enumerate() {
            pod.uid = format!("p{number}");
            pod.group = Some(pod.uid.clone());
        }
        world
    }
}

impl World {
    /// Puts a pod on a node, if that has room for it, with shares of devices beginning with the `first`.
    fn settle(&mut self, pod: delta::Pod, place: prop::sample::Index, leaves: bool, first: usize) {
        let node = self.nodes[place.index(self.nodes.len())].clone();
        let count = wants(&pod).unwrap_or(0);
        let devices: Vec<String> = (first..first + count).map(|device| format!("{}-d{device}", node.name)).collect();
        let standing = if leaves { Standing::Leaves } else { Standing::Stays };
        let units = units(&node, pod.request.gpus).unwrap_or(u64::MAX);
        let full =
            |device: &String| self.taken(&node, device, Standing::is_physical).saturating_add(units) > capacity(&node);
        if count > 0 && devices.iter().any(full) {
            return;
        }
        if !Self::fits(&pod, &self.free(&node, Standing::is_physical)) {
            return;
        }
        self.residents.push(Resident { pod, node: node.name.clone(), devices, standing });
        if self.free(&node, Standing::is_physical).gpus < 0 {
            self.residents.pop();
        }
    }
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn every_pod_goes_where_the_sum_of_scores_is_highest(world in any_world()) {
        let mut cluster = cluster(world.deltas());
        let plan = plan(&mut cluster, super::NOW, &world.policy);
        let mut decided = told(&cluster, &plan);
        decided.retain(|told| !told.starts_with("started"));
        let mut slow = world.clone();
        let expected: Vec<String> = world.waiting.iter().filter_map(|pod| slow.serve(pod)).collect();
        prop_assert_eq!(decided, expected);
    }
}

#[test]
fn random_clusters_are_worth_testing() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let (mut bound, mut promised, mut refused, mut shared) = (0, 0, 0, 0);
    for _ in 0..200 {
        let Ok(tree) = any_world().new_tree(&mut runner) else { continue };
        let mut world = tree.current();
        for pod in world.waiting.clone() {
            match world.serve(&pod) {
                Some(told) if told.starts_with("bind") => bound += 1,
                Some(_) => promised += 1,
                None => refused += 1,
            }
            shared += usize::from(
                world.residents.last().is_some_and(|last| last.devices.iter().any(|name| name.starts_with('n'))),
            );
        }
        assert!(world.waiting.iter().all(|pod| pod.phase == Phase::Pending), "only waiting pods wait");
    }
    assert!(bound > 50 && promised > 20 && refused > 50 && shared > 10, "{bound} {promised} {refused} {shared}");
}
