//! What the cluster itself is made of: leases, classes, role bindings, webhooks, devices.

use serde_json::{Value, json};

use super::row::{Row, text as field};
use super::{AGE, Column, NAME, Printer, boolean, integer, text, wide};

const WEBHOOKS: Column = integer("Webhooks", "How many webhooks the configuration has.");

static LEASE: Printer = Printer {
    columns: &[NAME, text("Holder", ".spec.holderIdentity"), AGE],
    cells: |row| vec![row.name(), row.cell("spec.holderIdentity"), row.age()],
};
static PRIORITY_CLASS: Printer = Printer {
    columns: &[
        NAME,
        integer("Value", ".value"),
        boolean("Global-Default", ".globalDefault"),
        AGE,
        text("PreemptionPolicy", ".preemptionPolicy"),
    ],
    cells: |row| {
        vec![
            row.name(),
            json!(row.integer("value")),
            row.flag("globalDefault", false),
            row.age(),
            row.cell("preemptionPolicy"),
        ]
    },
};
static RUNTIME_CLASS: Printer = Printer {
    columns: &[NAME, text("Handler", ".handler"), AGE],
    cells: |row| vec![row.name(), row.cell("handler"), row.age()],
};
static BINDING: Printer = Printer {
    columns: &[
        NAME,
        text("Role", ".roleRef"),
        AGE,
        wide("Users", "Users who get the role."),
        wide("Groups", "Groups who get the role."),
        wide("ServiceAccounts", "Service accounts that get the role."),
    ],
    cells: binding,
};
static WEBHOOK_CONFIGURATION: Printer =
    Printer { columns: &[NAME, WEBHOOKS, AGE], cells: |row| vec![row.name(), json!(row.count("webhooks")), row.age()] };
static ADMISSION_POLICY: Printer = Printer {
    columns: &[
        NAME,
        integer("Validations", "How many rules the policy has."),
        text("ParamKind", "Kind of the objects that parameterize the policy."),
        AGE,
    ],
    cells: |row| {
        let parameters = row.at("spec.paramKind");
        let shown = if parameters.is_null() {
            "<unset>".to_owned()
        } else {
            format!("{}/{}", field(parameters, "apiVersion"), field(parameters, "kind"))
        };
        vec![row.name(), json!(row.count("spec.validations")), json!(shown), row.age()]
    },
};
static ADMISSION_POLICY_BINDING: Printer = Printer {
    columns: &[
        NAME,
        text("PolicyName", "The policy that is bound."),
        text("ParamRef", "The object that parameterizes the policy."),
        AGE,
    ],
    cells: |row| {
        let reference = row.at("spec.paramRef");
        let shown = match (field(reference, "namespace"), field(reference, "name")) {
            (_, "") => "<unset>".to_owned(),
            ("", name) => format!("*/{name}"),
            (namespace, name) => format!("{namespace}/{name}"),
        };
        vec![row.name(), row.cell("spec.policyName"), json!(shown), row.age()]
    },
};
static NAME_AND_AGE: Printer = Printer { columns: &[NAME, AGE], cells: |row| vec![row.name(), row.age()] };
static RESOURCE_CLAIM: Printer = Printer {
    columns: &[NAME, text("State", "Whether the claim is allocated and in use."), AGE],
    cells: resource_claim,
};
static RESOURCE_SLICE: Printer = Printer {
    columns: &[
        NAME,
        text("Node", ".spec.nodeName"),
        text("Driver", ".spec.driver"),
        text("Pool", ".spec.pool.name"),
        AGE,
    ],
    cells: |row| {
        vec![row.name(), row.cell("spec.nodeName"), row.cell("spec.driver"), row.cell("spec.pool.name"), row.age()]
    },
};
static SIGNING_REQUEST: Printer = Printer {
    columns: &[
        NAME,
        AGE,
        text("SignerName", ".spec.signerName"),
        text("Requestor", ".spec.request"),
        text("RequestedDuration", ".spec.expirationSeconds"),
        text("Condition", ".status.conditions"),
    ],
    cells: signing_request,
};
static SCALE: Printer = Printer {
    columns: &[
        Column { format: "", ..NAME },
        integer("Desired", ".spec.replicas"),
        integer("Available", ".status.replicas"),
        AGE,
    ],
    cells: |row| {
        vec![row.name(), json!(row.integer("spec.replicas")), json!(row.integer("status.replicas")), row.age()]
    },
};

pub(super) fn printer(group: &str, kind: &str) -> Option<&'static Printer> {
    Some(match (group, kind) {
        ("coordination.k8s.io", "Lease") => &LEASE,
        ("scheduling.k8s.io", "PriorityClass") => &PRIORITY_CLASS,
        ("node.k8s.io", "RuntimeClass") => &RUNTIME_CLASS,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &BINDING,
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            &WEBHOOK_CONFIGURATION
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => &ADMISSION_POLICY,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => &ADMISSION_POLICY_BINDING,
        ("resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate") => &NAME_AND_AGE,
        ("resource.k8s.io", "ResourceClaim") => &RESOURCE_CLAIM,
        ("resource.k8s.io", "ResourceSlice") => &RESOURCE_SLICE,
        ("certificates.k8s.io", "CertificateSigningRequest") => &SIGNING_REQUEST,
        ("autoscaling", "Scale") => &SCALE,
        _ => return None,
    })
}

fn binding(row: &Row<'_>) -> Vec<Value> {
    let subjects = |kind: &str| {
        let of_kind = row.list("subjects").iter().filter(|subject| field(subject, "kind") == kind);
        let names = of_kind.map(|subject| match (kind, field(subject, "namespace")) {
            ("ServiceAccount", namespace) if !namespace.is_empty() => {
                format!("{namespace}/{}", field(subject, "name"))
            }
            _ => field(subject, "name").to_owned(),
        });
        json!(names.collect::<Vec<_>>().join(", "))
    };
    let role = row.at("roleRef");
    vec![
        row.name(),
        json!(format!("{}/{}", field(role, "kind"), field(role, "name"))),
        row.age(),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

fn resource_claim(row: &Row<'_>) -> Vec<Value> {
    let mut states = Vec::new();
    if row.is_being_deleted() {
        states.push("deleted");
    }
    if !row.at("status.allocation").is_null() {
        states.push("allocated");
        if row.count("status.reservedFor") > 0 {
            states.push("reserved");
        }
    } else if !row.is_being_deleted() {
        states.push("pending");
    }
    vec![row.name(), json!(states.join(",")), row.age()]
}

fn signing_request(row: &Row<'_>) -> Vec<Value> {
    let is = |kind: &str| row.condition(kind).is_some();
    let mut condition = match () {
        () if is("Denied") => "Denied",
        () if is("Approved") => "Approved",
        () => "Pending",
    }
    .to_owned();
    if is("Failed") {
        condition.push_str(",Failed");
    }
    if !row.text("status.certificate").is_empty() {
        condition.push_str(",Issued");
    }
    let duration = row.at("spec.expirationSeconds").as_i64();
    let duration =
        duration.map_or("<none>".to_owned(), |seconds| super::human_duration(jiff::SignedDuration::from_secs(seconds)));
    vec![
        row.name(),
        row.age(),
        row.cell_or("spec.signerName", "<none>"),
        row.cell("spec.username"),
        json!(duration),
        json!(condition),
    ]
}
