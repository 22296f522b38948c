//! Random clusters through cycles: every invariant holds after each.

use kai_core::{
    delta::{Delta, Phase},
    time::Time,
};
use kai_invariants::{Violation, sample::NOW};
use proptest::{prelude::*, test_runner::FileFailurePersistence};

use crate::{
    driver::{Driver, cases},
    generator::{Case, Event, case},
};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(300),
        max_shrink_iters: 4000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_invariant_holds_in_every_cycle(case in case()) {
        let violations = violations(&case);
        prop_assert!(violations.is_empty(), "{}", in_lines(&violations));
    }
}

/// Everything that is wrong on the way through a case.
pub fn violations(case: &Case) -> Vec<Violation> {
    let mut driver = Driver::default();
    case.deltas().into_iter().for_each(|delta| driver.apply(delta));
    let policy = case.policy();
    driver.check_determinism(&policy, NOW);
    let mut now = NOW;
    for event in &case.events {
        driver.cycle(&policy, now);
        now = Time(now.0 + 1000 * i64::from(event.seconds));
        happen(event, now, &mut driver);
    }
    driver.check_rest(&policy, now);
    driver.violations
}

fn in_lines(violations: &[Violation]) -> String {
    violations.iter().map(|violation| format!("{violation}\n")).collect()
}

/// What nobody planned.
pub fn happen(event: &Event, now: Time, driver: &mut Driver) {
    let which = usize::from(event.which);
    fn pick<T: Clone>(mut items: impl Iterator<Item = T> + Clone, which: usize) -> Option<T> {
        let count = items.clone().count();
        items.nth(which % count.max(1))
    }
    let pod = pick(driver.facts.pods.values(), which).cloned();
    let delta = match event.kind {
        0 => pick(driver.facts.nodes.keys(), which).map(|name| Delta::NodeGone(name.clone())),
        1 => pod.map(|pod| Delta::PodGone(pod.uid)),
        2 => pod.filter(|pod| pod.phase == Phase::Running).map(|mut pod| {
            pod.phase = Phase::Succeeded;
            Delta::Pod(Box::new(pod))
        }),
        3 => pod.filter(|pod| pod.phase == Phase::Running).map(|mut pod| {
            pod.deleted = Some(now);
            Delta::Pod(Box::new(pod))
        }),
        4 => pick(driver.facts.groups.keys(), which).map(|key| Delta::PodGroupGone(key.clone())),
        5 => pick(driver.facts.queues.keys(), which).map(|name| Delta::QueueGone(name.clone())),
        6 => pick(driver.facts.nodes.values(), which).cloned().map(|mut node| {
            node.unavailable.clear();
            node.gpus.count += 1;
            Delta::Node(Box::new(node))
        }),
        _ => None,
    };
    if let Some(delta) = delta {
        driver.apply(delta);
    }
}
