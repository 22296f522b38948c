//! One pod, one node: which node a pod goes to, which devices it shares there, and whether now or later.

use smallvec::SmallVec;

use crate::{
    amounts::{Amounts, fixed},
    cluster::{
        class::Class,
        node::{Node, SharedDevice},
        pod::{Detail, Place},
        status::Status,
    },
    cycle::{Cycle, ranking::Ranking},
    delta::Gpus,
    ids::{NodeId, PodId, Word},
    plan::NodeRefusal,
    topology::{Bands, NodeSet},
};

/// Whether a placement may begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Now, if it fits now.
    Now,
    /// Only as a promise: victims are still there.
    Later,
}

/// The nodes a pod may go to.
#[derive(Debug, Default)]
pub struct Scope {
    /// Only these; `None`: all.
    pub nodes: Option<NodeSet>,
    /// Which of them are better by topology.
    pub bands: Option<Bands>,
    /// The ranking of the class placed last, where the scope is not all nodes.
    ranking: Option<(crate::ids::ClassId, Box<Ranking>)>,
}

impl Scope {
    /// A scope of some nodes.
    #[must_use]
    pub fn new(nodes: Option<NodeSet>, bands: Option<Bands>) -> Self {
        Self { nodes, bands, ranking: None }
    }
}

impl Cycle<'_> {
    /// Places a pod on the best node that takes it; `false` if none does.
    pub(super) fn place(&mut self, pod: PodId, scope: &mut Scope, mode: Mode) -> bool {
        let id = self.cluster.pods[pod.index()].class;
        let class = self.cluster.class(id);
        let local = scope.nodes.is_some() || scope.bands.is_some();
        if self.policy.plugins.predicates && class.constraints.everywhere().is_some() {
            return false;
        }
        if self.policy.plugins.dynamic_resources && self.cluster.claims_refusal(pod).is_some() {
            return false;
        }
        let mut ranking = if local {
            match scope.ranking.take() {
                Some((class, ranking)) if class == id => ranking,
                _ => Box::new(Ranking::new(self.cluster, self.policy, id, scope.nodes.clone(), scope.bands.clone())),
            }
        } else {
            self.take_ranking(id)
        };
        ranking.refresh(self.cluster, self.policy);
        self.ask_around(pod);
        let chosen = self.choose(pod, &ranking, mode);
        if local {
            scope.ranking = Some((id, ranking));
        } else {
            self.cluster.memory.rankings[id.index()] = Some(ranking);
        }
        let Some(place) = chosen else { return false };
        self.settle_in(pod, place);
        true
    }

    /// Places a pod on a node if it can be there at once.
    pub(super) fn place_now(&mut self, pod: PodId, node: NodeId) -> bool {
        self.ask_around(pod);
        match self.place_on(pod, node, Mode::Now).filter(|place| place.status == Status::Allocated) {
            Some(place) => {
                self.settle_in(pod, place);
                true
            }
            None => false,
        }
    }

    pub(super) fn take_ranking(&mut self, class: crate::ids::ClassId) -> Box<Ranking> {
        let rankings = &mut self.cluster.memory.rankings;
        if rankings.len() <= class.index() {
            rankings.resize_with(class.index() + 1, || None);
        }
        match rankings[class.index()].take() {
            Some(ranking) => ranking,
            None => Box::new(Ranking::new(self.cluster, self.policy, class, None, None)),
        }
    }

    /// The best place by a ranking.
    fn choose(&mut self, pod: PodId, ranking: &Ranking, mode: Mode) -> Option<Place> {
        let nominated = self.nominated(pod).filter(|node| ranking.contains(*node));
        if let Some(place) = nominated.and_then(|node| self.place_on(pod, node, mode)) {
            return Some(place);
        }
        if let Some(place) = self.choose_promised(pod, ranking, mode) {
            return Some(place);
        }
        if self.census.as_ref().is_some_and(|census| census.minds_nodes(self.cluster, pod)) {
            return self.choose_preferred(pod, ranking, mode);
        }
        ranking.ranks().find_map(|rank| {
            let node = *self.cluster.nodes_by_rank.get(rank as usize)?;
            self.plan.stats.nodes_examined += 1;
            self.place_on(pod, node, mode)
        })
    }

    /// The best place where some nodes are preferred by what runs around them.
    fn choose_preferred(&mut self, pod: PodId, ranking: &Ranking, mode: Mode) -> Option<Place> {
        let Some(census) = &self.census else { return None };
        let mut nodes: Vec<(i64, usize, NodeId)> = ranking
            .nodes(self.cluster)
            .enumerate()
            .map(|(place, node)| (-census.preference(self.cluster, pod, node), place, node))
            .collect();
        nodes.sort_unstable();
        self.plan.stats.nodes_examined += nodes.len() as u64;
        nodes.into_iter().find_map(|(_, _, node)| self.place_on(pod, node, mode))
    }

    /// The place that the last cycle promised to the group that is being served there.
    fn choose_promised(&mut self, pod: PodId, ranking: &Ranking, mode: Mode) -> Option<Place> {
        let class = self.cluster.pods[pod.index()].class;
        for index in 0..self.kept.len() {
            let (of, node) = self.kept[index];
            if of == class
                && ranking.contains(node)
                && let Some(place) = self.place_on(pod, node, mode)
            {
                self.kept.remove(index);
                return Some(place);
            }
        }
        None
    }

    fn nominated(&self, pod: PodId) -> Option<NodeId> {
        let word = self.cluster.pods[pod.index()].rare.as_ref()?.nominated?;
        self.cluster.node(self.cluster.word(word)).filter(|_| self.policy.plugins.nominated_node)
    }

    /// The pod's place on a node that suits and fits its class, unless what runs there stands against it.
    fn place_on(&mut self, pod: PodId, node: NodeId, mode: Mode) -> Option<Place> {
        self.check_around(pod, node).ok()?;
        let described = &self.cluster.nodes[node.index()];
        let class = self.cluster.class_of(pod);
        let mut now = mode == Mode::Now && described.fits_now(class);
        let mut names = SmallVec::new();
        if let Some((count, units)) = described.shares_of(class) {
            let (chosen, opened, fits_now) = self.choose_devices(described, count as usize, units)?;
            now &= fits_now;
            names = chosen;
            self.open_devices(pod, opened, &mut names);
        }
        let detail = self.detail_on(pod, node, &mut now).ok()?;
        let status = if now { Status::Allocated } else { Status::Pipelined };
        Some(Place { status, node: Some(node), devices: names, detail })
    }

    /// Names devices that are opened for a pod: after the pod, and like no device that it or any node has. Others may still share what was
    /// opened for the pod elsewhere, when it was to be there.
    fn open_devices(&mut self, pod: PodId, count: usize, names: &mut SmallVec<[Word; 2]>) {
        let mut index = 0;
        let mut opened = 0;
        while opened < count {
            let name = format!("{}-{index}", self.cluster.pods[pod.index()].uid);
            let name = self.cluster.words.intern(&name);
            let held = self.cluster.leaving.get(&pod).unwrap_or(&self.cluster.pods[pod.index()].place);
            if !names.contains(&name) && !held.devices.contains(&name) && !self.cluster.shared_names.contains_key(&name)
            {
                names.push(name);
                opened += 1;
            }
            index += 1;
        }
    }

    /// The claims and NUMA zones of a pod on a node.
    fn detail_on(&self, pod: PodId, node: NodeId, now: &mut bool) -> Result<Option<Box<Detail>>, NodeRefusal> {
        let described = &self.cluster.nodes[node.index()];
        let claimed = !self.cluster.pods[pod.index()].claims().is_empty() || !described.served.is_empty();
        let aligned = self.policy.plugins.numa && described.numa.is_some();
        if !claimed && !aligned {
            return Ok(None);
        }
        let mut detail = Detail::default();
        if claimed && self.policy.plugins.dynamic_resources {
            let fit = self.cluster.check_claims(pod, node)?;
            *now &= fit.now;
            detail.claims = fit.claims;
            detail.extended = fit.extended;
        }
        if aligned {
            let at_once = if *now { self.cluster.check_numa(pod, node, true).ok() } else { None };
            *now &= at_once.is_some();
            let zones = at_once.map_or_else(|| self.cluster.check_numa(pod, node, false), Ok)?;
            detail.numa = zones.map(|(zones, _)| zones).unwrap_or_default();
        }
        Ok((detail != Detail::default()).then(|| Box::new(detail)))
    }

    /// Why a node that suits and fits a pod does not do: its claims or its NUMA zones.
    pub(super) fn explain_detail(&self, pod: PodId, node: NodeId) -> NodeRefusal {
        self.detail_on(pod, node, &mut false).err().unwrap_or(NodeRefusal::GpuMemoryShort)
    }

    /// Whether what runs on and around a node allows the pod there.
    pub(super) fn check_around(&self, pod: PodId, node: NodeId) -> Result<(), NodeRefusal> {
        let class = self.cluster.class_of(pod);
        let described = &self.cluster.nodes[node.index()];
        if class.mig && described.legacy_mig > 0 {
            return Err(NodeRefusal::Mig("a legacy MIG pod runs on the node".to_owned()));
        }
        if matches!(class.gpus, Gpus::Memory { .. }) && self.policy.plugins.proportion {
            self.check_memory_share(pod, node)?;
        }
        if let Some(census) = self.census.as_ref().filter(|_| self.policy.plugins.predicates) {
            census.check_pods(self.cluster, pod, node)?;
        }
        Ok(())
    }

    /// Learns who is where, for the questions about a pod that follow.
    pub(super) fn ask_around(&mut self, pod: PodId) {
        if let Some(census) = &mut self.census {
            census.prepare(self.cluster, pod);
        }
    }

    /// A request by memory is another share of each kind of device: only the node says what it costs the queue.
    fn check_memory_share(&self, pod: PodId, node: NodeId) -> Result<(), NodeRefusal> {
        let group = self.cluster.pods[pod.index()].group.map(|group| self.group(group));
        let Some((queue, preemptible)) = group.and_then(|group| Some((group.queue?, group.preemptible))) else {
            return Ok(());
        };
        let charge = self.cluster.charge_at(pod, Some(node));
        self.cluster.breach(queue, &charge, preemptible).map_or(Ok(()), |breach| Err(breach.refusal()))
    }

    /// Devices with room for `units`, as the policy prefers them, and how many whole ones are to be opened beside them.
    fn choose_devices(&self, node: &Node, count: usize, units: u64) -> Option<(SmallVec<[Word; 2]>, usize, bool)> {
        let capacity = node.device_units();
        let mut open: SmallVec<[(u64, &str, &SharedDevice); 8]> = node
            .shared
            .iter()
            .filter(|device| device.staying() > 0 && device.staying() + units <= capacity)
            .map(|device| (device.used + device.promised, self.cluster.word(device.name), device))
            .collect();
        // Each device that is opened needs a slot for its reservation pod beside the pod's own.
        let openable =
            |free: &Amounts| usize::try_from(free.fixed[fixed::GPU].min(free.fixed[fixed::PODS] - 1)).unwrap_or(0);
        let whole = openable(&node.future);
        let plugins = &self.policy.plugins;
        let fresh_first = plugins.gpu_spread && !plugins.gpu_pack;
        if fresh_first {
            open.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        } else {
            open.sort_unstable_by(|a, b| (b.0, a.1).cmp(&(a.0, b.1)));
        }
        let opened = if fresh_first { count.min(whole) } else { count.saturating_sub(open.len()) };
        if opened > whole || count - opened > open.len() {
            return None;
        }
        let chosen = &open[..count - opened];
        // A device on which there are only promises is not there yet: it takes an idle GPU to begin on it.
        let begun = opened + chosen.iter().filter(|(_, _, device)| device.used == 0).count();
        let now = opened <= openable(&node.idle)
            && begun <= usize::try_from(node.idle.fixed[fixed::GPU]).unwrap_or(0)
            && chosen.iter().all(|(_, _, device)| device.used + units <= capacity);
        Some((chosen.iter().map(|(_, _, device)| device.name).collect(), opened, now))
    }

    /// Gives a pod its place. An evicted pod that would come back to where it was is restored instead.
    fn settle_in(&mut self, pod: PodId, place: Place) {
        let current = &self.cluster.pods[pod.index()];
        if !current.is_evicted() {
            self.cluster.assign(pod, place);
        } else if current.place.node == place.node && self.same_devices(pod, &place) {
            self.cluster.restore(pod);
        } else {
            self.cluster.relocate(pod, place);
        }
    }

    fn same_devices(&self, pod: PodId, place: &Place) -> bool {
        let old = &self.cluster.pods[pod.index()].place;
        let zones = |place: &Place| place.detail.as_ref().map(|detail| detail.numa.clone()).unwrap_or_default();
        let same = |class: &Class| !class.is_shared() || old.devices == place.devices;
        same(self.cluster.class_of(pod)) && zones(old) == zones(place)
    }
}
