//! Nothing is created in a namespace that does not exist or is going away, and the namespaces of the system stay.

use serde_json::{Value, json};

use super::{Attributes, ClusterReader, Operation};
use crate::resource::lookup;
use crate::status::{ApiError, Subject};

/// Namespaces that may not be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];

pub(super) fn check(
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    cluster: &dyn ClusterReader,
) -> Result<(), ApiError> {
    let resource = attributes.resource;
    if resource.gvk.group.is_empty() && resource.gvk.kind == "Namespace" {
        if attributes.operation == Operation::Delete && IMMORTAL.contains(&attributes.name) {
            return Err(attributes.forbidden(None, "this namespace may not be deleted"));
        }
        return Ok(());
    }
    let Some(namespace) = attributes.namespace else { return Ok(()) };
    // Access reviews would otherwise tell anybody which namespaces exist.
    if !matches!(attributes.operation, Operation::Create | Operation::Update)
        || resource.plural == "localsubjectaccessreviews"
    {
        return Ok(());
    }
    let Some(found) = cluster.get("namespaces", None, namespace) else {
        let subject = Subject { group: "", resource: "namespaces", kind: "Namespace", name: namespace };
        return Err(ApiError::not_found(subject));
    };
    let phase = lookup(&found, "status.phase").and_then(Value::as_str);
    if attributes.operation != Operation::Create || phase != Some("Terminating") {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut error = attributes.forbidden(object, why);
    if let Some(details) = &mut error.details {
        details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
    }
    Err(error)
}
