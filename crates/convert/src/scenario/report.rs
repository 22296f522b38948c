//! What came of all scenarios: for programs as JSON, for people as a table by area and a list of failures.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use serde::Serialize;

use super::{drive::Outcome, file::ScenarioError};

/// What came of one scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaseResult {
    /// Its file.
    pub file: String,
    /// The rule it shows.
    pub name: String,
    /// The directory it is in.
    pub area: String,
    /// Whether everything came out as expected.
    pub passed: bool,
    /// What did not, each as a sentence.
    pub failures: Vec<String>,
    /// Decisions and reasons of each cycle, if asked for.
    #[serde(skip)]
    pub log: Vec<String>,
}

impl CaseResult {
    /// What came of a scenario that ran.
    pub(super) fn of(file: &Path, area: String, name: &str, outcome: Outcome) -> Self {
        Self {
            file: file.display().to_string(),
            name: name.to_owned(),
            area,
            passed: outcome.failures.is_empty(),
            failures: outcome.failures,
            log: outcome.log,
        }
    }

    /// A scenario in which the scheduler panicked; the panic itself was printed.
    pub(super) fn crashed(file: &Path, area: String, name: &str) -> Self {
        let failures = vec!["the scheduler panicked; the message is above".to_owned()];
        Self { file: file.display().to_string(), name: name.to_owned(), area, passed: false, failures, log: Vec::new() }
    }

    /// A file that is not a scenario.
    pub(super) fn broken(file: &Path, area: String, error: &ScenarioError) -> Self {
        let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
        let name = file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let failure = format!("{}: {error}{cause}", file.display());
        Self { file: file.display().to_string(), name, area, passed: false, failures: vec![failure], log: Vec::new() }
    }
}

/// What came of all scenarios.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Each scenario.
    pub cases: Vec<CaseResult>,
    /// How many passed.
    pub passed: usize,
    /// How many did not.
    pub failed: usize,
    /// Files that say of themselves that they cannot be expressed.
    #[serde(skip)]
    pub skipped: usize,
}

impl Report {
    /// Adds a result; `None` was skipped.
    pub(super) fn add(&mut self, result: Option<CaseResult>) {
        let Some(result) = result else {
            self.skipped += 1;
            return;
        };
        if result.passed {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
        self.cases.push(result);
    }

    /// A table by area, then what failed.
    #[must_use]
    pub fn text(&self) -> String {
        let mut areas: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for case in &self.cases {
            let counts = areas.entry(&case.area).or_default();
            if case.passed {
                counts.0 += 1;
            } else {
                counts.1 += 1;
            }
        }
        let width = areas.keys().map(|area| area.chars().count()).chain([5]).max().unwrap_or(5);
        let mut text = String::new();
        for case in self.cases.iter().filter(|case| !case.log.is_empty()) {
            let _ = writeln!(text, "{}\n  {}", case.file, case.name);
            for line in &case.log {
                let _ = writeln!(text, "  {line}");
            }
            text.push('\n');
        }
        let _ = writeln!(text, "{:width$}  {:>6}  {:>6}", "AREA", "PASSED", "FAILED");
        for (area, (passed, failed)) in &areas {
            let _ = writeln!(text, "{area:width$}  {passed:>6}  {failed:>6}");
        }
        let _ = writeln!(text, "{:width$}  {:>6}  {:>6}", "total", self.passed, self.failed);
        if self.skipped > 0 {
            let _ = writeln!(text, "{} skipped: their files say that they cannot be expressed", self.skipped);
        }
        for case in self.cases.iter().filter(|case| !case.passed) {
            let _ = write!(text, "\nFAILED {}\n  {}\n", case.file, case.name);
            for failure in &case.failures {
                let _ = writeln!(text, "    {failure}");
            }
        }
        text
    }
}
