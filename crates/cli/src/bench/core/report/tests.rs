//! What the report says of targets, growth and what was left out.

use kai_core::{
    ids::{NodeId, PodId},
    plan::{Decision, Placed, Plan, Stats},
};

use super::*;
use crate::bench::core::shapes::{self, Tally};

fn shape(name: &str) -> Shape {
    shapes::all().into_iter().find(|shape| shape.name == name).unwrap()
}

fn measured(nodes: u32, per_node: u32, milliseconds: f64, pipelines: u32) -> Measurement {
    let spread = Spread { median: milliseconds, least: milliseconds, most: milliseconds };
    Measurement {
        size: Size { nodes, per_node },
        pods: nodes * per_node,
        time: spread,
        processor: spread,
        control: Spread { median: 2.0, least: 1.5, most: 4.0 },
        first: None,
        set_up: 1.0,
        tally: Tally { pipelines, ..Tally::default() },
        stats: Stats::default(),
        peak: Some(1_000_000),
    }
}

fn report(shape: Shape, measurements: Vec<Measurement>) -> Report {
    let shapes = vec![ShapeReport { shape, measurements, skipped: vec![], wrong: None }];
    Report { rounds: 3, shapes, weights: vec![] }
}

#[test]
fn targets_growth_and_kais_figures_are_reported() {
    let times = [(100, 2.0), (1000, 20.0), (5000, 200.0)];
    let measurements = times.map(|(nodes, time)| measured(nodes, 8, time, nodes / 2)).to_vec();
    let report = report(shape("reclaim-large"), measurements);
    let json = report.json();
    assert_eq!(json["shapes"][0]["sizes"][1]["timesBetterThanKai"], 1335.0);
    assert_eq!(json["shapes"][0]["sizes"][1]["target"], 25.0);
    let missed: Vec<_> = json["targets"].as_array().unwrap().iter().filter(|target| target["met"] == false).collect();
    assert_eq!(missed.len(), 2, "5,000 nodes take too long, and so time grows too fast: {missed:?}");
    assert_eq!(json["control"]["most"], 4.0);
    let text = report.text();
    assert!(text.contains("missed: reclaim-large, 5000 nodes: 200 ms, target <= 150 ms"), "{text}");
}

#[test]
fn growth_in_pods_is_that_at_one_number_of_nodes() {
    let measurements = vec![measured(1000, 2, 1.0, 0), measured(1000, 4, 4.0, 0), measured(1000, 8, 16.0, 0)];
    let (nodes, pods) = report(shape("reclaim-large"), measurements).shapes[0].growth();
    assert_eq!(nodes, None);
    assert!((pods.unwrap() - 2.0).abs() < 1e-9);
}

#[test]
fn a_target_at_a_size_that_was_not_measured_is_neither_met_nor_missed() {
    let json = report(shape("quiet"), vec![]).json();
    assert_eq!((json["met"].as_u64(), json["missed"].as_u64()), (Some(0), Some(0)));
    assert_eq!(json["notMeasured"], 1);
    assert_eq!(json["targets"][0]["value"], Value::Null);
}

#[test]
fn decisions_are_counted_by_kind() {
    let placed = || Placed {
        pod: PodId(0),
        node: NodeId(0),
        devices: vec![],
        portion: 0,
        claims: vec![],
        extended: vec![],
        numa: vec![],
    };
    let decisions = vec![Decision::Bind(placed()), Decision::Pipeline(placed()), Decision::Pipeline(placed())];
    let tally = Tally::of(&Plan { decisions, ..Plan::default() });
    assert_eq!(tally, Tally { binds: 1, pipelines: 2, evictions: 0, moved: 0 });
}

#[test]
fn numbers_are_short() {
    assert_eq!(number(1_234_567.8), "1,234,568");
    assert_eq!(number(0.01234), "0.012");
    assert_eq!(number(12.34), "12.3");
    assert_eq!(thousands("123"), "123");
    assert!((rounded(0.001_234_56) - 0.001_235).abs() < 1e-12);
}
