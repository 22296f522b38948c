//! `kai bench lab`: a simulated hour of a large cluster in virtual time, and how long it really took.
//!
//! The digest is over the event log: the same seed must give the same digest, in every round and on every machine.

use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kai_clock::Clock;
use kai_lab::cluster::{Lab, LabOptions};
use kai_lab::fleet::Fleet;
use kai_lab::seed::Seed;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::output::{self, Format};

/// Options of `kai bench lab`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Nodes, each a DGX H100.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    nodes: u32,
    /// Pods that live on them; half of them end after ten minutes, half never.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    pods: u32,
    /// Simulated minutes.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_080))]
    minutes: u32,
    /// Seed of the simulation.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often to run it; the digests must agree.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How to print the result.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

struct Outcome {
    took: Duration,
    lines: usize,
    digest: u64,
}

/// Runs the simulation, each round in a runtime of its own whose time is paused.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let mut outcomes = Vec::new();
    for _ in 0..options.rounds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        outcomes.push(runtime.block_on(live(options))?);
    }
    let first = outcomes.first().context("at least one round")?;
    let same = outcomes.iter().all(|outcome| outcome.digest == first.digest);
    let seconds: Vec<f64> =
        outcomes.iter().map(|outcome| (outcome.took.as_secs_f64() * 100.0).round() / 100.0).collect();
    match options.output {
        Format::Json => output::print(&serde_json::to_string_pretty(&json!({
            "nodes": options.nodes, "pods": options.pods, "simulatedMinutes": options.minutes, "seed": options.seed,
            "seconds": seconds, "eventLogLines": first.lines, "digest": format!("{:016x}", first.digest), "sameDigest": same,
        }))?)?,
        Format::Text => {
            for (round, (outcome, seconds)) in outcomes.iter().zip(&seconds).enumerate() {
                output::print(&format!(
                    "round {}: {} nodes, {} pods, {} simulated minutes in {seconds} s; {} lines in the event log, digest {:016x}",
                    round + 1,
                    options.nodes,
                    options.pods,
                    options.minutes,
                    outcome.lines,
                    outcome.digest,
                ))?;
            }
            output::print("target: 1000 nodes, 10000 pods, 60 minutes in <= 60 s")?;
        }
    }
    anyhow::ensure!(same, "the same seed gave different event logs");
    Ok(())
}

async fn live(options: &Options) -> anyhow::Result<Outcome> {
    let begin = Instant::now();
    let mut fleet = Fleet::parse(&format!("dgx-h100*{}", options.nodes))?;
    fleet.seed = Seed(options.seed);
    let start: Timestamp = "2026-01-01T00:00:00Z".parse()?;
    let clock = Clock::starting_at(start);
    let lab = Lab::start(LabOptions::new(fleet, clock));
    lab.ready().await;
    let pods: Api<Pod> = Api::namespaced(lab.client(), "default");
    // They arrive evenly over the first half.
    let arrival = Duration::from_mins(u64::from(options.minutes)) / 2 / options.pods;
    for number in 0..options.pods {
        pods.create(&PostParams::default(), &pod(number, options.nodes)?).await.context("create a pod")?;
        tokio::time::sleep(arrival).await;
    }
    let end = start + jiff::SignedDuration::from_mins(i64::from(options.minutes));
    tokio::time::sleep(Duration::try_from(end.duration_since(clock.now())).unwrap_or_default()).await;
    let lines = lab.event_log();
    let digest = lines.iter().fold(0, |sum, line| Seed(sum).hash(&[line]));
    lab.shutdown().await;
    Ok(Outcome { took: begin.elapsed(), lines: lines.len(), digest })
}

fn pod(number: u32, nodes: u32) -> anyhow::Result<Pod> {
    let (policy, run) = if number.is_multiple_of(2) { ("Never", "600") } else { ("Always", "forever") };
    let gpus = u32::from(number % 16 < 8).to_string();
    Ok(serde_json::from_value(json!({
        "metadata": { "name": format!("pod-{number}"), "annotations": { "lab.kai/run-seconds": run } },
        "spec": {
            "nodeName": format!("dgx-h100-{}", number % nodes), "restartPolicy": policy,
            "containers": [{
                "name": "main", "image": "example/train:1",
                "resources": { "requests": { "cpu": "4" }, "limits": { "nvidia.com/gpu": gpus } },
            }],
        },
    }))?)
}
