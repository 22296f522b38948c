//! CronJob: makes a Job each time its schedule fires, and keeps a short history of finished ones.

use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::context::{Context, EventKind, key_in};
use super::cron_schedule::CronSchedule;
use super::pod_template::controller_reference;
use super::world::{Key, Work};

const CONTROLLER: &str = "cronjob-controller";
/// More missed starts than this point to a wrong clock; the real controller warns and starts only the last.
const MANY_MISSED: usize = 100;

/// Brings one CronJob up to date.
pub async fn reconcile(context: &mut Context, key: &Key) -> Result<(), kube::Error> {
    let Some(cron) = context.world.cron_jobs.get(key).cloned() else { return Ok(()) };
    let Some(spec) = cron.spec.as_ref() else { return Ok(()) };
    if cron.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    trim_history(context, &cron, spec).await?;
    report(context, &cron, None).await?;
    if spec.suspend == Some(true) {
        return Ok(());
    }
    let schedule = match CronSchedule::parse(&spec.schedule) {
        Ok(schedule) => schedule,
        Err(error) => {
            context
                .event(cron.as_ref(), CONTROLLER, EventKind::Warning, "UnparseableSchedule", error.to_string())
                .await;
            return Ok(());
        }
    };
    let zone = match spec.time_zone.as_deref().map(TimeZone::get) {
        None => TimeZone::UTC,
        Some(Ok(zone)) => zone,
        Some(Err(error)) => {
            context.event(cron.as_ref(), CONTROLLER, EventKind::Warning, "UnknownTimeZone", error.to_string()).await;
            return Ok(());
        }
    };
    let now = context.now();
    if let Some(due) = last_missed(&cron, spec, &schedule, &zone, now) {
        start(context, &cron, spec, due).await?;
    }
    if let Some(next) = schedule.next_after(now, &zone) {
        context.look_again(next, Work::CronJob(key.clone()));
    }
    Ok(())
}

/// The latest start since the last one that was made, unless it is past its deadline.
fn last_missed(
    cron: &CronJob,
    spec: &CronJobSpec,
    schedule: &CronSchedule,
    zone: &TimeZone,
    now: Timestamp,
) -> Option<Timestamp> {
    let created = cron.creation_timestamp().map_or(now, |time| time.0);
    let mut after =
        cron.status.as_ref().and_then(|status| status.last_schedule_time.as_ref()).map_or(created, |time| time.0);
    if let Some(seconds) = spec.starting_deadline_seconds {
        let earliest = now.saturating_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN);
        after = after.max(earliest);
    }
    let mut latest = None;
    for _ in 0..MANY_MISSED {
        match schedule.next_after(after, zone) {
            Some(due) if due <= now => {
                latest = Some(due);
                after = due;
            }
            _ => break,
        }
    }
    latest
}

fn is_finished(job: &Job) -> bool {
    let conditions = job.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions.into_iter().any(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True")
}

fn has_failed(job: &Job) -> bool {
    let conditions = job.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions.into_iter().any(|c| c.type_ == "Failed" && c.status == "True")
}

async fn start(
    context: &mut Context,
    cron: &Arc<CronJob>,
    spec: &CronJobSpec,
    due: Timestamp,
) -> Result<(), kube::Error> {
    let running: Vec<Arc<Job>> = context
        .world
        .jobs
        .controlled_by(&cron.uid().unwrap_or_default())
        .into_iter()
        .filter(|job| !is_finished(job))
        .collect();
    match spec.concurrency_policy.as_deref() {
        Some("Forbid") if !running.is_empty() => {
            let message =
                "Not starting job because prior execution is running and concurrency policy is Forbid".to_owned();
            context.event(cron.as_ref(), CONTROLLER, EventKind::Normal, "JobAlreadyActive", message).await;
            return Ok(());
        }
        Some("Replace") => {
            for job in &running {
                context.delete(job.as_ref()).await?;
            }
        }
        _ => {}
    }
    // The name follows from the start time, so that a start is made once whatever happens in between.
    let name = format!("{}-{}", cron.name_any(), due.as_second() / 60);
    let namespace = cron.namespace().unwrap_or_default();
    if context.world.jobs.get(&key_in(&namespace, &name)).is_none() {
        let template = spec.job_template.metadata.clone().unwrap_or_default();
        let mut annotations = template.annotations.unwrap_or_default();
        annotations.insert("batch.kubernetes.io/cronjob-scheduled-timestamp".to_owned(), due.to_string());
        let job = Job {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace),
                labels: template.labels,
                annotations: Some(annotations),
                owner_references: controller_reference(cron.as_ref()).map(|reference| vec![reference]),
                ..ObjectMeta::default()
            },
            spec: spec.job_template.spec.clone(),
            status: None,
        };
        match context.create(&job).await {
            Ok(_) => {
                context
                    .event(
                        cron.as_ref(),
                        CONTROLLER,
                        EventKind::Normal,
                        "SuccessfulCreate",
                        format!("Created job {name}"),
                    )
                    .await;
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error),
        }
    }
    report(context, cron, Some(due)).await
}

async fn report(context: &mut Context, cron: &Arc<CronJob>, started: Option<Timestamp>) -> Result<(), kube::Error> {
    let Some(cron) = context.world.cron_jobs.get(&Key::of(cron.as_ref())).cloned() else { return Ok(()) };
    let jobs = context.world.jobs.controlled_by(&cron.uid().unwrap_or_default());
    let active: Vec<_> = jobs.iter().filter(|job| !is_finished(job)).map(|job| json!(job.object_ref(&()))).collect();
    let succeeded = jobs
        .iter()
        .filter(|job| !has_failed(job))
        .filter_map(|job| job.status.as_ref()?.completion_time.as_ref().map(|t| t.0))
        .max();
    let previous = cron.status.clone().unwrap_or_default();
    let last_success = succeeded.max(previous.last_successful_time.map(|time| time.0));
    let last_start = started.or(previous.last_schedule_time.map(|time| time.0));
    let status = json!({
        "active": if active.is_empty() { serde_json::Value::Null } else { json!(active) },
        "lastScheduleTime": last_start.map(|time| time.to_string()),
        "lastSuccessfulTime": last_success.map(|time| time.to_string()),
    });
    context.patch_status(cron.as_ref(), status).await
}

async fn trim_history(context: &mut Context, cron: &CronJob, spec: &CronJobSpec) -> Result<(), kube::Error> {
    let mut jobs = context.world.jobs.controlled_by(&cron.uid().unwrap_or_default());
    jobs.retain(|job| is_finished(job));
    jobs.sort_by_key(|job| {
        (job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0), job.name_any())
    });
    let (failed, succeeded): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| has_failed(job));
    for (jobs, limit) in [
        (failed, spec.failed_jobs_history_limit.unwrap_or(1)),
        (succeeded, spec.successful_jobs_history_limit.unwrap_or(3)),
    ] {
        let surplus = jobs.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        for job in jobs.into_iter().take(surplus) {
            context.delete(job.as_ref()).await?;
        }
    }
    Ok(())
}
