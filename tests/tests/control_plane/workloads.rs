//! The kinds of workloads whose pods get groups, and what is said of a workload that contradicts itself.

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::Pod,
};
use kai_api::names::{annotations, labels};
use kai_tests::{
    case,
    cluster::{Cluster, PATIENCE},
    harness::{Case, SIMULATED_NODES},
    wait,
};
use kube::{Api, ResourceExt as _, api::PostParams};
use serde_json::{Value, json};

use crate::stage::{Stage, from_json, is_running};

pub const CASES: &[Case] = &[
    case!(pods_of_sets_daemons_and_cron_jobs_run, SIMULATED_NODES),
    case!(a_workload_that_contradicts_itself_is_told_so, SIMULATED_NODES),
];

fn template(stage: &Stage<'_>, app: &str, restart: &str) -> Value {
    let mut spec = stage.pod_spec(&json!({}));
    spec["restartPolicy"] = json!(restart);
    let annotations = json!({ annotations::GPU_FRACTION: "0.1", "lab.kai/run-seconds": "3600" });
    json!({ "metadata": { "labels": { "app": app, labels::QUEUE: stage.queue }, "annotations": annotations }, "spec": spec })
}

async fn pods_of_sets_daemons_and_cron_jobs_run(cluster: &Cluster) -> Result<()> {
    let stage = Stage::set(cluster, "owners").await?;
    let create = PostParams::default();
    let selected = |app: &str| json!({ "matchLabels": { "app": app } });
    let set: StatefulSet = from_json(json!({
        "metadata": { "name": "set" },
        "spec": { "replicas": 1, "serviceName": "set", "selector": selected("set"), "template": template(&stage, "set", "Always") },
    }))?;
    Api::namespaced(cluster.client(), &stage.namespace).create(&create, &set).await?;
    let daemon: DaemonSet = from_json(json!({
        "metadata": { "name": "daemon" },
        "spec": { "selector": selected("daemon"), "template": template(&stage, "daemon", "Always") },
    }))?;
    Api::namespaced(cluster.client(), &stage.namespace).create(&create, &daemon).await?;
    // The Job of a CronJob, made by hand: waiting for a full minute proves nothing more.
    let job_spec = json!({ "template": template(&stage, "cron", "Never") });
    let cron: CronJob = from_json(json!({
        "metadata": { "name": "cron" },
        "spec": { "schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": { "spec": job_spec } },
    }))?;
    let cron = Api::<CronJob>::namespaced(cluster.client(), &stage.namespace).create(&create, &cron).await?;
    let owner =
        json!({ "apiVersion": "batch/v1", "kind": "CronJob", "name": "cron", "uid": cron.uid(), "controller": true });
    let job: Job =
        from_json(json!({ "metadata": { "name": "cron-1", "ownerReferences": [owner] }, "spec": job_spec }))?;
    Api::namespaced(cluster.client(), &stage.namespace).create(&create, &job).await?;

    let pods = wait::until("a pod of each to run", PATIENCE, async || {
        let pods: Vec<Pod> = stage.all().await?.into_values().filter(is_running).collect();
        let apps = ["set", "daemon", "cron"];
        let all =
            apps.iter().all(|app| pods.iter().any(|pod| pod.labels().get("app").is_some_and(|label| label == app)));
        Ok(all.then_some(pods))
    })
    .await?;
    for pod in pods {
        ensure!(pod.annotations().contains_key(annotations::POD_GROUP), "`{}` has no group", pod.name_any());
    }
    stage.clear().await
}

async fn a_workload_that_contradicts_itself_is_told_so(cluster: &Cluster) -> Result<()> {
    let stage = Stage::named(cluster, "owners", "muddled").await?;
    let mut metadata = json!({ "name": "muddled", "annotations": { annotations::BATCH_MIN_MEMBER: "several" } });
    metadata["labels"] = json!({ labels::QUEUE: stage.queue });
    let job: Job =
        from_json(json!({ "metadata": metadata, "spec": { "template": template(&stage, "muddled", "Never") } }))?;
    Api::namespaced(cluster.client(), &stage.namespace).create(&PostParams::default(), &job).await?;
    let name = wait::until("the pod", PATIENCE, async || Ok(stage.all().await?.into_keys().next())).await?;
    stage.event("Pod", &name, &[annotations::BATCH_MIN_MEMBER, "several"]).await?;
    stage.create_fraction("plain", "0.1").await?;
    stage.running("plain").await?;
    stage.clear().await
}
