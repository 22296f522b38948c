//! The report: a table for people, the same figures for programs, and plainly which targets were missed.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{
    calls::is_write,
    figures::{Contender, Figures, Round, Rounds, rounds_of, spread},
    ground::Where,
};
use crate::bench::core::{
    float,
    measure::Spread,
    report::{cores, number, rounded, spread as spread_json},
};

/// At least this part of what a loop that only binds does.
const OF_CEILING: f64 = 0.9;
/// The longest time for the gang of the target's size, in seconds.
const GANG_SECONDS: f64 = 3.0;
const GANG: u32 = 512;

/// A target and what came of it.
struct Target {
    what: String,
    text: String,
    value: Option<Spread>,
    met: bool,
}

fn targets(figures: &Figures) -> Vec<Target> {
    let mut targets = Vec::new();
    let there = [1, 32].map(|at_once| Contender::BindLoop { at_once });
    let as_they_come = [1, 32].map(|at_once| Contender::BindAsTheyCome { at_once });
    for loops in [there, as_they_come] {
        if let Some(value) = figures.kai_of_ceiling(&loops) {
            targets.push(Target {
                what: format!("whole GPUs, pods/s of the fastest: {}", loops[0]),
                text: format!(">= {OF_CEILING}"),
                met: value.median >= OF_CEILING,
                value: Some(value),
            });
        }
    }
    if let Some(rounds) = rounds_of(&figures.gang, &Contender::Kai)
        && let Some(value) = spread(rounds, |round| round.took.as_secs_f64())
        && rounds.iter().all(|round| round.pods == GANG)
        && !matches!(figures.place, Where::Real(_))
    {
        targets.push(Target {
            what: format!("gang of {GANG} pods on {GANG} nodes, seconds"),
            text: format!("<= {GANG_SECONDS}"),
            met: value.median <= GANG_SECONDS,
            value: Some(value),
        });
    }
    targets
}

/// For people.
pub fn text(figures: &Figures) -> String {
    let server = match figures.place {
        Where::Embedded => "embedded API server, a process of its own",
        Where::InProcess => "embedded API server, called as a function in this process",
        Where::Real(_) => "real API server",
    };
    let mut text =
        format!("{server}; {} cores, {} rounds, median (least to most); nodes with 8 GPUs\n", cores(), figures.rounds);
    for (title, rounds) in
        [("whole GPUs", &figures.whole), ("half GPUs", &figures.fractions), ("gang, a pod per node", &figures.gang)]
    {
        text.push_str(&table(title, rounds));
    }
    if let Some(start) = rounds_of(&figures.whole, &Contender::KaiLater).and_then(|rounds| spread(rounds, Round::first))
    {
        let _ = writeln!(
            text,
            "\nms from the start of a scheduler that finds all pods there to the first that is bound: {}",
            ranged(start)
        );
    }
    if let Some(calls) = calls_text("whole GPUs", &figures.calls) {
        text.push_str(&calls);
    }
    if let Some(calls) = calls_text("half GPUs", &figures.calls_of_fractions) {
        text.push_str(&calls);
    }
    if let Some(weights) = &figures.memory {
        let _ = writeln!(text, "\nresident memory, {} pods on {} nodes", weights.pods, weights.nodes);
        let _ = writeln!(text, "  {:<16} {:>12} {:>12} {:>14}", "component", "at first", "at last", "bytes a pod");
        let mut sum = (0, 0);
        for (name, before, after) in &weights.parts {
            sum = (sum.0 + before, sum.1 + after);
            let _ = writeln!(text, "{}", weight_row(name, *before, *after, weights.pods));
        }
        let _ = writeln!(text, "{}", weight_row("all", sum.0, sum.1, weights.pods));
    }
    let ratios = others(figures).filter_map(|other| Some((other, figures.kai_against(other, Round::rate)?)));
    for (index, (other, ratio)) in ratios.enumerate() {
        let title = if index == 0 { "\npods/s of kai against who did the same\n" } else { "" };
        let _ = writeln!(text, "{title}  {:<60} {:>22}", other.to_string(), ranged(ratio));
    }
    let targets = targets(figures);
    if !targets.is_empty() {
        let met = targets.iter().filter(|target| target.met).count();
        let _ = writeln!(text, "\n{met} of {} targets met", targets.len());
    }
    for target in &targets {
        let value = target.value.map_or_else(|| "not measured".to_owned(), ranged);
        let met = if target.met { "met" } else { "MISSED" };
        let _ = writeln!(text, "  {:<60} {value:>22}  {:<8} {met}", target.what, target.text);
    }
    text
}

fn table(title: &str, rounds: &Rounds) -> String {
    let mut text = String::new();
    let Some((_, first)) = rounds.first() else { return text };
    let pods = first.first().map_or(0, |round| round.pods);
    let row = |cells: [&str; 7]| {
        let [who, rate, seconds, half, most, processor, server] = cells;
        format!("  {who:<28} {rate:>26} {seconds:>9} {half:>9} {most:>9} {processor:>13} {server:>8}\n")
    };
    let _ = writeln!(text, "\n{title}: {pods} pods");
    text.push_str(&row(["", "pods/s", "seconds", "p50 ms", "p99 ms", "cpu ms a pod", "server"]));
    for (contender, rounds) in rounds {
        let middle = |measure: fn(&Round) -> f64| spread(rounds, measure).map_or(f64::NAN, |spread| spread.median);
        text.push_str(&row([
            &contender.to_string(),
            &spread(rounds, Round::rate).map_or_else(String::new, ranged),
            &number(middle(|round| round.took.as_secs_f64())),
            &number(middle(|round| round.percentile(50))),
            &number(middle(|round| round.percentile(99))),
            &number(middle(Round::processor_milliseconds)),
            &Some(middle(Round::server_milliseconds)).filter(|each| !each.is_nan()).map_or_else(String::new, number),
        ]));
    }
    text
}

fn calls_text(title: &str, calls: &[(String, String, f64)]) -> Option<String> {
    if calls.is_empty() {
        return None;
    }
    let all: f64 = calls.iter().map(|(.., count)| count).sum();
    let writes: f64 = calls.iter().filter(|(_, call, _)| is_write(call)).map(|(.., count)| count).sum();
    let mut text = format!("\nrequests per pod, {title}: {all:.2}, of which {writes:.2} write\n");
    for (component, call, count) in calls.iter().filter(|(.., count)| *count >= 0.01) {
        let _ = writeln!(text, "  {component:<16} {call:<28} {count:>6.2}");
    }
    Some(text)
}

fn weight_row(name: &str, before: u64, after: u64, pods: u32) -> String {
    let megabytes = |bytes: u64| format!("{:.1} MB", float(bytes) / 1e6);
    let each = float(after.saturating_sub(before)) / f64::from(pods.max(1));
    format!("  {name:<16} {:>12} {:>12} {:>14}", megabytes(before), megabytes(after), number(each))
}

fn ranged(spread: Spread) -> String {
    format!("{} ({} to {})", number(spread.median), number(spread.least), number(spread.most))
}

/// Those that kai is measured against.
fn others(figures: &Figures) -> impl Iterator<Item = &Contender> {
    let all = figures.whole.iter().map(|(contender, _)| contender);
    all.filter(|who| !matches!(who, Contender::Kai | Contender::KaiLater))
}

/// For programs.
pub fn json(figures: &Figures) -> Value {
    let targets = targets(figures);
    let ratios = others(figures).map(|other| {
        json!({
            "against": other.to_string(),
            "podsPerSecond": figures.kai_against(other, Round::rate).map(spread_json),
            "processorTime": figures.kai_against(other, Round::processor_milliseconds).map(spread_json),
        })
    });
    json!({
        "server": match figures.place {
            Where::Embedded => "embedded",
            Where::InProcess => "in-process",
            Where::Real(_) => "real",
        },
        "cores": cores(),
        "rounds": figures.rounds,
        "whole": rounds_json(&figures.whole),
        "ratios": ratios.collect::<Vec<_>>(),
        "fractions": rounds_json(&figures.fractions),
        "gang": rounds_json(&figures.gang),
        "requestsPerPod": calls_json(&figures.calls),
        "requestsPerPodOfFractions": calls_json(&figures.calls_of_fractions),
        "memory": figures.memory.as_ref().map(|weights| json!({
            "pods": weights.pods,
            "nodes": weights.nodes,
            "components": weights.parts.iter().map(|(name, before, after)| json!({
                "component": name, "residentBytesBefore": before, "residentBytes": after,
            })).collect::<Vec<_>>(),
        })),
        "targets": targets.iter().map(|target| json!({
            "what": target.what, "target": target.text, "value": target.value.map(spread_json), "met": target.met,
        })).collect::<Vec<_>>(),
    })
}

fn rounds_json(rounds: &Rounds) -> Value {
    let each = rounds.iter().map(|(contender, rounds)| {
        let of = |measure: fn(&Round) -> f64| spread(rounds, measure).map(spread_json);
        json!({
            "who": contender.to_string(),
            "pods": rounds.first().map(|round| round.pods),
            "podsPerSecond": of(Round::rate),
            "seconds": of(|round| round.took.as_secs_f64()),
            "firstMilliseconds": of(Round::first),
            "p50Milliseconds": of(|round| round.percentile(50)),
            "p99Milliseconds": of(|round| round.percentile(99)),
            "processorMillisecondsPerPod": of(Round::processor_milliseconds),
            "serverMillisecondsPerPod": of(Round::server_milliseconds),
        })
    });
    each.collect()
}

fn calls_json(calls: &[(String, String, f64)]) -> Value {
    let each = calls
        .iter()
        .map(|(component, call, count)| json!({ "component": component, "request": call, "perPod": rounded(*count) }));
    each.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::spent::Spent, *};

    fn rounds(seconds: u64) -> Vec<Round> {
        let spent = Spent { own: Duration::from_secs(1), server: None };
        let round = |took| Round { pods: GANG, took, spent, latencies: vec![1.0, 2.0] };
        vec![round(Duration::from_secs(seconds)), round(Duration::from_secs(seconds))]
    }

    #[test]
    fn a_missed_target_is_said_and_a_met_one_too() {
        let mut figures = Figures::new(Where::Embedded, 2);
        // The ceiling is the faster of the loops.
        let as_they_come = |at_once| Contender::BindAsTheyCome { at_once };
        figures.whole = vec![(as_they_come(1), rounds(2)), (as_they_come(32), rounds(1)), (Contender::Kai, rounds(2))];
        figures.gang = vec![(Contender::Kai, rounds(2))];
        let text = text(&figures);
        assert!(text.contains("1 of 2 targets met") && text.contains("MISSED"), "{text}");
        let json = json(&figures);
        assert_eq!(json["targets"][0]["value"]["median"], 0.5);
        assert_eq!(json["ratios"][0]["podsPerSecond"]["median"], 1.0);
    }
}
