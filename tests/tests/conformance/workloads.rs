//! Workload kinds: the defaults a new one gets, and what is refused.

use anyhow::{Result, ensure};
use kai_tests::harness::Case;
use kai_tests::request::PatchKind::Merge;
use serde_json::{Value, json};

use crate::conformance;
use crate::setting::{Setting, deployment};

pub const CASES: &[Case] = conformance![
    a_job_gets_its_defaults_and_its_selector,
    a_job_must_say_how_to_restart,
    a_job_with_negative_parallelism_is_422,
    an_indexed_job_gets_one_completion,
    the_completions_of_a_job_are_fixed,
    the_template_of_a_job_is_fixed,
    a_job_with_a_selector_of_its_own_must_say_so,
    a_cron_job_gets_its_defaults,
    a_bad_schedule_is_422,
    a_schedule_with_a_time_zone_inside_is_422,
    an_unknown_time_zone_is_422,
    a_stateful_set_gets_its_defaults,
    a_stateful_set_is_mostly_fixed,
    a_daemon_set_gets_its_defaults,
    a_daemon_set_must_restart_its_pods,
    a_replica_set_gets_one_replica,
    a_negative_replica_count_and_an_empty_selector_are_422,
    recreate_takes_no_rolling_parameters,
    a_rollout_must_be_able_to_move,
    percentages_are_taken_where_numbers_are,
    a_template_is_checked_like_a_pod,
];

fn template(app: &str, restart_policy: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": app } },
        "spec": { "containers": [{ "name": "main", "image": "i:1" }], "restartPolicy": restart_policy },
    })
}

fn job(spec: Value) -> Value {
    let mut body = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "a" },
        "spec": { "suspend": true, "template": template("a", "Never") },
    });
    merge(&mut body["spec"], spec);
    body
}

fn merge(into: &mut Value, fields: Value) {
    if let (Value::Object(into), Value::Object(fields)) = (into, fields) {
        into.extend(fields);
    }
}

async fn a_job_gets_its_defaults_and_its_selector(s: &Setting) -> Result<()> {
    let answer = s.server.post(&s.group("batch/v1", "jobs"), &job(json!({}))).await?.expect(201)?;
    let uid = answer.string("/metadata/uid")?;
    let labels = json!({
        "app": "a", "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "a",
        "controller-uid": uid, "job-name": "a",
    });
    answer
        .expect_value("/spec/parallelism", 1)?
        .expect_value("/spec/completions", 1)?
        .expect_value("/spec/backoffLimit", 6)?
        .expect_value("/spec/completionMode", "NonIndexed")?
        .expect_value("/spec/podReplacementPolicy", "TerminatingOrFailed")?
        .expect_value("/spec/manualSelector", false)?
        .expect_value("/spec/selector", json!({ "matchLabels": { "batch.kubernetes.io/controller-uid": uid } }))?
        .expect_value("/spec/template/metadata/labels", labels.clone())?
        .expect_value("/metadata/labels", labels)?
        .expect_value("/metadata/generation", 1)?
        .expect_value("/status", json!({}))?;
    Ok(())
}

async fn a_job_must_say_how_to_restart(s: &Setting) -> Result<()> {
    let mut body = job(json!({}));
    body["spec"]["template"]["spec"]["restartPolicy"] = Value::Null;
    let answer = s.server.post(&s.group("batch/v1", "jobs"), &body).await?;
    answer.expect_invalid(
        "FieldValueRequired",
        "spec.template.spec.restartPolicy",
        "Required value: valid values: \"OnFailure\", \"Never\"",
    )?;
    Ok(())
}

async fn a_job_with_negative_parallelism_is_422(s: &Setting) -> Result<()> {
    let answer = s.server.post(&s.group("batch/v1", "jobs"), &job(json!({ "parallelism": -1 }))).await?;
    answer.expect_invalid(
        "FieldValueInvalid",
        "spec.parallelism",
        "Invalid value: -1: must be greater than or equal to 0",
    )?;
    Ok(())
}

async fn an_indexed_job_gets_one_completion(s: &Setting) -> Result<()> {
    let path = s.group("batch/v1", "jobs");
    let answer = s.server.post(&path, &job(json!({ "completionMode": "Indexed" }))).await?.expect(201)?;
    answer.expect_value("/spec/completions", 1)?.expect_value("/spec/completionMode", "Indexed")?;
    let mut body = job(json!({ "completionMode": "Indexed", "parallelism": 2 }));
    body["metadata"]["name"] = json!("b");
    let answer = s.server.post(&path, &body).await?;
    answer.expect_invalid("FieldValueRequired", "spec.completions", "when completion mode is Indexed")?;
    Ok(())
}

async fn the_completions_of_a_job_are_fixed(s: &Setting) -> Result<()> {
    let path = s.group("batch/v1", "jobs");
    s.server.post(&path, &job(json!({}))).await?.expect(201)?;
    let answer = s.server.patch(Merge, &format!("{path}/a"), &json!({ "spec": { "completions": 7 } })).await?;
    answer.expect_invalid("FieldValueInvalid", "spec.completions", "Invalid value: 7: field is immutable")?;
    s.server.patch(Merge, &format!("{path}/a"), &json!({ "spec": { "parallelism": 3 } })).await?.expect(200)?;
    Ok(())
}

async fn the_template_of_a_job_is_fixed(s: &Setting) -> Result<()> {
    let path = s.group("batch/v1", "jobs");
    s.server.post(&path, &job(json!({}))).await?.expect(201)?;
    let containers = json!([{ "name": "main", "image": "other:1" }]);
    let patch = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
    let answer = s.server.patch(Merge, &format!("{path}/a"), &patch).await?;
    answer.expect_invalid("FieldValueInvalid", "spec.template", "field is immutable")?;
    Ok(())
}

async fn a_job_with_a_selector_of_its_own_must_say_so(s: &Setting) -> Result<()> {
    let path = s.group("batch/v1", "jobs");
    let selector = json!({ "selector": { "matchLabels": { "app": "a" } } });
    s.server
        .post(&path, &job(selector.clone()))
        .await?
        .expect_failure(422, "Invalid")?
        .expect_cause("FieldValueInvalid", "spec.selector")?;
    let mut body = job(selector.clone());
    body["spec"]["manualSelector"] = json!(true);
    s.server.post(&path, &body).await?.expect(201)?.expect_value("/spec/selector", selector["selector"].clone())?;
    Ok(())
}

fn cron_job(spec: Value) -> Value {
    let mut body = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "a" },
        "spec": {
            "suspend": true, "schedule": "0 0 * * *",
            "jobTemplate": { "spec": { "template": template("a", "OnFailure") } },
        },
    });
    merge(&mut body["spec"], spec);
    body
}

async fn a_cron_job_gets_its_defaults(s: &Setting) -> Result<()> {
    let answer = s.server.post(&s.group("batch/v1", "cronjobs"), &cron_job(json!({}))).await?.expect(201)?;
    answer
        .expect_value("/spec/concurrencyPolicy", "Allow")?
        .expect_value("/spec/successfulJobsHistoryLimit", 3)?
        .expect_value("/spec/failedJobsHistoryLimit", 1)?
        .expect_value("/spec/jobTemplate/metadata", json!({}))?
        .expect_value("/spec/jobTemplate/spec/template/spec/dnsPolicy", "ClusterFirst")?
        .expect_value("/spec/jobTemplate/spec/backoffLimit", Value::Null)?
        .expect_value("/status", json!({}))?;
    Ok(())
}

async fn a_bad_schedule_is_422(s: &Setting) -> Result<()> {
    let path = s.group("batch/v1", "cronjobs");
    s.server.post(&path, &cron_job(json!({ "schedule": "every day" }))).await?.expect_invalid(
        "FieldValueInvalid",
        "spec.schedule",
        "spec.schedule: Invalid value: \"every day\": expected exactly 5 fields, found 2: [every day]",
    )?;
    let answer = s.server.post(&path, &cron_job(json!({ "schedule": "99 * * * *" }))).await?;
    answer.expect_invalid("FieldValueInvalid", "spec.schedule", "end of range (99) above maximum (59): 99")?;
    s.server.post(&path, &cron_job(json!({ "schedule": "*/5 1-3 * JAN MON" }))).await?.expect(201)?;
    Ok(())
}

async fn a_schedule_with_a_time_zone_inside_is_422(s: &Setting) -> Result<()> {
    let body = cron_job(json!({ "schedule": "TZ=UTC 0 0 * * *" }));
    let answer = s.server.post(&s.group("batch/v1", "cronjobs"), &body).await?;
    answer.expect_invalid(
        "FieldValueInvalid",
        "spec.schedule",
        "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
    )?;
    Ok(())
}

async fn an_unknown_time_zone_is_422(s: &Setting) -> Result<()> {
    let path = s.group("batch/v1", "cronjobs");
    let answer = s.server.post(&path, &cron_job(json!({ "timeZone": "Mars/Olympus" }))).await?;
    answer.expect_invalid("FieldValueInvalid", "spec.timeZone", "unknown time zone Mars/Olympus")?;
    Ok(())
}

fn workload(kind: &str, spec: Value) -> Value {
    let mut body = deployment("a");
    body["kind"] = json!(kind);
    merge(&mut body["spec"], spec);
    body
}

async fn a_stateful_set_gets_its_defaults(s: &Setting) -> Result<()> {
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    let body = workload("StatefulSet", json!({ "serviceName": "a", "volumeClaimTemplates": [claim] }));
    let answer = s.server.post(&s.group("apps/v1", "statefulsets"), &body).await?.expect(201)?;
    answer
        .expect_value("/spec/podManagementPolicy", "OrderedReady")?
        .expect_value("/spec/updateStrategy", json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } }))?
        .expect_value("/spec/revisionHistoryLimit", 10)?
        .expect_value(
            "/spec/persistentVolumeClaimRetentionPolicy",
            json!({ "whenDeleted": "Retain", "whenScaled": "Retain" }),
        )?
        .expect_value("/spec/volumeClaimTemplates/0/kind", "PersistentVolumeClaim")?
        .expect_value("/spec/volumeClaimTemplates/0/apiVersion", "v1")?
        .expect_value("/spec/volumeClaimTemplates/0/spec/volumeMode", "Filesystem")?
        .expect_value("/spec/volumeClaimTemplates/0/status", json!({ "phase": "Pending" }))?
        .expect_value("/status", json!({ "replicas": 0, "availableReplicas": 0 }))?;
    Ok(())
}

async fn a_stateful_set_is_mostly_fixed(s: &Setting) -> Result<()> {
    let path = s.group("apps/v1", "statefulsets");
    s.server.post(&path, &workload("StatefulSet", json!({ "serviceName": "a" }))).await?.expect(201)?;
    let answer = s.server.patch(Merge, &format!("{path}/a"), &json!({ "spec": { "serviceName": "b" } })).await?;
    answer.expect_invalid(
        "FieldValueForbidden",
        "spec",
        "updates to statefulset spec for fields other than 'replicas'",
    )?;
    let patch = json!({ "spec": { "minReadySeconds": 5, "template": { "metadata": { "labels": { "more": "x" } } } } });
    s.server.patch(Merge, &format!("{path}/a"), &patch).await?.expect(200)?;
    Ok(())
}

fn daemon_set() -> Value {
    let mut body = workload("DaemonSet", json!({}));
    if let Some(spec) = body["spec"].as_object_mut() {
        spec.remove("replicas");
    }
    body["spec"]["template"]["spec"]["nodeSelector"] = json!({ "example.com/no": "where" });
    body
}

async fn a_daemon_set_gets_its_defaults(s: &Setting) -> Result<()> {
    let answer = s.server.post(&s.group("apps/v1", "daemonsets"), &daemon_set()).await?.expect(201)?;
    let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 0 } });
    answer
        .expect_value("/spec/updateStrategy", strategy)?
        .expect_value("/spec/revisionHistoryLimit", 10)?
        .expect_value("/metadata/annotations", json!({ "deprecated.daemonset.template.generation": "1" }))?
        .expect_value(
            "/status",
            json!({
                "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
            }),
        )?;
    Ok(())
}

async fn a_daemon_set_must_restart_its_pods(s: &Setting) -> Result<()> {
    let mut body = daemon_set();
    body["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    let answer = s.server.post(&s.group("apps/v1", "daemonsets"), &body).await?;
    answer.expect_invalid(
        "FieldValueNotSupported",
        "spec.template.spec.restartPolicy",
        "Unsupported value: \"Never\": supported values: \"Always\"",
    )?;
    Ok(())
}

async fn a_replica_set_gets_one_replica(s: &Setting) -> Result<()> {
    let mut body = workload("ReplicaSet", json!({ "replicas": null }));
    body["spec"]["template"]["metadata"]["labels"]["more"] = json!("x");
    let answer = s.server.post(&s.group("apps/v1", "replicasets?dryRun=All"), &body).await?.expect(201)?;
    answer.expect_value("/spec/replicas", 1)?.expect_value("/status", json!({ "replicas": 0 }))?;
    Ok(())
}

async fn a_negative_replica_count_and_an_empty_selector_are_422(s: &Setting) -> Result<()> {
    let body = workload("ReplicaSet", json!({ "replicas": -1, "selector": {} }));
    let answer = s.server.post(&s.group("apps/v1", "replicasets"), &body).await?.expect_failure(422, "Invalid")?;
    answer
        .expect_cause("FieldValueInvalid", "spec.replicas")?
        .expect_cause("FieldValueInvalid", "spec.selector")?
        .expect_message("empty selector is invalid for deployment")?;
    Ok(())
}

async fn recreate_takes_no_rolling_parameters(s: &Setting) -> Result<()> {
    let body =
        workload("Deployment", json!({ "strategy": { "type": "Recreate", "rollingUpdate": { "maxSurge": 1 } } }));
    s.server.post(&s.group("apps/v1", "deployments"), &body).await?.expect_invalid(
        "FieldValueForbidden",
        "spec.strategy.rollingUpdate",
        "may not be specified when strategy `type` is 'Recreate'",
    )?;
    Ok(())
}

async fn a_rollout_must_be_able_to_move(s: &Setting) -> Result<()> {
    let strategy = json!({ "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 0 } });
    let body = workload("Deployment", json!({ "strategy": strategy }));
    s.server.post(&s.group("apps/v1", "deployments"), &body).await?.expect_invalid(
        "FieldValueInvalid",
        "spec.strategy.rollingUpdate.maxUnavailable",
        "may not be 0 when `maxSurge` is 0",
    )?;
    Ok(())
}

async fn percentages_are_taken_where_numbers_are(s: &Setting) -> Result<()> {
    let strategy = json!({ "rollingUpdate": { "maxSurge": "50%", "maxUnavailable": 1 } });
    let path = s.group("apps/v1", "deployments");
    let answer = s.server.post(&path, &workload("Deployment", json!({ "strategy": strategy }))).await?.expect(201)?;
    answer
        .expect_value("/spec/strategy/rollingUpdate", json!({ "maxSurge": "50%", "maxUnavailable": 1 }))?
        .expect_value("/spec/strategy/type", "RollingUpdate")?;
    let strategy = json!({ "rollingUpdate": { "maxSurge": "half" } });
    let mut body = workload("Deployment", json!({ "strategy": strategy }));
    body["metadata"]["name"] = json!("b");
    let answer = s.server.post(&path, &body).await?.expect_failure(422, "Invalid")?;
    answer.expect_cause("FieldValueInvalid", "spec.strategy.rollingUpdate.maxSurge")?;
    Ok(())
}

async fn a_template_is_checked_like_a_pod(s: &Setting) -> Result<()> {
    let mut body = workload("Deployment", json!({}));
    body["spec"]["template"]["spec"]["containers"] = json!([
        { "name": "x", "image": "i:1", "volumeMounts": [{ "name": "nowhere", "mountPath": "/a" }] },
        { "name": "Bad Name", "image": "" },
    ]);
    let answer = s.server.post(&s.group("apps/v1", "deployments"), &body).await?.expect_failure(422, "Invalid")?;
    let answer = answer
        .expect_cause("FieldValueNotFound", "spec.template.spec.containers[0].volumeMounts[0].name")?
        .expect_cause("FieldValueInvalid", "spec.template.spec.containers[1].name")?
        .expect_cause("FieldValueRequired", "spec.template.spec.containers[1].image")?;
    ensure!(answer.json["details"]["causes"].as_array().is_some_and(|causes| causes.len() == 3), "{}", answer.text);
    Ok(())
}
