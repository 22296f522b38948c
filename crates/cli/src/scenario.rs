//! `kai scenario run`: scenario files, and whether the scheduler decides as they say.

use std::{path::PathBuf, process::ExitCode};

use kai_convert::scenario::{self, Explain};

use crate::output::{self, Format};

/// Options of `kai scenario run`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Scenario files (YAML or JSON), or directories that are searched for them.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// How to print the outcome.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Print the decisions of each cycle, and why the rest waits.
    #[arg(long)]
    explain: bool,
}

/// Runs the scenarios; the exit code says whether all of them passed.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let explain = if options.explain { Explain::Yes } else { Explain::No };
    let report = scenario::run(&options.paths, explain);
    match options.output {
        Format::Text => output::print(&report.text())?,
        Format::Json => output::print(&serde_json::to_string_pretty(&report)?)?,
    }
    Ok(if report.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
