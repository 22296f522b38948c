//! Random clusters: the fast search, kept up to date, against the slow one.

use proptest::{prelude::*, sample::Index, test_runner::Config};
use smallvec::smallvec;

use super::{
    fixture::{Fixture, cordon, portion, whole},
    twin::{self, Answer},
};
use crate::{
    cluster::{pod::Place, status::Status},
    delta::{Gpus, Request, TopologyConstraint},
    ids::{NodeId, PodId},
    plan::Cause,
    topology::{Ask, NodeSet, packing::Packing},
};

const LABELS: [&str; 3] = ["zone", "row", "rack"];

#[derive(Clone, Debug)]
struct World {
    levels: usize,
    nodes: Vec<RandomNode>,
    running: Vec<(Request, Index)>,
    waiting: Vec<Request>,
    asks: Vec<RandomAsk>,
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
struct RandomNode {
    values: [Option<u8>; 3],
    gpus: u32,
    memory: Option<u64>,
    cpu: i64,
    pods: i64,
    nics: i64,
    available: bool,
}

#[derive(Clone, Debug)]
struct RandomAsk {
    required: Option<Index>,
    preferred: Option<Index>,
    tasks: Vec<Index>,
    within: Option<Vec<Index>>,
    /// The first set of the answer becomes what the next ask chooses from.
    nested: bool,
    holding: Vec<Index>,
}

#[derive(Clone, Debug)]
enum Step {
    Assign(Index, Index, bool),
    Evict(Index),
    Mark,
    Rollback,
    Trim,
}

fn request() -> impl Strategy<Value = Request> {
    let gpus = prop_oneof![
        6 => (0_u32..4).prop_map(whole),
        2 => (1_u32..3, prop::sample::select(vec![250_000, 300_000, 500_000])).prop_map(|(n, part)| portion(n, part)),
        1 => (1_u32..3, prop::sample::select(vec![200_u64, 500, 1000, 1500]))
            .prop_map(|(devices, mib)| Request { gpus: Gpus::Memory { devices, mib }, ..whole(0) }),
        1 => Just(Request::default()),
    ];
    (gpus, prop::sample::select(vec![0_i64, 1000, 2000]), 0_i64..6).prop_map(|(mut request, cpu, nics)| {
        if request.cpu > 0 {
            request.cpu = cpu;
        }
        if nics > 3 {
            request.extended.insert("example.com/nic".to_owned(), nics - 3);
        }
        request
    })
}

fn node() -> impl Strategy<Value = RandomNode> {
    let value = || prop_oneof![12 => (0_u8..3).prop_map(Some), 1 => Just(None)];
    (
        [value(), value(), value()],
        0_u32..9,
        prop::sample::select(vec![Some(1000), Some(1000), Some(2000), None]),
        prop::sample::select(vec![1500, 8000, 32_000]),
        prop::sample::select(vec![3, 20, 20]),
        0_i64..8,
        prop::bool::weighted(0.9),
    )
        .prop_map(|(values, gpus, memory, cpu, pods, nics, available)| RandomNode {
            values,
            gpus,
            memory,
            cpu,
            pods,
            nics,
            available,
        })
}

fn ask() -> impl Strategy<Value = RandomAsk> {
    let index = any::<Index>;
    (
        prop::option::of(index()),
        prop::option::of(index()),
        prop::collection::vec(index(), 1..5),
        prop::option::weighted(0.3, prop::collection::vec(index(), 0..8)),
        any::<bool>(),
        prop_oneof![2 => Just(vec![]), 1 => prop::collection::vec(index(), 1..3)],
    )
        .prop_map(|(required, preferred, tasks, within, nested, holding)| RandomAsk {
            required,
            preferred,
            tasks,
            within,
            nested,
            holding,
        })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (any::<Index>(), any::<Index>(), any::<bool>()).prop_map(|(pod, node, now)| Step::Assign(pod, node, now)),
        3 => any::<Index>().prop_map(Step::Evict),
        1 => Just(Step::Mark),
        1 => Just(Step::Rollback),
        1 => Just(Step::Trim),
    ]
}

fn world() -> impl Strategy<Value = World> {
    (
        1_usize..=3,
        prop::collection::vec(node(), 1..14),
        prop::collection::vec((request(), any::<Index>()), 0..8),
        // Few kinds of requests, so that many gangs are alike.
        prop::collection::vec(request(), 1..4),
        prop::collection::vec(ask(), 1..5),
        prop::collection::vec(step(), 0..12),
    )
        .prop_map(|(levels, nodes, running, kinds, asks, steps)| {
            let waiting = kinds.iter().flat_map(|kind| std::iter::repeat_n(kind.clone(), 4)).collect();
            World { levels, nodes, running, waiting, asks, steps }
        })
}

/// What runs of a world.
struct Run {
    fixture: Fixture,
    levels: usize,
    nodes: Vec<NodeId>,
    running: Vec<PodId>,
    waiting: Vec<PodId>,
    marks: Vec<usize>,
}

impl Run {
    fn new(world: &World) -> Self {
        let mut fixture = Fixture::new(&LABELS[..world.levels]);
        let mut nodes = Vec::new();
        for (index, node) in world.nodes.iter().enumerate() {
            let labels =
                LABELS.iter().zip(node.values).filter_map(|(label, value)| Some(format!("{label}={}", value?)));
            // Names in another order than the ids.
            let name = format!("node{:02}", (index * 7 + 3) % 31);
            nodes.push(fixture.node_with(&name, node.gpus, &labels.collect::<Vec<_>>().join(" "), |described| {
                described.gpus.memory = node.memory;
                described.cpu = node.cpu;
                described.pods = node.pods;
                described.extended.insert("example.com/nic".to_owned(), node.nics);
                if !node.available {
                    cordon(described);
                }
            }));
        }
        let mut running = Vec::new();
        for (index, (request, node)) in world.running.iter().enumerate() {
            let node = fixture.cluster.node_name(*node.get(&nodes)).to_owned();
            running.push(fixture.pod(&format!("running-{index}"), request.clone(), Some(&node)));
        }
        let waiting = world.waiting.iter().flat_map(|request| fixture.gang(1, request)).collect();
        Self { fixture, levels: world.levels, nodes, running, waiting, marks: Vec::new() }
    }

    fn step(&mut self, step: &Step) {
        let cluster = &mut self.fixture.cluster;
        match step {
            Step::Assign(pod, node, now) => {
                let (pod, node) = (*pod.get(&self.waiting), *node.get(&self.nodes));
                let status = if *now { Status::Allocated } else { Status::Pipelined };
                let devices = if cluster.class_of(pod).is_shared() {
                    smallvec![cluster.words.intern(&format!("device-{}", pod.0 % 2))]
                } else {
                    smallvec![]
                };
                cluster.assign(pod, Place { node: Some(node), devices, ..Place::nowhere(status) });
            }
            Step::Evict(pod) if !self.running.is_empty() => cluster.evict(*pod.get(&self.running)),
            Step::Evict(_) => {}
            Step::Mark => self.marks.push(cluster.checkpoint()),
            Step::Rollback => {
                let mark = self.marks.pop().unwrap_or(0);
                cluster.rollback(mark);
            }
            // As if the cluster had no nodes: whatever is noted is forgotten once it is long.
            Step::Trim => {
                let node = self.nodes[0];
                (0..1100).for_each(|_| cluster.journal.push(node));
                cluster.journal.trim(0);
            }
        }
    }

    fn ask(&mut self, ask: &RandomAsk, outer: Option<NodeSet>) -> Result<Option<NodeSet>, TestCaseError> {
        let labels = &LABELS[..self.levels];
        let required = ask.required.map(|index| index.index(self.levels));
        let preferred = ask.preferred.map(|index| index.index(self.levels));
        let (required, preferred) = match (required, preferred) {
            (None, None) => (Some(self.levels - 1), None),
            (Some(required), Some(preferred)) => (Some(required.min(preferred)), Some(preferred.max(required))),
            other => other,
        };
        let label = |level: Option<usize>| level.map(|level| labels[level].to_owned());
        let constraint =
            TopologyConstraint { topology: "t".to_owned(), required: label(required), preferred: label(preferred) };
        let mut tasks: Vec<PodId> = ask.tasks.iter().map(|index| *index.get(&self.waiting)).collect();
        tasks.dedup();
        let given = ask
            .within
            .as_ref()
            .map(|indexes| NodeSet::new(&self.fixture.cluster, indexes.iter().map(|index| *index.get(&self.nodes))));
        let within = outer.or(given);
        let holding: Vec<NodeId> = ask.holding.iter().map(|index| *index.get(&self.nodes)).collect();
        let result = self.fixture.ask_with(&constraint, &tasks, within.as_ref(), &holding);
        let fast = match &result {
            Ok((sets, bands)) => {
                for set in sets {
                    for node in &self.nodes {
                        prop_assert_eq!(set.contains(*node), set.nodes().contains(node));
                    }
                }
                let bands = bands.as_ref();
                let bands = bands.map(|bands| self.nodes.iter().map(|node| (*node, bands.band(*node))));
                let bands = bands.into_iter().flatten().filter(|(_, band)| *band > 0);
                Answer::Sets(sets.iter().map(|set| set.nodes().to_vec()).collect(), bands.collect())
            }
            Err(Cause::Topology { domains, .. }) => {
                let domains = domains.iter().map(|domain| (domain.domain.clone(), domain.pods.map(u64::from)));
                Answer::Refused(domains.collect())
            }
            Err(other) => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        let ask =
            Ask { constraint: &constraint, subgroup: "", tasks: &tasks, within: within.as_ref(), holding: &holding };
        let mut slow = twin::search(&self.fixture.cluster, &ask);
        if let Answer::Sets(_, bands) = &mut slow {
            bands.retain(|_, band| *band > 0);
        }
        prop_assert_eq!(fast, slow);
        Ok(result.ok().map(|(mut sets, _)| sets.swap_remove(0)))
    }

    fn ask_all(&mut self, asks: &[RandomAsk]) -> Result<(), TestCaseError> {
        let mut outer = None;
        for ask in asks {
            let first = self.ask(ask, outer)?;
            outer = first.filter(|_| ask.nested);
        }
        Ok(())
    }

    /// Every packing, once it has caught up, is what measuring everything again gives.
    fn check_packings(&mut self) -> Result<(), TestCaseError> {
        let cluster = &self.fixture.cluster;
        for entry in self.fixture.trees.entries.iter_mut().flatten() {
            for packing in &mut entry.packings {
                packing.catch_up(cluster, &entry.tree);
                prop_assert!(packing.agrees(&Packing::new(cluster, &entry.tree, packing.need.clone())));
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(Config { cases: cases(), ..Config::default() })]

    #[test]
    fn the_search_agrees_with_its_slow_twin_whatever_happens_in_between(world in world()) {
        let mut run = Run::new(&world);
        run.ask_all(&world.asks)?;
        for step in &world.steps {
            run.step(step);
            run.check_packings()?;
            run.ask_all(&world.asks)?;
        }
        run.fixture.cluster.settle();
        run.check_packings()?;
        run.ask_all(&world.asks)?;
    }
}

#[expect(clippy::disallowed_methods, reason = "how long to test is said from outside")]
fn cases() -> u32 {
    std::env::var("KAI_PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(300)
}
