//! The commands a user types: `up`, `crds`, `lab nodes`, `queue tree`, `scenario run`, `trace replay`, `bench`.
//!
//! Each command is a file; this one only reads the command line and turns errors into text and an exit code. Data goes to
//! standard output, everything else to standard error.

mod bench;
mod crds;
mod kubeconfig;
mod nodes;
mod output;
mod queue;
mod scenario;
mod trace;
mod up;

use std::process::ExitCode;

pub use bench::core::heap::{HeapCounter, count_heap_with};
use clap::{Parser, Subcommand};

/// GPU scheduling for Kubernetes, and a Kubernetes to try it on.
#[derive(Debug, Parser)]
#[command(name = "kai", version, propagate_version = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// What to log, such as `info` or `kai_lab=debug`.
    #[arg(long, global = true, env = "KAI_LOG", default_value = "warn", value_name = "FILTER")]
    log: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a whole cluster with simulated GPU nodes in this process.
    Up(up::Options),
    /// Print the definitions of kai's resources as YAML.
    Crds,
    /// Simulated nodes.
    #[command(subcommand)]
    Lab(Lab),
    /// Queues of a cluster.
    #[command(subcommand)]
    Queue(Queue),
    /// Clusters written down, with what the scheduler must decide.
    #[command(subcommand)]
    Scenario(Scenario),
    /// Recorded inputs and plans of the scheduling core.
    #[command(subcommand)]
    Trace(Trace),
    /// Measure how fast kai is on this machine.
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Debug, Subcommand)]
enum Lab {
    /// Join simulated nodes to any API server, embedded or real.
    Nodes(nodes::Options),
}

#[derive(Debug, Subcommand)]
enum Queue {
    /// Print queues as a tree: what they are guaranteed, hold and ask for.
    Tree(queue::Options),
}

#[derive(Debug, Subcommand)]
enum Scenario {
    /// Run scenario files and compare what is decided with what they expect.
    Run(scenario::Options),
}

#[derive(Debug, Subcommand)]
enum Trace {
    /// Plan again what was recorded and compare the plans byte for byte.
    Replay(trace::Options),
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// The embedded API server: creates per second, list time, memory per pod, start time.
    Apiserver(bench::apiserver::Options),
    /// A simulated hour of a large cluster in virtual time.
    Lab(bench::lab::Options),
    /// The scheduling core: time of a plan, growth with the cluster, memory; KAI's figures beside them.
    Core(bench::core::Options),
}

/// Reads the command line and runs the command.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = match tracing_subscriber::EnvFilter::try_new(&arguments.log) {
        Ok(filter) => filter,
        Err(error) => {
            return fail(&anyhow::anyhow!("--log `{}`: {error}\nhint: try `info` or `kai_lab=debug`", arguments.log));
        }
    };
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let outcome = match arguments.command {
        Command::Up(options) => block_on(up::run(options)),
        Command::Crds => crds::run(),
        Command::Scenario(Scenario::Run(options)) => {
            return scenario::run(&options).unwrap_or_else(|error| fail(&error));
        }
        Command::Trace(Trace::Replay(options)) => return trace::run(&options).unwrap_or_else(|error| fail(&error)),
        Command::Queue(Queue::Tree(options)) => block_on(queue::run(options)),
        Command::Lab(Lab::Nodes(options)) => block_on(nodes::run(options)),
        Command::Bench(Bench::Apiserver(options)) => block_on(bench::apiserver::run(options)),
        Command::Bench(Bench::Lab(options)) => bench::lab::run(&options),
        Command::Bench(Bench::Core(options)) => bench::core::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn block_on(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(command)
}

/// Prints the chain of causes once, hints on lines of their own.
fn fail(error: &anyhow::Error) -> ExitCode {
    // The reader of a closed pipe wants no more, also no error.
    let closed = error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe);
    if closed {
        return ExitCode::SUCCESS;
    }
    anstream::eprintln!("error: {error}");
    for cause in error.chain().skip(1) {
        anstream::eprintln!("  caused by: {cause}");
    }
    ExitCode::FAILURE
}
