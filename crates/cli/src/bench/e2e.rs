//! `kai bench e2e`: from a created pod to a bound one with the whole control plane, beside a loop that only binds.
//!
//! Without a kubeconfig the API server is the embedded one in a process of its own, with one it is a real one. Simulated nodes of this process
//! join either.
//! Contenders take turns, round by round, so that what else the machine does meets all of them. Time runs from the first creation to
//! the moment at which a watch has shown that the last pod was taken in by its node. A missed target is said; it is no error.

mod calls;
mod ceiling;
mod figures;
mod ground;
mod load;
mod report;
mod rival;
mod server;
mod spent;
mod weight;

use std::path::PathBuf;

use self::{
    calls::Calls,
    figures::{Contender, Figures, Round},
    ground::{Ground, Where},
    load::Kind,
};
use crate::output::{self, Format};

/// GPUs of each node.
const GPUS: u32 = 8;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Only {
    /// Pods with a whole GPU each.
    Whole,
    /// Pods with half a GPU each, reservation pods and their program included.
    Fractions,
    /// One gang with a pod on every node.
    Gang,
    /// Memory of each component, each in a process of its own; embedded cluster only.
    Memory,
}

/// Options of `kai bench e2e`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kai bench e2e                                      everything on the embedded cluster
  kai bench e2e --kube-scheduler P                   with kube-scheduler beside it
  kai bench e2e --only whole gang -o json            two figures, for programs
  cargo xtask real up                                a real API server, in another terminal; then
  kai bench e2e --kubeconfig F --kube-scheduler P    the same there, with kube-scheduler beside it

A missed target is reported, not an error. A pod that is not bound in time is an error.")]
pub struct Options {
    /// Pods of a round with whole GPUs; those with half a GPU are a quarter as many.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pods: u32,
    /// Nodes with eight GPUs each; more if the pods need more.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    nodes: u32,
    /// Pods of the gang, each as large as a node, on as many nodes.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    gang: u32,
    /// Pods with which memory is measured.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    memory_pods: u32,
    /// How often each contender has its turn, after one that is not timed.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// A real API server that simulated nodes are to join. It must be empty: nodes, pods, namespaces and webhooks are taken away.
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Let everybody call the embedded API server as a function, as the parts of `kai up` do, instead of connecting to it.
    #[arg(long, conflicts_with = "kubeconfig")]
    in_process: bool,
    /// A kube-scheduler to be measured beside it.
    #[arg(long, value_name = "PATH", conflicts_with = "in_process")]
    kube_scheduler: Option<PathBuf>,
    /// Only these figures.
    #[arg(long, value_enum, num_args = 1..)]
    only: Vec<Only>,
    /// How to print the result.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Options {
    fn place(&self) -> Where {
        match &self.kubeconfig {
            Some(path) => Where::Real(path.clone()),
            None if self.in_process => Where::InProcess,
            None => Where::Embedded,
        }
    }

    fn wants(&self, what: Only) -> bool {
        self.only.is_empty() || self.only.contains(&what)
    }

    /// Enough nodes for so many whole GPUs.
    fn nodes_for(&self, gpus: u32) -> u32 {
        self.nodes.max(gpus.div_ceil(GPUS))
    }
}

/// Runs the benchmark.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let mut figures = Figures::new(options.place(), options.rounds);
    if options.wants(Only::Whole) {
        let mut contenders = vec![
            // Those that are compared come one after the other: machines change their speed.
            Contender::BindLoop { at_once: 1 },
            Contender::BindLoop { at_once: 32 },
            Contender::KaiLater,
            Contender::BindAsTheyCome { at_once: 1 },
            Contender::BindAsTheyCome { at_once: 32 },
            Contender::Kai,
        ];
        contenders.extend(options.kube_scheduler.clone().map(Contender::KubeScheduler));
        figures.whole = measure(&options, Kind::Whole, options.pods, &contenders, &mut figures.calls).await?;
    }
    if options.wants(Only::Fractions) {
        let pods = options.pods.div_ceil(4);
        figures.fractions =
            measure(&options, Kind::Half, pods, &[Contender::Kai], &mut figures.calls_of_fractions).await?;
    }
    if options.wants(Only::Gang) {
        figures.gang = measure(&options, Kind::Gang, options.gang, &[Contender::Kai], &mut Vec::new()).await?;
    }
    if options.wants(Only::Memory) && options.kubeconfig.is_none() {
        figures.memory = Some(weight::weigh(options.memory_pods, options.nodes_for(options.memory_pods)).await?);
    }
    match options.output {
        Format::Json => output::print(&serde_json::to_string_pretty(&report::json(&figures))?)?,
        Format::Text => output::print(&report::text(&figures))?,
    }
    Ok(())
}

/// A turn of each contender that is not timed but in which requests are counted, then the rounds.
async fn measure(
    options: &Options,
    kind: Kind,
    pods: u32,
    contenders: &[Contender],
    calls: &mut Vec<(String, String, f64)>,
) -> anyhow::Result<Vec<(Contender, Vec<Round>)>> {
    let nodes = match kind {
        Kind::Gang => pods,
        Kind::Whole | Kind::Half => options.nodes_for(pods),
    };
    let mut results: Vec<(Contender, Vec<Round>)> =
        contenders.iter().map(|contender| (contender.clone(), Vec::new())).collect();
    for round in 0..=options.rounds {
        for (contender, rounds) in &mut results {
            let counting = (round == 0 && *contender == Contender::Kai).then(Calls::default);
            if round == 0 && *contender != Contender::Kai && options.kubeconfig.is_none() {
                continue;
            }
            let ground = Ground::start(&options.place(), nodes).await?;
            let outcome = ground.round(contender, kind, pods, counting.as_ref(), round).await;
            ground.clear().await?;
            let outcome = outcome?;
            anstream::eprintln!(
                "{kind}, {contender}, {}: {pods} pods in {:.2} s, {:.0} pods/s, {:.2} ms of processor time a pod{}",
                if round == 0 { "warming up".to_owned() } else { format!("round {round}") },
                outcome.took.as_secs_f64(),
                outcome.rate(),
                outcome.processor_milliseconds(),
                match outcome.spent.server {
                    Some(_) => format!(", {:.2} ms in the server", outcome.server_milliseconds()),
                    None => String::new(),
                },
            );
            if let Some(counted) = counting {
                *calls = counted.per_pod(pods);
            }
            if round > 0 {
                rounds.push(outcome);
            }
        }
    }
    Ok(results)
}
