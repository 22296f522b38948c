//! The end-to-end suite: what a user of a cluster relies on, shown on each tier through nothing but the Kubernetes API.
//!
//! Written once; where the tiers disagree, the simulated part is wrong. Pods name their node, because nothing here schedules.

mod cluster_life;
mod pods;
mod specimen;
mod workloads;

use std::process::ExitCode;

use kai_tests::harness::{self, Case};

fn main() -> ExitCode {
    let cases: Vec<Case> = [cluster_life::CASES, pods::CASES, workloads::CASES].concat();
    harness::main(&cases)
}
