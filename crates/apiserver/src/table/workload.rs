//! Controllers of pods: deployments, sets, jobs, autoscalers and disruption budgets.

use serde_json::{Value, json};

use super::row::{Row, at, first_words, scalar, text as field};
use super::{AGE, Column, NAME, Printer, boolean, human_duration, integer, text, wide};
use crate::select::LabelSelector;

const CONTAINERS: Column = wide("Containers", "Names of the containers of the template.");
const IMAGES: Column = wide("Images", "Images of the containers of the template.");
const SELECTOR: Column = wide("Selector", ".spec.selector");
const TEMPLATE_CONTAINERS: &str = "spec.template.spec.containers";

static DEPLOYMENT: Printer = Printer {
    columns: &[
        NAME,
        text("Ready", "How many pods are ready, of how many."),
        text("Up-to-date", ".status.updatedReplicas"),
        text("Available", ".status.availableReplicas"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |row| {
        let [names, images] = row.containers(TEMPLATE_CONTAINERS);
        let selector = LabelSelector::from_value(row.at("spec.selector"));
        vec![
            row.name(),
            ready_of_desired(row),
            json!(row.integer("status.updatedReplicas")),
            json!(row.integer("status.availableReplicas")),
            row.age(),
            names,
            images,
            json!(selector.map_or_else(|_| "<invalid>".to_owned(), |selector| selector.to_string())),
        ]
    },
};
static REPLICA_SET: Printer = Printer {
    columns: &[
        NAME,
        integer("Desired", ".spec.replicas"),
        integer("Current", ".status.replicas"),
        integer("Ready", ".status.readyReplicas"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |row| replicas(row, row.selector("spec.selector")),
};
static REPLICATION_CONTROLLER: Printer =
    Printer { columns: REPLICA_SET.columns, cells: |row| replicas(row, row.labels("spec.selector")) };
static STATEFUL_SET: Printer = Printer {
    columns: &[NAME, text("Ready", "How many pods are ready, of how many."), AGE, CONTAINERS, IMAGES],
    cells: |row| {
        let [names, images] = row.containers(TEMPLATE_CONTAINERS);
        vec![row.name(), ready_of_desired(row), row.age(), names, images]
    },
};
static DAEMON_SET: Printer = Printer {
    columns: &[
        NAME,
        integer("Desired", ".status.desiredNumberScheduled"),
        integer("Current", ".status.currentNumberScheduled"),
        integer("Ready", ".status.numberReady"),
        integer("Up-to-date", ".status.updatedNumberScheduled"),
        integer("Available", ".status.numberAvailable"),
        text("Node Selector", ".spec.template.spec.nodeSelector"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |row| {
        let [names, images] = row.containers(TEMPLATE_CONTAINERS);
        vec![
            row.name(),
            json!(row.integer("status.desiredNumberScheduled")),
            json!(row.integer("status.currentNumberScheduled")),
            json!(row.integer("status.numberReady")),
            json!(row.integer("status.updatedNumberScheduled")),
            json!(row.integer("status.numberAvailable")),
            row.labels("spec.template.spec.nodeSelector"),
            row.age(),
            names,
            images,
            row.selector("spec.selector"),
        ]
    },
};
static JOB: Printer = Printer {
    columns: &[
        NAME,
        text("Status", "What the job does."),
        text("Completions", ".status.succeeded"),
        text("Duration", "How long the job has run."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: job,
};
static CRON_JOB: Printer = Printer {
    columns: &[
        NAME,
        text("Schedule", ".spec.schedule"),
        text("Timezone", ".spec.timeZone"),
        boolean("Suspend", ".spec.suspend"),
        integer("Active", ".status.active"),
        text("Last Schedule", ".status.lastScheduleTime"),
        AGE,
        CONTAINERS,
        IMAGES,
        wide("Selector", ".spec.jobTemplate.spec.selector"),
    ],
    cells: cron_job,
};
static CONTROLLER_REVISION: Printer = Printer {
    columns: &[NAME, text("Controller", "Owner of the revision."), text("Revision", ".revision"), AGE],
    cells: |row| {
        let owners = row.list("metadata.ownerReferences");
        let controller = owners.iter().find(|owner| at(owner, "controller") == &json!(true));
        let shown = controller.map_or("<none>".to_owned(), |owner| {
            let group = field(owner, "apiVersion").split_once('/').map(|(group, _)| format!(".{group}"));
            let kind = format!("{}{}", field(owner, "kind"), group.unwrap_or_default());
            format!("{}/{}", kind.to_lowercase(), field(owner, "name"))
        });
        vec![row.name(), json!(shown), json!(row.integer("revision")), row.age()]
    },
};
static DISRUPTION_BUDGET: Printer = Printer {
    columns: &[
        NAME,
        text("Min Available", "How many pods must stay available."),
        text("Max Unavailable", "How many pods may be unavailable."),
        integer("Allowed Disruptions", "How many pods may be evicted now."),
        AGE,
    ],
    cells: |row| {
        vec![
            row.name(),
            json!(scalar(row.at("spec.minAvailable"), "N/A")),
            json!(scalar(row.at("spec.maxUnavailable"), "N/A")),
            json!(row.integer("status.disruptionsAllowed")),
            row.age(),
        ]
    },
};
static AUTOSCALER: Printer = Printer {
    columns: &[
        NAME,
        text("Reference", ".spec.scaleTargetRef"),
        text("Targets", ".spec.metrics"),
        text("MinPods", ".spec.minReplicas"),
        text("MaxPods", ".spec.maxReplicas"),
        text("Replicas", ".status.currentReplicas"),
        AGE,
    ],
    cells: |row| {
        let target = row.at("spec.scaleTargetRef");
        vec![
            row.name(),
            json!(format!("{}/{}", field(target, "kind"), field(target, "name"))),
            json!(metrics(row)),
            json!(scalar(row.at("spec.minReplicas"), "<unset>")),
            json!(row.integer("spec.maxReplicas")),
            json!(row.integer("status.currentReplicas")),
            row.age(),
        ]
    },
};

pub(super) fn printer(group: &str, kind: &str) -> Option<&'static Printer> {
    Some(match (group, kind) {
        ("apps", "Deployment") => &DEPLOYMENT,
        ("apps", "ReplicaSet") => &REPLICA_SET,
        ("", "ReplicationController") => &REPLICATION_CONTROLLER,
        ("apps", "StatefulSet") => &STATEFUL_SET,
        ("apps", "DaemonSet") => &DAEMON_SET,
        ("apps", "ControllerRevision") => &CONTROLLER_REVISION,
        ("batch", "Job") => &JOB,
        ("batch", "CronJob") => &CRON_JOB,
        ("policy", "PodDisruptionBudget") => &DISRUPTION_BUDGET,
        ("autoscaling", "HorizontalPodAutoscaler") => &AUTOSCALER,
        _ => return None,
    })
}

fn ready_of_desired(row: &Row<'_>) -> Value {
    json!(format!("{}/{}", row.integer("status.readyReplicas"), row.integer("spec.replicas")))
}

fn replicas(row: &Row<'_>, selector: Value) -> Vec<Value> {
    let [names, images] = row.containers(TEMPLATE_CONTAINERS);
    vec![
        row.name(),
        json!(row.integer("spec.replicas")),
        json!(row.integer("status.replicas")),
        json!(row.integer("status.readyReplicas")),
        row.age(),
        names,
        images,
        selector,
    ]
}

fn job(row: &Row<'_>) -> Vec<Value> {
    let succeeded = row.integer("status.succeeded");
    let completions = match (row.at("spec.completions").as_i64(), row.integer("spec.parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    };
    let started = row.text("status.startTime").parse::<jiff::Timestamp>();
    let ended = row.text("status.completionTime").parse().unwrap_or(row.now);
    let duration = started.map_or(String::new(), |started| human_duration(ended.duration_since(started)));
    let holds = |condition| row.condition(condition) == Some("True");
    let status = match () {
        () if holds("Complete") => "Complete",
        () if holds("Failed") => "Failed",
        () if row.is_being_deleted() => "Terminating",
        () if holds("Suspended") => "Suspended",
        () if holds("FailureTarget") => "FailureTarget",
        () if holds("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    let [names, images] = row.containers(TEMPLATE_CONTAINERS);
    vec![
        row.name(),
        json!(status),
        json!(completions),
        json!(duration),
        row.age(),
        names,
        images,
        row.selector("spec.selector"),
    ]
}

fn cron_job(row: &Row<'_>) -> Vec<Value> {
    let suspended = match row.at("spec.suspend").as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = row.at("status.lastScheduleTime");
    let last = if last.is_null() { "<none>".to_owned() } else { row.since("status.lastScheduleTime") };
    let [names, images] = row.containers("spec.jobTemplate.spec.template.spec.containers");
    vec![
        row.name(),
        row.cell("spec.schedule"),
        row.cell_or("spec.timeZone", "<none>"),
        json!(suspended),
        json!(row.count("status.active")),
        json!(last),
        row.age(),
        names,
        images,
        row.selector("spec.jobTemplate.spec.selector"),
    ]
}

/// `current/target` of each metric, the first two of them.
fn metrics(row: &Row<'_>) -> String {
    // autoscaling/v1 knows CPU only, as a field of its own.
    if let Some(target) = row.at("spec.targetCPUUtilizationPercentage").as_i64() {
        let current = percentage(row.at("status.currentCPUUtilizationPercentage"), "<unknown>");
        return format!("cpu: {current}/{target}%");
    }
    let statuses = row.list("status.currentMetrics");
    let specs = row.list("spec.metrics").iter().enumerate();
    let shown: Vec<String> =
        specs.map(|(index, spec)| metric(spec, statuses.get(index).unwrap_or(&Value::Null))).collect();
    first_words(&shown, 2, ", ", "<none>")
}

fn metric(spec: &Value, status: &Value) -> String {
    let kind = match field(spec, "type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let (spec, status) = (at(spec, kind), at(status, kind));
    let (target, current) = (at(spec, "target"), at(status, "current"));
    // A status that is there without the value is a zero quantity; one that is missing is unknown.
    let now = |name| scalar(at(current, name), if status.is_null() { "<unknown>" } else { "0" });
    let average = at(target, "averageValue");
    match kind {
        "pods" => format!("{}/{}", now("averageValue"), scalar(average, "0")),
        "external" | "object" if !average.is_null() => {
            format!("{}/{} (avg)", scalar(at(current, "averageValue"), "<unknown>"), scalar(average, "0"))
        }
        "external" | "object" => format!("{}/{}", now("value"), scalar(at(target, "value"), "0")),
        _ if !average.is_null() => {
            format!("{}: {}/{}", field(spec, "name"), now("averageValue"), scalar(average, "0"))
        }
        _ => {
            let current = percentage(at(current, "averageUtilization"), "<unknown>");
            let target = percentage(at(target, "averageUtilization"), "<auto>");
            format!("{}: {current}/{target}", field(spec, "name"))
        }
    }
}

fn percentage(value: &Value, default: &str) -> String {
    value.as_i64().map_or_else(|| default.to_owned(), |number| format!("{number}%"))
}
