//! Volumes, claims, storage classes and CSI drivers.

use serde_json::{Value, json};

use super::row::{Row, scalar, text as field};
use super::{AGE, Column, NAME, Printer, boolean, integer, text, wide};

static VOLUME: Printer = Printer {
    columns: &[
        NAME,
        text("Capacity", ".spec.capacity"),
        text("Access Modes", ".spec.accessModes"),
        text("Reclaim Policy", ".spec.persistentVolumeReclaimPolicy"),
        text("Status", ".status.phase"),
        text("Claim", ".spec.claimRef"),
        text("StorageClass", "Class of the volume."),
        text("VolumeAttributesClass", "Attributes class of the volume."),
        text("Reason", ".status.reason"),
        AGE,
        wide("VolumeMode", ".spec.volumeMode"),
    ],
    cells: volume,
};
static CLAIM: Printer = Printer {
    columns: &[
        NAME,
        text("Status", ".status.phase"),
        text("Volume", ".spec.volumeName"),
        text("Capacity", ".status.capacity"),
        text("Access Modes", ".status.accessModes"),
        text("StorageClass", "Class of the claim."),
        text("VolumeAttributesClass", "Attributes class of the claim."),
        AGE,
        wide("VolumeMode", ".spec.volumeMode"),
    ],
    cells: claim,
};
static STORAGE_CLASS: Printer = Printer {
    columns: &[
        NAME,
        text("Provisioner", ".provisioner"),
        text("ReclaimPolicy", ".reclaimPolicy"),
        text("VolumeBindingMode", ".volumeBindingMode"),
        text("AllowVolumeExpansion", ".allowVolumeExpansion"),
        AGE,
    ],
    cells: storage_class,
};
static VOLUME_ATTRIBUTES_CLASS: Printer = Printer {
    columns: &[NAME, text("DriverName", ".driverName"), AGE],
    cells: |row| vec![row.name(), row.cell("driverName"), row.age()],
};
static VOLUME_ATTACHMENT: Printer = Printer {
    columns: &[
        NAME,
        Column { format: "name", ..text("Attacher", ".spec.attacher") },
        text("PV", ".spec.source.persistentVolumeName"),
        text("Node", ".spec.nodeName"),
        boolean("Attached", ".status.attached"),
        AGE,
    ],
    cells: |row| {
        vec![
            row.name(),
            row.cell("spec.attacher"),
            row.cell("spec.source.persistentVolumeName"),
            row.cell("spec.nodeName"),
            row.flag("status.attached", false),
            row.age(),
        ]
    },
};
static CSI_NODE: Printer = Printer {
    columns: &[NAME, integer("Drivers", "How many CSI drivers the node has."), AGE],
    cells: |row| vec![row.name(), json!(row.count("spec.drivers")), row.age()],
};
static CSI_DRIVER: Printer = Printer {
    columns: &[
        NAME,
        boolean("AttachRequired", ".spec.attachRequired"),
        boolean("PodInfoOnMount", ".spec.podInfoOnMount"),
        boolean("StorageCapacity", ".spec.storageCapacity"),
        text("TokenRequests", ".spec.tokenRequests"),
        boolean("RequiresRepublish", ".spec.requiresRepublish"),
        text("Modes", ".spec.volumeLifecycleModes"),
        AGE,
    ],
    cells: csi_driver,
};
static CSI_STORAGE_CAPACITY: Printer = Printer {
    columns: &[NAME, text("StorageClassName", ".storageClassName"), text("Capacity", ".capacity")],
    cells: |row| vec![row.name(), row.cell("storageClassName"), json!(scalar(row.at("capacity"), "<unset>"))],
};

pub(super) fn printer(group: &str, kind: &str) -> Option<&'static Printer> {
    Some(match (group, kind) {
        ("", "PersistentVolume") => &VOLUME,
        ("", "PersistentVolumeClaim") => &CLAIM,
        ("storage.k8s.io", "StorageClass") => &STORAGE_CLASS,
        ("storage.k8s.io", "VolumeAttributesClass") => &VOLUME_ATTRIBUTES_CLASS,
        ("storage.k8s.io", "VolumeAttachment") => &VOLUME_ATTACHMENT,
        ("storage.k8s.io", "CSINode") => &CSI_NODE,
        ("storage.k8s.io", "CSIDriver") => &CSI_DRIVER,
        ("storage.k8s.io", "CSIStorageCapacity") => &CSI_STORAGE_CAPACITY,
        _ => return None,
    })
}

fn volume(row: &Row<'_>) -> Vec<Value> {
    let claim = row.at("spec.claimRef");
    let claim =
        if claim.is_null() { String::new() } else { format!("{}/{}", field(claim, "namespace"), field(claim, "name")) };
    vec![
        row.name(),
        json!(scalar(row.at("spec.capacity.storage"), "0")),
        json!(access_modes(row.list("spec.accessModes"))),
        row.cell("spec.persistentVolumeReclaimPolicy"),
        phase(row),
        json!(claim),
        storage_class_name(row),
        row.cell_or("spec.volumeAttributesClassName", "<unset>"),
        row.cell("status.reason"),
        row.age(),
        row.cell_or("spec.volumeMode", "<unset>"),
    ]
}

fn claim(row: &Row<'_>) -> Vec<Value> {
    let (capacity, modes) = if row.text("spec.volumeName").is_empty() {
        (String::new(), String::new())
    } else {
        (scalar(row.at("status.capacity.storage"), "0"), access_modes(row.list("status.accessModes")))
    };
    vec![
        row.name(),
        phase(row),
        row.cell("spec.volumeName"),
        json!(capacity),
        json!(modes),
        storage_class_name(row),
        row.cell_or("spec.volumeAttributesClassName", "<unset>"),
        row.age(),
        row.cell_or("spec.volumeMode", "<unset>"),
    ]
}

fn phase(row: &Row<'_>) -> Value {
    if row.is_being_deleted() { json!("Terminating") } else { row.cell("status.phase") }
}

/// The annotation of old, else the field.
fn storage_class_name(row: &Row<'_>) -> Value {
    let annotation = row.at("metadata.annotations").get("volume.beta.kubernetes.io/storage-class");
    annotation.cloned().unwrap_or_else(|| row.cell("spec.storageClassName"))
}

fn access_modes(modes: &[Value]) -> String {
    let short =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let shown = short.iter().filter(|(long, _)| modes.iter().any(|mode| mode == long)).map(|(_, short)| *short);
    shown.collect::<Vec<_>>().join(",")
}

fn storage_class(row: &Row<'_>) -> Vec<Value> {
    let annotations = row.at("metadata.annotations");
    let marked = |key| annotations.get(key).and_then(Value::as_str) == Some("true");
    let default = marked("storageclass.kubernetes.io/is-default-class")
        || marked("storageclass.beta.kubernetes.io/is-default-class");
    let mark = if default { " (default)" } else { "" };
    vec![
        json!(format!("{}{mark}", row.text("metadata.name"))),
        row.cell("provisioner"),
        row.cell_or("reclaimPolicy", "Delete"),
        row.cell_or("volumeBindingMode", "Immediate"),
        row.flag("allowVolumeExpansion", false),
        row.age(),
    ]
}

fn csi_driver(row: &Row<'_>) -> Vec<Value> {
    let join = |values: Vec<&str>, none: &str| if values.is_empty() { none.to_owned() } else { values.join(",") };
    let requests = match row.at("spec.tokenRequests") {
        Value::Array(requests) => {
            requests.iter().map(|request| field(request, "audience")).collect::<Vec<_>>().join(",")
        }
        _ => "<unset>".to_owned(),
    };
    let modes = row.list("spec.volumeLifecycleModes").iter().filter_map(Value::as_str).collect();
    vec![
        row.name(),
        row.flag("spec.attachRequired", true),
        row.flag("spec.podInfoOnMount", false),
        row.flag("spec.storageCapacity", false),
        json!(requests),
        row.flag("spec.requiresRepublish", false),
        json!(join(modes, "<none>")),
        row.age(),
    ]
}
