//! Drives the core through cycles of a changing cluster and collects what is wrong.

use kai_core::{Cluster, delta::Delta, policy::Policy, time::Time};
use kai_invariants::{
    Cycle, Facts, Planner, Violation, check_all, determinism,
    echo::{World, echo},
    ledgers, loops,
};

/// The planner under test.
pub const PLANNER: Planner<'static> = &kai_core::plan;

/// How many cases a property is tried with: `KAI_PROPTEST_CASES`, or as many as the normal run can afford.
pub fn cases(normal: u32) -> u32 {
    std::env::var("KAI_PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(normal)
}

/// A cluster and its facts, kept together.
#[derive(Default)]
pub struct Driver {
    pub facts: Facts,
    pub cluster: Cluster,
    pub violations: Vec<Violation>,
}

impl Driver {
    pub fn apply(&mut self, delta: Delta) {
        self.facts.apply(&delta);
        self.cluster.apply(delta);
    }

    /// Plans, checks the plan and the ledgers, and lets the world carry it out.
    pub fn cycle(&mut self, policy: &Policy, now: Time) {
        let plan = PLANNER(&mut self.cluster, now, policy);
        self.violations.extend(check_all(&self.facts, &self.cluster, &plan, policy, now));
        let (cycle, _) = Cycle::new(&self.facts, &self.cluster, &plan, policy, now);
        let deltas = echo(&cycle, World::Gradual);
        self.violations.extend(ledgers::check(&self.facts, &mut self.cluster, policy, now));
        for delta in deltas {
            self.apply(delta);
        }
    }

    pub fn check_determinism(&mut self, policy: &Policy, now: Time) {
        self.violations.extend(determinism::check(&self.facts, policy, now, PLANNER, &[1, 2]));
    }

    pub fn check_rest(&mut self, policy: &Policy, now: Time) {
        self.violations.extend(loops::check(&self.facts, policy, now, PLANNER));
    }
}
