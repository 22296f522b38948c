//! Nodes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::row::{Row, text as field};
use super::{AGE, NAME, Printer, text, wide};

static NODE: Printer = Printer {
    columns: &[
        NAME,
        text("Status", "Whether the node is ready and takes new pods."),
        text("Roles", "Roles of the node, from its labels."),
        AGE,
        text("Version", ".status.nodeInfo.kubeletVersion"),
        wide("Internal-IP", ".status.addresses"),
        wide("External-IP", ".status.addresses"),
        wide("OS-Image", ".status.nodeInfo.osImage"),
        wide("Kernel-Version", ".status.nodeInfo.kernelVersion"),
        wide("Container-Runtime", ".status.nodeInfo.containerRuntimeVersion"),
    ],
    cells,
};

pub(super) fn printer(group: &str, kind: &str) -> Option<&'static Printer> {
    (group.is_empty() && kind == "Node").then_some(&NODE)
}

fn cells(row: &Row<'_>) -> Vec<Value> {
    let mut status = match row.condition("Ready") {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if row.at("spec.unschedulable") == &json!(true) {
        status.push_str(",SchedulingDisabled");
    }
    vec![
        row.name(),
        json!(status),
        json!(roles(row)),
        row.age(),
        row.cell("status.nodeInfo.kubeletVersion"),
        json!(address(row, "InternalIP")),
        json!(address(row, "ExternalIP")),
        row.cell_or("status.nodeInfo.osImage", "<unknown>"),
        row.cell_or("status.nodeInfo.kernelVersion", "<unknown>"),
        row.cell_or("status.nodeInfo.containerRuntimeVersion", "<unknown>"),
    ]
}

fn roles(row: &Row<'_>) -> String {
    let mut roles = BTreeSet::new();
    for (key, value) in row.at("metadata.labels").as_object().into_iter().flatten() {
        let role = match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => role,
            None if key == "kubernetes.io/role" => value.as_str().unwrap_or_default(),
            None => "",
        };
        if !role.is_empty() {
            roles.insert(role);
        }
    }
    if roles.is_empty() { "<none>".to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn address<'a>(row: &Row<'a>, kind: &str) -> &'a str {
    let addresses = row.list("status.addresses");
    addresses.iter().find(|address| field(address, "type") == kind).map_or("<none>", |a| field(a, "address"))
}
