//! What a cluster weighs: bytes for each node, each running and each pending pod, and the peak of a plan.
//!
//! Bytes are counted exactly where the program's allocator counts them (`--features count-heap` of the `kai` package). Counting costs a
//! locked instruction for every allocation, too much for every day, so otherwise resident memory stands in: what the kernel gave out.

use std::sync::OnceLock;

use kai_core::{Cluster, delta::Gpus};

use super::world::{Job, World, quota, unlimited};
use crate::bench::memory::{forget_peak, peak_resident_bytes, resident_bytes};

/// Where the program's allocator says what it gave out.
#[derive(Clone, Copy, Debug)]
pub struct HeapCounter {
    /// Bytes in use.
    pub live: fn() -> usize,
    /// The most bytes that were in use at once since the program began.
    pub most: fn() -> usize,
}

static COUNTER: OnceLock<HeapCounter> = OnceLock::new();

/// Tells benchmarks where bytes are counted. Only the first caller is heard.
pub fn count_heap_with(counter: HeapCounter) {
    let _ = COUNTER.set(counter);
}

/// How bytes were found out.
pub fn method() -> &'static str {
    if COUNTER.get().is_some() { "counted" } else { "resident" }
}

fn live() -> Option<u64> {
    match COUNTER.get() {
        Some(counter) => u64::try_from((counter.live)()).ok(),
        None => resident_bytes(),
    }
}

/// Runs `work` and says how many bytes more than before it needed at its peak.
pub fn peak_during<T>(work: impl FnOnce() -> T) -> (T, Option<u64>) {
    let Some(counter) = COUNTER.get() else {
        let before = forget_peak().and_then(|()| resident_bytes());
        let outcome = work();
        let peak = before.zip(peak_resident_bytes()).map(|(before, peak)| peak.saturating_sub(before));
        return (outcome, peak);
    };
    // The counter's peak never falls. Raised to it by memory that is reserved and never touched, every further byte shows.
    let ballast: Vec<u8> = Vec::with_capacity((counter.most)().saturating_sub((counter.live)()));
    let before = (counter.most)();
    let outcome = work();
    let peak = (counter.most)().saturating_sub(before);
    drop(std::hint::black_box(ballast));
    (outcome, u64::try_from(peak).ok())
}

/// The bytes of one kind of object.
#[derive(Clone, Copy, Debug)]
pub struct Weight {
    /// What it is.
    pub what: &'static str,
    /// How many there were.
    pub count: u32,
    /// Bytes for each; `None` where the system does not say.
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
    // All clusters stay until the end: memory that came back would hide what the next one takes.
    let mut nodes_only = Cluster::new();
    let before = live();
    fill(&mut nodes_only, |world| world.nodes(nodes, GPUS, |_, _| {}));
    let node = per(before, nodes);

    let weigh_pods = |running: bool, pods: bool| {
        let mut cluster = Cluster::new();
        fill(&mut cluster, |world| {
            world.nodes(nodes, GPUS, |_, _| {});
            world.queue("all", None, unlimited()).queue("team", Some("all"), quota(nodes * GPUS, 1));
        });
        let before = live();
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
        (per(before, if pods { running_pods } else { running_groups }), cluster)
    };
    let (group, groups) = weigh_pods(false, false);
    let (running, with_running) = weigh_pods(true, true);
    let (pending, with_pending) = weigh_pods(false, true);
    drop((nodes_only, groups, with_running, with_pending));
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

fn per(before: Option<u64>, count: u32) -> Option<f64> {
    let grown = live()?.saturating_sub(before?);
    Some(super::float(grown) / f64::from(count.max(1)))
}
