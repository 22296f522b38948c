//! Placing on what is free: single jobs, gangs, gangs in one rack, halves of devices. Every pod finds a place and the cluster is full.

use std::collections::BTreeMap;

use kai_core::{
    Cluster,
    delta::{Gpus, TopologyConstraint},
    plan::{Decision, Placed, Plan},
};

use super::{Kai, Metric, Shape, Tally};
use crate::bench::core::{
    policy,
    world::{Job, RACK, Size, TOPOLOGY, World, quota, unlimited},
};

const GPUS: u32 = 8;
const GANG: u32 = 64;
const RACK_NODES: u32 = 16;
const SIZES: &[u32] = &[1000, 5000, 20_000];

pub fn shapes() -> Vec<Shape> {
    let placing = Shape {
        name: "allocate",
        title: "1-GPU jobs on nodes of 8 GPUs, 4 queues in 2 departments",
        nodes: SIZES,
        per_node: GPUS,
        pods_sweep: Some((5000, &[2, 4, 8])),
        smallest: 8,
        policy: policy::standard,
        describe: singles,
        check: |size, _, plan| all_bound(size.nodes * size.per_node, plan),
        between: None,
        metric: Metric::Placements,
        targets: &[(5000, 200_000.0)],
        kai: Kai { rate: Some(5500.0), note: "KAI at 100 nodes", ..Kai::UNKNOWN },
    };
    let small = Shape {
        name: "allocate-as-kai",
        title: "KAI's own AllocateAction benchmark: 5 jobs per node",
        nodes: &[10, 100, 1000],
        per_node: 5,
        pods_sweep: None,
        targets: &[],
        kai: Kai { rate: None, times: &[(10, 4.0), (100, 92.5)], exponent: Some(1.36), note: "" },
        ..placing
    };
    let gangs = Shape {
        name: "gangs",
        title: "gangs of 64 pods with 1 GPU each",
        describe: |size, world| gang_jobs(size, false, world),
        check: |size, cluster, plan| whole_gangs(size, false, cluster, plan),
        targets: &[(5000, 100_000.0)],
        kai: Kai::UNKNOWN,
        ..placing
    };
    let racks = Shape {
        name: "gangs-in-racks",
        title: "gangs of 64 pods, each required to be in one rack of 16 nodes",
        describe: |size, world| gang_jobs(size, true, world),
        check: |size, cluster, plan| whole_gangs(size, true, cluster, plan),
        targets: &[(5000, 50_000.0)],
        ..gangs
    };
    let halves = Shape {
        name: "fractions",
        title: "halves of GPUs: every device is shared by two pods",
        per_node: 2 * GPUS,
        pods_sweep: Some((5000, &[4, 8, 16])),
        describe: halves,
        check: shared_by_two,
        targets: &[(5000, 150_000.0)],
        kai: Kai::UNKNOWN,
        ..placing
    };
    vec![placing, small, gangs, racks, halves]
}

/// Two departments with half of the GPUs each, two queues in each with a quarter: the names of the four.
fn departments(size: Size, world: &mut World<'_>) -> [&'static str; 4] {
    let gpus = size.nodes * GPUS;
    world.queue("all", None, unlimited());
    for (department, queues) in [("department-0", ["team-0", "team-1"]), ("department-1", ["team-2", "team-3"])] {
        world.queue(department, Some("all"), quota(gpus / 2, 1));
        for queue in queues {
            world.queue(queue, Some(department), quota(gpus / 4, 1));
        }
    }
    ["team-0", "team-1", "team-2", "team-3"]
}

fn singles(size: Size, world: &mut World<'_>) {
    world.nodes(size.nodes, GPUS, |_, _| {});
    let queues = departments(size, world);
    for (number, queue) in (0..size.nodes * size.per_node).zip(queues.into_iter().cycle()) {
        world.job(&Job::new(&format!("train-{number:06}"), queue));
    }
}

fn halves(size: Size, world: &mut World<'_>) {
    world.nodes(size.nodes, GPUS, |_, _| {});
    let queues = departments(size, world);
    let half = Gpus::Portion { devices: 1, millionths: 500_000 };
    for (number, queue) in (0..size.nodes * size.per_node).zip(queues.into_iter().cycle()) {
        world.job(&Job::new(&format!("notebook-{number:06}"), queue).asking(half));
    }
}

fn gang_jobs(size: Size, in_racks: bool, world: &mut World<'_>) {
    world.topology();
    world.nodes(size.nodes, GPUS, |number, node| {
        node.labels.insert(RACK.into(), format!("rack-{:04}", number / RACK_NODES));
    });
    let queues = departments(size, world);
    let required = TopologyConstraint { topology: TOPOLOGY.into(), required: Some(RACK.into()), preferred: None };
    for (number, queue) in (0..gang_count(size, in_racks)).zip(queues.into_iter().cycle()) {
        let mut job = Job::new(&format!("gang-{number:05}"), queue).gang(GANG);
        job.group.topology = in_racks.then(|| required.clone());
        world.job(&job);
    }
}

/// As many gangs as were asked for, but no more than fit into the racks.
fn gang_count(size: Size, in_racks: bool) -> u32 {
    let asked = size.nodes * size.per_node / GANG;
    let rest = size.nodes % RACK_NODES;
    let room = size.nodes / RACK_NODES * (RACK_NODES * GPUS / GANG) + rest * GPUS / GANG;
    if in_racks { asked.min(room) } else { asked }
}

fn binds(plan: &Plan) -> impl Iterator<Item = &Placed> {
    plan.decisions.iter().filter_map(|decision| match decision {
        Decision::Bind(placed) => Some(placed),
        _ => None,
    })
}

fn all_bound(pods: u32, plan: &Plan) -> Result<(), String> {
    Tally { binds: pods, ..Tally::default() }.expect(plan)?;
    let mut used: BTreeMap<_, u32> = BTreeMap::new();
    for placed in binds(plan) {
        *used.entry(placed.node).or_default() += 1;
    }
    let most = used.into_values().max().unwrap_or(0);
    if most > GPUS { Err(format!("a node of {GPUS} GPUs got {most} pods with one each")) } else { Ok(()) }
}

fn whole_gangs(size: Size, in_racks: bool, cluster: &Cluster, plan: &Plan) -> Result<(), String> {
    all_bound(gang_count(size, in_racks) * GANG, plan)?;
    let mut gangs: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for placed in binds(plan) {
        gangs.entry(cluster.pods[placed.pod.index()].group).or_default().push(placed.node);
    }
    for (group, nodes) in gangs {
        let name = group.map_or("nobody", |group| cluster.group_key(group));
        if nodes.len() != GANG as usize {
            return Err(format!("{} of the {GANG} pods of `{name}` were bound", nodes.len()));
        }
        let rack = |node| {
            let digits = cluster.node_name(node).rsplit('-').next();
            digits.and_then(|digits| digits.parse::<u32>().ok()).map(|number| number / RACK_NODES)
        };
        if in_racks && nodes.iter().any(|node| rack(*node) != rack(nodes[0])) {
            return Err(format!("`{name}` is in more than one rack"));
        }
    }
    Ok(())
}

/// Every pod is bound, no device is given away more than once, and no more devices were opened than are needed.
fn shared_by_two(size: Size, _: &Cluster, plan: &Plan) -> Result<(), String> {
    let pods = size.nodes * size.per_node;
    Tally { binds: pods, ..Tally::default() }.expect(plan)?;
    let mut devices: BTreeMap<_, u32> = BTreeMap::new();
    for placed in binds(plan) {
        let [device] = placed.devices.as_slice() else {
            return Err(format!("a half of one device was placed on {} devices", placed.devices.len()));
        };
        *devices.entry((placed.node, device.as_str())).or_default() += placed.portion;
    }
    if let Some(full) = devices.values().find(|used| **used > 1_000_000) {
        return Err(format!("a device was given away to {full} millionths"));
    }
    let opened = devices.len();
    let needed = (pods / 2) as usize;
    // Four queues take turns, so at most one device stays half used.
    if opened > needed { Err(format!("{opened} devices were opened where {needed} do")) } else { Ok(()) }
}
