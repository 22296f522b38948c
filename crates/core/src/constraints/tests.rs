//! Small clusters, built through deltas, and the rules they show.

mod neighbours;
mod nodes;
mod oracle;
mod preferences;
mod random;
mod spreading;

use std::collections::BTreeMap;

use super::{Compiled, census::Census};
use crate::{
    cluster::{Cluster, pod::Place, status::Status},
    delta::{
        Constraints, Delta, Expression, MigStrategy, Node, NodeGpus, Operator, Origin, Phase, Placement, Pod, PodTerm,
        Request, Role, Selector, Taint, TaintEffect,
    },
    ids::{NodeId, PodId},
    plan::NodeRefusal,
    time::Time,
};

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn node(name: &str, pairs: &[(&str, &str)]) -> Node {
    Node {
        name: name.to_owned(),
        labels: labels(pairs),
        taints: Vec::new(),
        unavailable: Vec::new(),
        cpu: 64_000,
        memory: 1 << 40,
        pods: 110,
        storage: 0,
        extended: BTreeMap::new(),
        gpus: NodeGpus { count: 8, memory: None, mig: MigStrategy::Off },
        numa: None,
        devices: Vec::new(),
    }
}

fn taint(key: &str, value: &str, effect: TaintEffect) -> Taint {
    Taint { key: key.to_owned(), value: value.to_owned(), effect }
}

/// A pod of namespace `team` that waits.
fn pod(uid: &str, pairs: &[(&str, &str)], constraints: Constraints) -> Pod {
    Pod {
        uid: uid.to_owned(),
        namespace: "team".to_owned(),
        labels: labels(pairs),
        group: None,
        subgroup: None,
        created: Time(0),
        phase: Phase::Pending,
        deleted: None,
        placement: None,
        origin: Origin::Ours,
        role: Role::default(),
        nominated: None,
        request: Request::default(),
        constraints,
        claims: Vec::new(),
        invalid: None,
    }
}

fn placement(node: &str) -> Placement {
    Placement { node: node.to_owned(), devices: Vec::new(), numa: Vec::new(), bound: true }
}

fn running(pod: Pod, node: &str) -> Pod {
    Pod { phase: Phase::Running, placement: Some(placement(node)), ..pod }
}

fn expression(key: &str, operator: Operator, values: &[&str]) -> Expression {
    Expression { key: key.to_owned(), operator, values: values.iter().map(|value| (*value).to_owned()).collect() }
}

fn selector(key: &str, value: &str) -> Selector {
    Selector { expressions: vec![expression(key, Operator::In, &[value])] }
}

/// Pods of namespace `team` with `app` = `value`.
fn app(value: &str, topology_key: &str) -> PodTerm {
    PodTerm {
        selector: Some(selector("app", value)),
        namespaces: Some(vec!["team".to_owned()]),
        topology_key: topology_key.to_owned(),
    }
}

fn away_from(value: &str, topology_key: &str) -> Constraints {
    Constraints { pod_anti_affinity: vec![app(value, topology_key)], ..Constraints::default() }
}

/// A cluster and a census that lives as long.
#[derive(Default)]
struct World {
    cluster: Cluster,
    census: Census,
}

impl World {
    fn new(nodes: impl IntoIterator<Item = Node>, pods: impl IntoIterator<Item = Pod>) -> Self {
        let mut world = Self::default();
        nodes.into_iter().for_each(|node| world.cluster.apply(Delta::Node(Box::new(node))));
        pods.into_iter().for_each(|pod| world.cluster.apply(Delta::Pod(Box::new(pod))));
        world
    }

    fn add(&mut self, pod: Pod) {
        self.cluster.apply(Delta::Pod(Box::new(pod)));
    }

    fn node(&self, name: &str) -> NodeId {
        self.cluster.node(name).expect("the test made the node")
    }

    fn pod(&self, uid: &str) -> PodId {
        self.cluster.pod(uid).expect("the test made the pod")
    }

    fn constraints(&self, uid: &str) -> &Compiled {
        &self.cluster.class_of(self.pod(uid)).constraints
    }

    fn check_node(&self, uid: &str, node: &str) -> Result<(), NodeRefusal> {
        self.constraints(uid).check_node(&self.cluster.nodes[self.node(node).index()], &self.cluster.words)
    }

    /// Asks the census that has seen everything, and one that starts now.
    fn check_pods(&mut self, uid: &str, node: &str) -> Result<(), NodeRefusal> {
        let (pod, node) = (self.pod(uid), self.node(node));
        self.census.prepare(&self.cluster, pod);
        let answer = self.census.check_pods(&self.cluster, pod, node);
        assert_eq!(answer, self.constraints(uid).check_pods(&self.cluster, pod, node), "a new census sees the same");
        assert!(answer.is_ok() || self.census.minds_pods(&self.cluster, pod), "a refusal is announced");
        answer
    }

    fn preference(&mut self, uid: &str, node: &str) -> i64 {
        let (pod, node) = (self.pod(uid), self.node(node));
        self.census.prepare(&self.cluster, pod);
        let answer = self.census.preference(&self.cluster, pod, node);
        assert_eq!(answer, self.constraints(uid).preference(&self.cluster, pod, node), "a new census sees the same");
        assert!(answer == 0 || self.census.minds_nodes(&self.cluster, pod), "a preference is announced");
        answer
    }

    fn place(&mut self, uid: &str, node: &str, status: Status) {
        let place = Place { node: Some(self.node(node)), ..Place::nowhere(status) };
        self.cluster.assign(self.pod(uid), place);
    }
}
