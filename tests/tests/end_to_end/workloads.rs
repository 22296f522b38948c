//! What controllers make of Deployments, Jobs and StatefulSets.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet, StatefulSet},
    batch::v1::Job,
    core::v1::Pod,
    policy::v1::PodDisruptionBudget,
};
use kai_tests::{
    case,
    cluster::{Cluster, PATIENCE},
    harness::{ALL, Case},
    wait,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams},
    runtime::conditions,
};
use serde_json::json;

use crate::specimen::{forever, from_json, once, wait_for_rollout};

pub const CASES: &[Case] = &[
    case!(a_deployment_rolls_out_scales_and_rolls_over, ALL),
    case!(a_replica_set_replaces_a_pod_that_was_deleted, ALL),
    case!(a_job_completes, ALL),
    case!(a_job_gives_up_after_its_backoff_limit, ALL),
    case!(a_stateful_set_starts_its_pods_in_order, ALL),
    case!(a_disruption_budget_protects_pods_from_eviction, ALL),
];

async fn a_deployment_rolls_out_scales_and_rolls_over(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("deployment").await?;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), &namespace);
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    let template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": forever(&cluster.any_node().await?),
    });
    let deployment: Deployment = from_json(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }))?;
    deployments.create(&PostParams::default(), &deployment).await?;
    wait_for_rollout(&deployments, "web", 2).await?;

    let scale = json!({"spec": {"replicas": 3}});
    deployments.patch_scale("web", &PatchParams::default(), &Patch::Merge(scale)).await?;
    wait_for_rollout(&deployments, "web", 3).await?;

    let change = json!({"spec": {"template": {"metadata": {"labels": {"generation": "second"}}}}});
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(change)).await?;
    wait_for_rollout(&deployments, "web", 3).await?;
    let sets: Api<ReplicaSet> = Api::namespaced(cluster.client(), &namespace);
    let mut sizes: Vec<_> = sets.list(&ListParams::default()).await?.iter().map(replicas_wanted).collect();
    sizes.sort_unstable();
    ensure!(sizes == [0, 3], "the old replica set is kept and empty, the new one is full: {sizes:?}");

    deployments.delete("web", &DeleteParams::foreground()).await?;
    wait::for_absence(&deployments, "web", PATIENCE).await?;
    let left = pods.list(&ListParams::default()).await?.items;
    ensure!(left.is_empty(), "foreground deletion left {} pods", left.len());
    cluster.forget_namespace(&namespace).await
}

async fn a_job_completes(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("job").await?;
    let jobs: Api<Job> = Api::namespaced(cluster.client(), &namespace);
    let pod = once(cluster, "unused", 0).await?;
    let template = json!({"metadata": {"annotations": pod.metadata.annotations}, "spec": pod.spec});
    let job: Job = from_json(json!({
        "metadata": {"name": "train"},
        "spec": {"completions": 3, "parallelism": 2, "backoffLimit": 0, "template": template},
    }))?;
    jobs.create(&PostParams::default(), &job).await?;
    let job = wait::for_object(&jobs, "train", "completed", PATIENCE, conditions::is_job_completed()).await?;
    let status = job.and_then(|job| job.status).context("the job has no status")?;
    ensure!(status.succeeded == Some(3), "three pods succeeded: {:?}", status.succeeded);
    ensure!(status.completion_time.is_some(), "the job says when it was done");
    cluster.forget_namespace(&namespace).await
}

async fn a_replica_set_replaces_a_pod_that_was_deleted(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("replaced").await?;
    let sets: Api<ReplicaSet> = Api::namespaced(cluster.client(), &namespace);
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": forever(&cluster.any_node().await?)});
    let set: ReplicaSet = from_json(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }))?;
    sets.create(&PostParams::default(), &set).await?;
    let is_ready = |set: Option<&ReplicaSet>| {
        set.and_then(|set| set.status.as_ref()).is_some_and(|status| status.ready_replicas == Some(1))
    };
    wait::for_object(&sets, "web", "ready", PATIENCE, is_ready).await?;
    let first = pods.list(&ListParams::default()).await?.items.first().context("there is no pod")?.clone();
    pods.delete(&first.name_any(), &DeleteParams::default().grace_period(1)).await?;
    wait::until("another pod to run", PATIENCE, async || {
        let is_other = |pod: &Pod| pod.uid() != first.uid();
        let running = conditions::is_pod_running();
        let found = pods.list(&ListParams::default()).await?;
        Ok(found
            .iter()
            .any(|pod| is_other(pod) && conditions::Condition::matches_object(&running, Some(pod)))
            .then_some(()))
    })
    .await?;
    cluster.forget_namespace(&namespace).await
}

async fn a_job_gives_up_after_its_backoff_limit(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("hopeless").await?;
    let jobs: Api<Job> = Api::namespaced(cluster.client(), &namespace);
    let pod = once(cluster, "unused", 1).await?;
    let template = json!({"metadata": {"annotations": pod.metadata.annotations}, "spec": pod.spec});
    let job: Job =
        from_json(json!({"metadata": {"name": "hopeless"}, "spec": {"backoffLimit": 0, "template": template}}))?;
    jobs.create(&PostParams::default(), &job).await?;
    let has_failed = |job: Option<&Job>| {
        let conditions = job.and_then(|job| job.status.as_ref()).and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| condition.type_ == "Failed" && condition.status == "True")
    };
    let job = wait::for_object(&jobs, "hopeless", "failed", PATIENCE, has_failed).await?;
    let status = job.and_then(|job| job.status).context("the job has no status")?;
    ensure!(status.failed == Some(1), "one pod has failed: {:?}", status.failed);
    let failure = status.conditions.unwrap_or_default().into_iter().find(|condition| condition.type_ == "Failed");
    let reason = failure.and_then(|failure| failure.reason);
    ensure!(reason.as_deref() == Some("BackoffLimitExceeded"), "the reason is {reason:?}");
    cluster.forget_namespace(&namespace).await
}

async fn a_stateful_set_starts_its_pods_in_order(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("stateful").await?;
    let sets: Api<StatefulSet> = Api::namespaced(cluster.client(), &namespace);
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    let template = json!({"metadata": {"labels": {"app": "db"}}, "spec": forever(&cluster.any_node().await?)});
    let set: StatefulSet = from_json(json!({
        "metadata": {"name": "db"},
        "spec": {"replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template},
    }))?;
    sets.create(&PostParams::default(), &set).await?;
    let is_ready = |set: Option<&StatefulSet>| {
        set.and_then(|set| set.status.as_ref()).is_some_and(|status| status.ready_replicas == Some(2))
    };
    wait::for_object(&sets, "db", "ready", PATIENCE, is_ready).await?;
    let (first, second) = (pods.get("db-0").await?, pods.get("db-1").await?);
    let ready_since = first.status.and_then(|status| status.conditions).into_iter().flatten();
    let ready_since = ready_since.filter(|condition| condition.type_ == "Ready").find_map(|it| it.last_transition_time);
    ensure!(second.metadata.creation_timestamp >= ready_since, "the second pod was made before the first was ready");
    cluster.forget_namespace(&namespace).await
}

async fn a_disruption_budget_protects_pods_from_eviction(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("protected").await?;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), &namespace);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client(), &namespace);
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": forever(&cluster.any_node().await?)});
    let deployment: Deployment = from_json(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }))?;
    deployments.create(&PostParams::default(), &deployment).await?;
    wait_for_rollout(&deployments, "web", 2).await?;
    let budget: PodDisruptionBudget = from_json(json!({
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }))?;
    budgets.create(&PostParams::default(), &budget).await?;
    let counts = |allowed: i32| {
        move |budget: Option<&PodDisruptionBudget>| {
            budget.is_some_and(|budget| {
                let status = budget.status.clone().unwrap_or_default();
                status.observed_generation == budget.metadata.generation
                    && status.current_healthy >= 2
                    && status.disruptions_allowed == allowed
            })
        }
    };
    wait::for_object(&budgets, "web", "counted", PATIENCE, counts(0)).await?;
    let pod = pods.list(&ListParams::default()).await?.items.first().context("there is no pod")?.name_any();
    let refused = pods.evict(&pod, &EvictParams::default()).await;
    let too_many = matches!(&refused, Err(kube::Error::Api(status)) if status.code == 429);
    ensure!(too_many, "the budget allows no eviction: {refused:?}");

    let change = json!({"spec": {"minAvailable": 1}});
    budgets.patch("web", &PatchParams::default(), &Patch::Merge(change)).await?;
    wait::for_object(&budgets, "web", "counted again", PATIENCE, counts(1)).await?;
    pods.evict(&pod, &EvictParams::default()).await?;
    wait::for_absence(&pods, &pod, PATIENCE).await?;
    cluster.forget_namespace(&namespace).await
}

fn replicas_wanted(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}
