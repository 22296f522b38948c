//! What must be true of every plan: one file per property, each judging a plan by the plain facts.
//!
//! ```text
//!   deltas ──┬──▶ Cluster ──▶ plan ──┐
//!            └──▶ Facts ─────────────┴──▶ Cycle ──▶ check of each property ──▶ violations
//! ```
//!
//! The checks know the rules (`docs` of each file name them), not the core's ledgers and not how it decides: of the cluster they take
//! names of ids and, for reclaim, the fair shares, whose division has an oracle of its own. Tests of every kind call them.
//!
//! The crate must not know: input and output, clocks, Kubernetes.

pub mod apart;
pub mod capacity;
pub mod cycle;
pub mod determinism;
pub mod devices;
pub mod echo;
pub mod eligible;
pub mod facts;
pub mod gain;
pub mod gangs;
pub mod ledgers;
pub mod limits;
pub mod loops;
pub mod members;
pub mod neighbours;
pub mod ports;
pub mod quota;
pub mod reasons;
pub mod records;
pub mod sample;
pub mod spread;
pub mod topology;
pub mod victims;

use std::fmt;

use kai_core::{Cluster, plan::Plan, policy::Policy, time::Time};

pub use self::{cycle::Cycle, facts::Facts};

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The property that does not hold.
    pub invariant: &'static str,
    /// What it does not hold for.
    pub object: String,
    /// What is the case instead.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`: {}", self.invariant, self.object, self.what)
    }
}

/// A way to plan: [`kai_core::plan`], or one under test.
pub type Planner<'a> = &'a dyn Fn(&mut Cluster, Time, &Policy) -> Plan;

/// Every check of a single plan.
type Check = fn(&Cycle<'_>) -> Vec<Violation>;

/// The properties of a single plan.
const CHECKS: [Check; 15] = [
    apart::check,
    capacity::check,
    devices::check,
    eligible::check,
    gain::check,
    gangs::check,
    limits::check,
    members::check,
    ports::check,
    quota::check,
    reasons::check,
    records::check,
    spread::check,
    topology::check,
    victims::check,
];

/// Everything that is wrong with a plan for the cluster that `facts` describe. `cluster` is the one that made the plan, as the plan left it.
#[must_use]
pub fn check_all(facts: &Facts, cluster: &Cluster, plan: &Plan, policy: &Policy, now: Time) -> Vec<Violation> {
    let (cycle, mut violations) = Cycle::new(facts, cluster, plan, policy, now);
    violations.extend(CHECKS.iter().flat_map(|check| check(&cycle)));
    violations
}
