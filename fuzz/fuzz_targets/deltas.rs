//! Deltas of nearly any content in any order: the core takes them and plans, and an equal history is planned equally.
//!
//! Random bytes are hardly ever a delta. So an input is a program: each step names a delta of a sensible cluster and some bytes of its
//! encoding to be replaced. What still is a delta then is applied.

#![no_main]

use std::collections::BTreeMap;

use kai_core::{
    Cluster,
    delta::{
        Delta, Expression, Gpus, HostPort, Level, Operator, PodTerm, Selector, SpreadConstraint, Topology,
        TopologyConstraint, WhenUnsatisfiable,
    },
    time::Time,
};
use kai_invariants::sample::{NOW, group, node, pod, policy, queue, running, subgroup};
use libfuzzer_sys::fuzz_target;

/// A step with this number plans; all others name a delta.
const PLAN: u8 = 255;

fuzz_target!(|program: &[u8]| {
    let encoded: Vec<Vec<u8>> = deltas().iter().filter_map(|delta| postcard::to_allocvec(delta).ok()).collect();
    let (mut one, mut other) = (Cluster::new(), Cluster::new());
    let mut program = program.iter().copied();
    let mut now = NOW;
    while let Some(which) = program.next() {
        if which == PLAN {
            assert_eq!(kai_core::plan(&mut one, now, &policy()), kai_core::plan(&mut other, now, &policy()));
            now = Time(now.0 + 30_000);
            continue;
        }
        let mut bytes = encoded[usize::from(which) % encoded.len()].clone();
        for _ in 0..program.next().unwrap_or(0) % 4 {
            let (Some(place), Some(byte)) = (program.next(), program.next()) else { break };
            let count = bytes.len();
            bytes[usize::from(place) % count] = byte;
        }
        if let Ok(delta) = postcard::from_bytes::<Delta>(&bytes) {
            one.apply(delta.clone());
            other.apply(delta);
        }
    }
    assert_eq!(kai_core::plan(&mut one, now, &policy()), kai_core::plan(&mut other, now, &policy()));
});

/// A small cluster with some of everything, and the ways in which its objects go.
fn deltas() -> Vec<Delta> {
    let mut deltas = Vec::new();
    for (name, rack) in [("n0", "r0"), ("n1", "r0"), ("n2", "r1")] {
        let mut node = node(name, 2);
        node.labels = BTreeMap::from([("rack".to_owned(), rack.to_owned()), ("host".to_owned(), name.to_owned())]);
        deltas.extend([Delta::Node(Box::new(node)), Delta::NodeGone(name.to_owned())]);
    }
    for (name, parent) in [("d", None), ("q0", Some("d")), ("q1", Some("d"))] {
        deltas.extend([Delta::Queue(Box::new(queue(name, parent, 2))), Delta::QueueGone(name.to_owned())]);
    }
    let levels = vec![Level { label: "rack".to_owned(), alias: None }];
    deltas.push(Delta::Topology(Topology { name: "hall".to_owned(), levels }));
    deltas.push(Delta::TopologyGone("hall".to_owned()));
    for (key, queue, min) in [("g0", "q0", 1), ("g1", "q0", 2), ("g2", "q1", 2), ("g3", "q1", 1)] {
        let mut group = group(key, queue);
        group.min_member = Some(min);
        match key {
            "g1" => (group.min_member, group.subgroups) = (None, vec![subgroup("a", 1), subgroup("b", 1)]),
            "g2" => {
                let (topology, required) = ("hall".to_owned(), Some("rack".to_owned()));
                group.topology = Some(TopologyConstraint { topology, required, preferred: None });
            }
            _ => {}
        }
        deltas.extend([Delta::PodGroup(Box::new(group)), Delta::PodGroupGone(key.to_owned())]);
    }
    let half = Gpus::Portion { devices: 1, millionths: 500_000 };
    let mut pods = vec![
        running(pod("p0", "g0", Gpus::Whole(1)), "n0", &[]),
        running(pod("p1", "g0", half), "n0", &["d0"]),
        running(pod("p2", "g1", Gpus::Memory { devices: 1, mib: 20_000 }), "n1", &["d1"]),
        pod("p3", "g1", Gpus::Whole(1)),
        pod("p4", "g2", Gpus::Whole(2)),
        pod("p5", "g2", Gpus::Whole(2)),
        pod("p6", "g3", half),
    ];
    (pods[2].subgroup, pods[3].subgroup) = (Some("a".to_owned()), Some("b".to_owned()));
    let selector = Selector {
        expressions: vec![Expression { key: "app".to_owned(), operator: Operator::In, values: vec!["x".to_owned()] }],
    };
    for pod in &mut pods {
        pod.labels.insert("app".to_owned(), "x".to_owned());
    }
    let away = PodTerm { selector: Some(selector.clone()), namespaces: None, topology_key: "host".to_owned() };
    pods[6].constraints.pod_anti_affinity.push(away);
    pods[3].constraints.host_ports.push(HostPort { port: 80, protocol: String::new(), address: String::new() });
    pods[4].constraints.spread.push(SpreadConstraint {
        max_skew: 1,
        topology_key: "rack".to_owned(),
        when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule,
        selector: Some(selector),
        min_domains: None,
        honor_node_affinity: true,
        honor_taints: false,
    });
    for pod in pods {
        let uid = pod.uid.clone();
        deltas.push(Delta::PodLeaves { uid: uid.clone(), since: NOW });
        deltas.extend([Delta::PodGone(uid), Delta::Pod(Box::new(pod))]);
    }
    deltas
}
