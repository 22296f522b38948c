//! The commands a user types, and the composition of the control plane that they and the tests start.
//!
//! Each command is a file; this one only reads the command line and turns errors into text and an exit code. Data goes to
//! standard output, everything else to standard error.

mod bench;
mod component;
pub mod control_plane;
mod crds;
mod kubeconfig;
mod nodes;
mod output;
mod queue;
mod rbac;
mod reservation;
mod scenario;
mod trace;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::component::Alone;

/// GPU scheduling for Kubernetes, and a Kubernetes to try it on.
#[derive(Debug, Parser)]
#[command(name = "kai", version, propagate_version = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// What to log, such as `info` or `kai_lab=debug`; components log `info` by themselves, other commands `warn`.
    #[arg(long, global = true, env = "KAI_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// How to log.
    #[arg(long, global = true, env = "KAI_LOG_FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// An object a line.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a whole cluster with simulated GPU nodes in this process.
    Up(up::Options),
    /// Run the whole control plane in one process.
    All(component::All),
    /// Run the pod-grouper: it gives each pod its group.
    PodGrouper(Alone<kai_podgrouper::Options>),
    /// Run the scheduler: it decides.
    Scheduler(Alone<kai_scheduler::Options>),
    /// Run the binder: it carries decisions out.
    Binder(Alone<kai_binder::Options>),
    /// Run the controllers: they keep the statuses of groups and queues.
    Controllers(Alone<kai_controllers::Options>),
    /// Run the admission server: it completes and refuses pods.
    Admission(Alone<kai_admission::Options>),
    /// Find out which GPU this pod was given: the program of reservation pods.
    ResourceReservation(reservation::Command),
    /// Print the definitions of kai's resources as YAML.
    Crds,
    /// Print the service accounts and roles of the components.
    Rbac(rbac::Options),
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

impl Command {
    /// What is logged if nobody says otherwise: programs that run for months tell what they do.
    fn usual_log(&self) -> &'static str {
        match self {
            Self::All(_)
            | Self::PodGrouper(_)
            | Self::Scheduler(_)
            | Self::Binder(_)
            | Self::Controllers(_)
            | Self::Admission(_)
            | Self::ResourceReservation(_) => "info",
            _ => "warn",
        }
    }

    /// Whether logs are JSON because a flag of KAI says so.
    fn logs_json(&self) -> bool {
        match self {
            Self::All(command) => command.logs_json(),
            Self::PodGrouper(command) => command.logs_json(),
            Self::Scheduler(command) => command.logs_json(),
            Self::Binder(command) => command.logs_json(),
            Self::Controllers(command) => command.logs_json(),
            Self::Admission(command) => command.logs_json(),
            _ => false,
        }
    }
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
    /// Write down a running cluster as a scenario.
    Capture(scenario::Capture),
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
    /// The whole control plane: pods bound per second, latency, requests, memory; a loop that only binds beside it.
    E2e(bench::e2e::Options),
}

/// Reads the command line and runs the command.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let log = arguments.log.as_deref().unwrap_or(arguments.command.usual_log());
    let filter = match tracing_subscriber::EnvFilter::try_new(log) {
        Ok(filter) => filter,
        Err(error) => {
            return fail(&anyhow::anyhow!("--log `{log}`: {error}\nhint: try `info` or `kai_lab=debug`"));
        }
    };
    // Files and pipes get no colours.
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    match arguments.log_format {
        LogFormat::Text if !arguments.command.logs_json() => log.init(),
        LogFormat::Text | LogFormat::Json => log.json().init(),
    }
    let outcome = match arguments.command {
        Command::Up(options) => block_on(up::run(options)),
        Command::All(command) => block_on(component::all(command)),
        Command::PodGrouper(command) => block_on(component::pod_grouper(command)),
        Command::Scheduler(command) => block_on(component::scheduler(command)),
        Command::Binder(command) => block_on(component::binder(command)),
        Command::Controllers(command) => block_on(component::controllers(command)),
        Command::Admission(command) => block_on(component::admission(command)),
        Command::ResourceReservation(command) => block_on(reservation::run(command)),
        Command::Crds => crds::run(),
        Command::Rbac(options) => rbac::run(&options),
        Command::Scenario(Scenario::Run(options)) => {
            return scenario::run(&options).unwrap_or_else(|error| fail(&error));
        }
        Command::Scenario(Scenario::Capture(options)) => block_on(scenario::capture(options)),
        Command::Trace(Trace::Replay(options)) => return trace::run(&options).unwrap_or_else(|error| fail(&error)),
        Command::Queue(Queue::Tree(options)) => block_on(queue::run(options)),
        Command::Lab(Lab::Nodes(options)) => block_on(nodes::run(options)),
        Command::Bench(Bench::Apiserver(options)) => block_on(bench::apiserver::run(options)),
        Command::Bench(Bench::Lab(options)) => bench::lab::run(&options),
        Command::Bench(Bench::Core(options)) => bench::core::run(&options),
        Command::Bench(Bench::E2e(options)) => block_on(bench::e2e::run(options)),
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
