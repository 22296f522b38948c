//! `kai scenario run`: scenario files, and whether the scheduler decides as they say; `kai scenario capture`: a cluster as such a file.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use kai_clock::Clock;
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
    if let Some(missing) = options.paths.iter().find(|path| !path.exists()) {
        anyhow::bail!(
            "`{}` does not exist; name scenario files (YAML or JSON) or directories of them",
            missing.display()
        );
    }
    let explain = if options.explain { Explain::Yes } else { Explain::No };
    let report = scenario::run(&options.paths, explain);
    match options.output {
        Format::Text => output::print(&report.text())?,
        Format::Json => output::print(&serde_json::to_string_pretty(&report)?)?,
    }
    Ok(if report.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Options of `kai scenario capture`.
#[derive(Debug, clap::Args)]
pub struct Capture {
    /// The cluster; as kubectl finds it when not given.
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Pods that name this scheduler are its own; what the Config says when not given.
    #[arg(long, value_name = "NAME")]
    scheduler_name: Option<String>,
    /// The node pool to write down; without it, nodes and queues that are in none.
    #[arg(long, default_value = "", value_name = "VALUE")]
    partition_label_value: String,
}

/// Prints the cluster as a scenario.
pub async fn capture(options: Capture) -> anyhow::Result<()> {
    let Capture { kubeconfig, scheduler_name, partition_label_value } = options;
    let client = kai_kit::client::connect(kubeconfig.as_deref()).await?;
    let options = kai_scheduler::Options { scheduler_name, partition_label_value, ..kai_scheduler::Options::default() };
    let text = kai_scheduler::snapshot(&client, &options, Clock::real().now()).await;
    Ok(output::print(&text.context("read the cluster")?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_does_not_exist_is_an_error_that_names_it() {
        let paths = vec![PathBuf::from("no/such/scenario.yaml")];
        let error = run(&Options { paths, output: Format::Text, explain: false }).expect_err("nothing to run");
        assert!(error.to_string().contains("`no/such/scenario.yaml` does not exist"), "{error}");
    }
}
