//! Pods: the STATUS column sums up phase, conditions and containers in one word.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::row::{Row, at, list, text as field};
use super::{AGE, Column, NAME, Printer, text, wide};

static POD: Printer = Printer { columns: COLUMNS, cells };
static POD_TEMPLATE: Printer = Printer {
    columns: &[
        NAME,
        text("Containers", "Names of the containers of the template."),
        text("Images", "Images of the containers of the template."),
        text("Pod Labels", "Labels that pods of this template get."),
    ],
    cells: |row| {
        let [names, images] = row.containers("template.spec.containers");
        vec![row.name(), names, images, row.labels("template.metadata.labels")]
    },
};

const COLUMNS: &[Column] = &[
    NAME,
    text("Ready", "How many containers are ready, of how many."),
    text("Status", "Phase of the pod, or what keeps it from running."),
    text("Restarts", "How often containers were restarted, and when last."),
    AGE,
    wide("IP", ".status.podIP"),
    wide("Node", ".spec.nodeName"),
    wide("Nominated Node", ".status.nominatedNodeName"),
    wide("Readiness Gates", ".spec.readinessGates"),
];

pub(super) fn printer(group: &str, kind: &str) -> Option<&'static Printer> {
    match (group, kind) {
        ("", "Pod") => Some(&POD),
        ("", "PodTemplate") => Some(&POD_TEMPLATE),
        _ => None,
    }
}

/// What a row says of a pod that will not run again; clients may grey it out.
pub(super) fn conditions(row: &Row<'_>) -> Option<Value> {
    let message = match row.text("status.phase") {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!([{
        "type": "Completed", "status": "True", "reason": row.text("status.phase"), "message": message,
    }]))
}

fn cells(row: &Row<'_>) -> Vec<Value> {
    let summary = Summary::of(row);
    let restarts = match summary.last_restart {
        Some(time) if summary.restarts != 0 => {
            format!("{} ({} ago)", summary.restarts, super::human_duration(row.now.duration_since(time)))
        }
        _ => summary.restarts.to_string(),
    };
    let address = row.list("status.podIPs").first().map_or("", |address| field(address, "ip"));
    vec![
        row.name(),
        json!(format!("{}/{}", summary.ready, summary.containers)),
        json!(summary.status),
        json!(restarts),
        row.age(),
        json!(if address.is_empty() { "<none>" } else { address }),
        row.cell_or("spec.nodeName", "<none>"),
        row.cell_or("status.nominatedNodeName", "<none>"),
        json!(readiness_gates(row)),
    ]
}

fn readiness_gates(row: &Row<'_>) -> String {
    let gates = row.list("spec.readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = gates.iter().filter(|gate| row.condition(field(gate, "conditionType")) == Some("True")).count();
    format!("{open}/{}", gates.len())
}

/// The containers of a pod, counted in the order that a real server counts them.
#[derive(Default)]
struct Summary {
    status: String,
    ready: usize,
    containers: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
    /// The same for init containers that run beside the others.
    sidecar_restarts: i64,
    last_sidecar_restart: Option<Timestamp>,
}

impl Summary {
    fn of(row: &Row<'_>) -> Self {
        let init_containers = row.list("spec.initContainers");
        let sidecars = init_containers.iter().filter(|container| is_sidecar(container)).count();
        let mut summary = Self {
            status: row.text("status.phase").to_owned(),
            containers: row.list("spec.containers").len() + sidecars,
            ..Self::default()
        };
        if !row.text("status.reason").is_empty() {
            row.text("status.reason").clone_into(&mut summary.status);
        }
        let gated = |condition: &Value| {
            field(condition, "type") == "PodScheduled" && field(condition, "reason") == "SchedulingGated"
        };
        if row.list("status.conditions").iter().any(gated) {
            "SchedulingGated".clone_into(&mut summary.status);
        }
        let initializing = summary.add_init_containers(row, init_containers);
        if !initializing || row.condition("Initialized") == Some("True") {
            summary.add_containers(row);
        }
        if row.is_being_deleted() && row.text("status.reason") == "NodeLost" {
            "Unknown".clone_into(&mut summary.status);
        } else if row.is_being_deleted() && !matches!(row.text("status.phase"), "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut summary.status);
        }
        summary
    }

    /// Whether an init container still has to finish.
    fn add_init_containers(&mut self, row: &Row<'_>, init_containers: &[Value]) -> bool {
        for (index, container) in row.list("status.initContainerStatuses").iter().enumerate() {
            let name = field(container, "name");
            let sidecar = init_containers.iter().any(|spec| field(spec, "name") == name && is_sidecar(spec));
            self.restarts += restart_count(container);
            self.last_restart = self.last_restart.max(last_finish(container));
            if sidecar {
                self.sidecar_restarts += restart_count(container);
                self.last_sidecar_restart = self.last_sidecar_restart.max(last_finish(container));
            }
            let terminated = at(container, "state.terminated");
            let waiting = field(container, "state.waiting.reason");
            if !terminated.is_null() && at(terminated, "exitCode").as_i64().unwrap_or_default() == 0 {
                continue;
            }
            if sidecar && at(container, "started") == &json!(true) {
                self.ready += usize::from(at(container, "ready") == &json!(true));
                continue;
            }
            self.status = if !terminated.is_null() {
                format!("Init:{}", end_of(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", init_containers.len())
            };
            return true;
        }
        false
    }

    fn add_containers(&mut self, row: &Row<'_>) {
        self.restarts = self.sidecar_restarts;
        self.last_restart = self.last_sidecar_restart;
        let mut one_runs = false;
        for container in list(row.object, "status.containerStatuses").iter().rev() {
            self.restarts += restart_count(container);
            self.last_restart = self.last_restart.max(last_finish(container));
            let terminated = at(container, "state.terminated");
            let waiting = field(container, "state.waiting.reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.status);
            } else if !terminated.is_null() {
                self.status = end_of(terminated);
            } else if at(container, "ready") == &json!(true) && !at(container, "state.running").is_null() {
                one_runs = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" && one_runs {
            let ready = row.condition("Ready") == Some("True");
            (if ready { "Running" } else { "NotReady" }).clone_into(&mut self.status);
        }
    }
}

/// Why a container ended: its reason, else the signal or exit code.
fn end_of(terminated: &Value) -> String {
    let number = |name| at(terminated, name).as_i64().unwrap_or_default();
    match field(terminated, "reason") {
        "" if number("signal") != 0 => format!("Signal:{}", number("signal")),
        "" => format!("ExitCode:{}", number("exitCode")),
        reason => reason.to_owned(),
    }
}

fn restart_count(container: &Value) -> i64 {
    at(container, "restartCount").as_i64().unwrap_or_default()
}

fn last_finish(container: &Value) -> Option<Timestamp> {
    field(container, "lastState.terminated.finishedAt").parse().ok()
}

fn is_sidecar(container: &Value) -> bool {
    field(container, "restartPolicy") == "Always"
}
