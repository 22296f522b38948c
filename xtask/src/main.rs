//! The developers' one door: `cargo xtask test`, `fix`, `generate` and `real`.
//!
//! `test` writes nothing but build results; `fix` writes. Without `--real` nothing but Rust is needed.

mod generate;
mod invocation;
#[path = "../../tests/src/programs.rs"]
mod programs;
mod real;
mod steps;
mod test;
#[cfg(test)]
mod tidy;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{invocation::Invocation, steps::Steps};

/// The developers' one door.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Checks formatting and lints, runs all tests and the end-to-end suites.
    Test(test::Options),
    /// Formats the code and renews the generated files.
    Fix,
    /// Renews generated files.
    Generate {
        #[command(subcommand)]
        what: Generated,
    },
    /// A real Kubernetes on this machine.
    Real {
        #[command(subcommand)]
        action: real::Action,
    },
}

#[derive(Subcommand)]
enum Generated {
    /// The definitions of KAI's kinds, from the types of the `api` crate.
    Crds,
    /// What the API server knows about the kinds of Kubernetes itself, from its published sources; needs Go.
    Kubernetes,
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Test(options) => test::run(&options),
        Task::Fix => {
            let mut steps = Steps::default();
            steps.run("format", &Invocation::cargo(["fmt", "--all"]))?;
            steps.run("definitions of KAI's kinds", &generate_definitions())?;
            steps.finish();
            Ok(())
        }
        Task::Generate { what: Generated::Crds } => {
            Steps::default().run("definitions of KAI's kinds", &generate_definitions())
        }
        Task::Generate { what: Generated::Kubernetes } => {
            let written = generate::generate_kubernetes_data(&invocation::workspace())?;
            eprintln!("wrote {}", written.display());
            Ok(())
        }
        Task::Real { action } => real::run(&action),
    }
}

/// The `api` crate's own test compares the files with the types; told to, it writes them instead.
fn generate_definitions() -> Invocation {
    Invocation::cargo(["test", "--quiet", "--package", "kai-api"]).environment("UPDATE", "1")
}
