//! How long a plan takes: the median of some rounds, each checked, with fixed integer work beside it that shows the machine's noise.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use kai_core::{
    Cluster,
    delta::Delta,
    plan::{Plan, Stats},
    policy::Policy,
    time::Time,
};
use rustix::time::{ClockId, clock_gettime};

use super::{
    heap,
    shapes::{Shape, Tally},
    world::{NOW, Size, World},
};

/// What makes a plan.
pub type Planner = fn(&mut Cluster, Time, &Policy) -> Plan;

/// One shape at one size.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The size.
    pub size: Size,
    /// Pods of the cluster, running and pending.
    pub pods: u32,
    /// Wall time of a plan.
    pub time: Spread,
    /// Processor time of a plan: what it would have taken on a machine of its own.
    pub processor: Spread,
    /// The fixed work, once before each plan.
    pub control: Spread,
    /// The first plan of the cluster, where later ones are what counts.
    pub first: Option<f64>,
    /// Building the cluster from deltas.
    pub set_up: f64,
    /// What was decided.
    pub tally: Tally,
    /// How much work it was.
    pub stats: Stats,
    /// Bytes that the plan needed on top of the cluster.
    pub peak: Option<u64>,
}

/// Milliseconds of some rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The quickest.
    pub least: f64,
    /// The slowest.
    pub most: f64,
}

impl Spread {
    /// Of at least one value.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) };
        Some(Self { median, least, most })
    }
}

#[derive(Default)]
struct Rounds {
    time: Vec<f64>,
    processor: Vec<f64>,
    control: Vec<f64>,
}

/// Measures a shape at a size; a wrong plan is an error that says what is wrong.
pub fn measure(shape: &Shape, size: Size, rounds: u32, planner: Planner) -> Result<Measurement, String> {
    let policy = (shape.policy)();
    let check = |cluster: &Cluster, plan: &Plan| (shape.check)(size, cluster, plan);

    let begin = Instant::now();
    let (mut cluster, pods) = build(shape, size);
    let set_up = milliseconds(begin.elapsed());
    let begin = Instant::now();
    let (plan, peak) = heap::peak_during(|| planner(&mut cluster, NOW, &policy));
    let first = milliseconds(begin.elapsed());
    check(&cluster, &plan)?;

    let mut taken = Rounds::default();
    for round in 0..rounds {
        match shape.between {
            Some(between) => between(size, round, &mut World::new(&mut |delta| cluster.apply(delta))),
            None => cluster = build(shape, size).0,
        }
        let again = taken.time(|| planner(&mut cluster, NOW, &policy));
        check(&cluster, &again)?;
        if shape.between.is_none() && again != plan {
            return Err("equal input gave different plans".into());
        }
    }
    let spread = |values| Spread::of(values).ok_or_else(|| "no round was asked for".to_owned());
    Ok(Measurement {
        size,
        pods,
        time: spread(taken.time)?,
        processor: spread(taken.processor)?,
        control: spread(taken.control)?,
        first: shape.between.map(|_| first),
        set_up,
        tally: Tally::of(&plan),
        stats: plan.stats,
        peak,
    })
}

/// The cluster of a shape, and how many pods it has.
pub fn build(shape: &Shape, size: Size) -> (Cluster, u32) {
    let (mut cluster, mut pods) = (Cluster::new(), 0);
    (shape.describe)(
        size,
        &mut World::new(&mut |delta| {
            pods += u32::from(matches!(delta, Delta::Pod(_)));
            cluster.apply(delta);
        }),
    );
    (cluster, pods)
}

impl Rounds {
    fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        fixed_work();
        self.control.push(milliseconds(begin.elapsed()));
        let (begin, processor) = (Instant::now(), processor_time());
        let outcome = black_box(work());
        self.time.push(milliseconds(begin.elapsed()));
        self.processor.push(milliseconds(processor_time().saturating_sub(processor)));
        outcome
    }
}

/// About two milliseconds of integer work that touches no memory.
fn fixed_work() {
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..1_000_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// Processor time of this process so far.
pub fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

fn milliseconds(elapsed: Duration) -> f64 {
    elapsed.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        let odd = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!(odd, Spread { median: 2.0, least: 1.0, most: 3.0 });
        let even = Spread::of(vec![4.0, 1.0, 2.0, 3.0]).unwrap();
        assert!((even.median - 2.5).abs() < 1e-9);
        assert_eq!(Spread::of(vec![]), None);
    }

    #[test]
    fn processor_time_passes_while_there_is_work() {
        let mut rounds = Rounds::default();
        rounds.time(|| (0..20).for_each(|_| fixed_work()));
        assert!(rounds.processor[0] > 0.0 && rounds.time[0] > 0.0 && rounds.control[0] > 0.0);
    }
}
