//! The workload controllers of the embedded cluster: ReplicaSet, Deployment, StatefulSet, DaemonSet, Job, CronJob, and the two
//! small ones their users lean on (disruption budgets, default service accounts).
//!
//! They do what kube-controller-manager does, seen from the API. One task watches everything into a [`World`], marks what each
//! change may concern as [`Work`], and settles work in a fixed order, so that a run with virtual time repeats exactly:
//!
//! ```text
//!  watches -> World (caches, write-through) -> Work (ordered set, with delays) -> one reconcile per kind -> API calls
//! ```
//!
//! A reconcile looks only at what is, never at what happened; a failed call leaves the work to be tried again with back-off.

mod context;
mod cron_job;
mod cron_schedule;
mod daemon_set;
mod deployment;
mod disruption;
mod job;
mod pod_template;
mod replica_set;
mod revision;
mod service_account;
mod stateful_set;
mod world;

use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kai_clock::Clock;
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use context::Context;
use world::{Change, Watched, Work};

/// Runs all controllers against `client` until `cancel` fires.
pub async fn run(client: Client, clock: Clock, cancel: CancellationToken) {
    let mut context = Context::new(client.clone(), clock);
    let mut changes = pin!(watch_all(&client));
    loop {
        let pause = context.until_next_work();
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            change = changes.next() => match change {
                Some(change) => context.observe(change),
                None => return,
            },
            () = tokio::time::sleep(pause) => {}
        }
        // Take in everything that has already arrived: one look at a hundred changes is cheaper than a hundred looks.
        while let Some(Some(change)) = futures::FutureExt::now_or_never(changes.next()) {
            context.observe(change);
        }
        while let Some(work) = context.next_work() {
            let outcome = tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                outcome = settle(&mut context, &work) => outcome,
            };
            context.record_outcome(work, outcome);
            while let Some(Some(change)) = futures::FutureExt::now_or_never(changes.next()) {
                context.observe(change);
            }
        }
    }
}

async fn settle(context: &mut Context, work: &Work) -> Result<(), kube::Error> {
    match work {
        Work::ServiceAccount(namespace) => service_account::reconcile(context, namespace).await,
        Work::CronJob(key) => cron_job::reconcile(context, key).await,
        Work::Deployment(key) => deployment::reconcile(context, key).await,
        Work::ReplicaSet(key) => replica_set::reconcile(context, key).await,
        Work::StatefulSet(key) => stateful_set::reconcile(context, key).await,
        Work::DaemonSet(key) => daemon_set::reconcile(context, key).await,
        Work::Job(key) => job::reconcile(context, key).await,
        Work::Orphan(key) => job::release_orphan(context, key).await,
        Work::DisruptionBudget(key) => disruption::reconcile(context, key).await,
    }
}

fn watch_all(client: &Client) -> impl Stream<Item = Change> + use<> {
    stream::select_all([
        watch::<Namespace>(client),
        watch::<ServiceAccount>(client),
        watch::<Node>(client),
        watch::<Deployment>(client),
        watch::<ReplicaSet>(client),
        watch::<StatefulSet>(client),
        watch::<DaemonSet>(client),
        watch::<ControllerRevision>(client),
        watch::<Job>(client),
        watch::<CronJob>(client),
        watch::<PodDisruptionBudget>(client),
        watch::<Pod>(client),
    ])
}

fn watch<K: Watched>(client: &Client) -> stream::BoxStream<'static, Change> {
    watcher(Api::<K>::all(client.clone()), watcher::Config::default())
        .backoff(FixedDelay)
        .filter_map(|event| async move {
            match event {
                Ok(event) => Some(Change::new(event)),
                Err(error) => {
                    tracing::debug!(kind = %K::kind(&()), %error, "watch interrupted");
                    None
                }
            }
        })
        .boxed()
}

/// A dropped watch resumes after a moment without jitter, so that a virtual hour repeats exactly.
struct FixedDelay;

impl Iterator for FixedDelay {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(500))
    }
}

impl Backoff for FixedDelay {
    fn reset(&mut self) {}
}
