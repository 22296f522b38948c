//! Scenarios: a cluster as Kubernetes objects, how to drive the scheduler, and what must come out. `kai scenario run` and the tests
//! of this repository run them; the format is described in `tests/scenarios/README.md`.
//!
//! ```text
//!   file ──▶ Scenario ──▶ World (objects) ──Converter──▶ Cluster ──plan──▶ check against `expect`
//!                           ▲                                    │
//!                           └───── what the world makes of it ◀──┘   (rounds only)
//! ```

mod check;
mod drive;
mod file;
mod given;
mod pods;
mod report;
mod short;
mod world;

use std::{
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
};

pub use self::{
    drive::Cycle,
    file::{Expectation, PodExpectation, Scenario, ScenarioError},
    report::{CaseResult, Report},
};

/// Whether the reasons and decisions of each cycle are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explain {
    /// They are.
    Yes,
    /// They are not.
    No,
}

/// Runs all scenarios below some paths, each on a cluster of its own.
#[must_use]
pub fn run(paths: &[PathBuf], explain: Explain) -> Report {
    let mut report = Report::default();
    for path in paths {
        match file::find(path) {
            Ok(files) => files.iter().for_each(|file| report.add(run_file(path, file, explain))),
            Err(error) => report.add(Some(CaseResult::broken(path, String::new(), &error))),
        }
    }
    report
}

/// Runs the scenario of one file; `None`: the file says that it cannot be expressed.
fn run_file(root: &Path, file: &Path, explain: Explain) -> Option<CaseResult> {
    let area = file::area(root, file);
    let scenario = match Scenario::load(file) {
        Ok(scenario) => scenario,
        Err(error) => return Some(CaseResult::broken(file, area, &error)),
    };
    if !scenario.expressible {
        return None;
    }
    // One case that brings the scheduler down must not hide what came of the others.
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| drive::run(&scenario, explain)));
    Some(match outcome {
        Ok(Ok(outcome)) => CaseResult::of(file, area, &scenario.name, outcome),
        Ok(Err(error)) => CaseResult::broken(file, area, &error),
        Err(_) => CaseResult::crashed(file, area, &scenario.name),
    })
}
