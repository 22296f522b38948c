//! `kai queue tree`: the queues of a cluster as a tree, with what each is guaranteed, may use, holds and asks for.
//!
//! Numbers come from the queues' own statuses. Queues without a way to the top are shown too, with a mark that says
//! why.

mod forest;
mod table;

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::Context;
use kai_api::{PodGroup, Queue};
use kube::{
    Api, Client,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};

use self::forest::Forest;
use crate::output;

/// Options of `kai queue tree`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Show this queue and those below it only.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// How to print: GPUs only, with CPU and memory, or everything for programs.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// The cluster to ask; as kubectl finds it when not given.
    #[arg(long, env = "KUBECONFIG", value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use.
    #[arg(long)]
    context: Option<String>,
}

/// How the tree is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people: GPUs.
    #[default]
    Text,
    /// For people: GPUs, CPU and memory.
    Wide,
    /// For programs.
    Json,
}

/// Asks the cluster and prints the tree.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let client = connect(&options).await?;
    let queues = queues(&client).await?;
    // How many groups a queue has is worth knowing, but not worth failing for.
    let groups = Api::<PodGroup>::all(client).list(&ListParams::default()).await.ok();
    let counts = groups.map(|groups| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for group in groups.items {
            *counts.entry(group.spec.queue.unwrap_or_default()).or_default() += 1;
        }
        counts
    });
    let forest = Forest::grow(&queues, counts.as_ref());
    let forest = match &options.name {
        Some(name) => forest.below(name).with_context(|| unknown(name, &queues))?,
        None => forest,
    };
    Ok(output::print(&match options.output {
        Format::Json => serde_json::to_string_pretty(&forest)?,
        Format::Text | Format::Wide if forest.queues.is_empty() => {
            anstream::eprintln!("no queues\nhint: create one, see `kubectl explain queue.spec`");
            return Ok(());
        }
        Format::Text => table::text(&forest, table::Width::Gpus),
        Format::Wide => table::text(&forest, table::Width::All),
    })?)
}

fn unknown(name: &str, queues: &[Queue]) -> String {
    let names: Vec<&str> = queues.iter().filter_map(|queue| queue.metadata.name.as_deref()).take(20).collect();
    let there =
        if names.is_empty() { "there are no queues".to_owned() } else { format!("there are: {}", names.join(", ")) };
    format!("there is no queue `{name}`\nhint: {there}")
}

async fn connect(options: &Options) -> anyhow::Result<Client> {
    let choice = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    let config = match &options.kubeconfig {
        Some(path) => {
            let kubeconfig =
                Kubeconfig::read_from(path).with_context(|| format!("read kubeconfig `{}`", path.display()))?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &choice).await?
        }
        None => kube::Config::from_kubeconfig(&choice).await.context("find a kubeconfig (hint: --kubeconfig PATH)")?,
    };
    Ok(Client::try_from(config)?)
}

async fn queues(client: &Client) -> anyhow::Result<Vec<Queue>> {
    match Api::<Queue>::all(client.clone()).list(&ListParams::default()).await {
        Ok(list) => Ok(list.items),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            anyhow::bail!(
                "the cluster does not know queues\nhint: install the definitions: kai crds | kubectl apply -f -"
            )
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => {
            anyhow::bail!(
                "the cluster refuses to list queues: {}\nhint: ask for the right to list `queues.scheduling.run.ai`",
                status.message
            )
        }
        Err(error) => Err(error)
            .context("the API server cannot be reached\nhint: is it running, and is it the one of --kubeconfig?"),
    }
}

#[cfg(test)]
mod tests;
