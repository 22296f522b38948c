//! The small kinds of the core group, and events in both their forms.

use serde_json::{Value, json};

use super::row::{Row, scalar};
use super::{AGE, Column, NAME, Printer, text, wide};

static NAMESPACE: Printer = Printer {
    columns: &[NAME, text("Status", "Whether the namespace takes new objects."), AGE],
    cells: |row| vec![row.name(), row.cell("status.phase"), row.age()],
};
static SECRET: Printer = Printer {
    columns: &[NAME, text("Type", ".type"), text("Data", ".data"), AGE],
    cells: |row| vec![row.name(), row.cell("type"), json!(row.count("data")), row.age()],
};
static CONFIG_MAP: Printer = Printer {
    columns: &[NAME, text("Data", ".data"), AGE],
    cells: |row| vec![row.name(), json!(row.count("data") + row.count("binaryData")), row.age()],
};
static SERVICE_ACCOUNT: Printer = Printer {
    columns: &[NAME, text("Secrets", ".secrets"), AGE],
    cells: |row| vec![row.name(), json!(row.count("secrets")), row.age()],
};
static RESOURCE_QUOTA: Printer = Printer {
    columns: &[
        NAME,
        text("Request", "What is used and allowed of each request."),
        text("Limit", "What is used and allowed of each limit."),
        AGE,
    ],
    cells: resource_quota,
};
static COMPONENT_STATUS: Printer = Printer {
    columns: &[
        NAME,
        text("Status", "Whether the component is healthy."),
        text("Message", "What the component says."),
        text("Error", "What is wrong with the component."),
    ],
    cells: |row| {
        let healthy = row.list("conditions").iter().find(|c| super::row::text(c, "type") == "Healthy");
        let of = |name| healthy.map_or("", |c| super::row::text(c, name));
        let status = match (healthy.is_some(), of("status")) {
            (false, _) => "Unknown",
            (true, "True") => "Healthy",
            (true, _) => "Unhealthy",
        };
        vec![row.name(), json!(status), json!(of("message")), json!(of("error"))]
    },
};
static EVENT: Printer = Printer {
    columns: &[
        text("Last Seen", ".lastTimestamp"),
        text("Type", ".type"),
        text("Reason", ".reason"),
        text("Object", ".involvedObject"),
        wide("Subobject", ".involvedObject.fieldPath"),
        wide("Source", ".source"),
        text("Message", ".message"),
        wide("First Seen", ".firstTimestamp"),
        wide("Count", ".count"),
        Column { priority: 1, ..NAME },
    ],
    cells: event,
};

pub(super) fn printer(group: &str, kind: &str) -> Option<&'static Printer> {
    Some(match (group, kind) {
        ("", "Namespace") => &NAMESPACE,
        ("", "Secret") => &SECRET,
        ("", "ConfigMap") => &CONFIG_MAP,
        ("", "ServiceAccount") => &SERVICE_ACCOUNT,
        ("", "ResourceQuota") => &RESOURCE_QUOTA,
        ("", "ComponentStatus") => &COMPONENT_STATUS,
        ("" | "events.k8s.io", "Event") => &EVENT,
        _ => return None,
    })
}

fn resource_quota(row: &Row<'_>) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in row.at("status.hard").as_object().into_iter().flatten() {
        // Not a dotted path: names of resources contain dots.
        let used = row.at("status.used").get(resource).unwrap_or(&Value::Null);
        let column = if resource.starts_with("limits.") { &mut limits } else { &mut requests };
        column.push(format!("{resource}: {}/{}", scalar(used, "0"), scalar(hard, "0")));
    }
    vec![row.name(), json!(requests.join(", ")), json!(limits.join(", ")), row.age()]
}

/// Core events and those of `events.k8s.io` are the same objects under two sets of names.
fn event(row: &Row<'_>) -> Vec<Value> {
    let either = |core: &'static str, new: &'static str| if row.at(core).is_null() { new } else { core };
    let first_time = either("firstTimestamp", "deprecatedFirstTimestamp");
    let first_seen = row.since(if row.at(first_time).is_null() { "eventTime" } else { first_time });
    let last_time = either("lastTimestamp", "deprecatedLastTimestamp");
    let series = row.at("series");
    let last_seen = match (series.is_null(), row.at(last_time).is_null()) {
        (false, _) => row.since("series.lastObservedTime"),
        (true, false) => row.since(last_time),
        (true, true) => first_seen.clone(),
    };
    let count = match (series.is_null(), row.integer(either("count", "deprecatedCount"))) {
        (false, _) => row.integer("series.count"),
        (true, 0) => 1,
        (true, count) => count,
    };
    let object = either("involvedObject", "regarding");
    let kind = row.text(&format!("{object}.kind")).to_lowercase();
    let name = row.text(&format!("{object}.name"));
    let target = if name.is_empty() { kind } else { format!("{kind}/{name}") };
    vec![
        json!(last_seen),
        row.cell("type"),
        row.cell("reason"),
        json!(target),
        row.cell(&format!("{object}.fieldPath")),
        json!(event_source(row, either("source", "deprecatedSource"))),
        json!(row.text(either("message", "note")).trim()),
        json!(first_seen),
        json!(count),
        row.name(),
    ]
}

fn event_source(row: &Row<'_>, source: &str) -> String {
    let first = |paths: [&str; 3]| paths.iter().map(|path| row.text(path)).find(|word| !word.is_empty()).unwrap_or("");
    let component = first([&format!("{source}.component"), "reportingComponent", "reportingController"]);
    let instance = first([&format!("{source}.host"), "reportingInstance", ""]);
    if instance.is_empty() { component.to_owned() } else { format!("{component}, {instance}") }
}
