//! What a cluster weighs: bytes for each node, each running and each pending pod, and the peak of a plan.
//!
//! Every byte is counted by the program's allocator ([`kai_heap`]), for this thread: planning uses no other.

use kai_core::{Cluster, delta::Gpus};

use super::world::{Job, World, quota, unlimited};

/// How bytes were found out.
pub fn method() -> &'static str {
    if kai_heap::is_counting() { "counted" } else { "not counted by this program" }
}

/// Runs `work` and says how many bytes more than before it needed at its peak; `None` where nobody counts.
pub fn peak_during<T>(work: impl FnOnce() -> T) -> (T, Option<u64>) {
    let (outcome, peak) = kai_heap::peak_during(work);
    (outcome, u64::try_from(peak).ok().filter(|_| kai_heap::is_counting()))
}

/// The bytes of one kind of object.
#[derive(Clone, Copy, Debug)]
pub struct Weight {
    /// What it is.
    pub what: &'static str,
    /// How many there were.
    pub count: u32,
    /// Bytes for each; `None` where nobody counts.
    pub bytes: Option<f64>,
    /// The most it should be.
    pub target: Option<f64>,
}

const GANG: u32 = 8;
const GPUS: u32 = 10;

/// Weighs nodes, running pods and pending pods, each in a cluster of its own.
pub fn weigh(nodes: u32) -> Vec<Weight> {
    let running_groups = nodes * GPUS / GANG;
    let running_pods = running_groups * GANG;
    let mut nodes_only = Cluster::new();
    let before = kai_heap::live();
    fill(&mut nodes_only, |world| world.nodes(nodes, GPUS, |_, _| {}));
    let node = per(before, nodes);
    drop(nodes_only);

    let weigh_pods = |running: bool, pods: bool| {
        let mut cluster = Cluster::new();
        fill(&mut cluster, |world| {
            world.nodes(nodes, GPUS, |_, _| {});
            world.queue("all", None, unlimited()).queue("team", Some("all"), quota(nodes * GPUS, 1));
        });
        let before = kai_heap::live();
        fill(&mut cluster, |world| {
            for number in 0..running_groups {
                let mut job = Job::new(&format!("train-{number:06}"), "team").gang(GANG).asking(Gpus::Whole(1));
                if running {
                    job.nodes = (0..GANG).map(|pod| (number * GANG + pod) / GPUS).collect();
                }
                job.pods = if pods { GANG } else { 0 };
                world.job(&job);
            }
        });
        per(before, if pods { running_pods } else { running_groups })
    };
    let group = weigh_pods(false, false);
    let running = weigh_pods(true, true);
    let pending = weigh_pods(false, true);
    let weight = |what, count, bytes, target| Weight { what, count, bytes, target };
    vec![
        weight("node", nodes, node, Some(1024.0)),
        weight("running pod, with its part of a group of 8", running_pods, running, Some(250.0)),
        weight("pending pod, with its part of a group of 8", running_pods, pending, Some(400.0)),
        weight("group without pods", running_groups, group, None),
    ]
}

fn fill(cluster: &mut Cluster, describe: impl FnOnce(&mut World<'_>)) {
    describe(&mut World::new(&mut |delta| cluster.apply(delta)));
}

fn per(before: isize, count: u32) -> Option<f64> {
    let grown = u64::try_from(kai_heap::live() - before).ok().filter(|_| kai_heap::is_counting())?;
    Some(super::float(grown) / f64::from(count.max(1)))
}
