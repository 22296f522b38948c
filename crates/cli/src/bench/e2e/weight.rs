//! What the control plane weighs: each component as a process of its own, and so the API server.

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::Context as _;
use kai_api::names::objects;
use tokio::process::{Child, Command};

use super::{
    ground::{Ground, Where, free_port},
    load::{self, Kind, Sightings, Wanted},
};
use crate::{bench::memory::resident_bytes_of, control_plane::Part};

/// After the last pod is bound, statuses are still being written.
const SETTLE: Duration = Duration::from_secs(5);

/// Resident bytes.
pub struct Weights {
    /// How many pods there were at last.
    pub pods: u32,
    /// On how many nodes.
    pub nodes: u32,
    /// Component, bytes with the nodes and one pod, bytes with all pods.
    pub parts: Vec<(&'static str, u64, u64)>,
}

/// Starts the components, binds pods and weighs before and after.
pub async fn weigh(pods: u32, nodes: u32) -> anyhow::Result<Weights> {
    anstream::eprintln!("memory: {pods} pods on {nodes} nodes, each component in a process of its own");
    let ground = Ground::start(&Where::Embedded, nodes).await?;
    let (client, path) = (ground.client().clone(), ground.kubeconfig().context("it has a socket")?);

    let mut children = Vec::new();
    for part in Part::ALL {
        children.push((part.component(), start(part, path)?));
    }
    // Bound pods prove that everybody is there.
    let probe = async {
        let mut bound = Sightings::begin(&client, "kube-public", Wanted::TakenIn).await?;
        admission_answers(&client).await?;
        load::create(&client, "kube-public", Kind::Whole, 1, objects::SCHEDULER).await?;
        bound.wait(1).await
    };
    probe.await.context("bind the first pod")?;
    tokio::time::sleep(SETTLE).await;
    let before = resident(&mut children)?;
    let mut bound = Sightings::begin(&client, "default", Wanted::TakenIn).await?;
    let create = load::create(&client, "default", Kind::Whole, pods.saturating_sub(1), objects::SCHEDULER);
    tokio::try_join!(create, bound.wait(pods.saturating_sub(1)))?;
    tokio::time::sleep(SETTLE).await;
    let after = resident(&mut children)?;
    for (_, child) in &mut children {
        child.start_kill().context("end a component")?;
    }
    for (_, mut child) in children {
        child.wait().await?;
    }
    ground.clear().await?;
    let parts = Part::ALL.into_iter().map(Part::component).zip(before).zip(after);
    Ok(Weights { pods, nodes, parts: parts.map(|((name, before), after)| (name, before, after)).collect() })
}

fn start(part: Part, kubeconfig: &Path) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(program);
    command.arg(part.component()).arg("--kubeconfig").arg(kubeconfig).args(["--listen", "off", "--log", "error"]);
    if part == Part::Admission {
        let port = free_port()?;
        command.arg("--webhook-listen").arg(format!("127.0.0.1:{port}"));
        command.arg("--webhook-url").arg(format!("https://127.0.0.1:{port}"));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    command.spawn().with_context(|| format!("start the {part}"))
}

/// Until it has registered itself, pods would be stored without its words.
async fn admission_answers(client: &kube::Client) -> anyhow::Result<()> {
    use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
    let api: kube::Api<MutatingWebhookConfiguration> = kube::Api::all(client.clone());
    for _ in 0..600 {
        if !api.list(&kube::api::ListParams::default()).await?.items.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("the admission server has not registered itself within 30 s")
}

fn resident(children: &mut [(&'static str, Child)]) -> anyhow::Result<Vec<u64>> {
    let weigh = |(name, child): &mut (&'static str, Child)| {
        if let Some(status) = child.try_wait()? {
            anyhow::bail!("the {name} ended with {status}");
        }
        let id = child.id().with_context(|| format!("the {name} has ended"))?;
        resident_bytes_of(id).with_context(|| format!("the kernel does not say what the {name} weighs"))
    };
    children.iter_mut().map(weigh).collect()
}
