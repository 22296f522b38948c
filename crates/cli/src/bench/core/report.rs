//! The report: a table for people, the same figures for programs, and plainly which targets were missed.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{
    float, growth,
    heap::{self, Weight},
    measure::{Measurement, Spread},
    shapes::{Metric, Shape},
    world::Size,
};

/// Everything that was measured.
pub struct Report {
    /// Rounds of each measurement.
    pub rounds: u32,
    /// The shapes.
    pub shapes: Vec<ShapeReport>,
    /// What objects weigh; empty if that was not asked for.
    pub weights: Vec<Weight>,
}

/// One shape.
pub struct ShapeReport {
    /// Which one.
    pub shape: Shape,
    /// What was measured, by size.
    pub measurements: Vec<Measurement>,
    /// Sizes that were left out, with the reason.
    pub skipped: Vec<(Size, String)>,
    /// The size at which the plan was wrong, and what was wrong.
    pub wrong: Option<(Size, String)>,
}

/// A target and what came of it.
struct Outcome {
    what: String,
    target: f64,
    at_least: bool,
    unit: &'static str,
    value: Option<f64>,
}

impl Outcome {
    fn met(&self) -> bool {
        self.value.is_some_and(|value| if self.at_least { value >= self.target } else { value <= self.target })
    }

    fn missed(&self) -> bool {
        self.value.is_some() && !self.met()
    }

    fn target_text(&self) -> String {
        let sign = if self.at_least { ">=" } else { "<=" };
        format!("{sign} {}{}", number(self.target), self.unit)
    }

    fn value_text(&self) -> String {
        self.value.map_or_else(|| "not measured".into(), |value| format!("{}{}", number(value), self.unit))
    }
}

impl ShapeReport {
    /// How processor time grows with nodes, pods growing along; and with pods alone.
    fn growth(&self) -> (Option<f64>, Option<f64>) {
        // A busy machine stretches long plans more than short ones; processor time of the quickest round is the least touched by it.
        self.growth_of(|measured| measured.processor.least)
    }

    /// The same for wall time.
    fn wall_growth(&self) -> (Option<f64>, Option<f64>) {
        self.growth_of(|measured| measured.time.least)
    }

    fn growth_of(&self, time: impl Fn(&Measurement) -> f64) -> (Option<f64>, Option<f64>) {
        let grown = self.measurements.iter().filter(|measured| measured.size.per_node == self.shape.per_node);
        let nodes: Vec<_> = grown.map(|measured| (f64::from(measured.size.nodes), time(measured))).collect();
        let at = self.shape.pods_sweep.map(|(nodes, _)| nodes);
        let swept = self.measurements.iter().filter(|measured| Some(measured.size.nodes) == at);
        let pods: Vec<_> = swept.map(|measured| (f64::from(measured.pods), time(measured))).collect();
        (growth::exponent(&nodes), growth::exponent(&pods))
    }

    fn value(&self, measured: &Measurement) -> f64 {
        match self.shape.metric {
            Metric::Time => measured.time.median,
            Metric::Placements => f64::from(measured.tally.placements()) * 1000.0 / measured.time.median,
        }
    }

    /// KAI's figure for the same work, in the unit of the metric, and how many times better ours is.
    fn against_kai(&self, measured: &Measurement) -> Option<(f64, f64)> {
        let kai = &self.shape.kai;
        if self.shape.metric == Metric::Placements {
            if let Some(rate) = kai.rate {
                return Some((rate, self.value(measured) / rate));
            }
            let milliseconds = kai.milliseconds(measured.size.nodes)?;
            let rate = f64::from(measured.tally.placements()) * 1000.0 / milliseconds;
            return Some((rate, milliseconds / measured.time.median));
        }
        let usual = measured.size.per_node == self.shape.per_node;
        let milliseconds = kai.milliseconds(measured.size.nodes).filter(|_| usual)?;
        Some((milliseconds, milliseconds / measured.time.median))
    }

    fn outcomes(&self) -> Vec<Outcome> {
        let name = self.shape.name;
        let (at_least, unit) = match self.shape.metric {
            Metric::Time => (false, " ms"),
            Metric::Placements => (true, "/s"),
        };
        let mut outcomes: Vec<_> = self
            .shape
            .targets
            .iter()
            .map(|(nodes, target)| {
                let size = Size { nodes: *nodes, per_node: self.shape.per_node };
                let measured = self.measurements.iter().find(|measured| measured.size == size);
                let value = measured.map(|measured| self.value(measured));
                Outcome { what: format!("{name}, {nodes} nodes"), target: *target, at_least, unit, value }
            })
            .collect();
        let (nodes, pods) = self.growth();
        let growth = |what: &str, value: Option<f64>| Outcome {
            what: format!("{name}, growth in {what}"),
            target: growth::TARGET,
            at_least: false,
            unit: "",
            value,
        };
        outcomes.extend(nodes.map(|_| growth("nodes", nodes)));
        outcomes.extend(pods.map(|_| growth("pods", pods)));
        outcomes
    }
}

impl Report {
    /// Shapes whose plan was wrong, each as a sentence.
    pub fn wrong(&self) -> Vec<String> {
        let wrong = self.shapes.iter().filter_map(|report| Some((report.shape.name, report.wrong.as_ref()?)));
        wrong.map(|(name, (size, what))| format!("{name} at {} nodes: {what}", size.nodes)).collect()
    }

    fn outcomes(&self) -> Vec<Outcome> {
        let heap = self.weights.iter().filter_map(|weight| {
            let what = format!("heap per {}", weight.what);
            Some(Outcome { what, target: weight.target?, at_least: false, unit: " B", value: weight.bytes })
        });
        self.shapes.iter().flat_map(ShapeReport::outcomes).chain(heap).collect()
    }

    fn control(&self) -> Option<Spread> {
        let measured = self.shapes.iter().flat_map(|report| &report.measurements);
        let all: Vec<&Spread> = measured.map(|measured| &measured.control).collect();
        let middle = Spread::of(all.iter().map(|control| control.median).collect())?.median;
        let least = all.iter().map(|control| control.least).fold(f64::INFINITY, f64::min);
        let most = all.iter().map(|control| control.most).fold(0.0, f64::max);
        Some(Spread { median: middle, least, most })
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let outcomes = self.outcomes();
        json!({
            "cores": cores(),
            "rounds": self.rounds,
            "control": self.control().map(spread),
            "shapes": self.shapes.iter().map(shape_json).collect::<Vec<_>>(),
            "heap": {
                "method": heap::method(),
                "weights": self.weights.iter().map(|weight| json!({
                    "what": weight.what, "count": weight.count, "bytesEach": weight.bytes.map(rounded),
                    "target": weight.target,
                })).collect::<Vec<_>>(),
            },
            "targets": outcomes.iter().map(|outcome| json!({
                "what": outcome.what, "target": outcome.target, "is": if outcome.at_least { "least" } else { "most" },
                "unit": outcome.unit.trim(), "value": outcome.value.map(rounded), "met": outcome.met(),
            })).collect::<Vec<_>>(),
            "met": outcomes.iter().filter(|outcome| outcome.met()).count(),
            "missed": outcomes.iter().filter(|outcome| outcome.missed()).count(),
            "notMeasured": outcomes.iter().filter(|outcome| outcome.value.is_none()).count(),
            "wrong": self.wrong(),
        })
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text =
            format!("{} cores, median of {} rounds; peak memory is {}\n", cores(), self.rounds, heap::method());
        if let Some(control) = self.control() {
            let Spread { median, least, most } = control;
            let _ = writeln!(
                text,
                "control, the same integer work each time: {median:.2} ms, from {least:.2} to {most:.2}"
            );
        }
        for report in &self.shapes {
            let _ = writeln!(text, "\n{}: {}", report.shape.name, report.shape.title);
            let _ = writeln!(
                text,
                "{}",
                row(&["nodes", "pods", "median", "least", "cpu", "placed/s", "target", "", "KAI", "times", "peak"])
            );
            for measured in &report.measurements {
                let _ = writeln!(text, "{}", row(&cells(report, measured).each_ref().map(String::as_str)));
            }
            for (size, reason) in &report.skipped {
                let _ = writeln!(text, "  {} nodes x {} left out: {reason}", size.nodes, size.per_node);
            }
            if let Some((size, what)) = &report.wrong {
                let _ = writeln!(text, "  WRONG PLAN at {} nodes: {what}", size.nodes);
            }
            text.push_str(&growth_line(report));
        }
        if !self.weights.is_empty() {
            let _ = writeln!(text, "\nheap: bytes for each object, {}", heap::method());
        }
        for weight in &self.weights {
            let bytes = weight.bytes.map_or_else(|| "unknown".into(), |bytes| format!("{} B", number(bytes)));
            let target = weight.target.map_or_else(String::new, |target| format!("<= {} B", number(target)));
            let _ = writeln!(text, "  {:<44} {bytes:>10}  {target}", weight.what);
        }
        let outcomes = self.outcomes();
        let met = outcomes.iter().filter(|outcome| outcome.met()).count();
        let _ = writeln!(text, "\n{met} of {} targets met", outcomes.len());
        for outcome in outcomes.iter().filter(|outcome| outcome.missed()) {
            let _ = writeln!(
                text,
                "  missed: {}: {}, target {}",
                outcome.what,
                outcome.value_text(),
                outcome.target_text()
            );
        }
        text
    }
}

fn cells(report: &ShapeReport, measured: &Measurement) -> [String; 11] {
    let placed = measured.tally.placements();
    let rate = (placed > 0).then(|| f64::from(placed) * 1000.0 / measured.time.median);
    let target = report.shape.target(measured.size);
    let met = target.map(|target| match report.shape.metric {
        Metric::Time => measured.time.median <= target,
        Metric::Placements => report.value(measured) >= target,
    });
    let kai = report.against_kai(measured);
    let ms = |value: f64| format!("{} ms", number(value));
    let in_unit = |value: f64| match report.shape.metric {
        Metric::Time => ms(value),
        Metric::Placements => format!("{}/s", number(value)),
    };
    [
        measured.size.nodes.to_string(),
        measured.pods.to_string(),
        ms(measured.time.median),
        ms(measured.time.least),
        ms(measured.processor.median),
        rate.map_or_else(String::new, number),
        target.map_or_else(String::new, in_unit),
        met.map_or("", |met| if met { "met" } else { "MISSED" }).to_owned(),
        kai.map_or_else(String::new, |(kai, _)| in_unit(kai)),
        kai.map_or_else(String::new, |(_, times)| format!("{}x", number(times))),
        measured.peak.map_or_else(String::new, |bytes| format!("{} MB", number(float(bytes) / 1e6))),
    ]
}

fn row(cells: &[&str]) -> String {
    let widths = [7, 8, 11, 11, 11, 10, 11, 7, 11, 10, 9];
    let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}"));
    padded.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

fn growth_line(report: &ShapeReport) -> String {
    let ((nodes, pods), (wall_nodes, wall_pods)) = (report.growth(), report.wall_growth());
    let mut parts: Vec<String> = [("nodes", nodes, wall_nodes), ("pods", pods, wall_pods)]
        .into_iter()
        .filter_map(|(what, exponent, wall)| Some((what, exponent?, wall?)))
        .map(|(what, exponent, wall)| {
            let met = if exponent <= growth::TARGET { "met" } else { "MISSED" };
            format!("{exponent:.2} in {what} (wall {wall:.2}; target <= {} {met})", growth::TARGET)
        })
        .collect();
    parts.extend(report.shape.kai.exponent.map(|exponent| format!("KAI {exponent:.2}")));
    let firsts = report.measurements.iter().filter_map(|measured| Some((measured.size, measured.first?)));
    let firsts: Vec<_> =
        firsts.map(|(size, first)| format!("{} x {}: {} ms", size.nodes, size.per_node, number(first))).collect();
    let mut line = String::new();
    if !parts.is_empty() {
        let _ = writeln!(line, "  growth: {}", parts.join(", "));
    }
    if !firsts.is_empty() {
        let _ = writeln!(line, "  first cycle of a new cluster: {}", firsts.join(", "));
    }
    if !report.shape.kai.note.is_empty() {
        let _ = writeln!(line, "  note: {}", report.shape.kai.note);
    }
    line
}

fn shape_json(report: &ShapeReport) -> Value {
    let ((nodes, pods), (wall_nodes, wall_pods)) = (report.growth(), report.wall_growth());
    let sizes = report.measurements.iter().map(|measured| {
        let kai = report.against_kai(measured);
        let placed = measured.tally.placements();
        let (tally, stats) = (measured.tally, measured.stats);
        json!({
            "nodes": measured.size.nodes,
            "pods": measured.pods,
            "milliseconds": spread(measured.time),
            "processorMilliseconds": spread(measured.processor),
            "controlMilliseconds": spread(measured.control),
            "firstMilliseconds": measured.first.map(rounded),
            "setUpMilliseconds": rounded(measured.set_up),
            "placementsPerSecond": (placed > 0).then(|| (f64::from(placed) * 1000.0 / measured.time.median).round()),
            "binds": tally.binds, "pipelines": tally.pipelines, "evictions": tally.evictions, "moved": tally.moved,
            "stats": {
                "groupsTried": stats.groups_tried, "searches": stats.searches, "searchesRefused": stats.searches_refused,
                "simulations": stats.simulations, "nodesExamined": stats.nodes_examined,
            },
            "peakBytes": measured.peak,
            "target": report.shape.target(measured.size),
            "kai": kai.map(|(kai, _)| rounded(kai)),
            "timesBetterThanKai": kai.map(|(_, times)| rounded(times)),
        })
    });
    json!({
        "name": report.shape.name,
        "title": report.shape.title,
        "unit": match report.shape.metric { Metric::Time => "ms", Metric::Placements => "/s" },
        "sizes": sizes.collect::<Vec<_>>(),
        "skipped": report.skipped.iter().map(|(size, why)| json!({
            "nodes": size.nodes, "perNode": size.per_node, "why": why,
        })).collect::<Vec<_>>(),
        "wrong": report.wrong.as_ref().map(|(_, what)| what),
        "growth": {
            "of": "processor time", "nodes": nodes.map(rounded), "pods": pods.map(rounded),
            "wallNodes": wall_nodes.map(rounded), "wallPods": wall_pods.map(rounded), "target": growth::TARGET,
            "kaiNodes": report.shape.kai.exponent,
        },
        "kaiNote": report.shape.kai.note,
    })
}

/// For programs.
pub fn spread(spread: Spread) -> Value {
    json!({ "median": rounded(spread.median), "least": rounded(spread.least), "most": rounded(spread.most) })
}

/// Four digits that count are enough for any machine.
pub fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10_f64.powf(3.0 - value.abs().log10().floor());
    (value * scale).round() / scale
}

/// Three digits that count, with thousands apart.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => thousands(&format!("{value:.0}")),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn thousands(digits: &str) -> String {
    let grouped = digits.as_bytes().rchunks(3).rev().map(|chunk| String::from_utf8_lossy(chunk).into_owned());
    grouped.collect::<Vec<_>>().join(",")
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests;
