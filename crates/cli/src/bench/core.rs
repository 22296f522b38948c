//! `kai bench core`: how fast the scheduling core decides, how that grows, what it weighs, and KAI's figures beside it.
//!
//! Each shape is a cluster made of deltas. Only [`kai_core::plan`] is timed; what it decided is checked, and a wrong plan fails the
//! benchmark. A missed target does not: it is said.

mod growth;
pub mod heap;
pub mod measure;
mod policy;
pub mod report;
mod shapes;
mod world;

use clap::builder::PossibleValue;

use self::{
    measure::{Measurement, Planner, Spread},
    report::{Report, ShapeReport},
    shapes::Shape,
    world::Size,
};
use crate::output::{self, Format};

/// What `--only` calls the weighing of objects.
const HEAP: &str = "heap";

/// Options of `kai bench core`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kai bench core                                   everything, about two minutes
  kai bench core --only allocate gangs             two shapes
  kai bench core --nodes 1000,5000,20000 -o json   other sizes for growth, for programs
  kai bench core --nodes 200 --exact-sizes         a quick look: this size only

A missed target is reported, not an error. A plan that decides wrongly is an error.")]
pub struct Options {
    /// Sizes of the clusters over which growth is measured [default: each shape's own].
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    nodes: Option<Vec<u32>>,
    /// Only the sizes of `--nodes`, not also those that have a target.
    #[arg(long, requires = "nodes")]
    exact_sizes: bool,
    /// Only these shapes.
    #[arg(long, value_name = "NAME", num_args = 1.., value_parser = names())]
    only: Vec<String>,
    /// How often each plan is timed, after one that is not.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Leave out a size that would take longer than this by what smaller ones took.
    #[arg(long, default_value_t = 120, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    patience: u32,
    /// How to print the result.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

fn names() -> Vec<PossibleValue> {
    let shapes = shapes::all().into_iter().map(|shape| PossibleValue::new(shape.name).help(shape.title));
    shapes.chain([PossibleValue::new(HEAP).help("bytes for each node and pod")]).collect()
}

/// Runs the benchmark.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let report = measure_all(options, kai_core::plan);
    match options.output {
        Format::Json => output::print(&serde_json::to_string_pretty(&report.json())?)?,
        Format::Text => output::print(&report.text())?,
    }
    let wrong = report.wrong();
    anyhow::ensure!(wrong.is_empty(), "wrong plans:\n  {}", wrong.join("\n  "));
    Ok(())
}

fn measure_all(options: &Options, planner: Planner) -> Report {
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    // First, while memory is as the program found it.
    let weights = if wanted(HEAP) {
        anstream::eprintln!("heap: 20000 nodes, 200000 pods");
        heap::weigh(20_000)
    } else {
        vec![]
    };
    let shapes = shapes::all().into_iter().filter(|shape| wanted(shape.name));
    let shapes = shapes.map(|shape| measure_shape(shape, options, planner)).collect();
    Report { rounds: options.rounds, shapes, weights }
}

fn measure_shape(shape: Shape, options: &Options, planner: Planner) -> ShapeReport {
    let mut report = ShapeReport { shape, measurements: vec![], skipped: vec![], wrong: None };
    for size in shape.sizes(options.nodes.as_deref(), options.exact_sizes) {
        if let Some(seconds) = foreseen(&report.measurements, size, options.rounds)
            && seconds > f64::from(options.patience)
        {
            let why = format!("it would take about {seconds:.0} s, see --patience");
            report.skipped.push((size, why));
            continue;
        }
        anstream::eprintln!("{}: {} nodes x {} pods", shape.name, size.nodes, size.per_node);
        match measure::measure(&shape, size, options.rounds, planner) {
            Ok(measured) => {
                let Spread { median, least, most } = measured.time;
                anstream::eprintln!("  {median:.3} ms, from {least:.3} to {most:.3}; {}", measured.tally);
                report.measurements.push(measured);
            }
            Err(what) => {
                anstream::eprintln!("{}: WRONG PLAN at {} nodes: {what}", shape.name, size.nodes);
                report.wrong = Some((size, what));
                break;
            }
        }
    }
    report
}

/// How long a size would take if time grew as badly as KAI's does.
fn foreseen(measured: &[Measurement], size: Size, rounds: u32) -> Option<f64> {
    let last = measured.last()?;
    let pods = |size: Size| f64::from(size.nodes) * f64::from(size.per_node);
    let grown = (pods(size) / pods(last.size)).max(1.0).powf(2.5);
    Some((last.time.median * grown + last.set_up) * f64::from(rounds + 1) / 1000.0)
}

/// A number of bytes for arithmetic: far below where a float is inexact.
#[expect(clippy::cast_precision_loss, reason = "bytes of one machine's memory are exact in 53 bits")]
pub fn float(bytes: u64) -> f64 {
    bytes as f64
}
