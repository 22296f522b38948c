//! Jobs and cron jobs.

use serde_json::{Value, json};

use super::cron::validate_schedule;
use super::pod::validate_template;
use super::report::Report;
use super::selector::{selects, validate_selector};
use crate::builtin::access::{Read, Write, same};
use crate::builtin::field_path::Path;
use crate::builtin::format::{dns_label, dns_subdomain, qualified_name};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::Name("spec");
const STATUS: Path<'static> = Path::Name("status");

/// A job.
pub(super) fn validate_job(report: &mut Report, job: &Value) {
    let spec = job.at("spec");
    if !spec.flag("manualSelector") && spec.has("selector") {
        validate_generated_selector(report, job);
    }
    validate_spec(report, SPEC, spec);
    if spec.has("selector") {
        validate_selector(report, SPEC.child("selector"), spec.at("selector"));
    } else {
        report.required(SPEC.child("selector"), "");
    }
    if !selects(spec.at("selector"), spec.map("template.metadata.labels")) {
        let labels = spec.at("template.metadata.labels").clone();
        report.invalid(SPEC.child("template.metadata.labels"), labels, "`selector` does not match template `labels`");
    }
    let completions = spec.count("completions");
    if spec.text("completionMode") == "Indexed" && completions > 0 {
        let name = job.text("metadata.name");
        let hostname = format!("{name}-{}", completions - 1);
        if !dns_label(&hostname).is_empty() {
            let why = format!("will not able to create pod with invalid DNS label: {hostname}");
            report.invalid(Path::Name("metadata.name"), name, why);
        }
    }
}

fn validate_generated_selector(report: &mut Report, job: &Value) {
    let (uid, name) = (job.text("metadata.uid"), job.text("metadata.name"));
    if uid.is_empty() {
        report.required(Path::Name("metadata.uid"), "");
    }
    let expected = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    let labels = job.map("spec.template.metadata.labels");
    let path = SPEC.child("template.metadata.labels");
    for (key, value) in expected {
        match labels.get(key).and_then(Value::as_str) {
            None => report.required(path.key(key), &format!("must be '{value}'")),
            Some(actual) if actual != value => {
                report.invalid(path.key(key), labels.clone(), format!("must be '{value}'"));
            }
            Some(_) => {}
        }
    }
    let expected = expected.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    if !selects(job.at("spec.selector"), &expected) {
        report.invalid(SPEC.child("selector"), job.at("spec.selector").clone(), "`selector` not auto-generated");
    }
}

fn validate_spec(report: &mut Report, path: Path<'_>, spec: &Value) {
    const COUNTS: &[&str] = &[
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    for name in COUNTS {
        report.nonnegative(path.child(name), spec.integer(name));
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        report.required(path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if spec.has("managedBy") {
        validate_manager(report, path.child("managedBy"), spec.text("managedBy"));
    }
    validate_completion_mode(report, path, spec);
    if spec.has("podFailurePolicy") {
        validate_failure_policy(report, path.child("podFailurePolicy"), spec);
    }
    if spec.has("successPolicy") {
        validate_success_policy(report, path.child("successPolicy"), spec);
    }
    let policy = spec.at("podReplacementPolicy");
    let supported: &[&str] =
        if spec.has("podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    report.optional_one_of(path.child("podReplacementPolicy"), policy, supported);
    validate_template(report, path.child("template"), spec.at("template"));
    let restart_path = path.child("template.spec.restartPolicy");
    match spec.text("template.spec.restartPolicy") {
        "" | "Always" => report.required(restart_path, "valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" => {
            if spec.has("podFailurePolicy") {
                let why = "only \"Never\" is supported when podFailurePolicy is specified";
                report.invalid(restart_path, "OnFailure", why);
            }
        }
        other => report.unsupported(restart_path, other, &["OnFailure", "Never"]),
    }
}

fn validate_manager(report: &mut Report, path: Path<'_>, name: &str) {
    match name.split_once('/') {
        _ if name.is_empty() => report.required(path, ""),
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => report.complain(path, host, dns_subdomain(host)),
        _ => report.invalid(path, name, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
    if name.len() > 63 {
        report.push(FieldError::too_long(path, 63));
    }
}

fn validate_completion_mode(report: &mut Report, path: Path<'_>, spec: &Value) {
    let mode = spec.at("completionMode");
    report.optional_one_of(path.child("completionMode"), mode, &["NonIndexed", "Indexed"]);
    if mode == "Indexed" {
        if !spec.has("completions") {
            report.required(path.child("completions"), "when completion mode is Indexed");
        }
        let parallelism = spec.count("parallelism");
        if parallelism > 100_000 {
            let why = "must be less than or equal to 100000 when completion mode is Indexed";
            report.invalid(path.child("parallelism"), parallelism, why);
        }
        if let (Some(completions), Some(failed)) = (spec.integer("completions"), spec.integer("maxFailedIndexes"))
            && failed > completions
        {
            report.invalid(path.child("maxFailedIndexes"), failed, "must be less than or equal to completions");
        }
    } else if mode.is_null() || mode == "NonIndexed" {
        for name in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(number) = spec.integer(name) {
                report.invalid(path.child(name), number, "requires indexed completion mode");
            }
        }
    }
}

fn validate_failure_policy(report: &mut Report, path: Path<'_>, spec: &Value) {
    const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
    let rules_path = path.child("rules");
    let rules = spec.list("podFailurePolicy.rules");
    if rules.len() > 20 {
        report.push(FieldError::too_many(rules_path, rules.len(), 20));
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = rules_path.index(index);
        match rule.text("action") {
            "" => report.required(path.child("action"), r#"valid values: ["Count" "FailIndex" "FailJob" "Ignore"]"#),
            "FailIndex" if !spec.has("backoffLimitPerIndex") => {
                report.invalid(path.child("action"), "FailIndex", "requires the backoffLimitPerIndex to be set");
            }
            action if !ACTIONS.contains(&action) => report.unsupported(path.child("action"), action, ACTIONS),
            _ => {}
        }
        let conditions = rule.list("onPodConditions");
        if rule.has("onExitCodes") {
            validate_exit_codes(report, path.child("onExitCodes"), rule.at("onExitCodes"), spec);
        }
        let conditions_path = path.child("onPodConditions");
        for (index, condition) in conditions.iter().enumerate() {
            let path = conditions_path.index(index);
            report.complain(path.child("type"), condition.text("type"), qualified_name(condition.text("type")));
            report.optional_one_of(path.child("status"), condition.at("status"), &["False", "True", "Unknown"]);
        }
        match (rule.has("onExitCodes"), conditions.is_empty()) {
            (true, false) => {
                let why = "specifying both OnExitCodes and OnPodConditions is not supported";
                report.push(FieldError::invalid_state(path, why));
            }
            (false, true) => {
                let why = "specifying one of OnExitCodes and OnPodConditions is required";
                report.push(FieldError::invalid_state(path, why));
            }
            _ => {}
        }
    }
}

fn validate_exit_codes(report: &mut Report, path: Path<'_>, rule: &Value, spec: &Value) {
    match rule.text("operator") {
        "" => report.required(path.child("operator"), r#"valid values: ["In" "NotIn"]"#),
        "In" | "NotIn" => {}
        operator => report.unsupported(path.child("operator"), operator, &["In", "NotIn"]),
    }
    let name = rule.text("containerName");
    let containers = spec.list("template.spec.containers").iter().chain(spec.list("template.spec.initContainers"));
    if rule.has("containerName") && !containers.into_iter().any(|container| container.text("name") == name) {
        let why = "must be one of the container or initContainer names in the pod template";
        report.invalid(path.child("containerName"), name, why);
    }
    let values = rule.list("values");
    let values_path = path.child("values");
    if values.is_empty() {
        report.invalid(values_path, rule.at("values").clone(), "at least one value is required");
    } else if values.len() > 255 {
        report.push(FieldError::too_many(values_path, values.len(), 255));
    }
    for (index, value) in values.iter().enumerate() {
        if rule.text("operator") == "In" && value == 0 {
            report.invalid(values_path.index(index), 0, "must not be 0 for the In operator");
        }
        if values.iter().take(index).any(|earlier| earlier == value) {
            report.duplicate(values_path.index(index), value.clone());
        }
    }
    if !values.iter().filter_map(Value::as_i64).is_sorted() {
        report.invalid(values_path, rule.at("values").clone(), "must be ordered");
    }
}

fn validate_success_policy(report: &mut Report, path: Path<'_>, spec: &Value) {
    if spec.text("completionMode") != "Indexed" {
        report.invalid(path, spec.at("successPolicy").clone(), "requires indexed completion mode");
        return;
    }
    let (rules, rules_path) = (spec.list("successPolicy.rules"), path.child("rules"));
    if rules.is_empty() {
        report.required(rules_path, "at least one rules must be specified when the successPolicy is specified");
    } else if rules.len() > 20 {
        report.push(FieldError::too_many(rules_path, rules.len(), 20));
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = rules_path.index(index);
        if !rule.has("succeededCount") && !rule.has("succeededIndexes") {
            report.required(path, "at least one of succeededCount or succeededIndexes must be specified");
        }
        if let Some(count) = rule.integer("succeededCount") {
            report.nonnegative(path.child("succeededCount"), Some(count));
            let completions = spec.count("completions");
            if count > completions {
                let why = format!("must be less than or equal to {completions} (the number of specified completions)");
                report.invalid(path.child("succeededCount"), count, why);
            }
        }
    }
}

/// An update of a job.
pub(super) fn validate_update(report: &mut Report, job: &Value, old: &Value) {
    let (new_spec, old_spec) = (job.at("spec"), old.at("spec"));
    let completions = new_spec.at("completions");
    if new_spec.text("completionMode") != "Indexed" {
        report.immutable(SPEC.child("completions"), completions, old_spec.at("completions"));
    } else if completions != old_spec.at("completions")
        && completions != new_spec.at("parallelism")
        && !completions.is_null()
    {
        let why = "can only be modified in tandem with spec.parallelism";
        report.invalid(SPEC.child("completions"), completions.clone(), why);
    }
    report.immutable(SPEC.child("selector"), new_spec.at("selector"), old_spec.at("selector"));
    validate_template_update(report, job, old);
    for name in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        report.immutable(SPEC.child(name), new_spec.at(name), old_spec.at(name));
    }
}

/// The template never changes, except where its pods go while the job waits to start.
fn validate_template_update(report: &mut Report, job: &Value, old: &Value) {
    let (new, before) = (job.at("spec.template"), old.at("spec.template"));
    if same(new, before) {
        return;
    }
    let mut expected = before.clone();
    if old.flag("spec.suspend") && !old.has("status.startTime") {
        const DIRECTIVES: &[&str] = &[
            "spec.nodeSelector",
            "spec.tolerations",
            "spec.schedulingGates",
            "spec.affinity.nodeAffinity",
            "metadata.labels",
            "metadata.annotations",
        ];
        for path in DIRECTIVES {
            if new.has(path) {
                expected.set(path, new.at(path).clone());
            } else {
                expected.take_at(path);
            }
        }
        if expected.map("spec.affinity").is_empty() && !new.has("spec.affinity") {
            expected.take_at("spec.affinity");
        }
    }
    report.immutable(SPEC.child("template"), new, &expected);
}

/// An update of the status of a job.
pub(super) fn validate_status_update(report: &mut Report, job: &Value, old: &Value) {
    let status = job.at("status");
    for name in ["active", "succeeded", "failed", "ready", "terminating"] {
        report.nonnegative(STATUS.child(name), status.integer(name));
    }
    let is_true = |job: &Value, kind: &str| {
        job.list("status.conditions")
            .iter()
            .any(|condition| condition.text("type") == kind && condition.text("status") == "True")
    };
    let conditions = STATUS.child("conditions");
    let complete = is_true(job, "Complete");
    let failed = is_true(job, "Failed");
    let finished = complete || failed;
    let newly = |kind: &str| is_true(job, kind) != is_true(old, kind);
    let state = |report: &mut Report, wrong: bool, why: &str| {
        if wrong {
            report.push(FieldError::invalid_state(conditions, why));
        }
    };
    state(report, complete && failed, "cannot set Complete=True and Failed=true conditions");
    let target = is_true(job, "FailureTarget");
    state(report, complete && target, "cannot set Complete=True and FailureTarget=true conditions");
    let met = is_true(job, "SuccessCriteriaMet");
    let no_target = newly("Failed") && failed && !target;
    state(report, no_target, "cannot set Failed=True condition without the FailureTarget=true condition");
    let not_met = newly("Complete") && complete && !met;
    state(report, not_met, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    state(report, met && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions");
    for kind in ["Failed", "Complete", "FailureTarget"] {
        let why = format!("cannot disable the terminal {kind}=True condition");
        state(report, is_true(old, kind) && !is_true(job, kind), &why);
    }
    state(report, is_true(old, "SuccessCriteriaMet") && !met, "cannot disable the SuccessCriteriaMet=True condition");
    let completion = status.at("completionTime");
    if completion.is_null() && newly("Complete") && complete {
        report.required(STATUS.child("completionTime"), "completionTime is required for Complete jobs");
    } else if !completion.is_null() && !complete {
        let why = "cannot set completionTime when there is no Complete=True condition";
        report.invalid(STATUS.child("completionTime"), completion.clone(), why);
    } else if !completion.is_null() && old.has("status.completionTime") && completion != old.at("status.completionTime")
    {
        report.invalid(STATUS.child("completionTime"), completion.clone(), "field is immutable");
    }
    if finished && status.count("active") > 0 {
        report.invalid(STATUS.child("active"), status.count("active"), "active>0 is invalid for finished job");
    }
    let waits = job.flag("spec.suspend") && job.integer("spec.completions") == Some(0);
    if finished && !status.has("startTime") && !waits {
        report.required(STATUS.child("startTime"), "startTime is required for finished job");
    }
    if status.count("failed") < old.count("status.failed") {
        report.invalid(STATUS.child("failed"), status.count("failed"), "cannot decrease the failed counter");
    }
    if status.integer("ready").is_some_and(|ready| ready > status.count("active")) {
        report.invalid(STATUS.child("ready"), status.count("ready"), "cannot set more ready pods than active");
    }
}

/// A cron job; `old` is `null` on create.
pub(super) fn validate_cron_job(report: &mut Report, object: &Value, old: &Value) {
    let spec = object.at("spec");
    let name = object.text("metadata.name");
    if old.is_null() && name.len() > 52 {
        report.invalid(Path::Name("metadata.name"), name, "must be no more than 52 characters");
    }
    validate_schedule(report, SPEC, spec, old.at("spec"));
    report.nonnegative(SPEC.child("startingDeadlineSeconds"), spec.integer("startingDeadlineSeconds"));
    let policies = &["Allow", "Forbid", "Replace"];
    report.one_of(SPEC.child("concurrencyPolicy"), spec.text("concurrencyPolicy"), policies);
    let (template, path) = (spec.at("jobTemplate.spec"), SPEC.child("jobTemplate.spec"));
    validate_spec(report, path, template);
    if template.has("selector") {
        report.invalid(path.child("selector"), template.at("selector").clone(), "`selector` will be auto-generated");
    }
    if template.flag("manualSelector") {
        let error = FieldError::not_supported(path.child("manualSelector"), &json!(true), &["nil", "false"]);
        report.push(error);
    }
    for name in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        report.nonnegative(SPEC.child(name), spec.integer(name));
    }
}
