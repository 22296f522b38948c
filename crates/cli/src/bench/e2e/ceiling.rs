//! Loops that do nothing but bind: what the API server and the nodes leave room for.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Binding, Pod};
use kube::{Api, Client, api::PostParams, core::Status};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use super::{
    GPUS,
    load::{self, Bound, Kind, Sightings, Wanted, pod_name},
};

/// A scheduler that nobody runs.
pub const SCHEDULER: &str = "bench-binds-only";

/// When each pod was asked for, when it had its node, and how long the whole took.
pub struct Turn {
    pub asked: BTreeMap<String, Instant>,
    pub bound: BTreeMap<String, Instant>,
    pub took: Duration,
}

impl Turn {
    /// What came of a turn that began at some moment.
    pub fn new(asked: BTreeMap<String, Instant>, bound: Bound, began: Instant) -> Self {
        let last = bound.last.unwrap_or(began);
        Self { asked, bound: bound.at, took: last.duration_since(began) }
    }
}

/// What a loop binds.
pub struct Loop<'a> {
    pub client: &'a Client,
    pub namespace: &'a str,
    /// In the order in which they are filled.
    pub nodes: &'a [String],
    /// How many pods.
    pub count: u32,
    /// Requests at the same time.
    pub at_once: usize,
    /// Whether they are there already.
    pub pods: Pods,
}

/// When the pods of a loop are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pods {
    /// Before it begins: it finds them.
    AreThere,
    /// While it runs.
    Come,
}

/// Binds pods as a watch shows them: a scheduler without a decision.
pub async fn bind_loop(turn: Loop<'_>) -> anyhow::Result<Turn> {
    let Loop { client, namespace, nodes, count, at_once, pods: when } = turn;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut bound = Sightings::begin(client, namespace, Wanted::TakenIn).await?;
    // To find pods that are there is part of the turn. Where pods come, the turn begins with the first, as everybody's.
    let finding = Instant::now();
    let mut waiting = Sightings::begin(client, namespace, Wanted::Waiting).await?;
    let begin = if when == Pods::Come { Instant::now() } else { finding };
    let create = async {
        match when {
            Pods::Come => load::create(client, namespace, Kind::Whole, count, SCHEDULER).await,
            Pods::AreThere => Ok((0..count).map(|number| (pod_name(number), begin)).collect()),
        }
    };
    let nodes: Arc<[String]> = nodes.into();
    let bind_all = async {
        let mut binding = JoinSet::new();
        for found in 0..count {
            let pod = waiting.next().await.with_context(|| format!("{found} of {count} pods are found"))?;
            let number = pod.name.trim_start_matches("pod-").parse().context("the number of a pod")?;
            let (pods, nodes, namespace) = (pods.clone(), Arc::clone(&nodes), namespace.to_owned());
            binding.spawn(async move { bind(&pods, &namespace, &nodes, number).await });
            if binding.len() >= at_once
                && let Some(done) = binding.join_next().await
            {
                done??;
            }
        }
        while let Some(done) = binding.join_next().await {
            done??;
        }
        Ok(())
    };
    let (asked, (), bound) = tokio::try_join!(create, bind_all, bound.wait(count))?;
    Ok(Turn::new(asked, bound, begin))
}

async fn bind(pods: &Api<Pod>, namespace: &str, nodes: &[String], number: u32) -> anyhow::Result<()> {
    let index = usize::try_from(number / GPUS)?;
    let node = nodes.get(index).context("more pods than GPUs")?;
    let name = pod_name(number);
    let binding: Binding = serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": namespace },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node },
    }))?;
    let answer = pods.create_subresource::<Binding, Status>("binding", &name, &PostParams::default(), &binding).await;
    answer.map(drop).with_context(|| format!("bind {name}"))
}
