//! `kai bench apiserver`: what the embedded API server costs, through the same `kube::Client` that components use.

use std::time::{Duration, Instant};

use anyhow::Context;
use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kai_apiserver::ApiServer;
use kai_clock::Clock;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use super::memory::resident_bytes;
use crate::output::{self, Format};

/// Options of `kai bench apiserver`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Pods to create.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pods: u32,
    /// Watchers that see every pod.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    watchers: u32,
    /// Creates in flight at once.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    concurrency: u32,
    /// How to print the result.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Runs the benchmark.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let started = Instant::now();
    let server = ApiServer::start(kai_apiserver::Options::new(Clock::real()));
    let client = kai_lab::client::client_for(server.router());
    client.apiserver_version().await.context("ask the server for its version")?;
    let ready = started.elapsed();
    // Schemas load with the first object, once per process: part of being ready.
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    pods.create(&PostParams::default(), &pod(u32::MAX)?).await.context("create the first pod")?;
    let first_create = started.elapsed();

    let before = resident_bytes();
    let watchers: Vec<_> =
        (0..options.watchers).map(|_| tokio::spawn(count_added(client.clone(), options.pods))).collect();
    tokio::task::yield_now().await;
    let creating = Instant::now();
    let writers: Vec<_> = (0..options.concurrency)
        .map(|first| {
            let numbers = (first..options.pods).step_by(usize::try_from(options.concurrency).unwrap_or(1));
            tokio::spawn(create_all(pods.clone(), numbers))
        })
        .collect();
    for writer in writers {
        writer.await??;
    }
    let created = creating.elapsed();
    for watcher in watchers {
        watcher.await??;
    }
    let delivered = creating.elapsed();
    let after = resident_bytes();

    let (list_raw, list_bytes) = fastest(3, || raw_list(&client)).await?;
    let (list_typed, _) =
        fastest(3, || async { Ok(Api::<Pod>::all(client.clone()).list(&ListParams::default()).await?.items.len()) })
            .await?;

    let per_pod = before.zip(after).map(|(before, after)| after.saturating_sub(before) / u64::from(options.pods));
    let rate = |elapsed: Duration| f64::from(options.pods) / elapsed.as_secs_f64();
    let result = json!({
        "pods": options.pods,
        "watchers": options.watchers,
        "readyMilliseconds": milliseconds(ready),
        "firstCreateMilliseconds": milliseconds(first_create),
        "createsPerSecond": rate(created).round(),
        "eventsDeliveredPerSecond": (rate(delivered) * f64::from(options.watchers)).round(),
        "listMilliseconds": milliseconds(list_raw),
        "listTypedMilliseconds": milliseconds(list_typed),
        "listBytes": list_bytes,
        "residentBytesPerPod": per_pod,
    });
    match options.output {
        Format::Json => output::print(&serde_json::to_string_pretty(&result)?)?,
        Format::Text => output::print(&table(&options, &result))?,
    }
    Ok(())
}

fn table(options: &Options, result: &serde_json::Value) -> String {
    let row = |what: &str, value: &str, unit: &str, target: &str| {
        format!("{what:<44}{:>12} {unit:<9} {target}\n", result[value].to_string())
    };
    [
        format!(
            "{:<44}{:>12} {:<9} target\n",
            format!("{} pods, {} watchers", options.pods, options.watchers),
            "measured",
            ""
        ),
        row("ready after start", "readyMilliseconds", "ms", "<= 200"),
        row("first object created after start", "firstCreateMilliseconds", "ms", "<= 200"),
        row("creates, in process", "createsPerSecond", "/s", ">= 8000"),
        row("watch events delivered, all watchers", "eventsDeliveredPerSecond", "/s", ""),
        row("list of all pods, bytes read", "listMilliseconds", "ms", "<= 500 at 20000 pods"),
        row("list of all pods, parsed into types", "listTypedMilliseconds", "ms", ""),
        row("resident memory per pod", "residentBytesPerPod", "bytes", "<= 8192"),
    ]
    .concat()
}

fn milliseconds(elapsed: Duration) -> f64 {
    (elapsed.as_secs_f64() * 10_000.0).round() / 10.0
}

async fn fastest<T, F: Future<Output = anyhow::Result<T>>>(
    rounds: u32,
    run: impl Fn() -> F,
) -> anyhow::Result<(Duration, T)> {
    let mut best: Option<(Duration, T)> = None;
    for _ in 0..rounds {
        let start = Instant::now();
        let value = run().await?;
        let elapsed = start.elapsed();
        if best.as_ref().is_none_or(|(fastest, _)| elapsed < *fastest) {
            best = Some((elapsed, value));
        }
    }
    best.context("at least one round")
}

async fn raw_list(client: &Client) -> anyhow::Result<usize> {
    let request = http::Request::get("/api/v1/pods").body(Vec::new())?;
    Ok(client.request_text(request).await?.len())
}

async fn create_all(pods: Api<Pod>, numbers: impl Iterator<Item = u32>) -> anyhow::Result<()> {
    for number in numbers {
        pods.create(&PostParams::default(), &pod(number)?).await.context("create a pod")?;
    }
    Ok(())
}

/// Reads a watch as bytes, one line per event: what is measured is the server, not a client's parser.
async fn count_added(client: Client, wanted: u32) -> anyhow::Result<()> {
    let request = http::Request::get("/api/v1/pods?watch=true&resourceVersion=0").body(Vec::new())?;
    let mut lines = client.request_stream(request).await?.lines();
    // The first pod was there before.
    for _ in 0..=wanted {
        lines.try_next().await?.context("a watcher was dropped: it fell too far behind")?;
    }
    Ok(())
}

/// A pod of the usual size: two containers, a GPU, labels, environment, tolerations.
fn pod(number: u32) -> anyhow::Result<Pod> {
    let name = if number == u32::MAX { "pod-first".to_owned() } else { format!("pod-{number}") };
    Ok(serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": { "app": "trainer", "kai.scheduler/queue": format!("team-{}", number % 10), "job": format!("job-{}", number / 8) },
            "annotations": { "pod-group-name": format!("pg-{}", number / 8) },
        },
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [
                {
                    "name": "train", "image": "example/trainer:1",
                    "command": ["python", "-m", "train"],
                    "env": [{ "name": "RANK", "value": number.to_string() }, { "name": "MODE", "value": "full" }],
                    "resources": { "limits": { "nvidia.com/gpu": "1", "memory": "16Gi" }, "requests": { "cpu": "4", "memory": "16Gi" } },
                },
                { "name": "log", "image": "example/log:1", "resources": { "requests": { "cpu": "100m" } } },
            ],
            "tolerations": [{ "key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule" }],
        },
    }))?)
}
