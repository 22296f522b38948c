//! `cargo xtask test`: everything that CI runs, in the order in which it fails fastest.
//!
//! Every cargo command names the whole workspace, even where one package would do: cargo joins the features of the packages it is
//! told about, so another selection would build the dependencies a second time.

use std::{env, fs, path::PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::Value;

use crate::{
    invocation::{Invocation, workspace},
    real,
    steps::Steps,
};

/// How many times more inputs a property is tried with at night.
const NIGHTLY_PROPERTY_CASES: &str = "10000";
const NIGHTLY_FUZZ_SECONDS: &str = "120";
const NIGHTLY_FAULT_SEEDS: &str = "2000";

/// What to test.
#[derive(Args, Debug)]
pub struct Options {
    /// Also runs the suites on a real control plane and a real node (needs Go and, for the node, root and containerd).
    #[arg(long)]
    real: bool,
    /// Tries properties with more inputs and runs the fuzz targets.
    #[arg(long)]
    nightly: bool,
    /// Runs only tests whose name contains this, and neither formatting nor lints.
    filter: Option<String>,
}

/// Runs the steps; the first failure ends the run.
pub fn run(options: &Options) -> Result<()> {
    let mut steps = Steps::default();
    if options.filter.is_none() {
        steps.run("formatting", &Invocation::cargo(["fmt", "--all", "--check"]))?;
        let lints = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"];
        steps.run("lints", &Invocation::cargo(lints))?;
    }
    steps.run("build the tests", &cargo_test(["--no-run", "--quiet"]))?;
    let targets = TestTargets::find()?;
    if options.filter.is_none() {
        steps.run("tidy", &cargo_test(["--quiet", "--bin", "xtask", "tidy"]))?;
    }
    steps.run("unit and property tests", &unit_tests(options, &targets))?;
    steps.run("documentation tests", &with_filter(cargo_test(["--quiet", "--doc"]), options))?;
    let real = options.real || env::var_os("KAI_TEST_NO_SKIP").is_some_and(|value| value == "1");
    if real {
        steps.run_with("programs of a real cluster", real::build)?;
    }
    for suite in &targets.suites {
        let mut invocation = cargo_test(["--quiet", "--test", suite]);
        if real {
            invocation = invocation.environment("KAI_TEST_REAL", "1");
        }
        steps.run(&format!("suite {suite}"), &with_filter(invocation, options))?;
    }
    if options.nightly {
        // Optimised: so many take hours otherwise.
        let seeds = cargo_test(["--quiet", "--profile", "faults", "--test", "faults"]);
        let seeds = seeds.environment("KAI_FAULT_SEEDS", NIGHTLY_FAULT_SEEDS);
        steps.run(&format!("{NIGHTLY_FAULT_SEEDS} seeds of faults"), &with_filter(seeds, options))?;
        for target in fuzz_targets()? {
            let limit = format!("-max_total_time={NIGHTLY_FUZZ_SECONDS}");
            let arguments = ["+nightly", "fuzz", "run", &target, "--", &limit].map(String::from);
            // The toolchain is chosen by rustup's cargo, not by the one that runs this task.
            steps.run(&format!("fuzz {target}"), &Invocation::new("rustup", rustup_run(&arguments)))?;
        }
    }
    steps.finish();
    Ok(())
}

fn cargo_test<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Invocation {
    Invocation::cargo(["test", "--workspace"]).arguments(arguments)
}

fn with_filter(invocation: Invocation, options: &Options) -> Invocation {
    match &options.filter {
        Some(filter) => invocation.arguments(["--", filter]),
        None => invocation,
    }
}

fn unit_tests(options: &Options, targets: &TestTargets) -> Invocation {
    let mut invocation = cargo_test(["--quiet", "--lib", "--bins"]);
    for test in &targets.others {
        invocation = invocation.arguments(["--test", test]);
    }
    if options.nightly {
        invocation = invocation.environment("PROPTEST_CASES", NIGHTLY_PROPERTY_CASES);
        invocation = invocation.environment("KAI_PROPTEST_CASES", NIGHTLY_PROPERTY_CASES);
    }
    with_filter(invocation, options)
}

/// The test targets of the workspace.
struct TestTargets {
    /// Of `kai-tests`: each may need a cluster, and is a step of its own.
    suites: Vec<String>,
    /// Of all other packages.
    others: Vec<String>,
}

impl TestTargets {
    fn find() -> Result<Self> {
        let metadata = metadata()?;
        let (mut suites, mut others) = (Vec::new(), Vec::new());
        for package in metadata["packages"].as_array().context("cargo metadata lists packages")? {
            let targets = package["targets"].as_array().context("cargo metadata lists targets")?;
            let tests = targets.iter().filter(|target| target["kind"] == Value::from(vec!["test"]));
            let names = tests.filter_map(|target| target["name"].as_str().map(String::from));
            if package["name"] == "kai-tests" { suites.extend(names) } else { others.extend(names) }
        }
        // The end-to-end suite first: what it finds, the others mostly find in more detail.
        suites.sort_by_key(|name| (name != "end_to_end", name.clone()));
        others.sort();
        others.dedup();
        Ok(Self { suites, others })
    }
}

/// The workspace's own packages, without what they depend on.
fn metadata() -> Result<Value> {
    let invocation = Invocation::cargo(["metadata", "--format-version=1", "--no-deps"]);
    let output = invocation.command().output().context("run `cargo metadata`")?;
    serde_json::from_slice(&output.stdout).context("read the answer of `cargo metadata`")
}

fn fuzz_targets() -> Result<Vec<String>> {
    let folder: PathBuf = workspace().join("fuzz").join("fuzz_targets");
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut targets = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("read `{}`", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs")
            && let Some(name) = path.file_stem()
        {
            targets.push(name.to_string_lossy().into_owned());
        }
    }
    targets.sort();
    Ok(targets)
}

fn rustup_run(arguments: &[String]) -> Vec<String> {
    let toolchain = arguments.first().map(|name| name.trim_start_matches('+').to_string()).unwrap_or_default();
    let prefix = ["run".to_string(), toolchain, "cargo".to_string()];
    prefix.into_iter().chain(arguments.iter().skip(1).cloned()).collect()
}
