//! What is measured: each shape with its sizes, its targets, the outcome it must have, and what KAI needs for it.

mod allocate;
mod consolidation;
mod quiet;
mod reclaim;

use kai_core::{
    Cluster,
    plan::{Decision, Plan},
    policy::Policy,
};

use super::world::{Size, World};

/// One kind of work.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
    /// Sizes of the cluster over which growth is measured.
    pub nodes: &'static [u32],
    /// Pods for each node.
    pub per_node: u32,
    /// At so many nodes the pods for each node are varied: growth in pods alone.
    pub pods_sweep: Option<(u32, &'static [u32])>,
    /// The smallest cluster that has this shape.
    pub smallest: u32,
    /// How it is decided.
    pub policy: fn() -> Policy,
    /// The cluster.
    pub describe: fn(Size, &mut World<'_>),
    /// What a right plan has; otherwise a sentence.
    pub check: fn(Size, &Cluster, &Plan) -> Result<(), String>,
    /// What happens between two cycles of one cluster. Without it each plan gets a fresh cluster.
    pub between: Option<fn(Size, u32, &mut World<'_>)>,
    /// What counts.
    pub metric: Metric,
    /// Targets by number of nodes, in the unit of the metric.
    pub targets: &'static [(u32, f64)],
    /// KAI on this work.
    pub kai: Kai,
}

/// What counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Pods placed per second.
    Placements,
    /// Milliseconds of a plan.
    Time,
}

/// What is known of KAI on a shape: measured on 2 cores, without the fixed set-up of its benchmarks.
#[derive(Clone, Copy, Debug)]
pub struct Kai {
    /// Pods placed per second.
    pub rate: Option<f64>,
    /// Milliseconds by number of nodes.
    pub times: &'static [(u32, f64)],
    /// How its time grows with nodes.
    pub exponent: Option<f64>,
    /// Where that differs from the shape.
    pub note: &'static str,
}

impl Kai {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { rate: None, times: &[], exponent: None, note: "" };

    /// Its milliseconds at so many nodes.
    pub fn milliseconds(&self, nodes: u32) -> Option<f64> {
        self.times.iter().find(|(known, _)| *known == nodes).map(|(_, milliseconds)| *milliseconds)
    }
}

/// Every shape, in the order of the report.
pub fn all() -> Vec<Shape> {
    [allocate::shapes(), quiet::shapes(), reclaim::shapes(), consolidation::shapes()].concat()
}

impl Shape {
    /// The sizes to measure, ascending: those over which growth is measured (or `asked`), and unless `exact` those with a target.
    pub fn sizes(&self, asked: Option<&[u32]>, exact: bool) -> Vec<Size> {
        let mut nodes: Vec<u32> = asked.unwrap_or(self.nodes).to_vec();
        let mut sweep = vec![];
        if !exact {
            nodes.extend(self.targets.iter().map(|(nodes, _)| *nodes));
            if let Some((nodes, per_node)) = self.pods_sweep {
                sweep.extend(per_node.iter().map(|per_node| Size { nodes, per_node: *per_node }));
            }
        }
        let grown = nodes.into_iter().map(|nodes| Size { nodes, per_node: self.per_node }).chain(sweep);
        let mut sizes: Vec<Size> = grown.filter(|size| size.nodes >= self.smallest).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The target at a size, if there is one.
    pub fn target(&self, size: Size) -> Option<f64> {
        let of_nodes = self.targets.iter().find(|(nodes, _)| *nodes == size.nodes && size.per_node == self.per_node);
        of_nodes.map(|(_, target)| *target)
    }
}

/// How many decisions of each kind a plan has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pods bound.
    pub binds: u32,
    /// Pods promised a place.
    pub pipelines: u32,
    /// Pods ended.
    pub evictions: u32,
    /// Of those, pods that got another place.
    pub moved: u32,
}

impl Tally {
    /// Counts a plan's decisions.
    pub fn of(plan: &Plan) -> Self {
        let mut tally = Self::default();
        for decision in &plan.decisions {
            match decision {
                Decision::Bind(_) => tally.binds += 1,
                Decision::Pipeline(_) => tally.pipelines += 1,
                Decision::Evict(eviction) => {
                    tally.evictions += 1;
                    tally.moved += u32::from(eviction.moved);
                }
                Decision::Started { .. } | Decision::Stale { .. } => {}
            }
        }
        tally
    }

    /// Pods that got a place: what the rate of placements counts.
    pub fn placements(self) -> u32 {
        self.binds + self.pipelines
    }

    /// Fails unless a plan has exactly these decisions.
    pub fn expect(self, plan: &Plan) -> Result<(), String> {
        let found = Self::of(plan);
        if found == self { Ok(()) } else { Err(format!("expected {self}, got {found}")) }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { binds, pipelines, evictions, moved } = self;
        write!(f, "{binds} bound, {pipelines} pipelined, {evictions} evicted ({moved} of them moved)")
    }
}

#[cfg(test)]
mod tests;
