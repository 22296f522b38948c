//! A slow search that follows the rules to the letter and remembers nothing.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    amounts::{Resource, fixed},
    cluster::{Cluster, class::Class, node::Node},
    delta::Gpus,
    ids::NodeId,
    topology::Ask,
};

/// A domain: label values from the top.
pub type Path = Vec<String>;

/// What comes out.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// Sets, best first, and bands.
    Sets(Vec<Vec<NodeId>>, BTreeMap<NodeId, u8>),
    /// Domains and the pods they take, or whether something is short.
    Refused(Vec<(String, Option<u64>)>),
}

/// What is asked, by name of a measure.
type Sums = BTreeMap<String, i128>;

/// No node of a test takes more pods.
const MOST: i128 = 1000;

struct Twin<'a> {
    cluster: &'a Cluster,
    classes: Vec<&'a Class>,
    alike: bool,
    /// Every domain with its available nodes.
    domains: BTreeMap<Path, Vec<NodeId>>,
    paths: BTreeMap<NodeId, Path>,
    largest_memory: u64,
}

pub fn search(cluster: &Cluster, ask: &Ask<'_>) -> Answer {
    let topology = cluster.topologies.iter().find(|topology| topology.name == ask.constraint.topology).unwrap();
    let labels: Vec<&str> = topology.levels.iter().map(|level| level.label.as_str()).collect();
    let level = |name: &Option<String>| {
        name.as_ref().map(|name| labels.iter().position(|label| *label == name.as_str()).unwrap() + 1)
    };
    let (required, preferred) = (level(&ask.constraint.required), level(&ask.constraint.preferred));
    let deepest = preferred.or(required).unwrap();
    let twin = Twin::new(cluster, &labels, ask);
    let available = |node: &NodeId| cluster.nodes[node.index()].is_available();
    let allowed = |node: &NodeId| ask.within.is_none_or(|within| within.nodes().contains(node));
    let valid: Vec<&Path> = twin
        .paths
        .iter()
        .filter(|(node, _)| ask.within.is_none() || (allowed(node) && available(node)))
        .map(|(_, path)| path)
        .collect();
    if valid.is_empty() || twin.domains.get(&Path::new()).is_none_or(Vec::is_empty) {
        return Answer::Refused(vec![]);
    }
    let mut common = valid[0].clone();
    common.truncate(preferred.unwrap_or(labels.len()));
    while !valid.iter().all(|path| path.starts_with(&common)) {
        common.pop();
    }
    if !twin.fits(&common) {
        return Answer::Refused(vec![]);
    }
    let held: Option<BTreeSet<Path>> = required.filter(|_| !ask.holding.is_empty()).map(|required| {
        let paths = ask.holding.iter().filter_map(|node| twin.paths.get(node));
        paths.map(|path| path[..required].to_vec()).collect()
    });
    let nodes_in = |path: &Path| -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = twin.domains[path].iter().copied().filter(|node| allowed(node)).collect();
        nodes.sort_by_key(|node| cluster.node_name(*node).to_owned());
        nodes
    };
    let top = required.unwrap_or(0).max(common.len());
    let bottom = deepest.max(common.len());
    let mut sets = Vec::new();
    for depth in (top..=bottom).rev() {
        for path in twin.ordered(&common, depth) {
            let held = held.as_ref().is_none_or(|held| held.contains(&path[..required.unwrap()]));
            let part = |other: &Path| other.len() == depth + 1 && other.starts_with(&path);
            let tried = depth < bottom
                && twin.domains.iter().any(|(other, nodes)| part(other) && *nodes == twin.domains[&path]);
            let nodes = nodes_in(&path);
            if held && !tried && !nodes.is_empty() && twin.fits(&path) {
                sets.push(nodes);
            }
        }
    }
    if sets.is_empty() {
        let refused = held.map_or_else(|| twin.below(&common, top), |held| held.into_iter().collect());
        let said = refused.into_iter().map(|path| {
            let shorter = path.len().min(common.len());
            let reachable = path[..shorter] == common[..shorter] && !nodes_in(&path).is_empty();
            let pods = twin.alike.then(|| if reachable { twin.pods_in(&path) } else { 0 });
            (path.join("."), pods)
        });
        return Answer::Refused(said.collect());
    }
    let mut bands = BTreeMap::new();
    if let Some(preferred) = preferred {
        let order = twin.ordered(&common, preferred);
        for (before, path) in order.iter().enumerate() {
            let band = u8::try_from((before + 1) * 10 / order.len()).unwrap();
            bands.extend(twin.paths.iter().filter(|(_, of)| of.starts_with(path)).map(|(node, _)| (*node, band)));
        }
    }
    Answer::Sets(sets, bands)
}

impl<'a> Twin<'a> {
    fn new(cluster: &'a Cluster, labels: &[&str], ask: &Ask<'_>) -> Self {
        let classes: Vec<&Class> = ask.tasks.iter().map(|pod| cluster.class_of(*pod)).collect();
        let mut twin = Self {
            cluster,
            alike: alike(&classes),
            classes,
            domains: BTreeMap::new(),
            paths: BTreeMap::new(),
            largest_memory: 1,
        };
        for (index, node) in cluster.nodes.iter().enumerate().filter(|(_, node)| node.exists) {
            let value = |label: &&str| {
                let word = node.label(cluster.words.find(label)?)?;
                Some(cluster.word(word).to_owned())
            };
            let Some(path) = labels.iter().map(value).collect::<Option<Path>>() else { continue };
            for depth in 0..=path.len() {
                let nodes = twin.domains.entry(path[..depth].to_vec()).or_default();
                if node.is_available() {
                    nodes.push(NodeId::of(index));
                }
            }
            if node.is_available() {
                twin.largest_memory = twin.largest_memory.max(node.gpu_memory.unwrap_or(1));
            }
            twin.paths.insert(NodeId::of(index), path);
        }
        twin
    }

    fn below(&self, path: &Path, depth: usize) -> Vec<Path> {
        self.domains.keys().filter(|other| other.len() == depth && other.starts_with(path)).cloned().collect()
    }

    /// The domains of a depth, the most packed first at every depth on the way.
    fn ordered(&self, path: &Path, depth: usize) -> Vec<Path> {
        if path.len() >= depth {
            return vec![path.clone()];
        }
        let mut children = self.below(path, path.len() + 1);
        children.sort_by(|a, b| self.compare(a, b).then_with(|| a.cmp(b)));
        children.iter().flat_map(|child| self.ordered(child, depth)).collect()
    }

    /// The one with the higher ratio of what is asked to what is free comes first.
    fn compare(&self, a: &Path, b: &Path) -> Ordering {
        let (a, b) = (self.ratio(a), self.ratio(b));
        (b.0 * a.1).cmp(&(a.0 * b.1))
    }

    /// The highest ratio of what is asked to what is free; one to nothing if something is not there at all.
    fn ratio(&self, path: &Path) -> (i128, i128) {
        let free = self.free_in(path);
        let ratios = self.asked().into_iter().map(|(name, asked)| match free.get(&name) {
            Some(free) if *free > 0 => (asked, *free),
            _ => (1, 0),
        });
        ratios.reduce(|a, b| if a.0 * b.1 >= b.0 * a.1 { a } else { b }).unwrap_or((0, 1))
    }

    fn fits(&self, path: &Path) -> bool {
        if self.alike {
            return self.pods_in(path) >= self.classes.len() as u64;
        }
        let free = self.free_in(path);
        self.asked().iter().all(|(name, asked)| free.get(name).is_some_and(|free| free >= asked))
    }

    fn pods_in(&self, path: &Path) -> u64 {
        self.domains[path].iter().map(|node| self.pods_on(&self.cluster.nodes[node.index()])).sum()
    }

    /// What is asked: for one pod if they are alike, else for all.
    fn asked(&self) -> Sums {
        let mut asked = Sums::new();
        for class in &self.classes {
            let mut add = |name: String, amount: i128| {
                let known = asked.entry(name).or_default();
                *known = if self.alike { amount.max(*known) } else { *known + amount };
            };
            for (name, amount) in ordinary(class) {
                add(name, amount);
            }
            match (class.gpus, self.alike) {
                (Gpus::Whole(count), true) => add("gpus".to_owned(), i128::from(count)),
                (Gpus::Whole(count), false) => add("shares".to_owned(), i128::from(count) * 1_000_000),
                (Gpus::Portion { devices, .. } | Gpus::Memory { devices, .. }, true) => match self.device_need() {
                    Some(_) => add("sharers".to_owned(), 1),
                    None => add("gpus".to_owned(), i128::from(devices)),
                },
                (Gpus::Portion { devices, millionths }, false) => {
                    add("shares".to_owned(), i128::from(devices) * i128::from(millionths));
                }
                (Gpus::Memory { devices, mib }, false) => {
                    let each = mib * 1_000_000 / self.largest_memory;
                    add("shares".to_owned(), i128::from(devices) * i128::from(each));
                }
                (Gpus::None, _) => {}
            }
        }
        asked.retain(|_, amount| *amount > 0);
        asked
    }

    fn free_in(&self, path: &Path) -> Sums {
        let mut sums = Sums::new();
        for node in &self.domains[path] {
            let node = &self.cluster.nodes[node.index()];
            for name in self.asked().keys() {
                *sums.entry(name.clone()).or_default() += self.free_on(node, name);
            }
        }
        sums
    }

    fn free_on(&self, node: &Node, name: &str) -> i128 {
        let gpus = i128::from(node.future.fixed[fixed::GPU].max(0));
        match name {
            "gpus" => gpus,
            "sharers" => (0..=MOST).find(|pods| self.devices_for(node, pods + 1).is_none()).unwrap(),
            "shares" => {
                let capacity = u128::from(node.device_units());
                let staying = node.shared.iter().map(|device| u128::from(device.staying()));
                let free = staying.filter(|staying| *staying > 0).map(|staying| {
                    let free = capacity.saturating_sub(staying) * 1_000_000;
                    i128::try_from(free.div_ceil(capacity)).unwrap()
                });
                gpus * 1_000_000 + free.sum::<i128>()
            }
            _ => i128::from(node.future.of(resource(name)).max(0)),
        }
    }

    /// How many of the largest pods a node takes: one more each time, until one does not fit.
    fn pods_on(&self, node: &Node) -> u64 {
        let slots = i128::from(node.future.fixed[fixed::PODS].max(0));
        let asked = self.asked();
        let fits = |pods: &i128| {
            let ordinary = asked.iter().filter(|(name, _)| *name != "sharers");
            let mut enough = ordinary.map(|(name, asked)| asked * pods <= self.free_on(node, name));
            let opened = if self.device_need().is_some() { self.devices_for(node, *pods) } else { Some(0) };
            enough.all(|enough| enough) && opened.is_some_and(|opened| pods + opened <= slots)
        };
        u64::try_from((1..=MOST).take_while(fits).count()).unwrap()
    }

    /// Devices and the size of the share on each, if all pods want shares.
    fn device_need(&self) -> Option<Gpus> {
        let all = self.classes.iter().map(|class| class.gpus);
        all.reduce(|a, b| match (a, b) {
            (Gpus::Portion { devices: a, millionths: c }, Gpus::Portion { devices: b, millionths: d }) => {
                Gpus::Portion { devices: a.max(b), millionths: c.max(d) }
            }
            (Gpus::Memory { devices: a, mib: c }, Gpus::Memory { devices: b, mib: d }) => {
                Gpus::Memory { devices: a.max(b), mib: c.max(d) }
            }
            _ => Gpus::None,
        })
        .filter(|gpus| matches!(gpus, Gpus::Portion { .. } | Gpus::Memory { .. }))
    }

    /// The fewest whole devices to open so that so many pods get their shares; `None` if there are too few.
    fn devices_for(&self, node: &Node, pods: i128) -> Option<i128> {
        let gpus = self.device_need()?;
        let (Gpus::Portion { devices, .. } | Gpus::Memory { devices, .. }) = gpus else { return None };
        let units = node.units_of(gpus)?;
        let shared = node.shared.iter().map(crate::cluster::node::SharedDevice::staying).filter(|staying| *staying > 0);
        let shared: Vec<u64> = shared.map(|staying| node.device_units().saturating_sub(staying) / units).collect();
        let whole = i128::from(node.future.fixed[fixed::GPU].max(0));
        (0..=whole).find(|opened| {
            let fresh = (0..*opened).map(|_| node.device_units() / units);
            let mut rooms: Vec<u64> = shared.iter().copied().chain(fresh).collect();
            (0..pods).all(|_| {
                // Each pod takes the devices with the most room: that never spoils what is left for the others.
                rooms.sort_unstable_by(|a, b| b.cmp(a));
                let chosen = rooms.iter_mut().take(devices as usize).filter(|room| **room > 0);
                chosen.map(|room| *room -= 1).count() == devices as usize
            })
        })
    }
}

/// Whether each kind of thing is asked for by all pods or by none.
fn alike(classes: &[&Class]) -> bool {
    let kinds = |class: &Class| -> BTreeSet<String> {
        let free = ["fixed 0", "fixed 1"];
        let names = ordinary(class).into_iter().map(|(name, _)| name).filter(|name| !free.contains(&name.as_str()));
        let gpu = !matches!(class.gpus, Gpus::None | Gpus::Whole(0));
        names.chain(gpu.then(|| "gpus".to_owned())).collect()
    };
    let some = |test: fn(&Gpus) -> bool| classes.iter().any(|class| test(&class.gpus));
    let whole = some(|gpus| matches!(gpus, Gpus::Whole(_)));
    // A part of a device and an amount of its memory cannot be compared unless a whole device stands for both.
    let both = some(|gpus| matches!(gpus, Gpus::Portion { .. })) && some(|gpus| matches!(gpus, Gpus::Memory { .. }));
    classes.iter().all(|class| kinds(class) == kinds(classes[0])) && (whole || !both)
}

/// What a pod asks but GPUs and its slot.
fn ordinary(class: &Class) -> Vec<(String, i128)> {
    let fixed =
        [fixed::CPU, fixed::MEMORY, fixed::STORAGE].map(|place| (format!("fixed {place}"), class.amounts.fixed[place]));
    let extended = class.amounts.extended.iter().map(|(word, amount)| (format!("word {}", word.0), *amount));
    let all = fixed.into_iter().chain(extended).filter(|(_, amount)| *amount > 0);
    all.map(|(name, amount)| (name, i128::from(amount))).collect()
}

fn resource(name: &str) -> Resource {
    match name.split_once(' ') {
        Some(("fixed", place)) => Resource::Fixed(place.parse().unwrap()),
        Some((_, word)) => Resource::Extended(crate::ids::Word(word.parse().unwrap())),
        None => unreachable!("{name}"),
    }
}
