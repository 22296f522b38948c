//! Random clusters through cycles: every invariant holds after each.

use kai_core::{
    delta::{Delta, Phase},
    time::Time,
};
use kai_invariants::{Facts, Violation, sample::NOW};
use kai_trace::{Error, Reader, Recorder, Report, replay};
use proptest::{
    prelude::*,
    test_runner::{FileFailurePersistence, RngSeed},
};

use crate::{
    driver::{Driver, cases},
    generator::{Case, Event, case, case_of},
};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(300),
        max_shrink_iters: 4000,
        // The normal run tries the same cases each time; whoever asks for a number of cases gets new ones.
        rng_seed: if std::env::var_os("KAI_PROPTEST_CASES").is_some() { RngSeed::Random } else { RngSeed::Fixed(1) },
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_invariant_holds_in_every_cycle(case in case()) {
        let violations = violations(&case);
        prop_assert!(violations.is_empty(), "{}", in_lines(&violations));
    }

    #[test]
    fn what_was_recorded_replays_byte_for_byte(case in case()) {
        let report = replayed(&case).expect("a whole trace");
        prop_assert_eq!(report.cycles, case.events.len() as u64);
        prop_assert_eq!(report.difference, None);
    }
}

/// Seeds of cases in which something was once wrong.
const ONCE_WRONG: [u64; 15] = [15, 51, 54, 74, 84, 181, 199, 212, 217, 296, 344, 456, 520, 718, 1108];

#[test]
fn what_was_once_wrong_stays_right() {
    let wrong: Vec<String> = ONCE_WRONG
        .into_iter()
        .map(|seed| (seed, violations(&case_of(seed))))
        .filter(|(_, violations)| !violations.is_empty())
        .map(|(seed, violations)| format!("seed {seed}:\n{}", in_lines(&violations)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Everything that is wrong on the way through a case.
pub fn violations(case: &Case) -> Vec<Violation> {
    let mut driver = Driver::default();
    for delta in case.deltas() {
        driver.apply(delta);
    }
    let policy = case.policy();
    driver.check_determinism(&policy, NOW);
    let mut now = NOW;
    for event in &case.events {
        driver.cycle(&policy, now);
        now = Time(now.0 + 1000 * i64::from(event.seconds));
        if let Some(delta) = happening(event, now, &driver.facts) {
            driver.apply(delta);
        }
    }
    driver.check_rest(&policy, now);
    driver.violations
}

/// Drives a case once more, recording it, and replays the trace.
fn replayed(case: &Case) -> Result<Report, Error> {
    let mut recorder = Recorder::new(Vec::new())?;
    let mut driver = Driver::default();
    let policy = case.policy();
    let mut now = NOW;
    let mut deltas = case.deltas();
    for event in &case.events {
        for delta in deltas {
            recorder.delta(&delta)?;
            driver.apply(delta);
        }
        let (plan, echoed) = driver.plan(&policy, now);
        recorder.cycle(now, &policy, &plan)?;
        now = Time(now.0 + 1000 * i64::from(event.seconds));
        deltas = echoed;
        deltas.extend(happening(event, now, &driver.facts));
    }
    replay(Reader::new(recorder.finish()?.as_slice())?)
}

fn in_lines(violations: &[Violation]) -> String {
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// What nobody planned.
pub fn happening(event: &Event, now: Time, facts: &Facts) -> Option<Delta> {
    fn pick<T>(items: impl ExactSizeIterator<Item = T>, which: u8) -> Option<T> {
        let count = items.len().max(1);
        items.into_iter().nth(usize::from(which) % count)
    }
    let pod = pick(facts.pods.values(), event.which).cloned();
    match event.kind {
        0 => pick(facts.nodes.keys(), event.which).map(|name| Delta::NodeGone(name.clone())),
        1 => pod.map(|pod| Delta::PodGone(pod.uid)),
        2 => pod.filter(|pod| pod.phase == Phase::Running).map(|mut pod| {
            pod.phase = Phase::Succeeded;
            Delta::Pod(Box::new(pod))
        }),
        3 => pod.filter(|pod| pod.phase == Phase::Running).map(|mut pod| {
            pod.deleted = Some(now);
            Delta::Pod(Box::new(pod))
        }),
        4 => pick(facts.groups.keys(), event.which).map(|key| Delta::PodGroupGone(key.clone())),
        5 => pick(facts.queues.keys(), event.which).map(|name| Delta::QueueGone(name.clone())),
        6 => pick(facts.nodes.values(), event.which).cloned().map(|mut node| {
            node.unavailable.clear();
            node.gpus.count += 1;
            Delta::Node(Box::new(node))
        }),
        _ => None,
    }
}
