//! The control plane end to end: from a pod to a bound pod that was told its GPU, on tiers 1 and 2, through nothing but the API.
//!
//! All cases share one cluster and one control plane. Each has nodes of its own, which its pods choose by a label, and queues of its
//! own; what is wrong in one case must not hold up another.

mod bad_input;
mod fleet;
mod kinds_of_gpu;
mod life;
mod placement;
mod reclaim;
mod rights;
mod sharing;
mod stage;
mod takeover;

use std::process::ExitCode;

use kai_tests::harness::{self, Case};

fn main() -> ExitCode {
    let cases: Vec<Case> = [
        sharing::CASES,
        kinds_of_gpu::CASES,
        placement::CASES,
        reclaim::CASES,
        takeover::CASES,
        life::CASES,
        bad_input::CASES,
    ]
    .concat();
    let preparation =
        harness::Preparation { fleet: fleet::fleet, before: |client| Box::pin(takeover::prepare(client)) };
    harness::main_with_kai(preparation, &cases, rights::CASES)
}
