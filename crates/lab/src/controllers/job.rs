//! Job: runs pods to completion, counts them exactly once, and gives up when it must.
//!
//! Pods carry a tracking finalizer, so that an ended pod cannot vanish before it is counted. Counting takes three steps, each
//! safe to repeat after a crash: note the uids in `status.uncountedTerminatedPods`, take the finalizers off, add to the totals.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::context::{Context, EventKind};
use super::pod_template::{is_active, is_finished, is_ready, phase, pod_from};
use super::world::{Key, Work};

const CONTROLLER: &str = "job-controller";
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Pause before a failed pod is replaced: doubled with each failure, as in the real controller.
const FIRST_BACKOFF: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_BACKOFF: SignedDuration = SignedDuration::from_mins(10);

/// Brings one Job closer to its end.
pub async fn reconcile(context: &mut Context, key: &Key) -> Result<(), kube::Error> {
    let Some(job) = context.world.jobs.get(key).cloned() else { return Ok(()) };
    let Some(spec) = job.spec.as_ref() else { return Ok(()) };
    if job.metadata.deletion_timestamp.is_some() {
        return release_all(context, &job).await;
    }
    let status = job.status.clone().unwrap_or_default();
    if let Some(finished_at) = finished_at(&status) {
        release_all(context, &job).await?;
        return clean_up(context, &job, spec, finished_at).await;
    }
    let Some(status) = count(context, &job, spec, status).await? else { return Ok(()) };
    let Some(job) = context.world.jobs.get(key).cloned() else { return Ok(()) };

    let verdict = verdict(context, &job, spec, &status);
    let suspended = spec.suspend == Some(true);
    let active = active_pods(context, &job);
    if verdict.is_some() || suspended {
        for pod in &active {
            context.delete(pod.as_ref()).await?;
        }
    } else {
        place(context, &job, spec, &status, &active).await?;
    }
    report(context, key, spec, status, verdict).await
}

fn active_pods(context: &Context, job: &Job) -> Vec<Arc<Pod>> {
    let mut pods = context.world.pods.controlled_by(&job.uid().unwrap_or_default());
    pods.retain(|pod| is_active(pod));
    pods
}

fn finished_at(status: &JobStatus) -> Option<Timestamp> {
    let finished = status
        .conditions
        .iter()
        .flatten()
        .find(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True")?;
    Some(finished.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}

fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

fn index_of(pod: &Pod) -> Option<i32> {
    pod.annotations().get(INDEX)?.parse().ok()
}

fn is_tracked(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == TRACKING)
}

/// Takes the tracking finalizer off a pod.
async fn release(context: &mut Context, pod: &Arc<Pod>) -> Result<(), kube::Error> {
    let rest: Vec<&String> = pod.finalizers().iter().filter(|finalizer| *finalizer != TRACKING).collect();
    match context.patch(pod.as_ref(), &json!({ "metadata": { "uid": pod.uid(), "finalizers": rest } })).await {
        // Gone, or its name belongs to another pod by now.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
            let _ = context.world.gone(pod.as_ref());
            Ok(())
        }
        other => other,
    }
}

async fn release_all(context: &mut Context, job: &Job) -> Result<(), kube::Error> {
    for pod in context.world.pods.controlled_by(&job.uid().unwrap_or_default()) {
        if is_tracked(&pod) {
            release(context, &pod).await?;
        }
    }
    Ok(())
}

/// Lets go of a pod whose Job is no more: nobody will ever count it.
pub async fn release_orphan(context: &mut Context, key: &Key) -> Result<(), kube::Error> {
    let pod = context.world.pods.get(key).filter(|pod| is_tracked(pod) && context.world.lost_its_job(pod)).cloned();
    match pod {
        Some(pod) => release(context, &pod).await,
        None => Ok(()),
    }
}

/// Whether an ended (or ending) pod counts, and how.
fn outcome(pod: &Pod) -> Option<bool> {
    match phase(pod) {
        "Succeeded" => Some(true),
        "Failed" => Some(false),
        // Deleted before it ended: it failed, once it is really going.
        _ => None,
    }
}

/// Books ended pods. `None`: the totals are being written; the answer brings us back.
async fn count(
    context: &mut Context,
    job: &Arc<Job>,
    spec: &JobSpec,
    mut status: JobStatus,
) -> Result<Option<JobStatus>, kube::Error> {
    let pods = context.world.pods.controlled_by(&job.uid().unwrap_or_default());
    let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let mut succeeded: BTreeSet<String> = uncounted.succeeded.clone().unwrap_or_default().into_iter().collect();
    let mut failed: BTreeSet<String> = uncounted.failed.clone().unwrap_or_default().into_iter().collect();
    let mut indexes = parse_indexes(status.completed_indexes.as_deref().unwrap_or_default());
    let noted = succeeded.len() + failed.len();
    for pod in pods.iter().filter(|pod| is_tracked(pod)) {
        let uid = pod.uid().unwrap_or_default();
        let ended = outcome(pod).or((pod.metadata.deletion_timestamp.is_some() && !is_running(pod)).then_some(false));
        // Its kubelet has let go of it, perhaps without having begun with it.
        let ended = ended.or((pod.metadata.deletion_grace_period_seconds == Some(0)).then_some(false));
        match ended {
            Some(true) if is_indexed(spec) => {
                if index_of(pod).is_some_and(|index| index < spec.completions.unwrap_or(0) && indexes.insert(index)) {
                    succeeded.insert(uid);
                } else if !succeeded.contains(&uid) {
                    release(context, pod).await?;
                }
            }
            Some(true) => {
                succeeded.insert(uid);
            }
            Some(false) => {
                failed.insert(uid);
            }
            None => {}
        }
    }
    if succeeded.is_empty() && failed.is_empty() {
        return Ok(Some(status));
    }
    if succeeded.len() + failed.len() > noted {
        let completed = is_indexed(spec).then(|| print_indexes(&indexes));
        let patch = json!({ "uncountedTerminatedPods": { "succeeded": succeeded, "failed": failed }, "completedIndexes": completed });
        context.patch_status(job.as_ref(), patch).await?;
    }
    for pod in pods.iter().filter(|pod| is_tracked(pod)) {
        let uid = pod.uid().unwrap_or_default();
        if succeeded.contains(&uid) || failed.contains(&uid) {
            release(context, pod).await?;
        }
    }
    let Some(job) = context.world.jobs.get(&Key::of(job.as_ref())).cloned() else { return Ok(None) };
    let add =
        |total: Option<i32>, more: usize| total.unwrap_or(0).saturating_add(i32::try_from(more).unwrap_or(i32::MAX));
    let succeeded_total = if is_indexed(spec) {
        i32::try_from(indexes.len()).unwrap_or(i32::MAX)
    } else {
        add(status.succeeded, succeeded.len())
    };
    let failed_total = add(status.failed, failed.len());
    context
        .patch_status(
            job.as_ref(),
            json!({
                "uncountedTerminatedPods": { "succeeded": null, "failed": null },
                "succeeded": succeeded_total, "failed": failed_total,
            }),
        )
        .await?;
    status.succeeded = Some(succeeded_total);
    status.failed = Some(failed_total);
    status.completed_indexes = is_indexed(spec).then(|| print_indexes(&indexes));
    Ok(Some(status))
}

fn is_running(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) && !is_finished(pod)
}

/// How a job ends.
enum Verdict {
    Complete,
    Failed { reason: &'static str, message: &'static str },
}

fn verdict(context: &mut Context, job: &Job, spec: &JobSpec, status: &JobStatus) -> Option<Verdict> {
    let succeeded = status.succeeded.unwrap_or(0);
    let failed = status.failed.unwrap_or(0);
    if failed > spec.backoff_limit.unwrap_or(6) {
        return Some(Verdict::Failed {
            reason: "BackoffLimitExceeded",
            message: "Job has reached the specified backoff limit",
        });
    }
    if let (Some(limit), Some(start), false) =
        (spec.active_deadline_seconds, &status.start_time, spec.suspend == Some(true))
    {
        let due = start.0.saturating_add(SignedDuration::from_secs(limit)).unwrap_or(Timestamp::MAX);
        if due <= context.now() {
            return Some(Verdict::Failed {
                reason: "DeadlineExceeded",
                message: "Job was active longer than specified deadline",
            });
        }
        context.look_again(due, Work::Job(Key::of(job)));
    }
    let complete = match spec.completions {
        Some(wanted) => succeeded >= wanted,
        // A work queue is done when one pod succeeded and none is left.
        None => succeeded > 0 && active_pods(context, job).is_empty(),
    };
    complete.then_some(Verdict::Complete)
}

/// Makes the pods that are missing, removes those that are too many.
async fn place(
    context: &mut Context,
    job: &Arc<Job>,
    spec: &JobSpec,
    status: &JobStatus,
    active: &[Arc<Pod>],
) -> Result<(), kube::Error> {
    let parallelism = usize::try_from(spec.parallelism.unwrap_or(1)).unwrap_or(0);
    let succeeded = usize::try_from(status.succeeded.unwrap_or(0)).unwrap_or(0);
    let wanted = match spec.completions {
        Some(completions) => parallelism.min(usize::try_from(completions).unwrap_or(0).saturating_sub(succeeded)),
        None if succeeded > 0 => active.len().min(parallelism),
        None => parallelism,
    };
    if active.len() > wanted {
        for pod in active.iter().rev().take(active.len() - wanted) {
            context.delete(pod.as_ref()).await?;
        }
        return Ok(());
    }
    let missing = wanted - active.len();
    if missing == 0 {
        return Ok(());
    }
    if let Some(due) = retry_at(context, job, status)
        && due > context.now()
    {
        context.look_again(due, Work::Job(Key::of(job.as_ref())));
        return Ok(());
    }
    let taken: BTreeSet<i32> = active.iter().filter_map(|pod| index_of(pod)).collect();
    let done = parse_indexes(status.completed_indexes.as_deref().unwrap_or_default());
    let mut free = (0..spec.completions.unwrap_or(0)).filter(|index| !taken.contains(index) && !done.contains(index));
    for _ in 0..missing {
        let index = if is_indexed(spec) {
            match free.next() {
                Some(index) => Some(index),
                None => break,
            }
        } else {
            None
        };
        create(context, job, spec, index).await?;
    }
    Ok(())
}

/// When a failed pod may be replaced.
fn retry_at(context: &Context, job: &Job, status: &JobStatus) -> Option<Timestamp> {
    let failures = u32::try_from(status.failed.unwrap_or(0)).unwrap_or(0);
    if failures == 0 {
        return None;
    }
    let pods = context.world.pods.controlled_by(&job.uid().unwrap_or_default());
    let ends = pods.iter().filter(|pod| phase(pod) == "Failed").filter_map(|pod| {
        let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
        statuses
            .iter()
            .filter_map(|status| Some(status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0))
            .max()
    });
    let pause = FIRST_BACKOFF.saturating_mul(1 << (failures - 1).min(16)).min(LONGEST_BACKOFF);
    ends.max().and_then(|end| end.saturating_add(pause).ok())
}

async fn create(context: &mut Context, job: &Arc<Job>, spec: &JobSpec, index: Option<i32>) -> Result<(), kube::Error> {
    let mut pod = pod_from(job.as_ref(), &spec.template);
    pod.metadata.finalizers.get_or_insert_default().push(TRACKING.to_owned());
    pod.metadata.generate_name = Some(match index {
        Some(index) => format!("{}-{index}-", job.name_any()),
        None => format!("{}-", job.name_any()),
    });
    if let Some(index) = index {
        pod.metadata.annotations.get_or_insert_default().insert(INDEX.to_owned(), index.to_string());
        pod.metadata.labels.get_or_insert_default().insert(INDEX.to_owned(), index.to_string());
        let pod_spec = pod.spec.get_or_insert_default();
        pod_spec.hostname = Some(format!("{}-{index}", job.name_any()));
        for container in &mut pod_spec.containers {
            container.env.get_or_insert_default().push(index_variable());
        }
    }
    match context.create(&pod).await {
        Ok(created) => {
            let message = format!("Created pod: {}", created.name_any());
            context.event(job.as_ref(), CONTROLLER, EventKind::Normal, "SuccessfulCreate", message).await;
            Ok(())
        }
        Err(error) => {
            let message = format!("Error creating: {error}");
            context.event(job.as_ref(), CONTROLLER, EventKind::Warning, "FailedCreate", message).await;
            Err(error)
        }
    }
}

fn index_variable() -> EnvVar {
    let field = ObjectFieldSelector { api_version: None, field_path: format!("metadata.labels['{INDEX}']") };
    EnvVar {
        name: "JOB_COMPLETION_INDEX".to_owned(),
        value: None,
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
    }
}

async fn report(
    context: &mut Context,
    key: &Key,
    spec: &JobSpec,
    status: JobStatus,
    verdict: Option<Verdict>,
) -> Result<(), kube::Error> {
    let Some(job) = context.world.jobs.get(key).cloned() else { return Ok(()) };
    let now = context.now();
    let active = active_pods(context, &job);
    let suspended = spec.suspend == Some(true);
    let mut conditions: Vec<Value> =
        job.status.iter().filter_map(|status| status.conditions.as_ref()).flatten().map(|c| json!(c)).collect();
    let mut set = |kind: &str, word: &str, reason: &str, message: &str| {
        if conditions.iter().any(|c| c["type"] == kind && c["status"] == word) {
            return;
        }
        conditions.retain(|condition| condition["type"] != kind);
        let at = now.to_string();
        conditions.push(json!({
            "type": kind, "status": word, "reason": reason, "message": message, "lastProbeTime": at, "lastTransitionTime": at,
        }));
    };
    let was_suspended = job
        .status
        .iter()
        .filter_map(|s| s.conditions.as_ref())
        .flatten()
        .any(|c| c.type_ == "Suspended" && c.status == "True");
    if suspended {
        set("Suspended", "True", "JobSuspended", "Job suspended");
    } else if was_suspended {
        set("Suspended", "False", "JobResumed", "Job resumed");
    }
    let pods_left = !active.is_empty();
    let mut completion = Value::Null;
    let mut finished = None;
    match &verdict {
        Some(Verdict::Complete) => {
            set("SuccessCriteriaMet", "True", "CompletionsReached", "Reached expected number of succeeded pods");
            if !pods_left {
                set("Complete", "True", "CompletionsReached", "Reached expected number of succeeded pods");
                completion = json!(now.to_string());
                finished = Some(("Completed", EventKind::Normal, "Job completed"));
            }
        }
        Some(Verdict::Failed { reason, message }) => {
            set("FailureTarget", "True", reason, message);
            if !pods_left {
                set("Failed", "True", reason, message);
                finished = Some((*reason, EventKind::Warning, *message));
            }
        }
        None => {}
    }
    let start = match &status.start_time {
        Some(time) if !suspended => json!(time.0.to_string()),
        None if !suspended => json!(now.to_string()),
        _ => Value::Null,
    };
    let patch = json!({
        "active": active.len(),
        "ready": active.iter().filter(|pod| is_ready(pod)).count(),
        "terminating": context.world.pods.controlled_by(&job.uid().unwrap_or_default()).iter().filter(|pod| pod.metadata.deletion_timestamp.is_some() && !is_finished(pod)).count(),
        "succeeded": status.succeeded,
        "failed": status.failed,
        "startTime": start,
        "completionTime": completion,
        "conditions": if conditions.is_empty() { Value::Null } else { json!(conditions) },
    });
    context.patch_status(job.as_ref(), patch).await?;
    if let Some((reason, kind, message)) = finished {
        context.event(job.as_ref(), CONTROLLER, kind, reason, message.to_owned()).await;
    }
    Ok(())
}

/// Deletes a finished job when its time to live is over.
async fn clean_up(
    context: &mut Context,
    job: &Arc<Job>,
    spec: &JobSpec,
    finished_at: Timestamp,
) -> Result<(), kube::Error> {
    let Some(seconds) = spec.ttl_seconds_after_finished else { return Ok(()) };
    let due = finished_at.saturating_add(SignedDuration::from_secs(i64::from(seconds))).unwrap_or(Timestamp::MAX);
    if due > context.now() {
        context.look_again(due, Work::Job(Key::of(job.as_ref())));
        return Ok(());
    }
    context.delete(job.as_ref()).await
}

/// `1,3-5` as a set.
fn parse_indexes(text: &str) -> BTreeSet<i32> {
    let mut indexes = BTreeSet::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
            indexes.extend(first..=last.min(first.saturating_add(100_000)));
        }
    }
    indexes
}

/// A set as `1,3-5`: runs of three or more are shortened.
fn print_indexes(indexes: &BTreeSet<i32>) -> String {
    let mut runs: Vec<(i32, i32)> = Vec::new();
    for &index in indexes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            _ => runs.push((index, index)),
        }
    }
    let text = runs.iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    });
    text.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completed_indexes_read_back_what_they_print() {
        let indexes: BTreeSet<i32> = [0, 2, 3, 5, 6, 7, 9].into();
        assert_eq!(print_indexes(&indexes), "0,2,3,5-7,9");
        assert_eq!(parse_indexes("0,2,3,5-7,9"), indexes);
        assert_eq!(parse_indexes(""), BTreeSet::new());
    }
}
