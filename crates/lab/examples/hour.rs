//! A simulated hour of a large cluster, and how long it took: `cargo run --release -p kai-lab --example hour [nodes] [pods]`.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kai_clock::Clock;
use kai_lab::{
    cluster::{Lab, LabOptions},
    fleet::Fleet,
};
use kube::{Api, api::PostParams};
use serde_json::json;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let nodes: usize = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let pods: usize = arguments.next().map_or(Ok(10_000), |text| text.parse())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(hour(nodes, pods))
}

async fn hour(nodes: usize, pods: usize) -> anyhow::Result<()> {
    // The one place that looks at the machine's clock: this program measures.
    let begin = std::time::Instant::now();
    let fleet = Fleet::parse(&format!("dgx-h100*{nodes}"))?;
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse()?);
    let lab = Lab::start(LabOptions::new(fleet, clock));
    lab.ready().await;
    println!("{nodes} nodes registered after {:.2?}", begin.elapsed());
    let api = Api::<Pod>::namespaced(lab.client(), "default");
    for index in 0..pods {
        // Half of them train for a while and end, half serve for ever; they arrive over the hour's first half.
        let (policy, run) = if index % 2 == 0 { ("Never", "600") } else { ("Always", "forever") };
        let gpus = u8::from(index % 16 < 8).to_string();
        let pod = serde_json::from_value(json!({
            "metadata": {"name": format!("p{index}"), "annotations": {"lab.kai/run-seconds": run}},
            "spec": {"nodeName": format!("dgx-h100-{}", index % nodes), "restartPolicy": policy,
                "containers": [{"name": "main", "image": "train:1", "resources":
                    {"requests": {"cpu": "4"}, "limits": {"nvidia.com/gpu": gpus}}}]},
        }))?;
        api.create(&PostParams::default(), &pod).await?;
        if index % (pods / 180).max(1) == 0 {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    }
    println!("{pods} pods created after {:.2?}, it is {}", begin.elapsed(), clock.now());
    let end = "2026-01-01T01:00:00Z".parse::<jiff::Timestamp>()?;
    let rest = Duration::try_from(end.duration_since(clock.now())).unwrap_or_default();
    tokio::time::sleep(rest).await;
    let lines = lab.event_log();
    let digest = lines.iter().fold(0_u64, |sum, line| kai_lab::seed::Seed(sum).hash(&[line]));
    println!("one hour after {:.2?}; {} lines in the event log, digest {digest:016x}", begin.elapsed(), lines.len());
    for word in ["Succeeded", "Running 1/1", "refused"] {
        println!("  {word}: {}", lines.iter().filter(|line| line.contains(word)).count());
    }
    lab.shutdown().await;
    Ok(())
}
