//! How much room victims would make: counters per node that never say less than the truth.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::{
    amounts::{Amounts, fixed},
    cluster::node::Node,
    cycle::{Cycle, gang::pods_of, ranking::suits, tasks::Steps, victims::Batch},
    ids::{ClassId, NodeId, Word},
};

/// The room that a step needs and that victims make.
pub struct Room {
    /// Whether nodes count as better whose pods could be elsewhere.
    movers: Movers,
    needs: SmallVec<[Need; 1]>,
    /// All pods of the step.
    pods: u64,
    /// What victims would free, by node, in the order in which nodes were first touched.
    freed: Vec<(NodeId, Freed)>,
    places: FxHashMap<NodeId, usize>,
}

/// What becomes of those that leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movers {
    /// Each must find another place.
    MustStay,
    /// They may go.
    MayGo,
}

/// Pods of one class.
struct Need {
    class: ClassId,
    count: u64,
    /// Places on nodes as they are.
    slots: u64,
    /// By touched node: places, as it is and with victims gone.
    touched: Vec<(u64, u64)>,
    /// Places that victims would add on all of them.
    gained: u64,
}

/// What victims would free on a node.
#[derive(Default)]
struct Freed {
    /// How many pods would leave.
    pods: u32,
    /// How many of them fit nowhere else as things are.
    fixed: u32,
    amounts: Amounts,
    /// Units of shared devices.
    units: Vec<(Word, u64)>,
}

impl Room {
    /// The room that a step needs, with what there is without victims.
    pub fn new(cycle: &mut Cycle, steps: &Steps, movers: Movers) -> Self {
        let mut needs: SmallVec<[Need; 1]> = SmallVec::new();
        for pod in pods_of(steps) {
            let class = cycle.cluster.pods[pod.index()].class;
            match needs.iter_mut().find(|need| need.class == class) {
                Some(need) => need.count += 1,
                None => needs.push(Need { class, count: 1, slots: 0, touched: Vec::new(), gained: 0 }),
            }
        }
        for need in &mut needs {
            need.slots = cycle.free_slots(need.class, need.count);
        }
        let pods = needs.iter().map(|need| need.count).sum();
        Self { movers, needs, pods, freed: Vec::new(), places: FxHashMap::default() }
    }

    /// Counts in what a batch would free.
    pub fn add(&mut self, cycle: &mut Cycle, batch: &Batch) {
        let mut touched: SmallVec<[usize; 4]> = SmallVec::new();
        for pod in &batch.pods {
            let Some(node) = cycle.cluster.pods[pod.index()].place.node else { continue };
            let place = *self.places.entry(node).or_insert_with(|| {
                self.freed.push((node, Freed::default()));
                self.freed.len() - 1
            });
            let fixed = self.movers == Movers::MustStay && {
                let class = cycle.cluster.pods[pod.index()].class;
                cycle.free_slots(class, 1) == 0
            };
            let freed = &mut self.freed[place].1;
            let class = cycle.cluster.class_of(*pod);
            freed.pods += 1;
            freed.fixed += u32::from(fixed);
            freed.amounts.add(&class.amounts, 1);
            let units = cycle.cluster.nodes[node.index()].units_of(class.gpus).unwrap_or(0);
            for name in &cycle.cluster.pods[pod.index()].place.devices {
                match freed.units.iter_mut().find(|(known, _)| known == name) {
                    Some((_, known)) => *known += units,
                    None => freed.units.push((*name, units)),
                }
            }
            if !touched.contains(&place) {
                touched.push(place);
            }
        }
        for need in &mut self.needs {
            for place in &touched {
                let (node, freed) = &self.freed[*place];
                let node = &cycle.cluster.nodes[node.index()];
                let class = cycle.cluster.class(need.class);
                if need.touched.len() <= *place {
                    need.touched.resize(*place + 1, (u64::MAX, 0));
                }
                let entry = &mut need.touched[*place];
                let suits = entry.0 != u64::MAX || suits(cycle.cluster, class, node, cycle.policy).is_ok();
                if entry.0 == u64::MAX {
                    // What `free_slots` has counted: nodes on which the class does not fit are not among its places.
                    let counted = suits && node.fits_future(class);
                    entry.0 = if counted { slots(node, &node.future, &[], class) } else { 0 };
                    entry.1 = entry.0;
                    if !suits {
                        continue;
                    }
                }
                let mut free = node.future.clone();
                free.add(&freed.amounts, 1);
                let with = slots(node, &free, &freed.units, class).max(entry.1);
                need.gained += with - entry.1;
                entry.1 = with;
            }
        }
    }

    /// Whether the step may fit if all that was counted leaves.
    pub fn may_fit(&self) -> bool {
        self.needs.iter().all(|need| need.slots + need.gained >= need.count)
    }

    /// Whether the step may fit if what was counted on some nodes leaves.
    pub fn is_enough_with(&self, nodes: &FxHashSet<NodeId>) -> bool {
        self.needs.iter().all(|need| {
            let touched = nodes.iter().filter_map(|node| need.touched.get(*self.places.get(node)?));
            let gained: u64 = touched.map(|(without, with)| with.saturating_sub(*without)).sum();
            need.slots + gained >= need.count
        })
    }

    /// Whether the step fits by amounts as things are, with nobody leaving.
    pub fn is_enough(&self) -> bool {
        self.needs.iter().all(|need| need.slots >= need.count)
    }

    /// The touched nodes that could take a pod: those whose pods can move first, then those with least room, then those that fewest pods
    /// have to leave, then those touched first.
    pub fn nodes_by_room(&self) -> Vec<NodeId> {
        let takes = |place: usize| {
            self.needs.iter().filter_map(|need| need.touched.get(place)).map(|(_, with)| *with).max().unwrap_or(0)
        };
        let key = |place: usize| {
            let freed = &self.freed[place].1;
            (freed.fixed, takes(place), freed.pods, place)
        };
        let mut nodes: Vec<(u32, u64, u32, usize)> = (0..self.freed.len()).map(key).collect();
        nodes.retain(|(_, takes, _, _)| *takes > 0);
        nodes.sort_unstable();
        nodes.into_iter().map(|(_, _, _, place)| self.freed[place].0).collect()
    }

    /// How many of these nodes are needed at least.
    pub fn fewest(&self, nodes: &[NodeId]) -> usize {
        let gain = |node: &NodeId| {
            let place = self.places.get(node).copied().unwrap_or(usize::MAX);
            let gains =
                self.needs.iter().filter_map(|need| need.touched.get(place)).map(|(without, with)| with - without);
            gains.max().unwrap_or(0)
        };
        let mut room: u64 = self.needs.iter().map(|need| need.slots.min(need.count)).sum();
        let mut count = 0;
        for node in nodes {
            if room >= self.pods && count > 0 {
                break;
            }
            room += gain(node);
            count += 1;
        }
        count.max(1)
    }
}

/// How many pods of a class a node takes, at most, with so much free.
fn slots(node: &Node, free: &Amounts, freed: &[(Word, u64)], class: &crate::cluster::class::Class) -> u64 {
    let ratio = |free: i64, wanted: i64| u64::try_from(free).unwrap_or(0) / u64::try_from(wanted).unwrap_or(1).max(1);
    let gone = |name: Word| freed.iter().find(|(known, _)| *known == name).map_or(0, |(_, units)| *units);
    let emptied = node.shared.iter().filter(|device| device.staying() > 0 && device.staying() <= gone(device.name));
    let mut free_fixed = free.fixed;
    free_fixed[fixed::GPU] += i64::try_from(emptied.count()).unwrap_or(0);
    let wanted = (0..fixed::COUNT).filter(|place| class.amounts.fixed[*place] > 0);
    let mut slots = wanted.map(|place| ratio(free_fixed[place], class.amounts.fixed[place])).min().unwrap_or(u64::MAX);
    for (word, wanted) in &class.amounts.extended {
        slots = slots.min(ratio(free.extended(*word), *wanted));
    }
    let Some((devices, units)) = node.shares_of(class) else { return slots };
    if units == u64::MAX || units == 0 {
        return 0;
    }
    let capacity = node.device_units();
    let each = capacity / units;
    let whole = u64::try_from(free.fixed[fixed::GPU]).unwrap_or(0);
    let shared: u64 = node
        .shared
        .iter()
        .map(|device| capacity.saturating_sub(device.staying().saturating_sub(gone(device.name))) / units)
        .sum();
    slots.min((whole.saturating_mul(each) + shared) / u64::from(devices.max(1)))
}

impl Cycle<'_> {
    /// Places for a class on nodes as they are, counted up to `enough`.
    fn free_slots(&mut self, class: ClassId, enough: u64) -> u64 {
        let mut ranking = self.take_ranking(class);
        ranking.refresh(self.cluster, self.policy);
        let mut count = 0;
        for node in ranking.nodes(self.cluster) {
            let node = &self.cluster.nodes[node.index()];
            count += slots(node, &node.future, &[], self.cluster.class(class));
            if count >= enough {
                break;
            }
        }
        self.cluster.memory.rankings[class.index()] = Some(ranking);
        count
    }
}
